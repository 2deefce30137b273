"""The refusals of a stream, as the HTTP API words them. No I/O."""

import random
from typing import Final, TypeVar

from holdfast import wire
from holdfast.values.errors import OutcomeUnknown, refusal
from holdfast.wire.results import HolderSeen, Result, StreamRefused

R = TypeVar("R", bound=Result)

_TOLD: Final = frozenset({"lock-held", "no-permits", "lease-expired", "session-expired"})
"""Refusals that are told from a stream. Others are rare: they are asked for again over HTTP, in its words."""
_BECAUSE_OF_OTHERS: Final = frozenset({"lock-held", "no-permits"})
"""Refusals that say who is in the way, and when to ask again."""


class NotTaken(Exception):
    """The stream has not done it, and never will: it is to be asked over HTTP.

    `has_to_wait` says that it was refused only because it would have to wait.
    """

    def __init__(self, text: str, *, has_to_wait: bool = False) -> None:
        super().__init__(text)
        self.has_to_wait = has_to_wait


def accepted(result: Result, kind: type[R]) -> R:
    """Return a result of this kind. Raises OutcomeUnknown for any other that is not a refusal.

    Those raise Refused, as HTTP would, or NotTaken to ask HTTP.
    """
    if isinstance(result, kind):
        return result
    if not isinstance(result, StreamRefused):
        raise OutcomeUnknown(f"the answer is not that of a Holdfast node: {type(result).__name__}")
    if result.code not in _TOLD:
        raise NotTaken(f"{result.code}: {result.detail}")
    raise refusal(result.code, result.detail, _problem(result))


def _problem(refused: StreamRefused) -> dict[str, object]:
    """Return the problem document of a refusal: that of the HTTP API, but that no request has an id here."""
    code = refused.code
    kind = wire.PROBLEMS[code]
    problem: dict[str, object] = {
        "type": wire.PROBLEM_TYPE_PREFIX + code,
        "title": kind.title,
        "status": kind.status,
        "detail": refused.detail,
        "instance": "",
        "code": code,
        "outcome": kind.outcome,
        "request_id": "",
    }
    pause_ms = refused.retry_after_ms
    if code in _BECAUSE_OF_OTHERS:
        pause_ms = _spread_ms(pause_ms)
    if pause_ms:
        problem["retry_after_ms"] = pause_ms
    if code in _BECAUSE_OF_OTHERS:
        problem["holders"] = [_shown(holder) for holder in refused.holders]
        problem["queue_length"] = refused.queue_length
    return problem | refused.facts


def _spread_ms(pause_ms: int) -> int:
    """Return half of a pause, or up to all of it: who was refused together should not come back together."""
    return max(pause_ms - random.randint(0, pause_ms // 2), 1)  # noqa: S311 - spreads load, not a secret


def _shown(holder: HolderSeen) -> dict[str, object]:
    """Return a holder as the HTTP API shows it."""
    shown: dict[str, object] = {"owner": holder.owner}
    if holder.kind == "lock":
        shown["mode"] = holder.mode
    shown["token"] = holder.token
    if holder.expires_in_ms is not None:
        shown["expires_in_ms"] = holder.expires_in_ms
    shown |= {"note": holder.note, "name": holder.name}
    if holder.kind == "lock":
        shown["scope"] = holder.scope
    elif holder.kind == "semaphore":
        shown["permits"] = holder.permits
    if holder.expires_in_ms is None:
        shown["no_deadline"] = True
    return shown
