"""What makes a link one that nobody can speak into: each record of a stream carries a MAC. Pure.

A record is a length (4 bytes, big-endian), a MAC (16 bytes), and so many bytes of the stream. The MAC is
keyed BLAKE2b over the record's number, its length and its content. The number is not on the wire: both
sides count. Each direction of each connection has a key of its own, so a record that is changed, left out,
repeated, in another place, of another connection, or sent back has a wrong MAC, and ends the link.

Records have nothing to do with frames: all frames that are written at once share one record, and a long frame
takes several. A receiver keeps at most one record that is not proven yet, whatever length somebody in between
writes into it; lengths of frames are believed only when they stand in a record that is. All that somebody in
between can do is to hold back bytes, or to end the connection.

BLAKE2b and not HMAC with SHA-256: 0.8 us instead of 3.4 for a heartbeat, 75 us instead of 130 for 50 kB.
"""

import hashlib
import hmac
import struct
from collections.abc import Iterable, Iterator
from typing import Final, NoReturn

KEY_BYTES: Final = 32
"""Bytes of the key of one direction."""
MAC_BYTES: Final = 16
"""Bytes of a MAC: who guesses is right once in 2^128 times, and has one guess for each connection."""
RECORD_BYTES_MAX: Final = 64 << 10
"""Bytes of the stream in one record. What is not proven waits in memory, and a link counts as silent until
a record is whole; 64 KiB take less than a second on any path that serves a cluster."""

_HEADER: Final = struct.Struct(f">I{MAC_BYTES}s")
_HEADER_BYTES: Final = _HEADER.size
_header: Final = _HEADER.pack
_parted: Final = _HEADER.unpack_from
_numbered: Final = struct.Struct(">QI").pack


class SealBroken(Exception):
    """A record is not what the peer sent next: somebody changed, added, left out or repeated bytes."""


class _Direction:
    """One direction of one connection: its key, and how many records there were."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self._keyed = hashlib.blake2b(key=key, digest_size=MAC_BYTES).copy
        self._count = 0

    def _next_mac(self, content: bytes | memoryview) -> bytes:
        """Return the MAC of the next record."""
        mac = self._keyed()
        mac.update(_numbered(self._count, len(content)) + content)
        self._count += 1
        return mac.digest()


class Sealer(_Direction):
    """Makes records of what is sent."""

    def seal(self, data: bytes) -> bytes:
        """Return the next bytes of the stream as records."""
        if len(data) <= RECORD_BYTES_MAX:
            return _header(len(data), self._next_mac(data)) + data
        parts: list[bytes | memoryview] = []
        view = memoryview(data)
        for start in range(0, len(view), RECORD_BYTES_MAX):
            content = view[start : start + RECORD_BYTES_MAX]
            parts += (_header(len(content), self._next_mac(content)), content)
        return b"".join(parts)


class Opener(_Direction):
    """Takes records apart, and hands on only what is proven."""

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self._waiting = b""

    def open(self, data: bytes) -> Iterable[bytes]:
        """Return the content of each whole record, one after the other, as soon as it is proven.

        Raises SealBroken; whatever comes behind that is not looked at, and the connection is over.
        """
        if self._waiting or len(data) <= _HEADER_BYTES:
            return self._open_parts(data)
        # Mostly it is one whole record, and nothing waits.
        length, mac = _parted(data)
        if length != len(data) - _HEADER_BYTES or length > RECORD_BYTES_MAX:
            return self._open_parts(data)
        content = data[_HEADER_BYTES:]
        if not hmac.compare_digest(mac, self._next_mac(content)):
            self._refuse()
        return (content,)

    def _refuse(self) -> NoReturn:
        """Let the record not in that is not proven."""
        raise SealBroken(f"record {self._count - 1} has a wrong MAC")

    def _open_parts(self, data: bytes) -> Iterator[bytes]:
        """Yield what is whole, and keep the rest for later."""
        waiting = self._waiting + data
        end, size_bytes = 0, len(waiting)
        while size_bytes - end >= _HEADER_BYTES:
            start = end + _HEADER_BYTES
            length, mac = _parted(waiting, end)
            if not 0 < length <= RECORD_BYTES_MAX:
                raise SealBroken(f"a record of {length} bytes")
            if size_bytes - start < length:
                break
            end = start + length
            content = waiting[start:end]
            if not hmac.compare_digest(mac, self._next_mac(content)):
                self._refuse()
            yield content
        self._waiting = waiting[end:]
