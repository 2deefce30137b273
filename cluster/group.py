"""One Raft log with its state machine and its clients' commands: the working heart of a node.

The loop drives the replica and tells the group what came of it (`loop.Owner`); frames of peers come through
peering; the clients' side is `requests`. What the log says is applied here, and completes what waits here.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final, cast

from cluster.commands import patience
from cluster.commands.abandoned_waits import AbandonedWaits
from cluster.commands.batcher import Batcher
from cluster.commands.client_requests import ClientRequests
from cluster.commands.clock import STALL_COUNTED_MS_MAX, ClusterClock, SystemClock
from cluster.commands.clock_watch import ClockWatch
from cluster.commands.expiry import Alarms
from cluster.commands.forwarded import Forwarded, new_origin
from cluster.commands.loads import load_of
from cluster.commands.outbox import Answer, Outbox
from cluster.commands.patience import Patience
from cluster.commands.room import check_room
from cluster.commands.rules import decode_entry, decode_state
from cluster.commands.timers import GuardedTimers
from cluster.commands.waiters import Waiters
from cluster.config import Address, NodeConfig
from cluster.consensus import member_list
from cluster.consensus.beginning import Beginning
from cluster.consensus.compaction import LogRoom
from cluster.consensus.divergence import Divergence
from cluster.consensus.handover import Handovers
from cluster.consensus.library_words import EngineJournal
from cluster.consensus.log_digest import Difference
from cluster.consensus.member_changes import Means, MemberChanges
from cluster.consensus.member_list import Members
from cluster.consensus.replica import Replica
from cluster.errors import NoLeader, OutcomeUnknown, ShuttingDown, StateDamaged
from cluster.loop import Loop
from cluster.observing.audit_log import AuditLog
from cluster.observing.endless_log import EndlessLog
from cluster.observing.event_log import EventLog, events_count_max
from cluster.observing.gauges import gauges
from cluster.observing.metrics import NodeMetrics
from cluster.peers import first_start, objections
from cluster.peers.disk_watch import DiskWatch
from cluster.peers.handshake import Objection
from cluster.peers.link import FrameKind
from cluster.peers.links import PeerLinks
from cluster.peers.peer_tls_watch import PeerTlsWatch
from cluster.peers.peering import Handlers, Peering
from cluster.peers.refusal_watch import RefusalWatch
from cluster.rare_proposals import RareProposals
from cluster.storage.cluster_record import Founding
from cluster.storage.snapshot_store import SnapshotStore
from cluster.storage.sync_runner import InPlace, SyncRunner
from cluster.upkeep import Upkeep
from lockstate import codec, limits, snapshot
from lockstate.commands import Command
from lockstate.machine import LockMachine
from lockstate.results import Done, NumberedDone, Queued, Result

logger = logging.getLogger(__name__)

_TICKS_PER_HEARTBEAT: Final = 2
"""The ticks of a node that has nothing to do: an election starts at most half a heartbeat late."""
_TICK_MS_MAX: Final = STALL_COUNTED_MS_MAX / 2
"""The longest time, in ms, between two looks at the clock: cluster time counts no longer gap."""
_DONE: Final = Done()
_NO_TERM: Final = 0
"""The term of commands for no leader: of none at all."""


class Group:
    """One node's part in one log. Made inside the running loop; `start` makes it take part."""

    def __init__(
        self, config: NodeConfig, journal: EngineJournal, store: SnapshotStore, beginning: Beginning
    ) -> None:
        """Recover from journal and snapshot. Raises DataDirError, SnapshotError.

        `beginning` is how the cluster of this node began.
        """
        self.node_id = config.node_id
        self._config = config
        self.beginning = beginning
        """How the cluster of this node began."""
        self._loop = asyncio.get_running_loop()
        self.machine = LockMachine()
        self.metrics = NodeMetrics(lambda: gauges(self))
        self.outbox = Outbox(new_origin(config.node_id), self._loop)
        self.waiters = Waiters(self._loop)
        self.events = EventLog(self._loop, events_count_max(self.state_bytes_max()))
        self.leadership = asyncio.Event()
        """Set, and replaced by a new one, when who leads may have changed."""
        self.on_look: Callable[[], None] = lambda: None
        """Called whenever this node has looked at the clock, at who leads and at deadlines."""
        self.peer_tls_watch: PeerTlsWatch | None = None
        """What keeps the TLS of the links, if they have any. Set before they are used."""
        self.is_shutting_down = False
        self._batcher = Batcher(self._load_of)
        self._clock = ClusterClock(SystemClock())
        timers = GuardedTimers(self._loop, self._guarded)
        self.outbox.later, self.outbox.on_rested = timers.call_later, self.request_flush
        self._alarms = Alarms(timers, self._clock, self._pass_time)
        self._abandoned = AbandonedWaits(
            self.outbox, timers, self._clock, self._waiting_origins, self.request_flush
        )
        self._patience = Patience(self._loop, self.request_flush)
        self._was_leader = False
        self._is_flush_due = False
        self.disk = DiskWatch()
        self._refusals = RefusalWatch(self, config, self._loop.time)
        self._audit_log = AuditLog(self._loop.time)
        self._endless_log = EndlessLog(self._loop.time)
        self._started_s = self._loop.time()
        self.replica = Replica(
            config,
            Members(),
            journal,
            store,
            room_bytes=self._room_bytes,
            decode_state=decode_state,
            founded=beginning.founded,
        )
        self.replica.engine.may_wait = self._may_wait
        self.divergence = Divergence(
            config.node_id,
            self.replica.log,
            lambda: self.replica.membership.voters,
            self._loop.time,
            newest=lambda: self.machine.fingerprint,
            stop=self.broke,
            tell=lambda: self.links.ping(),  # noqa: PLW0108 - there are no links yet
        )
        self.divergence.restarted(self.machine.revision)
        state, self.replica.loaded_state = self.replica.loaded_state, None
        if state is not None:
            self.restore(state)
        # What is known to be committed was applied, and told, before this start.
        self._told_up_to = self.replica.log.committed
        self.requests = ClientRequests(
            self.outbox,
            self.metrics.failures,
            self.request_flush,
            lambda: self.is_open,
            self._check_room,
            load=self._load_of,
            owner_of=lambda session_id: self.machine.owner_of(session_id),  # noqa: PLW0108 - of the machine then
        )
        self.journal = journal
        self.clocks = ClockWatch(
            config.node_id, self._clock.reading_us, lambda: self.replica.membership.voters
        )

    def connect(self, links: PeerLinks, peering: Peering, syncs: SyncRunner | None = None) -> None:
        """Use these links, and take what comes over them. Called once, before `start`.

        `syncs` runs the syncs of the journal; without it they are run in place.
        """
        self.links = links
        self.peering = peering
        peering.clocks = self.clocks
        peering.is_alive = links.is_alive
        self.replica.engine.do_others_write = peering.do_others_write
        peering.divergence = self.divergence
        period_ms = min(self._config.heartbeat_ms / _TICKS_PER_HEARTBEAT, _TICK_MS_MAX)
        self.loop = Loop(
            self.replica,
            self.journal,
            links,
            self,
            period_s=period_ms / 1000,
            on_sync=self._synced,
            syncs=syncs or InPlace(),
        )
        self.handovers = Handovers(
            self.replica,
            links.is_up,
            self.loop.act,
            self.loop.request_tick,
            self._config.election_ms_max / 1000,
        )
        self.handovers.is_fit = self.clocks.is_fit
        self.loop.on_sync_begun = lambda: self.disk.begun(self._loop.time())
        self.changes = MemberChanges(
            self.node_id,
            self.replica,
            Means(
                leader_id=self.leader_id,
                send=lambda peer_id, change: links.send(peer_id, FrameKind.CHANGE, change),
                answer=lambda peer_id, verdict: links.send(peer_id, FrameKind.CHANGED, verdict),
                disk_ids=peering.disk_ids,
                belongs=peering.belongs,
                why_not_joining=peering.objections_met.why_not_joining,
                takes_peers=self._config.takes_peers,
                hand_over=self.handovers.begin_with_most_caught_up,
                request_tick=self.loop.request_tick,
            ),
            self._loop,
        )
        self._rare = RareProposals(self, self._config, self._batcher)
        self.upkeep = Upkeep(
            self,
            self._config,
            self._clock,
            self._audit_log,
            refusals=self._refusals,
            rare=self._rare,
            now_s=self._loop.time,
        )
        peering.handlers = Handlers(
            raft=self.loop.receive,
            forwarded=self.forwarded,
            transfer_asked=self.handovers.begin,
            change_asked=self.changes.asked,
            change_decided=self.changes.decided,
        )
        peering.found(
            {node_id: str(address) for node_id, address in self.config_peers().items()},
            first_start.FoundingMeans(
                send=lambda peer_id, news: links.send(peer_id, FrameKind.FOUNDING, news),
                founded=self._founded,
                run=self.loop.run,
            ),
            joins=self.beginning.joins,
        )
        membership = self.replica.membership
        peering.set_members(membership.committed, membership.latest)
        links.set_peers(self.peer_addresses())

    def start(self) -> None:
        """Begin to tick. A node that is to be a cluster of its own founds it, unless somebody knows it."""
        founding = self.peering.first_start
        if founding is not None and founding.is_alone and self._config.takes_peers:
            self._loop.call_later(first_start.LONELY_S, founding.begin)
        elif founding is not None:
            founding.begin()
        self.loop.start()

    def stop(self) -> None:
        """Stop all timers and end all requests. Idempotent."""
        self.loop.stop()
        self._alarms.stop()
        self._abandoned.stop()
        self._patience.stop()
        self.failed()

    @property
    def is_open(self) -> bool:
        """Whether this node takes requests."""
        return not self.is_shutting_down and not self.loop.has_failed

    def _room_bytes(self, peer_id: str) -> int:
        """Return how much bulk data may be sent to a peer now."""
        return self.links.room_bytes(peer_id)

    def _may_wait(self) -> bool:
        """Whether nobody here waits for what is committed: no client, and nobody who watches."""
        return not (len(self.outbox) or len(self.waiters) or self.events.watchers)

    # -- commands on their way ------------------------------------------------------------------------------

    def request_flush(self) -> None:
        """Send what the outbox holds at the end of this run of the loop."""
        if not self._is_flush_due:
            self._loop.call_soon(self.loop.run, self._flush)
            self._is_flush_due = True

    def _flush(self) -> None:
        """Hand unsent commands to the leader: to our own next tick, or over the link, as one frame."""
        self._is_flush_due = False
        role = self.replica.role
        if role.is_leader:
            self._request_entry()
            return
        leader_id = self.leader_id()
        while leader_id is not None and self.outbox.unsent:
            forwarded = Forwarded(role.term, self.outbox.origin, *self.outbox.take())
            self.links.send(leader_id, FrameKind.FORWARD, forwarded)

    def forwarded(self, batch: Forwarded) -> None:
        """Take a follower's commands if they are meant for this very leadership; else it sends them again."""
        self._abandoned.heard(batch.origin)
        role = self.replica.role
        if role.is_leader and batch.term == role.term:
            self._batcher.add(batch.origin, batch.seqs, batch.commands)
            self._request_entry()

    def _request_entry(self) -> None:
        """Have what waits proposed at the end of this run of the loop; keepalives alone, when it is time.

        What waits for something else, such as room in the log, is looked at by the timer's ticks.
        """
        if self.has_entry():
            self.loop.request_tick()
        elif not self._patience.is_over:
            self._patience.wait()

    def _load_of(self, command: bytes) -> int:
        """Return how much more than most commands this one makes all nodes do."""
        return load_of(command, self.machine)

    def log_room(self) -> LogRoom:
        """Return what this node may still put into its log."""
        return self.replica.engine.log_room

    def _check_room(self, command: type[Command]) -> None:
        """Raise NoLeader if this node's state may be wrong, Overloaded if the leader has no room.

        The latter as far as this node was told.
        """
        if self.divergence.is_in_doubt:
            raise NoLeader("the states of the nodes differ, and no majority says which is right")
        leader_id = self.replica.role.leader_id
        ping = self.peering.pings.get(leader_id) if leader_id is not None else None
        told = ping.log_room if ping is not None else LogRoom.ANYTHING
        room = self.log_room() if self.replica.role.is_leader else told
        if room:
            check_room(command, for_anything=room < LogRoom.WHAT_FREES, for_what_frees=room < LogRoom.NOTHING)

    def _resend(self) -> None:
        """Begin again with whoever leads now: everything pending, from the lowest number on."""
        self.metrics.commands_resent += self.outbox.rewind()
        self.request_flush()

    # -- what the loop asks and tells (loop.Owner) ----------------------------------------------------------

    @property
    def takes_part(self) -> bool:
        """Whether this node may tick at all: in a new cluster all nodes must have met."""
        return self.peering.is_established

    def has_entry(self) -> bool:
        """Whether anything waits to be proposed, and may be."""
        outbox, batcher = self.outbox, self._batcher
        if not outbox.unsent and batcher.is_empty:
            return False
        is_urgent = outbox.is_urgent or batcher.is_urgent
        is_due = is_urgent or self._patience.is_over or self._ends_soon()
        return is_due and self.replica.engine.log_room is not LogRoom.NOTHING

    def _ends_soon(self) -> bool:
        """Whether anything ends so soon that a keepalive of it must not wait for company."""
        deadline_ms = self.machine.next_deadline_ms()
        return deadline_ms is not None and deadline_ms - self._clock.now_ms() < patience.MARGIN_MS

    def entries(self) -> Iterator[bytes]:
        """Yield the next batches, each stamped now: our own clients' commands join those of the followers."""
        while self.replica.engine.log_room is not LogRoom.NOTHING:
            while self.outbox.unsent:
                self._batcher.add(self.outbox.origin, *self.outbox.take())
            entry = self._batcher.next_entry(self._clock.now_ms())
            if entry is None:
                return
            self.metrics.entries_proposed += 1
            self._patience.proposed()
            yield entry

    def apply(self, index: int, entry: bytes) -> None:
        """Apply one committed entry and complete what it answers here."""
        machine = self.machine
        outcome = machine.apply(decode_entry(entry, machine.state.rules))
        self.divergence.applied(outcome.revision)
        for batch in outcome.batches:
            if batch.origin == self.outbox.origin:
                for seq, result in zip(batch.seqs, batch.results, strict=True):
                    self._complete(seq, result, outcome.revision, is_repeated=seq in batch.repeated)
        if self.outbox.unsent:
            self.request_flush()  # it was their turn, since something has ended
        for settled in outcome.settled:
            self.waiters.wake(settled, outcome.revision)
        self.metrics.applied(outcome)
        self.events.append(outcome.events + outcome.cell_events)
        if self.replica.role.is_leader:
            self._patience.applied()
            if outcome.events and index > self._told_up_to:
                self._audit_log.tell(outcome.events)
                self._endless_log.tell(outcome.events, self.machine)
            self._alarms.arm(self.machine)
            self._abandoned.look()

    def _complete(self, seq: int, result: Result, revision: int, *, is_repeated: bool) -> None:
        """Hand a result to who asked. Who is queued begins to wait here, before any event can come."""
        wait = waits = None
        is_pending = self.outbox.is_pending
        if type(result) is Queued and is_pending(seq):
            wait = self.waiters.add(result.hold_id)
        elif type(result) is NumberedDone and Queued in map(type, result.results) and is_pending(seq):
            waits = {
                place: self.waiters.add(each.hold_id)
                for place, each in enumerate(result.results)
                if isinstance(each, Queued)
            }
        self.outbox.complete(seq, Answer(result, revision, wait, is_repeated, waits), self.machine)
        self.metrics.answered(result)

    def parted(self, peer_id: str, difference: Difference) -> None:
        """Find out who is right: a leader's history differs from this node's log."""
        self.divergence.parted(peer_id, difference)

    def encode_state(self) -> bytes:
        """Return the state machine as bytes, in a forked child. Raises StateDamaged."""
        if not self.machine.is_sound:
            raise StateDamaged
        return snapshot.encode(self.machine)

    def snapshot_begun(self) -> None:
        """Tell the peers at once: one that is about to write as well waits."""
        self.links.ping()

    def restore(self, state: object) -> None:
        """Replace the state machine by that of a snapshot; find out what it means for who waits here."""
        machine = state if isinstance(state, LockMachine) else snapshot.decode(cast("bytes", state))
        self.machine = machine
        self.divergence.restarted(machine.revision)
        self.events.restart(machine.revision)
        self.metrics.restored(machine)
        lost = OutcomeUnknown("this node fell behind; repeat the request with the same request_id")
        for pending in self.outbox.applied_up_to(machine.applied_seq(self.outbox.origin)):
            if pending.readers is None:
                self.outbox.fail(pending.seq, lost)
            else:
                self.outbox.complete(pending.seq, Answer(_DONE, machine.revision), machine)
        for hold_id in self.waiters.hold_ids():
            self.waiters.reconcile(hold_id, machine.attempt(hold_id), machine.revision, lost)

    def role_changed(self) -> None:
        """Begin or end to lead; send again what is pending."""
        role = self.replica.role
        self.metrics.leadership_changes += 1
        logger.info(
            "event=leadership leader=%s term=%d is_leader=%s",
            role.leader_id or "-",
            role.term,
            role.is_leader,
        )
        if role.is_leader and not self._was_leader:
            newest = self.replica.engine.newest_command()
            newest_ms = codec.entry_time(newest) if newest is not None else 0
            self._clock.start(max(self.machine.now_ms, newest_ms))
        self._was_leader = role.is_leader
        self._batcher.clear()
        # A timer that is set went by another beginning of the clock.
        self._alarms.stop()
        if role.is_leader:
            self._alarms.arm(self.machine)
        self._abandoned.lead(is_leader=role.is_leader)
        self.handovers.step()
        self.changes.step()
        self._rare.role_changed()
        self._resend()
        self._wake_observers()

    def members_changed(self) -> None:
        """Keep links to exactly those who belong to the cluster; tell who was removed."""
        peering = self.peering
        committed = self.replica.membership.committed
        gone = peering.set_members(committed, self.replica.membership.latest)
        # A change that a removed node asked for: it hears of that first.
        self.changes.step()
        for peer_id in gone & self.links.up():
            self.links.send(peer_id, FrameKind.REFUSED, objections.removed(peer_id))
        self.links.set_peers(self.peer_addresses())
        self._wake_observers()

    def ticked(self) -> None:
        """Go on with a handover, with changes of the members, and with an advance of the rules."""
        self.handovers.step()
        self.changes.step()
        if self._rare.rules_advance.step(self.machine.rules):
            self.loop.request_tick()

    def time_passed(self) -> None:
        """Look at what nothing but time tells."""
        self.upkeep.look()
        self._endless_log.look(self.machine, is_leader=self.replica.role.is_leader)
        self.on_look()

    def _synced(self, took_s: float) -> None:
        """Record how long a sync took."""
        self.disk.ended(took_s)
        self.metrics.sync_seconds.observe(took_s)

    def sync_ms(self) -> int:
        """Return how long syncs take here."""
        return self.disk.sync_ms(self._loop.time())

    def is_writing_snapshot(self) -> bool:
        """Whether this node writes a snapshot."""
        return self.replica.is_writing_snapshot

    def failed(self) -> None:
        """End what clients wait for: this node stops."""
        unknown = OutcomeUnknown(
            "this node is stopping; repeat the request with the same request_id on another node"
        )
        self.outbox.close(ShuttingDown("this node is stopping; ask another"), unknown)
        self.waiters.fail_all(unknown)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do the work of a timer; whatever it raises stops this node."""
        self.loop.run(work)

    def _pass_time(self) -> None:
        """Propose that time has passed: something is due."""
        if self.replica.role.is_leader:
            self._batcher.add_tick()
            self.loop.request_tick()

    def state_bytes_max(self) -> int:
        """Return how much memory for the state this node can bear."""
        return self._config.state_bytes_max or limits.STATE_BYTES_MAX

    def _waiting_origins(self) -> list[str]:
        """Return whose clients wait. The machine is another one after a snapshot."""
        return self.machine.waiting_origins()

    # -- the peers (peering.PeeringHost) ------------------------------------------------------------------

    def peer_up(self, peer_id: str) -> None:
        """Record that a peer can be reached; if it leads, begin again with it.

        It is told first which run of this node's process it is connected with.
        """
        self.links.send(peer_id, FrameKind.FORWARD, Forwarded(_NO_TERM, self.outbox.origin, [], []))
        self.loop.peer_up(peer_id)
        if peer_id == self.replica.role.leader_id:
            self._resend()
            self._wake_observers()

    def peer_down(self, peer_id: str, *, is_replaced: bool = False) -> None:
        """Record that the connection with a peer has ended: it sends again what is not proposed yet."""
        self._batcher.drop_from(peer_id)
        self._abandoned.lost(peer_id)
        self.loop.peer_down(peer_id, is_replaced=is_replaced)

    def _founded(self, founding: Founding) -> None:
        """Take part from now on: the cluster of this node is founded."""
        self.loop.act(self.replica.begin_founded(member_list.founded(founding)))

    def refused(self, peer_id: str, objection: Objection, *, is_dialed: bool) -> None:
        """Record that a peer does not let this node in. Whether to stop for that is looked at later."""
        self._refusals.refused(peer_id, objection, is_dialed=is_dialed)

    def let_in(self, peer_id: str) -> None:
        """Record that a peer lets this node in."""
        self._refusals.let_in(peer_id)

    def uptime_s(self) -> float:
        """Return for how long this node has run."""
        return self._loop.time() - self._started_s

    def is_log_empty(self) -> bool:
        """Whether the log holds nothing that came from anybody."""
        return self.replica.log.last_index <= 1

    def broke(self, error: BaseException) -> None:
        """Stop: the disk failed while somebody waited for its answer elsewhere than in a tick."""
        self.loop.fail(error)

    def role(self) -> str:
        """Return leader, candidate, follower; starting while not all nodes have met; joining."""
        if not self.peering.is_established:
            return "starting"
        if self.node_id not in self.replica.membership.voters:
            return "joining"
        if self.replica.role.is_leader:
            return "leader"
        return "candidate" if self.replica.role.is_candidate else "follower"

    def revision(self) -> int:
        """Return how many entries this node has applied."""
        return self.machine.revision

    def rules(self) -> int:
        """Return the version of the rules that this node's state follows."""
        return self.machine.rules

    def config_peers(self) -> dict[str, Address]:
        """Return the founders of the cluster, if it is yet to be founded: by the configuration."""
        return dict(self._config.founders)

    def peer_addresses(self) -> dict[str, Address]:
        """Return where the others listen. Who is being removed is linked until that is committed."""
        membership = self.replica.membership
        listed = membership.committed.nodes | membership.latest.nodes
        peers = {node_id: Address.parse(member.peer) for node_id, member in listed.items()}
        peers = peers or self.config_peers()
        peers.pop(self.node_id, None)
        return peers

    # -- leadership -----------------------------------------------------------------------------------------

    def leader_id(self) -> str | None:
        """Return who leads, None if the one this node knew of cannot be reached or has gone silent."""
        role = self.replica.role
        if role.is_leader or role.leader_id is None:
            return role.leader_id
        is_silent = self.replica.prevote.leader_silence_s * 1000 > self._config.election_ms_max
        return None if is_silent or not self.links.is_up(role.leader_id) else role.leader_id

    def _wake_observers(self) -> None:
        """Let everybody who waits for a change of leadership look again, on the other nodes too."""
        self.links.ping()
        self.leadership.set()
        self.leadership = asyncio.Event()
