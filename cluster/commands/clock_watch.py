"""Whether this node's clock runs as fast as the others': what it says, what they say, and its judgement.

Every node measures the clock of every other one (clock_rate) with the readings that travel in pings. What is
read is the clock that stamps entries if the node leads: it ends leases. A node judges only itself: if more
than half of all voters differ from it in the same direction for sure, it is the one that is off. So of two
nodes, or of two halves, nobody is: that cannot be known. It is logged then, and in the metrics.
"""

import logging
import statistics
from collections.abc import Callable, Collection, Iterator
from typing import Final

import msgspec

from cluster.commands.clock_rate import PPM, ClockVerdict, Rate, RateMeter

CONFIRMED_US_MAX: Final = 60_000_000
"""How old a reading of ours may be, in microseconds, that a peer confirms: older ones are of another run."""
PEERS_COUNT_MAX: Final = 64
"""Peers whose clocks are remembered; there are a few, and some that have been replaced."""

logger = logging.getLogger(__name__)


class ClockSaid(msgspec.Struct, frozen=True, array_like=True):
    """What a node tells all others of its clock, and of theirs."""

    at_us: int
    """Its clock now, in microseconds since an arbitrary moment."""
    heard: dict[str, tuple[int, int]]
    """By connected peer: the newest reading that came from there, and its own clock when that came."""
    is_off: bool = False
    """Whether it has found that its clock does not run at the rate of the others'."""


class ClockWatch:
    """The clocks of a cluster as one node sees them. One thread."""

    def __init__(
        self, node_id: str, read_us: Callable[[], int], voters: Callable[[], Collection[str]]
    ) -> None:
        """`read_us` reads this node's clock; `voters` are the present ones, this node perhaps among them."""
        self._node_id = node_id
        self._read_us = read_us
        self._voters = voters
        self._meters: dict[str, RateMeter] = {}
        self._heard: dict[str, tuple[int, int]] = {}
        self._off: set[str] = set()
        self.is_off = False
        """Whether this node's clock is off for sure; it stays so until it is well for sure."""

    def said(self) -> ClockSaid:
        """Return what the peers shall know now."""
        return ClockSaid(self._read_us(), dict(self._heard), self.is_off)

    def heard(self, peer_id: str, said: ClockSaid) -> None:
        """Take what a peer has just said."""
        now_us = self._read_us()
        if peer_id not in self._meters and len(self._meters) >= PEERS_COUNT_MAX:
            self._meters.clear()
            self._off.clear()
        meter = self._meters.setdefault(peer_id, RateMeter())
        self._heard[peer_id] = (said.at_us, now_us)
        (self._off.add if said.is_off else self._off.discard)(peer_id)
        before = meter.verdict
        has_ended = meter.heard(now_us, said.at_us)
        sent_us, came_us = said.heard.get(self._node_id, (0, 0))
        if now_us - CONFIRMED_US_MAX < sent_us <= now_us and came_us <= said.at_us:
            meter.confirmed(sent_us, came_us)
        if has_ended and meter.rate is not None:
            if meter.verdict is not before and {meter.verdict, before} & _DIFFERS:
                _tell(peer_id, meter.verdict, meter.rate)
            self._judge()

    def lost(self, peer_id: str) -> None:
        """Forget what a peer said that is gone. Its clock is measured on when it is back."""
        self._heard.pop(peer_id, None)

    def is_fit(self, peer_id: str) -> bool:
        """Whether nothing speaks against a peer's clock: it has not found it to be off itself."""
        return peer_id not in self._off

    def rates(self) -> Iterator[tuple[str, Rate]]:
        """Yield the rates of the peers' clocks against this node's, by node."""
        for peer_id in sorted(self._meters):
            rate = self._meters[peer_id].rate
            if rate is not None:
                yield peer_id, rate

    @property
    def ppm(self) -> float:
        """Return how much faster than the median of all voters' clocks, its own included, this node's runs.

        0 while nothing is known.
        """
        voters = self._voters()
        theirs = [rate.ppm for peer_id, rate in self.rates() if peer_id in voters]
        ratio = 1 + statistics.median_low([0.0, *theirs]) / PPM
        return (1 / ratio - 1) * PPM if ratio > 0 else 0.0

    def _judge(self) -> None:
        """Find out whether this node's clock is off, or well again; in between it stays what it was."""
        voters = self._voters()
        verdicts = [
            meter.verdict
            for peer_id in voters
            if peer_id != self._node_id and (meter := self._meters.get(peer_id))
        ]
        unknown = len(voters) - 1 - len(verdicts) + verdicts.count(ClockVerdict.UNKNOWN)
        differing = max(verdicts.count(ClockVerdict.FAST), verdicts.count(ClockVerdict.SLOW))
        majority = len(voters) // 2 + 1
        if differing >= majority:
            is_off = True
        elif differing + unknown < majority:
            is_off = False
        else:
            return
        if is_off != self.is_off:
            self.is_off = is_off
            if is_off:
                logger.error("event=clock-off ppm=%.0f detail=%r", self.ppm, _OFF)
            else:
                logger.info("event=clock-well ppm=%.0f", self.ppm)


_DIFFERS: Final = frozenset({ClockVerdict.FAST, ClockVerdict.SLOW})
_OFF: Final = (
    "the clock of this machine does not run at the rate of the others': it should not lead, because leases"
    " would end early or late (see 'Clocks' in docs/operating.md)"
)


def _tell(peer_id: str, verdict: ClockVerdict, rate: Rate) -> None:
    """Log that a peer's clock is found to differ from this node's, or not to differ any more."""
    facts = (peer_id, rate.ppm, rate.error_ppm)
    if verdict in _DIFFERS:
        logger.warning("event=clock-differs peer=%s ppm=%.0f error_ppm=%.0f", *facts)
    else:
        logger.info("event=clock-agrees peer=%s ppm=%.0f error_ppm=%.0f", *facts)
