"""The model's view of single commands: which are malformed, and what makes two requests the same.

An id under which something is looked up is not checked: nothing is known under a malformed one.
"""

import msgspec

from lockstate import limits
from lockstate.commands import (
    Acquire,
    Command,
    ForceRelease,
    OpenSession,
    Undecodable,
)
from lockstate.results import Reason, Refused

ATTEMPT_FIELDS = {"Acquire": {"hold_id", "attempt_id"}, "OpenSession": {"session_id"}}
"""What differs between two attempts at one request."""


def content(command: Command | Undecodable) -> object:
    """Return what must be the same in a repetition."""
    kind = type(command).__name__
    ignored = ATTEMPT_FIELDS.get(kind, set())
    return kind, {k: v for k, v in msgspec.structs.asdict(command).items() if k not in ignored}


def refuse_bad(command: Command | Undecodable) -> Refused | None:
    """Return the refusal of a command that breaks a bound or contradicts itself, or None."""
    match command:
        case Undecodable():
            return Refused(Reason.INVALID_REQUEST, "")
        case OpenSession():
            checks = [
                limits.check_id("session_id", command.session_id),
                limits.check_ttl(command.ttl_ms),
                limits.check_labels(command.labels),
            ]
        case Acquire():
            checks = _check_acquire(command)
        case ForceRelease():
            checks = [
                limits.check_name(command.name),
                limits.check_text("reason", command.reason, limits.REASON_BYTES_MAX),
                limits.check_range("lock_delay_ms", command.lock_delay_ms, limits.LOCK_DELAY_MS_MAX),
            ]
        case _:
            checks = []
    request_id = getattr(command, "request_id", "")
    if request_id:
        checks.append(limits.check_id("request_id", request_id))
    return next((refused for refused in checks if refused is not None), None)


def _check_acquire(command: Acquire) -> list[Refused | None]:
    checks = [
        limits.check_name(command.name),
        limits.check_id("hold_id", command.hold_id),
        limits.check_id("attempt_id", command.attempt_id),
        limits.check_text("owner", command.owner, limits.OWNER_BYTES_MAX),
        limits.check_text("note", command.note, limits.NOTE_BYTES_MAX),
        limits.check_range("wait_ms", command.wait_ms, limits.WAIT_MS_MAX),
        limits.check_range("lock_delay_ms", command.lock_delay_ms, limits.LOCK_DELAY_MS_MAX),
    ]
    if bool(command.session_id) == bool(command.ttl_ms):
        checks.append(Refused(Reason.INVALID_REQUEST, "exactly one of session_id and ttl_ms"))
    elif command.session_id:
        checks.append(limits.check_id("session_id", command.session_id))
    else:
        checks.append(limits.check_ttl(command.ttl_ms))
    return checks
