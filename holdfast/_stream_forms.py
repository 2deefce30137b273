"""Operations on holds as commands of a stream, and what their results say (docs/stream.md). No I/O.

Only what may be asked at once has a form here: a wait goes over HTTP, where its node takes it back when this
program dies.
"""

import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from holdfast._operation import NumberedForm, Operation
from holdfast._stream_refusals import accepted
from holdfast._values import Granted, Renewed
from holdfast._wanted import DEFAULT_PRIORITY, Wanted
from holdfast._words import HoldKind

T = TypeVar("T")

_GRANTED: Final = frozenset({4, 19, 28, 79, 80, 81})
_RENEWED_TO_END: Final = 26
_RENEWED: Final = frozenset({6, _RENEWED_TO_END})
_RELEASED: Final = frozenset({7, 20})
_PROCLAIMED: Final = frozenset({13})
"""The kinds of results that say that it was done."""

# -- what is asked ----------------------------------------------------------------------------------------


def acquire(
    names: Sequence[str],
    *,
    mode: str,
    scope: str,
    wanted: Wanted,
    read: Callable[[Sequence[Any], float], T],
    release: Callable[[str], Operation[Any]],
) -> NumberedForm[T] | None:
    """Acquire a lock, or several. The hold has an id of ours, by which `release` can always give it back.

    None for what only some nodes allow: one that does not would end the stream.
    """
    if not _is_allowed_everywhere(wanted):
        return None
    hold_id = secrets.token_hex(16)
    is_one = len(names) == 1
    command: tuple[object, ...] = (
        4,
        names[0] if is_one else "",
        mode if is_one else "exclusive",
        hold_id,
        "",
        wanted.session_id,
        _ttl_ms(wanted),
        wanted.owner,
        0,
        wanted.lock_delay_ms,
        wanted.note,
        "",
        scope if is_one else "node",
        () if is_one else tuple([(name, mode, scope) for name in names]),
    )
    if wanted.value:
        command = (76, *command[1:], None, wanted.value, wanted.is_value_secret)
    return NumberedForm(command=command, read=read, prevent=lambda: release(hold_id))


def acquire_permits(
    name: str,
    *,
    limit: int | None,
    permits: int,
    is_strict: bool,
    wanted: Wanted,
    read: Callable[[Sequence[Any], float], T],
    release: Callable[[str], Operation[Any]],
) -> NumberedForm[T] | None:
    """Acquire permits of a semaphore. None for what only some nodes allow."""
    if not _is_allowed_everywhere(wanted):
        return None
    hold_id = secrets.token_hex(16)
    command = (
        77,
        name,
        -1 if is_strict and limit is None else given(limit),
        permits,
        hold_id,
        "",
        wanted.session_id,
        _ttl_ms(wanted),
        wanted.owner,
        0,
        wanted.lock_delay_ms,
        wanted.note,
        "",
        is_strict,
        wanted.value,
        wanted.is_value_secret,
    )
    return NumberedForm(command=command, read=read, prevent=lambda: release(hold_id))


def _is_allowed_everywhere(wanted: Wanted) -> bool:
    return not (wanted.has_no_deadline or wanted.is_counted) and wanted.priority == DEFAULT_PRIORITY


def given(number: int | None) -> int:
    """Return a number, 0 for none; what stands for none on a stream is refused elsewhere, so it is -1."""
    return 0 if number is None else number or -1


def _ttl_ms(wanted: Wanted) -> int:
    """Return the ttl. Without any lease the hold would live by the session of the stream: never."""
    return 0 if wanted.session_id and wanted.ttl_ms is None else wanted.ttl_ms or -1


def renew(
    kind: HoldKind, hold_id: str, ttl_ms: int | None, read: Callable[[Sequence[Any], float], T]
) -> NumberedForm[T]:
    """Renew a hold. To do it again only starts the lease anew."""
    return NumberedForm(command=(45, hold_id, given(ttl_ms), "", kind), read=read)


def release(kind: HoldKind, hold_id: str) -> NumberedForm[None]:
    """Release a hold."""
    return NumberedForm(command=(44, hold_id, "", (), kind), read=_released, ends_hold=True)


def convert(hold_id: str, mode: str) -> NumberedForm[int]:
    """Give a hold another mode, if nothing is in the way. To do it again changes nothing more."""
    return NumberedForm(
        command=(11, hold_id, mode, "", "", 0, ""), read=lambda result, _: granted(result).token
    )


def proclaim(hold_id: str, value: str) -> NumberedForm[int]:
    """Tell everybody another value as the leader. To do it again changes nothing more."""
    return NumberedForm(command=(15, hold_id, value, ""), read=lambda result, _: _proclaimed(result))


def _proclaimed(result: Sequence[Any]) -> int:
    return msgspec.convert(accepted(result, _PROCLAIMED)[1], int)


def _released(result: Sequence[Any], asked_at_s: float) -> None:
    del asked_at_s
    accepted(result, _RELEASED)


# -- what is told -----------------------------------------------------------------------------------------


def granted(result: Sequence[Any]) -> Granted:
    """Read a grant of any kind. Raises Refused, NotTaken."""
    told = accepted(result, _GRANTED)
    return msgspec.convert({"hold_id": told[1], "token": told[2], **_lease(told[5])}, Granted)


def renewed(result: Sequence[Any]) -> Renewed:
    """Read a renewal. Raises Refused, NotTaken."""
    told = accepted(result, _RENEWED)
    said = {"token": told[1], **_lease(told[2])}
    if told[0] == _RENEWED_TO_END:
        reason, ends_in_ms, ticket, is_put_off, *_ = told[3]
        said["revocation"] = {
            "reason": reason,
            "ends_in_ms": ends_in_ms,
            "ticket": ticket,
            "put_off": is_put_off,
        }
    return msgspec.convert(said, Renewed)


def _lease(expires_in_ms: int | None) -> dict[str, Any]:
    """Return the fields of a lease; a hold without a deadline has None for the time."""
    return {"no_deadline": True} if expires_in_ms is None else {"expires_in_ms": expires_in_ms}
