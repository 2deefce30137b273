"""One operation with all its repetitions, without I/O: what to send next, to which node, when to stop.

A repetition is the same bytes with the same `request_id`, so the cluster gives it the first outcome. That is
what makes it right to repeat after a lost answer, and what hides a failover from callers.

A driver sends what `attempt` returns and reports how it went; `on_answer` and `on_silence` return what to do
then, or raise what the caller is told.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from holdfast import wire
from holdfast.operations.operation import Operation, TimedAnswer
from holdfast.operations.reasons import NOT_A_NODE, Reasons
from holdfast.values.errors import LockError, OutcomeUnknown, TlsRefused, Unavailable, refusal

T = TypeVar("T")

ATTEMPT_S_MAX = 3.0
"""Seconds that one node may take before another is asked: a node may hang with its port open."""
GRACE_S = 0.25
"""Seconds that a node which is told a timeout needs to say that it passed."""
BACKOFF_S_MIN = 0.05
"""Seconds to wait once all nodes have failed in turn; each further round waits twice as long."""
BACKOFF_S_MAX = 1.0
"""Seconds between two rounds, at most."""
SLICE_S = 4.0
"""Seconds for which one request waits in a queue; then it is asked again, and goes on in its place. A node
that hangs is found by the answer that is missing then, and few proxies end a silent request earlier."""
FIRST_SLICE_S = 0.2
"""Seconds of the first slice: most waits are over by then, and others may be asked for behind one that stands
in its queue."""
SLICE_S_MIN = 0.1
"""Seconds of the shortest slice, and between two requests about one wait, at least."""
BORNE = 0.6
"""A request that was cut off after some time is asked again in slices of this part of it."""
CUT_S_MIN = 0.5
"""Seconds after which a waiting request that ends was ended by something on the way that lost patience; one
that ends earlier has failed like any other."""

_REPEATABLE = frozenset({421, 429, 502, 503, 504})
"""Statuses after which another node, or the same one later, may do better."""
_OF_PROXIES = frozenset({408, *range(520, 531)})
"""Statuses with which proxies say that they got no answer of a node, beside those above. No node has them."""
TOO_MANY_REQUESTS = "too-many-requests"
"""The code with which one node says that it was asked too often; others have room."""
_OF_ONE_NODE = frozenset({TOO_MANY_REQUESTS, "not-ready"})
"""Refusals after which another node may be asked at once, and this one when it says."""
_DECIDED = frozenset(
    code
    for code, kind in wire.PROBLEMS.items()
    if kind.status in {409, 410} and not code.startswith("member-")  # whose changes are not known by an id
)
"""Refusals of the cluster, which knows a repetition and would have told of its effect. Any other may be of
one node, as to somebody whose token has ended: it says nothing of an earlier attempt."""
_STILL_WAITS = 202
_OK_MAX = 299
_INTERNAL = 500
_NOT_IMPLEMENTED = 501


class Attempt(msgspec.Struct, frozen=True):
    """Send this to the node of index `node` now, and listen for `give_up_s`."""

    node: int
    method: str
    path: str
    body: bytes
    headers: Mapping[str, str]
    give_up_s: float


@dataclass(frozen=True, slots=True)
class Retry:
    """Wait for so long, then make the next attempt."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Answered(Generic[T]):
    """The operation is done; `value` is its result. The node that answered is a good one to ask next time."""

    value: T
    node: int


class _ProblemFacts(msgspec.Struct, frozen=True):
    """What a client decides by, of what a problem document says."""

    code: str = ""
    detail: str = ""
    outcome: str = wire.UNKNOWN
    retry_after_ms: int = 0


