"""What a node does at a signal: none ends it without a handover, but for those that nobody can catch."""

import asyncio
import logging
import signal
from collections.abc import Callable
from typing import Final

logger = logging.getLogger("http_api")

STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
"""They ask a node to hand over and stop."""
UNUSED: Final = (signal.SIGUSR1, signal.SIGUSR2)
"""They mean nothing to a node. Left alone they would end it on the spot."""


def ignore_until_handled() -> None:
    """Let no signal that is not meant to stop this process end it before the loop runs."""
    for number in (signal.SIGHUP, *UNUSED):
        signal.signal(number, signal.SIG_IGN)


class Signals:
    """The signals of a process, from its loop on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take the signals that are caught from now on."""
        self.stop_asked = asyncio.Event()
        self._reload: Callable[[], None] | None = None
        for number in STOPPING:
            loop.add_signal_handler(number, self.stop_asked.set)
        loop.add_signal_handler(signal.SIGHUP, self._hung_up)
        for number in UNUSED:
            loop.add_signal_handler(number, self._ignored, number, "a node ignores this signal")

    def reload_with(self, reload: Callable[[], None]) -> None:
        """Call this at SIGHUP from now on."""
        self._reload = reload

    def _hung_up(self) -> None:
        if self._reload is None:
            # What would be read again is being read for the first time.
            self._ignored(signal.SIGHUP, "the node is still starting")
        else:
            self._reload()

    def _ignored(self, number: signal.Signals, detail: str) -> None:
        logger.warning("event=signal-ignored signal=%s detail=%r", number.name, detail)
