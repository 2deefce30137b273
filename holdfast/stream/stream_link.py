"""The stream of a client on one event loop: its connection, made anew when it breaks, and the calls on it.

`stream_numbers.py` knows what is to be said. A call is answered by its result, or told that it was surely
not done (NotTaken), that nobody can say (InDoubt), or that its time is over (OutcomeUnknown).
"""

import asyncio
import itertools
import logging
import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from holdfast import wire
from holdfast.operations import hold_operations
from holdfast.operations.exchange import ATTEMPT_S_MAX, GRACE_S, backoff_s
from holdfast.operations.operation import NumberedForm, Operation
from holdfast.operations.sending import NoAnswer, NoStream
from holdfast.operations.stream_refusals import NotTaken
from holdfast.stream import stream_commands
from holdfast.stream.stream_calls import Asking, InDoubt, asking_of, read
from holdfast.stream.stream_numbers import StreamNumbers
from holdfast.stream.stream_socket import (
    BYE_S,
    REFUSED_PAUSE_S,
    NotKnown,
    NotNow,
    SessionOver,
    Sockets,
    drop,
    receive,
    send,
)
from holdfast.values.clock import Clock
from holdfast.values.errors import LockError, OutcomeUnknown, SessionExpired
from holdfast.wire.stream import MSGPACK, Bye, Declined, Results, Stopping, Welcome

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse

T = TypeVar("T")

_log = logging.getLogger("holdfast")

TTL_S: Final = 60.0
"""Seconds that the session of a stream outlives its connection. It holds nothing: each hold has its own lease
or the session that its user gave it."""
LABELS: Final = {"purpose": "stream of a client"}
"""What operators see of that session."""
IDLE_S: Final = 30.0
"""Seconds without a call after which a stream is closed, long before its session would end."""
TICK_S: Final = 0.1
"""Seconds between two looks at what has waited too long."""
LATE_S: Final = 1.0
"""Seconds between two looks after which the loop must have stood still."""
FAILED_PAUSE_S: Final = 2.0
"""Seconds before a stream is asked for again after one has failed."""


