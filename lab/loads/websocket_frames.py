"""Frames of a WebSocket, as far as a load needs them, by hand: a library would cost more than the node.

The mask is zero, which the protocol allows and nobody should use elsewhere.
"""

import base64
import os
import struct
from typing import Final, NamedTuple

BINARY, CLOSE, PING = 2, 8, 9
PONG: Final = 10
_MEDIUM, _LARGE = 126, 127
"""Lengths that stand for lengths of two and of eight bytes behind them (RFC 6455, section 5.2)."""
_HEAD_BYTES: Final = 2
_FINAL: Final = 0x80
_MASKED: Final = 0x80
_ZERO_MASK: Final = bytes(4)


class Frame(NamedTuple):
    """Where a frame is in what was received: its payload is from `begin` to `end`."""

    kind: int
    begin: int
    end: int


def upgrade(host: str, path: str, subprotocol: str) -> bytes:
    """Return the request that begins a WebSocket."""
    key = base64.b64encode(os.urandom(16)).decode()
    return (
        f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
        f"Sec-WebSocket-Protocol: {subprotocol}\r\n\r\n"
    ).encode()


def read(data: bytes, at: int) -> Frame | None:
    """Return the frame that begins at `at`, if all of it is there. Servers do not mask theirs."""
    begin = at + _HEAD_BYTES
    if len(data) < begin:
        return None
    size = data[at + 1]
    if size >= _MEDIUM:
        begin += 2 if size == _MEDIUM else 8
        if len(data) < begin:
            return None
        size = int.from_bytes(data[at + _HEAD_BYTES : begin], "big")
    if len(data) < begin + size:
        return None
    return Frame(data[at] & 0x0F, begin, begin + size)


def write(payload: bytes, kind: int = BINARY) -> bytes:
    """Return a frame of a client."""
    size = len(payload)
    if size < _MEDIUM:
        head = struct.pack("!BB", _FINAL | kind, _MASKED | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", _FINAL | kind, _MASKED | _MEDIUM, size)
    else:
        head = struct.pack("!BBQ", _FINAL | kind, _MASKED | _LARGE, size)
    return head + _ZERO_MASK + payload
