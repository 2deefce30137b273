"""The load: workers that cycle acquire and release, each on a keep-alive connection of its own."""

import asyncio
import itertools
import secrets
import time
from collections.abc import Iterator, Sequence

import msgspec

from lab.loads.lean_http import OK, LeanHttp, head

TTL_MS = 30_000
PAUSE_S = 0.01
"""After an error, so that a refusing node is not asked in a tight loop."""
ERRORS_KEPT_MAX = 5


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


def percentile_ms(ordered_s: Sequence[float], fraction: float) -> float:
    """Return a percentile of ordered times; 0 if there are none."""
    if not ordered_s:
        return 0.0
    return ordered_s[min(len(ordered_s) - 1, int(len(ordered_s) * fraction))] * 1000


class Worker(LeanHttp):
    """One closed loop: acquire a name of its own, release it, again.

    With `is_once` each request has a `request_id`, so that a repetition of it would get the first outcome.
    With a `token` each says who asks.
    """

    def __init__(
        self, tally: Tally, host: str, prefix: str, *, is_once: bool = False, token: str = ""
    ) -> None:
        super().__init__()
        self._tally = tally
        self._prefix = prefix
        self._acquire_head, self._release_head = (
            head(host, f"/v1/locks/{verb}", token=token) for verb in ("acquire", "release")
        )
        self._request_ids: Iterator[str] = _request_ids() if is_once else itertools.repeat("")
        self._cycles = 0
        self._is_acquiring = False
        self._began_s = 0.0

    def begin(self) -> None:
        """Begin a cycle, or end when told so."""
        if self.ended.done():
            return  # the connection was lost while this was put off
        if self._tally.is_stopping:
            self.end()
            return
        self._cycles += 1
        self._is_acquiring = True
        self._began_s = time.perf_counter()
        wanted, once = self.wanted(f"{self._prefix}/{self._cycles}"), next(self._request_ids)
        self.send(self._acquire_head, f'{{{wanted},"ttl_ms":{TTL_MS}{once}}}'.encode())

    def wanted(self, name: str) -> str:
        """Return the members of a body that ask for a name that was never used."""
        return f'"name":"{name}"'

    def lost(self, text: str) -> None:
        """Count an error."""
        self._tally.error(text)

    def answered(self, status: bytes, body: bytes) -> None:
        """Measure one answer and send the next request."""
        now_s = time.perf_counter()
        if status != OK:
            self._tally.error(f"{status.decode()} {body[:300].decode(errors='replace')}")
            asyncio.get_running_loop().call_later(PAUSE_S, self.begin)
        elif self._is_acquiring:
            self._tally.acquires_s.append(now_s - self._began_s)
            self._is_acquiring = False
            hold_id, once = _granted.decode(body).hold_id, next(self._request_ids)
            self.send(self._release_head, f'{{"hold_id":"{hold_id}"{once}}}'.encode())
        else:
            self._tally.cycles_s.append(now_s - self._began_s)
            self.begin()


def _request_ids() -> Iterator[str]:
    """Yield the member of a body that makes its request unique."""
    mark = secrets.token_hex(8)
    for number in itertools.count():
        yield f',"request_id":"{mark}{number:016x}"'
