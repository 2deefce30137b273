"""How large the state may get: the leader makes the bound that the smallest node can bear part of the state.

What a state takes is counted in the state itself (lockstate/tables/budget.py), and all nodes must refuse
the same commands. So the bound is in the log: a leader that wants another one proposes it.
"""

import logging
from collections.abc import Callable, Collection

from cluster.commands.batcher import Batcher

logger = logging.getLogger(__name__)


def agreed(own: int, others: Collection[int | None], active: int) -> int:
    """Return the bound that the cluster should have: the smallest that a node wants.

    `others` have what the other members said last: 0 if they bear any, None if
    they were not heard of yet. Before all are heard the `active` bound is not raised: who is silent may be
    the smallest.
    """
    told = [bytes_max for bytes_max in others if bytes_max]
    wanted = min([own, *told])
    return active if wanted > active and None in others else wanted


class StateBound:
    """Proposes the bound when this node leads. One thread."""

    def __init__(self, batcher: Batcher, wanted: Callable[[], int]) -> None:
        """`wanted` returns the bound in bytes that the cluster should have; 0 if this node is not leader."""
        self._batcher = batcher
        self._wanted = wanted
        self._proposed = 0

    def role_changed(self) -> None:
        """Forget what was proposed: it may be lost, and a repetition has no effect."""
        self._proposed = 0

    def step(self, active: int) -> bool:
        """Propose the bound that is wanted if it is not the `active` one; whether that was now.

        Called after ticks.
        """
        wanted = self._wanted()
        if wanted in (0, active, self._proposed):
            return False
        logger.info("event=state-bound-proposed from=%d to=%d", active, wanted)
        self._proposed = wanted
        self._batcher.add_bytes_max(wanted)
        return True
