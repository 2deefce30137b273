"""What the fields of requests have in common: types, bounds, and how a wrong one is refused.

The bounds here only describe: lockstate enforces them and knows the codes. Every problem names the field.
"""

from typing import Annotated, Final

import msgspec

from lockapi.problems import ProblemError, refusal
from lockapi.requests.ids import HEX_DIGITS
from lockstate.rules import checks
from lockstate.words import limits
from lockstate.words.cell_operations import Relation
from lockstate.words.ids import HoldId, SessionId
from lockstate.words.kinds import Algorithm, HoldKind, IfHeld
from lockstate.words.modes import Mode, Scope
from lockstate.words.refusals import Refused

REQUEST_ID_CHARS_MIN: Final = 16
"""Characters of a request id, at least: programs that count from 1 would share each other's outcomes."""
_REQUEST_ID_EXAMPLE: Final = "b2f1c0de94a7435d8e6b1f20"

Maybe = msgspec.UnsetType
UNSET: Final = msgspec.UNSET


def _bounds(smallest: int, largest: int) -> msgspec.Meta:
    """Return the bounds of a number, for readers of the API's description."""
    return msgspec.Meta(extra_json_schema={"minimum": smallest, "maximum": largest})


def _lengths(smallest: int, largest: int) -> msgspec.Meta:
    """Return the bounds of a text's length, for the same readers."""
    return msgspec.Meta(extra_json_schema={"minLength": smallest, "maxLength": largest})


Name = Annotated[str, _lengths(1, limits.NAME_BYTES_MAX)]
RequestId = Annotated[str, _lengths(REQUEST_ID_CHARS_MIN, limits.ID_CHARS_MAX)]
SessionIdText = Annotated[SessionId, _lengths(1, limits.ID_CHARS_MAX)]
HoldIdText = Annotated[HoldId, _lengths(1, limits.ID_CHARS_MAX)]
NewHoldIdText = Annotated[
    HoldId, msgspec.Meta(extra_json_schema={"pattern": f"^[0-9a-fA-F]{{{HEX_DIGITS}}}$"})
]
"""The id that a client makes for a hold."""
Value = Annotated[str, _lengths(0, limits.VALUE_BYTES_MAX)]
HoldValue = Annotated[str, _lengths(1, limits.HOLD_VALUE_BYTES_MAX)]
Ttl = Annotated[int, _bounds(limits.TTL_MS_MIN, limits.TTL_MS_MAX)]
Reason = Annotated[str, msgspec.Meta(extra_json_schema={"minLength": 1})]
"""Why an operator does something, as the audit keeps it."""
HeldToken = Annotated[int, _bounds(1, limits.TOKEN_MAX)]
Wait = Annotated[int, _bounds(0, limits.WAIT_MS_MAX)]
LockDelay = Annotated[int, _bounds(0, limits.LOCK_DELAY_MS_MAX)]
GRACE_MS: Final = 30_000
"""The time, in ms, in which a holder is to give up if nobody says another."""
Grace = Annotated[int, _bounds(0, limits.GRACE_MS_MAX)]
HeldTime = Annotated[int, _bounds(limits.TTL_MS_MIN, limits.HELD_MS_MAX)]
FreezeTime = Annotated[int, _bounds(1, limits.FREEZE_MS_MAX)]
Priority = Annotated[int, _bounds(0, limits.PRIORITY_MAX)]
PermitsLimit = Annotated[int, _bounds(1, limits.SEMAPHORE_LIMIT_MAX)]
RateLimit = Annotated[int, _bounds(1, limits.RATE_LIMIT_MAX)]
Window = Annotated[int, _bounds(limits.RATE_WINDOW_MS_MIN, limits.RATE_WINDOW_MS_MAX)]
Token = Annotated[int, _bounds(0, limits.TOKEN_MAX)]

IfHeldUncounted = Annotated[
    IfHeld, msgspec.Meta(extra_json_schema={"enum": sorted(set(IfHeld) - {IfHeld.COUNT})})
]
"""What a campaign may say, and what may hold for all: a client that has to release as often must know it."""

