"""How many TLS handshakes a node begins for those that dial it. Pure.

Each costs some tenths of a millisecond of the loop before the other side has proven anything, and strangers
may connect as often as they like. So there are so many a second and no more; members' addresses have a share
each, and all others one together, so that strangers elsewhere cannot disturb a member.
"""

from collections.abc import Callable, Collection
from typing import Final

PER_S: Final = 100.0
"""Handshakes a second that one share has: a member needs one when it is restarted."""
BURST_COUNT: Final = 100.0
"""Handshakes that may begin at once after a time without any."""
_OTHERS: Final = ""


class HandshakeBudget:
    """What is left for each origin (strangers.origin_of)."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, origin: str, members: Collection[str]) -> bool:
        """Whether one more may begin from there. `members` are the origins of members."""
        self._left = {who: left for who, left in self._left.items() if who == _OTHERS or who in members}
        share = origin if origin in members else _OTHERS
        now_s = self._now_s()
        left, since_s = self._left.get(share, (BURST_COUNT, now_s))
        left = min(BURST_COUNT, left + (now_s - since_s) * PER_S)
        self._left[share] = (left - 1 if left >= 1 else left, now_s)
        return left >= 1
