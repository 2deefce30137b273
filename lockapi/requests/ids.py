"""The ids that a node makes: secrets, each with 128 random bits, so that nobody guesses one."""

import secrets

from lockstate.words.ids import AttemptId, HoldId, SessionId

_BYTES = 16
"""Random bytes of one id."""
HEX_DIGITS = 2 * _BYTES
"""Hexadecimal digits of one id."""


def new_hold_ids() -> tuple[HoldId, AttemptId]:
    """Return the ids of a new hold, or of a conversion's ticket, and of the attempt to get it."""
    digits = secrets.token_hex(_BYTES)
    return HoldId(digits), AttemptId(digits)  # one text for both: a node keeps a million of each


def new_ids(count: int) -> list[str]:
    """Return so many ids, of any kind: in one call the random bytes of many cost a tenth."""
    digits, length = secrets.token_hex(count * _BYTES), HEX_DIGITS
    return [digits[start : start + length] for start in range(0, count * length, length)]


def new_session_id() -> SessionId:
    """Return the id of a new session."""
    return SessionId(secrets.token_hex(_BYTES))
