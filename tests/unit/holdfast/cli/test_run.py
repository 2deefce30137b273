"""`holdfast run` and the processes around it: what becomes of the command when holdfast is killed."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from holdfast.cli import guardian
from holdfast.cli.run import signals_handled
from holdfast.cli.terminal import Foreground
from tests.unit.holdfast.scripted import ScriptedNode, granted, released

DEADLINE_S = 30


async def start(node_url: str, *argv: str) -> asyncio.subprocess.Process:
    """Start `holdfast run` of a command against a node."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "holdfast",
        "run",
        "a/b",
        "--",
        *argv,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"HOLDFAST_NODES": node_url},
    )


def stat_of(pid: int) -> list[str]:
    """Return the fields of a process behind its name, state first; none when it is gone."""
    path = Path(f"/proc/{pid}/stat")
    return path.read_text().rpartition(")")[2].split() if path.exists() else []


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or a zombie that nobody reaps here."""
    return stat_of(pid)[:1] in ([], ["Z"])


def group_of(pid: int) -> set[int]:
    """Return the processes of this one's group that are alive."""
    group = stat_of(pid)[2]
    everybody = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return {each for each in everybody if stat_of(each)[2:3] == [group] and not has_ended(each)}


async def all_end(pids: set[int]) -> None:
    """Wait until all these processes have ended."""
    async with asyncio.timeout(DEADLINE_S):
        while not all(map(has_ended, pids)):  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("on_term", ["exit 0", ":"])
async def test_a_killed_holdfast_ends_the_command(on_term: str) -> None:
    """When holdfast is killed with -9 the command and what it started end, if need be by SIGKILL."""
    script = f"trap '{on_term}' TERM; sleep 600 & echo $$; while :; do wait; done"
    async with ScriptedNode(granted()) as node:
        process = await start(node.url, "sh", "-c", script)
        assert process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            pid = int(await process.stdout.readline())
        group = group_of(pid)
        assert len(group) == 3, "the shell, its sleep and the guardian"
        process.kill()
        await process.wait()
        await all_end(group)


@pytest.mark.parametrize(
    ("told", "exit_code"),
    [
        (b"", 0),
        (guardian.GOODBYE, 0),
        (guardian.STARTING + guardian.GOODBYE, 0),
        (guardian.STARTING, -signal.SIGKILL),
        (guardian.STARTING + guardian.LOST, -signal.SIGKILL),
        (guardian.STARTING + guardian.LOST + guardian.GOODBYE, 0),
    ],
)
async def test_the_guardian_ends_its_group_only_when_a_command_runs(told: bytes, exit_code: int) -> None:
    """Without a command, or after its end, the guardian just goes; else it goes down with the group."""
    guard = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        guardian.__file__,
        "0.1",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        process_group=0,
    )
    async with asyncio.timeout(DEADLINE_S):
        said, _ = await guard.communicate(told)
    assert (said, guard.returncode) == (guardian.READY, exit_code)


async def test_a_killed_holdfast_ends_a_stopped_command() -> None:
    """A command that is stopped at that moment cannot come back later without the lock."""
    async with ScriptedNode(granted()) as node:
        process = await start(node.url, "sh", "-c", "echo $$; kill -STOP $$")
        assert process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            pid = int(await process.stdout.readline())
            while stat_of(pid)[0] != "T":  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.01)
        group = group_of(pid)
        process.kill()
        await process.wait()
        await all_end(group)


async def test_a_good_end_leaves_nothing_behind() -> None:
    """The guardian ends with holdfast, and leaves alone what the command has put into the background."""
    async with ScriptedNode(granted(), released) as node:
        process = await start(node.url, "sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!")
        assert process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            pid = int(await process.stdout.readline())
            assert await process.wait() == 0
        try:
            assert group_of(pid) == {pid}
        finally:
            os.kill(pid, signal.SIGKILL)


async def test_signals_reach_the_command_but_not_the_guardian() -> None:
    """SIGTERM to holdfast ends the command, whose exit code is holdfast's."""
    async with ScriptedNode(granted(), released) as node:
        process = await start(
            node.url, "sh", "-c", "trap 'exit 7' TERM; echo $$; while :; do sleep 0.01; done"
        )
        assert process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            pid = int(await process.stdout.readline())
            group = group_of(pid)
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 7
        await all_end(group)
        assert node.seen[-1].path == "/v1/locks/release"


async def test_a_signal_before_the_command_runs_reaches_it() -> None:
    """It does not end us, who would leave the command behind, and is passed on as soon as there is one."""
    guard = await asyncio.create_subprocess_exec("sleep", "600", process_group=0)
    with signals_handled(guard.pid, Foreground(guard.pid)) as started:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)  # the loop hears of it between two steps
        process = await asyncio.create_subprocess_exec("sleep", "600", process_group=guard.pid)
        assert process.returncode is None
        started(process.pid)
        async with asyncio.timeout(DEADLINE_S):
            assert await process.wait() == await guard.wait() == -signal.SIGTERM
