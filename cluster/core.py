"""The working heart of a node: joins replica, links, state machine, outbox and clock in one event loop.

Everything runs in callbacks of the loop's thread, and each does a bounded piece of work:

    message or proposal -> tick (commit, apply, send, propose) -> flush links -> sync -> let promises out

What arrives while a tick or a sync runs shares the next one. A failure here is final: the node stops, it never
retries what broke and never answers from a broken state.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from cluster.batcher import Batcher
from cluster.clock import ClusterClock, SystemClock
from cluster.config import Address, NodeConfig
from cluster.datadir import DataDir
from cluster.errors import IdentityRefused, NodeFailed, OutcomeUnknown, ShuttingDown
from cluster.expiry import Expiry
from cluster.guards import Message
from cluster.journal import Journal
from cluster.link import Kind
from cluster.metrics import Metrics, Sample
from cluster.outbox import Answer, Outbox
from cluster.peer_auth import Particulars
from cluster.raft import RaftReplica
from cluster.snapshots import SnapshotStore
from cluster.transport import PeerLinks
from cluster.waiters import Waiters
from lockstate import codec, snapshot

from lockstate.machine import LockMachine
from lockstate.results import Done, Queued, Refused

logger = logging.getLogger(__name__)

_DONE: Final = Done()
_TIMER_DIVISOR: Final = 2
"""Ticks per heartbeat of a node that has nothing to do: an election starts at most half a heartbeat late."""

_raft_decoder = msgspec.msgpack.Decoder(dict[str, Any])
_forward_decoder = msgspec.msgpack.Decoder(tuple[int, str, list[int], list[bytes]])
_control_decoder = msgspec.msgpack.Decoder(dict[str, str])
_reason_decoder = msgspec.msgpack.Decoder(str)


class Ping(msgspec.Struct, frozen=True, array_like=True):
    """What nodes tell each other once a second: their revision and role."""

    revision: int
    state: str


_ping_decoder = msgspec.msgpack.Decoder(Ping)


class Core:
    """One node at work. Made inside the running loop; `start` makes it take part."""

    def __init__(self, config: NodeConfig) -> None:
        """Recover from the data directory. Raises StartupError."""
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._peers: Mapping[str, Address] = {
            peer_id: address for peer_id, address in config.peers.items() if peer_id != config.node_id
        }
        self.machine = LockMachine()
        self.metrics = Metrics(self._gauges)
        self.outbox = Outbox(f"{config.node_id}.{secrets.token_hex(6)}", self._loop)
        self.waiters = Waiters(self._loop)
        self.failed: asyncio.Future[BaseException] = self._loop.create_future()
        self.pings: dict[str, Ping] = {}
        self._batcher = Batcher()
        self._clock = ClusterClock(SystemClock())
        self._expiry = Expiry(self._loop, self._clock, self._pass_time)
        self._was_leader = False
        self._tick_is_due = self._sync_is_due = self._flush_is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False
        self.datadir = DataDir.open(config.data_dir, config.node_id)
        try:
            self._store = SnapshotStore(config.data_dir)
            self._journal = Journal.open(config.data_dir)
            self.replica = RaftReplica(config, self._peers, self._journal, self._store, self)
        except BaseException:
            self.datadir.close()
            raise
        self.links = PeerLinks(config.node_id, config.secret, self._peers, self)
        self._is_established = self.datadir.is_established(list(self._peers))

    async def start(self) -> None:
        """Listen, dial, and begin to tick. Raises StartupError."""
        self._journal.sync()
        if self._peers:
            await self.links.start(self._config.peer)
            if not self._is_established:
                missing = ",".join(sorted(set(self._peers) - set(self.datadir.known)))
                logger.info("event=first-start waiting_for=%s", missing)
        self._run_timer()

    async def stop(self) -> None:
        """Sync and close everything. Idempotent."""
        if self._is_stopped:
            return
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._expiry.stop()
        self._end_requests()
        await self.links.stop()
        self.replica.close()
        self._store.close()
        try:
            self._journal.close()
        finally:
            self.datadir.close()

    # -- requests -------------------------------------------------------------------------------------------

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
        leader_id = self.replica.leader_id
        while leader_id is not None and self.outbox.has_unsent and self.links.is_up(leader_id):
            seqs, commands = self.outbox.take()
            self.links.send(leader_id, Kind.FORWARD, (self.replica.term, self.outbox.origin, seqs, commands))

    def _resend(self) -> None:
        """Begin again with whoever leads now: everything pending, from the lowest number on."""
        self.metrics.commands_resent += self.outbox.rewind()
        self.request_flush()

    def leader_id(self) -> str | None:
        """Return who leads, None if the one this node knew of cannot be reached or has gone silent."""
        replica = self.replica
        leader_id = replica.leader_id
        if replica.is_leader or leader_id is None:
            return leader_id
        is_silent = replica.leader_silence_s * 1000 > self._config.election_ms_max
        return None if is_silent or not self.links.is_up(leader_id) else leader_id

    # -- the loop -------------------------------------------------------------------------------------------

    def _guarded(self, work: Any, *args: Any) -> None:
        """Run a piece of work; whatever it raises ends this node."""
        if self._is_stopped or self.failed.done():
            return
        try:
            work(*args)
        except Exception as error:  # noqa: BLE001 - the node stops, the cause is kept
            self._fail(error)

    def request_tick(self) -> None:
        """Tick at the end of this run of the loop."""
        if not self._tick_is_due:
            self._tick_is_due = True
            self._loop.call_soon(self._guarded, self._tick)

    def _tick(self) -> None:
        self._tick_is_due = False
        self.replica.tick()
        if self.replica.wants_tick:
            self.request_tick()

    def tick_ended(self) -> None:
        """Get what was written on its way, then sync while it travels: the group commit."""
        if self.replica.needs_sync and not self._sync_is_due:
            self._sync_is_due = True
            self.links.flush()
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
        period_s = self._config.heartbeat_ms / _TIMER_DIVISOR / 1000
        self._timer = self._loop.call_later(period_s, self._run_timer)

    def _on_timer(self) -> None:
        if self.replica.is_leader:
            self._clock.now_ms()
        self.outbox.give_up_due()
        if self._is_established:
            self._tick()

    def _fail(self, error: Exception) -> None:
        """Stop taking part, at once and for good."""
        if self.failed.done():
            return
        logger.critical("event=node-failed error=%r", str(error), exc_info=error)
        failure = error if isinstance(error, NodeFailed | IdentityRefused) else NodeFailed(f"{error!r}")
        self.failed.set_result(failure)
        self._end_requests()

    def _end_requests(self) -> None:
        unknown = OutcomeUnknown(
            "this node stops; repeat the request with the same request_id on another node"
        )
        self.outbox.fail_all(ShuttingDown("this node stops; ask another"), unknown)
        self.waiters.fail_all(unknown)

    # -- raft.Host ------------------------------------------------------------------------------------------

    def send(self, peer_id: str, message: Message) -> None:
        """Send a Raft message."""
        self.links.send(peer_id, Kind.RAFT, message)

    def link_has_room(self, peer_id: str) -> bool:
        """Whether bulk data may be sent to the peer now."""
        return self.links.has_room(peer_id)

    def next_entry(self) -> bytes | None:
        """Stamp and return the next batch: our own clients' commands join those of the followers."""
        while self.outbox.has_unsent:
            self._batcher.add(self.outbox.origin, *self.outbox.take())
        entry = self._batcher.next_entry(self._clock.now_ms())
        if entry is not None:
            self.metrics.entries_proposed += 1
        return entry

    def apply(self, entry: bytes) -> None:
        """Apply one committed entry and complete what it answers here."""
        if codec.entry_format(entry) > codec.FORMAT:
            raise NodeFailed("the log was written by a newer version of Holdfast: upgrade this node")
        outcome = self.machine.apply(codec.decode_entry(entry))
        for batch in outcome.batches:
            if batch.origin == self.outbox.origin:
                for seq, result in zip(batch.seqs, batch.results, strict=True):
                    wait = self.waiters.add(result.hold_id) if isinstance(result, Queued) else None
                    self.outbox.complete(seq, Answer(result, outcome.revision, wait), self.machine)
                    self._count(result)
        for event in outcome.events:
            self.metrics.events[event.kind] += 1
            if event.result is not None:
                self.waiters.wake(event)
        if self.replica.is_leader:
            self._expiry.arm(self.machine.next_deadline_ms())

    def encode_state(self) -> bytes:
        """Return the state machine as bytes."""
        return snapshot.encode(self.machine)

    def restore_state(self, state: bytes) -> None:
        """Replace the state machine by that of a snapshot; find out what it means for who waits here."""
        self.machine = snapshot.decode(state)
        lost = OutcomeUnknown("this node fell behind; repeat the request with the same request_id")
        for pending in self.outbox.applied_up_to(self.machine.applied_seq(self.outbox.origin)):
            if pending.readers is None:
                self.outbox.fail(pending.seq, lost)
            else:
                self.outbox.complete(pending.seq, Answer(_DONE, self.machine.revision), self.machine)
        for hold_id in self.waiters.hold_ids():
            self.waiters.reconcile(hold_id, self.machine.attempt(hold_id), self.machine.revision, lost)

    def leadership_changed(self) -> None:
        """Begin or end to lead; send again what is pending."""
        replica = self.replica
        self.metrics.leadership_changes += 1
        logger.info(
            "event=leadership leader=%s term=%d is_leader=%s",
            replica.leader_id,
            replica.term,
            replica.is_leader,
        )
        if replica.is_leader and not self._was_leader:
            newest = replica.newest_entry()
            self._clock.start(max(self.machine.now_ms, codec.entry_time(newest) if newest is not None else 0))
        self._was_leader = replica.is_leader
        self._batcher.clear()
        self._expiry.arm(self.machine.next_deadline_ms() if replica.is_leader else None)
        self._resend()

    def _pass_time(self) -> None:
        """Propose that time has passed: something is due."""
        if self.replica.is_leader:
            self._batcher.add_tick()
            self.request_tick()

    # -- transport.Host -------------------------------------------------------------------------------------

    def particulars(self) -> Particulars:
        """Return what this node tells about itself."""
        return Particulars(self.datadir.disk_id, self._config.advertise_http)

    def objection(self, peer_id: str, theirs: Particulars) -> str | None:
        """Refuse a peer that comes with another disk than before; remember a new one, durably."""
        known = self.datadir.known.get(peer_id)
        if known is not None and known != theirs.disk_id:
            return (
                f"node {peer_id} is known here with another data directory (disk {known[:8]}, now "
                f"{theirs.disk_id[:8]}). A node that lost its disk may have voted and acknowledged what it no "
                f"longer knows, so it cannot come back as {peer_id}: restore its old data directory, or replace "
                "it by a node with a new id (see 'A node lost its disk' in docs/operating.md)"
            )
        if known is None:
            self.datadir.remember(peer_id, theirs.disk_id)
            self._is_established = self.datadir.is_established(list(self._peers))
            logger.info("event=peer-met peer=%s disk=%s", peer_id, theirs.disk_id[:8])
        return None

    def peer_up(self, peer_id: str) -> None:
        """A peer can be reached; if it leads, begin again with it."""
        self._guarded(self.replica.peer_up, peer_id)
        if peer_id == self.replica.leader_id:
            self._resend()

    def peer_down(self, peer_id: str) -> None:
        """A peer cannot be reached."""
        self.pings.pop(peer_id, None)
        self._guarded(self.replica.peer_down, peer_id)

    def frame(self, peer_id: str, kind: int, body: msgspec.Raw) -> None:
        """Take a frame from a peer."""
        match kind:
            case Kind.RAFT:
                # Nobody votes or acknowledges before all nodes have met once: see docs/operating.md.
                if self._is_established:
                    self._guarded(self._raft_message, peer_id, _raft_decoder.decode(body))
            case Kind.FORWARD:
                self._forwarded(*_forward_decoder.decode(body))
            case Kind.PING:
                self.pings[peer_id] = _ping_decoder.decode(body)
            case Kind.CONTROL:
                control = _control_decoder.decode(body)
                if control.get("do") == "transfer":
                    self._loop.create_task(self.transfer(control["to"]))
            case Kind.REFUSED:
                self.refused(peer_id, _reason_decoder.decode(body))
            case _:
                logger.warning("event=frame-dropped peer=%s kind=%d", peer_id, kind)

    def refused(self, peer_id: str, reason: str) -> None:
        """Stop: a peer, proven to be one, does not let this node in."""
        self._fail(IdentityRefused(f"refused by node {peer_id}: {reason}"))

    def ping(self) -> Ping:
        """Return what the peers shall know."""
        return Ping(self.machine.revision, self.role())

    def _raft_message(self, peer_id: str, message: Message) -> None:
        self.replica.receive(peer_id, message)
        if self.replica.wants_tick:
            self.request_tick()

    def _forwarded(self, term: int, origin: str, seqs: list[int], commands: list[bytes]) -> None:
        """Take a follower's commands if they are meant for this very leadership; else it sends them again."""
        if self.replica.is_leader and term == self.replica.term:
            self._batcher.add(origin, seqs, commands)
            self.request_tick()

    # -- the rest -------------------------------------------------------------------------------------------

    def role(self) -> str:
        """Return leader, candidate, follower, or starting while not all nodes have met yet."""
        if not self._is_established:
            return "starting"
        if self.replica.is_leader:
            return "leader"
        return "candidate" if self.replica.is_candidate else "follower"

    @property
    def is_established(self) -> bool:
        """Whether this node may take part: it has met every other node once."""
        return self._is_established

    async def transfer(self, to: str) -> bool:
        """As leader, stop proposing, wait until `to` has the whole log, and make it lead; False if it did not."""
        replica = self.replica
        deadline_s = self._loop.time() + self._config.election_ms_max / 1000
        if to not in self._peers or not replica.is_leader:
            return False
        term = replica.term
        replica.is_proposing = False
        asked = False
        while replica.is_leader and replica.term == term and self._loop.time() < deadline_s:
            if not asked and self.links.is_up(to):
                asked = replica.transfer(to)
            await asyncio.sleep(0.001)
        if replica.is_leader and replica.term == term:
            replica.is_proposing = True
            self.request_tick()
        return not replica.is_leader

    def _count(self, result: object) -> None:
        self.metrics.commands[result.reason if isinstance(result, Refused) else type(result).__name__] += 1

    def _gauges(self) -> "list[Sample]":
        replica = self.replica
        sizes = [
            ("holdfast_" + table, f"{table.capitalize()} in the replicated state.", "gauge", {}, float(count))
            for table, count in self.machine.counts().items()
        ]
        peers = [
            (
                "holdfast_peer_up",
                "Whether a peer is connected.",
                "gauge",
                {"peer": peer},
                float(self.links.is_up(peer)),
            )
            for peer in self._peers
        ]
        singles: list[tuple[str, str, float]] = [
            ("is_leader", "Whether this node leads.", float(replica.is_leader)),
            (
                "has_leader",
                "Whether this node knows a leader it can reach.",
                float(self.leader_id() is not None),
            ),
            ("term", "Raft term.", float(replica.term)),
            ("revision", "Entries applied.", float(self.machine.revision)),
            ("log_entries", "Entries in the log.", float(len(self._journal))),
            (
                "pending_commands",
                "Commands of this node's clients without an outcome.",
                float(len(self.outbox)),
            ),
            ("waiting_acquires", "Acquires of this node's clients in queues.", float(len(self.waiters))),
            ("next_token", "Fencing token of the next grant.", float(self.machine.next_token)),
        ]
        return [
            *sizes,
            *peers,
            *[("holdfast_" + name, text, "gauge", {}, value) for name, text, value in singles],
        ]
