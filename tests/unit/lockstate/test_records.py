"""Names and claims: what a lock claims where, and how its records are called."""

from hypothesis import given
from hypothesis import strategies as st

from lockstate.tables.records import NOTHING, Delay, Hold, Lock, Ticket, each_lock, precedence
from lockstate.words.claims import (
    ClaimsKept,
    ancestors,
    claims_of,
    is_lock,
    parent,
    permits_of,
    record_name,
    semaphore_of,
    shown_name,
)
from lockstate.words.ids import NO_OWNER, NO_SESSION, AttemptId, HoldId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode, Scope, claim_of, intent_of
from lockstate.words.wanted import Wanted
from tests.unit.lockstate.machine_driver import EXCLUSIVE, NODE, SHARED, SUBTREE, UPDATE, wanted


def _hold(hold_id: str, token: int) -> Hold:
    return Hold(
        1,
        50,
        50,
        HoldId(hold_id),
        "a",
        SHARED,
        NO_OWNER,
        NO_SESSION,
        0,
        AttemptId("a1"),
        None,
        token=token,
    )


def _ticket(order: int, converts: str = "") -> Ticket:
    return Ticket(
        order,
        50,
        50,
        HoldId(f"h{order}"),
        "a",
        EXCLUSIVE,
        NO_OWNER,
        NO_SESSION,
        0,
        AttemptId("a1"),
        None,
        changes=HoldId(converts),
    )


def test_a_lock_claims_its_name_and_an_intent_above() -> None:
    """The claim on the own name comes first, then an intent on every ancestor, the nearest first."""
    intent = intent_of(UPDATE)
    assert claims_of("a/b/c", UPDATE, SUBTREE) == (
        ("a/b/c", claim_of(UPDATE, SUBTREE)),
        ("a/b", intent),
        ("a", intent),
    )
    assert claims_of("a", SHARED) == (("a", claim_of(SHARED, NODE)),)


def test_several_locks_claim_nothing_twice() -> None:
    """Two locks with the same ancestor and mode have one intent there; with two modes, two."""
    same = claims_of("", EXCLUSIVE, locks=wanted("a/b", "a/c"))
    assert [name for name, _ in same] == ["a/b", "a", "a/c"]
    mixed = claims_of("", EXCLUSIVE, locks=wanted("a/b") + wanted("a/c", mode=SHARED))
    assert [name for name, _ in mixed] == ["a/b", "a", "a/c", "a"]


NAMES = st.lists(st.sampled_from("abc"), min_size=1, max_size=5).map("/".join)
LOCKS = st.lists(st.builds(Wanted, NAMES, st.sampled_from(Mode), st.sampled_from(Scope)), max_size=8)


@given(LOCKS)
def test_several_locks_claim_what_each_of_them_claims(locks: list[Wanted]) -> None:
    """They claim the same as one after the other, in that order, each claim once; and so when asked again."""
    one_by_one = [claim for lock in locks for claim in claims_of(lock.name, lock.mode, lock.scope)]
    for _ in range(2):
        if locks:
            assert claims_of("", EXCLUSIVE, locks=tuple(locks)) == tuple(dict.fromkeys(one_by_one))


def test_only_so_many_claims_are_kept() -> None:
    """The claims of ever new locks do not fill the memory, and those that were kept last are the same."""
    kept = ClaimsKept(20)
    asked = [wanted(f"{number}/a", f"{number}/b/c") for number in range(50)]
    claims = [kept.get(locks) for locks in asked]
    assert {len(each) for each in claims} == {4}
    assert kept.count == 20
    assert all(kept.get(locks) is each for locks, each in zip(asked[-5:], claims[-5:], strict=True))
    first = kept.get(asked[0])
    assert first == claims[0]
    assert first is not claims[0]


def test_more_claims_than_are_kept_are_right() -> None:
    """Locks with more claims than may be kept get them all the same, and nothing stays."""
    kept = ClaimsKept(1)
    assert [name for name, _ in kept.get(wanted("a/b"))] == ["a/b", "a"]
    assert kept.count == 0


def test_elections_have_names_of_their_own() -> None:
    """An election claims one record, which no lock's name can have, and nothing above it."""
    ((name, claim),) = claims_of("a/b", EXCLUSIVE, kind=HoldKind.ELECTION)
    assert (name, claim) == (record_name(HoldKind.ELECTION, "a/b"), claim_of(EXCLUSIVE, NODE))
    assert not name.isprintable()
    assert not is_lock(name)
    assert shown_name(name) == shown_name("a/b") == "a/b"
    assert record_name(HoldKind.LOCK, "a/b") == "a/b"
    assert is_lock("a/b")


def test_stand_ins_of_permits_differ_from_names_of_records() -> None:
    """What becomes free of a semaphore stands under a name that is neither a lock's nor an election's."""
    assert semaphore_of(permits_of("a")[0]) == "a"
    assert semaphore_of("a") == semaphore_of(record_name(HoldKind.ELECTION, "a")) == ""


def test_a_name_has_the_ancestors_that_its_path_tells() -> None:
    """Each '/' ends an ancestor."""
    assert ancestors("a/b/c") == ["a/b", "a"]
    assert ancestors("a") == []
    assert (parent("a/b/c"), parent("a")) == ("a/b", "")


def test_holders_come_and_go() -> None:
    """A record keeps one holder as it is, and several in the order in which they came."""
    lock = Lock("a")
    holds = [_hold(f"h{token}", token) for token in (1, 2, 3)]
    assert (list(lock.all_holders()), lock.holders_count) == ([], 0)
    for count, hold in enumerate(holds, 1):
        lock.add_holder(hold)
        assert (list(lock.all_holders()), lock.holders_count) == (holds[:count], count)
    for count, hold in enumerate(holds, 1):
        lock.remove_holder(hold)
        assert (list(lock.all_holders()), lock.holders_count) == (holds[count:], 3 - count)
    assert lock.holders is NOTHING


def test_conversions_stand_before_all_others() -> None:
    """Tickets are sorted by arrival, those that convert before those that do not."""
    tickets = [_ticket(3), _ticket(4, "h9"), _ticket(1), _ticket(5, "h8")]
    assert [ticket.order for ticket in sorted(tickets, key=precedence)] == [4, 5, 1, 3]


def test_a_record_names_each_of_its_locks() -> None:
    """A hold of one lock names that one; a hold of several, each of them."""
    one = _hold("h1", 1)
    assert [(lock.name, lock.mode, lock.scope) for lock in each_lock(one)] == [("a", SHARED, NODE)]
    one.locks = wanted("b", "c", mode=UPDATE)
    assert list(each_lock(one)) == list(one.locks)


def test_a_delay_covers_a_lock_unless_it_says_otherwise() -> None:
    """A lock-delay is of a node and of no permits by default."""
    delay = Delay(1, 50, "a")
    assert (delay.scope, delay.kind, delay.permits) == (NODE, HoldKind.LOCK, 0)
    assert [mode.place for mode in Mode] == [0, 1, 2, 9, 10]