class Exchange(Generic[T]):
    """Decides over the attempts of one operation. Times are seconds of any one monotonic clock."""

    def __init__(
        self,
        operation: Operation[T],
        *,
        nodes_count: int,
        node: int,
        now_s: float,
        timeout_s: float,
        slice_s: float = SLICE_S,
        urls: Sequence[str] = (),
        may_be_applied: bool = False,
    ) -> None:
        """Begin with `node`; give up `timeout_s` after the wait that the operation itself asks for.

        One that waits for ever gives up when no node has served it for `timeout_s`. `urls` are what nodes are
        called in errors. It `may_be_applied` before, if it was asked in another way.
        """
        self._reasons = Reasons(urls)
        self._foreign: set[int] = set()
        """Nodes that are none: something else answered there."""
        self._operation = operation
        self._nodes_count = nodes_count
        self._node = node
        self._asked_at_s = self._attempted_at_s = now_s
        self._wait_until_s = now_s + operation.wait_ms / 1000
        self._deadline_s = self._wait_until_s + timeout_s
        self._timeout_s = timeout_s
        self._served_s = now_s
        self._slice_s = slice_s
        self._give_up_s = 0.0
        self._was_cut = False
        self._share_s = min(ATTEMPT_S_MAX, timeout_s / max(2, nodes_count))
        self._failures = 0
        self._may_be_applied = may_be_applied
        self._untrusted: set[int] = set()
        """Nodes with which TLS has failed, one after the other and nothing else in between."""
        self._free_at_s: dict[int, float] = {}
        """When nodes that had enough requests of ours, or were starting, take the next one."""

    @property
    def may_be_applied(self) -> bool:
        """Whether an attempt that got no answer may have had an effect."""
        return self._may_be_applied

    def attempt(self, now_s: float, longest_slice_s: float = math.inf) -> Attempt:
        """Return the attempt to make now; one that may wait does so for no longer than this."""
        self._attempted_at_s = now_s
        remaining_s = max(0.0, self._deadline_s - now_s)
        waiting_s = max(0.0, self._wait_until_s - now_s)
        answer_s = min(self._share_s, remaining_s - waiting_s if waiting_s else remaining_s)
        answer_ms = min(max(int(answer_s * 1000), wire.TIMEOUT_MS_MIN), wire.TIMEOUT_MS_MAX)
        slice_s = min(waiting_s, self._slice_s, longest_slice_s)
        self._give_up_s = min(remaining_s, slice_s + answer_ms / 1000 + GRACE_S)
        operation = self._operation
        headers = {wire.HEADER_TIMEOUT_MS: str(answer_ms)}
        if operation.request_id:
            headers[wire.HEADER_REQUEST_ID] = operation.request_id
        if operation.body:
            headers["Content-Type"] = wire.JSON
        return Attempt(
            node=self._node,
            method=operation.method,
            path=operation.path,
            body=operation.slice(int(slice_s * 1000)) if slice_s < waiting_s else operation.body,
            headers=headers,
            give_up_s=self._give_up_s,
        )

    def attempt_on_link(self, node: int, now_s: float) -> Attempt:
        """Return the attempt to make now at `node`, for the whole wait: the connection tells if it hangs."""
        self._node = node
        slice_s, self._slice_s = self._slice_s, math.inf
        try:
            return self.attempt(now_s)
        finally:
            self._slice_s = slice_s

    def on_link_lost(self, detail: str, silent_s: float | None, *, now_s: float, jitter: float) -> Retry:
        """Handle the end of such a connection, whose node was last heard `silent_s` ago; None for never.

        Raises Unavailable or OutcomeUnknown when time is up.
        """
        self._untrusted.clear()
        if silent_s is not None:
            self._may_be_applied = True
            self._failures = 0
            self._served_s = max(self._served_s, now_s - silent_s)
        return self._again("unavailable", detail, retry_after_ms=0, now_s=now_s, jitter=jitter)

    def skip(self, skipped_s: float) -> None:
        """Give up so much earlier: a clock of tests did not show the pause between two attempts."""
        self._deadline_s -= skipped_s
        self._served_s -= skipped_s

    def on_silence(self, detail: str, *, was_sent: bool, now_s: float, jitter: float) -> Retry:
        """Handle a broken connection or a timeout. Raises Unavailable or OutcomeUnknown when time is up."""
        self._untrusted.clear()
        self._may_be_applied |= was_sent and not self._operation.changes_nothing
        if was_sent and now_s - self._attempted_at_s < self._give_up_s:
            self._note_cut(now_s)
        return self._again("unavailable", detail, retry_after_ms=0, now_s=now_s, jitter=jitter)

    def on_no_trust(self, detail: str, *, was_sent: bool, now_s: float, jitter: float) -> Retry:
        """Handle a failure of TLS. Raises TlsRefused or OutcomeUnknown when no node is left to try.

        `was_sent` speaks of attempts on other connections: on this one nothing was read.
        """
        self._may_be_applied |= was_sent and not self._operation.changes_nothing
        self._untrusted.add(self._node)
        if len(self._untrusted) < self._nodes_count:
            return self._again("tls-refused", detail, retry_after_ms=0, now_s=now_s, jitter=jitter)
        if self._may_be_applied:
            text = f"an attempt got no answer, and no node can be asked what became of it; last: {detail}"
            raise OutcomeUnknown(text, self._operation.request_id)
        raise TlsRefused(detail)

    def on_answer(self, status: int, body: bytes, *, now_s: float, jitter: float) -> Answered[T] | Retry:
        """Handle an answer. `jitter` is random, 0 to 1. Raises Refused, Unavailable or OutcomeUnknown."""
        self._untrusted.clear()
        if status == _STILL_WAITS and self._operation.wait_ms:
            return self._go_on(now_s)
        if status <= _OK_MAX:
            answer = TimedAnswer(body, self._asked_at_s, self._attempted_at_s)
            return Answered(self._operation.read(answer), self._node)
        facts, document = _decode(body)
        code = facts.code or f"http-{status}"
        detail = facts.detail or f"answered with status {status}"
        is_of_proxy = not facts.code and status in _REPEATABLE | _OF_PROXIES
        if not facts.code and not is_of_proxy and (status < _INTERNAL or status == _NOT_IMPLEMENTED):
            return self._on_stranger(status, now_s=now_s, jitter=jitter)
        if _is_refusal(status) and not is_of_proxy:
            refused = refusal(code, detail, document)
            if not self._may_be_applied or code in _DECIDED:
                raise refused
            self._reasons.note(self._node, str(refused))
            raise self._failure(code) from refused
        self._may_be_applied |= facts.outcome != wire.NOT_APPLIED and not self._operation.changes_nothing
        if is_of_proxy:
            self._note_cut(now_s)
        elif status not in _REPEATABLE:
            self._reasons.note(self._node, detail)
            raise self._failure(code)
        retry_after_ms = facts.retry_after_ms
        if code in _OF_ONE_NODE:
            self._free_at_s[self._node] = now_s + retry_after_ms / 1000 * (1 + jitter / 2)
            retry_after_ms = 0
        return self._again(code, detail, retry_after_ms=retry_after_ms, now_s=now_s, jitter=jitter)

    def _on_stranger(self, status: int, *, now_s: float, jitter: float) -> Retry:
        """Handle an answer that no node gives, and that does nothing. Raises when all URLs are like that."""
        self._foreign.add(self._node)
        method = self._operation.method
        detail = f"this is not a Holdfast node: it answered {method} with status {status}"
        if len(self._foreign) == self._nodes_count:
            self._reasons.note(self._node, detail)
            raise self._failure(NOT_A_NODE)
        return self._again(NOT_A_NODE, detail, retry_after_ms=0, now_s=now_s, jitter=jitter)

    def why_left(self, node: int) -> str:
        """Return why a node was left for another one; empty if it was not asked."""
        return self._reasons.last_of(node)

    def _go_on(self, now_s: float) -> Retry:
        """Go on waiting at the node that has said that the request still waits. Raises OutcomeUnknown."""
        self._may_be_applied = True
        self._served_s = now_s
        self._failures = 0
        if now_s >= self._deadline_s:
            self._reasons.note(self._node, "the request still waits, and should not any more")
            raise self._failure("unavailable")
        return Retry(max(0.0, self._attempted_at_s + SLICE_S_MIN - now_s))

    def _note_cut(self, now_s: float) -> None:
        """Ask for less from now on, if a request that waited was ended by something that is not a node.

        The first time it shows that the way to a node is there; a node has to answer the next ones.
        """
        lasted_s = now_s - self._attempted_at_s
        if lasted_s < CUT_S_MIN or self._attempted_at_s >= self._wait_until_s:
            return
        self._slice_s = max(SLICE_S_MIN, min(self._slice_s, BORNE * lasted_s))
        if not self._was_cut:
            self._was_cut = True
            self._served_s = now_s

    def _again(self, code: str, detail: str, *, retry_after_ms: int, now_s: float, jitter: float) -> Retry:
        """Turn to the next node, after the delay that it asks for or, when all have failed, our own."""
        self._reasons.note(self._node, detail)
        deadline_s = self._deadline_s
        if self._operation.waits_for_ever:
            deadline_s = min(deadline_s, self._served_s + self._timeout_s)
        free_in_s = self._turn(now_s)
        self._failures += 1
        delay_s = retry_after_ms / 1000 * (1 + jitter / 2)
        delay_s = max(delay_s, free_in_s, backoff_s(self._failures, self._nodes_count, jitter))
        # No node can be asked to answer faster; a shorter attempt would only make a sure outcome doubtful.
        if now_s + delay_s + wire.TIMEOUT_MS_MIN / 1000 >= deadline_s:
            raise self._failure(code)
        return Retry(delay_s)

    def _turn(self, now_s: float) -> float:
        """Turn to the next node that takes requests of ours; return in how many seconds it does so."""
        ring = [(self._node + i) % self._nodes_count for i in range(1, self._nodes_count + 1)]
        free_in_s = {node: max(0.0, self._free_at_s.get(node, now_s) - now_s) for node in ring}
        self._node = min(ring, key=lambda node: free_in_s[node])
        return free_in_s[self._node]

    def _failure(self, code: str) -> LockError:
        """Return the worst that is still possible after all attempts together."""
        why = self._reasons.told(code)
        if self._may_be_applied:
            return OutcomeUnknown(f"it may have been done or not: {why}", self._operation.request_id)
        return Unavailable(f"not done: {why}", code)


