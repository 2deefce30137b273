"""The terminal of `holdfast run`: only one process group may read it at a time, and the command needs it.

A command in a group of its own that reads the terminal is stopped by SIGTTIN, unless its group is in the
foreground. It would stay stopped, and keep the lock, for ever.
"""

import asyncio
import contextlib
import logging
import os
import signal
import stat
import sys
from collections.abc import Iterator

_log = logging.getLogger("holdfast")

_PATH = "/dev/tty"
"""The controlling terminal, wherever our input comes from: a password is read from here."""

POLL_S = 0.1
"""Seconds between two looks at the foreground while the command waits for it."""


class Foreground:
    """Lends the place in the foreground of the terminal to a command's group, if it is ours to lend."""

    def __init__(self, group: int) -> None:
        self._group = group
        self._own_group = os.getpgrp()
        try:
            self._terminal = os.open(_PATH, os.O_RDWR | os.O_NOCTTY)
        except OSError:  # a daemon, a cron job, a container without one: nothing to lend
            self._terminal = -1
        self._poll: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Lend it meanwhile. A neighbour in our pipeline, such as a pager, may need it more: then wait.

        Then the command gets it when it asks for it; see `on_stop`.
        """
        if not _is_pipe(sys.stdout.fileno()):
            self._give()
        try:
            yield
        finally:
            self._take_back()

    def on_stop(self, number: int) -> None:
        """Let a stopped command go on, as it has the lock: with the terminal if that is what it lacks.

        What somebody has stopped by SIGSTOP stays stopped.
        """
        if number == signal.SIGTSTP:
            _log.warning("the command cannot be suspended, because it has the lock; it goes on")
        elif number not in (signal.SIGTTIN, signal.SIGTTOU):
            return
        elif not self._give():
            _log.warning("the command waits for the terminal; bring holdfast to the foreground, with `fg`")
            self._give_later()
            return
        self._continue()

    def _give_later(self) -> None:
        """Give the terminal to the command as soon as the shell has put us into the foreground.

        Nothing tells us: a shell sends SIGCONT only to jobs that it knows to be stopped.
        """
        if self._give():
            self._continue()
        elif self._terminal >= 0:
            self._poll = asyncio.get_running_loop().call_later(POLL_S, self._give_later)

    def _continue(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._group, signal.SIGCONT)

    def _give(self) -> bool:
        """Put the command into the foreground if we are there; return whether it is there now."""
        if self._terminal < 0:
            return False
        with contextlib.suppress(OSError):  # the terminal was hung up
            if os.tcgetpgrp(self._terminal) == self._own_group:
                self._set(self._group)
            return os.tcgetpgrp(self._terminal) == self._group
        return False

    def _take_back(self) -> None:
        """Put ourselves into the foreground again, if the command is there."""
        if self._poll is not None:
            self._poll.cancel()
        if self._terminal < 0:
            return
        with contextlib.suppress(OSError):  # the terminal was hung up
            if os.tcgetpgrp(self._terminal) == self._group:
                self._set(self._own_group)
                # A neighbour in our pipeline that wanted to read was stopped meanwhile.
                os.killpg(self._own_group, signal.SIGCONT)
        os.close(self._terminal)
        self._terminal = -1

    def _set(self, group: int) -> None:
        """Change the group in the foreground, which a group in the background is stopped for otherwise."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        try:
            os.tcsetpgrp(self._terminal, group)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _is_pipe(descriptor: int) -> bool:
    return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
