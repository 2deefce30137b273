"""Sends operations where and as often as `exchange.py` says, and undoes what nobody waits for."""

import asyncio
import logging
import random
import weakref
from collections.abc import AsyncGenerator, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from holdfast.operations import hold_operations
from holdfast.operations.exchange import Attempt
from holdfast.operations.operation import Operation
from holdfast.operations.sending import Sending
from holdfast.operations.stream_refusals import NotTaken
from holdfast.stream.stream_calls import Asking, InDoubt
from holdfast.stream.stream_link import StreamLink
from holdfast.stream.streams import ClientStreams
from holdfast.stream.waits import SharedWaits, Turn
from holdfast.transport.access import Access
from holdfast.transport.attempts import Attempts
from holdfast.transport.blocks import Entered
from holdfast.transport.renewals import Renewals
from holdfast.transport.tls import Tls, Trust
from holdfast.values.clock import REAL, Clock
from holdfast.values.errors import LeaseExpired, LockError, OutcomeUnknown
from holdfast.values.metrics import Metrics, Reporter
from holdfast.values.process import OfOneProcess

if TYPE_CHECKING:
    from holdfast.transport.http import Connections

T = TypeVar("T")

UNAUTHENTICATED = 401
"""The status of an answer to somebody whom a node does not know."""

_log = logging.getLogger("holdfast")

PATIENCE_S = 2.0
"""Seconds that a cancelled task takes at most to undo what it had begun; then that goes on without it."""
ANSWER_S = 0.05
"""Seconds that an answer has to arrive before a request that nobody waits for is withdrawn."""
LATE_S = 0.5
"""Seconds that a request has to arrive which its withdrawal has overtaken."""
UNDO_S_MAX: Final = 10.0
"""Seconds that what nobody waits for is tried for at most, however patient the client is: it has to close."""
_DOUBT: Final = "the session of the stream ended before its answer came"


class Releasable(Protocol):
    """What a client keeps alive, and lets go of when it is closed."""

    @property
    def has_ended(self) -> bool:
        """Whether it was released or lost, or belongs to the process that this one was forked from."""
        ...

    async def give_up(self) -> None:
        """Let go of it."""
        ...


