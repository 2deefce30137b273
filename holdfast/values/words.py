"""The words that calls take and give, for type checkers and completion.

Answers of nodes show their own words as `str`: a newer node may say one that this client does not know.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

from holdfast.wire.words import Algorithm, HoldKind, IfHeld, Mode, Relation, Scope

__all__ = [
    "COMPATIBLE",
    "LOG_LEVELS",
    "Algorithm",
    "HoldKind",
    "HoldState",
    "IfHeld",
    "LogLevel",
    "Mode",
    "Reason",
    "Relation",
    "Scope",
]

COMPATIBLE: Final[Mapping[str, frozenset[str]]] = {
    "exclusive": frozenset(),
    "shared": frozenset({"shared", "update", "concurrent-read"}),
    "update": frozenset({"shared", "concurrent-read"}),
    "concurrent-read": frozenset({"shared", "update", "concurrent-read", "concurrent-write"}),
    "concurrent-write": frozenset({"concurrent-read", "concurrent-write"}),
}
"""For each mode, those that another hold may have at the same time. Symmetric."""

Reason: TypeAlias = Literal[
    "",
    "released",
    "forked",
    "expired",
    "max-hold",
    "owner-gone",
    "not-renewed",
    "lease-expired",
    "session-expired",
]
"""Why a hold cannot be relied on any longer: see `Hold.reason`. Empty while it can."""

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
"""From which lines on a node logs."""
LOG_LEVELS: Final = get_args(LogLevel)

HoldState: TypeAlias = Literal["held", "at-risk", "lost", "released"]
"""How a hold stands: renewed in time, overdue for a renewal, lost, or given back (or to somebody else)."""
