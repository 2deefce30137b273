"""What a node looks at whenever its timer fires: what no message and no command would tell it.

Silence, passing time and a slow disk are found only by looking. What has its own rules is a part that looks
for itself; here they have their order.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from cluster.commands.clock import ClusterClock
from cluster.commands.clock_watch import ClockWatch
from cluster.commands.outbox import Outbox
from cluster.commands.waiters import Waiters
from cluster.config import Address, NodeConfig
from cluster.consensus.compaction import LogRoom
from cluster.consensus.divergence import Divergence
from cluster.consensus.handover import Handovers
from cluster.consensus.replica import Replica
from cluster.errors import WaitCutOff
from cluster.loop import Loop
from cluster.observing.audit_log import AuditLog
from cluster.observing.quorum_watch import QuorumWatch
from cluster.peers.disk_watch import DiskWatch
from cluster.peers.fitness import Fitness
from cluster.peers.links import PeerLinks
from cluster.peers.peering import Peering
from cluster.peers.refusal_watch import RefusalWatch
from cluster.rare_proposals import RareProposals

_LEADERLESS_ELECTIONS: Final = 1.5
"""Election timeouts without a leader after which waits end here. A leader counts as lost after one timeout of
silence, so a client is told within three."""
QUORUM_LOOK_S: Final = 0.25
"""Seconds between two looks for a majority. What is not over within seconds is only told."""

logger = logging.getLogger(__name__)


class LookedAt(Protocol):
    """The parts of a node that are looked at."""

    replica: Replica
    loop: Loop
    links: PeerLinks
    peering: Peering
    handovers: Handovers
    clocks: ClockWatch
    disk: DiskWatch
    outbox: Outbox
    waiters: Waiters
    divergence: Divergence

    def leader_id(self) -> str | None:
        """Return who leads, if it can be reached."""

    def log_room(self) -> LogRoom:
        """Return what this node may still put into its log."""

    def peer_addresses(self) -> Mapping[str, Address]:
        """Return where the others listen."""

    def request_flush(self) -> None:
        """Send what the outbox holds."""


class Upkeep:
    """One node's looks around: `look` is called by the timer, before its tick. One thread."""

    def __init__(
        self,
        node: LookedAt,
        config: NodeConfig,
        clock: ClusterClock,
        audit_log: AuditLog,
        *,
        refusals: RefusalWatch,
        rare: RareProposals,
        now_s: Callable[[], float],
    ) -> None:
        """`now_s` is the time of the event loop."""
        self._node = node
        self._clock = clock
        self._audit_log = audit_log
        self._fitness = Fitness(
            node.replica,
            node.handovers,
            node.links,
            node.peering,
            clocks=node.clocks,
            disk=node.disk,
            now_s=now_s,
        )
        self._refusals = refusals
        self._rare = rare
        self._now_s = now_s
        self._quorum = QuorumWatch(config.node_id, 2 * config.election_ms_max / 1000)
        self._next_quorum_look_s = 0.0
        self._leaderless_s_max = _LEADERLESS_ELECTIONS * config.election_ms_max / 1000
        self._leader_seen: str | None = None
        self._leaderless_since_s: float | None = None
        self._log_room_seen = LogRoom.ANYTHING

    def look(self) -> None:
        """Look at the clock, at who leads, at deadlines of commands, at peers and at the log."""
        node = self._node
        if node.replica.role.is_leader:
            self._clock.now_ms()
        self._fitness.look()
        node.divergence.look()
        leader_id = node.leader_id()
        if leader_id is None and self._leader_seen is not None:
            # Nothing else happens then.
            logger.warning("event=leader-lost leader=%s", self._leader_seen)
        self._leader_seen = leader_id
        self._end_waits_cut_off(leader_id)
        node.outbox.give_up_due()
        if leader_id is not None and node.outbox.unsent:
            # A leader that had been silent has spoken, or it is the turn of what waited for what is given up.
            node.request_flush()
        self._refusals.look()
        self._look_at_quorum()
        self._look_at_room()
        self._audit_log.look()
        if self._rare.step():
            node.loop.request_tick()

    def _end_waits_cut_off(self, leader_id: str | None) -> None:
        """Tell who waits in queues that nothing is heard of them here: the lock may be theirs by now."""
        now_s = self._now_s()
        if leader_id is not None:
            self._leaderless_since_s = None
        elif self._leaderless_since_s is None:
            self._leaderless_since_s = now_s
        elif now_s - self._leaderless_since_s >= self._leaderless_s_max:
            self._node.waiters.fail_all(
                WaitCutOff("this node has lost its leader; repeat with the same request_id on another node")
            )

    def _look_at_quorum(self) -> None:
        """Say so if this node reaches no majority of those that count."""
        now_s = self._now_s()
        if now_s < self._next_quorum_look_s:
            return
        self._next_quorum_look_s = now_s + QUORUM_LOOK_S
        node = self._node
        voters = node.replica.membership.voters
        reached = [peer_id for peer_id in voters if node.links.is_alive(peer_id)]
        self._quorum.look(voters, reached, node.peer_addresses, now_s)

    def _look_at_room(self) -> None:
        """Tell everybody at once when the log of this node has less room, or more."""
        node = self._node
        room = node.log_room()
        if room is self._log_room_seen:
            return
        self._log_room_seen = room
        logger.warning(
            "event=log-room room=%s entries=%d bytes=%d",
            room.name.lower().replace("_", "-"),
            len(node.replica.log),
            node.replica.engine.journal.bytes_count,
        )
        node.links.ping()
