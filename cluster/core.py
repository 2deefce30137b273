"""The working heart of a node: joins replica, links, state machine, outbox and clock in one event loop.

Everything runs in callbacks of the loop's thread, and each does a bounded piece of work:

    message or proposal -> tick (commit, apply, send, propose) -> flush links -> sync -> let promises out

What arrives while a tick or a sync runs shares the next one. A failure here is final: the node stops; it
never retries what broke and never answers from a broken state.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Generator
from typing import Final, ParamSpec, cast

from cluster.commands.abandoned_waits import AbandonedWaits
from cluster.commands.batcher import Batcher
from cluster.commands.clock import STALL_COUNTED_MS_MAX, ClusterClock, SystemClock
from cluster.commands.expiry import Expiry
from cluster.commands.outbox import Answer, Outbox, new_origin
from cluster.commands.rules import RulesAdvance
from cluster.commands.waiters import Waiters
from cluster.config import Address, NodeConfig, format_peers
from cluster.consensus.guards import Message
from cluster.consensus.handover import Handover
from cluster.consensus.member_changes import Change, MemberChanges, Verdict
from cluster.consensus.member_list import Members
from cluster.consensus.replica import RaftReplica
from cluster.errors import DataDirError, IdentityRefused, NodeFailed, OutcomeUnknown, ShuttingDown
from cluster.observing import audit_log
from cluster.observing.event_log import EventLog
from cluster.observing.gauges import gauges
from cluster.observing.metrics import Metrics
from cluster.peers.handshake import Objection
from cluster.peers.link import FrameKind
from cluster.peers.links import PeerLinks
from cluster.peers.peering import Peering
from cluster.storage.data_directory import DataDir
from cluster.storage.files import Files
from cluster.storage.forked_child import Child
from cluster.storage.journal import Journal
from cluster.storage.snapshot_store import SnapshotStore
from lockstate import codec, snapshot
from lockstate.machine import LockMachine
from lockstate.results import Done, Queued, Refused, Result

logger = logging.getLogger(__name__)

P = ParamSpec("P")

_TICKS_PER_HEARTBEAT: Final = 2
"""Of a node that has nothing to do: an election starts at most half a heartbeat late."""
_TICK_MS_MAX: Final = STALL_COUNTED_MS_MAX / 2
"""However slow the heartbeat is: cluster time counts no longer gap between two looks at the clock."""
_DONE: Final = Done()
_NO_TERM: Final = 0
"""Of commands for no leader: of none at all."""


class Core:
    """One node at work. Made inside the running loop; `start` makes it take part."""

    def __init__(self, config: NodeConfig, files: Files, child: Child) -> None:
        """Recover from the data directory. Raises StartupError."""
        self._config = config
        self._loop = asyncio.get_running_loop()
        self.machine = LockMachine()
        self.metrics = Metrics(lambda: gauges(self))
        self.outbox = Outbox(new_origin(config.node_id), self._loop)
        self.waiters = Waiters(self._loop)
        self.events = EventLog(self._loop)
        self.failed: asyncio.Future[BaseException] = self._loop.create_future()
        self.leadership = asyncio.Event()
        self._batcher = Batcher()
        self._clock = ClusterClock(SystemClock())
        self._expiry = Expiry(self._loop, self._clock, self._pass_time)
        self._abandoned = AbandonedWaits(
            self.outbox, self._loop, self._clock, self._waiting_origins, self.request_flush
        )
        self._rules = RulesAdvance(self, self._batcher)
        self._handover: Handover | None = None
        self._was_leader = False
        self._leader_seen: str | None = None
        self._tick_is_due = self._sync_is_due = self._flush_is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False
        self._datadir = DataDir.open(config.data_dir, config.node_id, joins=config.join, files=files)
        self._joins = self._datadir.identity.joins
        try:
            self._store = SnapshotStore(config.data_dir, files, child)
            self._journal = Journal.open(config.data_dir, files=files)
            first_members = Members() if self._joins else config.first_members
            self.replica = RaftReplica(config, first_members, self._journal, self._store, self)
        except snapshot.SnapshotError as error:
            self._datadir.close()
            raise DataDirError(
                f"{config.data_dir}: the snapshot is whole, but this version cannot use it: {error}. Use the"
                " version of Holdfast that wrote it, or replace this node with a new one"
            ) from error
        except BaseException:
            self._datadir.close()
            raise
        # What is known to be committed was applied, and told, before this start.
        self._told_up_to = self.replica.committed
        self.peering = Peering(self._datadir, config.node_id, config.advertise_http, self)
        self.peering.set_members(self.replica.committed_members, is_first=self._is_new_cluster())
        self.links = PeerLinks(config.node_id, config.secret, self._peer_addresses(), self.peering)
        self.changes = MemberChanges(config.node_id, self.replica, self, self._loop)

    async def start(self) -> None:
        """Listen, dial, and begin to tick. Raises StartupError."""
        self._journal.sync()
        if self._config.takes_peers:
            await self.links.start(self._config.peer)
        if not self.peering.is_established:
            logger.info("event=first-start waiting_for=%s", ",".join(self.peering.missing()))
        elif self._config.node_id not in self.replica.members.nodes:
            logger.info("event=joining detail=%r", "waits to be added: see `holdfast cluster add`")
        self._compare_members()
        self._run_timer()

    def _compare_members(self) -> None:
        """Say so when the members are no longer those of the configuration: the list in the log counts."""
        listed = {node_id: member.peer for node_id, member in self.replica.members.nodes.items()}
        told = {node_id: str(address) for node_id, address in self._config.peers.items()}
        if not self.replica.is_first_members and not self._joins and told != listed:
            logger.warning(
                "event=members-differ members=%s configured=%s detail=%r",
                format_peers(listed),
                format_peers(told),
                "the members count; `peers` of the configuration is not used any more",
            )

    async def stop(self) -> None:
        """Sync and close everything. Idempotent."""
        if self._is_stopped:
            return
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._expiry.stop()
        self._abandoned.stop()
        self._end_requests()
        await self.links.stop()
        self.replica.close()
        self._store.close()
        try:
            self._journal.close()
        finally:
            self._datadir.close()

    # -- commands on their way ------------------------------------------------------------------------------

    def request_flush(self) -> None:
        """Send what the outbox holds at the end of this run of the loop."""
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._guarded, self._flush)

    def _flush(self) -> None:
        """Hand unsent commands to the leader: to our own next tick, or over the link, as one frame."""
        self._flush_is_due = False
        if self.replica.is_leader:
            self.request_tick()
            return
        leader_id = self.leader_id()
        while leader_id is not None and self.outbox.has_unsent:
            seqs, commands = self.outbox.take()
            frame = (self.replica.term, self.outbox.origin, seqs, commands)
            self.links.send(leader_id, FrameKind.FORWARD, frame)

    def forwarded(self, term: int, origin: str, seqs: list[int], commands: list[bytes]) -> None:
        """Take a follower's commands if they are meant for this very leadership; else it sends them again."""
        self._abandoned.heard(origin)
        if self.replica.is_leader and term == self.replica.term:
            self._batcher.add(origin, seqs, commands)
            self.request_tick()

    def _resend(self) -> None:
        """Begin again with whoever leads now: everything pending, from the lowest number on."""
        self.metrics.commands_resent += self.outbox.rewind()
        self.request_flush()

    # -- the loop -------------------------------------------------------------------------------------------

    def _guarded(self, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Run a piece of work; whatever it raises ends this node."""
        if self._is_stopped or self.failed.done():
            return
        try:
            work(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the node stops, and the cause is kept
            self._fail(error)

    def request_tick(self) -> None:
        """Tick at the end of this run of the loop."""
        if not self._tick_is_due:
            self._tick_is_due = True
            self._loop.call_soon(self._guarded, self._tick)

    def _tick(self) -> None:
        self._tick_is_due = False
        self.replica.tick()
        if self._handover is not None:
            self._handover.step()
        self.changes.step()
        self._rules.step()
        if self.replica.wants_tick:
            self.request_tick()

    def tick_ended(self) -> None:
        """Get what was written on its way, then sync while it travels: the group commit."""
        if self.replica.needs_sync and not self._sync_is_due:
            self.links.flush()
            self._request_sync()

    def _request_sync(self) -> None:
        """Sync at the end of this run of the loop."""
        if not self._sync_is_due:
            self._sync_is_due = True
            self._loop.call_soon(self._guarded, self._sync)

    def _sync(self) -> None:
        self._sync_is_due = False
        began_s = time.perf_counter()
        self.replica.sync()
        self.metrics.sync_seconds.observe(time.perf_counter() - began_s)

    def _run_timer(self) -> None:
        """Tick now and again even if nothing happens: heartbeats, elections, deadlines."""
        if self._is_stopped or self.failed.done():
            return
        self._guarded(self._on_timer)
        period_s = min(self._config.heartbeat_ms / _TICKS_PER_HEARTBEAT, _TICK_MS_MAX) / 1000
        self._timer = self._loop.call_later(period_s, self._run_timer)

    def _on_timer(self) -> None:
        if self.replica.is_leader:
            self._clock.now_ms()
        self._watch_leader()
        self.outbox.give_up_due()
        if self.peering.is_established:
            self._tick()

    def _watch_leader(self) -> None:
        """Tell people when the leader can no longer be heard: nothing else happens then."""
        leader_id = self.leader_id()
        if leader_id is None and self._leader_seen is not None:
            logger.warning("event=leader-lost leader=%s", self._leader_seen)
        self._leader_seen = leader_id

    def _fail(self, error: Exception) -> None:
        """Stop taking part, at once and for good."""
        if self.failed.done():
            return
        failure = error if isinstance(error, NodeFailed | IdentityRefused) else NodeFailed(repr(error))
        logger.critical("event=node-failed error=%r", str(failure), exc_info=error)
        self.failed.set_result(failure)
        self._end_requests()

    def _end_requests(self) -> None:
        unknown = OutcomeUnknown(
            "this node stops; repeat the request with the same request_id on another node"
        )
        self.outbox.close(ShuttingDown("this node stops; ask another"), unknown)
        self.waiters.fail_all(unknown)

    # -- replica.Host ---------------------------------------------------------------------------------------

    def send(self, peer_id: str, message: Message) -> None:
        """Send a Raft message."""
        self.links.send(peer_id, FrameKind.RAFT, message)

    def link_has_room(self, peer_id: str) -> bool:
        """Whether bulk data may be sent to the peer now."""
        return self.links.has_room(peer_id)

    def has_entry(self) -> bool:
        """Whether anything waits to be proposed."""
        return self.outbox.has_unsent or not self._batcher.is_empty

    def next_entry(self) -> bytes | None:
        """Stamp and return the next batch: our own clients' commands join those of the followers."""
        while self.outbox.has_unsent:
            self._batcher.add(self.outbox.origin, *self.outbox.take())
        entry = self._batcher.next_entry(self._clock.now_ms(), self.machine.rules)
        if entry is not None:
            self.metrics.entries_proposed += 1
        return entry

    def apply(self, entry: bytes) -> None:
        """Apply one committed entry and complete what it answers here."""
        outcome = self.machine.apply(self._rules.decode_entry(entry))
        for batch in outcome.batches:
            if batch.origin == self.outbox.origin:
                for seq, result in zip(batch.seqs, batch.results, strict=True):
                    self._complete(seq, result, outcome.revision)
        for settled in outcome.settled:
            self.waiters.wake(settled, outcome.revision)
        self.metrics.applied(outcome)
        self.events.append(outcome.events)
        if self.replica.is_leader:
            if outcome.events and self.replica.applied_index >= self._told_up_to:
                audit_log.tell(outcome.events)
            self._expiry.arm(self.machine.next_deadline_ms())
            self._abandoned.look()

    def _complete(self, seq: int, result: Result, revision: int) -> None:
        """Hand a result to who asked. Who is queued begins to wait here, before any event can come."""
        wait = None
        if isinstance(result, Queued) and self.outbox.is_pending(seq):
            wait = self.waiters.add(result.hold_id)
        self.outbox.complete(seq, Answer(result, revision, wait), self.machine)
        label = result.reason.value if isinstance(result, Refused) else type(result).__name__.lower()
        self.metrics.commands[label] += 1

    def encode_state(self) -> bytes:
        """Return the state machine as bytes."""
        return snapshot.encode(self.machine)

    def decode_state(self, state: bytearray) -> Generator[None, None, object]:
        """Decode a state in steps, changing nothing."""
        return self._rules.decode_state(state)

    def restore_state(self, state: object) -> None:
        """Replace the state machine by that of a snapshot; find out what it means for who waits here."""
        machine = state if isinstance(state, LockMachine) else snapshot.decode(cast("bytes", state))
        self.machine = machine
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

    def leadership_changed(self) -> None:
        """Begin or end to lead; send again what is pending."""
        replica = self.replica
        self.metrics.leadership_changes += 1
        logger.info(
            "event=leadership leader=%s term=%d is_leader=%s",
            replica.leader_id or "-",
            replica.term,
            replica.is_leader,
        )
        if replica.is_leader and not self._was_leader:
            newest = replica.newest_entry()
            self._clock.start(max(self.machine.now_ms, codec.entry_time(newest) if newest is not None else 0))
        self._was_leader = replica.is_leader
        self._batcher.clear()
        self._rules.leadership_changed()
        # A timer that is set went by another beginning of the clock: a lone node applies its log, and sets
        # one, in the very tick in which it begins to lead.
        self._expiry.stop()
        self._expiry.arm(self.machine.next_deadline_ms() if replica.is_leader else None)
        self._abandoned.lead(is_leader=replica.is_leader)
        if self._handover is not None:
            self._handover.step()
        self.changes.step()
        self._resend()
        self._wake_observers()

    def members_changed(self) -> None:
        """Keep links to exactly those who belong to the cluster; tell who was removed."""
        replica, peering = self.replica, self.peering
        gone = peering.set_members(replica.committed_members, is_first=self._is_new_cluster())
        peers = self._peer_addresses()
        # A change that a removed node asked for: it hears of that first.
        self.changes.step()
        for peer_id in gone & self.links.up():
            self.links.send(peer_id, FrameKind.REFUSED, peering.removal(peer_id))
        self.links.set_peers(peers)
        self._wake_observers()

    def _is_new_cluster(self) -> bool:
        return self.replica.is_first_members and not self._joins

    def _peer_addresses(self) -> dict[str, Address]:
        """Return where the others listen. Who is being removed is linked until that is committed."""
        listed = self.replica.committed_members.nodes | self.replica.members.nodes
        peers = {node_id: Address.parse(member.peer) for node_id, member in listed.items()}
        peers = peers or dict(self._config.peers)
        peers.pop(self._config.node_id, None)
        return peers

    def _pass_time(self) -> None:
        """Propose that time has passed: something is due."""
        if self.replica.is_leader:
            self._batcher.add_tick()
            self.request_tick()

    def _waiting_origins(self) -> list[str]:
        """Return whose clients wait. The machine is another one after a snapshot."""
        return self.machine.waiting_origins()

    # -- peering.Host ---------------------------------------------------------------------------------------

    def peer_up(self, peer_id: str) -> None:
        """Take note that a peer can be reached; if it leads, begin again with it.

        It is told first which run of this node's process it is connected with.
        """
        self.links.send(peer_id, FrameKind.FORWARD, (_NO_TERM, self.outbox.origin, [], []))
        self._guarded(self.replica.peer_up, peer_id)
        if peer_id == self.replica.leader_id:
            self._resend()
            self._wake_observers()

    def peer_down(self, peer_id: str) -> None:
        """Take note that a peer cannot be reached. It will send again what is not proposed yet."""
        self._batcher.drop_from(peer_id)
        self._abandoned.lost(peer_id)
        self._guarded(self.replica.peer_down, peer_id)

    def raft_message(self, peer_id: str, message: Message) -> None:
        """Take a Raft message."""
        self._guarded(self._receive, peer_id, message)

    def _receive(self, peer_id: str, message: Message) -> None:
        self.replica.receive(peer_id, message)
        if self.outbox.has_unsent:
            # A leader that had been silent may have spoken.
            self.request_flush()
        if self.replica.needs_sync:
            # Ahead of the tick: the leader waits for this, nobody waits for our apply but our own clients.
            self._request_sync()
        if self.replica.wants_tick:
            self.request_tick()

    def transfer_asked(self, to: str) -> None:
        """Begin to hand leadership over, if this node leads."""
        self.begin_handover(to)

    def change_asked(self, peer_id: str, change: Change) -> None:
        """Decide a change of the members that a peer asks for."""

        def answer(verdict: Verdict) -> None:
            self.links.send(peer_id, FrameKind.CHANGED, verdict)

        self.changes.decide(change, answer)

    def change_decided(self, verdict: Verdict) -> None:
        """Take the leader's answer to a change that this node asked for."""
        self.changes.decided(verdict)

    def refused(self, peer_id: str, objection: Objection) -> None:
        """Stop, if it is sure that this node must not take part: a peer does not let it in.

        A peer may know an older member list than this node, or have said it long ago. So only two kinds are
        believed: that this disk was removed, which is for ever, and what one founder says to another that
        knows no list but its configuration's: it may have lost its disk.
        """
        is_among_founders = self._is_new_cluster() and peer_id in self._config.peers
        if objection.is_final or is_among_founders:
            self._fail(IdentityRefused(f"refused by node {peer_id}: {objection.reason}"))
        else:
            logger.warning("event=not-let-in peer=%s reason=%r", peer_id, objection.reason)

    def broke(self, error: Exception) -> None:
        """Stop: the disk failed while somebody waited for its answer elsewhere than in a tick."""
        self._fail(error)

    def role(self) -> str:
        """Return leader, candidate, follower; starting while not all nodes have met; joining."""
        if not self.peering.is_established:
            return "starting"
        if self._config.node_id not in self.replica.voters:
            return "joining"
        if self.replica.is_leader:
            return "leader"
        return "candidate" if self.replica.is_candidate else "follower"

    def revision(self) -> int:
        """Return how many entries this node has applied."""
        return self.machine.revision

    def rules(self) -> int:
        """Return the version of the rules that this node's state follows."""
        return self.machine.rules

    # -- member_changes.Host --------------------------------------------------------------------------------

    def send_change(self, leader_id: str, change: Change) -> None:
        """Send a change to the leader."""
        self.links.send(leader_id, FrameKind.CHANGE, change)

    def disk_ids(self) -> dict[str, str]:
        """Return the disk ids of this node and of those it has met."""
        return self.peering.disk_ids()

    def grows(self) -> bool:
        """Whether this node listens for peers at all."""
        return self._config.takes_peers

    def hand_over(self) -> None:
        """Begin to hand leadership to the follower that has most of the log."""
        successor = self.replica.most_caught_up()
        if successor is not None:
            self.begin_handover(successor)

    # -- leadership -----------------------------------------------------------------------------------------

    def leader_id(self) -> str | None:
        """Return who leads, None if the one this node knew of cannot be reached or has gone silent."""
        replica = self.replica
        leader_id = replica.leader_id
        if replica.is_leader or leader_id is None:
            return leader_id
        is_silent = replica.leader_silence_s * 1000 > self._config.election_ms_max
        return None if is_silent or not self.links.is_up(leader_id) else leader_id

    def begin_handover(self, to: str) -> Handover | None:
        """Begin to hand leadership to `to`; None if this node does not lead or is not connected to `to`."""
        if not self.replica.is_leader or not self.links.is_up(to):
            return None
        if self._handover is None or self._handover.is_ended:
            timeout_s = self._config.election_ms_max / 1000
            self._handover = Handover(self.replica, to, self._loop, timeout_s)
            self.request_tick()
        return self._handover

    def _wake_observers(self) -> None:
        """Let everybody who waits for a change of leadership look again, on the other nodes too."""
        self.links.ping()
        self.leadership.set()
        self.leadership = asyncio.Event()
