"""Run a command under a lock: `holdfast run`."""

import asyncio
import logging
import os
import signal
from collections.abc import Sequence

from holdfast._lock import Lock

_log = logging.getLogger("holdfast")

STOP_S = 2.0
"""Seconds that a command whose lock is lost has to clean up between SIGTERM and SIGKILL."""

EXIT_SIGNAL_BASE = 128
"""The exit code of a command that died by a signal, less the signal's number, as in shells."""


async def run_under_lock(lock: Lock, argv: Sequence[str]) -> int:
    """Run `argv` while the lock is held and return its exit code. Raises what `lock` raises, and OSError.

    SIGTERM, SIGINT and SIGHUP are passed on to the command, and its end is ours. When the lock is lost, the
    command gets SIGTERM at once and SIGKILL soon after, with all processes of its group.
    """
    async with lock as hold:
        environment = os.environ | {"HOLDFAST_TOKEN": str(hold.token), "HOLDFAST_LOCK": hold.name}
        # In a group of its own, so that what the command starts is stopped with it.
        process = await asyncio.create_subprocess_exec(*argv, env=environment, process_group=0)
        loop = asyncio.get_running_loop()
        passed_on = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        for number in passed_on:
            loop.add_signal_handler(number, _signal_group, process.pid, number)
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            await _stop(process)
            raise
        finally:
            for number in passed_on:
                loop.remove_signal_handler(number)
    return code if code >= 0 else EXIT_SIGNAL_BASE - code


def _signal_group(group: int, number: signal.Signals) -> None:
    """Signal a process group, which may be gone."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End a command's process group: by SIGTERM, then by SIGKILL."""
    _signal_group(process.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        _log.warning("the command did not stop in time and is killed: pid=%d", process.pid)
    # Also after it ended by itself: what it left behind in its group works without the lock.
    _signal_group(process.pid, signal.SIGKILL)
    await process.wait()
