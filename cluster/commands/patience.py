"""When a leader makes an entry of keepalives alone: seldom, because every entry costs all nodes a sync.

They lose nothing when they wait a little for company. Without this, those of thousands of sessions would be
an entry of their own between any two of the others, which then wait for its sync.
"""

import asyncio
from collections.abc import Callable
from typing import Final

WAIT_S: Final = 0.02
"""Seconds from an entry to the next one that has keepalives alone, at least: the shortest ttl is longer."""
TOOK_S_MAX: Final = 0.2
"""Seconds after the commit of an entry that took so long, at most."""
MARGIN_MS: Final = round(1000 * (WAIT_S + 2 * TOOK_S_MAX))
"""Milliseconds: while anything ends so soon, nothing waits for company."""


class Patience:
    """Knows since when there was no entry, and how long the last one took. One thread.

    Behind the commit of an entry its clients have as long as it took to come with what they want next. They
    would have to wait for a sync if keepalives were first; so these are not, on slow machines either.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        """Call `wake` when what waits has waited long enough."""
        self._loop = loop
        self._wake = wake
        self._ends_s = 0.0
        self._proposed_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_over(self) -> bool:
        """Whether the last entry is so long ago that what waits need not wait any longer."""
        return self._loop.time() >= self._ends_s

    def proposed(self) -> None:
        """Record that there is an entry."""
        self._proposed_s = self._loop.time()
        self._ends_s = self._proposed_s + WAIT_S

    def applied(self) -> None:
        """Record that an entry is committed."""
        if self._proposed_s is not None:
            now_s = self._loop.time()
            self._ends_s = max(self._ends_s, now_s + min(now_s - self._proposed_s, TOOK_S_MAX))
            self._proposed_s = None

    def wait(self) -> None:
        """Wake when the time is over. A timer that is set is good: it looks again."""
        if self._timer is None:
            self._timer = self._loop.call_later(max(self._ends_s - self._loop.time(), 0), self._ring)

    def stop(self) -> None:
        """Never wake again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        if self.is_over:
            self._wake()
        else:
            self.wait()
