"""Lock modes, scopes, and which claims on a name may stand together. The conflict rules are these tables.

A lock takes a claim on its own name, and on every ancestor of it an intent: "somebody below holds this mode".
A lock of a subtree claims the whole tree under its name. So every conflict, even one across levels, shows on
a single record (Gray et al. 1976, Granularity of Locks, section 3). Unlike there, an intent stands for
exactly one mode, so a subtree conflicts with what lies in it by the same rule as two locks of one name.
"""

import enum
from typing import Final


class Mode(enum.StrEnum):
    """How a lock is held. The value is the word used in JSON; `place` is its number, from 0."""

    place: int

    EXCLUSIVE = "exclusive"
    SHARED = "shared"
    UPDATE = "update"

    __hash__ = str.__hash__  # that of Enum is a Python function, and slow


class Scope(enum.StrEnum):
    """What a lock covers: its name, or its name and all that lies below."""

    NODE = "node"
    SUBTREE = "subtree"

    __hash__ = str.__hash__


for _place, _mode in enumerate(Mode):
    _mode.place = _place

COMPATIBLE: Final[dict[Mode, frozenset[Mode]]] = {
    Mode.EXCLUSIVE: frozenset(),
    Mode.SHARED: frozenset({Mode.SHARED, Mode.UPDATE}),
    Mode.UPDATE: frozenset({Mode.SHARED}),
}
"""For each mode, the modes that others may hold at the same time. Symmetric."""

Claim = int
"""A mode on one record, in one of three roles: 0 to 2 the name, 3 to 5 its subtree, 6 to 8 an intent."""

CLAIMS: Final = range(9)
"""All claims."""
INTENTS: Final = range(6, 9)
"""The claims that are intents."""
_NODE, _TREE = 0, 3
"""The first claims on a name and on a subtree."""
INTENT: Final = 6
"""The first claim that is an intent."""

Counts = int
"""The numbers of claims on a record, by claim: nine fields of 32 bits in one integer. Whether any of them is
in the way of a claim is one `&` with CONFLICTS; adding a claim is a sum with UNIT."""

_FIELD_BITS: Final = 32
"""Bits of one field."""
UNIT: Final[tuple[Counts, ...]] = tuple(1 << _FIELD_BITS * claim for claim in CLAIMS)
"""For each claim, the counts with one of it and none of any other."""
FIELD: Final[tuple[Counts, ...]] = tuple(unit * ((1 << _FIELD_BITS) - 1) for unit in UNIT)
"""For each claim, the bits of its field."""
NAMED: Final[Counts] = sum(FIELD[:INTENT])
"""The fields of all claims except intents."""
ALL_INTENTS: Final[Counts] = sum(FIELD[INTENT:])
"""The fields of all intents."""


def claim_of(mode: Mode, scope: Scope) -> Claim:
    """Return the claim that a lock has on its own name."""
    return mode.place + (_TREE if scope is Scope.SUBTREE else _NODE)


def intent_of(mode: Mode) -> Claim:
    """Return the claim that a lock has on every ancestor of its name."""
    return mode.place + INTENT


def is_tree(claim: Claim) -> bool:
    """Whether the claim covers what lies below."""
    return _TREE <= claim < INTENT


def is_intent(claim: Claim) -> bool:
    """Whether the claim stands for a lock below."""
    return claim >= INTENT


def count(counts: Counts, claim: Claim) -> int:
    """Return how many claims of this kind there are."""
    return (counts & FIELD[claim]) >> _FIELD_BITS * claim


def _meet(one: Claim, other: Claim) -> bool:
    """Whether two claims on one record concern a common name: an intent meets nothing but a subtree."""
    return is_tree(one) or is_tree(other) or (not is_intent(one) and not is_intent(other))


_MODES: Final = tuple(Mode) * 3
"""For each claim, its mode."""

CONFLICTING: Final[tuple[tuple[Claim, ...], ...]] = tuple(
    tuple(other for other in CLAIMS if _meet(one, other) and _MODES[other] not in COMPATIBLE[_MODES[one]])
    for one in CLAIMS
)
"""For each claim, the claims that may not stand beside it on one record. Symmetric."""

CONFLICTS: Final[tuple[Counts, ...]] = tuple(sum(FIELD[other] for other in row) for row in CONFLICTING)
"""For each claim, the fields of the claims that may not stand beside it."""
