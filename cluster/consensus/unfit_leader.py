"""A leader that finds that it should not lead hands over to a node that may; without one it leads on."""

import logging
from collections.abc import Callable
from typing import Final

from cluster.consensus.handover import Handovers
from cluster.consensus.replica import Replica

RETRY_S: Final = 30.0
"""Seconds after an attempt that failed: it stops proposals for up to an election's patience."""

logger = logging.getLogger(__name__)


class UnfitLeader:
    """Acts while this node is unfit to lead. `step` is called by a timer."""

    def __init__(
        self,
        replica: Replica,
        handovers: Handovers,
        is_fit: Callable[[str], bool],
        now_s: Callable[[], float],
    ) -> None:
        """`is_fit` tells whether a peer is fit to lead, as far as it has said."""
        self._replica = replica
        self._handovers = handovers
        self._is_fit = is_fit
        self._now_s = now_s
        self._not_before_s = 0.0
        self._is_told = False

    def step(self, reason: str) -> None:
        """Hand over if this node leads and there is a reason why it should not; empty: there is none."""
        replica = self._replica
        if not reason or not replica.role.is_leader:
            self._not_before_s = 0.0
            self._is_told = False
            return
        if self._now_s() < self._not_before_s:
            return
        successor = replica.most_caught_up(self._is_fit)
        handover = self._handovers.begin(successor) if successor is not None else None
        if handover is not None:
            logger.warning("event=unfit-leader-hands-over to=%s reason=%r", successor, reason)
            self._not_before_s = self._now_s() + RETRY_S
        elif not self._is_told:
            logger.warning("event=unfit-leader-stays reason=%r", reason)
            self._is_told = True
