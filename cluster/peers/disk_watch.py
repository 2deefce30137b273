"""How long syncs take here and elsewhere, and whether this leader's disk is so slow that another should lead.

Every node tells its peers how long its syncs take. A leader whose disk takes much longer than those of the
others for long hands over: it commits on their disks, but needs one disk more than a leader with a quick one,
and a follower's disk slows nobody down. Pure: times are seconds of one monotonic clock.
"""

from collections.abc import Mapping
from statistics import median_low
from typing import Final

WEIGHT: Final = 0.1
"""What one more sync counts in the average."""
SLOW_MS: Final = 20
"""The time of a sync, in ms, below which no disk is called slow."""
SLOW_FACTOR: Final = 4
"""How many times slower than the others' a disk must be to be called slow."""
SLOW_S: Final = 5.0
"""For how long, in seconds, it must be so."""
PAUSE_S: Final = 60.0
"""The time, in seconds, between two handovers for this reason."""
AGE_COUNTED_S: Final = 0.25
"""The age, in seconds, from which on a sync that is under way counts before its end. Below that it may have
ended, and the loop only been too busy to hear of it."""
HANGING_S: Final = 1.0
"""The age, in seconds, from which on a sync that is under way is told as trouble."""


class DiskWatch:
    """The disk of one node, as far as its syncs tell, and what its peers say of theirs."""

    def __init__(self) -> None:
        self._average_s = 0.0
        self._began_s: float | None = None
        self._slow_since_s: float | None = None
        self._not_before_s = float("-inf")

    def begun(self, now_s: float) -> None:
        """Record that a sync begins."""
        self._began_s = now_s

    def ended(self, took_s: float) -> None:
        """Record how long it took."""
        self._began_s = None
        self._average_s += WEIGHT * (took_s - self._average_s)

    def age_s(self, now_s: float) -> float:
        """Return for how long the present sync has been under way; 0 if there is none."""
        return 0.0 if self._began_s is None else max(0.0, now_s - self._began_s)

    def sync_ms(self, now_s: float) -> int:
        """Return how long syncs take: on average, or what the present one has taken if that is long."""
        age_s = self.age_s(now_s)
        return round(1000 * max(self._average_s, age_s if age_s >= AGE_COUNTED_S else 0.0))

    def slow_s(self, now_s: float) -> float:
        """Return for how long this disk has been much slower than the others'; 0 while that may pass."""
        slow_s = 0.0 if self._slow_since_s is None else now_s - self._slow_since_s
        return slow_s if slow_s >= SLOW_S else 0.0

    def reason_to_hand_over(self, others_ms: Mapping[str, int], now_s: float) -> str:
        """Return why this node should not lead, empty if it may: `others_ms` is what connected voters say.

        Asked again and again; gives the same reason once a minute at most.
        """
        own_ms = self.sync_ms(now_s)
        usual_ms = median_low(others_ms.values()) if others_ms else own_ms
        if not is_slow(own_ms, usual_ms):
            self._slow_since_s = None
            return ""
        if self._slow_since_s is None:
            self._slow_since_s = now_s
        if now_s - self._slow_since_s < SLOW_S or now_s < self._not_before_s:
            return ""
        self._not_before_s = now_s + PAUSE_S
        return f"syncs take {own_ms} ms here, and {usual_ms} ms on the other nodes"


def is_slow(sync_ms: int, usual_ms: int) -> bool:
    """Whether a disk is much slower than is usual in this cluster."""
    return sync_ms > SLOW_MS and sync_ms > SLOW_FACTOR * max(usual_ms, 1)
