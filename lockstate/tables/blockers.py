"""Which holds are in the way of a request or a waiter.

Refusals and the search for deadlocks use this. Nothing is decided here.
"""

from collections.abc import Collection, Container, Iterator
from itertools import islice, takewhile
from typing import Final

from lockstate.tables.records import Hold, Lock
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.claims import Claims, ancestors, claims_of
from lockstate.words.ids import HoldId
from lockstate.words.modes import (
    ALL_INTENTS,
    CONFLICTING,
    CONFLICTS,
    TREES,
    Claim,
    Counts,
    Scope,
    claim_of,
    is_intent,
    is_tree,
)

_SHOWN: Final = limits.HOLDERS_SHOWN_MAX
"""Holds that are found for a refusal."""


def conflicting_holds(
    state: State, claims: Claims, but: Container[HoldId] = ()
) -> Iterator[tuple[str, Hold]]:
    """Yield the holds that conflict with `claims`, except `but`, each with the name where it does."""
    for name, claim in claims:
        for record in _records(state, name, state.claimed.held_on(name) & CONFLICTS[claim]):
            for hold in record.all_holders():
                if hold.hold_id not in but and _claim_on(hold, record.name) in CONFLICTING[claim]:
                    yield record.name, hold


def shown_conflicts(state: State, claims: Claims, but: Container[HoldId] = ()) -> list[tuple[str, Hold]]:
    """Return holds that conflict with `claims`, as many as a refusal shows, each once, in order of token."""
    found: dict[str, tuple[str, Hold]] = {}
    for name, hold in conflicting_holds(state, claims, but):
        if hold.hold_id not in found:
            found[hold.hold_id] = (_first_conflict(hold, claims) if hold.locks else name, hold)
        if len(found) == _SHOWN:
            break
    return sorted(found.values(), key=lambda named: named[1].token)


def shown_covering(state: State, claims: Claims) -> list[tuple[str, Hold]]:
    """Return holds of the very names in `claims` likewise, for when waiters or a delay are in the way."""
    found: dict[str, tuple[str, Hold]] = {}
    names = [name for name, claim in claims if not is_intent(claim)]
    for name in names:
        for above, hold in islice(covering_holds(state, name), _SHOWN):
            found.setdefault(hold.hold_id, (_first_covering(hold, names) if hold.locks else above, hold))
    return sorted(islice(found.values(), _SHOWN), key=lambda named: named[1].token)


def conflict(ours: Claims, theirs: Claims) -> bool:
    """Whether any two claims conflict."""
    claims: dict[str, list[Claim]] = {}
    for name, claim in theirs:
        claims.setdefault(name, []).append(claim)
    return any(other in CONFLICTING[claim] for name, claim in ours for other in claims.get(name, ()))


def _first_conflict(hold: Hold, claims: Claims) -> str:
    """Return the first lock of a hold of several that conflicts with `claims`; there is one."""
    return next(
        lock.name for lock in hold.locks if conflict(claims_of(lock.name, lock.mode, lock.scope), claims)
    )


def _first_covering(hold: Hold, names: Collection[str]) -> str:
    """Return the first lock of a hold of several that covers any of `names`; there is one."""
    return next(
        lock.name
        for lock in hold.locks
        if lock.name in names
        or (lock.scope is Scope.SUBTREE and any(name.startswith(lock.name + "/") for name in names))
    )


def covering_holds(state: State, name: str) -> Iterator[tuple[str, Hold]]:
    """Yield the holds of `name` and of the subtrees that it lies in, each with the name that is held."""
    lock = state.locks.get(name)
    if lock is not None:
        for hold in lock.all_holders():
            yield name, hold
    for above in ancestors(name):
        lock = state.locks.get(above)
        if lock is not None and lock.held & TREES:
            for hold in lock.all_holders():
                if is_tree(_claim_on(hold, above)):
                    yield above, hold


def _records(state: State, name: str, conflicting: Counts) -> Iterator[Lock]:
    """Yield the records with the holds that have these claims on a name."""
    lock = state.locks.get(name)
    if lock is not None and conflicting:
        yield lock
    if conflicting & ALL_INTENTS:
        for below in names_below(state, name):
            yield state.locks[below]


def names_below(state: State, name: str) -> Iterator[str]:
    """Yield the names below `name` that have records, in order, but for those that are too far behind.

    Of all active names below, those that have only intents among them, the first LIST_ROWS_MAX count. Which
    these are is part of the rules: what a refusal tells, and which deadlocks are found, depends on it.
    """
    prefix, rows_max = name + "/", limits.LIST_ROWS_MAX
    before = known = prefix
    ahead: list[int] = []
    count = 0
    for below in takewhile(lambda name: name.startswith(prefix), state.names.after(prefix, inclusive=False)):
        count += 1 + _ancestors_since(state, before, below)
        if count + len(below) > rows_max:
            ahead, known = _ancestors_ahead(state, known, ahead, below), below
            if count + len(ahead) > rows_max:
                return
        yield below
        before = below


def _ancestors_since(state: State, before: str, name: str) -> int:
    """Return how many ancestors of `name` have no record and are none of `before`, the name before it.

    All names below an ancestor are neighbours, so one that is none of `before` has not been counted yet; and
    all above one that is are as well.
    """
    count = 0
    slash = name.rfind("/")
    while not before.startswith(name[: slash + 1]):
        count += name[:slash] not in state.locks
        slash = name.rfind("/", 0, slash)
    return count


def _ancestors_ahead(state: State, before: str, ahead: list[int], name: str) -> list[int]:
    """Return where names without records end that come before `name`, though all below them come after it.

    Some characters come before the slash: `a` is before `a-b`, and that is before `a/b`. `ahead` is the same
    of `before`, a name that comes before.
    """
    shared = _shared_length(before, name)
    return [end for end in ahead if end < shared] + [
        end
        for end in range(shared, len(name))
        if name[end] < "/" and name[:end] in state.intents and name[:end] not in state.locks
    ]


def _shared_length(one: str, other: str) -> int:
    """Return how many characters two names have in common at their beginnings."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one.startswith(other[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low


def _claim_on(hold: Hold, name: str) -> Claim:
    """Return the claim that `hold`, one of the holders of the record `name`, has on it."""
    if not hold.locks:
        return claim_of(hold.mode, hold.scope)
    return next(claim_of(lock.mode, lock.scope) for lock in hold.locks if lock.name == name)
