"""A node without a cluster: applies each command at once to a real LockMachine, by the real clock."""

import asyncio
import itertools
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from cluster.consensus import member_list
from cluster.consensus.member_list import Member, Members
from cluster.errors import ShuttingDown
from cluster.observing.event_log import EventLog
from cluster.observing.metrics import Sample
from cluster.observing.status import ClusterStatus, PeerStatus
from lockstate.commands import Batch, Cancel, Command, Entry, MayWait
from lockstate.machine import LockMachine
from lockstate.results import Queued, Result
from lockstate.versions import RULES_NEWEST

T = TypeVar("T")


class LocalAnswer(msgspec.Struct, frozen=True):
    """What a command came to."""

    result: Result
    revision: int


class LocalMetrics:
    """Two metrics that a renderer has to get right."""

    def samples(self) -> Iterable[Sample]:
        """Return a counter and a histogram."""
        yield "test_commands_total", "Commands applied.", "counter", {"kind": 'a"b\\c'}, 3
        yield "test_wait_seconds_bucket", "Waits.", "histogram", {"le": "0.5"}, 1
        yield "test_wait_seconds_bucket", "Waits.", "histogram", {"le": "+Inf"}, 2
        yield "test_wait_seconds_sum", "Waits.", "histogram", {}, 0.75
        yield "test_wait_seconds_count", "Waits.", "histogram", {}, 2


class LocalNode:
    """Keeps the contract of a node. `failure`, when set, is raised by every call instead."""

    def __init__(self) -> None:
        self.machine = LockMachine()
        self.machine.state.rules = RULES_NEWEST
        self.metrics = LocalMetrics()
        self.is_ready = True
        self.has_failed = False
        self.told_troubles: tuple[str, ...] = ()
        self.failure: Exception | None = None
        self.timeouts_s: list[float] = []
        self.begun: list[tuple[Command, asyncio.Future[LocalAnswer]]] = []
        self.abandoned: list[Command] = []
        self.holds_outcomes = False
        self.fixed_ms: int | None = None
        """The time of all commands, for answers that must not depend on the clock."""
        self.cancelled = asyncio.Event()
        self.transfers: list[str | None] = []
        self.members = Members({"n1": Member("127.0.0.1:2", is_voter=True)})
        self._seqs = itertools.count(1)
        self._waiters: dict[str, asyncio.Future[Result]] = {}
        self._loop = asyncio.get_running_loop()
        self._shutdown = asyncio.Event()
        self.events = EventLog(self._loop)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_shutting_down(self) -> bool:
        """Whether it refuses new work."""
        return self._shutdown.is_set()

    async def wait_shutdown(self) -> None:
        """Wait until it refuses new work."""
        await self._shutdown.wait()

    async def submit(self, command: Command, timeout_s: float) -> LocalAnswer:
        """Apply one command."""
        self._check(timeout_s)
        return self._apply(command)

    def begin(self, command: Command, timeout_s: float) -> asyncio.Future[LocalAnswer]:
        """Apply one command. With `holds_outcomes` the test says when, and sets the outcome itself."""
        self._check(timeout_s)
        begun: asyncio.Future[LocalAnswer] = self._loop.create_future()
        self.begun.append((command, begun))
        if not self.holds_outcomes:
            begun.set_result(self._apply(command))
        return begun

    def abandon(self, command: Command, begun: object) -> None:
        """Note what was given up."""
        assert any(begun is known for _, known in self.begun)
        self.abandoned.append(command)

    async def acquire(self, command: MayWait, timeout_s: float) -> LocalAnswer:
        """Apply a request and wait for its end; undo it when cancelled."""
        self._check(timeout_s)
        answer = self._apply(command)
        if not isinstance(answer.result, Queued):
            return answer
        hold_id = answer.result.hold_id
        waiter = self._waiters[hold_id] = self._loop.create_future()
        try:
            return LocalAnswer(await waiter, self.machine.revision)
        except asyncio.CancelledError:
            if not self.is_shutting_down:
                self._apply(Cancel(hold_id, command.attempt_id))
            self.cancelled.set()
            raise
        finally:
            self._waiters.pop(hold_id, None)

    async def read(self, query: Callable[[LockMachine], T], timeout_s: float) -> T:
        """Answer from the only state there is."""
        self._check(timeout_s)
        self._apply(None)
        return query(self.machine)

    def status(self) -> ClusterStatus:
        """Return a cluster of one node."""
        peers = (PeerStatus("n1", "http://127.0.0.1:1", "127.0.0.1:2", "leader", self.machine.revision),)
        return ClusterStatus("n1", "n1", 1, self.machine.revision, 7, self.is_ready, peers)

    def troubles(self) -> tuple[str, ...]:
        """Return what the test says."""
        return self.told_troubles

    async def transfer_leadership(self, to: str | None, timeout_s: float) -> str:
        """Note the wish."""
        self._check(timeout_s)
        self.transfers.append(to)
        return to or "n1"

    async def add_member(self, node_id: str, peer: str, timeout_s: float) -> Members:
        """Let a node join; it never counts here."""
        self._check(timeout_s)
        if node_id not in self.members.nodes:
            self.members = member_list.with_learner(self.members, node_id, peer)
        return self.members

    async def move_member(self, node_id: str, peer: str, timeout_s: float) -> Members:
        """Change a node's address."""
        self._check(timeout_s)
        self.members = member_list.moved(self.members, node_id, peer)
        return self.members

    async def remove_member(self, node_id: str, timeout_s: float) -> Members:
        """Remove a node."""
        self._check(timeout_s)
        self.members = member_list.without(self.members, node_id, "", self.members.nodes)
        return self.members

    def begin_shutdown(self) -> None:
        """Refuse new work and end the waits."""
        self._shutdown.set()
        for waiter in self._waiters.values():
            waiter.set_exception(ShuttingDown("the node is shutting down"))

    def _check(self, timeout_s: float) -> None:
        self.timeouts_s.append(timeout_s)
        if self.failure is not None:
            raise self.failure
        if self.is_shutting_down:
            raise ShuttingDown("the node is shutting down")

    def _apply(self, command: Command | None) -> LocalAnswer:
        """Apply a command, or only let time pass, and wake the waiters that it concerns."""
        batches = () if command is None else (Batch("local", (next(self._seqs),), (command,)),)
        now_ms = int(self._loop.time() * 1000) if self.fixed_ms is None else self.fixed_ms
        outcome = self.machine.apply(Entry(now_ms, batches))
        self.events.append(outcome.events)
        for settled in outcome.settled:
            waiter = self._waiters.get(settled.hold_id)
            if waiter is not None and not waiter.done():
                waiter.set_result(settled.result)
        self._set_timer()
        result = outcome.batches[0].results[0] if outcome.batches else None
        return LocalAnswer(result, outcome.revision)  # type: ignore[arg-type]  # of no command, nobody asks

    def _set_timer(self) -> None:
        """Come back when the next thing ends by itself."""
        if self._timer is not None:
            self._timer.cancel()
        deadline_ms = self.machine.next_deadline_ms()
        if deadline_ms is not None and self.fixed_ms is None:
            self._timer = self._loop.call_at((deadline_ms + 1) / 1000, self._apply, None)

    def close(self) -> None:
        """Let no timer outlive the test."""
        if self._timer is not None:
            self._timer.cancel()
