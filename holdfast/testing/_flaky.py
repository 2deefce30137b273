"""A way to a cluster in memory on which chosen answers are lost, late, or refusals."""

import threading
from dataclasses import dataclass
from typing import Final

import msgspec

from holdfast import wire
from holdfast.client.client import Client
from holdfast.operations.exchange import Attempt
from holdfast.operations.sending import NoAnswer, Sending
from holdfast.testing._cluster import MemoryCluster
from holdfast.testing._connections import MemoryConnections
from holdfast.threads.sync_client import SyncClient
from holdfast.values.durations import Seconds, to_s

ALL: Final = "*"
"""Every call."""
_PATHS: Final = frozenset(
    path for path in vars(wire).values() if isinstance(path, str) and path.startswith("/v1/")
)


@dataclass
class _Fault:
    """What happens to the next calls of one kind. `left` None: to all of them."""

    call: str
    applied: bool
    left: int | None
    code: str = ""
    delay_s: float | None = None

    def fits(self, sent: str) -> bool:
        """Whether it happens to a call, such as `POST /v1/locks/acquire`."""
        if self.left == 0:
            return False
        path = sent.partition(" ")[2]
        return self.call in (ALL, sent, path) or path.endswith(f"/{self.call}")


class Flaky:
    """Makes clients of a cluster in memory whose calls fail as you choose; other clients are not affected.

    A call is named by the end of its path (`acquire`, `locks/release`, `keepalive`), by all of it, as `POST
    /v1/locks/acquire`, or `*` for every one; watching is not among them. The fault happens `times` times
    (once by default), with None until `heal`. Earlier choices happen first.

    The client does what it does with a real cluster: it repeats what is safe to repeat, with the same request
    id. So your program often does not notice a single loss; a lasting one is Unavailable, or OutcomeUnknown.
    Its pauses between two attempts count, and take no real time.
    """

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self._lock = threading.Lock()
        self._faults: list[_Fault] = []
        self._sent: list[str] = []

    def client(self, *, timeout: Seconds = 10.0, owner: str | None = None) -> Client:
        """Return a client for asyncio that meets the faults."""
        return self.cluster.client_over(self._connections(), timeout=timeout, owner=owner)

    def sync_client(self, *, timeout: Seconds = 10.0, owner: str | None = None) -> SyncClient:
        """Return a client for threads that meets the faults."""
        return self.cluster.sync_client_over(self._connections(), timeout=timeout, owner=owner)

    def _connections(self) -> MemoryConnections:
        return _FlakyConnections(self.cluster, self)

    # -- what to spoil --------------------------------------------------------------------------------------

    def lose(self, call: str, *, applied: bool, times: int | None = 1) -> None:
        """Let the cluster do it and lose the answer, or (not `applied`) lose the request on its way."""
        self._add(_Fault(_known(call), applied, times))

    def refuse(self, call: str, code: str, *, applied: bool = False, times: int | None = 1) -> None:
        """Answer with the problem `code` (docs/http-api.md), without or after having done it.

        The clients repeat a call that is refused with 503 or 429, and raise for most others at once.
        """
        if code not in wire.PROBLEMS:
            raise ValueError(f"code: {code!r} is not a problem code; known are {', '.join(wire.PROBLEMS)}")
        self._add(_Fault(_known(call), applied, times, code=code))

    def delay(self, call: str, seconds: Seconds, *, applied: bool = True, times: int | None = 1) -> None:
        """Do it, and hold the answer back until the clock was moved so far; or do it only then.

        The client does not wait for longer than it waits for a real node: after that, it is as if lost.
        """
        self._add(_Fault(_known(call), applied, times, delay_s=to_s(seconds, "seconds")))

    def heal(self) -> None:
        """Spoil nothing any longer."""
        with self._lock:
            self._faults.clear()

    def _add(self, fault: _Fault) -> None:
        if fault.left is not None and fault.left < 1:
            raise ValueError(f"times: {fault.left} is less than once")
        with self._lock:
            self._faults.append(fault)

    # -- what happened --------------------------------------------------------------------------------------

    @property
    def sent(self) -> tuple[str, ...]:
        """The calls that its clients have sent so far, failed ones included, as `POST /v1/locks/acquire`."""
        with self._lock:
            return tuple(self._sent)

    def take_fault(self, attempt: Attempt) -> _Fault | None:
        """Count an attempt, and return what happens to it, if anything. For its connections."""
        sent = f"{attempt.method} {attempt.path.partition('?')[0]}"
        with self._lock:
            self._sent.append(sent)
            for fault in self._faults:
                if fault.fits(sent):
                    if fault.left is not None:
                        fault.left -= 1
                    return fault
        return None


class _FlakyConnections(MemoryConnections):
    """Sends attempts, and does to some what was chosen for them."""

    def __init__(self, cluster: MemoryCluster, flaky: Flaky) -> None:
        super().__init__(cluster.thread)
        self._clock = cluster.clock
        self._flaky = flaky

    async def send(self, url: str, attempt: Attempt, sending: Sending) -> tuple[int, bytes]:
        """Make one attempt. Raises NoAnswer."""
        fault = self._flaky.take_fault(attempt)
        if fault is None:
            return await super().send(url, attempt, sending)
        if fault.delay_s is not None and not fault.applied:
            await self._pass(fault.delay_s, attempt, sending)
        answer = None
        if fault.applied or fault.delay_s is not None:
            answer = await super().send(url, attempt, sending)
        sending.sent_count += 1  # for all that the client can know
        if fault.code:
            return _problem(fault)
        if fault.delay_s is None or answer is None:
            raise NoAnswer(f"{url}: {'the answer' if fault.applied else 'the request'} was lost")
        if fault.applied:
            await self._pass(fault.delay_s, attempt, sending)
        return answer

    async def _pass(self, delay_s: float, attempt: Attempt, sending: Sending) -> None:
        """Wait by the clock. Raises NoAnswer when the client has lost its patience before."""
        sending.sent_count += 1
        await self._clock.sleep(min(delay_s, attempt.give_up_s))
        if delay_s > attempt.give_up_s:
            raise NoAnswer("no answer in time")


def _known(call: str) -> str:
    """Return the name of a call. Raises ValueError for what can be no call."""
    is_whole = call.startswith("/") or " /" in call
    if call == ALL or is_whole or any(path.endswith(f"/{call}") for path in _PATHS):
        return call
    known = ", ".join(sorted({path.rpartition("/")[2] for path in _PATHS if not path.endswith("}")}))
    raise ValueError(f"call: nothing is called {call!r}; known are {known}")


def _problem(fault: _Fault) -> tuple[int, bytes]:
    """Return the answer that refuses."""
    kind = wire.PROBLEMS[fault.code]
    document = {
        "type": wire.PROBLEM_TYPE_PREFIX + fault.code,
        "title": kind.title,
        "status": kind.status,
        "detail": "refused by the test",
        "code": fault.code,
        "outcome": wire.UNKNOWN if fault.applied else kind.outcome,
    }
    return kind.status, msgspec.json.encode(document)
