"""A node without a cluster: it applies each command at once to a real LockMachine, by its loop's clock.

It keeps the contract of `api/node.py`. What needs other nodes, such as a change of the members, is refused.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import msgspec

from api.node import Counters
from cluster.consensus.member_list import Member, Members
from cluster.errors import MemberChangeRefused, ShuttingDown, TransferFailed
from cluster.observing.event_log import EventLog
from cluster.observing.metrics import Metrics
from cluster.observing.status import ClusterStatus, PeerStatus
from lockstate.commands import Acquire, AcquirePermits, Batch, Campaign, Cancel, Command, Entry, MayWait
from lockstate.machine import LockMachine
from lockstate.on_behalf import on_behalf
from lockstate.results import Done, Granted, Queued, Result
from lockstate.versions import RULES_NEWEST

T = TypeVar("T")

NODE_ID: Final = "n1"
HTTP: Final = "http://127.0.0.1:7700"
"""Where the node says that it is. Nothing listens there."""
PEER: Final = "127.0.0.1:7800"
_ALONE: Final = "a cluster in memory has one node, and keeps it"


class Answer(msgspec.Struct, frozen=True):
    """What a command came to."""

    result: Result
    revision: int
    is_repeated: bool = False
    waits: None = None


class MemoryNode:
    """The only node of its cluster. Belongs to the event loop in which it was made."""

    def __init__(self) -> None:
        self.machine = LockMachine()
        self.machine.state.rules = RULES_NEWEST
        self.has_failed = False
        self.when_waiting: Callable[[], object] | None = None
        """Called, soon, whenever a request has begun to wait in a queue."""
        self._loop = asyncio.get_running_loop()
        self._counted = Metrics(lambda: ())
        self.metrics: Counters = self._counted
        self.members = Members({NODE_ID: Member(PEER, is_voter=True)})
        self.events = EventLog(self._loop)
        self._seqs = itertools.count(1)
        self._waiters: dict[str, asyncio.Future[Result]] = {}
        self._shutdown = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting_count(self) -> int:
        """How many requests wait in queues."""
        return len(self._waiters)

    @property
    def is_shutting_down(self) -> bool:
        """Whether it refuses new work."""
        return self._shutdown.is_set()

    async def wait_shutdown(self) -> None:
        """Wait until it refuses new work."""
        await self._shutdown.wait()

    def begin_shutdown(self) -> None:
        """Refuse new work and end the waits."""
        self._shutdown.set()
        for waiter in self._waiters.values():
            if not waiter.done():
                waiter.set_exception(ShuttingDown("the node is shutting down"))
        self.events.end()
        self._stop_timer()

    # -- commands and reads ---------------------------------------------------------------------------------

    async def submit(self, command: Command, timeout_s: float, principal: str = "") -> Answer:
        """Apply one command."""
        self._check(timeout_s)
        return self._apply(on_behalf(principal, command, self.machine.rules))

    def begin(self, command: Command, timeout_s: float, principal: str = "") -> asyncio.Future[Answer]:
        """Apply one command."""
        self._check(timeout_s)
        begun: asyncio.Future[Answer] = self._loop.create_future()
        begun.set_result(self._apply(on_behalf(principal, command, self.machine.rules)))
        return begun

    def abandon(self, command: Command, begun: object) -> None:
        """Release what was acquired for a client that went away."""
        assert isinstance(begun, asyncio.Future), "that is what `begin` returned"
        match command, begun.result().result:
            case Acquire() | AcquirePermits() | Campaign(), Granted(hold_id=hold_id):
                # Not a hold that its session had before, or that an earlier attempt has got.
                if hold_id == command.hold_id and not self.is_shutting_down:
                    self._apply(Cancel(hold_id, command.attempt_id))

    async def acquire(self, command: MayWait, timeout_s: float, principal: str = "") -> Answer:
        """Apply a request and wait for its end; undo it when cancelled."""
        self._check(timeout_s)
        answer = self._apply(on_behalf(principal, command, self.machine.rules))
        if not isinstance(answer.result, Queued):
            return answer
        hold_id = answer.result.hold_id
        waiter = self._waiters[hold_id] = self._loop.create_future()
        if self.when_waiting is not None:
            self._loop.call_soon(self.when_waiting)
        try:
            return Answer(await waiter, self.machine.revision, answer.is_repeated)
        except asyncio.CancelledError:
            if not self.is_shutting_down:
                self._apply(Cancel(hold_id, command.attempt_id))
            raise
        finally:
            self._waiters.pop(hold_id, None)

    async def read(self, query: Callable[[LockMachine], T], timeout_s: float) -> T:
        """Answer from the only state there is."""
        self._check(timeout_s)
        self._apply(None)
        return query(self.machine)

    def let_time_pass(self) -> None:
        """End what is due by now, and grant what waited for it."""
        self._apply(None)

    def _check(self, timeout_s: float) -> None:
        """Raise what keeps it from serving a call that may take so long."""
        del timeout_s  # nothing takes time here
        if self.is_shutting_down:
            raise ShuttingDown("the node is shutting down")

    def _now_ms(self) -> int:
        """Return cluster time: that of the loop."""
        return int(self._loop.time() * 1000 + 0.001)  # whole milliseconds have no exact binary fractions

    def _apply(self, command: Command | None) -> Answer:
        """Apply a command, or only let time pass, and wake the waiters that it concerns."""
        batches = () if command is None else (Batch("memory", (next(self._seqs),), (command,)),)
        outcome = self.machine.apply(Entry(self._now_ms(), batches))
        self.events.append(outcome.events + outcome.cell_events)
        self._counted.applied(outcome)
        for settled in outcome.settled:
            waiter = self._waiters.get(settled.hold_id)
            if waiter is not None and not waiter.done():
                waiter.set_result(settled.result)
        self._set_timer()
        if not outcome.batches:
            return Answer(Done(), outcome.revision)
        (batch,) = outcome.batches
        return Answer(batch.results[0], outcome.revision, bool(batch.repeated))

    def _set_timer(self) -> None:
        """Come back when the next thing ends by itself."""
        self._stop_timer()
        deadline_ms = self.machine.next_deadline_ms()
        if deadline_ms is not None and not self.is_shutting_down:
            self._timer = self._loop.call_at((deadline_ms + 1) / 1000, self._apply, None)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # -- the cluster ----------------------------------------------------------------------------------------

    def status(self) -> ClusterStatus:
        """Return a cluster of one node."""
        revision = self.machine.revision
        peers: Iterable[PeerStatus] = (PeerStatus(NODE_ID, HTTP, PEER, "leader", revision),)
        return ClusterStatus(NODE_ID, NODE_ID, 1, revision, 0, not self.is_shutting_down, tuple(peers))

    def troubles(self) -> tuple[str, ...]:
        """Return that nothing is wrong with it."""
        return ()

    async def transfer_leadership(self, to: str | None, timeout_s: float) -> str:
        """Return the only node, to which leadership may be handed."""
        self._check(timeout_s)
        if to not in (None, NODE_ID):
            raise TransferFailed(_ALONE)
        return NODE_ID

    async def add_member(self, node_id: str, peer: str, timeout_s: float) -> Members:
        """Refuse it."""
        del node_id, peer, timeout_s
        raise MemberChangeRefused(_ALONE)

    async def move_member(self, node_id: str, peer: str, timeout_s: float) -> Members:
        """Refuse it."""
        del node_id, peer, timeout_s
        raise MemberChangeRefused(_ALONE)

    async def remove_member(self, node_id: str, timeout_s: float) -> Members:
        """Refuse it."""
        del node_id, timeout_s
        raise MemberChangeRefused(_ALONE)
