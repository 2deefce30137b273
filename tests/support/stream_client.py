"""A client of streams, written from docs/stream.md alone: sockets, frames of WebSockets, MessagePack.

It shares no code with the product, and knows no more of it than that page says.
"""

import asyncio
import base64
import contextlib
import os
import socket
import ssl
import struct
from types import TracebackType
from typing import Any, Self

import msgspec

ACQUIRE, RENEW, RELEASE, END_WAIT, PUT_CELL = 4, 6, 7, 72, 40
GRANTED, QUEUED, RENEWED, RELEASED, DONE, REFUSED = 4, 5, 6, 7, 10, 11


class Closed(Exception):
    """The node has closed the stream."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code, self.reason = code, reason


class Stream:
    """One connection, and what is to be known of its session to go on with another one."""

    def __init__(
        self, port: int, form: str = "msgpack", token: str = "", *, trust: ssl.SSLContext | None = None
    ) -> None:
        """Connect to this port, with TLS where there is a `trust`."""
        self._port, self._form, self._token, self._trust = port, form, token, trust
        self.session_id = ""
        self.last = 0
        self.next = 1
        self.welcome: list[Any] = []
        self.acked: list[tuple[int, int]] = []
        self._answers: dict[int, Any] = {}
        """The answers that came and were not asked for yet, by number."""
        self.pings = 0
        """How often the node has asked for a sign of life."""
        self.pongs: list[bytes] = []
        """What was in its answers to pings of the WebSocket."""

    async def __aenter__(self) -> Self:
        """Connect, and begin or resume the stream. If that fails, nothing is left open."""
        await self.connect()
        try:
            await self.greet()
        except BaseException:
            await self.drop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Drop the connection."""
        await self.drop()

    # -- the WebSocket --------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Shake hands (RFC 6455, section 4)."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._trust)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = (
            "GET /v1/stream HTTP/1.1",
            f"Host: 127.0.0.1:{self._port}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}",
            f"Sec-WebSocket-Protocol: holdfast.v1.{self._form}",
        )
        proof = (f"Authorization: Bearer {self._token}",) if self._token else ()
        self._writer.write("\r\n".join((*lines, *proof, "", "")).encode())
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except BaseException:
            await self.drop()
            raise
        assert head.startswith(b"HTTP/1.1 101 "), head
        assert f"holdfast.v1.{self._form}".encode() in head

    def send(self, message: Any) -> None:
        """Send a message in one masked frame."""
        self.send_bytes(self.framed(message))

    def framed(self, message: Any) -> bytes:
        """Return a message in one masked frame."""
        if self._form == "msgpack":
            return frame(2, msgspec.msgpack.encode(message))
        return frame(1, msgspec.json.encode(message))

    def send_frame(self, opcode: int, data: bytes) -> None:
        """Send one masked frame."""
        self.send_bytes(frame(opcode, data))

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are: at once, if nothing waits to be sent."""
        self._writer.write(data)

    async def receive(self) -> list[Any]:
        """Return the next message. Raises Closed."""
        while True:
            opcode, data = await self.receive_frame()
            if opcode == 9:
                self.pings += 1
                self.send_frame(10, data)
            elif opcode == 10:
                self.pongs.append(data)
            elif opcode == 8:
                raise Closed(int.from_bytes(data[:2], "big"), data[2:].decode())
            else:
                break
        decode = msgspec.msgpack.decode if opcode == 2 else msgspec.json.decode
        message: list[Any] = decode(data)
        return message

    async def receive_frame(self) -> tuple[int, bytes]:
        """Return the next frame: its opcode, and what is in it."""
        opcode, size = await self._reader.readexactly(2)
        opcode &= 0x0F
        if size == 126:
            (size,) = struct.unpack("!H", await self._reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self._reader.readexactly(8))
        return opcode, await self._reader.readexactly(size)

    async def receive_rest(self) -> bytes:
        """Return what comes until the node ends the connection."""
        return await self._reader.read()

    async def drop(self) -> None:
        """Close the connection without a word."""
        self._writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    def stop_reading(self, on_the_way_bytes: int = 4096) -> None:
        """Take nothing more of what the node says, and hardly anything on the way.

        With less than a packet on the way, it takes seconds to `read_on`.
        """
        way = self._writer.get_extra_info("socket")
        way.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, on_the_way_bytes)
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    def read_on(self) -> None:
        """Take what it says again."""
        self._writer.transport.resume_reading()  # type: ignore[attr-defined]

    async def drain(self) -> None:
        """Wait until the node takes more."""
        await self._writer.drain()

    # -- the protocol ---------------------------------------------------------------------------------------

    async def greet(self, ttl_ms: int = 60_000, labels: dict[str, str] | None = None) -> None:
        """Begin a session, or resume that of this object."""
        self.send([1, 1, self.session_id, ttl_ms, labels or {}])
        message = await self.receive()
        if message[0] == 4:
            await self.receive()
        assert message[0] == 1, message
        self.welcome = message
        self.session_id, self.last = message[1], message[2]
        self.next = max(self.next, self.last + 1)

    def ask(self, *commands: list[Any], first: int = 0, timeout_ms: int = 0) -> int:
        """Send commands under the next numbers, or from `first` on; return the first number."""
        first = first or self.next
        self.send([2, first, self.acked, timeout_ms, commands])
        self.acked = []
        self.next = max(self.next, first + len(commands))
        return first

    async def answer(self, number: int) -> Any:
        """Return the result of a number; `[4, ...]` if it was not taken. Numbers are not acknowledged."""
        while number not in self._answers:
            message = await self.receive()
            if message[0] == 2:
                self._answers.update(enumerate(message[3], message[1]))
            elif message[0] == 3:
                self._answers[message[1]] = message[3]
            elif message[0] == 4:
                self._answers[message[1]] = message
        return self._answers.pop(number)

    async def call(self, *command: Any) -> Any:
        """Ask one command, and return its result."""
        return await self.answer(self.ask(list(command)))

    async def acquire(self, name: str, wait_ms: int = 0) -> Any:
        """Acquire a lock for the session, and return the first answer."""
        return await self.call(*acquire(name, wait_ms))


def frame(opcode: int, data: bytes, *, is_final: bool = True, is_masked: bool = True) -> bytes:
    """Return a frame (RFC 6455, section 5.2); an `opcode` may have reserved bits above it."""
    size = len(data)
    first, mask_bit = (0x80 if is_final else 0) | opcode, 0x80 if is_masked else 0
    if size < 126:
        head = struct.pack("!BB", first, mask_bit | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", first, mask_bit | 126, size)
    else:
        head = struct.pack("!BBQ", first, mask_bit | 127, size)
    if not is_masked:
        return head + data
    mask = os.urandom(4)
    return head + mask + bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))


def acquire(name: str, wait_ms: int = 0, ttl_ms: int = 0) -> list[Any]:
    """Return the command that asks for a lock, for the session unless it has a lease of its own."""
    return [ACQUIRE, name, "exclusive", "", "", ttl_ms, "", wait_ms]
