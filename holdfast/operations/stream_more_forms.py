"""Operations on rate limits, fences and cells as commands of a stream, and what their results say. No I/O."""

from typing import cast

from holdfast.operations.operation import NumberedForm
from holdfast.operations.stream_forms import given
from holdfast.operations.stream_refusals import NotTaken, accepted
from holdfast.values.words import Algorithm
from holdfast.wire import commands, results
from holdfast.wire.answers import Taken
from holdfast.wire.cells import CellWritten
from holdfast.wire.results import Result

# -- rate limits and fences -------------------------------------------------------------------------------


def take(
    name: str, *, limit: int | None, window_ms: int | None, algorithm: str | None, cost: int, may_wait: bool
) -> NumberedForm[Taken]:
    """Take from a rate limit, if it has a place now. What `may_wait` for one does so over HTTP."""
    return NumberedForm(
        command=commands.StreamTakeRate(
            name, given(limit), given(window_ms), cast("Algorithm | None", algorithm), cost
        ),
        read=lambda result, _: _taken(result, may_wait=may_wait),
        wanted=name,
        is_once=True,
    )


def _taken(result: Result, *, may_wait: bool) -> Taken:
    told = accepted(result, results.StreamRateTaken)
    if may_wait and not told.allowed:
        raise NotTaken("it has to wait", has_to_wait=True)
    return Taken(told.allowed, told.remaining, told.retry_after_ms, told.reset_in_ms)


def advance(name: str, token: int) -> NumberedForm[int]:
    """Show a token to a resource. To do it again changes nothing more."""
    return NumberedForm(
        command=commands.StreamAdvanceFence(name, token),
        read=lambda result, _: accepted(result, results.StreamFenceAdvanced).highest_token,
    )


# -- cells ------------------------------------------------------------------------------------------------


def put(
    key: str, value: str | bytes, session_id: str, ttl_ms: int | None
) -> NumberedForm[CellWritten] | None:
    """Write a cell, whatever it had. None for what is no UTF-8: it is refused elsewhere."""
    try:
        value_bytes = value.encode() if isinstance(value, str) else value
        command = commands.StreamPutCell(key.encode(), value_bytes, session_id, given(ttl_ms))
    except UnicodeEncodeError:
        return None
    return NumberedForm(command=command, read=lambda result, _: _written(result), is_once=True)


def _written(result: Result) -> CellWritten:
    told = accepted(result, results.StreamCellWritten)
    return CellWritten(told.create_revision, told.mod_revision, told.version)


def delete(key: str) -> NumberedForm[bool] | None:
    """Delete a cell; the result says whether it was there. None for what is no UTF-8."""
    try:
        command = commands.StreamDeleteCells(key.encode())
    except UnicodeEncodeError:
        return None
    return NumberedForm(
        command=command,
        read=lambda result, _: accepted(result, results.StreamCellsDeleted).count > 0,
        is_once=True,
    )
