"""Which part of the log a leader keeps for followers that are getting a snapshot.

At the end of its snapshot a follower needs the entries behind it. Without them it would need the next
snapshot, from byte 0, and under load never catch up. So the log stays from the end of the snapshot on, then
from where the follower has come to, until it has all that the newest snapshot contains. Who makes no
progress for a minute, or is no member any more, is forgotten, and what is kept has a bound: the leader's
memory is nobody's hostage.

Pure: times are seconds of one monotonic clock.
"""

from collections.abc import Callable, Collection
from typing import Final

from cluster.consensus.compaction import LOG_BYTES_MAX

IDLE_S_MAX: Final = 60.0
"""The time, in seconds, without any progress after which nothing is kept for a follower any more."""
BYTES_MAX: Final = LOG_BYTES_MAX // 2
"""The bytes of commands that are kept before a snapshot at most. More would ask for the next one at once."""
ENTRIES_MAX: Final = 500_000
"""The entries that are kept at most. Each takes 200 bytes of memory besides its content."""


class _Pin:
    """What one follower needs: everything from `index` on. `progress_s` is when it came forward last."""

    def __init__(self, index: int, now_s: float) -> None:
        self.index = index
        self.progress_s = now_s
        self.bytes_max = 0


class PinnedLog:
    """What the followers need; of one leader, in one term."""

    def __init__(self) -> None:
        self.pins: Final[dict[str, _Pin]] = {}
        """What is kept, by follower."""

    def begin(self, peer_id: str, index: int, now_s: float) -> None:
        """Keep everything from `index` on, the last entry of a snapshot, besides what is kept already."""
        self.pins.setdefault(peer_id, _Pin(index, now_s))

    def has_sent(self, peer_id: str, offset: int, now_s: float) -> None:
        """Record how much of its snapshot a follower was sent: further than ever before is progress."""
        pin = self.pins.get(peer_id)
        if pin is not None and offset > pin.bytes_max:
            pin.bytes_max, pin.progress_s = offset, now_s

    def look(self, match_index: Callable[[str], int], now_s: float, *, goal: int | None = None) -> list[str]:
        """Look how far everybody has come; forget, and return, who has all up to `goal` or stands still."""
        ended = []
        for peer_id, pin in self.pins.items():
            matched = match_index(peer_id)
            if matched > pin.index:
                pin.index, pin.progress_s = matched, now_s
            if (goal is not None and matched >= goal) or now_s - pin.progress_s > IDLE_S_MAX:
                ended.append(peer_id)
        for peer_id in ended:
            del self.pins[peer_id]
        return ended

    def first_needed(self) -> int | None:
        """Return from which entry on the log is needed, None if nothing is kept for anybody."""
        return min((pin.index for pin in self.pins.values()), default=None)

    def keep(self, peer_ids: Collection[str]) -> None:
        """Forget everybody but these: who was removed from the members needs nothing."""
        for peer_id in [peer_id for peer_id in self.pins if peer_id not in peer_ids]:
            del self.pins[peer_id]

    def clear(self) -> None:
        """Forget everybody: this node no longer leads, or another term begins."""
        self.pins.clear()
