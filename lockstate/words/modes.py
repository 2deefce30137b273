"""Lock modes, scopes, and which claims on a name may stand together. The conflict rules are these tables.

A lock takes a claim on its own name, and on every ancestor of it an intent: "somebody below holds this mode".
A lock of a subtree claims the whole tree under its name. So every conflict, even one across levels, shows on
a single name (Gray et al. 1976, Granularity of Locks, section 3). Unlike there, an intent stands for
exactly one mode, so a subtree conflicts with what lies in it by the same rule as two locks of one name.
"""

import enum
from typing import Final


class Mode(enum.StrEnum):
    """How a lock is held. The value is the word used in JSON; `place` is its claim on a name."""

    place: int

    EXCLUSIVE = "exclusive"
    SHARED = "shared"
    UPDATE = "update"
    CONCURRENT_READ = "concurrent-read"
    CONCURRENT_WRITE = "concurrent-write"

    __hash__ = str.__hash__  # that of Enum is a Python function, and slow


class Scope(enum.StrEnum):
    """What a lock covers: its name, or its name and all that lies below."""

    NODE = "node"
    SUBTREE = "subtree"

    __hash__ = str.__hash__


RARE: Final = 9
"""The first claim of the modes that few use. Where nobody uses them the counts stay as short, and
the tables as small, as they were without them."""

for _place, _mode in zip((0, 1, 2, RARE, RARE + 1), Mode, strict=True):
    _mode.place = _place

COMPATIBLE: Final[dict[Mode, frozenset[Mode]]] = {
    Mode.EXCLUSIVE: frozenset(),
    Mode.SHARED: frozenset({Mode.SHARED, Mode.UPDATE, Mode.CONCURRENT_READ}),
    Mode.UPDATE: frozenset({Mode.SHARED, Mode.CONCURRENT_READ}),
    Mode.CONCURRENT_READ: frozenset({Mode.SHARED, Mode.UPDATE, Mode.CONCURRENT_READ, Mode.CONCURRENT_WRITE}),
    Mode.CONCURRENT_WRITE: frozenset({Mode.CONCURRENT_READ, Mode.CONCURRENT_WRITE}),
}
"""For each mode, the modes that others may hold at the same time. Symmetric."""

WRITING: Final = frozenset({Mode.EXCLUSIVE, Mode.CONCURRENT_WRITE})
"""The modes whose holders may write."""

Claim = int
"""A mode on one record, in one of three roles: 0 to 2 the name, 3 to 5 its subtree, 6 to 8 an intent; and in
the same order from RARE on for the modes that came later."""

_NODE, _TREE, INTENT = 0, 3, 6
"""The first claims on a name and on a subtree, and the first intent; other modes have them 9 further on."""
ROLES_END: Final = 9
"""A claim modulo this says its role."""
CLAIMS: Final = tuple(sorted(mode.place + role for mode in Mode for role in (_NODE, _TREE, INTENT)))
"""All claims."""
CLAIMS_END: Final = 2 * ROLES_END
"""A number above all claims."""

Counts = int
"""The numbers of claims on a record, by claim: fields of 32 bits in one integer. Whether any of them is in
the way of a claim is one `&` with CONFLICTS; adding a claim is a sum with UNIT."""

_FIELD_BITS: Final = 32
"""Bits of one field."""
UNIT: Final[tuple[Counts, ...]] = tuple(1 << _FIELD_BITS * claim for claim in range(CLAIMS_END))
"""For each claim, the counts with one of it and none of any other."""
FIELD: Final[tuple[Counts, ...]] = tuple(unit * ((1 << _FIELD_BITS) - 1) for unit in UNIT)
"""For each claim, the bits of its field."""

IS_TREE: Final = tuple(_TREE <= claim % ROLES_END < INTENT for claim in range(CLAIMS_END))
IS_INTENT: Final = tuple(claim % ROLES_END >= INTENT for claim in range(CLAIMS_END))
"""For each claim, whether it is of this role: to look it up is quicker than to compute it."""


def claim_of(mode: Mode, scope: Scope) -> Claim:
    """Return the claim that a lock has on its own name."""
    return mode.place + (_TREE if scope is Scope.SUBTREE else _NODE)


def intent_of(mode: Mode) -> Claim:
    """Return the claim that a lock has on every ancestor of its name."""
    return mode.place + INTENT


def is_tree(claim: Claim) -> bool:
    """Whether the claim covers what lies below."""
    return IS_TREE[claim]


def is_intent(claim: Claim) -> bool:
    """Whether the claim stands for a lock below."""
    return IS_INTENT[claim]


INTENTS: Final = tuple(claim for claim in CLAIMS if is_intent(claim))
"""The claims that are intents."""
ALL_INTENTS: Final[Counts] = sum(FIELD[claim] for claim in INTENTS)
"""The fields of all intents."""
TREES: Final[Counts] = sum(FIELD[claim] for claim in CLAIMS if is_tree(claim))
"""The fields of all claims that cover what lies below."""
NAMED: Final[Counts] = sum(FIELD[claim] for claim in CLAIMS if not is_intent(claim))
"""The fields of all claims except intents."""


def count(counts: Counts, claim: Claim) -> int:
    """Return how many claims of this kind there are."""
    return (counts & FIELD[claim]) >> _FIELD_BITS * claim


def _meet(one: Claim, other: Claim) -> bool:
    """Whether two claims on one record concern a common name: an intent meets nothing but a subtree."""
    return is_tree(one) or is_tree(other) or (not is_intent(one) and not is_intent(other))


_MODE_OF: Final = {mode.place + role: mode for mode in Mode for role in (_NODE, _TREE, INTENT)}
"""For each claim, its mode."""


def _conflicting(claim: Claim) -> tuple[Claim, ...]:
    """Return the claims that may not stand beside `claim` on one record."""
    if claim not in _MODE_OF:
        return ()
    compatible = COMPATIBLE[_MODE_OF[claim]]
    return tuple(other for other in CLAIMS if _meet(claim, other) and _MODE_OF[other] not in compatible)


CONFLICTING: Final[tuple[tuple[Claim, ...], ...]] = tuple(_conflicting(claim) for claim in range(CLAIMS_END))
"""For each claim, the claims that may not stand beside it on one record. Symmetric."""

CONFLICTS: Final[tuple[Counts, ...]] = tuple(sum(FIELD[other] for other in row) for row in CONFLICTING)
"""For each claim, the fields of the claims that may not stand beside it."""

_OFTEN: Final = tuple(tuple(other for other in row if other < RARE) for row in CONFLICTING)
"""For each claim, what may not stand beside it of the modes that are there from the beginning."""


def conflicting_among(counts: Counts, claim: Claim) -> tuple[Claim, ...]:
    """Return the claims that may not stand beside `claim`, without those of modes that are not counted."""
    return _OFTEN[claim] if counts < UNIT[RARE] else CONFLICTING[claim]


def is_down(old: Mode, new: Mode) -> bool:
    """Whether `new` is compatible with every mode that `old` is compatible with."""
    return COMPATIBLE[old] <= COMPATIBLE[new]


def _draws_token(old: Mode, new: Mode) -> bool:
    excluded = COMPATIBLE[old] - COMPATIBLE[new]
    return bool(excluded) and (new in WRITING or not excluded.isdisjoint(WRITING))


DRAWING: Final = frozenset((old, new) for old in Mode for new in Mode if _draws_token(old, new))
"""The changes of mode, from one to another, with which a hold gets a new token: see `convert`."""
