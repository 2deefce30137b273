"""The ids that a node makes: secrets, each with 128 random bits, so that nobody guesses one."""

import os
import secrets
from typing import Final

from lockstate.words.ids import AttemptId, HoldId, SessionId

_BYTES = 16
"""Random bytes of one id."""
HEX_DIGITS = 2 * _BYTES
"""Hexadecimal digits of one id."""


_AT_A_TIME_COUNT: Final = 64
"""Ids of holds that are made together."""
_ready: Final[list[tuple[HoldId, AttemptId]]] = []
"""Those that nobody has yet. No other process has the same ones."""
os.register_at_fork(after_in_child=_ready.clear)


def new_hold_ids() -> tuple[HoldId, AttemptId]:
    """Return the ids of a new hold, or of a conversion's ticket, and of the attempt to get it."""
    if not _ready:
        # One text for both: a node keeps a million of each.
        _ready.extend([(HoldId(digits), AttemptId(digits)) for digits in new_ids(_AT_A_TIME_COUNT)])
    return _ready.pop()


def new_ids(count: int) -> list[str]:
    """Return so many ids, of any kind: in one call the random bytes of many cost a tenth."""
    digits, length = secrets.token_hex(count * _BYTES), HEX_DIGITS
    return [digits[start : start + length] for start in range(0, count * length, length)]


def new_session_id() -> SessionId:
    """Return the id of a new session."""
    return SessionId(secrets.token_hex(_BYTES))