class Transport(OfOneProcess):
    """Carries out operations on the nodes of a cluster, over the connections of the running loop."""

    def __init__(
        self,
        nodes: Sequence[str],
        timeout_s: float,
        *,
        trust: Trust | None = None,
        access: Access | None = None,
        clock: Clock = REAL,
        connections: "Connections | None" = None,
        metrics: Metrics | None = None,
        has_streams: bool = True,
    ) -> None:
        """Send to these nodes, over `connections` (made with the first request if there are none).

        A client that is busy uses a stream where there is one, unless it never `has_streams`.
        `trust` is for nodes whose URLs are https://; without it they are judged as this machine does.
        `access` is for nodes that want to know who calls.
        """
        if trust is None and any(node.startswith("https://") for node in nodes):
            trust = Trust(Tls())
        self.trust = trust
        self.access = access
        self.nodes = tuple(nodes)
        self.timeout_s = timeout_s
        self.clock = clock
        self.renewals = Renewals(clock)
        self.reporter = None if metrics is None else Reporter(metrics)
        # Clients spread over the nodes by chance; each then stays with the node that answers.
        self.node = random.randrange(len(self.nodes))  # noqa: S311 - load spreading, not a secret
        self._connections = connections
        self.is_closed = False
        self._finishing: set[asyncio.Task[Any]] = set()
        self.kept: weakref.WeakSet[Releasable] = weakref.WeakSet()
        self.entered = Entered()
        self.streams = ClientStreams(self) if has_streams else None
        self.waits = SharedWaits(self, has_links=has_streams and clock is REAL)

    @property
    def connections(self) -> "Connections":
        """The connections. They are the first that needs aiohttp, which takes long to import."""
        if self._connections is None:
            from holdfast.transport.http import Connections  # noqa: PLC0415 - see above

            self._connections = Connections(trust=self.trust, access=self.access)
        return self._connections

    async def close(self) -> None:
        """Let go of all that is kept alive, finish what is being undone, and close the connections.

        Those of the running loop: others end with theirs. From then on nothing is sent.
        """
        try:
            await self._let_go()
            await self._finish_all()
            await self.waits.close()
            if self.streams is not None:
                await self.streams.close()
                await self._finish_all()  # what was on its way there may be in doubt now
            await self._let_go()  # of what was granted meanwhile
        finally:
            self.is_closed = True
            if self._connections is not None:
                await self._connections.close()

    async def _let_go(self) -> None:
        """Let go of all that is kept alive."""
        kept = [item for item in self.kept if not item.has_ended]
        if kept:
            await self.finish(_give_up(kept))

    def refuse_closed(self) -> None:
        """Raise RuntimeError if this client was closed."""
        if self.is_closed:
            raise RuntimeError("this client is closed")

    @property
    def undo_s(self) -> float:
        """Seconds for giving back what nobody wants any longer; then it ends by itself."""
        return min(self.timeout_s, UNDO_S_MAX)

    async def _finish_all(self) -> None:
        """Wait for what runs by itself on this loop."""
        if not self._finishing:
            return
        loop = asyncio.get_running_loop()
        finishing = {task for task in self._finishing if task.get_loop() is loop and not task.done()}
        if finishing:
            await asyncio.wait(finishing, timeout=self.undo_s)

    async def call(self, operation: Operation[T], timeout_s: float | None = None) -> T:
        """Send one operation, and again until it has an outcome or the deadline has passed. Raises LockError.

        If the caller is cancelled, what the operation has given, or still will give, is undone.
        """
        self.refuse_closed()
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        may_wait = operation.stands_in_queue and self.clock is REAL
        turn = self.waits.enter(operation.names) if may_wait else None
        try:
            asked = self._ask_stream(operation, timeout_s)
            if asked is None:
                return await self.call_over_http(operation, timeout_s, turn)
            link, asking = asked
            try:
                return await self._outcome(link, asking, turn)
            except asyncio.CancelledError:
                if not link.withdraw(asking):
                    if operation.undo is None:
                        asking.is_wanted = False  # sent again it could come behind what its user does next
                    else:
                        await self.finish(self._undo_asked(link, asking))
                raise
        finally:
            if turn is not None:
                self.waits.leave(turn)

    async def complete(self, operation: Operation[T], timeout_s: float | None = None) -> T:
        """Do what `call` does, to its end also if the caller is cancelled: that comes afterwards."""
        self.refuse_closed()
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        asked = self._ask_stream(operation, timeout_s)
        if asked is None:
            return await self.finish(self.call_over_http(operation, timeout_s))
        link, asking = asked
        try:
            return await self._outcome(link, asking)
        except asyncio.CancelledError:
            await self._hear_out(self.begin(self._outcome(link, asking)))
            raise

    def _ask_stream(self, operation: Operation[T], timeout_s: float) -> "tuple[StreamLink, Asking[T]] | None":
        """Ask an operation over the stream, if there is one that takes it."""
        form = operation.numbered
        if form is None or self.streams is None or (link := self.streams.link()) is None:
            return None
        if operation.wait_ms and self.streams.is_contended(form.wanted):
            return None
        try:
            return link, link.begin(operation, form, self.clock.now_s(), timeout_s)
        except NotTaken:
            return None

    async def _outcome(self, link: StreamLink, asking: "Asking[T]", turn: Turn | None = None) -> T:
        """Return what an operation gives that was asked over a stream; what that did not do, HTTP does."""
        try:
            return await link.outcome(asking)
        except NotTaken as reason:
            if reason.has_to_wait and self.streams is not None and asking.operation.numbered is not None:
                self.streams.note_contended(asking.operation.numbered.wanted)
        except InDoubt:
            return await self._ask_again(asking)
        return await self.call_over_http(asking.operation, self._left_s(asking), turn)

    async def _ask_again(self, asking: "Asking[T]") -> T:
        """Ask over HTTP what may have been done under a number that nobody can ask for any more.

        Raises OutcomeUnknown for what must not be done twice.
        """
        form = asking.operation.numbered
        assert form is not None
        if form.is_once:
            raise OutcomeUnknown(_DOUBT)
        if form.prevent is not None:
            await self.finish(self._prevent(asking))
        try:
            return await self.call_over_http(
                asking.operation, self._left_s(asking), may_be_applied=form.prevent is None
            )
        except LeaseExpired as error:
            if form.ends_hold:
                raise OutcomeUnknown(f"{_DOUBT}: it is over, by this or by its lease") from error
            raise

    async def _prevent(self, asking: "Asking[Any]") -> None:
        """Leave nothing of what an operation may have given. Raises OutcomeUnknown."""
        form = asking.operation.numbered
        assert form is not None
        assert form.prevent is not None
        try:
            await self.call_over_http(form.prevent(), self._left_s(asking))
        except LeaseExpired:
            """There is nothing of it, or not any more."""
        except LockError as error:
            raise OutcomeUnknown(f"{_DOUBT}; last: {error}") from error

    def _left_s(self, asking: "Asking[Any]") -> float:
        return max(0.0, asking.deadline_s - self.clock.now_s())

    async def _undo_asked(self, link: StreamLink, asking: "Asking[Any]") -> None:
        """Take back what was asked over a stream by a caller that went away."""
        try:
            given = await link.outcome(asking)
        except NotTaken:
            return
        except InDoubt:
            await self._prevent_quietly(asking)
            return
        except LockError as error:
            if isinstance(error, OutcomeUnknown):
                _log.warning("not undone, ends by itself: path=%s error=%s", asking.operation.path, error)
            return
        await self._take_back(asking.operation, given)

    async def _prevent_quietly(self, asking: "Asking[Any]") -> None:
        try:
            await self._prevent(asking)
        except LockError as error:
            _log.warning("not undone, ends by itself: path=%s error=%s", asking.operation.path, error)

    def undo_late(self, operation: Operation[T], given: T) -> None:
        """Take back what came after its caller was told that nobody knows."""
        self.begin(self._take_back(operation, given))

    async def _take_back(self, operation: Operation[T], given: T) -> None:
        assert operation.undo is not None
        try:
            await self.call(operation.undo(given), self.undo_s)
        except LeaseExpired:
            """It has ended already: it may have been withdrawn while its grant was on its way."""
        except LockError as error:
            _log.warning("not undone, ends by itself: path=%s error=%s", operation.path, error)

    async def call_over_http(
        self,
        operation: Operation[T],
        timeout_s: float,
        turn: Turn | None = None,
        *,
        may_be_applied: bool = False,
    ) -> T:
        """Carry out an operation without a stream, in its `turn` if it has one. Raises LockError.

        It `may_be_applied` before, if it was asked over a stream.
        """
        _ = self.connections  # imported before the time of the operation begins to count
        work = Attempts(self, operation, timeout_s, turn, may_be_applied=may_be_applied)
        if operation.undo is None and not operation.stands_in_queue:
            return await work.run()
        task = asyncio.create_task(work.run())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await self.finish(self._undo(operation, work, task))
            raise

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Let something run by itself; closing waits for it."""
        task = asyncio.create_task(coroutine)
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)
        return task

    async def finish(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something to its end, also if the caller is cancelled meanwhile: that comes afterwards."""
        task = self.begin(coroutine)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            await self._hear_out(task)
            raise
        return task.result()

    @staticmethod
    async def _hear_out(task: "asyncio.Task[Any]") -> None:
        """Wait for something that nobody wants the result of, but not for ever."""
        await asyncio.wait({task}, timeout=PATIENCE_S)
        task.add_done_callback(_hear)

    async def _undo(self, operation: Operation[T], work: Attempts[T], task: "asyncio.Task[T]") -> None:
        """Take back an operation whose caller went away, whatever has become of it."""
        if not (work.is_doubtful or task.done()):
            work.stop()
            task.cancel()
        elif operation.stands_in_queue:
            # Most are granted at once, and a grant is better released than lost on its way.
            await asyncio.wait({task}, timeout=ANSWER_S)
            if not task.done():
                await self._withdraw(operation, task)
        try:
            given = await task
        except LockError as error:
            if work.is_doubtful and not operation.stands_in_queue:
                _log.warning("not undone, ends by itself: path=%s error=%s", operation.path, error)
            return
        except asyncio.CancelledError:
            return
        if operation.undo is not None:
            await self._take_back(operation, given)

    async def _withdraw(self, operation: Operation[T], task: "asyncio.Task[T]") -> None:
        """Have the cluster take back a request that waits, or what it was granted; then let go of its answer.

        One that has not arrived yet is waited for. One that arrives later still has nobody connected for it:
        it ends after the grace that nodes give.
        """
        try:
            if not await self.call_over_http(hold_operations.withdraw(operation), self.undo_s):
                await asyncio.wait({task}, timeout=LATE_S)
                if not task.done():
                    await self.call_over_http(hold_operations.withdraw(operation), self.undo_s)
        except LockError as error:
            _log.warning("not withdrawn, ends by itself: path=%s error=%s", operation.path, error)
        if not task.done():
            task.cancel()

    async def attempt(self, attempt: Attempt, sending: Sending) -> tuple[int, bytes]:
        """Make one attempt. Raises NoAnswer.

        A node that does not know the token is asked once more if the token's file has another one meanwhile.
        """
        self.refuse_closed()
        status, body = await self._send(attempt, sending)
        if status == UNAUTHENTICATED and self.reads_token_again():
            return await self._send(attempt, sending)
        return status, body

    def reads_token_again(self) -> bool:
        """Read the token again that a node does not know; return whether there is another one."""
        return self.access is not None and self.access.read_again()

    async def _send(self, attempt: Attempt, sending: Sending) -> tuple[int, bytes]:
        return await self.connections.send(self.nodes[attempt.node], attempt, sending)

    def stream(
        self, node: int, path: str, headers: dict[str, str], silence_s: float
    ) -> AsyncGenerator[tuple[int, bytes]]:
        """Ask a node for a stream; yield its status with each piece of its body. Raises NoAnswer."""
        self.refuse_closed()
        return self.connections.stream(self.nodes[node], path, headers, silence_s)


async def _give_up(kept: Sequence[Releasable]) -> None:
    """Let go of all of them at the same time."""
    await asyncio.gather(*(item.give_up() for item in kept))


def _hear(task: "asyncio.Task[Any]") -> None:
    """Log what came of something that nobody waits for any longer."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("not finished, ends by itself: error=%s", error)
