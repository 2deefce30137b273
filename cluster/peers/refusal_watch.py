"""What peers say against this node, and the end of it when it is sure that it must not take part.

The rules are in `stop_rules`; here they are given what this node knows.
"""

import logging
from collections.abc import Callable

from cluster.config import NodeConfig
from cluster.consensus.replica import Replica
from cluster.errors import IdentityRefused
from cluster.peers.handshake import Objection
from cluster.peers.objections import Kind
from cluster.peers.peering import Peering
from cluster.peers.stop_rules import SILENT_ELECTIONS_COUNT, Objections, Stop

logger = logging.getLogger(__name__)


class RefusalWatch:
    """Collects what peers say against one node, and stops it for that. One thread."""

    def __init__(
        self,
        config: NodeConfig,
        replica: Replica,
        peering: Peering,
        *,
        joins: bool,
        broke: Callable[[BaseException], None],
        now_s: Callable[[], float],
    ) -> None:
        """Watch for a node that `joins` a cluster, or was founded with it; `broke` stops it."""
        self._config = config
        self._replica = replica
        self._peering = peering
        self._joins = joins
        self._broke = broke
        self._now_s = now_s
        self._started_s = now_s()
        self._refusals = Objections()

    def refused(self, peer_id: str, objection: Objection, *, is_dialed: bool) -> None:
        """Record that a peer does not let this node in. Whether to stop for that is looked at later."""
        is_cross_call = objection.kind == Kind.OTHER_CLUSTER and not is_dialed
        logger.warning(
            "event=not-let-in peer=%s kind=%s reason=%r", peer_id, objection.kind or "-", objection.reason
        )
        if not is_cross_call:
            self._refusals.add(peer_id, objection, self._now_s())

    def let_in(self, peer_id: str) -> None:
        """Record that a peer lets this node in."""
        self._refusals.forget(peer_id)

    def look(self) -> None:
        """Stop, if it is sure that this node must not take part. Called by a timer."""
        if not len(self._refusals):
            return
        replica, peering, now_s = self._replica, self._peering, self._now_s()
        self._refusals.keep(peering.addresses(), now_s)
        patience_s = SILENT_ELECTIONS_COUNT * self._config.election_ms_max / 1000
        silence_s = min(replica.prevote.leader_silence_s, now_s - self._started_s)
        verdict = self._refusals.verdict(
            node_id=self._config.node_id,
            is_leader_heard=silence_s < patience_s,
            let_in_by=peering.table.pings().keys(),
            is_joining_empty=self._joins and replica.is_log_empty,
            voters=replica.membership.voters or self._config.peers.keys(),
            leader_id=replica.role.leader_id,
        )
        if verdict.stop is Stop.NO:
            return
        if verdict.stop is Stop.STOP_AND_REMEMBER:
            peering.remember_refusal(verdict.reason)
        self._broke(IdentityRefused(verdict.reason))
