"""Operations on rate limits, fences and cells as commands of a stream, and what their results say. No I/O."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from holdfast._cell_values import CellWritten
from holdfast._operation import NumberedForm
from holdfast._stream_forms import given
from holdfast._stream_refusals import NotTaken, accepted
from holdfast._values import Taken

_RATE_TAKEN: Final = frozenset({14})
_ADVANCED: Final = frozenset({15})
_WRITTEN: Final = frozenset({40})
_DELETED: Final = frozenset({41})
"""The kinds of results that say that it was done."""


# -- rate limits and fences -------------------------------------------------------------------------------


def take(
    name: str, *, limit: int, window_ms: int, algorithm: str, cost: int, may_wait: bool
) -> NumberedForm[Taken]:
    """Take from a rate limit, if it has a place now. What `may_wait` for one does so over HTTP."""
    return NumberedForm(
        command=(16, name, limit, window_ms, algorithm, cost, 0, ""),
        read=lambda result, _: _taken(result, may_wait=may_wait),
        is_once=True,
    )


def _taken(result: Sequence[Any], *, may_wait: bool) -> Taken:
    _, is_allowed, _, remaining, retry_after_ms, reset_in_ms, *_ = accepted(result, _RATE_TAKEN)
    if may_wait and not is_allowed:
        raise NotTaken("it has to wait", has_to_wait=True)
    told = {
        "allowed": is_allowed,
        "remaining": remaining,
        "retry_after_ms": retry_after_ms,
        "reset_in_ms": reset_in_ms,
    }
    return msgspec.convert(told, Taken)


def advance(resource: str, token: int) -> NumberedForm[int]:
    """Show a token to a resource. To do it again changes nothing more."""
    return NumberedForm(command=(17, resource, token, ""), read=lambda result, _: _advanced(result))


def _advanced(result: Sequence[Any]) -> int:
    return msgspec.convert(accepted(result, _ADVANCED)[1], int)


# -- cells ------------------------------------------------------------------------------------------------


def put(
    key: str, value: str | bytes, session_id: str, ttl_ms: int | None
) -> NumberedForm[CellWritten] | None:
    """Write a cell, whatever it had. None for what is no UTF-8: it is refused elsewhere."""
    try:
        value_bytes = value.encode() if isinstance(value, str) else value
        command = (40, key.encode(), value_bytes, session_id, given(ttl_ms), "")
    except UnicodeEncodeError:
        return None
    return NumberedForm(command=command, read=lambda result, _: _written(result), is_once=True)


def _written(result: Sequence[Any]) -> CellWritten:
    create_revision, mod_revision, version, *_ = accepted(result, _WRITTEN)[1:]
    told = {"create_revision": create_revision, "mod_revision": mod_revision, "version": version}
    return msgspec.convert(told, CellWritten)


def delete(key: str) -> NumberedForm[bool] | None:
    """Delete a cell; the result says whether it was there. None for what is no UTF-8."""
    try:
        command = (41, key.encode(), False, "")
    except UnicodeEncodeError:
        return None
    return NumberedForm(command=command, read=lambda result, _: _deleted(result), is_once=True)


def _deleted(result: Sequence[Any]) -> bool:
    return msgspec.convert(accepted(result, _DELETED)[1], int) > 0
