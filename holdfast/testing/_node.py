"""A node without a cluster: it applies each command at once to a real LockMachine, by its loop's clock.

It keeps the contract of `lockapi/node.py`. What needs other nodes, such as changing members, is refused.
"""

import asyncio
import hashlib
import io
import itertools
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import msgspec

from cluster.commands.client_requests import to_undo
from cluster.commands.kept_waits import KeptWaits
from cluster.commands.outbox import Answer
from cluster.commands.waiters import Waiters
from cluster.consensus.member_list import MemberRecord, Members
from cluster.errors import MemberChangeRefused, ShuttingDown, TransferFailed
from cluster.observing.event_log import EventLog
from cluster.observing.metrics import NodeMetrics
from cluster.observing.status import ClusterStatus, PeerStatus
from cluster.peers.channels import Channels
from lockapi.node import Counters
from lockstate.machine import LockMachine
from lockstate.rules import attempts
from lockstate.rules.on_behalf import on_behalf
from lockstate.stored import snapshot
from lockstate.words.commands.entries import Batch, Cancel, Command, Entry, MayBeCancelled
from lockstate.words.commands.holds import MayWait
from lockstate.words.results import Done, Queued

T = TypeVar("T")

NODE_ID: Final = "n1"
HTTP: Final = "http://127.0.0.1:7700"
"""Where the node says that it is. Nothing listens there."""
PEER: Final = "127.0.0.1:7800"
_ALONE: Final = "a cluster in memory has one node, and keeps it"


class MemoryNode:
    """The only node of its cluster. Belongs to the event loop in which it was made."""

    def __init__(self) -> None:
        self.machine = LockMachine()
        self.has_failed = False
        self.when_waiting: Callable[[], object] | None = None
        """Called, soon, whenever a request has begun to wait in a queue."""
        self._loop = asyncio.get_running_loop()
        self._counted = NodeMetrics(lambda: ())
        self.metrics: Counters = self._counted
        self.members = Members({NODE_ID: MemberRecord(PEER, is_voter=True)})
        self.events = EventLog(self._loop)
        self.channels = Channels()
        self._seqs = itertools.count(1)
        self._waiters = Waiters(self._loop)
        self._kept = KeptWaits(self._undo)
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
        self._waiters.fail_all(ShuttingDown("the node is shutting down"))
        self.events.end()
        self._stop_timer()

    # -- commands and reads ---------------------------------------------------------------------------------

    async def submit(self, command: Command, timeout_s: float, principal: str = "") -> Answer:
        """Apply one command."""
        self._check(timeout_s)
        return self._apply(on_behalf(principal, command))

    def begin(
        self, command: Command, timeout_s: float, principal: str = "", lane: str = ""
    ) -> asyncio.Future[Answer]:
        """Apply one command."""
        del lane
        self._check(timeout_s)
        begun: asyncio.Future[Answer] = self._loop.create_future()
        begun.set_result(self._apply(on_behalf(principal, command)))
        return begun

    def abandon(self, command: Command, begun: object, principal: str = "") -> None:
        """Release what was acquired for a client that went away, unless it may ask for it again."""
        assert isinstance(begun, asyncio.Future), "that is what `begin` returned"
        if isinstance(command, MayBeCancelled):
            self._leave(command, principal, begun.result())

    async def acquire(
        self, command: MayWait, timeout_s: float, principal: str = "", poll_s: float | None = None
    ) -> Answer:
        """Apply a request and wait for its end, or for `poll_s`."""
        self._check(timeout_s)
        kept = self._kept.take(command, principal)
        if kept is not None:
            command, answer = kept
            answer = msgspec.structs.replace(answer, is_repeated=True)
        else:
            answer = self._apply(on_behalf(principal, command))
            if not isinstance(answer.result, Queued):
                return answer
            wait = self._waiters.add(answer.result.hold_id)
            answer = msgspec.structs.replace(answer, wait=wait)
            if self.when_waiting is not None:
                self._loop.call_soon(self.when_waiting)
        assert answer.wait is not None, "it is queued"
        try:
            async with asyncio.timeout(poll_s):
                ended = await asyncio.shield(answer.wait)
        except TimeoutError:
            if not answer.wait.done():
                self._leave(command, principal, answer)
                return answer
            ended = answer.wait.result()
        except asyncio.CancelledError:
            self._leave(command, principal, answer)
            raise
        return msgspec.structs.replace(ended, revision=self.machine.revision, is_repeated=answer.is_repeated)

    def _leave(self, command: MayBeCancelled, principal: str, answer: Answer) -> None:
        """Keep what a client may ask for again, undo what it cannot."""
        undone = to_undo(command, answer.result)
        if undone and command.request_id and command.wait_ms:
            self._kept.keep(command, principal, answer)
        else:
            self._undo(command, answer)

    def _undo(self, command: MayBeCancelled, answer: Answer) -> None:
        if answer.wait is not None:
            answer.wait.cancel()
        undone = to_undo(command, answer.result)
        if undone and not self.is_shutting_down:
            self._apply(Cancel(undone, command.attempt_id))

    async def withdraw(self, scope: str, request_id: str, timeout_s: float, principal: str = "") -> bool:
        """Take back a request that waits, or what it was granted."""
        self._check(timeout_s)
        self._apply(None)
        hold_id, attempt_ids = attempts.of_request(self.machine.state, principal, scope, request_id)
        for attempt_id in attempt_ids:
            self._apply(Cancel(hold_id, attempt_id))
        return bool(attempt_ids)

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
        self.events.append(outcome.all_events)
        self._counted.applied(outcome)
        for settled in outcome.settled:
            self._waiters.wake(settled, outcome.revision)
        self._set_timer()
        if not outcome.batches:
            return Answer(Done(), outcome.revision)
        (batch,) = outcome.batches
        return Answer(batch.results[0], outcome.revision, is_repeated=bool(batch.repeated))

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

    async def members_if_made(
        self, node_id: str, peer: str, timeout_s: float, *, is_move: bool = False
    ) -> Members | None:
        """Refuse any change."""
        del node_id, peer, timeout_s, is_move
        raise MemberChangeRefused(_ALONE)

    async def backup(self, head: Callable[[Members, int, int, int], bytes]) -> "_Bytes":
        """Return a backup of the state, which real nodes can restore."""
        state = snapshot.encode(self.machine.state)
        content = head(self.members, 1, 1, len(state)) + state
        return _Bytes(content + hashlib.sha256(content).digest())

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


class _Bytes(io.BytesIO):
    """The bytes of a backup, in memory."""

    @property
    def size(self) -> int:
        """Return how many there are."""
        return len(self.getbuffer())
