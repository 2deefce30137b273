"""Run a command under a lock: `holdfast run`."""

import asyncio
import contextlib
import functools
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

from holdfast.cli import exit_codes, guardian
from holdfast.cli.ending import CommandEnding, Hook, end, signal_group
from holdfast.cli.terminal import Foreground
from holdfast.cli.waiting import Waiting
from holdfast.client.acquiring import Acquirable
from holdfast.client.hold import Hold

_log = logging.getLogger("holdfast")


async def run_under_lock(
    lock: Acquirable[Any], argv: Sequence[str], ending: CommandEnding, waiting: Waiting, *, name_variable: str
) -> int:
    """Run `argv` while the lock is held and return its exit code. Raises what `lock` raises, and OSError.

    Its environment has HOLDFAST_TOKEN, and the name of the lock in `name_variable`. Until the lock is held,
    `waiting` says who has it.

    SIGTERM, SIGINT and SIGHUP are passed on to the command, and its end is ours. When the lock is lost, the
    command gets SIGTERM, and SIGKILL when the grace of `ending` is over, with all processes of its group; so
    it does when this process is killed. The command gets the terminal if we have it, and cannot be suspended.
    """
    with waiting:
        async with _guarded_group(ending.grace_s) as guard, lock as hold:
            waiting.end()
            code = await _run_with(hold, argv, ending, guard, name_variable)
    return code if code >= 0 else exit_codes.SIGNAL_BASE - code


async def _run_with(
    hold: Hold,
    argv: Sequence[str],
    ending: CommandEnding,
    guard: asyncio.subprocess.Process,
    name_variable: str,
) -> int:
    """Run `argv` in the guard's process group and return what asyncio calls its return code."""
    group = guard.pid
    environment = os.environ | {"HOLDFAST_TOKEN": str(hold.token), name_variable: hold.name}
    foreground = Foreground(group)
    await _tell(guard, guardian.STARTING)
    with foreground.lent(), signals_handled(group, foreground) as started:
        # In a group of its own, so that what the command starts is stopped with it.
        process = await asyncio.create_subprocess_exec(*argv, env=environment, process_group=group)
        started(process.pid)
        try:
            return await process.wait()
        except asyncio.CancelledError:
            hook = _hook(ending, hold, process, environment)
            try:
                await _report_loss(hold, guard, ending)
            finally:
                await end(process, group, ending.grace_s, hook)
            raise


async def _report_loss(hold: Hold, guard: asyncio.subprocess.Process, ending: CommandEnding) -> None:
    """Say that the lock is lost, if it is: to people, and to the guardian, for its grace."""
    if not hold.lost.is_set():
        return
    _log.error(
        "%s; stopping the command, which must not run without the lock: it has %g s to end",
        hold.loss(hold.reason),
        ending.grace_s,
    )
    # It may have been killed; then nobody needs to hear of it.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        await _tell(guard, guardian.LOST)


def _hook(
    ending: CommandEnding, hold: Hold, process: asyncio.subprocess.Process, environment: Mapping[str, str]
) -> Hook | None:
    """Return what is to be run: nothing if nobody asked, nothing was lost, or the command has ended."""
    if not ending.on_lost or not hold.lost.is_set() or process.returncode is not None:
        return None
    told = {"HOLDFAST_LOST_REASON": hold.reason, "HOLDFAST_COMMAND_PID": str(process.pid)}
    return Hook(ending.on_lost, {**environment, **told})


@contextlib.contextmanager
def signals_handled(group: int, foreground: Foreground) -> Iterator[Callable[[int], None]]:
    """Pass signals on to the command meanwhile, and never let it, or us, be suspended with the lock.

    Begins before the command does, so that no signal ends us and leaves it. Yields what is to be called with
    the command's process id as soon as it runs: it passes on what came before.
    """
    loop = asyncio.get_running_loop()
    command: list[int] = []  # its process id, once it runs
    early: list[signal.Signals] = []

    def pass_on(number: signal.Signals) -> None:
        if command:
            signal_group(group, number)
        else:
            early.append(number)

    def look_for_stop() -> None:
        if command:
            _look_for_stop(command[0], foreground)

    def started(pid: int) -> None:
        command.append(pid)
        for number in early:
            signal_group(group, number)
        look_for_stop()  # it may have happened before we knew which process it is

    handlers: dict[signal.Signals, Callable[[], None]] = {
        number: functools.partial(pass_on, number)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    }
    handlers[signal.SIGTSTP] = lambda: foreground.on_stop(signal.SIGTSTP)
    handlers[signal.SIGCHLD] = look_for_stop
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield started
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


def _look_for_stop(command: int, foreground: Foreground) -> None:
    """See whether the command was stopped; its end is told by other means."""
    with contextlib.suppress(ChildProcessError):  # it has ended
        stopped = os.waitid(os.P_PID, command, os.WSTOPPED | os.WNOHANG)
        if stopped is not None:
            foreground.on_stop(stopped.si_status)


@contextlib.asynccontextmanager
async def _guarded_group(grace_s: float) -> AsyncIterator[asyncio.subprocess.Process]:
    """Make a process group, with nothing in it but a guardian that ends it when this process dies."""
    guard = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        guardian.__file__,
        str(grace_s),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd="/",
        process_group=0,
    )
    assert guard.stdin is not None
    assert guard.stdout is not None
    try:
        if await guard.stdout.readline() != guardian.READY:
            raise OSError("the guardian of the command did not start")
        yield guard
    finally:
        # It may have been killed with the group.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await _tell(guard, guardian.GOODBYE)
        guard.stdin.close()
        await guard.wait()


async def _tell(guard: asyncio.subprocess.Process, what: bytes) -> None:
    """Tell the guardian something. Raises BrokenPipeError or ConnectionResetError when it is gone."""
    assert guard.stdin is not None
    guard.stdin.write(what)
    await guard.stdin.drain()
