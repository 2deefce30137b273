"""The words that calls take and give, for type checkers and completion. A test compares them with the nodes'.

Answers of nodes show their own words as `str`: a newer node may say one that this client does not know.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

Mode: TypeAlias = Literal["exclusive", "shared", "update", "concurrent-read", "concurrent-write"]
"""What a hold of a lock allows others: see "What conflicts" in docs/semantics.md."""

COMPATIBLE: Final[Mapping[str, frozenset[str]]] = {
    "exclusive": frozenset(),
    "shared": frozenset({"shared", "update", "concurrent-read"}),
    "update": frozenset({"shared", "concurrent-read"}),
    "concurrent-read": frozenset({"shared", "update", "concurrent-read", "concurrent-write"}),
    "concurrent-write": frozenset({"concurrent-read", "concurrent-write"}),
}
"""For each mode, those that another hold may have at the same time. Symmetric."""

Scope: TypeAlias = Literal["node", "subtree"]
"""What a lock covers: its name alone, or also every name below it."""

HoldKind: TypeAlias = Literal["lock", "semaphore", "election"]
"""What a hold is of: each kind is renewed and released by calls of its own."""

IfHeld: TypeAlias = Literal["renew", "count", "refuse"]
"""What an acquire does if its session holds just these locks already."""

Algorithm: TypeAlias = Literal["fixed-window", "sliding-window", "gcra"]
"""How a rate limit counts."""

Relation: TypeAlias = Literal["=", "!=", "<", ">"]
"""How a cell is compared in a transaction."""

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

HoldState: TypeAlias = Literal["held", "at-risk", "lost"]
"""How a hold stands: renewed in time, overdue for a renewal, or over (also when it was released)."""
