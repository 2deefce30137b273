"""The commands of this node that have no outcome yet: numbered, sent to whoever leads, sent again, given up.

Numbers rise by one per command and never come again within one run of the process. A leader's log holds each
sender's commands in the order of their numbers, because all that is pending is sent again from the lowest on
whenever the leader, the term or the connection changes. So a number at or below the last applied one means:
applied already (see lockstate.words.commands.entries.Batch).

A command gets its number at once, unless it has a load (`encoded_command`) and as much of this node's is
under way already: then it waits for its turn (`fair_queue`), and so does what comes behind it in its lane.
If others came meanwhile, it counts as under way for twice as long once it has its outcome: they have two
thirds of all time then, and not only what is left between two such commands.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from cluster.commands.encoded_command import EncodedCommand
from cluster.commands.fair_queue import FairQueue, QueueTurn
from cluster.commands.forwarded import COMMAND_BYTES_MAX
from cluster.errors import ClusterError, NoLeader, OutcomeUnknown, Overloaded
from lockstate.machine import LockMachine
from lockstate.words import codec
from lockstate.words.commands.entries import Barrier
from lockstate.words.results import Result

T = TypeVar("T")

PENDING_COUNT_MAX: Final = 20_000
PENDING_BYTES_MAX: Final = 64 << 20
"""Above either, new commands are refused at once: memory must not grow with what waits."""
QUEUE_COUNT_MAX: Final = 5_000
QUEUE_BYTES_MAX: Final = 16 << 20
"""Above either, nothing more may wait for its turn: there must be room for what need not."""
UNDER_WAY_LOAD_MAX: Final = 2500
"""Load that has numbers and no outcome yet; what comes alone may have more. It is one entry's."""
REST_FACTOR: Final = 2
"""For so many times as long as it was under way load counts after its outcome."""
REST_S_MAX: Final = 0.05
"""Seconds for which load counts after its outcome, at most: a command that took longer was disturbed."""
SEND_BYTES_MAX: Final = 1 << 20
"""One forwarded frame, at most about so much."""
SHARED_S_MAX: Final = 0.05
"""A read joins a barrier that is given up so much before its own deadline at most, and never after it."""

_BARRIER: Final = EncodedCommand(codec.encode_command(Barrier()))


class Answer(msgspec.Struct, frozen=True):
    """The result of a command, the revision at which it was applied; for a queued acquire, what to await.

    `waits` has that for each place in the results of a frame of a stream where one is queued.
    `is_repeated` says that an earlier attempt, with the same `request_id`, had this outcome or its wait.
    `waited_ms` and `position` are of a wait that has ended here: see `Settled`.
    """

    result: Result
    revision: int
    wait: "asyncio.Future[Answer] | None" = None
    is_repeated: bool = False
    waits: "Mapping[int, asyncio.Future[Answer]] | None" = None
    waited_ms: int = 0
    position: int = 0


class Pending(msgspec.Struct, eq=False):
    """One command without an outcome; `place` counts what was submitted, and `seq` is 0 until it is its turn.

    `readers` are reads that ride on a barrier. With a load, `since_s` is when it got its number, and
    `light_before` how many without one had theirs then.
    """

    place: int
    command: EncodedCommand
    future: "asyncio.Future[Answer]"
    since_s: float = 0.0
    light_before: int = 0
    seq: int = 0
    is_sent: bool = False
    readers: list[tuple[Callable[[LockMachine], Any], "asyncio.Future[Any]"]] | None = None


