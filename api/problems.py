"""What can go wrong, as problem documents (RFC 9457): one way from a refusal or error to its answer.

Codes, statuses and outcomes are the table in holdfast/wire.py.
"""

import urllib.parse
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from api.views import CycleStep, Holder, holders_of
from cluster.errors import ClusterError
from holdfast import wire
from lockstate.results import Reason, Refused, Result

T = TypeVar("T")

_HELD: Final = frozenset({Reason.LOCK_HELD, Reason.NO_PERMITS})
"""Refusals because of others: they say who, even when nobody holds and only waiters are in the way."""


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
    cycle: tuple[CycleStep, ...] | msgspec.UnsetType = msgspec.UNSET
    available: int | msgspec.UnsetType = msgspec.UNSET
    limit: int | msgspec.UnsetType = msgspec.UNSET
    highest_token: int | msgspec.UnsetType = msgspec.UNSET
    oldest: int | msgspec.UnsetType = msgspec.UNSET
    revision: int | msgspec.UnsetType = msgspec.UNSET
    lag_ms: int | msgspec.UnsetType = msgspec.UNSET


class ProblemError(Exception):
    """The call is answered with a problem. `detail` is for people, `code` for programs."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        retry_after_ms: int = 0,
        allow: str = "",
        refused: Refused | None = None,
        oldest: int | None = None,
        ends_connection: bool = False,
    ) -> None:
        """Make a problem.

        `allow` names the methods of a path, `refused` brings what the state machine says besides, `oldest` is
        the revision from which on events are still there.
        """
        super().__init__(detail)
        self.code, self.detail = code, detail
        self.retry_after_ms, self.allow, self.refused = retry_after_ms, allow, refused
        self.facts: Mapping[str, int] = refused.facts if refused is not None else {}
        if oldest is not None:
            self.facts = {"oldest": oldest}
        self.ends_connection = ends_connection


def refusal(refused: Refused) -> ProblemError:
    """Return what the state machine, or a check of its limits, refused."""
    return ProblemError(
        refused.reason.value, refused.detail, retry_after_ms=refused.retry_after_ms, refused=refused
    )


def as_of(missed: ProblemError, revision: int, lag_ms: int) -> ProblemError:
    """Return the refusal of a stale read that found nothing: it may be there, and not yet on this node."""
    made = ProblemError(missed.code, f"{missed.detail}, or this node has not seen it yet")
    made.facts = {"revision": revision, "lag_ms": lag_ms}
    return made


def expect(result: Result, kind: type[T]) -> T:
    """Return `result` if it is what was asked for. Raises ProblemError for a refusal."""
    if isinstance(result, kind):
        return result
    if isinstance(result, Refused):
        raise refusal(result)
    raise AssertionError(f"expected {kind.__name__}, got {result!r}")


def of_exception(exc: Exception) -> ProblemError:
    """Return how `exc` is told to the client. What nobody foresaw is `internal`, without details."""
    match exc:
        case ProblemError():
            return exc
        case ClusterError():
            return ProblemError(
                exc.code, str(exc) or wire.PROBLEMS[exc.code].title, retry_after_ms=exc.retry_after_ms
            )
        case _:
            return ProblemError(
                "internal", "an unexpected error; the log of the node has it under the request id"
            )


def document(problem: ProblemError, request_id: str) -> Problem:
    """Return the problem document."""
    kind = wire.PROBLEMS[problem.code]
    made = Problem(
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
        made.retry_after_ms = problem.retry_after_ms
    for name, number in problem.facts.items():
        setattr(made, name, number)
    refused = problem.refused
    if refused is not None:
        _add_others(made, refused)
    return made


def _add_others(made: Problem, refused: Refused) -> None:
    """Say who is in the way."""
    if refused.reason in _HELD:
        made.holders = holders_of(refused.holders)
        made.queue_length = refused.queue_length
    if refused.cycle:
        made.cycle = tuple([CycleStep(step.owner, step.name, step.kind) for step in refused.cycle])
