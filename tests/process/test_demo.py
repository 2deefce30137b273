"""scripts/demo as a newcomer runs it: it tells its story to the end, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import processes_with

pytestmark = pytest.mark.process

PROJECT = Path(__file__).resolve().parents[2]
DEMO_S = 90.0


def _start(tmp_path: Path) -> subprocess.Popen[str]:
    """Start the demo with a folder of its own for temporary files, in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "scripts.demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONPATH": str(PROJECT), "TMPDIR": str(tmp_path)},
        start_new_session=True,
    )


def _leftovers(tmp_path: Path) -> list[str]:
    """Return the files and the processes that are left of a demo."""
    return [*map(str, tmp_path.iterdir()), *processes_with(str(tmp_path)).values()]


def test_the_demo_tells_its_story(tmp_path: Path) -> None:
    """The demo ends well, having checked all its claims, and its nodes and files are gone."""
    demo = _start(tmp_path)
    output, _ = demo.communicate(timeout=DEMO_S)
    assert demo.returncode == 0, output
    assert f"all {output.count(' ok: ')} claims were checked" in output
    assert "alice still holds the lock, with the same token 1" in output
    assert "bob holds the lock, with the next token 2" in output
    assert _leftovers(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_demo_cleans_up(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C, a termination and a closed terminal stop the demo's nodes and remove its files."""
    demo = _start(tmp_path)
    assert demo.stdout is not None
    for line in demo.stdout:
        if "alice acquires" in line:
            break
    demo.send_signal(number)
    output, _ = demo.communicate(timeout=DEMO_S)
    assert demo.returncode == 130, output
    assert _leftovers(tmp_path) == []
