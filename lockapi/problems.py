"""What can go wrong, as problem documents (RFC 9457): the one way from a refusal or error to its answer.

Codes, statuses and outcomes are the table in holdfast/wire.py. What a face adds, such as header lines, is in
that face.
"""

import secrets
import urllib.parse
from collections.abc import Mapping
from typing import Final

import msgspec

from cluster.errors import ClusterError
from holdfast import wire
from holdfast.wire.held import CycleStepJson, Holder
from lockapi.endings import Ended
from lockapi.views import holders_of
from lockstate.words.refusals import QuotaExceeded, Reason, Refused, RefusedInNamespace

_BECAUSE_OF_OTHERS: Final = frozenset({Reason.LOCK_HELD, Reason.NO_PERMITS})
"""Refusals that say who is in the way, even when nobody holds and only waiters are."""
_TOGETHER: Final = _BECAUSE_OF_OTHERS | {Reason.FROZEN}
"""Refusals that many get at the same moment."""


class Problem(msgspec.Struct, kw_only=True):
    """A problem document."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    outcome: str
    request_id: str
    retry_after_ms: int | msgspec.UnsetType = msgspec.UNSET
    holders: tuple[Holder, ...] | msgspec.UnsetType = msgspec.UNSET
    queue_length: int | msgspec.UnsetType = msgspec.UNSET
    position: int | msgspec.UnsetType = msgspec.UNSET
    waited_ms: int | msgspec.UnsetType = msgspec.UNSET
    cycle: tuple[CycleStepJson, ...] | msgspec.UnsetType = msgspec.UNSET
    hidden: int | msgspec.UnsetType = msgspec.UNSET
    available: int | msgspec.UnsetType = msgspec.UNSET
    limit: int | msgspec.UnsetType = msgspec.UNSET
    window_ms: int | msgspec.UnsetType = msgspec.UNSET
    remaining: int | msgspec.UnsetType = msgspec.UNSET
    namespace: str | msgspec.UnsetType = msgspec.UNSET
    quota: str | msgspec.UnsetType = msgspec.UNSET
    used: int | msgspec.UnsetType = msgspec.UNSET
    highest_token: int | msgspec.UnsetType = msgspec.UNSET
    version: int | msgspec.UnsetType = msgspec.UNSET
    mod_revision: int | msgspec.UnsetType = msgspec.UNSET
    oldest: int | msgspec.UnsetType = msgspec.UNSET
    ended: Ended | msgspec.UnsetType = msgspec.UNSET
    repeated: bool | msgspec.UnsetType = msgspec.UNSET
    revision: int | msgspec.UnsetType = msgspec.UNSET
    lag_ms: int | msgspec.UnsetType | None = msgspec.UNSET


class ProblemError(Exception):
    """The request is answered with a problem. `detail` is for people, `code` for programs."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        retry_after_ms: int = 0,
        refused: Refused | None = None,
        facts: Mapping[str, int | None] | None = None,
    ) -> None:
        """Make a problem.

        `refused` brings what the state machine says besides; `facts` are further numbers of the document.
        """
        super().__init__(detail)
        self.code, self.detail = code, detail
        self.retry_after_ms, self.refused = retry_after_ms, refused
        self.is_repeated = False
        """Whether an earlier attempt, with the same `request_id`, was refused so."""
        self.hidden = 0
        """How many holders, or steps of a cycle, are left out because the caller may not read them."""
        self.quota = refused.quota if isinstance(refused, QuotaExceeded | RefusedInNamespace) else ""
        """Which quota has no room."""
        self.namespace = refused.namespace if isinstance(refused, RefusedInNamespace) else ""
        """The prefix of the namespace that does not allow it."""
        self.ended: Ended | None = None
        """How what was asked for had ended, if that is known."""
        self.facts: Mapping[str, int | None] = facts or (refused.facts if refused is not None else {})


def refusal(refused: Refused, *, is_repeated: bool = False) -> ProblemError:
    """Return the problem for what the state machine, or a check of its limits, refused."""
    retry_after_ms = refused.retry_after_ms
    if refused.reason in _TOGETHER:
        retry_after_ms = _spread_ms(retry_after_ms)
    problem = ProblemError(
        refused.reason.value, refused.detail, retry_after_ms=retry_after_ms, refused=refused
    )
    problem.is_repeated = is_repeated
    return problem


def _spread_ms(pause_ms: int) -> int:
    """Return half of a pause, or up to all of it: who was refused together should not come back together."""
    return max(pause_ms - secrets.randbelow(pause_ms // 2 + 1), 1)


def compacted(detail: str, oldest: int) -> ProblemError:
    """Return the problem for a place in the history that is gone: events are kept from `oldest` on."""
    return ProblemError("compacted", detail, facts={"oldest": oldest})


def as_of(missing: ProblemError, revision: int, lag_ms: int | None) -> ProblemError:
    """Return the refusal of a stale read that found nothing: it may exist, and not be known here yet."""
    detail = f"{missing.detail}, or this node has not seen it yet"
    return ProblemError(missing.code, detail, facts={"revision": revision, "lag_ms": lag_ms})


def of_exception(exc: Exception) -> ProblemError:
    """Return the problem for `exc`. An unforeseen one becomes `internal`, without details."""
    match exc:
        case ProblemError():
            return exc
        case ClusterError():
            detail = str(exc) or wire.PROBLEMS[exc.code].title
            return ProblemError(exc.code, detail, retry_after_ms=exc.retry_after_ms)
        case _:
            return ProblemError(
                "internal", "an unexpected error; the log of the node has it under the request id"
            )


def document(problem: ProblemError, request_id: str) -> Problem:
    """Return the problem document that answers the request `request_id`."""
    kind = wire.PROBLEMS[problem.code]
    result = Problem(
        type=wire.PROBLEM_TYPE_PREFIX + problem.code,
        title=kind.title,
        status=kind.status,
        detail=problem.detail,
        # Not the path: that may hold a session id, and problem documents end up in logs.
        instance=f"urn:holdfast:request:{urllib.parse.quote(request_id, safe='')}",
        code=problem.code,
        outcome=kind.outcome,
        request_id=request_id,
    )
    if problem.retry_after_ms:
        result.retry_after_ms = problem.retry_after_ms
    if problem.is_repeated:
        result.repeated = True
    if problem.namespace:
        result.namespace = problem.namespace
    if problem.quota:
        result.quota = problem.quota
    if problem.hidden:
        result.hidden = problem.hidden
    if problem.ended is not None:
        result.ended = problem.ended
    for name, number in problem.facts.items():
        setattr(result, name, number)
    if problem.refused is not None:
        _add_others(result, problem.refused)
    return result


def _add_others(document: Problem, refused: Refused) -> None:
    """Add who is in the way."""
    if refused.reason in _BECAUSE_OF_OTHERS:
        document.holders = holders_of(refused.holders)
        document.queue_length = refused.queue_length
    if refused.cycle:
        document.cycle = tuple([CycleStepJson(step.owner, step.name, step.kind) for step in refused.cycle])
