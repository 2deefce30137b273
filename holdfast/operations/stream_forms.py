"""Operations on holds as commands of a stream, and what their results say (docs/stream.md). No I/O.

Only what may be asked at once has a form here: a wait goes over HTTP, where its node takes it back when this
program dies.
"""

import secrets
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from holdfast.operations.operation import NumberedForm, Operation
from holdfast.operations.stream_refusals import accepted
from holdfast.operations.wanted import HoldRequest
from holdfast.values.words import HoldKind, Mode, Scope
from holdfast.wire import commands, results
from holdfast.wire.held import Revocation
from holdfast.wire.results import Result
from holdfast.wire.words import PRIORITY_DEFAULT

T = TypeVar("T")

# -- what is asked ----------------------------------------------------------------------------------------


def acquire(
    names: Sequence[str],
    *,
    mode: str,
    scope: str,
    wanted: HoldRequest,
    read: Callable[[Result, float], T],
    release: Callable[[str], Operation[Any]],
) -> NumberedForm[T] | None:
    """Acquire a lock, or several. The hold has an id of ours, by which `release` can always give it back.

    None for what only some nodes allow: one that does not would end the stream.
    """
    if not _is_allowed_everywhere(wanted):
        return None
    hold_id = secrets.token_hex(16)
    # Whether these are words that nodes know is found out before they are sent.
    mode, scope = cast("Mode", mode), cast("Scope", scope)
    is_one = len(names) == 1
    command = commands.StreamAcquire(
        names[0] if is_one else "",
        mode if is_one else "exclusive",
        hold_id,
        wanted.session_id,
        _ttl_ms(wanted),
        wanted.owner,
        lock_delay_ms=wanted.lock_delay_ms,
        note=wanted.note,
        scope=scope if is_one else "node",
        locks=() if is_one else tuple([commands.StreamLock(name, mode, scope) for name in names]),
        value=wanted.value,
        is_secret=wanted.is_value_secret,
    )
    return NumberedForm(command=command, read=read, prevent=lambda: release(hold_id), wanted="\n".join(names))


def acquire_permits(
    name: str,
    *,
    limit: int | None,
    permits: int,
    is_strict: bool,
    wanted: HoldRequest,
    read: Callable[[Result, float], T],
    release: Callable[[str], Operation[Any]],
) -> NumberedForm[T] | None:
    """Acquire permits of a semaphore. None for what only some nodes allow."""
    if not _is_allowed_everywhere(wanted):
        return None
    hold_id = secrets.token_hex(16)
    command = commands.StreamAcquirePermits(
        name,
        -1 if is_strict and limit is None else given(limit),
        permits,
        hold_id,
        wanted.session_id,
        _ttl_ms(wanted),
        wanted.owner,
        lock_delay_ms=wanted.lock_delay_ms,
        note=wanted.note,
        is_strict=is_strict,
        value=wanted.value,
        is_secret=wanted.is_value_secret,
    )
    return NumberedForm(command=command, read=read, prevent=lambda: release(hold_id), wanted=name)


def _is_allowed_everywhere(wanted: HoldRequest) -> bool:
    is_rare = wanted.has_no_deadline or wanted.is_counted or wanted.asks
    return not is_rare and wanted.priority == PRIORITY_DEFAULT


def given(number: int | None) -> int:
    """Return a number, 0 for none; what stands for none on a stream is refused elsewhere, so it is -1."""
    return 0 if number is None else number or -1


def _ttl_ms(wanted: HoldRequest) -> int:
    """Return the ttl. Without any lease the hold would live by the session of the stream: never."""
    return 0 if wanted.session_id and wanted.ttl_ms is None else wanted.ttl_ms or -1


def renew(
    kind: HoldKind,
    hold_id: str,
    ttl_ms: int | None,
    read: Callable[[Result, float], T],
    *,
    exact: bool = False,
) -> NumberedForm[T]:
    """Renew a hold. To do it again only starts the lease anew."""
    return NumberedForm(command=commands.StreamRenew(hold_id, given(ttl_ms), kind, exact), read=read)


def release(kind: HoldKind, hold_id: str) -> NumberedForm[None]:
    """Release a hold."""
    return NumberedForm(command=commands.StreamRelease(hold_id, kind=kind), read=_released, ends_hold=True)


def convert(hold_id: str, mode: str) -> NumberedForm[int]:
    """Give a hold another mode, if nothing is in the way. To do it again changes nothing more."""
    return NumberedForm(
        command=commands.StreamConvert(hold_id, cast("Mode", mode)),
        read=lambda result, _: granted(result).token,
        wanted=hold_id,
    )


def proclaim(hold_id: str, value: str) -> NumberedForm[int]:
    """Tell everybody another value as the leader. To do it again changes nothing more."""
    return NumberedForm(
        command=commands.StreamProclaim(hold_id, value),
        read=lambda result, _: accepted(result, results.StreamProclaimed).token,
    )


def _released(result: Result, asked_at_s: float) -> None:
    del asked_at_s
    accepted(result, results.StreamReleased)


# -- what is told -----------------------------------------------------------------------------------------


def granted(result: Result) -> results.StreamGranted:
    """Read a grant of any kind. Raises Refused, NotTaken, OutcomeUnknown."""
    return accepted(result, results.StreamGranted)


def renewed(result: Result) -> tuple[results.StreamRenewed, tuple[Revocation, ...]]:
    """Read a renewal, and what is to be given up. Raises Refused, NotTaken, OutcomeUnknown."""
    told = accepted(result, results.StreamRenewed)
    asked = [
        Revocation(one.name, one.reason, one.ends_in_ms, one.is_put_off, one.ticket)
        for one in told.revocations
    ]
    return told, tuple(asked)