WORDS: Final = {
    "mode": tuple(Mode),
    "scope": tuple(Scope),
    "algorithm": tuple(Algorithm),
    "kind": tuple(HoldKind),
    "relation": tuple(Relation),
    "if_held": tuple(IfHeld),
    "level": ("debug", "info", "warning", "error"),
}
"""The words that a field may be, where the decoder does not list them."""


class Request(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Base of all requests. Used as it is, it stands for a request without fields."""


class Write(Request, kw_only=True):
    """Base of requests that change something. A repetition with its `request_id` gets the first outcome."""

    request_id: RequestId | Maybe = UNSET

    def checked_id(self) -> str:
        """Return the request id, "" if there is none. Raises ProblemError."""
        if self.request_id is UNSET:
            return ""
        if len(self.request_id) < REQUEST_ID_CHARS_MIN:
            raise invalid(
                f"request_id: {len(self.request_id)} characters; must be {REQUEST_ID_CHARS_MIN} to"
                f" {limits.ID_CHARS_MAX}, chosen at random: requests with the same id get the same outcome"
                f' (example: "{_REQUEST_ID_EXAMPLE}")'
            )
        check(limits.check_id("request_id", self.request_id))
        return self.request_id


class Removal(Write, kw_only=True):
    """Base of requests that take something away, and say why."""

    reason: Reason | Maybe = UNSET
    """A face may take it from elsewhere, so it may be missing here."""


class WaitingRequest(Write, kw_only=True):
    """Base of requests that may wait in a queue, and be asked in slices.

    With `poll_ms` the node answers 202 once it has waited that long; the same request asked again goes on.
    """

    wait_ms: Wait = 0
    poll_ms: Wait | Maybe = UNSET

    def checked_wait_ms(self) -> int:
        """Return for how long the request may wait. Raises ProblemError, also for a wrong `poll_ms`."""
        if self.wait_ms:
            check(limits.check_range("wait_ms", self.wait_ms, limits.WAIT_MS_MAX))
        if self.poll_ms is not UNSET:
            check(limits.check_range("poll_ms", self.poll_ms, limits.WAIT_MS_MAX))
            if self.request_id is UNSET:
                raise invalid("poll_ms: needs a request_id, with which the client asks again")
        return self.wait_ms


def check(refused: Refused | None) -> None:
    """Raise ProblemError if a check refused something."""
    if refused is not None:
        raise refusal(refused)


def check_name(field: str, text: str) -> None:
    """Raise ProblemError if `text`, which stands in `field`, is not a name."""
    refused = limits.check_name(text)
    if refused is not None:
        _, _, problem = refused.detail.partition(": ")
        raise ProblemError(refused.reason.value, f"{field}: {problem}")


def check_value(value: str) -> None:
    """Raise ProblemError if no hold can have a value."""
    if not value:
        raise invalid("value: must not be empty")
    check(checks.check_value(value))


def check_reason(reason: str) -> None:
    """Raise ProblemError if an operator does not say why, or not in a way that can be kept and shown."""
    if not reason:
        raise invalid("reason: must not be empty")
    check(limits.check_text("reason", reason, limits.REASON_BYTES_MAX))


def check_prefix_or_all(prefix: str | bytes, *, is_all: bool, what: str) -> None:
    """Raise ProblemError unless there is a prefix, or all of `what` are meant.

    That has to be said: a prefix that was left empty by mistake must not end all there is.
    """
    if is_all is bool(prefix):
        raise invalid(f"prefix: give one that is not empty, or, for all {what}, none and all=true")


def check_between(field: str, value: int, smallest: int, largest: int) -> None:
    """Raise ProblemError if `value` is out of bounds."""
    if not smallest <= value <= largest:
        raise invalid(f"{field}: {value}; must be {smallest} to {largest}")


def invalid(detail: str) -> ProblemError:
    """Return the problem for a request that has to be corrected."""
    return ProblemError("invalid-request", detail)


def check_new_id(field: str, text: str) -> None:
    """Check an id that a client has made. Raises ProblemError."""
    if len(text) != HEX_DIGITS or not _is_hexadecimal(text):
        raise invalid(f"{field}: must be {HEX_DIGITS} hexadecimal digits, chosen at random")


def _is_hexadecimal(text: str) -> bool:
    try:
        return len(bytes.fromhex(text)) * 2 == len(text)
    except ValueError:
        return False