class StreamUser(Protocol):
    """The client whose stream it is, as far as the stream knows it."""

    nodes: tuple[str, ...]
    node: int
    timeout_s: float
    clock: Clock

    @property
    def connections(self) -> Sockets:
        """The connections of the running loop."""
        ...

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Let something run by itself; closing waits for it."""
        ...

    def reads_token_again(self) -> bool:
        """Read the token again that a node does not know; return whether there is another one."""
        ...

    async def call_over_http(self, operation: Operation[T], timeout_s: float) -> T:
        """Carry out an operation without the stream. Raises LockError."""
        ...

    def undo_late(self, operation: Operation[T], given: T) -> None:
        """Take back what came after its caller was told that nobody knows."""
        ...


class StreamLink:
    """One stream, over whatever nodes answer. It ends by itself when it is not used, or nobody answers."""

    def __init__(self, user: StreamUser) -> None:
        """Prepare it for the running loop; `start` connects it."""
        self.loop = asyncio.get_running_loop()
        self.is_ready = False
        """Whether there is a connection, and calls are taken."""
        self.was_of_use = False
        """Whether there ever was a result."""
        self.pause_s = FAILED_PAUSE_S
        """Seconds that nobody should ask for another one after this one has ended."""
        self._user = user
        self._clock = user.clock
        self._node = user.node
        self._share_s = min(ATTEMPT_S_MAX, user.timeout_s / max(2, len(user.nodes)))
        self._numbers = StreamNumbers()
        self._has_work = asyncio.Event()
        self._leaving: asyncio.Future[str] = self.loop.create_future()
        self._used_s = self._ticked_s = self.loop.time()
        self._is_closing = False
        self._has_answered = False
        """Whether this connection has brought a result: another one may be made at once when it breaks."""
        self._is_trusted = True
        """Whether the connection before this one has, or there was none: else this one has to, first."""
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, when_ended: Callable[["StreamLink"], None]) -> None:
        """Connect, and tell when it has ended."""
        self._task = self.loop.create_task(self._run())
        self._task.add_done_callback(lambda task: self._ended(task, when_ended))
        self._timer = self.loop.call_later(TICK_S, self._tick)

    def _ended(self, task: "asyncio.Task[None]", when_ended: Callable[["StreamLink"], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the stream has failed, calls go on over HTTP", exc_info=error)
            self.pause_s = REFUSED_PAUSE_S
        when_ended(self)

    async def close(self) -> None:
        """End the session, and the connection."""
        was_ready, self.is_ready, self._is_closing = self.is_ready, False, True
        if self._task is None or self._task.done():
            return
        if was_ready:
            self._leave_if_idle()
            await asyncio.wait({self._task}, timeout=3 * BYE_S)
        self._task.cancel()
        await asyncio.wait({self._task})

    # -- calls ----------------------------------------------------------------------------------------------

    def begin(
        self, operation: Operation[T], form: NumberedForm[T], now_s: float, timeout_s: float
    ) -> Asking[T]:
        """Ask something. Raises NotTaken when that is not possible here."""
        command = stream_commands.encoded(form.command)
        asking = Asking(command, operation, now_s, now_s + timeout_s, self.loop.create_future())
        self._numbers.ask(asking)
        self._has_work.set()
        return asking

    async def outcome(self, asking: Asking[T]) -> T:
        """Return what an operation gives. Raises Refused, OutcomeUnknown, NotTaken, InDoubt.

        Who is cancelled may ask again: the operation goes on, unless it is `withdrawn` before it was sent.
        """
        while asking.outcome is None:
            if asking.future.done():  # it was cancelled with the task that waited
                asking.future = self.loop.create_future()
            await asking.future
        if isinstance(asking.outcome, BaseException):
            raise asking.outcome
        return read(asking, asking.outcome)

    @staticmethod
    def withdraw(asking: Asking[Any]) -> bool:
        """Take back what was not sent yet; return whether that was in time."""
        if asking.was_sent or asking.outcome is not None:
            return False
        asking.tell(NotTaken("withdrawn"))
        return True

    # -- the connection -------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Keep a connection until the stream has come to its end."""
        has_ended = False
        try:
            await self._keep_connected()
        except SessionOver as over:
            has_ended, self.pause_s = over.has_ended, over.pause_s
            _log.debug("the session of the stream is over: %s", over)
        finally:
            self.is_ready = False
            self._tell_unsent("the stream has ended")
            sent = map(asking_of, self._numbers.take_unanswered())
            doubtful = [asking for asking in sent if asking.outcome is None]
            if has_ended or not doubtful:
                _tell_in_doubt(doubtful)
            else:
                ending = self._user.begin(self._end_session(doubtful))
                # Nobody else tells these any more: they are told also if it is interrupted before it begins.
                ending.add_done_callback(lambda _: _tell_unknown(doubtful, "interrupted"))

    async def _end_session(self, doubtful: "list[Asking[Any]]") -> None:
        """End a session that may live on: what is still on its way must not be done later."""
        timeout_s = max(asking.deadline_s for asking in doubtful) - self._clock.now_s()
        try:
            await self._user.call_over_http(
                hold_operations.close_session(self._numbers.session_id), max(0.0, timeout_s)
            )
        except SessionExpired:
            _tell_in_doubt(doubtful)
        except LockError as error:
            _tell_unknown(doubtful, str(error))
        else:
            _tell_in_doubt(doubtful)

    def _tell_unsent(self, why: str) -> None:
        for asking in map(asking_of, self._numbers.take_unsent()):
            asking.tell(NotTaken(why))

    async def _keep_connected(self) -> None:
        failures = 0
        while True:
            try:
                await self._talk_at(self._user.nodes[self._node])
            except NoAnswer as error:
                failures = 1 if self._has_answered else failures + 1
                self._is_trusted, self._has_answered = self._has_answered, False
                self.is_ready = False
                self.pause_s = _pause_s(error)
                if isinstance(error, NoStream | NotKnown):
                    self._user.reads_token_again()
                _log.debug("the stream has lost its node: %s", error)
            else:
                return
            self._tell_unsent("the stream is not connected")
            if self._is_closing or not any(asking.is_wanted for asking in self._numbers.unanswered):
                return
            self._node = (self._node + 1) % len(self._user.nodes)
            jitter = random.random()  # noqa: S311 - spreads load, not a secret
            await asyncio.sleep(backoff_s(failures, len(self._user.nodes), jitter))

    async def _talk_at(self, url: str) -> None:
        """Talk to a node; return when the stream is not needed any more. Raises NoAnswer, SessionOver."""
        headers = {wire.HEADER_TIMEOUT_MS: str(self._timeout_ms)}
        try:
            async with asyncio.timeout(self._share_s):
                socket = await self._user.connections.socket(url, wire.STREAM, headers, MSGPACK)
        except TimeoutError as error:
            raise NoAnswer(f"{url}: no stream in time") from error
        try:
            async with asyncio.timeout(self._share_s + GRACE_S):
                await self._greet(socket)
            await self._talk(socket)
        except asyncio.CancelledError:
            await drop(socket)
            raise
        except Exception as error:
            self._user.begin(drop(socket))  # a node that hangs must not keep us from the next one
            if isinstance(error, TimeoutError):
                raise NoAnswer(f"{url}: no welcome in time") from error
            raise
        await drop(socket)

    async def _greet(self, socket: "ClientWebSocketResponse") -> None:
        """Begin the stream, or go on with it."""
        if socket.protocol != MSGPACK:
            raise NoStream("this is not a stream of a node")
        await send(socket, self._numbers.hello(int(TTL_S * 1000), LABELS))
        message = await receive(socket)
        if isinstance(message, Declined):
            if message.code == "session-expired":
                raise SessionOver(message.code, has_ended=True)
            pause_s = max(FAILED_PAUSE_S, message.retry_after_ms / 1000)
            raise NotNow(f"{message.code}: {message.detail}", pause_s)
        if not isinstance(message, Welcome):
            raise NoStream("the first message is not a welcome")
        for again in self._numbers.welcomed(message, self._clock.now_s(), self._timeout_ms):
            await send(socket, again)
        if self._leaving.done():
            self._leaving = self.loop.create_future()
        self._used_s = self.loop.time()
        self.is_ready = self._is_trusted and not self._is_closing
        self._has_work.set()

    async def _talk(self, socket: "ClientWebSocketResponse") -> None:
        """Send and receive until one of the two fails, or it is time to leave."""
        tasks = {self.loop.create_task(self._send_all(socket)), self.loop.create_task(self._hear(socket))}
        try:
            ends: set[asyncio.Future[Any]] = {*tasks, self._leaving}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self._leaving.done() and self._leaving.result() == "bye":
                self.pause_s = 0.0
                await send(socket, Bye())
                return
        finally:
            for task in tasks:
                task.cancel()
            failures = [each for each in await asyncio.gather(*tasks, return_exceptions=True) if each]
        # What the node said counts for more than that it cannot be told anything.
        for kind in (SessionOver, Exception):
            for failure in failures:
                if isinstance(failure, kind):
                    raise failure
        raise NoAnswer("the node hangs")

    async def _send_all(self, socket: "ClientWebSocketResponse") -> None:
        """Send what is asked: all that was asked in one turn of the loop, in one message."""
        while True:
            self._has_work.clear()
            while (message := self._numbers.commands(self._clock.now_s(), self._timeout_ms)) is not None:
                self._used_s = self.loop.time()
                await send(socket, message)
            await self._has_work.wait()

    async def _hear(self, socket: "ClientWebSocketResponse") -> None:
        """Hear what the node says. Raises NoAnswer, SessionOver."""
        while True:
            message = await receive(socket)
            if isinstance(message, Results):
                for asked, result in self._numbers.answered(message):
                    self._tell(asking_of(asked), result)
                    self._note_answer()
            elif isinstance(message, Declined):
                self._refused(message)
            elif isinstance(message, Stopping):
                raise NoAnswer("the node stops")
            self._has_work.set()  # there may be room for more

    def _note_answer(self) -> None:
        """Trust this connection with new calls."""
        if not self._has_answered:
            self._has_answered = self.was_of_use = True
            self.is_ready = not (self._is_closing or self._leaving.done())

    def _refused(self, message: Declined) -> None:
        """Tell what was not taken. Raises NoAnswer when another connection has to be asked."""
        why = f"{message.code}: {message.detail}"
        if message.number == 0 or message.outcome != wire.NOT_APPLIED:
            return  # the node closes the stream, and the next connection tells
        not_taken = self._numbers.refused(message)
        if not_taken is None:
            raise NoAnswer(why)
        for asked in not_taken:
            self._tell(asking_of(asked), NotTaken(why))

    def _tell(self, asking: Asking[Any], outcome: Any) -> None:
        """Tell an operation what became of it; undo what it was given too late."""
        if asking.outcome is None:
            asking.tell(outcome)
        elif asking.operation.undo is not None and not isinstance(outcome, BaseException):
            # Its caller may not have been told yet, and must not be given what is undone here.
            try:
                given = read(asking, outcome)
            except (LockError, NotTaken):
                return
            self._user.undo_late(asking.operation, given)

    # -- time -----------------------------------------------------------------------------------------------

    @property
    def _timeout_ms(self) -> int:
        """How long a node may take for a message."""
        return min(max(int(self._share_s * 1000), wire.TIMEOUT_MS_MIN), wire.TIMEOUT_MS_MAX)

    def _tick(self) -> None:
        """End what has waited too long; leave a node that hangs, and a stream that is not used."""
        self._timer = self.loop.call_later(TICK_S, self._tick)
        late_s, self._ticked_s = self.loop.time() - self._ticked_s, self.loop.time()
        if late_s > LATE_S:
            return  # the loop stood still: what came meanwhile is to be heard first
        now_s = self._clock.now_s()
        for asked in itertools.chain(self._numbers.unanswered, self._numbers.unsent):
            asking = asking_of(asked)
            if asking.outcome is None and asking.deadline_s <= now_s:
                lost = OutcomeUnknown("no outcome before the deadline; last: no answer on the stream")
                asking.tell(lost if asking.was_sent else NotTaken("it was not sent in time"))
        oldest = next(iter(self._numbers.unanswered), None)
        is_hanging = oldest is not None and oldest.sent_at_s + self._share_s + GRACE_S < now_s
        if is_hanging:
            self._leave("hangs")
        elif self._is_closing or self._used_s + IDLE_S < self.loop.time():
            self._leave_if_idle()

    def _leave_if_idle(self) -> None:
        """End the stream unless something is on its way; nothing new is taken from here on."""
        if self._numbers.is_idle:
            self.is_ready = False
            self._leave("bye")

    def _leave(self, why: str) -> None:
        if not self._leaving.done():
            self._leaving.set_result(why)


def _tell_in_doubt(doubtful: "list[Asking[Any]]") -> None:
    for asking in doubtful:
        asking.tell(InDoubt())


def _tell_unknown(doubtful: "list[Asking[Any]]", last: str) -> None:
    for asking in doubtful:
        if asking.outcome is None:
            asking.tell(OutcomeUnknown(f"the stream broke, and its session may live on; last: {last}"))


def _pause_s(error: NoAnswer) -> float:
    """Return for how long a stream is not asked for after this."""
    match error:
        case NoStream():
            return REFUSED_PAUSE_S
        case NotNow():
            return error.pause_s
        case _:
            return FAILED_PAUSE_S
