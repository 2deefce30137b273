"""One connection on which all waits of a client wait: calls on a stream of a node (docs/stream.md).

A program with thousands of tasks that wait has one connection, and asks the node every two seconds whether it
lives. When the connection breaks, every call is told so: asked again over the next one, on another node, each
goes on in its place.
"""

import asyncio
import contextlib
import itertools
import logging
from typing import TYPE_CHECKING, Final, Protocol

from holdfast import wire
from holdfast.operations.exchange import ATTEMPT_S_MAX, BORNE, Attempt, backoff_s
from holdfast.operations.sending import NoAnswer, NoStream, Sending
from holdfast.stream.stream_socket import NotNow, SessionOver, Sockets, drop, receive, send
from holdfast.wire.stream import (
    MSGPACK,
    VERSION,
    CallAnswered,
    Calls,
    Declined,
    Stopping,
    StreamCall,
    StreamHello,
    StreamPing,
    Welcome,
)

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse

_log = logging.getLogger("holdfast")

PING_S: Final = 2.0
"""Seconds between two questions whether the node lives. They also keep proxies from ending the connection."""
PING_S_MIN: Final = 0.1
"""Seconds between two such questions at least, behind a proxy that ends silent connections very early."""
SILENCE_S: Final = 2 * PING_S
"""Seconds without a word after which a node is taken to hang."""
SHORT_S: Final = 30.0
"""Seconds before whose end a connection breaks early; two in a row were cut for their silence."""
IDLE_S: Final = 10.0
"""Seconds without a call after which the connection is closed."""
CALLS_COUNT_MAX: Final = 10_000
"""Calls on the connection at once; a queue has no more places."""
MESSAGE_BYTES_MAX: Final = 128 * 1024
"""Bytes of one message, about: a node takes twice as many."""
MESSAGE_CALLS_MAX: Final = 1_024
"""Calls of one message, as many as a node takes."""
LASTING_S: Final = 1.0
"""Seconds that a connection has to last for its end to be no failure in a row of failures."""


class LinkUser(Protocol):
    """The client whose waits these are."""

    nodes: tuple[str, ...]
    node: int
    timeout_s: float

    @property
    def connections(self) -> Sockets:
        """The connections of the running loop."""
        ...

    def reads_token_again(self) -> bool:
        """Read the token again that a node does not know; return whether there is another one."""
        ...


class LinkLost(NoAnswer):
    """The connection of the waits has ended, `silent_s` after its node was heard; None if it never was."""

    def __init__(self, text: str, silent_s: float | None) -> None:
        super().__init__(text)
        self.silent_s = silent_s


