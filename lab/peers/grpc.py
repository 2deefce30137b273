"""A lean client of gRPC: unary calls over one HTTP/2 connection (RFC 9113), many at a time.

It is as lean as it may be because it knows its server: it never looks into headers. A call that ends with a
message has succeeded, one that ends without has failed, and only then the headers say why.
"""

import struct
from typing import Final

from lab.peers.closed_loop import Worker
from lab.peers.connection import Address, Answered, Connection

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD: Final = struct.Struct("!HBBBI")
"""Of a frame: length (in two parts), type, flags, stream."""
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_ACK = _END_STREAM = 1
_END_HEADERS: Final = 4
_INITIAL_WINDOW_SETTING: Final = 4
_WINDOW_FIRST: Final = 65_535
_WINDOW: Final = (1 << 31) - 1
"""Bytes that the server may send before it hears from us: as many as there can be."""
_MESSAGE_HEAD_BYTES: Final = 5


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return a frame."""
    size = len(payload)
    return _HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def head_of_call(address: Address, path: str) -> bytes:
    """Return the header block of a call: literals that enter no table, so each call has the same bytes."""

    def literal(text: str) -> bytes:
        assert len(text) < 1 << 7, "longer strings have longer lengths"
        return bytes([len(text)]) + text.encode()

    return (
        b"\x83\x86"  # :method POST, :scheme http: 3 and 6 of the static table (RFC 7541, appendix A)
         b"\x04" + literal(path)
        + b"\x01" + literal(address.netloc)
        + b"\x0f\x10" + literal("application/grpc")  # 31 of the static table
        + b"\x00" + literal("te") + literal("trailers")
    )  # fmt: skip


class Grpc(Connection):
    """One connection to one node."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: dict[int, tuple[Worker, Answered]] = {}
        self._messages: dict[int, bytes] = {}
        self._next_stream = 1
        self._may_send = _WINDOW_FIRST
        self._may_receive = _WINDOW
        self._held_back: list[tuple[Worker, bytes, bytes, Answered]] = []

    def greet(self) -> None:
        """Send the preface, and open our windows as wide as they go."""
        settings = struct.pack("!HI", _INITIAL_WINDOW_SETTING, _WINDOW)
        more = struct.pack("!I", _WINDOW - _WINDOW_FIRST)
        self.put(_PREFACE + frame(_SETTINGS, 0, 0, settings) + frame(_WINDOW_UPDATE, 0, 0, more))
        super().greet()

    def waiting(self) -> list[Worker]:
        """Return the workers that wait for an answer."""
        return [worker for worker, _ in self._calls.values()] + [call[0] for call in self._held_back]

    def ask(self, worker: Worker, head: bytes, message: bytes, answered: Answered) -> None:
        """Make a call; `answered` gets the message of its answer. Messages are short: one frame each."""
        size = len(message) + _MESSAGE_HEAD_BYTES
        if size > self._may_send:
            self._held_back.append((worker, head, message, answered))
            return
        self._may_send -= size
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        self._calls[stream] = worker, answered
        self.put(
            frame(_HEADERS, _END_HEADERS, stream, head)
            + frame(_DATA, _END_STREAM, stream, struct.pack("!BI", 0, len(message)) + message)
        )

    def take(self, data: bytes) -> int:
        """Read whole frames."""
        used = 0
        while len(data) >= used + _HEAD.size:
            high, low, kind, flags, stream = _HEAD.unpack_from(data, used)
            begin = used + _HEAD.size
            end = begin + (high << 8 | low)
            if len(data) < end:
                break
            used = end
            if kind == _DATA:
                self._messages[stream] = self._messages.get(stream, b"") + data[begin:end]
                self._received(end - begin)
            if kind in (_DATA, _HEADERS):
                if flags & _END_STREAM:
                    self._answered(stream, data[begin:end])
            else:
                self._control(kind, flags, stream, data[begin:end])
        return used

    def _answered(self, stream: int, last: bytes) -> None:
        worker, answered = self._calls.pop(stream)
        message = self._messages.pop(stream, None)
        if message is None:
            worker.failed(f"refused: {last.decode(errors='replace')}")
        else:
            answered(worker, message[_MESSAGE_HEAD_BYTES:])

    def _control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            self.put(frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self.put(frame(_PING, _ACK, 0, payload))
        elif kind == _WINDOW_UPDATE and stream == 0:
            self._may_send += int.from_bytes(payload, "big")
            held_back, self._held_back = self._held_back, []
            for call in held_back:
                self.ask(*call)
        elif kind == _RST_STREAM:
            worker, _ = self._calls.pop(stream)
            self._messages.pop(stream, None)
            worker.failed(f"reset: {int.from_bytes(payload, 'big')}")
        elif kind == _GOAWAY:
            for worker in self.waiting():
                worker.lost(f"the server goes away: {payload[8:].decode(errors='replace')}")

    def _received(self, size: int) -> None:
        """Open our window again when half of it is used. Those of calls are never used up."""
        self._may_receive -= size
        if self._may_receive < _WINDOW // 2:
            self.put(frame(_WINDOW_UPDATE, 0, 0, struct.pack("!I", _WINDOW - self._may_receive)))
            self._may_receive = _WINDOW
