"""TLS beneath a connection: what came is opened for the protocol above, what that writes is sealed.

The loops have TLS of their own, but a connection is hidden there until its handshake is over, and whoever
is refused does not hear why. Here a connection counts from its first moment on, and `ssl` has its last
word: an alert that says what is wrong. All that is secret or difficult is done by OpenSSL (`ssl.SSLObject`).
Nothing here waits: bytes come in by `shake` and `take`, and leave by the transport below.
"""

import asyncio
import contextlib
import ssl
from typing import Any, Final

_PIECE_BYTES: Final = 64 * 1024
"""Bytes that are asked of OpenSSL at once. It gives one record at most, which is smaller."""
_CHUNK_BYTES_MAX: Final = 256 * 1024
"""Bytes that the protocol above gets at once, as from a socket."""
_FED_BYTES: Final = 16 * 1024
"""Bytes that OpenSSL gets at once: with nothing but changes of keys in them they keep the loop for 20 ms."""
_SEAL_BYTES: Final = 22
"""Bytes of a record beside its content: its head, its type and its tag."""
_BESIDE_BYTES_MAX: Final = 48 * 1024
"""Bytes that may come beside data and seals on one connection: a record that is not whole, and a thousand
changes of keys, more than any library makes."""


class TlsTransport(asyncio.Transport):
    """The way from the protocol above down to the socket: what is written here leaves sealed."""

    def __init__(
        self,
        raw: asyncio.Transport,
        context: ssl.SSLContext,
        loop: asyncio.AbstractEventLoop,
        *,
        is_dialer: bool = False,
    ) -> None:
        """Begin nothing yet; `is_dialer` if this side has opened the connection, and speaks first."""
        super().__init__()
        self._raw = raw
        self._loop = loop
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=not is_dialer)
        self._protocol: asyncio.Protocol | None = None
        self._is_closing = self._is_paused = False
        self._beside_bytes = 0
        """Bytes that came since the handshake, without those of data and their seals."""
        self.is_begun = False

    # -- for the owner of the socket ------------------------------------------------------------------------

    def shake(self, data: bytes) -> bool:
        """Go on with the handshake; return whether it is complete.

        Raises ssl.SSLError; the other side has been told by an alert.
        """
        self.is_begun = True
        self._incoming.write(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            self._flush()
        return True

    def take(self, data: bytes) -> None:
        """Open what came, and hand it on.

        Raises ssl.SSLError when the other side has not sealed it, or sends little but changes of keys.
        """
        if len(data) <= _FED_BYTES:
            self._feed(data)
            return
        left = memoryview(data)
        while left:
            self._feed(left[:_FED_BYTES])
            left = left[_FED_BYTES:]

    def _feed(self, data: bytes | memoryview) -> None:
        self._beside_bytes += len(data)
        self._incoming.write(data)
        self._hand_on()
        if self._beside_bytes - self._incoming.pending > _BESIDE_BYTES_MAX:
            raise ssl.SSLError("it sends little but changes of keys")

    def _hand_on(self) -> None:
        """Give the protocol what is there, as long as it takes it."""
        protocol = self._protocol
        while protocol is not None and self._has_more() and not self._is_paused and not self.is_closing():
            chunk, is_over = self._opened()
            if chunk:
                protocol.data_received(chunk)
            if is_over:
                self.close()
            if not chunk:
                break
        # A change of keys that the other side asks for has an answer.
        self._flush()

    def _has_more(self) -> bool:
        """Whether OpenSSL may have anything to give: to ask in vain costs as much as to open what came."""
        return self._incoming.pending > 0 or self._tls.pending() > 0

    def _opened(self) -> tuple[bytes, bool]:
        """Return what can be opened now, and whether the other side sends nothing more."""
        pieces: list[bytes] = []
        size = 0
        with contextlib.suppress(ssl.SSLWantReadError):  # the rest of a record is still to come
            while size < _CHUNK_BYTES_MAX and self._has_more():
                piece = self._tls.read(_PIECE_BYTES)
                if not piece:
                    return b"".join(pieces), True
                pieces.append(piece)
                size += len(piece)
                self._beside_bytes -= len(piece) + _SEAL_BYTES
        return pieces[0] if len(pieces) == 1 else b"".join(pieces), False

    def _flush(self) -> None:
        """Send what OpenSSL has to say."""
        if self._outgoing.pending and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())

    # -- asyncio.Transport ----------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Seal and send. Nothing is sent any more once this is closing.

        Raises nothing: who writes often serves others, too, and can do nothing about this connection.
        """
        if self.is_closing():
            return
        left = memoryview(data)
        try:
            while left:
                left = left[self._tls.write(left) :]
        except ssl.SSLError:
            # While the other side has begun to say that it changes its keys, and not ended, OpenSSL writes
            # nothing. No library says that in pieces.
            self.abort()
            return
        self._flush()

    def close(self) -> None:
        """Say that nothing more follows, and close when all is sent."""
        if self._is_closing:
            return
        self._is_closing = True
        # It writes that this side is done; that the other side is, nobody waits for.
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        self._flush()
        self._raw.close()

    def abort(self) -> None:
        """Close at once."""
        self._is_closing = True
        self._raw.abort()

    def is_closing(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._is_closing or self._raw.is_closing()

    def pause_reading(self) -> None:
        """Hand nothing on, and take nothing from the socket."""
        self._is_paused = True
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Go on with what has come already, soon, and with the socket."""
        if self._is_paused:
            self._is_paused = False
            self._loop.call_soon(self._go_on)
            self._raw.resume_reading()

    def _go_on(self) -> None:
        try:
            self._hand_on()
        except ssl.SSLError:
            self.abort()

    def is_reading(self) -> bool:
        """Whether what comes is handed on."""
        return not self._is_paused and self._raw.is_reading()

    def can_write_eof(self) -> bool:
        """Return False: TLS cannot end one direction alone."""
        return False

    def get_write_buffer_size(self) -> int:
        """Return how many sealed bytes wait for the other side."""
        return self._raw.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the limits of the socket's buffer."""
        return self._raw.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits of the socket's buffer."""
        self._raw.set_write_buffer_limits(high, low)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol above."""
        assert self._protocol is not None, "there is none before the handshake is complete"
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand what comes to this protocol from now on."""
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the socket says of itself, or `ssl_object`."""
        return self._tls if name == "ssl_object" else self._raw.get_extra_info(name, default)
