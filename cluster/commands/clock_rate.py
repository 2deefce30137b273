"""How fast a peer's clock runs against ours: bounds that hold whatever the network and stalls do. Pure.

Delays have one sign. When a reading of the peer's clock arrives, that clock shows at least as much; when one
of ours arrived there, our clock showed at least as much. So every reading that comes is a *floor* under the
peer's clock at a moment of ours, and every one of ours that the peer confirms a *ceiling* over it (Cristian
1989, Marzullo 1984). Between two blocks of such points the peer's clock has run at least from a ceiling of
the first to a floor of the second, and at most from a floor to a ceiling. A delay, a stopped process or a
lost message only makes the bounds wider; there is no verdict while they are too wide for one.

A clock that jumps, as that of a suspended or rebooted machine does, spoils one span and not three in a row.
"""

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

PPM: Final = 1_000_000
BLOCK_US: Final = 10_000_000
"""The time, in microseconds, in which the best points are collected: ten pings."""
POINTS_COUNT_MAX: Final = 32
"""Points of one kind that are kept of a block: all pairs are looked at."""
BASE_US_MIN: Final = BLOCK_US // 2
"""The shortest distance, in microseconds, between two points that a rate is taken from."""
RATE_PPM_MAX: Final = 1000
"""How far a clock may be from another: half of what clients allow for (0.2 %)."""
ERROR_PPM_MAX: Final = 250.0
"""A span ends when its rate is known so well, or differs for sure: on a slow network it lasts longer."""
SPAN_US_MAX: Final = 600_000_000
"""The longest span, in microseconds: what is not known by then says nothing."""
SPANS_COUNT: Final = 3
"""How many spans in a row must say the same."""


class Point(NamedTuple):
    """A moment of our clock, and what the peer's clock shows then at least, or at most; in microseconds."""

    own_us: int
    theirs_us: int


class Rate(NamedTuple):
    """How much faster than ours the peer's clock ran over a span, in ppm: at least, and at most."""

    at_least_ppm: float
    at_most_ppm: float

    @property
    def ppm(self) -> float:
        """Return the middle."""
        return (self.at_least_ppm + self.at_most_ppm) / 2

    @property
    def error_ppm(self) -> float:
        """Return how far from the middle the truth may be."""
        return (self.at_most_ppm - self.at_least_ppm) / 2

    @property
    def verdict(self) -> "ClockVerdict":
        """Return what this span alone says. Bounds that contradict each other: the rate has changed."""
        if min(self) > RATE_PPM_MAX:
            return ClockVerdict.FAST
        if max(self) < -RATE_PPM_MAX:
            return ClockVerdict.SLOW
        return ClockVerdict.WELL if abs(self.error_ppm) <= ERROR_PPM_MAX else ClockVerdict.UNKNOWN


class ClockVerdict(Enum):
    """What is known of a peer's clock."""

    UNKNOWN = "unknown"
    WELL = "well"
    """As fast as ours, as far as that can be told: not for sure beyond RATE_PPM_MAX."""
    FAST = "fast"
    SLOW = "slow"


class _Block:
    """The points of some seconds."""

    def __init__(self, began_us: int) -> None:
        self.began_us = began_us
        self.floors: list[Point] = []
        self.ceilings: list[Point] = []


class RateMeter:
    """Measures one peer's clock. All times in microseconds, each on the clock that its name says."""

    def __init__(self) -> None:
        self.rate: Rate | None = None
        """The rate over the last span; None before the end of the first."""
        self.verdict = ClockVerdict.UNKNOWN
        """What the last spans agreed about. It stays until others agree about something else."""
        self._latest: deque[ClockVerdict] = deque(maxlen=SPANS_COUNT)
        self._anchor: _Block | None = None
        self._block: _Block | None = None
        self._theirs_us = 0

    def heard(self, own_us: int, theirs_us: int) -> bool:
        """Take a reading of the peer's clock that came at `own_us`; tell whether a span has ended."""
        if theirs_us < self._theirs_us:
            # Its machine was started anew: what came before is of another clock.
            self._anchor = self._block = None
        self._theirs_us = theirs_us
        has_ended = False
        if self._block is not None and own_us - self._block.began_us >= BLOCK_US:
            has_ended = self._end_block(self._block)
            self._block = None
        if self._block is None:
            self._block = _Block(own_us)
        _add(self._block.floors, Point(own_us, theirs_us))
        return has_ended

    def confirmed(self, own_us: int, theirs_us: int) -> None:
        """Take the peer's word that our reading `own_us` had come when its clock showed `theirs_us`."""
        if self._block is not None and own_us >= self._block.began_us:
            _add(self._block.ceilings, Point(own_us, theirs_us))

    def _end_block(self, block: _Block) -> bool:
        """Measure from the anchor to this block. The anchor stays until that says something."""
        if not block.ceilings:
            # The peer cannot hear us; what it says alone says nothing.
            return False
        if self._anchor is None:
            self._anchor = block
            return False
        rate = rate_between(self._anchor, block)
        is_over = block.began_us - self._anchor.began_us >= SPAN_US_MAX
        is_contradictory = rate is not None and rate.error_ppm < -ERROR_PPM_MAX
        if rate is None or (rate.verdict is ClockVerdict.UNKNOWN and not is_over and not is_contradictory):
            return False
        self._anchor = block
        self.rate = rate
        self._latest.append(rate.verdict)
        if len(self._latest) == SPANS_COUNT:
            self._agree()
        return True

    def _agree(self) -> None:
        """Change the verdict if all the last spans say another one."""
        said = set(self._latest)
        if len(said) == 1:
            (self.verdict,) = said
        elif not said & {ClockVerdict.FAST, ClockVerdict.SLOW}:
            self.verdict = ClockVerdict.WELL


def rate_between(first: _Block, second: _Block) -> Rate | None:
    """Return the rate from one block to a later one, None if their points are too close to each other."""
    least = max(_slopes(first.ceilings, second.floors), default=None)
    most = min(_slopes(first.floors, second.ceilings), default=None)
    if least is None or most is None:
        return None
    return Rate((least - 1) * PPM, (most - 1) * PPM)


def _slopes(first: list[Point], second: list[Point]) -> Iterator[float]:
    """Yield the slopes between points that are far enough from each other."""
    for begin in first:
        for end in second:
            base_us = end.own_us - begin.own_us
            if base_us >= BASE_US_MIN:
                yield (end.theirs_us - begin.theirs_us) / base_us


def _add(points: list[Point], point: Point) -> None:
    if len(points) < POINTS_COUNT_MAX:
        points.append(point)
