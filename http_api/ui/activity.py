"""What happened lately: grants and waits a second, as the node has counted them."""

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Final, NamedTuple

STEP_S: Final = 5.0
"""Seconds between two points."""
KEPT_S: Final = 600.0
"""Seconds that are kept: the last ten minutes."""


class Totals(NamedTuple):
    """What a node has counted since it started: grants of all kinds, and requests that had to wait."""

    grants: int
    waits: int


class Activity:
    """The rates of the last ten minutes. `look` is called about once a second, from the event loop."""

    def __init__(self, totals: Callable[[], Totals], now_s: Callable[[], float]) -> None:
        """Watch what `totals` returns, by a clock that never goes back."""
        self._totals = totals
        self._now_s = now_s
        self._points: deque[tuple[float, Totals]] = deque(maxlen=int(KEPT_S / STEP_S) + 1)

    def look(self) -> None:
        """Record where the counters stand, if it is time for a point."""
        now_s = self._now_s()
        if not self._points or now_s - self._points[-1][0] >= STEP_S:
            self._points.append((now_s, self._totals()))

    def rates(self) -> list[tuple[float, float, float]]:
        """Return the rates of each step, the oldest first: its age in seconds, and grants and waits a second.

        A counter that went back, because the node took a snapshot from another one, counts as zero.
        """
        now_s, points = self._now_s(), list(self._points)
        found = []
        for (before_s, before), (at_s, at) in pairwise(points):
            length_s = at_s - before_s
            grants, waits = (max(0, new - old) / length_s for new, old in zip(at, before, strict=True))
            found.append((now_s - at_s, grants, waits))
        return [point for point in found if point[0] <= KEPT_S]
