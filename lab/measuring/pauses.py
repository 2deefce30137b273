"""Pauses of this process's event loop, as everything that waits for it sees them."""

import asyncio
import time
from typing import Final, NamedTuple

LOOK_S: Final = 0.001
"""How often the meter wants to run."""


class Pauses(NamedTuple):
    """What was seen in a while: how late the loop ran what was due every LOOK_S, in milliseconds."""

    worst_ms: float
    p99_ms: float
    looks: int


class PauseMeter:
    """Notes how late the loop runs what is due. Begins at once, in the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._late_s: list[float] = []
        self._due_s = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._look()

    def _look(self) -> None:
        now_s = time.monotonic()
        self._late_s.append(now_s - self._due_s)
        self._due_s = now_s + LOOK_S
        self._timer = self._loop.call_later(LOOK_S, self._look)

    @property
    def worst_ms(self) -> float:
        """Return the longest pause since the last `take`."""
        return max(self._late_s, default=0.0) * 1000

    def take(self) -> Pauses:
        """Return what was seen since the last call, and start afresh.

        A pause that still lasts, with this very call in it, belongs to the next ones.
        """
        late_s, self._late_s = sorted(self._late_s), []
        if not late_s:
            return Pauses(0.0, 0.0, 0)
        return Pauses(late_s[-1] * 1000, late_s[int(len(late_s) * 0.99)] * 1000, len(late_s))

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
