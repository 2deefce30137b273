"""What operators ask for about what others have, each with a reason that the cluster keeps."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from holdfast import wire
from holdfast.operations.operation import Operation, decode, new_request_id, path_to, write
from holdfast.wire.answers import (
    DelaysLiftedJson,
    FenceForgottenJson,
    ForceReleasedJson,
    RatesForgottenJson,
    RevocationsWithdrawnJson,
    RevokedJson,
    SessionForcedJson,
    WaitsForcedJson,
)
from holdfast.wire.held import Holder


def _of_kind(kind: str, paths: Mapping[str, str]) -> str:
    """Return the call for a kind. Raises ValueError for a kind that has none."""
    if kind not in paths:
        raise ValueError(f"kind: {kind!r}; must be one of {', '.join(paths)}")
    return paths[kind]


_FORCES: Final = {
    "lock": wire.LOCK_FORCE_RELEASE,
    "semaphore": wire.SEMAPHORE_FORCE_RELEASE,
    "election": wire.ELECTION_DEPOSE,
}
"""The calls that end holds, by kind."""


def force_release(
    kind: str, name: str, reason: str, lock_delay_ms: int, *, token: int | None
) -> Operation[tuple[Holder, ...]]:
    """End the holds of a name, or the one with `token`; the answer names the holders. Raises ValueError."""
    path = _of_kind(kind, _FORCES)
    if lock_delay_ms and path == wire.ELECTION_DEPOSE:
        raise ValueError("lock_delay: an election has none; the next candidate leads at once")
    fields = {
        "name": name,
        "reason": reason,
        "token": token,
        "lock_delay_ms": lock_delay_ms or None,
        "request_id": new_request_id(),
    }
    return write(path, fields, lambda answer: decode(answer, ForceReleasedJson).forced)


_LIFTS: Final = {"lock": wire.LOCK_LIFT_DELAY, "semaphore": wire.SEMAPHORE_LIFT_DELAY}
"""The calls that lift delays, by kind."""


def force_waits(kind: str, name: str, reason: str, *, ticket: int | None) -> Operation[WaitsForcedJson]:
    """End the waits for a name, or the one with this number; the answer shows them, and how many are left."""
    fields = {"name": name, "kind": kind, "reason": reason, "ticket": ticket, "request_id": new_request_id()}
    return write(wire.WAITS_FORCE_END, fields, lambda answer: decode(answer, WaitsForcedJson))


def force_close_session(session_name: str, reason: str) -> Operation[tuple[str, ...]]:
    """End a session by its public name; the answer names what it held."""
    fields = {"session_name": session_name, "reason": reason, "request_id": new_request_id()}
    return write(wire.SESSION_FORCE_CLOSE, fields, lambda answer: decode(answer, SessionForcedJson).names)


def lift_delay(kind: str, name: str, reason: str) -> Operation[int]:
    """End the lock-delays of a lock or a semaphore; the answer says how many there were."""
    path = _of_kind(kind, _LIFTS)
    fields = {"name": name, "reason": reason, "request_id": new_request_id()}
    return write(path, fields, lambda answer: decode(answer, DelaysLiftedJson).lifted)


_REVOKES: Final = {
    "lock": wire.LOCK_REVOKE,
    "semaphore": wire.SEMAPHORE_REVOKE,
    "election": wire.ELECTION_REVOKE,
}
"""The calls that ask holders to give up, by kind."""


def revoke(
    kind: str, name: str, reason: str, grace_ms: int, *, token: int | None, ticket: int | None
) -> Operation[tuple[Holder, ...]]:
    """Ask holders to give up; the answer says who was asked, and until when."""
    path = _of_kind(kind, _REVOKES)
    fields = {
        "name": name,
        "reason": reason,
        "grace_ms": grace_ms,
        "token": token,
        "ticket": ticket,
        "request_id": new_request_id(),
    }
    return write(path, fields, lambda answer: decode(answer, RevokedJson).revoked)


_WITHDRAWALS: Final = {
    "lock": wire.LOCK_WITHDRAW,
    "semaphore": wire.SEMAPHORE_WITHDRAW,
    "election": wire.ELECTION_WITHDRAW,
}
"""The calls that take back what holders were asked, by kind."""


def withdraw_revocation(
    kind: str, name: str, reason: str, *, token: int | None, ticket: int | None
) -> Operation[RevocationsWithdrawnJson]:
    """Take back what holders were asked; the answer says how much that was, and how much is left."""
    path = _of_kind(kind, _WITHDRAWALS)
    fields = {
        "name": name,
        "reason": reason,
        "token": token,
        "ticket": ticket,
        "request_id": new_request_id(),
    }
    return write(path, fields, lambda answer: decode(answer, RevocationsWithdrawnJson))


def forget_fence(name: str, reason: str) -> Operation[int | None]:
    """Forget the highest token of a resource; the answer has it, None if there was none."""
    fields = {"name": name, "reason": reason, "request_id": new_request_id()}
    return write(wire.FENCE_FORGET, fields, lambda answer: decode(answer, FenceForgottenJson).highest_token)


def forget_rate_limit(name: str, reason: str) -> Operation[RatesForgottenJson]:
    """Forget what was taken from the rate limits of a name; the answer says how many there were."""
    return _forget_rates(path_to(wire.RATE, name), reason)


def forget_rate_limits(prefix: str | None, reason: str) -> Operation[RatesForgottenJson]:
    """Forget some of the rate limits whose names begin with a prefix, or of all; each answer says if more."""
    which = "all=true" if prefix is None else f"prefix={quote(prefix, safe='')}"
    return _forget_rates(f"{wire.RATES}?{which}", reason)


def _forget_rates(path: str, reason: str) -> Operation[RatesForgottenJson]:
    fields = {"reason": reason, "request_id": new_request_id()}
    return write(path, fields, lambda answer: decode(answer, RatesForgottenJson), method="DELETE")
