"""The connection of a stream: messages in frames of a WebSocket, and what its end means (docs/stream.md)."""

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from holdfast.operations.sending import NoAnswer, NoStream
from holdfast.stream.stream_messages import Heard, heard

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse

_log = logging.getLogger("holdfast")

BYE_S: Final = 1.0
"""Seconds that the end of a connection may take."""
REFUSED_PAUSE_S: Final = 60.0
"""Seconds before a stream is asked for again where there was none: an older node, a proxy in between."""

_EXPIRED: Final = 4001
_UNAUTHENTICATED: Final = 4007
_OUR_MISTAKES: Final = frozenset({4000, 4003})
"""Codes with which a node closes a stream that would fail again, whoever resumes it."""

_encode: Final = msgspec.msgpack.Encoder().encode


class Sockets(Protocol):
    """What opens the connection of a stream: the connections of a transport."""

    async def socket(
        self, url: str, path: str, headers: dict[str, str], protocol: str
    ) -> "ClientWebSocketResponse":
        """Connect a WebSocket to a node. Raises NoAnswer, and NoStream when something else answers there."""
        ...


class NotNow(NoAnswer):
    """A node has a stream, and does not give it now: nobody should ask again before `pause_s` are over."""

    def __init__(self, text: str, pause_s: float) -> None:
        super().__init__(text)
        self.pause_s = pause_s


class NotKnown(NoAnswer):
    """The token does not count any more; its file may have another one."""


class SessionOver(Exception):
    """The session has ended, or its stream can never go on.

    Unless it `has_ended`, what it was sent may still be done. Even if it has, nobody knows what was done
    before: a node may hear of the end first, and of an answer later. For `pause_s` nobody should begin
    another stream.
    """

    def __init__(self, text: str, *, has_ended: bool = False, pause_s: float = 0.0) -> None:
        super().__init__(text)
        self.has_ended, self.pause_s = has_ended, pause_s


async def send(socket: "ClientWebSocketResponse", message: msgspec.Struct) -> None:
    """Send one message. Raises NoAnswer."""
    try:
        await socket.send_bytes(_encode(message))
    except (ConnectionError, OSError) as error:
        raise NoAnswer(f"the connection broke: {error}") from error


async def receive(socket: "ClientWebSocketResponse") -> Heard:
    """Return the next message that this client knows. Raises NoAnswer, SessionOver, ValueError."""
    received = await socket.receive()
    while isinstance(data := received.data, bytes):
        try:
            message = heard(data)
        except msgspec.DecodeError as error:
            raise NoStream(f"not a message of a node: {error}") from error
        if message is not None:
            return message
        received = await socket.receive()
    code, text = socket.close_code, f"closed: {socket.close_code} {received.extra or ''}"
    if code in _OUR_MISTAKES:
        _log.error("a node refuses our stream, calls go on over HTTP: %s", text)
        raise SessionOver(text, pause_s=REFUSED_PAUSE_S)
    if code == _EXPIRED:
        raise SessionOver(text, has_ended=True)
    raise NotKnown(text) if code == _UNAUTHENTICATED else NoAnswer(text)


async def drop(socket: "ClientWebSocketResponse") -> None:
    """Close a connection, whose other side may not listen any more."""
    try:
        async with asyncio.timeout(BYE_S):
            await socket.close()
    except TimeoutError as error:
        _log.debug("the connection of a stream was dropped: %s", error)
