"""Clocks that run fast or slow, or jump."""

from typing import ClassVar, Final

from lab.chaos.faults.bent import BentNode
from lab.chaos.targets.target import Ability

CLOCKS: Final[frozenset[Ability]] = frozenset({"clocks"})
ALLOWED_PPM: Final = 900.0
"""Below what nodes hand over for: leases hold within this."""


class DriftingClock(BentNode):
    """A clock that is as wrong as the promises allow."""

    name = "drifting-clock"
    text = "a node's clock runs 0.09 % fast or slow"
    needs: ClassVar = CLOCKS
    lasts_s: ClassVar = (3.0, 8.0)
    gap_s_max = 1.0

    def bend(self) -> None:
        """Let it drift."""
        self.control.clock(rate_ppm=self.chance.choice([-ALLOWED_PPM, ALLOWED_PPM]))


class SlowClock(BentNode):
    """A clock that stands nearly still: leases get longer, never shorter."""

    name = "slow-clock"
    text = "a node's clock runs at half its rate"
    needs: ClassVar = CLOCKS
    lasts_s: ClassVar = (3.0, 8.0)
    gap_s_max = 4.0

    def bend(self) -> None:
        """Slow it down."""
        self.control.clock(rate_ppm=-500_000)


class WallClockStep(BentNode):
    """A wall clock that jumps: nothing rests on it."""

    name = "wall-clock"
    text = "a node's wall clock jumps by an hour, a day or a year, forth or back"
    needs: ClassVar = CLOCKS
    gap_s_max = 1.0

    def bend(self) -> None:
        """Let it jump."""
        self.control.clock(wall_step_s=self.chance.choice([-1, 1]) * self.chance.choice([3600, 86_400, 3e7]))


class FastClock(BentNode):
    """A clock that is far too fast: leases that its node measures as leader end early.

    The promise of leases assumes clocks that are better, so no generated schedule has this; `--prove` has.
    """

    name = "fast-clock"
    text = "a node's clock runs 10 % fast: outside of what leases promise; only on request"
    needs: ClassVar = CLOCKS
    lasts_s: ClassVar = (10.0, 20.0)
    weight = 0.0
    gap_s_max = 4.0

    def bend(self) -> None:
        """Speed it up."""
        self.control.clock(rate_ppm=float(self.options.get("ppm", 100_000)))
