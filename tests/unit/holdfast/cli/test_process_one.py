"""`holdfast run` as process 1 of a container, in a PID namespace of its own."""

import asyncio
import functools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.holdfast.cli.test_commands import DEADLINE_S, ROOT, until
from tests.unit.holdfast.conftest import a_node

UNSHARE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child")


@functools.cache
def can_unshare() -> bool:
    """Whether this machine lets us make a PID namespace."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0


async def start_as_one(url: str, script: str) -> asyncio.subprocess.Process:
    """Run a script of the shell under `holdfast run`, which is process 1."""
    if not can_unshare():
        pytest.skip("needs unshare(1) and namespaces of users")
    command = (sys.executable, "-m", "holdfast", "run", "x", "--", "sh", "-c", script)
    environment = os.environ | {"HOLDFAST_NODES": url, "PYTHONPATH": str(ROOT)}
    return await asyncio.create_subprocess_exec(
        *UNSHARE, *command, stdout=asyncio.subprocess.PIPE, env=environment
    )


def child_of(pid: int) -> int:
    """Return the only child of a process."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


async def test_orphans_are_reaped() -> None:
    """A process whose parent has ended leaves no zombie, and the exit code is the command's."""
    orphan = "(sh -c 'sleep 0.2 & echo $!; exec true' > orphan; cat orphan)"
    script = f"cd $(mktemp -d); {orphan}; while [ -e /proc/$(cat orphan) ]; do sleep 0.05; done; exit 7"
    async with a_node() as (_, url):
        running = await start_as_one(url, script)
        async with asyncio.timeout(DEADLINE_S):
            out, _ = await running.communicate()
        assert (running.returncode, out.strip().isdigit()) == (7, True)


async def test_signals_for_process_one_reach_the_command() -> None:
    """SIGTERM, as `docker stop` sends it, ends the command, and its end is ours."""
    async with a_node() as (served, url):
        running = await start_as_one(url, "trap 'echo stopped; exit 3' TERM; echo begun; sleep 60 & wait")
        assert running.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            assert await running.stdout.readline() == b"begun\n"
            os.kill(child_of(running.pid), signal.SIGTERM)
            out, _ = await running.communicate()
        assert (running.returncode, out) == (3, b"stopped\n")
        await until(lambda: not served.node.machine.state.holds)
