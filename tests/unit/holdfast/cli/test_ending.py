"""`holdfast run` when the lock is lost: `--on-lost`, `--grace`, and what is said about it."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import holdfast
from holdfast.cli import ending, guardian
from holdfast.cli.main import main
from tests.unit.holdfast.cli.test_run import all_end, group_of
from tests.unit.holdfast.conftest import a_node
from tests.unit.holdfast.scripted import ScriptedNode, granted, problem, renewed

DEADLINE_S = 30
LEASE_MS = 3_000
"""Long enough for a busy machine to renew it, and to start a command meanwhile."""
OBEDIENT = "trap 'echo term; exit 0' TERM; echo $$; while :; do sleep 0.01; done"
STUBBORN = "trap 'echo term' TERM; echo $$; while :; do sleep 0.01; done"


class Running:
    """`holdfast run` or `elect` of a script, which has begun and printed its pid."""

    def __init__(self, process: asyncio.subprocess.Process, pid: int) -> None:
        self.process = process
        self.pid = pid

    async def line_of_stderr(self) -> str:
        """Return the next line that holdfast says."""
        assert self.process.stderr is not None
        async with asyncio.timeout(DEADLINE_S):
            return (await self.process.stderr.readline()).decode()

    async def ends(self) -> tuple[int | None, str, str]:
        """Wait for the end; return exit code, and the rest of stdout and stderr."""
        async with asyncio.timeout(DEADLINE_S):
            out, err = await self.process.communicate()
        return self.process.returncode, out.decode(), err.decode()


async def begin(node_url: str, script: str, *options: str, verb: str = "run", name: str = "a/b") -> Running:
    """Start a script under a lock and wait until it runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "holdfast",
        verb,
        name,
        *("--ttl", f"{LEASE_MS}ms"),
        *options,
        *("--", "sh", "-c", script),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"HOLDFAST_NODES": node_url},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    async with asyncio.timeout(DEADLINE_S):
        pid = await process.stdout.readline()
        assert pid, await process.stderr.read()
    return Running(process, int(pid))


@contextlib.asynccontextmanager
async def losing(script: str, *options: str) -> AsyncIterator[Running]:
    """Run a script whose lock is lost, by the next renewal, as soon as it runs."""
    async with ScriptedNode(granted(expires_in_ms=LEASE_MS), renewed(LEASE_MS)) as node:
        running = await begin(node.url, script, *options)
        node.then(problem("lease-expired"))
        yield running


async def test_on_lost_comes_before_the_end_and_knows_what_happened(tmp_path: Path) -> None:
    """It finds token, name, reason and pid in its environment, and the command gets SIGTERM after it."""
    log = tmp_path / "log"
    variables = "$HOLDFAST_TOKEN $HOLDFAST_LOCK $HOLDFAST_LOST_REASON $HOLDFAST_COMMAND_PID"
    script = f"trap 'echo term >> {log}; exit 0' TERM; echo $$; while :; do sleep 0.01; done"
    async with losing(script, "--on-lost", f"echo {variables} >> {log}", "--grace", "20s") as running:
        code, _, err = await running.ends()
        assert code == 123, err
        assert log.read_text() == f"7 a/b lease-expired {running.pid}\nterm\n"
        assert "somebody else may hold the lock now" in err


async def test_a_loss_is_told_at_once_and_a_long_grace_is_not_awaited() -> None:
    """The line is there before the command has ended; when that ends, by itself or not, so does holdfast."""
    async with losing(STUBBORN, "--grace", "1d") as running:
        line = await running.line_of_stderr()
        assert "the lock 'a/b' (token 7) is lost: lease-expired" in line
        assert "it has 86400 s to end" in line
        assert running.process.stdout is not None
        assert await running.process.stdout.readline() == b"term\n"
        assert running.process.returncode is None
        os.kill(running.pid, signal.SIGKILL)
        assert (await running.ends())[0] == 123


async def test_a_grace_ends_with_sigkill() -> None:
    """A command that does not obey SIGTERM is killed, with all of its group, when the grace is over."""
    async with losing(STUBBORN, "--grace", "300ms") as running:
        group = group_of(running.pid)
        code, out, err = await running.ends()
        assert (code, out) == (123, "term\n")
        assert "the command did not end in time; killing it" in err
        await all_end(group)


async def test_without_a_grace_the_command_is_killed_at_once() -> None:
    """`--grace 0` leaves no time."""
    async with losing("trap '' TERM; echo $$; while :; do sleep 0.01; done", "--grace", "0") as running:
        assert (await running.ends())[0] == 123


@pytest.mark.parametrize("hook", ["sleep 600", "trap '' TERM; while :; do sleep 0.01; done"])
async def test_on_lost_that_hangs_does_not_keep_the_command(hook: str) -> None:
    """After half of the grace SIGTERM comes all the same, and after the grace everything is killed."""
    async with losing(STUBBORN, "--on-lost", hook, "--grace", "600ms") as running:
        code, out, err = await running.ends()
        assert (code, out) == (123, "term\n")
        assert "--on-lost is still running after 0.3 s" in err
        assert "the command did not end in time" in err


async def test_on_lost_may_take_longer_than_the_command() -> None:
    """A command that hears of the loss by other means may end first: the rest of the line still runs."""
    hook = (
        "kill -KILL $HOLDFAST_COMMAND_PID; while kill -0 $HOLDFAST_COMMAND_PID; do sleep 0.01; done; echo on"
    )
    async with losing(OBEDIENT, "--on-lost", hook, "--grace", "20s") as running:
        code, out, _ = await running.ends()
        assert (code, out) == (123, "on\n")


