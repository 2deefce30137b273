"""A lean connection of HTTP/1.1: one request under way, its answer handed to a method.

On a small machine the client competes with the nodes for the processor, so it does as little as it can: the
protocol object is the connection, and the callback with the answer writes the next request.
"""

import abc
import asyncio
from typing import Any, Final

OK: Final = b"200"
_END_OF_HEAD: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length:"
_STATUS: Final = slice(9, 12)


def get(host: str, path: str) -> bytes:
    """Return a whole request for a path."""
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


def head(host: str, path: str, method: str = "POST", token: str = "") -> bytes:
    """Return the head of a request with a body, up to the length of that."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json"]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    return "\r\n".join([*lines, "Content-Length: "]).encode()


class LeanHttp(asyncio.Protocol, abc.ABC):
    """A keep-alive connection. Every answer must have a Content-Length, as all of a node's but streams do."""

    def __init__(self) -> None:
        """Prepare, in the running loop."""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when nothing more will be asked."""
        self._buffer = b""
        self._transport: Any = None  # uvloop's transports do not derive from asyncio's

    @abc.abstractmethod
    def begin(self) -> None:
        """Make the first request: the connection is there."""

    @abc.abstractmethod
    def answered(self, status: bytes, body: bytes) -> None:
        """Act on an answer: make the next request, now or later, or `end`."""

    @abc.abstractmethod
    def lost(self, text: str) -> None:
        """Hear that the connection is gone before `end`."""

    def send(self, head: bytes, body: bytes) -> None:
        """Send a request with a body; `head` is as `head()` makes it."""
        self._transport.write(b"%b%d\r\n\r\n%b" % (head, len(body), body))

    def send_whole(self, request: bytes) -> None:
        """Send a request as it is."""
        self._transport.write(request)

    def end(self) -> None:
        """Ask nothing more."""
        if not self.ended.done():
            self.ended.set_result(None)
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = transport
        self.begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell, unless we closed the connection."""
        if not self.ended.done():
            self.lost(f"connection lost: {exc or 'closed by the node'}")
            self.ended.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Collect an answer, and hand it on once it is complete."""
        self._buffer = data = self._buffer + data if self._buffer else data
        end_of_head = data.find(_END_OF_HEAD)
        if end_of_head < 0:
            return
        head = data[:end_of_head].lower()
        length_at = head.find(_LENGTH)
        assert length_at >= 0, "the answer has no Content-Length"
        length = int(head[length_at + len(_LENGTH) :].split(b"\r\n", 1)[0])
        body_at = end_of_head + len(_END_OF_HEAD)
        if len(data) >= body_at + length:
            self._buffer = b""
            self.answered(data[_STATUS], data[body_at : body_at + length])
