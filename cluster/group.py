"""One Raft log and its state machine on one node: what is proposed, applied and restored.

The loop drives it: it asks for entries while this node leads, and hands back what is committed. Results
complete what this node's clients wait for.
"""

import logging
import time
from collections.abc import Callable, Iterator
from typing import Final, cast

from cluster.commands import patience
from cluster.commands.abandoned_waits import AbandonedWaits
from cluster.commands.batcher import Batcher
from cluster.commands.clock import ClusterClock
from cluster.commands.expiry import Alarms
from cluster.commands.forwarded import Forwarded
from cluster.commands.outbox import Answer, Outbox
from cluster.commands.pace import Pace
from cluster.commands.patience import Patience
from cluster.commands.rules import apply_entry
from cluster.commands.traces import Traces
from cluster.commands.waiters import Waiters
from cluster.consensus.compaction import LogSpace
from cluster.consensus.divergence import Divergence
from cluster.consensus.replica import Replica
from cluster.errors import OutcomeUnknown, ShuttingDown, StateDamaged
from cluster.observing.audit_log import AuditLog
from cluster.observing.endless_log import EndlessLog
from cluster.observing.event_log import EventLog
from cluster.observing.metrics import NodeMetrics
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words import codec
from lockstate.words.results import Done, NumberedDone, Queued, Result

logger = logging.getLogger(__name__)

_DONE: Final = Done()