async def test_who_leaves_the_group_is_killed_all_the_same() -> None:
    """Neither the command nor `--on-lost` keeps holdfast from its end by a group of its own."""
    leave = "exec setsid sleep 600"
    async with losing(f"echo $$; {leave}", "--on-lost", leave, "--grace", "300ms") as running:
        code, _, err = await running.ends()
        assert code == 123, err
        await all_end({running.pid})


@pytest.mark.parametrize(
    ("hook", "report"), [("exit 3", "failed with exit code 3"), ("kill -KILL $$", "ended by signal 9")]
)
async def test_on_lost_that_fails_is_reported(hook: str, report: str) -> None:
    """Its failure changes nothing for the command, and not the exit code."""
    async with losing(OBEDIENT, "--on-lost", hook, "--grace", "20s") as running:
        code, out, err = await running.ends()
        assert (code, out) == (123, "term\n")
        assert f"--on-lost {'was ' * ('signal' in report)}{report}" in err


async def test_on_lost_is_not_run_when_nothing_is_lost() -> None:
    """A command that ends by itself leaves no line to run."""
    async with ScriptedNode(granted(expires_in_ms=LEASE_MS), renewed(LEASE_MS)) as node:
        running = await begin(node.url, "echo $$; exit 4", "--on-lost", "echo lost")
        code, out, _ = await running.ends()
        assert (code, out) == (4, "")


async def test_a_killed_holdfast_ends_command_and_on_lost() -> None:
    """The guardian ends both when holdfast is killed meanwhile."""
    async with losing(STUBBORN, "--on-lost", "echo $$; sleep 600", "--grace", "2s") as running:
        assert running.process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            hook = int(await running.process.stdout.readline())
        group = group_of(running.pid)
        assert hook in group
        running.process.kill()
        await running.process.wait()
        await all_end(group)


async def test_signals_are_passed_on_after_the_loss() -> None:
    """SIGINT to holdfast goes to the command while its grace lasts, and does not end holdfast before it."""
    async with losing(f"trap 'echo int; exit 0' INT; {STUBBORN}", "--grace", "1d") as running:
        assert running.process.stdout is not None
        assert await running.process.stdout.readline() == b"term\n"
        running.process.send_signal(signal.SIGINT)
        code, out, _ = await running.ends()
        assert (code, out) == (123, "int\n")


def test_the_guardian_counts_the_grace_from_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """When holdfast is killed after the loss, the grace does not begin again; before it, it begins there."""
    for told, begins_at_s in ((guardian.STARTING + guardian.LOST, 1.0), (guardian.STARTING, 2.0)):
        reader, writer = os.pipe()
        os.write(writer, told)
        os.close(writer)
        with open(reader) as stdin, monkeypatch.context() as patched:  # noqa: PTH123 - a pipe has no path
            times = iter((1.0, 2.0) if guardian.LOST in told else (2.0,))
            patched.setattr(sys, "stdin", stdin)
            patched.setattr(time, "monotonic", lambda times=times: next(times))
            assert guardian._listen() == (told, begins_at_s)


async def test_a_hook_that_cannot_be_started_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing but a line in the log comes of it."""
    monkeypatch.setattr(ending, "SHELL", "/no/such/shell")
    await ending.Hook("true", {}).run(0)
    assert "--on-lost could not be started" in caplog.text
    with pytest.raises(ValueError, match="needs /no/such/shell"):
        await ending.CommandEnding(on_lost="true").check()


@pytest.mark.parametrize(
    ("verb", "options", "said"),
    [
        ("run", ["--grace", "soon"], "not a length of time"),
        ("run", ["--grace=-1s"], "not a length of time"),
        ("run", ["--grace", "2d"], "1d at most"),
        ("run", ["--on-lost", " "], "it is empty"),
        ("run", ["--on-lost", "if true"], "cannot be read by the shell"),
        ("elect", ["--on-lost", "true", "--grace", "0s"], "no time to run"),
    ],
)
def test_a_wrong_ending_is_exit_code_2(
    verb: str, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused before anything is sent: a mistake must not come out when the lock is lost."""
    with pytest.raises(SystemExit) as ended:
        main(["--nodes", "http://127.0.0.1:1", verb, "a/b", *options, "--", "true"])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


# -- at a real node ---------------------------------------------------------------------------------------


async def test_on_lost_after_a_force() -> None:
    """A lock that an operator takes away is lost."""
    async with a_node() as (_, url), holdfast.Client(url) as client:
        running = await begin(url, OBEDIENT, "--on-lost", "echo $HOLDFAST_LOST_REASON")
        await client.admin.force_release("a/b", reason="a test")
        code, out, _ = await running.ends()
        assert (code, out) == (123, "lease-expired\nterm\n")


async def test_on_lost_of_a_leader() -> None:
    """Leadership is lost with its session; the line finds the election by its name."""
    async with a_node() as (_, url), holdfast.Client(url) as client:
        hook = "echo $HOLDFAST_ELECTION $HOLDFAST_LOST_REASON"
        running = await begin(url, OBEDIENT, "--on-lost", hook, verb="elect", name="primary")
        await client.admin.force_close_session("s-1", reason="a test")
        code, out, _ = await running.ends()
        assert (code, out) == (123, "primary session-expired\nterm\n")


async def test_on_lost_without_any_node() -> None:
    """When no node answers, the lock is lost by holdfast's own clock."""
    async with ScriptedNode(granted(expires_in_ms=LEASE_MS), renewed(LEASE_MS)) as node:
        running = await begin(node.url, OBEDIENT, "--on-lost", "echo $HOLDFAST_LOST_REASON")
        node.then(problem("no-leader"))
        code, out, _ = await running.ends()
        assert (code, out) == (123, "expired\nterm\n")