class Outbox:
    """Commands from submission to outcome. `origin` names this run of the process."""

    def __init__(self, origin: str, loop: asyncio.AbstractEventLoop) -> None:
        self.origin = origin
        self._loop = loop
        self._next_seq = 1
        self._next_place = 1
        self._all: dict[int, Pending] = {}
        """By place, what has no outcome yet."""
        self._bytes = self._numbered_bytes = 0
        """Those of their commands, and of those that have a number."""
        self._pending: dict[int, Pending] = {}
        """By number, those that have one."""
        self._load = 0
        """That of these, and of what rests."""
        self._light_count = 0
        """How many without a load have ever had a number."""
        self.later: Callable[[float, Callable[[], None]], object] = loop.call_later
        """Calls back after so many seconds, when a rest is over."""
        self.failures: Counter[str] = Counter()
        """What ended without an outcome, by the codes of its errors: commands, and reads one by one."""
        self.on_rested: Callable[[], None] = lambda: None
        """Called when that has let something be sent."""
        self.unsent: Final[list[Pending]] = []
        """What waits to be sent, in order."""
        self.is_urgent = False
        """Whether any of that does not wait for company (`Patience`)."""
        self._queue = FairQueue[Pending]()
        """What waits for its turn. What has been given up stays there for a while."""
        self._deadlines: list[tuple[float, int]] = []
        self._barrier: Pending | None = None
        self._barrier_deadline_s = 0.0
        self._closed: ClusterError | None = None

    def __len__(self) -> int:
        """Return how many commands have no outcome yet."""
        return len(self._all)

    def submit(self, command: EncodedCommand, timeout_s: float, lane: str = "", sharer: str = "") -> Pending:
        """Take a command; its future gets the Answer or a ClusterError.

        What comes in one lane is applied in its order, and a sharer has one share of what has load (see
        `QueueTurn`). Raises Overloaded, or ShuttingDown after `close`.
        """
        size_bytes, load = len(command.data), command.load
        assert size_bytes <= COMMAND_BYTES_MAX, f"a command of {size_bytes} bytes"
        if self._closed is not None:
            raise self._closed
        must_wait = self._queue.has(lane) or bool(load and (self._queue or not self._has_room(load)))
        is_full = len(self._all) >= PENDING_COUNT_MAX or self._bytes >= PENDING_BYTES_MAX
        if is_full or (must_wait and not self._may_wait(sharer)):
            raise Overloaded(f"{len(self)} commands wait on this node; try again later or on another node")
        pending = Pending(self._next_place, command, self._loop.create_future())
        self._next_place += 1
        # The deadline first: what waits without one, because memory ran out in between, would wait for ever.
        heapq.heappush(self._deadlines, (self._loop.time() + timeout_s, pending.place))
        self._all[pending.place] = pending
        self._bytes += size_bytes
        if must_wait:
            self._queue.add(QueueTurn(load, lane, sharer), pending)
            self._let_go()
        else:
            self._number(pending)
        return pending

    def _may_wait(self, sharer: str) -> bool:
        """Whether something more may wait for its turn; one sharer has half of the places."""
        waiting_count, waiting_bytes = len(self._all) - len(self._pending), self._bytes - self._numbered_bytes
        if waiting_count >= QUEUE_COUNT_MAX or waiting_bytes >= QUEUE_BYTES_MAX:
            return False
        return self._queue.count_of(sharer) < QUEUE_COUNT_MAX // 2

    def _has_room(self, load: int) -> bool:
        """Whether something with so much load may get its number now."""
        return not load or not self._load or self._load + load <= UNDER_WAY_LOAD_MAX

    def _number(self, pending: Pending) -> None:
        """Give a command the next number, and let it be sent."""
        pending.seq = self._next_seq
        self._next_seq += 1
        self._pending[pending.seq] = pending
        command = pending.command
        if command.load:
            pending.since_s, pending.light_before = self._loop.time(), self._light_count
            self._load += command.load
        else:
            self._light_count += 1
        self._numbered_bytes += len(command.data)
        self.unsent.append(pending)
        self.is_urgent = self.is_urgent or not command.is_patient

    def _let_go(self) -> None:
        """Give numbers to those whose turn it is, as long as there is room; leave out what was given up."""
        while self._queue:
            first = self._queue.first()
            is_wanted = first.place in self._all
            if is_wanted and not self._has_room(first.command.load):
                return
            self._queue.pop()
            if is_wanted:
                self._number(first)

    def read(self, query: Callable[[LockMachine], T], timeout_s: float) -> "asyncio.Future[T]":
        """Answer `query` at a place in the log behind everything answered so far. Reads share a barrier."""
        barrier = self._barrier
        deadline_s = self._loop.time() + timeout_s
        in_time = 0 <= deadline_s - self._barrier_deadline_s <= SHARED_S_MAX
        if barrier is None or barrier.is_sent or barrier.future.done() or not in_time:
            barrier = self._barrier = self.submit(_BARRIER, timeout_s)
            self._barrier_deadline_s = deadline_s
            barrier.readers = []
            barrier.future.add_done_callback(_retrieve)
        assert barrier.readers is not None
        future: asyncio.Future[T] = self._loop.create_future()
        barrier.readers.append((query, future))
        return future

    @property
    def barrier(self) -> Pending:
        """Return that on which the newest read rides."""
        assert self._barrier is not None, "nothing was read"
        return self._barrier

    def take(self) -> tuple[list[int], list[EncodedCommand]]:
        """Return the next unsent commands, as many as fit a frame, with their numbers; count them as sent."""
        seqs: list[int] = []
        commands: list[EncodedCommand] = []
        size_bytes = taken = 0
        for pending in self.unsent:
            if size_bytes >= SEND_BYTES_MAX:
                break
            taken += 1
            if pending.seq in self._pending:
                pending.is_sent = True
                seqs.append(pending.seq)
                commands.append(pending.command)
                size_bytes += len(pending.command.data)
        del self.unsent[:taken]
        self.is_urgent = bool(self.unsent)
        return seqs, commands

    def rewind(self) -> int:
        """Make everything pending unsent; return how much of it had been sent."""
        self.unsent[:] = self._pending.values()
        self.is_urgent = bool(self.unsent)
        return sum(pending.is_sent for pending in self.unsent)

    def is_pending(self, seq: int) -> bool:
        """Whether somebody still waits for the outcome."""
        return seq in self._pending

    def complete(self, seq: int, answer: Answer, machine: LockMachine) -> None:
        """Hand an outcome to who waits for it; readers get theirs from the state at this very place."""
        pending = self._pending.get(seq)
        if pending is None:
            return
        for query, future in pending.readers or ():
            if not future.done():
                _settle(future, query, machine)
        if not pending.future.done():
            pending.future.set_result(answer)
        # Last: who was not told because this failed half-way is found by `close`.
        self._remove(pending)

    def give_up_due(self) -> None:
        """End what has passed its deadline."""
        now_s = self._loop.time()
        while self._deadlines and self._deadlines[0][0] <= now_s:
            _, place = heapq.heappop(self._deadlines)
            pending = self._all.get(place)
            if pending is None:
                continue
            self._fail(pending, _error_of_late(pending))

    def fail(self, seq: int, error: ClusterError) -> None:
        """End one command that has a number, without an outcome."""
        pending = self._pending.get(seq)
        if pending is not None:
            self._fail(pending, error)

    def _fail(self, pending: Pending, error: ClusterError) -> None:
        for _, future in pending.readers or ():
            if not future.done():
                future.set_exception(error)
                self.failures[error.code] += 1
        if not pending.future.done():
            pending.future.set_exception(error)
            self.failures[error.code] += pending.readers is None
        self._remove(pending)

    async def drain(self, timeout_s: float) -> None:
        """Wait until everything pending now has an outcome, at most `timeout_s`."""
        futures = [pending.future for pending in self._all.values()]
        if futures:
            await asyncio.wait(futures, timeout=timeout_s)

    def close(self, unsent: ClusterError, sent: ClusterError) -> None:
        """End everything, and refuse what comes later: this node stops."""
        self._closed = unsent
        # What waits for its turn first: it is not to get a number because others have ended.
        for pending in sorted(self._all.values(), key=lambda pending: pending.seq):
            self._fail(pending, sent if pending.is_sent and pending.readers is None else unsent)

    def applied_up_to(self, seq: int) -> list[Pending]:
        """Return what is pending and was applied in entries that this node never saw one by one."""
        return [pending for pending in self._pending.values() if pending.seq <= seq]

    def _rest_of(self, pending: Pending) -> None:
        """Count a load no more: at once, or after a rest if others came while it was under way."""
        rest_s = min(REST_FACTOR * (self._loop.time() - pending.since_s), REST_S_MAX)
        if rest_s > 0 and pending.light_before < self._light_count:
            self.later(rest_s, lambda: self._rested(pending.command.load))
        else:
            self._load -= pending.command.load

    def _rested(self, load: int) -> None:
        self._load -= load
        self._let_go()
        if self.unsent:
            self.on_rested()

    def _remove(self, pending: Pending) -> None:
        del self._all[pending.place]
        self._bytes -= len(pending.command.data)
        if self._pending.pop(pending.seq, None) is not None:
            self._numbered_bytes -= len(pending.command.data)
            if pending.command.load:
                self._rest_of(pending)
        if len(self._deadlines) > 2 * len(self._all) + 1024:
            self._deadlines = [item for item in self._deadlines if item[1] in self._all]
            heapq.heapify(self._deadlines)
        if len(self.unsent) > 2 * len(self._pending) + 1024:
            # While there is no leader nobody takes from it what was given up.
            self.unsent[:] = [waiting for waiting in self.unsent if waiting.seq in self._pending]
        if self._queue:
            if len(self._queue) > 2 * len(self._all) + 1024:
                self._queue.keep(lambda waiting: waiting.place in self._all)
            self._let_go()


def _error_of_late(pending: Pending) -> ClusterError:
    """Return why something has no outcome by its deadline."""
    if not pending.seq:
        return Overloaded("the command waited too long for its turn; try again later")
    if pending.is_sent and pending.readers is None:
        return OutcomeUnknown("no outcome before the deadline; repeat with the same request_id")
    return NoLeader("no leader answered before the deadline; a majority of nodes must be up")


def _settle(future: "asyncio.Future[T]", query: Callable[[LockMachine], T], machine: LockMachine) -> None:
    try:
        future.set_result(query(machine))
    except Exception as error:  # noqa: BLE001 - a query's mistake belongs to its caller
        future.set_exception(error)


def _retrieve(future: "asyncio.Future[Answer]") -> None:
    """Look at a barrier's failure: its readers have been told."""
    if not future.cancelled():
        future.exception()
