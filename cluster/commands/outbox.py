"""The commands of this node that have no outcome yet: numbered, sent to whoever leads, sent again, given up.

Numbers rise by one per command and never come again within one run of the process. A leader's log holds each
sender's commands in the order of their numbers, because all that is pending is sent again from the lowest on
whenever the leader, the term or the connection changes. So a number at or below the last applied one means:
applied already (see lockstate.commands.Batch).
"""

import asyncio
import heapq
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from cluster.errors import ClusterError, NoLeader, OutcomeUnknown, Overloaded
from lockstate import codec
from lockstate.commands import Barrier
from lockstate.machine import LockMachine
from lockstate.results import Result

T = TypeVar("T")

PENDING_COUNT_MAX: Final = 20_000
PENDING_BYTES_MAX: Final = 64 << 20
"""Above either, new commands are refused at once: memory must not grow with what waits."""
COMMAND_BYTES_MAX: Final = 1 << 20
"""No command comes near it: bodies of requests are smaller. An entry has room for one."""
SEQ_MAX: Final = 1 << 53
"""No run of a node's process numbers so many commands."""
ORIGIN_CHARACTERS_MAX: Final = 128
"""Node ids have 63 characters at most, and what `new_origin` adds 13."""
SEND_BYTES_MAX: Final = 1 << 20
"""One forwarded frame, at most about so much."""
SHARED_S_MAX: Final = 0.05
"""A read joins a barrier that is given up so much before its own deadline at most, and never after it."""

_BARRIER: Final = codec.encode_command(Barrier())


def new_origin(node_id: str) -> str:
    """Return a name for this run of the node's process: numbers begin again with each run."""
    return f"{node_id}.{secrets.token_hex(6)}"


def node_of(origin: str) -> str:
    """Return the node whose process `origin` names."""
    return origin.rpartition(".")[0]


class Forwarded(msgspec.Struct, frozen=True, array_like=True):
    """Commands for the leader of `term`, in order of their numbers; 0 is the term of no leader."""

    term: int
    origin: str
    seqs: list[int]
    commands: list[bytes]


def fault_in(batch: Forwarded, node_id: str) -> str:
    """Return what is wrong with a batch that `node_id` forwards; empty if nothing is.

    All of it may become an entry, on all nodes: what no correct node forwards must not come so far.
    """
    if node_of(batch.origin) != node_id or len(batch.origin) > ORIGIN_CHARACTERS_MAX:
        return f"commands of {batch.origin[:ORIGIN_CHARACTERS_MAX]!r}"
    if len(batch.seqs) != len(batch.commands):
        return f"{len(batch.seqs)} numbers for {len(batch.commands)} commands"
    last = 0
    for seq in batch.seqs:
        if not last < seq <= SEQ_MAX:
            return f"command {seq} behind command {last}"
        last = seq
    longest = max(map(len, batch.commands), default=0)
    return f"a command of {longest} bytes" if longest > COMMAND_BYTES_MAX else ""


class Answer(msgspec.Struct, frozen=True):
    """The result of a command, the revision at which it was applied; for a queued acquire, what to await.

    `waits` has that for each place in the results of a frame of a stream where one is queued.
    `is_repeated` says that an earlier attempt, with the same `request_id`, had this outcome or its wait.
    """

    result: Result
    revision: int
    wait: "asyncio.Future[Answer] | None" = None
    is_repeated: bool = False
    waits: "Mapping[int, asyncio.Future[Answer]] | None" = None


class Pending(msgspec.Struct, eq=False):
    """One command without an outcome. `readers` are reads that ride on a barrier."""

    seq: int
    command: bytes
    future: "asyncio.Future[Answer]"
    is_sent: bool = False
    readers: list[tuple[Callable[[LockMachine], Any], "asyncio.Future[Any]"]] | None = None


