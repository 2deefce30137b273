"""Says in the log that this node reaches no majority: whom it misses, since when, and what to do about it.

Without a majority nothing is granted, renewed or released, and all other lines (lost links, a lost leader)
tell of causes only. Whoever reads one node's log must find the whole trouble in one line.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

from cluster.consensus.member_list import has_majority

REPEAT_S: Final = 60.0
"""Seconds between two lines while nothing changes."""

logger = logging.getLogger(__name__)


class QuorumWatch:
    """Whom one node reaches. Times are seconds of one clock that never goes back."""

    def __init__(self, node_id: str, patience_s: float) -> None:
        """Say nothing of what is over within `patience_s`: links come and go while nodes restart."""
        self._node_id = node_id
        self._patience_s = patience_s
        self._missed_since_s: dict[str, float] = {}
        self._lost_s: float | None = None
        self._told: frozenset[str] = frozenset()
        self._told_s = 0.0

    def look(
        self,
        voters: Collection[str],
        reached: Collection[str],
        addresses: Callable[[], Mapping[str, object]],
        now_s: float,
    ) -> None:
        """Take what is so now: those that count, those heard of lately, and where they should listen."""
        missed = frozenset(voters) - frozenset(reached) - {self._node_id}
        self._missed_since_s = {
            peer_id: self._missed_since_s.get(peer_id, now_s) for peer_id in sorted(missed)
        }
        # Before the founding, or before anything is known of the members, nobody counts.
        if not voters or has_majority(voters, frozenset(voters) - missed):
            self._found(now_s)
            return
        if self._lost_s is None:
            self._lost_s = now_s
        is_news = missed != self._told or now_s - self._told_s >= REPEAT_S
        if is_news and now_s - self._lost_s >= self._patience_s:
            self._told, self._told_s = missed, now_s
            self._tell(len(voters), addresses(), now_s)

    def _tell(self, voters_count: int, addresses: Mapping[str, object], now_s: float) -> None:
        unreachable = ", ".join(
            f"{peer_id} at {addresses.get(peer_id, '?')} for {now_s - since_s:.0f} s"
            for peer_id, since_s in self._missed_since_s.items()
        )
        logger.warning(
            "event=no-quorum unreachable=%r detail=%r",
            unreachable,
            f"{voters_count // 2 + 1} of {voters_count} nodes must reach each other. Until then nothing is"
            " granted, renewed or released here. Start those that are down, and"
            " check that this node can reach the peer addresses of the others: `holdfast status` says what"
            " each of them met. Restarting this node does not help",
        )

    def _found(self, now_s: float) -> None:
        """Say that it is over, if it was told of."""
        if self._told and self._lost_s is not None:
            still = ",".join(self._missed_since_s) or "-"
            logger.info("event=quorum-again after_s=%.0f unreachable=%s", now_s - self._lost_s, still)
        self._lost_s = None
        self._told = frozenset()
