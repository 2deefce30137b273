"""The load over a stream: many workers that cycle acquire and release, all on one connection.

As lean as the load over HTTP: what workers ask in one turn of the loop goes as one message, and the frames of
the WebSocket are made by hand.
"""

import asyncio
import itertools
import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from lab.loads import websocket_frames
from lab.loads.load import TTL_MS, Tally

_ACQUIRE, _RELEASE = 4, 7
_GRANTED, _RELEASED = 4, 7
_WELCOME, _RESULTS, _REFUSED = 1, 2, 4
_UPGRADE_PENDING: Final = "upgrade-pending"
_WINDOW: Final = 1_024


class UpgradePending(Exception):
    """The nodes do not know streams yet: they have been started just now."""


class StreamLoad(asyncio.Protocol):
    """One stream, and its workers: each cycles one of the names."""

    def __init__(self, tally: Tally, host: str, names: Sequence[str]) -> None:
        """Count into `tally`; there are at most as many names as a stream may have without an answer."""
        assert len(names) <= _WINDOW, "a stream has a window"
        self._tally, self._host = tally, host
        self._names = names
        self._numbers = itertools.count(1)
        self._workers: dict[int, int] = {}
        """By number: whose it is."""
        self._began_s = [0.0] * len(names)
        self._asked: list[list[Any]] = []
        self._first = 1
        self._acked = 0
        self._buffer = b""
        self._is_open = False
        self._active = 0
        self.welcomed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for a stream."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport: Any = transport
        self._transport.write(websocket_frames.upgrade(self._host, "/v1/stream", "holdfast.v1.msgpack"))

    def connection_lost(self, exc: Exception | None) -> None:
        """End; it is an error unless we closed the connection."""
        error = ConnectionError(f"connection lost: {exc or 'closed by the node'}")
        if not self.welcomed.done():
            self.welcomed.set_exception(error)
        if not self.ended.done():
            self._tally.error(str(error))
            self.ended.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Take answers, and ask what follows from them in one message."""
        self._buffer += data
        if not self._is_open:
            head, found, rest = self._buffer.partition(b"\r\n\r\n")
            if not found:
                return
            assert b" 101 " in head, head.decode()
            self._is_open, self._buffer = True, rest
            self._send([1, 1, "", TTL_MS, {}])
        while (message := self._next()) is not None:
            self._take(message)
        self._ask()

    def _next(self) -> list[Any] | None:
        """Return the next whole message."""
        frame = websocket_frames.read(self._buffer, 0)
        if frame is None:
            return None
        body = self._buffer[frame.begin : frame.end]
        self._buffer = self._buffer[frame.end :]
        if frame.kind == websocket_frames.CLOSE:
            self._tally.error(f"closed: {body[2:].decode(errors='replace')}")
            return None
        message: list[Any] = msgspec.msgpack.decode(body)
        return message

    def _take(self, message: list[Any]) -> None:
        kind = message[0]
        if kind == _RESULTS:
            now_s = time.perf_counter()
            for number, result in enumerate(message[3], message[1]):
                self._answered(number, result, now_s)
        elif kind == _WELCOME:
            self.welcomed.set_result(None)
        elif kind == _REFUSED:
            if not self.welcomed.done() and message[2] == _UPGRADE_PENDING:
                self.welcomed.set_exception(UpgradePending())
            self._tally.error(f"{message[2]}: {message[3]}")

    def begin(self) -> None:
        """Let all workers begin. Call it once welcomed."""
        now_s = time.perf_counter()
        for worker in range(len(self._names)):
            self._active += 1
            self._acquire(worker, now_s)
        self._ask()

    def _answered(self, number: int, result: list[Any], now_s: float) -> None:
        """Measure one answer, and go on."""
        worker = self._workers.pop(number)
        self._acked = number if number == self._acked + 1 else self._acked
        if result[0] == _GRANTED:
            self._tally.acquires_s.append(now_s - self._began_s[worker])
            self._put(worker, [_RELEASE, result[1]])
            return
        if result[0] == _RELEASED:
            self._tally.cycles_s.append(now_s - self._began_s[worker])
        else:
            self._tally.error(str(result)[:300])
        if not self._tally.is_stopping:
            self._acquire(worker, now_s)
            return
        self._active -= 1
        if not self._active and not self.ended.done():
            self.ended.set_result(None)
            self._transport.close()

    def _acquire(self, worker: int, now_s: float) -> None:
        self._began_s[worker] = now_s
        self._put(worker, [_ACQUIRE, self._names[worker]])

    def _put(self, worker: int, command: list[Any]) -> None:
        number = next(self._numbers)
        if not self._asked:
            self._first = number
        self._workers[number] = worker
        self._asked.append(command)

    def _ask(self) -> None:
        """Send what is to be asked."""
        if self._asked:
            acked = [[1, self._acked]] if self._acked else []
            self._send([2, self._first, acked, 0, self._asked])
            self._asked = []

    def _send(self, message: list[Any]) -> None:
        self._transport.write(websocket_frames.write(msgspec.msgpack.encode(message)))
