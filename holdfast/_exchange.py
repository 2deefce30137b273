"""One request with all its repetitions, without I/O: which node next, when, and what to tell the caller.

A repetition is the same bytes with the same `request_id`, so the cluster gives it the first outcome. That is
what makes it right to repeat after a lost answer, and what hides a failover from callers.
"""

import msgspec

from holdfast import wire
from holdfast._errors import LockError, OutcomeUnknown, Unavailable, refusal
from holdfast._protocol import Request

ATTEMPT_S_MAX = 3.0
"""How long one node may take before another is asked: a node may hang with its port open."""
GRACE_S = 0.25
"""A node that is told a timeout needs this long to say that it passed."""
BACKOFF_S_MIN = 0.05
BACKOFF_S_MAX = 1.0
"""Once all nodes have failed in turn, each further round waits twice as long as the one before."""

_REPEATABLE = frozenset({421, 429, 502, 503, 504})
_OK_MAX = 299
_INTERNAL = 500


class Attempt(msgspec.Struct, frozen=True):
    """Send the request to this node now.

    `answer_ms` is what to tell the node about our patience (time in a queue comes on top); `give_up_s` is how
    long to listen, with that time.
    """

    node: int
    answer_ms: int
    give_up_s: float


class Retry(msgspec.Struct, frozen=True):
    """Wait so long, then make the next attempt."""

    delay_s: float


class Done(msgspec.Struct, frozen=True):
    """It was done; `body` is the answer."""

    body: bytes


class _Problem(msgspec.Struct, frozen=True):
    """What an error answer says that a client decides by."""

    code: str = ""
    detail: str = ""
    outcome: str = wire.UNKNOWN
    retry_after_ms: int = 0


class Exchange:
    """Decides over the attempts of one request. Times are seconds of any one monotonic clock."""

    def __init__(
        self, request: Request, *, nodes_count: int, node: int, now_s: float, timeout_s: float
    ) -> None:
        """Begin with `node`; give up `timeout_s` after the wait that the request itself asks for."""
        self._request = request
        self._nodes_count = nodes_count
        self._node = node
        self._wait_until_s = now_s + request.wait_ms / 1000
        self._deadline_s = self._wait_until_s + timeout_s
        self._share_s = min(ATTEMPT_S_MAX, timeout_s / max(2, nodes_count))
        self._failures = 0
        self._may_be_applied = False

    def attempt(self, now_s: float) -> Attempt:
        """Return the attempt to make now."""
        remaining_s = max(0.0, self._deadline_s - now_s)
        waiting_s = max(0.0, self._wait_until_s - now_s)
        answer_s = min(self._share_s, remaining_s - waiting_s if waiting_s else remaining_s)
        answer_ms = min(max(int(answer_s * 1000), wire.TIMEOUT_MS_MIN), wire.TIMEOUT_MS_MAX)
        give_up_s = min(remaining_s, waiting_s + answer_ms / 1000 + GRACE_S)
        return Attempt(node=self._node, answer_ms=answer_ms, give_up_s=give_up_s)

    def on_silence(self, detail: str, *, was_sent: bool, now_s: float, jitter: float) -> Retry:
        """Handle a broken connection or a timeout. Raises Unavailable or OutcomeUnknown when time is up."""
        self._may_be_applied |= was_sent and not self._request.is_read
        return self._again("unavailable", detail, retry_after_ms=0, now_s=now_s, jitter=jitter)

    def on_answer(self, status: int, body: bytes, *, now_s: float, jitter: float) -> Done | Retry:
        """Handle an answer. `jitter` is random, 0 to 1. Raises Refused, Unavailable or OutcomeUnknown."""
        if status <= _OK_MAX:
            return Done(body)
        problem, document = _decode(body)
        code = problem.code or f"http-{status}"
        detail = problem.detail or f"a node answered with status {status}"
        if status not in _REPEATABLE and status < _INTERNAL:
            raise refusal(code, detail, document)
        self._may_be_applied |= problem.outcome != wire.NOT_APPLIED and not self._request.is_read
        if status not in _REPEATABLE:
            raise self._failure(code, detail)
        return self._again(code, detail, retry_after_ms=problem.retry_after_ms, now_s=now_s, jitter=jitter)

    def _again(self, code: str, detail: str, *, retry_after_ms: int, now_s: float, jitter: float) -> Retry:
        """Turn to the next node, after the delay that it asks for or, when all have failed, our own."""
        self._node = (self._node + 1) % self._nodes_count
        rounds, in_round = divmod(self._failures + 1, self._nodes_count)
        self._failures += 1
        delay_s = retry_after_ms / 1000 * (1 + jitter / 2)
        if in_round == 0:
            backoff_s = min(BACKOFF_S_MAX, BACKOFF_S_MIN * 2 ** min(rounds - 1, 10))
            delay_s = max(delay_s, backoff_s * (1 + jitter) / 2)
        # No node can be asked to answer faster; a shorter attempt would only make a sure outcome doubtful.
        if now_s + delay_s + wire.TIMEOUT_MS_MIN / 1000 >= self._deadline_s:
            raise self._failure(code, detail)
        return Retry(delay_s)

    def _failure(self, code: str, detail: str) -> LockError:
        """Say the worst that is still possible after all attempts together."""
        if self._may_be_applied:
            return OutcomeUnknown(f"no outcome before the deadline; last: {detail}", self._request.request_id)
        return Unavailable(f"not done before the deadline; last: {detail}", code)


def _decode(body: bytes) -> tuple[_Problem, dict[str, object]]:
    """Return a problem document twice: what we decide by, and all of it. Empty when the body is none.

    A proxy's page is no problem document, and says nothing about whether the request had an effect.
    """
    try:
        document = msgspec.json.decode(body, type=dict[str, object])
        return msgspec.convert(document, _Problem), document
    except msgspec.DecodeError:
        return _Problem(), {}