class Group:
    """The state machine of one log, and what this node puts into the log while it leads. One thread."""

    def __init__(
        self,
        replica: Replica,
        outbox: Outbox,
        waiters: Waiters,
        events: EventLog,
        *,
        metrics: NodeMetrics,
        divergence: Divergence,
        clock: ClusterClock,
        batcher: Batcher,
        pace: Pace,
        patience: Patience,
        alarms: Alarms,
        abandoned: AbandonedWaits,
        audit_log: AuditLog,
        endless_log: EndlessLog,
        traces: Traces | None = None,
    ) -> None:
        """Begin with nothing; see `recover`. `traces` records commands, if anything is recorded."""
        self.machine = LockMachine()
        self.replica = replica
        self.outbox = outbox
        self.waiters = waiters
        self.events = events
        self._metrics = metrics
        self._divergence = divergence
        self._clock = clock
        self._batcher = batcher
        self._pace = pace
        self._patience = patience
        self._alarms = alarms
        self._abandoned = abandoned
        self._audit_log = audit_log
        self._endless_log = endless_log
        self._traces = traces
        self.request_tick: Callable[[], None]
        """Has what is proposed here taken into the log. Set before anything is."""
        self._was_leader = False
        self._did_serve = True
        self._proposed = 0, 0.0
        """The newest entry that this leader has proposed, and when: few are under way."""
        self._applied_s = time.perf_counter()
        self._told_up_to = 0
        """What was committed up to here was applied, and told, before this start."""

    def recover(self) -> None:
        """Begin with the state that the replica has loaded. Raises SnapshotError."""
        self._divergence.restarted(self.machine.revision)
        state, self.replica.loaded_state = self.replica.loaded_state, None
        if state is not None:
            self.restore(state)
        self._told_up_to = self.replica.log.committed
        self._did_serve = self.replica.membership.latest.serves

    # -- what is proposed -----------------------------------------------------------------------------------

    def forwarded(self, batch: Forwarded) -> None:
        """Take a follower's commands if they are meant for this very leadership; else it sends them again."""
        self._abandoned.heard(batch.origin)
        role = self.replica.role
        if role.is_leader and batch.term == role.term:
            if self._traces is not None and batch.traces:
                self._traces.forwarded(batch, self.machine.applied_seq(batch.origin))
            self._batcher.add(batch.origin, batch.seqs, batch.commands)
            self.request_entry()

    def lost(self, peer_id: str) -> None:
        """Drop what a peer forwarded whose connection has ended: it sends that again."""
        self._batcher.drop_from(peer_id)
        if self._traces is not None:
            self._traces.let_go("connection-lost", peer_id)
        self._abandoned.lost(peer_id)

    def request_entry(self) -> None:
        """Have what waits proposed at the end of this run of the loop; keepalives alone, when it is time.

        What waits for something else, such as room in the log, is looked at by the timer's ticks.
        """
        if self._is_entry_due():
            self.request_tick()
        elif not self._patience.is_over:
            self._patience.wait()

    def pass_time(self) -> None:
        """Propose that time has passed: something is due."""
        if self.replica.role.is_leader:
            self._batcher.add_tick()
            self.request_tick()

    def has_entry(self) -> bool:
        """Whether anything waits to be proposed, and may be."""
        if not self.outbox.unsent and self._batcher.is_empty:
            return False
        return self._is_entry_due() and self._may_propose

    def _is_entry_due(self) -> bool:
        """Whether what waits to be proposed need not wait for company any more."""
        is_urgent = self.outbox.is_urgent or self._batcher.is_urgent
        return is_urgent or self._patience.is_over or self._ends_soon()

    @property
    def _may_propose(self) -> bool:
        """Whether commands may go into the log: it has room, and the cluster serves."""
        replica = self.replica
        return replica.engine.log_room is not LogSpace.NOTHING and replica.membership.latest.serves

    def _ends_soon(self) -> bool:
        """Whether anything ends so soon that a keepalive of it must not wait for company."""
        deadline_ms = self.machine.next_deadline_ms()
        return deadline_ms is not None and deadline_ms - self._clock.now_ms() < patience.MARGIN_MS

    def entries(self) -> Iterator[bytes]:
        """Yield the next batches, each stamped now: our own clients' commands join those of the followers."""
        while self._may_propose:
            while self.outbox.unsent:
                seqs, commands = self.outbox.take()
                if self._traces is not None:
                    self._traces.sent(seqs)
                self._batcher.add(self.outbox.origin, seqs, commands)
            entry = self._batcher.next_entry(self._clock.now_ms(), self._pace.load_max)
            if entry is None:
                return
            index = self.replica.engine.journal.last_index + 1
            self._pace.proposed(index, self._batcher.entry_load)
            self._proposed = index, time.perf_counter()
            self._metrics.entries_proposed += 1
            self._patience.proposed()
            if self._traces is not None:
                self._traces.proposed(self._batcher.entry_batches)
            yield entry

    def may_wait(self) -> bool:
        """Whether nobody here waits for what is committed: no client, and nobody who watches."""
        return not (len(self.outbox) or len(self.waiters) or self.events.watchers)

    # -- what is applied ------------------------------------------------------------------------------------

    def apply(self, index: int, entry: bytes) -> None:
        """Apply one committed entry and complete what it answers here."""
        machine, began_s = self.machine, time.perf_counter()
        self._applied_s = began_s
        outcome = apply_entry(machine, entry)
        took_s = time.perf_counter() - began_s
        self._pace.applied(index, took_s)
        self._metrics.apply_seconds.observe(took_s)
        if index == self._proposed[0]:
            self._metrics.commit_seconds.observe(began_s - self._proposed[1])
        self._divergence.applied(outcome.revision)
        if self._traces is not None:
            self._traces.applied(outcome.batches, took_s)
        for batch in outcome.batches:
            if batch.origin == self.outbox.origin:
                for seq, result in zip(batch.seqs, batch.results, strict=True):
                    self._complete(seq, result, outcome.revision, is_repeated=seq in batch.repeated)
        if self.outbox.unsent:
            self.outbox.on_rested()  # it was their turn, since something has ended
        for settled in outcome.settled:
            self.waiters.wake(settled, outcome.revision)
        self._metrics.applied(outcome)
        self.events.append(outcome.all_events)
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
        self._metrics.answered(result)

    def encode_state(self) -> bytes:
        """Return the state machine as bytes, in a forked child. Raises StateDamaged."""
        if not self.machine.is_sound:
            raise StateDamaged
        return snapshot.encode(self.machine.state)

    @property
    def present_ms(self) -> int:
        """Cluster time, and what has passed since its newest entry by this node's clock, for people who ask.

        Cluster time is that of the newest entry, so it stands still while there is none. What passes before
        this node starts, or before it has a snapshot of another one, is left out.
        """
        return self.machine.now_ms + int(1000 * (time.perf_counter() - self._applied_s))

    def restore(self, state: object) -> None:
        """Replace the state machine by that of a snapshot; find out what it means for who waits here."""
        machine = (
            state if isinstance(state, LockMachine) else LockMachine(snapshot.decode(cast("bytes", state)))
        )
        self.machine = machine
        self._applied_s = time.perf_counter()
        self._divergence.restarted(machine.revision)
        self.events.restart(machine.revision)
        self._metrics.restored(machine)
        lost = OutcomeUnknown("this node fell behind; repeat the request with the same request_id")
        for pending in self.outbox.applied_up_to(machine.applied_seq(self.outbox.origin)):
            if pending.readers is None:
                self.outbox.fail(pending.seq, lost)
            else:
                self.outbox.complete(pending.seq, Answer(_DONE, machine.revision), machine)
        for hold_id in self.waiters.hold_ids():
            self.waiters.reconcile(hold_id, machine.attempt(hold_id), machine.revision, lost)

    # -- what happens to this node --------------------------------------------------------------------------

    def role_changed(self) -> None:
        """Begin or end to lead."""
        role = self.replica.role
        self._metrics.led(role.leader_id, role.term)
        logger.info(
            "event=leadership leader=%s term=%d is_leader=%s",
            role.leader_id or "-",
            role.term,
            role.is_leader,
        )
        if role.is_leader and not self._was_leader:
            self._start_clock()
        self._was_leader = role.is_leader
        self._batcher.clear()
        if self._traces is not None:
            self._traces.let_go("leadership-lost")
        self._pace.clear()
        self._proposed = 0, 0.0
        # A timer that is set went by another beginning of the clock.
        self._alarms.stop()
        if role.is_leader:
            self._alarms.arm(self.machine)
        self._abandoned.lead(is_leader=role.is_leader)

    def members_changed(self) -> None:
        """Begin to count time when a restored cluster begins to serve: before that nobody could renew."""
        serves = self.replica.membership.latest.serves
        if serves and not self._did_serve and self.replica.role.is_leader:
            self._start_clock()
        self._did_serve = serves

    def _start_clock(self) -> None:
        """Let cluster time go on where the log ends."""
        newest = self.replica.engine.newest_command()
        newest_ms = codec.entry_time(newest) if newest is not None else 0
        self._clock.start(max(self.machine.now_ms, newest_ms))

    def failed(self) -> None:
        """End what clients wait for: this node stops."""
        unknown = OutcomeUnknown(
            "this node is stopping; repeat the request with the same request_id on another node"
        )
        self.outbox.close(ShuttingDown("this node is stopping; ask another"), unknown)
        self.waiters.fail_all(unknown)

    def stop(self) -> None:
        """Stop all timers and end all requests. Idempotent."""
        self._alarms.stop()
        self._abandoned.stop()
        self._patience.stop()
        self.failed()