def backoff_s(failures: int, nodes_count: int, jitter: float) -> float:
    """Return how long to wait after failures in a row: not until all nodes have failed in turn."""
    rounds, in_round = divmod(failures, nodes_count)
    if in_round:
        return 0.0
    return min(BACKOFF_S_MAX, BACKOFF_S_MIN * float(2 ** min(rounds - 1, 10))) * (1 + jitter) / 2


def judge(status: int, body: bytes) -> tuple[str, str, bool, dict[str, object]]:
    """Return what an answer in place of a stream says: code, detail, whether it is final, and all of it."""
    facts, document = _decode(body)
    code = facts.code or f"http-{status}"
    return code, facts.detail or f"a node answered with status {status}", _is_refusal(status), document


def _is_refusal(status: int) -> bool:
    """Whether no node will answer otherwise."""
    return status not in _REPEATABLE and status < _INTERNAL


def _decode(body: bytes) -> tuple[_ProblemFacts, dict[str, object]]:
    """Return a problem document twice: what we decide by, and all of it. Empty when the body is not one.

    A proxy's page is not a problem document, and says nothing about whether the request had an effect.
    """
    try:
        document = msgspec.json.decode(body, type=dict[str, object])
        return msgspec.convert(document, _ProblemFacts), document
    except msgspec.DecodeError:
        return _ProblemFacts(), {}
