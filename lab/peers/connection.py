"""What the lean clients of all protocols have in common: a connection that reads and writes in batches."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from lab.peers.closed_loop import Worker

Answered = Callable[[Worker, bytes], None]
"""What a client does with an answer, or a part of it."""


class Address(NamedTuple):
    """Where a node listens."""

    host: str
    port: int

    @property
    def netloc(self) -> str:
        """The address in one string."""
        return f"{self.host}:{self.port}"


class Connection(asyncio.Protocol):
    """A connection. What is asked while answers are read goes out as one write.

    Subclasses read answers in `take`. Where answers come in the order of requests, `due` says whose is next.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        """Done when requests may be made; has an exception when that failed."""
        self.due: deque[tuple[Worker, Answered]] = deque()
        self._out: list[bytes] = []
        self._buffer = b""
        self._is_reading = False
        self._is_closing = False
        self._transport: Any = None  # uvloop's transports do not derive from asyncio's

    @classmethod
    async def open(cls, address: Address, *args: Any) -> Self:
        """Connect, and wait until requests may be made. Raises OSError."""
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: cls(*args), address.host, address.port)
        await connection.ready
        return connection

    def take(self, data: bytes) -> int:
        """Act on the whole answers at the front of `data`; return how many bytes they are."""
        raise NotImplementedError

    def greet(self) -> None:
        """Send what goes before the first request. What needs no greeting is ready at once."""
        self.ready.set_result(None)

    def waiting(self) -> list[Worker]:
        """Return the workers that wait for an answer."""
        return [worker for worker, _ in self.due]

    def put(self, data: bytes) -> None:
        """Send `data`: at once, or after what is being read."""
        if self._is_reading:
            self._out.append(data)
        else:
            self._transport.write(data)

    def close(self) -> None:
        """End the connection."""
        self._is_closing = True
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = transport
        self.greet()

    def data_received(self, data: bytes) -> None:
        """Read answers; then write what was asked because of them."""
        self._buffer = data = self._buffer + data if self._buffer else data
        self._is_reading = True
        try:
            used = self.take(data)
        finally:
            self._is_reading = False
        self._buffer = data[used:]
        if self._out:
            self._transport.write(self._out[0] if len(self._out) == 1 else b"".join(self._out))
            self._out.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who waits; that is an error unless we closed the connection."""
        text = f"connection lost: {exc or 'closed by the node'}"
        if not self.ready.done():
            self.ready.set_exception(ConnectionError(text))
        if not self._is_closing:
            for worker in self.waiting():
                worker.lost(text)
