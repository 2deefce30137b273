"""What stands between this node and a peer that is to join: for the operator who waits for it to count."""

import time
from typing import Final

from cluster.peers.handshake import Objection
from cluster.peers.objections import Kind

FRESH_S_MAX: Final = 5.0
"""Seconds that an obstacle is told: whoever still meets it meets it again about every two seconds."""
_LASTING: Final = frozenset({Kind.OTHER_CLUSTER, Kind.OTHER_DISK, Kind.REMOVED})
"""The kinds that do not pass by themselves while a node joins."""


class Obstacles:
    """The last objection to each peer, or of each peer to this node, if it is one that lasts."""

    def __init__(self) -> None:
        self._reasons: dict[str, tuple[str, float]] = {}

    def met(self, peer_id: str, objection: Objection) -> None:
        """Record an objection, whoever of the two makes it."""
        if objection.kind in _LASTING:
            self._reasons[peer_id] = (objection.reason, time.monotonic())

    def gone(self, peer_id: str) -> None:
        """Record that both let each other in, or that the peer is another one from now on."""
        self._reasons.pop(peer_id, None)

    def reason(self, peer_id: str) -> str:
        """Return what stands in the way, empty if nothing is known to."""
        reason, since_s = self._reasons.get(peer_id, ("", 0.0))
        return reason if time.monotonic() - since_s < FRESH_S_MAX else ""
