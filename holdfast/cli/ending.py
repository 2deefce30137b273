"""Ends the command of `holdfast run` without its lock: what comes between the loss and its last process.

How long that takes is up to the user, and to nobody else: neither to the command nor to `--on-lost`.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.cli import guardian

_log = logging.getLogger("holdfast")

SHELL: Final = "/bin/sh"
"""What reads the line of `--on-lost`."""
HOOK_DIVISOR: Final = 2
"""Part of the grace after which the command gets SIGTERM, whether or not `--on-lost` has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnding:
    """How a command is ended when its lock is lost: within how many seconds, and what is run before.

    `on_lost` is a line for the shell; empty: nothing is run.
    """

    grace_s: float = guardian.GRACE_S
    on_lost: str = ""

    async def check(self) -> None:
        """Raise ValueError for what could only fail: it must not come out when a lock is lost."""
        if not self.on_lost:
            return
        if not self.grace_s:
            raise ValueError("--on-lost has no time to run with --grace 0s")
        try:
            shell = await asyncio.create_subprocess_exec(
                SHELL,
                "-n",
                "-c",
                self.on_lost,
                stdin=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise ValueError(f"--on-lost needs {SHELL}: {error.strerror}") from error
        _, said = await shell.communicate()
        if shell.returncode:
            raise ValueError(
                f"--on-lost cannot be read by the shell: {said.decode(errors='replace').strip()}"
            )


class Hook:
    """A line for the shell that is run once, when the lock is lost, and its environment."""

    def __init__(self, line: str, environment: Mapping[str, str]) -> None:
        self._line = line
        self._environment = environment
        self._shell: asyncio.subprocess.Process | None = None

    async def run(self, group: int) -> None:
        """Run it in the group of the command, which is ended as a whole, and report if it fails."""
        try:
            self._shell = await asyncio.create_subprocess_exec(
                SHELL,
                "-c",
                self._line,
                stdin=asyncio.subprocess.DEVNULL,
                env=self._environment,
                process_group=group,
            )
        except OSError as error:
            _log.error("--on-lost could not be started: %s", error)
            return
        code = await self._shell.wait()
        if code > 0:
            _log.error("--on-lost failed with exit code %d", code)
        elif code < 0:
            _log.error("--on-lost was ended by signal %d", -code)

    def kill(self) -> None:
        """End it if it still runs."""
        if self._shell is not None:
            _kill(self._shell)


async def end(
    command: asyncio.subprocess.Process, group: int, grace_s: float, hook: Hook | None = None
) -> None:
    """End a command's process group: by SIGTERM, and by SIGKILL when the grace, counted from now, is over.

    A hook is run before SIGTERM, which does not wait for it longer than half the grace.
    """
    loop = asyncio.get_running_loop()
    over_at_s = loop.time() + grace_s
    ends: dict[str, asyncio.Task[Any]] = {"the command": asyncio.create_task(command.wait())}
    try:
        if hook is not None:
            ends["--on-lost"] = await _begin(hook, group, grace_s / HOOK_DIVISOR)
        signal_group(group, signal.SIGTERM)
        signal_group(group, signal.SIGCONT)  # also a stopped process hears of it
        await asyncio.wait(ends.values(), timeout=over_at_s - loop.time())
        for what, ended in ends.items():
            if not ended.done():
                _log.warning("%s did not end in time; killing it", what)
    finally:
        # Also after it ended by itself: what it left behind in its group works without the lock.
        signal_group(group, signal.SIGKILL)
        # A process that has left the group would keep us waiting for ever.
        _kill(command)
        if hook is not None:
            hook.kill()
    await asyncio.gather(*ends.values())


async def _begin(hook: Hook, group: int, limit_s: float) -> "asyncio.Task[None]":
    """Run a hook, and return when it has ended, or when others cannot wait for it any longer."""
    running = asyncio.create_task(hook.run(group))
    await asyncio.wait([running], timeout=limit_s)
    if not running.done():
        _log.warning(
            "--on-lost is still running after %g s: it gets SIGTERM together with the command", limit_s
        )
    return running


def signal_group(group: int, number: signal.Signals) -> None:
    """Signal a process group, which may be gone."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill a process unless it has ended."""
    if process.returncode is None:
        process.kill()
