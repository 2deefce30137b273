"""Which modes go together, and which claims on one record: the table of all conflicts."""

from itertools import product

from lockstate.words.modes import (
    ALL_INTENTS,
    CLAIMS,
    COMPATIBLE,
    CONFLICTING,
    CONFLICTS,
    FIELD,
    INTENTS,
    NAMED,
    RARE,
    UNIT,
    Mode,
    Scope,
    claim_of,
    conflicting_among,
    count,
    intent_of,
    is_intent,
    is_tree,
)

OLD = (Mode.EXCLUSIVE, Mode.SHARED, Mode.UPDATE)
"""The modes that are there from the beginning."""


def test_compatibility_is_symmetric() -> None:
    """If one mode lets another pass, the other lets it pass as well."""
    for one, other in product(Mode, Mode):
        assert (other in COMPATIBLE[one]) == (one in COMPATIBLE[other])


def test_shared_goes_with_shared_and_update() -> None:
    """Readers stand beside each other and one update lock; two update locks, or a writer, beside nobody."""
    pairs = {(one.value, other.value) for one, other in product(OLD, OLD) if other in COMPATIBLE[one]}
    assert pairs == {("shared", "shared"), ("shared", "update"), ("update", "shared")}


def test_every_claim_is_one_role_of_one_mode() -> None:
    """Five modes in three roles make fifteen claims, each with a place of its own."""
    own = [claim_of(mode, Scope.NODE) for mode in Mode]
    trees = [claim_of(mode, Scope.SUBTREE) for mode in Mode]
    intents = [intent_of(mode) for mode in Mode]
    assert sorted([*own, *trees, *intents]) == list(CLAIMS)
    assert [claim for claim in CLAIMS if is_tree(claim)] == trees
    assert [claim for claim in CLAIMS if is_intent(claim)] == list(INTENTS) == intents


def test_the_first_modes_have_the_claims_that_they_had() -> None:
    """What came later has higher numbers, so counts without it are as short as before."""
    assert [mode.place for mode in Mode] == [0, 1, 2, 9, 10]
    assert [claim for claim in CLAIMS if claim < RARE] == list(range(9))


def test_claims_of_modes_that_nobody_uses_are_left_out() -> None:
    """Of what may be in the way of a claim, only what is counted needs a look."""
    for claim, other in product(CLAIMS, CLAIMS):
        found = conflicting_among(UNIT[other], claim)
        assert (other in found) == (other in CONFLICTING[claim])
        assert other >= RARE or all(one < RARE for one in found)


def test_conflicts_are_symmetric() -> None:
    """If one claim is in the way of another, the other is in the way of it."""
    for one, other in product(CLAIMS, CLAIMS):
        assert (other in CONFLICTING[one]) == (one in CONFLICTING[other])


def test_an_intent_meets_nothing_but_a_subtree() -> None:
    """At a name, a lock below conflicts with nothing but a lock of the whole subtree."""
    for intent, other in product((intent_of(mode) for mode in Mode), CLAIMS):
        if not is_tree(other):
            assert other not in CONFLICTING[intent]


def test_a_role_changes_nothing_about_modes() -> None:
    """Where two claims concern a common name, they conflict as their modes do."""
    for one, other in product(Mode, Mode):
        expected = other not in COMPATIBLE[one]
        for scope in Scope:
            assert (claim_of(other, Scope.SUBTREE) in CONFLICTING[claim_of(one, scope)]) == expected
        assert (claim_of(other, Scope.SUBTREE) in CONFLICTING[intent_of(one)]) == expected
        assert (claim_of(other, Scope.NODE) in CONFLICTING[claim_of(one, Scope.NODE)]) == expected


def test_claims_are_counted_in_one_number() -> None:
    """The counters share a number; each keeps its own count, and is found again by its field."""
    counts = sum(number * UNIT[claim] for number, claim in enumerate(CLAIMS, 1))
    assert [count(counts, claim) for claim in CLAIMS] == list(range(1, len(CLAIMS) + 1))
    assert sum(FIELD) == FIELD[-1] | (UNIT[-1] - 1)
    assert sum(FIELD[claim] for claim in CLAIMS) == NAMED | ALL_INTENTS
    assert not NAMED & ALL_INTENTS


def test_one_look_finds_any_conflict() -> None:
    """The mask of a claim has the fields of exactly the claims that conflict with it."""
    for one, other in product(CLAIMS, CLAIMS):
        assert bool(UNIT[other] & CONFLICTS[one]) == (other in CONFLICTING[one])
