"""The load: workers that cycle acquire and release, each on a keep-alive connection of its own.

On a small machine the client competes with the nodes for the processor, so it does as little as it can: one
protocol object is worker and connection, and the answer's callback writes the next request.
"""

import asyncio
import time
from typing import cast

import msgspec

TTL_MS = 30_000
PAUSE_S = 0.01
"""After an error, so that a refusing node is not asked in a tight loop."""
ERRORS_KEPT_MAX = 5

_END_OF_HEAD = b"\r\n\r\n"
_LENGTH = b"content-length:"
_OK = b"200"


class _Granted(msgspec.Struct):
    hold_id: str


_granted = msgspec.json.Decoder(_Granted)


class Tally:
    """What all workers of one step have measured since `begin`. Times in seconds."""

    def __init__(self) -> None:
        self.acquires_s: list[float] = []
        self.cycles_s: list[float] = []
        self.errors_count = 0
        self.errors: list[str] = []
        self.is_stopping = False

    def begin(self) -> None:
        """Forget the warm-up, but not its errors."""
        self.acquires_s.clear()
        self.cycles_s.clear()

    def error(self, text: str) -> None:
        """Count an error; keep the first few to show."""
        self.errors_count += 1
        if len(self.errors) < ERRORS_KEPT_MAX:
            self.errors.append(text)


class Worker(asyncio.Protocol):
    """One closed loop: acquire a name of its own, release it, again."""

    def __init__(self, tally: Tally, host: str, prefix: str) -> None:
        self._tally = tally
        self._prefix = prefix
        self._acquire_head, self._release_head = (
            f"POST /v1/locks/{verb} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            "Content-Length: ".encode()
            for verb in ("acquire", "release")
        )
        self._cycles = 0
        self._is_acquiring = False
        self._began_s = 0.0
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._acquire()

    def connection_lost(self, exc: Exception | None) -> None:
        """End; it is an error unless we closed the connection."""
        if not self.ended.done():
            self._tally.error(f"connection lost: {exc or 'closed by the node'}")
            self.ended.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Collect an answer, and act on it once it is complete."""
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
            self._answered(data[9:12], data[body_at : body_at + length])

    def _answered(self, status: bytes, body: bytes) -> None:
        """Measure one answer and send the next request."""
        now_s = time.perf_counter()
        if status != _OK:
            self._tally.error(f"{status.decode()} {body[:300].decode(errors='replace')}")
            asyncio.get_running_loop().call_later(PAUSE_S, self._acquire)
        elif self._is_acquiring:
            self._tally.acquires_s.append(now_s - self._began_s)
            self._is_acquiring = False
            self._send(self._release_head, b'{"hold_id":"%b"}' % _granted.decode(body).hold_id.encode())
        else:
            self._tally.cycles_s.append(now_s - self._began_s)
            self._acquire()

    def _acquire(self) -> None:
        """Begin a cycle, or end when told so."""
        if self._tally.is_stopping:
            if not self.ended.done():
                self.ended.set_result(None)
            if self._transport is not None:
                self._transport.close()
            return
        self._cycles += 1
        self._is_acquiring = True
        self._began_s = time.perf_counter()
        body = f'{{"name":"{self._prefix}/{self._cycles}","ttl_ms":{TTL_MS}}}'
        self._send(self._acquire_head, body.encode())

    def _send(self, head: bytes, body: bytes) -> None:
        assert self._transport is not None
        self._transport.write(b"%b%d\r\n\r\n%b" % (head, len(body), body))
