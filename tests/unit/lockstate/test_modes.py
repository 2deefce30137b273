"""Which modes go together, and which claims on one record: the table of all conflicts."""

from itertools import product

from lockstate.modes import (
    CLAIMS,
    COMPATIBLE,
    CONFLICTING,
    CONFLICTS,
    FIELD,
    NAMED,
    UNIT,
    Mode,
    Scope,
    claim_of,
    count,
    intent_of,
    is_intent,
    is_tree,
)


def test_compatibility_is_symmetric() -> None:
    """If one mode lets another pass, the other lets it pass as well."""
    for one, other in product(Mode, Mode):
        assert (other in COMPATIBLE[one]) == (one in COMPATIBLE[other])


def test_shared_goes_with_shared_and_update() -> None:
    """Readers stand beside each other and one update lock; two update locks, or a writer, beside nobody."""
    pairs = {(one.value, other.value) for one, other in product(Mode, Mode) if other in COMPATIBLE[one]}
    assert pairs == {("shared", "shared"), ("shared", "update"), ("update", "shared")}


def test_every_claim_is_one_role_of_one_mode() -> None:
    """Three modes in three roles make nine claims, each with a place of its own."""
    own = [claim_of(mode, scope) for scope in Scope for mode in Mode]
    intents = [intent_of(mode) for mode in Mode]
    assert [*own, *intents] == list(CLAIMS)
    assert [claim for claim in CLAIMS if is_tree(claim)] == own[3:]
    assert [claim for claim in CLAIMS if is_intent(claim)] == intents


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
    """Nine counters share a number; each keeps its own count, and is found again by its field."""
    counts = sum(number * UNIT[claim] for claim, number in enumerate(range(1, 10)))
    assert [count(counts, claim) for claim in CLAIMS] == list(range(1, 10))
    assert sum(FIELD) == FIELD[8] | (UNIT[8] - 1)
    assert sum(FIELD[:6]) == NAMED


def test_one_look_finds_any_conflict() -> None:
    """The mask of a claim has the fields of exactly the claims that conflict with it."""
    for one, other in product(CLAIMS, CLAIMS):
        assert bool(UNIT[other] & CONFLICTS[one]) == (other in CONFLICTING[one])