class WaitLink:
    """The connection, made anew when it breaks as long as anybody waits. It belongs to one event loop."""

    def __init__(self, user: LinkUser) -> None:
        """Prepare it for the running loop; `start` connects it."""
        self.loop = asyncio.get_running_loop()
        self.is_refused = False
        """Whether no node gives such a connection: waits have to go another way."""
        self._user = user
        self.node = user.node
        """The index of the node that it is connected with, or tries."""
        self._share_s = min(ATTEMPT_S_MAX, user.timeout_s / max(2, len(user.nodes)))
        self._is_open = False
        self._numbers = itertools.count(1)
        self._calls: dict[int, asyncio.Future[tuple[int, bytes]]] = {}
        self._unsent: list[StreamCall] = []
        self._has_work = asyncio.Event()
        self._heard_s = self._asked_s = self._used_s = self.loop.time()
        self._ping_s = PING_S
        self._opened_s, self._short_count = 0.0, 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Connect."""
        self._task = self.loop.create_task(self._run())

    @property
    def has_ended(self) -> bool:
        """Whether it takes no more calls."""
        return self._task is None or self._task.done()

    @property
    def has_room(self) -> bool:
        """Whether it takes another call now."""
        return not self.has_ended and len(self._calls) < CALLS_COUNT_MAX

    async def close(self) -> None:
        """End the connection; what still waits is told so."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})

    def begin(self, attempt: Attempt, sending: Sending) -> "asyncio.Future[tuple[int, bytes]]":
        """Make a call, behind all that were made before; return the future of its status and body.

        It fails with NoAnswer. A call that nobody wants to hear of any longer has to be withdrawn by another.
        """
        number = next(self._numbers)
        future: asyncio.Future[tuple[int, bytes]] = self.loop.create_future()
        self._calls[number] = future
        future.add_done_callback(lambda _: self._calls.pop(number, None))
        self._unsent.append(StreamCall(number, attempt.path, attempt.body.decode()))
        sending.sent_count += 1
        self._used_s = self.loop.time()
        self._has_work.set()
        return future

    # -- the connection -------------------------------------------------------------------------------------

    async def _run(self) -> None:
        failures = refusals = 0
        try:
            while True:
                try:
                    await self._talk_at(self._user.nodes[self.node])
                except (SessionOver, ValueError, RecursionError) as error:
                    # What was said is wrong for a node, or is not what nodes say, and would be again.
                    self.is_refused = True
                    self._lose(error)
                    return
                except NoAnswer as error:
                    has_lasted = self._is_open and self.loop.time() - self._opened_s >= LASTING_S
                    failures = 1 if has_lasted else failures + 1
                    # A node that is down in between says nothing about what the others refuse.
                    refusals = (0 if self._is_open else refusals) + isinstance(error, NoStream | NotNow)
                    self._lose(error)
                    if isinstance(error, NoStream):
                        self._user.reads_token_again()
                else:
                    return
                if refusals >= len(self._user.nodes):
                    self.is_refused = True
                    return
                self.node = (self.node + 1) % len(self._user.nodes)
                await asyncio.sleep(backoff_s(failures, len(self._user.nodes), 1.0))
                if not self._calls and self._is_idle:
                    return
        finally:
            self._lose(NoAnswer("the connection of the waits has ended"))

    @property
    def _is_idle(self) -> bool:
        return not self._calls and self.loop.time() - self._used_s > IDLE_S

    def _lose(self, error: Exception) -> None:
        """Tell all calls that this connection will not answer them; what was not sent stays unsent."""
        _log.debug("the connection of the waits was lost: %s", error)
        silent_s = self.loop.time() - self._heard_s if self._is_open else None
        if silent_s is not None:
            self._note_end(silent_s)
        self._is_open = False
        self._unsent.clear()
        for future in list(self._calls.values()):
            if not future.done():
                future.set_exception(LinkLost(str(error), silent_s))

    def _note_end(self, silent_s: float) -> None:
        """Ask more often whether the node lives, if that keeps something on the way from losing patience."""
        is_short = self.loop.time() - self._opened_s < SHORT_S
        self._short_count = self._short_count + 1 if is_short else 0
        if self._short_count > 1:
            self._ping_s = max(PING_S_MIN, min(self._ping_s, BORNE * silent_s))

    async def _talk_at(self, url: str) -> None:
        """Talk to a node; return when nothing waits any more. Raises NoAnswer, SessionOver."""
        headers = {wire.HEADER_TIMEOUT_MS: str(int(self._share_s * 1000))}
        try:
            async with asyncio.timeout(self._share_s):
                socket = await self._user.connections.socket(url, wire.STREAM, headers, MSGPACK)
        except TimeoutError as error:
            raise NoAnswer(f"{url}: no stream in time") from error
        try:
            async with asyncio.timeout(self._share_s):
                await self._greet(socket)
            await self._talk(socket)
        except TimeoutError as error:
            raise NoAnswer(f"{url}: the node hangs") from error
        finally:
            await drop(socket)

    async def _greet(self, socket: "ClientWebSocketResponse") -> None:
        if socket.protocol != MSGPACK:
            raise NoStream("this is not a stream of a node")
        await send(socket, StreamHello(VERSION, "", 0, {}))
        message = await receive(socket)
        if isinstance(message, Declined):
            raise NotNow(f"{message.code}: {message.detail}", 0.0)
        if not isinstance(message, Welcome):
            raise NoStream("the first message is not a welcome")
        self._heard_s = self._opened_s = self.loop.time()
        self._is_open = True

    async def _talk(self, socket: "ClientWebSocketResponse") -> None:
        tasks = {self.loop.create_task(self._say(socket)), self.loop.create_task(self._hear(socket))}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error

    async def _say(self, socket: "ClientWebSocketResponse") -> None:
        """Send calls, all that were made in one turn of the loop in one message; ask whether the node lives.

        Returns when nobody has made a call for long. Raises NoAnswer; TimeoutError if the node reads nothing.
        """
        ping_at_s = self.loop.time() + self._ping_s
        while not self._is_idle:
            self._has_work.clear()
            while self._unsent:
                message = Calls(int(self._share_s * 1000), self._next_calls())
                async with asyncio.timeout(SILENCE_S):
                    await send(socket, message)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(ping_at_s):
                    await self._has_work.wait()
            now_s = self.loop.time()
            if now_s < ping_at_s:
                continue
            # A node that was not asked since it was heard does not hang: this loop stood still.
            if self._heard_s < self._asked_s and now_s - self._heard_s > SILENCE_S:
                raise NoAnswer("the node hangs")
            ping_at_s, self._asked_s = now_s + self._ping_s, now_s
            async with asyncio.timeout(SILENCE_S):
                await send(socket, StreamPing())

    def _next_calls(self) -> tuple[StreamCall, ...]:
        """Return the calls of the next message, without those that nobody waits for any longer."""
        taken: list[StreamCall] = []
        size = count = 0
        for call in self._unsent:
            size += len(call.body.encode())
            if taken and (size > MESSAGE_BYTES_MAX or len(taken) == MESSAGE_CALLS_MAX):
                break
            count += 1
            if call.number in self._calls:
                taken.append(call)
        del self._unsent[:count]
        return tuple(taken)

    async def _hear(self, socket: "ClientWebSocketResponse") -> None:
        """Hear what the node says. Raises NoAnswer, SessionOver."""
        while True:
            message = await receive(socket)
            self._heard_s = self.loop.time()
            if isinstance(message, CallAnswered):
                self._answered(message)
            elif isinstance(message, Stopping):
                raise NoAnswer("the node stops")

    def _answered(self, answer: CallAnswered) -> None:
        future = self._calls.get(answer.number)
        if future is not None and not future.done():
            future.set_result((answer.status, answer.body.encode()))
