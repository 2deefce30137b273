"""A connection in memory between two protocols, each on an event loop of its own."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Self

_EOF: Final = None
"""Stands among the pieces for the end of what the other side writes."""


class PipeEnd(asyncio.Transport):
    """One end. What is written here is received at the other one, in order, soon."""

    def __init__(self, loop: asyncio.AbstractEventLoop, address: str) -> None:
        super().__init__({"peername": (address, 0)})
        self._loop = loop
        self._protocol: asyncio.Protocol | None = None
        self._other: Self | None = None
        self._pieces: deque[bytes | None] = deque()
        self._is_closing = self._is_paused = self._has_written_eof = False

    def join(self, other: Self) -> None:
        """Make these two the ends of one connection."""
        self._other, other._other = other, self

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """Give it to a protocol. To be called on the loop of this end."""
        if self._is_closing:
            return  # by the other end, before this one has begun
        self.set_protocol(protocol)
        protocol.connection_made(self)

    # -- what arrives, on the loop of this end --------------------------------------------------------------

    def _post(self, call: Callable[..., object], *arguments: object) -> None:
        """Call this soon on the loop of this end, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there to receive it
            self._loop.call_soon_threadsafe(call, *arguments)

    def _receive(self, piece: bytes | None) -> None:
        self._pieces.append(piece)
        self._deliver()

    def _deliver(self) -> None:
        while self._pieces and not (self._is_paused or self._is_closing):
            piece = self._pieces.popleft()
            assert self._protocol is not None
            if piece is not _EOF:
                self._protocol.data_received(piece)
            elif not self._protocol.eof_received():
                self.close()

    def _end(self) -> None:
        """Close this end with the other one; what that wrote before counts, paused or not."""
        self._is_paused = False
        self._deliver()
        self.close()

    def _lose(self) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(None)

    # -- the contract of a transport ------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes to the other end. They are dropped when this one is closed."""
        if self._other is not None and data and not (self._is_closing or self._has_written_eof):
            self._other._post(self._other._receive, bytes(data))  # noqa: SLF001 - its own other end

    def write_eof(self) -> None:
        """Say that nothing more will be written here."""
        if self._other is not None and not (self._is_closing or self._has_written_eof):
            self._has_written_eof = True
            self._other._post(self._other._receive, _EOF)  # noqa: SLF001 - its own other end

    def can_write_eof(self) -> bool:
        """Return that one end can be closed alone."""
        return True

    def close(self) -> None:
        """Close both ends."""
        if self._is_closing:
            return
        self._is_closing = True
        self._post(self._lose)
        if self._other is not None:
            self._other._post(self._other._end)  # noqa: SLF001 - its own other end

    def abort(self) -> None:
        """Close both ends: there is nothing here that waits to be written."""
        self.close()

    def is_closing(self) -> bool:
        """Return whether it is closed."""
        return self._is_closing

    def pause_reading(self) -> None:
        """Keep what arrives."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Hand over what was kept."""
        self._is_paused = False
        self._post(self._deliver)

    def is_reading(self) -> bool:
        """Return whether what arrives is handed over."""
        return not (self._is_paused or self._is_closing)

    def get_write_buffer_size(self) -> int:
        """Return that nothing waits here."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: nothing ever waits here."""

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return whose connection it is."""
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        """Give the connection to another protocol."""
        self._protocol = protocol
