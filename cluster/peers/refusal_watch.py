"""What peers say against this node, and the end of it when it is sure that it must not take part.

The rules are in `stop_rules`; here they are given what this node knows.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from cluster.config import Address, NodeConfig
from cluster.consensus.beginning import Beginning
from cluster.consensus.replica import Replica
from cluster.errors import IdentityRefused
from cluster.peers.handshake import Objection
from cluster.peers.links import PeerLinks
from cluster.peers.objections import Kind
from cluster.peers.peering import Peering
from cluster.peers.stop_rules import SILENT_ELECTIONS_COUNT, Objections, Stop

logger = logging.getLogger(__name__)


class MayBeRefused(Protocol):
    """The parts of a node that count."""

    node_id: str
    beginning: Beginning
    replica: Replica
    links: PeerLinks
    peering: Peering

    def uptime_s(self) -> float:
        """Return for how long this node has run."""

    def is_log_empty(self) -> bool:
        """Whether the log holds nothing that came from anybody."""

    def peer_addresses(self) -> Mapping[str, Address]:
        """Return where the others listen."""

    def broke(self, error: BaseException) -> None:
        """Stop."""


class RefusalWatch:
    """Collects what peers say against one node, and stops it for that. One thread."""

    def __init__(self, node: MayBeRefused, config: NodeConfig, now_s: Callable[[], float]) -> None:
        self._node = node
        self._config = config
        self._now_s = now_s
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
        node = self._node
        self._refusals.keep(node.peer_addresses(), self._now_s())
        patience_s = SILENT_ELECTIONS_COUNT * self._config.election_ms_max / 1000
        silence_s = min(node.replica.prevote.leader_silence_s, node.uptime_s())
        verdict = self._refusals.verdict(
            node_id=node.node_id,
            is_leader_heard=silence_s < patience_s,
            let_in_by=node.peering.pings.keys() & node.links.up(),
            is_joining_empty=node.beginning.joins and node.is_log_empty(),
            voters=node.replica.membership.voters or self._config.peers.keys(),
            leader_id=node.replica.role.leader_id,
        )
        if verdict.stop is Stop.NO:
            return
        if verdict.stop is Stop.STOP_AND_REMEMBER:
            node.peering.remember_refusal(verdict.reason)
        node.broke(IdentityRefused(verdict.reason))
