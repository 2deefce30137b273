"""Time on a node: its monotonic clock, and the cluster time that a leader stamps on entries.

No wall clock is read anywhere, and no reading of one machine means anything on another: only rates are
compared (clock_watch).
"""

import time
from typing import Final, Protocol

STALL_COUNTED_MS_MAX: Final = 250
"""How much of a gap between two looks counts: a stopped process must not eat its clients' leases."""

_NS_PER_MS: Final = 1_000_000


class MonotonicClock(Protocol):
    """A monotonic clock."""

    def now_ns(self) -> int:
        """Return nanoseconds since an arbitrary moment; never goes back."""


class SystemClock:
    """The machine's monotonic clock."""

    def now_ns(self) -> int:
        """Return the machine's monotonic time."""
        return time.monotonic_ns()


class ClusterClock:
    """The leader's clock: goes on from where its log ends, at the rate of the machine's monotonic clock.

    Time without a leader counts against nobody. A look at least every STALL_COUNTED_MS_MAX keeps it exact.
    """

    def __init__(self, clock: MonotonicClock) -> None:
        self._clock = clock
        self._seen_ns = clock.now_ns()
        self._elapsed_ns = 0
        self._base_ms = 0
        self._uncounted_ns = self._seen_ns

    def start(self, base_ms: int) -> None:
        """Begin to lead: the next stamp is `base_ms` or a little later."""
        now_ns = self._clock.now_ns()
        self._uncounted_ns += self._elapsed_ns + now_ns - self._seen_ns
        self._base_ms = base_ms
        self._elapsed_ns = 0
        self._seen_ns = now_ns

    def now_ms(self) -> int:
        """Return cluster time, rounded down to a millisecond."""
        now_ns = self._clock.now_ns()
        passed_ns = now_ns - self._seen_ns
        counted_ns = min(passed_ns, STALL_COUNTED_MS_MAX * _NS_PER_MS)
        self._uncounted_ns += passed_ns - counted_ns
        self._elapsed_ns += counted_ns
        self._seen_ns = now_ns
        return self._base_ms + self._elapsed_ns // _NS_PER_MS

    def reading_us(self) -> int:
        """Return this clock for others to measure its rate, in microseconds since an arbitrary moment.

        It is cluster time while this node leads, which is what ends leases, and goes on at the same rate when
        it does not. Stalls are in it: cluster time leaves most of them out, which makes leases end later and
        says nothing about a clock.
        """
        stamped_ns = (self.now_ms() - self._base_ms) * _NS_PER_MS + self._elapsed_ns % _NS_PER_MS
        return (self._uncounted_ns + stamped_ns) // 1000
