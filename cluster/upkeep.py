"""What a node does besides its log: looks by its timer, and what follows from another role or member.

Silence, passing time and a slow disk are found only by looking. What has its own rules is a part that looks
for itself; here they have their order.
"""

import logging
from collections.abc import Callable
from typing import Final

from cluster.commands.clock import ClusterClock
from cluster.commands.outbox import Outbox
from cluster.commands.waiters import Waiters
from cluster.config import NodeConfig
from cluster.consensus.compaction import LogSpace
from cluster.consensus.divergence import Divergence
from cluster.consensus.handover import Handovers
from cluster.consensus.member_changes import MemberChanges
from cluster.consensus.replica import Replica
from cluster.errors import WaitCutOff
from cluster.observing.audit_log import AuditLog
from cluster.observing.endless_log import EndlessLog
from cluster.observing.quorum_watch import QuorumWatch
from cluster.outgoing import Outgoing
from cluster.peers import objections
from cluster.peers.fitness import Fitness
from cluster.peers.leader_watch import LeaderWatch
from cluster.peers.link import FrameKind
from cluster.peers.links import PeerLinks
from cluster.peers.peering import Peering
from cluster.peers.preferred_leader import PreferredLeader
from cluster.peers.refusal_watch import RefusalWatch
from cluster.peers.space_watch import SpaceWatch
from cluster.rare_proposals import RareProposals
from lockstate.machine import LockMachine

_LEADERLESS_ELECTIONS: Final = 1.5
"""Election timeouts without a leader after which waits end here. A leader counts as lost after one timeout of
silence, so a client is told within three."""
QUORUM_LOOK_S: Final = 0.25
"""Seconds between two looks for a majority. What is not over within seconds is only told."""

logger = logging.getLogger(__name__)


class Upkeep:
    """One node's looks around: `look` is called by the timer, before its tick. One thread."""

    def __init__(
        self,
        config: NodeConfig,
        replica: Replica,
        links: PeerLinks,
        peering: Peering,
        *,
        leadership: LeaderWatch,
        outbox: Outbox,
        waiters: Waiters,
        machine: Callable[[], LockMachine],
        outgoing: Outgoing,
        handovers: Handovers,
        changes: MemberChanges,
        rare: RareProposals,
        refusals: RefusalWatch,
        divergence: Divergence,
        fitness: Fitness,
        preferred: PreferredLeader,
        space: SpaceWatch,
        clock: ClusterClock,
        audit_log: AuditLog,
        endless_log: EndlessLog,
        request_tick: Callable[[], None],
        now_s: Callable[[], float],
    ) -> None:
        """`now_s` is the time of the event loop."""
        self._replica = replica
        self._links = links
        self._peering = peering
        self._leadership = leadership
        self._outbox = outbox
        self._waiters = waiters
        self._machine = machine
        self._outgoing = outgoing
        self._handovers = handovers
        self._changes = changes
        self._rare = rare
        self._refusals = refusals
        self._divergence = divergence
        self._fitness = fitness
        self._preferred = preferred
        self._space = space
        self._clock = clock
        self._audit_log = audit_log
        self._endless_log = endless_log
        self._request_tick = request_tick
        self._now_s = now_s
        self._quorum = QuorumWatch(config.node_id, 2 * config.election_ms_max / 1000)
        self._next_quorum_look_s = 0.0
        self._leaderless_s_max = _LEADERLESS_ELECTIONS * config.election_ms_max / 1000
        self._leader_seen: str | None = None
        self._leaderless_since_s: float | None = None
        self._log_room_seen = LogSpace.ANYTHING
        self.on_look: Callable[[], None] = lambda: None
        """Called whenever this node has looked at the clock, at who leads and at deadlines."""

    def ticked(self) -> None:
        """Go on with a handover, with changes of the members, and with an advance of the rules."""
        self._handovers.step()
        self._changes.step()
        if self._replica.role.is_leader:
            state = self._machine().state
            if self._rare.rules_advance.step(state.rules, is_held=state.rules_hold is not None):
                self._request_tick()

    def role_changed(self) -> None:
        """Go on under another leader, term or role: send again what is pending."""
        self._handovers.step()
        self._changes.step()
        self._rare.role_changed()
        self._outgoing.resend()
        self._leadership.tell()

    def members_changed(self) -> None:
        """Keep links to exactly those who belong to the cluster; tell who was removed."""
        membership = self._replica.membership
        gone = self._peering.set_members(membership.committed, membership.latest)
        # A change that a removed node asked for: it hears of that first.
        self._changes.step()
        for peer_id in gone & self._links.up():
            self._links.send(peer_id, FrameKind.REFUSED, objections.removed(peer_id))
        self._links.set_peers(self._peering.addresses())
        self._leadership.tell()

    def look(self) -> None:
        """Look at the clock, at who leads, at deadlines of commands, at peers and at the log."""
        if self._replica.role.is_leader:
            self._clock.now_ms()
        self._fitness.look()
        self._preferred.look()
        self._space.look(self._now_s())
        self._divergence.look()
        leader_id = self._leadership.leader_id()
        if leader_id is None and self._leader_seen is not None:
            # Nothing else happens then.
            logger.warning("event=leader-lost leader=%s", self._leader_seen)
        self._leader_seen = leader_id
        self._end_waits_cut_off(leader_id)
        outbox = self._outbox
        outbox.give_up_due()
        if leader_id is not None and outbox.unsent:
            # A leader that had been silent has spoken, or it is the turn of what waited for what is given up.
            self._outgoing.request_flush()
        self._refusals.look()
        self._look_at_quorum()
        self._look_at_room()
        self._audit_log.look()
        self._machine().state.audit.catch_up()
        if self._rare.step():
            self._request_tick()
        self._endless_log.look(self._machine(), is_leader=self._replica.role.is_leader)
        self.on_look()

    def _end_waits_cut_off(self, leader_id: str | None) -> None:
        """Tell who waits in queues that nothing is heard of them here: the lock may be theirs by now."""
        now_s = self._now_s()
        if leader_id is not None:
            self._leaderless_since_s = None
        elif self._leaderless_since_s is None:
            self._leaderless_since_s = now_s
        elif now_s - self._leaderless_since_s >= self._leaderless_s_max:
            self._waiters.fail_all(
                WaitCutOff("this node has lost its leader; repeat with the same request_id on another node")
            )

    def _look_at_quorum(self) -> None:
        """Say so if this node reaches no majority of those that count."""
        now_s = self._now_s()
        if now_s < self._next_quorum_look_s:
            return
        self._next_quorum_look_s = now_s + QUORUM_LOOK_S
        voters = self._replica.membership.voters
        reached = [peer_id for peer_id in voters if self._links.is_alive(peer_id)]
        self._quorum.look(voters, reached, self._peering.addresses, now_s)

    def _look_at_room(self) -> None:
        """Tell everybody at once when the log of this node has less room, or more."""
        engine = self._replica.engine
        room = engine.log_room
        if room is self._log_room_seen:
            return
        self._log_room_seen = room
        logger.warning(
            "event=log-room room=%s entries=%d bytes=%d",
            room.name.lower().replace("_", "-"),
            len(self._replica.log),
            engine.journal.bytes_count,
        )
        self._links.ping()
