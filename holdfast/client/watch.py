"""What happens in the cluster, one event after the other, over however many connections that takes."""

import asyncio
import random
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlencode

import msgspec

from holdfast import wire
from holdfast.client.sse import Parser, SseBlock
from holdfast.operations import exchange
from holdfast.operations.operation import path_to
from holdfast.operations.sending import NoAnswer, NoTrust
from holdfast.transport.transport import UNAUTHENTICATED, Transport
from holdfast.values.answers import Event
from holdfast.values.clock import now_s
from holdfast.values.errors import OutcomeUnknown, SessionExpired, TlsRefused, Unavailable, refusal

SILENCE_S: Final = 25.0
"""Seconds without a byte after which a stream is dead: a node shows every ten that it lives."""
_OK: Final = 200
SESSION_ENDS: Final = ("session-expired", "session-forced")
"""The events that a session which its client does not close ends with."""


class Watch:
    """An iterator of events, each once, in order. When a node ends the stream, it continues at another one.

    It raises Compacted when events after its start are gone, and Unavailable when no node gives a stream
    within the client's timeout. Pass `last_id` to another watch to miss nothing.
    """

    _path = wire.WATCH

    def __init__(self, transport: Transport, prefix: str, since: str | int | None = None) -> None:
        self._transport = transport
        self._prefix = prefix
        self._since = since
        self._reached_id = ""
        self._node = transport.node
        self._parser = Parser()
        self._stream: AsyncGenerator[tuple[int, bytes]] | None = None
        self._blocks: list[SseBlock] = []
        self._failed_since_s: float | None = None
        self._failures = 0
        self._untrusted: set[int] = set()
        self.patience_s = transport.timeout_s
        """Seconds for which nodes are asked for a stream before that is given up."""

    @property
    def last_id(self) -> str:
        """Where the iteration is: to be given as `since`. Empty until the watch has begun."""
        return self._reached_id

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the stream. Iterating again goes on where it was."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.aclose()

    def __aiter__(self) -> Self:
        return self

    def skip(self, count: int) -> None:
        """Begin at another node than the client asks now: at one that is so many places behind it."""
        self._node = (self._node + count) % len(self._transport.nodes)

    async def begin(self) -> None:
        """Wait until the watch has begun: from then on it misses nothing."""
        while not self._parser.last_id:
            await self._receive()

    async def __anext__(self) -> Event:
        while True:
            while not self._blocks:
                await self._receive()
            block = self._blocks.pop(0)
            self._reached_id = block.id
            if block.event == "cut":
                await self._leave(f"the node has ended the stream: {block.data}")
            elif block.data:
                return _event(block)

    async def _receive(self) -> None:
        """Wait for the next piece of the stream, which is opened if it is not."""
        if self._stream is None:
            self._stream = self._open()
        try:
            status, piece = await anext(self._stream)
        except StopAsyncIteration:
            await self._leave("the stream has ended")
            return
        except NoAnswer as error:
            if isinstance(error, NoTrust):
                await self._distrust(str(error))
            await self._leave(str(error))
            return
        except BaseException:
            # Cancelled within the stream, which has ended by that: the next call opens another one.
            self._stream = None
            raise
        if status != _OK:
            await self._refused(status, piece)
        elif piece:
            self._failed_since_s, self._failures = None, 0
            self._untrusted.clear()
            self._blocks += self._parser.feed(piece)

    def _open(self) -> AsyncGenerator[tuple[int, bytes]]:
        query = {"prefix": self._prefix} if self._prefix else {}
        headers = {"Accept": "text/event-stream"}
        if self._parser.last_id:
            headers["Last-Event-ID"] = self._parser.last_id
        elif self._since is not None:
            query["since"] = str(self._since)
        self._parser = Parser(self._parser.last_id)
        path = f"{self._path}?{urlencode(query)}" if query else self._path
        return self._transport.stream(self._node, path, headers, SILENCE_S)

    async def _refused(self, status: int, piece: bytes) -> None:
        """Handle a problem document in place of a stream. Raises Refused when no node helps."""
        body = piece
        assert self._stream is not None
        try:
            async for _, more in self._stream:
                body += more
        except NoAnswer:
            body = b""
        code, detail, is_final, document = exchange.judge(status, body)
        if status == UNAUTHENTICATED and self._transport.reads_token_again():
            await self.close()
            return
        if is_final:
            await self.close()
            raise refusal(code, detail, document)
        await self._leave(detail)

    async def _distrust(self, why: str) -> None:
        """Note a node with which TLS fails. Raises TlsRefused when there is no other."""
        self._untrusted.add(self._node)
        if len(self._untrusted) == len(self._transport.nodes):
            await self.close()
            raise TlsRefused(why)

    async def _leave(self, why: str) -> None:
        """Turn to the next node, after a while if all have failed. Raises Unavailable."""
        await self.close()
        at_s = now_s()
        if self._failed_since_s is None:
            self._failed_since_s = at_s
        if at_s - self._failed_since_s > self.patience_s:
            raise Unavailable(f"no node gives a stream; last: {why}")
        self._node = (self._node + 1) % len(self._transport.nodes)
        self._failures += 1
        jitter = random.random()  # noqa: S311 - spreads load, not a secret
        await asyncio.sleep(exchange.backoff_s(self._failures, len(self._transport.nodes), jitter))


class SessionWatch(Watch):
    """A watch of one session. The iteration ends when the session is over.

    It raises SessionExpired when the session was over before it began.
    """

    def __init__(self, transport: Transport, session_id: str, since: str | int | None = None) -> None:
        super().__init__(transport, "", since)
        self._path = path_to(wire.SESSION_WATCH, session_id)
        self._is_over = False

    async def __anext__(self) -> Event:
        if self._is_over:
            raise StopAsyncIteration
        try:
            event = await super().__anext__()
        except SessionExpired:
            if not self._parser.last_id:
                raise
            self._is_over = True
            raise StopAsyncIteration from None
        if event.event in SESSION_ENDS:
            self._is_over = True
            await self.close()
        return event


def _event(block: SseBlock) -> Event:
    """Return the event of a block."""
    try:
        event = msgspec.json.decode(block.data, type=Event)
    except msgspec.DecodeError as error:
        raise OutcomeUnknown(f"the stream does not come from a Holdfast node: {error}") from error
    return msgspec.structs.replace(event, id=block.id)