class Outbox:
    """Commands from submission to outcome. `origin` names this run of the process."""

    def __init__(self, origin: str, loop: asyncio.AbstractEventLoop) -> None:
        self.origin = origin
        self._loop = loop
        self._next_seq = 1
        self._pending: dict[int, Pending] = {}
        self._pending_bytes = 0
        self.unsent: Final[list[Pending]] = []
        """What waits to be sent, in order."""
        self._deadlines: list[tuple[float, int]] = []
        self._barrier: Pending | None = None
        self._barrier_deadline_s = 0.0
        self._closed: ClusterError | None = None

    def __len__(self) -> int:
        """Return how many commands have no outcome yet."""
        return len(self._pending)

    def submit(self, command: bytes, timeout_s: float) -> Pending:
        """Give a command its number; its future gets the Answer or a ClusterError.

        Raises Overloaded, or ShuttingDown after `close`.
        """
        assert len(command) <= COMMAND_BYTES_MAX, f"a command of {len(command)} bytes"
        if self._closed is not None:
            raise self._closed
        if len(self._pending) >= PENDING_COUNT_MAX or self._pending_bytes >= PENDING_BYTES_MAX:
            raise Overloaded(
                f"{len(self._pending)} commands wait on this node; try again later or on another node"
            )
        pending = Pending(self._next_seq, command, self._loop.create_future())
        self._next_seq += 1
        # The deadline first: what waits without one, because memory ran out in between, would wait for ever.
        heapq.heappush(self._deadlines, (self._loop.time() + timeout_s, pending.seq))
        self._pending[pending.seq] = pending
        self._pending_bytes += len(command)
        self.unsent.append(pending)
        return pending

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

    def take(self) -> tuple[list[int], list[bytes]]:
        """Return the next unsent commands, in order, as many as fit a frame, and count them as sent."""
        seqs: list[int] = []
        commands: list[bytes] = []
        size_bytes = taken = 0
        for pending in self.unsent:
            if size_bytes >= SEND_BYTES_MAX:
                break
            taken += 1
            if pending.seq in self._pending:
                pending.is_sent = True
                seqs.append(pending.seq)
                commands.append(pending.command)
                size_bytes += len(pending.command)
        del self.unsent[:taken]
        return seqs, commands

    def rewind(self) -> int:
        """Make everything pending unsent; return how much of it had been sent."""
        self.unsent[:] = self._pending.values()
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
        self._remove(seq)

    def give_up_due(self) -> None:
        """End what has passed its deadline."""
        now_s = self._loop.time()
        while self._deadlines and self._deadlines[0][0] <= now_s:
            _, seq = heapq.heappop(self._deadlines)
            pending = self._pending.get(seq)
            if pending is None:
                continue
            if pending.is_sent and pending.readers is None:
                self.fail(
                    seq, OutcomeUnknown("no outcome before the deadline; repeat with the same request_id")
                )
            else:
                self.fail(
                    seq, NoLeader("no leader answered before the deadline; a majority of nodes must be up")
                )

    def fail(self, seq: int, error: ClusterError) -> None:
        """End one command without an outcome."""
        pending = self._pending.get(seq)
        if pending is None:
            return
        for _, future in pending.readers or ():
            if not future.done():
                future.set_exception(error)
        if not pending.future.done():
            pending.future.set_exception(error)
        self._remove(seq)

    async def drain(self, timeout_s: float) -> None:
        """Wait until everything pending now has an outcome, at most `timeout_s`."""
        futures = [pending.future for pending in self._pending.values()]
        if futures:
            await asyncio.wait(futures, timeout=timeout_s)

    def close(self, unsent: ClusterError, sent: ClusterError) -> None:
        """End everything, and refuse what comes later: this node stops."""
        self._closed = unsent
        for pending in list(self._pending.values()):
            self.fail(pending.seq, sent if pending.is_sent and pending.readers is None else unsent)

    def applied_up_to(self, seq: int) -> list[Pending]:
        """Return what is pending and was applied in entries that this node never saw one by one."""
        return [pending for pending in self._pending.values() if pending.seq <= seq]

    def _remove(self, seq: int) -> Pending | None:
        pending = self._pending.pop(seq, None)
        if pending is not None:
            self._pending_bytes -= len(pending.command)
            if len(self._deadlines) > 2 * len(self._pending) + 1024:
                self._deadlines = [item for item in self._deadlines if item[1] in self._pending]
                heapq.heapify(self._deadlines)
            if len(self.unsent) > 2 * len(self._pending) + 1024:
                # While there is no leader nobody takes from it what was given up.
                self.unsent[:] = [waiting for waiting in self.unsent if waiting.seq in self._pending]
        return pending


def _settle(future: "asyncio.Future[T]", query: Callable[[LockMachine], T], machine: LockMachine) -> None:
    try:
        future.set_result(query(machine))
    except Exception as error:  # noqa: BLE001 - a query's mistake belongs to its caller
        future.set_exception(error)


def _retrieve(future: "asyncio.Future[Answer]") -> None:
    """Look at a barrier's failure: its readers have been told."""
    if not future.cancelled():
        future.exception()
