"""Lean clients of Holdfast: over HTTP with JSON, and over the stream with MessagePack."""

import itertools
from typing import Any, Final

import msgspec

from lab.loads import websocket_frames
from lab.loads.load import TTL_MS
from lab.peers.closed_loop import Worker
from lab.peers.connection import Address, Connection
from lab.peers.http1 import Http1, post

_ACQUIRE, _RELEASE = 4, 7
_GRANTED, _QUEUED, _RELEASED = 4, 5, 7
_HELLO, _COMMANDS, _BYE = 1, 2, 5
_WELCOME, _RESULTS, _END_OF_WAIT, _REFUSED = 1, 2, 3, 4
_SWITCHING: Final = b" 101 "


class _Granted(msgspec.Struct):
    hold_id: str


_granted = msgspec.json.Decoder(_Granted)


class OverHttp(Http1):
    """Locks with a lease of their own. With `wait_ms` acquire waits."""

    def __init__(self, address: Address, wait_ms: int = 0) -> None:
        super().__init__()
        self._acquire, self._release = post(address, "/v1/locks/acquire"), post(address, "/v1/locks/release")
        self._rest = f',"wait_ms":{wait_ms}' if wait_ms else ""

    def acquire(self, worker: Worker) -> None:
        """Acquire the lock."""
        body = f'{{"name":"{worker.name}","ttl_ms":{TTL_MS}{self._rest}}}'
        self.ask(worker, self._acquire, body.encode(), self._granted)

    @staticmethod
    def _granted(worker: Worker, body: bytes) -> None:
        worker.acquired(_granted.decode(body).hold_id.encode())

    def release(self, worker: Worker, held: bytes) -> None:
        """Release the lock."""
        self.ask(worker, self._release, b'{"hold_id":"%b"}' % held, lambda worker, _: worker.released())


class UpgradePendingError(ConnectionError):
    """The nodes do not know streams yet: they have been started just now."""


class OverStream(Connection):
    """A stream. What is asked while answers are read goes as one message.

    Locks are those of its session, or with `ttl_ms` each has a lease of its own: a session that asks for what
    it holds already gets it, so workers that contend over one stream need that.
    """

    def __init__(self, address: Address, wait_ms: int = 0, ttl_ms: int = 0, session_id: str = "") -> None:
        super().__init__()
        self.session_id = session_id
        """Of the stream; one that is given at the beginning is resumed, without any commands before it."""
        self._address = address
        self._rest = ["", "", ttl_ms, "", wait_ms] if wait_ms or ttl_ms else []
        self._numbers = itertools.count(1)
        self._workers: dict[int, Worker] = {}
        """By number: whose it is."""
        self._first = 1
        self._asked: list[list[Any]] = []
        self._acked = 0
        self._final: set[int] = set()
        """Above `_acked`: what has its final answer, while that of a lower number is missing."""
        self._is_open = False
        self._is_taking = False

    def greet(self) -> None:
        """Ask for a WebSocket."""
        self.put(websocket_frames.upgrade(self._address.netloc, "/v1/stream", "holdfast.v1.msgpack"))

    def acquire(self, worker: Worker) -> None:
        """Acquire the lock."""
        self._ask(worker, [_ACQUIRE, worker.name, "exclusive", *self._rest])

    def release(self, worker: Worker, held: bytes) -> None:
        """Release the lock."""
        self._ask(worker, [_RELEASE, held.decode()])

    def bye(self) -> None:
        """End the session with all that it holds. The node closes the connection."""
        self._send([_BYE])

    def waiting(self) -> list[Worker]:
        """Return the workers that wait for an answer."""
        return list(self._workers.values())

    def take(self, data: bytes) -> int:
        """Read whole messages; then ask what follows from them."""
        used = 0
        if not self._is_open:
            end_of_head = data.find(b"\r\n\r\n")
            if end_of_head < 0:
                return 0
            used = end_of_head + 4
            if _SWITCHING not in data[:used]:
                self.ready.set_exception(ConnectionError(data[:used].decode(errors="replace")))
                return len(data)
            self._is_open = True
            self._send([_HELLO, 1, self.session_id, TTL_MS, {}])
        self._is_taking = True
        while (frame := websocket_frames.read(data, used)) is not None:
            self._message(frame.kind, data[frame.begin : frame.end])
            used = frame.end
        self._is_taking = False
        self._flush()
        return used

    def _message(self, kind: int, body: bytes) -> None:
        if kind == websocket_frames.PING:
            self.put(websocket_frames.write(body, websocket_frames.PONG))
        elif kind == websocket_frames.CLOSE:
            self._lost(f"closed: {body[2:].decode(errors='replace')}")
        else:
            match msgspec.msgpack.decode(body):
                case [kind, first, _, results, *_] if kind == _RESULTS:
                    for number, result in enumerate(results, first):
                        self._answered(number, result)
                case [kind, number, _, result, *_] if kind == _END_OF_WAIT:
                    self._answered(number, result)
                case [kind, session_id, *_] if kind == _WELCOME:
                    self.session_id = session_id
                    self.ready.set_result(None)
                case [kind, _, "upgrade-pending", *_] if kind == _REFUSED:
                    self.ready.set_exception(UpgradePendingError())
                case [kind, _, code, detail, *_] if kind == _REFUSED:
                    # Numbers that were not taken would have to be given again: this client ends instead.
                    self._lost(f"{code}: {detail}")

    def _answered(self, number: int, result: list[Any]) -> None:
        if result[0] == _QUEUED:
            return
        if number == self._acked + 1:
            self._acked = number
            while self._final and self._acked + 1 in self._final:
                self._acked += 1
                self._final.remove(self._acked)
        else:
            self._final.add(number)
        worker = self._workers.pop(number)
        if result[0] == _GRANTED:
            worker.acquired(result[1].encode())
        elif result[0] == _RELEASED:
            worker.released()
        else:
            worker.failed(str(result)[:300])

    def _lost(self, text: str) -> None:
        if not self.ready.done():
            self.ready.set_exception(ConnectionError(text))
        for worker in self.waiting():
            worker.lost(text)

    def _ask(self, worker: Worker, command: list[Any]) -> None:
        number = next(self._numbers)
        if not self._asked:
            self._first = number
        self._workers[number] = worker
        self._asked.append(command)
        if not self._is_taking:
            self._flush()

    def _flush(self) -> None:
        if self._asked:
            acked = [[1, self._acked]] if self._acked else []
            self._send([_COMMANDS, self._first, acked, 0, self._asked])
            self._asked = []

    def _send(self, message: list[Any]) -> None:
        self.put(websocket_frames.write(msgspec.msgpack.encode(message)))
