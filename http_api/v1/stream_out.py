"""What a node says on a stream: messages in order, and no faster than the client reads them."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from aiohttp import WSMsgType

from holdfast.wire.stream import JSON, MSGPACK, Results, ToClient
from lockapi.requests.stream import decode_binary, decode_text
from lockstate.words.refusals import Refused
from lockstate.words.results import Transacted

UNREAD_BYTES_MAX: Final = 1 << 20
"""Bytes of answers that may wait for the client before nothing more is read of what it sends."""
UNREAD_BYTES_LIMIT: Final = 16 * UNREAD_BYTES_MAX
"""Bytes of answers with which a stream ends: thousands of calls may get theirs while nothing is read."""
UNREAD_S: Final = 10.0
"""Seconds that it has to read some of them."""
PIECE_COUNT: Final = 32
"""Results in one message to the client, if they may be long: what was read, or who was in the way."""

_LONG: Final = frozenset({Refused, Transacted})
"""The classes of results that may be much longer than what was asked for."""

_BINARY_HEAD: Final = 0x82
_TEXT_HEAD: Final = 0x81
_PONG_HEAD: Final = 0x8A
_SHORT_MAX: Final = 125
_MEDIUM_MAX: Final = 0xFFFF


class Form(NamedTuple):
    """How one subprotocol encodes messages."""

    kind: WSMsgType
    head: int
    encode: Any
    decode: Any


FORMS: Final[Mapping[str, Form]] = {
    MSGPACK: Form(WSMsgType.BINARY, _BINARY_HEAD, msgspec.msgpack.Encoder().encode, decode_binary),
    JSON: Form(WSMsgType.TEXT, _TEXT_HEAD, msgspec.json.Encoder().encode, decode_text),
}


class SlowReader(Exception):
    """The client has not read its answers in time."""


class Out:
    """The way to one client. `fall_behind` is called if it does not read what is said piece by piece."""

    def __init__(
        self,
        form: Form,
        transport: asyncio.Transport | None,
        drain: Callable[[], Awaitable[None]],
        fall_behind: Callable[[], None],
    ) -> None:
        """`transport` is None if the client has gone already; `drain` returns when much of it was read."""
        self._form, self._transport = form, transport
        self._drain, self._fall_behind = drain, fall_behind
        self._later: deque[ToClient] = deque()
        """What is to be said as soon as the client has read what was said before."""
        self._teller: asyncio.Task[None] | None = None

    def say(self, message: ToClient) -> None:
        """Send one message, behind those that are to be said before."""
        if self._later:
            self._later.append(message)
        else:
            self._say_now(message)

    def say_results(self, first: int, revision: int, results: Sequence[Any]) -> None:
        """Send the results of a message: in pieces, as the client reads them, if they may be long.

        What asks for little may be answered with much, and all of it at once would be memory of this node.
        """
        if len(results) <= PIECE_COUNT or _LONG.isdisjoint(map(type, results)):
            self.say(Results(first, revision, tuple(results)))
            return
        for begin in range(0, len(results), PIECE_COUNT):
            piece = tuple(results[begin : begin + PIECE_COUNT])
            self._later.append(Results(first + begin, revision, piece))
        if self._teller is None or self._teller.done():
            self._teller = asyncio.ensure_future(self._say_later())

    async def _say_later(self) -> None:
        while self._later:
            try:
                async with asyncio.timeout(UNREAD_S):
                    await self._drain()
            except TimeoutError:
                self._fall_behind()
                return
            except ConnectionError:
                return
            self._say_now(self._later.popleft())

    def _say_now(self, message: ToClient) -> None:
        """Send one message: unmasked, in one frame (RFC 6455, section 5.2)."""
        data = self._form.encode(message)
        size = len(data)
        if size <= _SHORT_MAX:
            head = bytes((self._form.head, size))
        elif size <= _MEDIUM_MAX:
            head = bytes((self._form.head, 126)) + size.to_bytes(2, "big")
        else:
            head = bytes((self._form.head, 127)) + size.to_bytes(8, "big")
        self._write(head + data)

    def pong(self, data: bytes) -> None:
        """Answer a ping of the WebSocket, which has 125 bytes at most."""
        self._write(bytes((_PONG_HEAD, len(data))) + data)

    def _write(self, frame: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > UNREAD_BYTES_LIMIT:
            self._fall_behind()
        else:
            self._transport.write(frame)

    @property
    def is_full(self) -> bool:
        """Whether more waits for the client than it may leave unread."""
        return self._transport is not None and self._transport.get_write_buffer_size() > UNREAD_BYTES_MAX

    async def until_read(self) -> None:
        """Return when there is room for answers. Raises SlowReader."""
        if self._later and self._teller is not None:
            await asyncio.wait([self._teller])
        if not self.is_full:
            return
        try:
            async with asyncio.timeout(UNREAD_S):
                await self._drain()
        except TimeoutError:
            raise SlowReader from None

    def finish(self) -> None:
        """Say what is to be said yet, as far as there is room: why the stream ends is the last of it."""
        if self._teller is not None:
            self._teller.cancel()
        while self._later and not self.is_full:
            self._say_now(self._later.popleft())
