"""The first process of a container: what it does when the node has ended."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

RUN_NODE = Path(__file__).resolve().parents[3] / "deploy" / "run-node"


def run(tmp_path: Path, program: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run it with a node that does this."""
    node = tmp_path / "holdfast-node"
    node.write_text(f"#!/bin/sh\n{program}\n")
    node.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"} | variables
    return subprocess.run(
        [RUN_NODE, *words], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def test_a_node_that_was_killed_is_told(tmp_path: Path) -> None:
    """It had no time to say so itself; the engine still hears of the code."""
    done = run(tmp_path, "kill -KILL $$")
    assert done.returncode == 128 + signal.SIGKILL
    line = done.stderr.splitlines()[-1]  # the shell says something as well
    assert "level=critical logger=run-node event=killed exit_code=137" in line
    assert "HOLDFAST_MEMORY" in line


@pytest.mark.parametrize("code", [0, 1, 3, 70])
def test_other_ends_are_the_node_s_to_tell(tmp_path: Path, code: int) -> None:
    """Nothing is added to them where containers are not held."""
    done = run(tmp_path, f"exit {code}")
    assert (done.returncode, done.stderr) == (code, "")


def test_a_check_of_the_settings_is_never_held(tmp_path: Path) -> None:
    """What is wrong is for whoever asked, and the container ends."""
    done = run(tmp_path, 'echo "$@"; exit 2', "--dial", "--check-config", HOLDFAST_HOLD="true")
    assert (done.returncode, done.stdout, done.stderr) == (2, "--dial --check-config\n", "")
