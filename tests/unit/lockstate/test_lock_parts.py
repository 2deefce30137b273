"""Transactions with parts about locks: compares, takes, ends and renewals, all of them or none."""

import msgspec
import pytest

from lockstate.rules.refusals import LEASE_EXPIRED
from lockstate.words import limits
from lockstate.words.cell_operations import LockCompare, Operation
from lockstate.words.commands.admin import SetNamespace, SetQuota
from lockstate.words.commands.cells import TransactCells
from lockstate.words.commands.entries import OnBehalf
from lockstate.words.commands.holds import Acquire, AcquireSeveral, AddLocks
from lockstate.words.commands.overrides import Freeze
from lockstate.words.events import EventKind
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.kinds import IfHeld
from lockstate.words.refusals import QuotaExceeded, Reason, Refused
from lockstate.words.results import (
    RELEASED,
    CellRead,
    CellWritten,
    Granted,
    LockTaken,
    Queued,
    Renewed,
    Transacted,
)
from lockstate.words.settings import NamespaceSettings, Quota
from lockstate.words.wanted import Uncommon, WantedRate
from tests.unit.lockstate.cell_driver import (
    CellDriver,
    end_part,
    get_part,
    is_free,
    is_held,
    put_part,
    renew_part,
    take_part,
)
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, SUBTREE, expect, reason, wanted


def refused(driver: CellDriver, *then: Operation) -> Refused:
    """Expect that a transaction is refused, and that nothing of it is done."""
    before = driver.machine.fingerprint
    tokens = driver.machine.next_token
    result = expect(Refused, driver.run(TransactCells((), (put_part("before"), *then, put_part("behind")))))
    assert (driver.events, driver.cell_events, driver.settled) == ((), (), {})
    assert (driver.machine.next_token, driver.values()) == (tokens, {})
    assert driver.machine.is_sound
    assert before != driver.machine.fingerprint, "an entry was applied"
    return result


def test_locks_and_cells_change_together() -> None:
    """A transaction takes locks with values, renews and ends others and writes cells, in its order."""
    driver = CellDriver()
    old, kept = driver.granted("old"), driver.granted("kept")
    done = driver.transact(
        is_held("old", old.hold_id),
        is_free("new"),
        then=(
            take_part("new", "h-new", value="v", owner="ann", ttl_ms=500),
            put_part("c", "1"),
            renew_part(kept.hold_id, 70),
            end_part(old.hold_id),
            get_part("c"),
        ),
    )
    taken, written, renewed, ended, read = done.results
    assert (taken, renewed, ended) == (LockTaken(3, 500), Renewed(kept.token, 70), RELEASED)
    assert isinstance(written, CellWritten)
    assert isinstance(read, CellRead)
    assert driver.happened() == [("granted", "new"), ("released", "old")]
    view = driver.machine.lock("new").holders[0]
    assert (view.owner, view.value, view.expires_in_ms) == ("ann", "v", 500)
    assert driver.pass_to(71) == [EventKind.EXPIRED]


def test_a_compare_with_a_lock() -> None:
    """It is true of the only hold of just this name, or of a name that nothing is in the way of."""
    driver = CellDriver()
    tree, first = driver.granted("a", scope=SUBTREE), driver.granted("b", mode=SHARED)
    assert driver.is_true(is_held("a", tree.hold_id))
    assert driver.is_true(is_held("b", first.hold_id))
    assert not driver.is_true(is_held("a/x", tree.hold_id))
    assert not driver.is_true(is_free("a/x"))
    assert not driver.is_true(is_free("a"))
    assert driver.is_true(is_free("c"))
    driver.granted("b", mode=SHARED)
    assert not driver.is_true(is_held("b", first.hold_id))
    driver.granted("d/x")
    assert driver.is_true(is_free("d"))
    driver.granted("e")
    driver.force("e", 50)
    assert not driver.is_true(is_free("e"))


def test_neither_a_freeze_nor_waiters_make_a_name_less_free() -> None:
    """A compare is true of a name that is frozen and waited for; a take is refused then."""
    driver = CellDriver()
    driver.run(Freeze("a", "why"))
    driver.queued("a")
    assert driver.is_true(is_free("a"))
    assert refused(driver, take_part("a", "h-new")).reason is Reason.FROZEN


def test_a_name_is_released_and_taken_again() -> None:
    """What a transaction ends is not in the way of what it takes behind that; it is in the way before."""
    driver = CellDriver()
    old = driver.granted("a/b")
    assert reason(refused(driver, take_part("a/b", "h-new"), end_part(old.hold_id))) is Reason.LOCK_HELD
    done = driver.transact(then=(end_part(old.hold_id), take_part("a/b", "h-new")))
    assert done.results == (RELEASED, LockTaken(old.token + 1, 1000))
    assert driver.happened() == [("released", "a/b"), ("granted", "a/b")]


def test_a_take_overtakes_nobody() -> None:
    """It is refused if others wait, as an acquire without waiting is, also if it ends the hold itself."""
    driver = CellDriver()
    first = driver.granted("a")
    driver.queued("a")
    result = refused(driver, end_part(first.hold_id), take_part("a", "h-new"))
    assert (result.reason, result.detail, result.queue_length) == (Reason.LOCK_HELD, "others wait for it", 1)


def test_what_a_take_would_meet_can_be_asked() -> None:
    """A hold that does not end before, those that wait for the name or a subtree above it, a freeze."""
    driver = CellDriver()
    can_take = driver.machine.can_take
    assert can_take("a/b")
    held = driver.granted("a/b")
    assert [can_take("a/b"), can_take("a/b", held.hold_id), can_take("a/c")] == [False, True, True]
    driver.queued("a", scope=SUBTREE)
    assert [can_take("a/b", held.hold_id), can_take("a/c"), can_take("b")] == [False, False, True]
    driver.run(Freeze("b", "why"))
    assert [can_take("b/c"), can_take("c")] == [False, True]


def test_a_take_goes_before_a_waiter_of_lower_priority() -> None:
    """As an acquire does: only those that come before it are in its way."""
    driver = CellDriver()
    first = driver.granted("a")
    low = expect(
        Queued,
        driver.run(
            Acquire(
                "a",
                EXCLUSIVE,
                HoldId("h-low"),
                AttemptId("a-low"),
                ttl_ms=1000,
                wait_ms=1000,
                uncommon=Uncommon(priority=0),
            )
        ),
    )
    driver.transact(then=(end_part(first.hold_id), take_part("a", "h-new")))
    assert driver.served() == []
    driver.transact(then=(end_part("h-new"),))
    assert driver.served() == [low.hold_id]


def test_a_wait_for_a_change_ends_with_its_hold() -> None:
    """A hold that is to be converted, and ends, is not in the way; other waits behind it still are."""
    driver = CellDriver()
    one, other = driver.granted("a", mode=SHARED), driver.granted("a", mode=SHARED)
    driver.converting(one.hold_id, EXCLUSIVE)
    result = refused(driver, end_part(other.hold_id), take_part("a", "h-new"))
    assert result.reason is Reason.LOCK_HELD
    done = driver.transact(then=(end_part(one.hold_id), end_part(other.hold_id), take_part("a", "h-new")))
    assert isinstance(done.results[2], LockTaken)


def test_waiters_are_served_once_all_is_done() -> None:
    """Those that wait for what a transaction ends are granted behind what it takes, in the same entry."""
    driver = CellDriver()
    first = driver.granted("a")
    waiter = driver.queued("a")
    driver.transact(then=(end_part(first.hold_id), take_part("b", "h-new")))
    assert driver.happened() == [("released", "a"), ("granted", "b"), ("granted", "a")]
    assert isinstance(driver.settled[waiter.hold_id], Granted)


def test_a_forced_end() -> None:
    """It ends a hold as a force with its reason, whose lock-delay keeps the name from being taken."""
    driver = CellDriver()
    hold, delayed = driver.granted("a"), driver.granted("b", lock_delay_ms=50)
    named = is_held("a", hold.hold_id)
    done = driver.transact(named, then=(end_part(hold.hold_id, "because"), take_part("a", "h-new")))
    assert done.results[0] == RELEASED
    forced = driver.events[0]
    assert (forced.kind, forced.name, forced.reason) == (EventKind.FORCED, "a", "because")
    command = TransactCells(
        (is_held("b", delayed.hold_id),), (end_part(delayed.hold_id, "because"), take_part("b", "h-b"))
    )
    assert reason(driver.run(command)) is Reason.LOCK_HELD
    assert driver.is_true(is_held("b", delayed.hold_id))


@pytest.mark.parametrize(
    "command",
    [
        TransactCells((), (end_part("h1", "because"),)),
        TransactCells((is_held("a", "h2"),), (end_part("h1", "because"),)),
        TransactCells((is_held("a", "h1"),), (), (end_part("h1", "because"),)),
        TransactCells((is_held("a", "h1"),), (end_part("h1", "be\ncause"),)),
        TransactCells((LockCompare("a", HoldId("h" * 200)),)),
        TransactCells((LockCompare("a/"),)),
        TransactCells((), (take_part("a", "h2"), take_part("a", "h3"))),
        TransactCells((), (take_part("a", "h2"), take_part("b", "h2"))),
        TransactCells((), (end_part("h1"), renew_part("h1", 100))),
        TransactCells((), (take_part("a/", "h2"),)),
        TransactCells((), (take_part("a", ""),)),
        TransactCells((), (take_part("a", "h2", value="\n"),)),
        TransactCells((), tuple(take_part(f"{'a/' * 63}{at}", f"h-{at}") for at in range(32))),
    ],
)
def test_what_is_not_well_formed_is_refused(command: TransactCells) -> None:
    """Nothing of such a transaction is done, whatever the state."""
    driver = CellDriver()
    driver.granted("a")
    assert reason(driver.run(command)) is Reason.INVALID_REQUEST
    assert driver.events == ()


def test_a_hold_that_cannot_be_used_refuses_all() -> None:
    """One that is gone or another principal's, one that counts, and a lease that cannot have that length."""
    driver = CellDriver()
    assert refused(driver, end_part("gone")) == refused(driver, renew_part("gone", 100)) == LEASE_EXPIRED
    driver.open("s")
    in_session = driver.granted("a", session_id="s")
    assert refused(driver, renew_part(in_session.hold_id, 100)).reason is Reason.INVALID_REQUEST
    driver.run(Acquire("b", EXCLUSIVE, HoldId("hb"), AttemptId("a1"), SessionId("s"), if_held=IfHeld.COUNT))
    driver.run(Acquire("b", EXCLUSIVE, HoldId("hb2"), AttemptId("a2"), SessionId("s"), if_held=IfHeld.COUNT))
    assert refused(driver, end_part("hb")).reason is Reason.INVALID_REQUEST
    forced = driver.transact(is_held("b", "hb"), then=(end_part("hb", "because"),))
    assert forced.results == (RELEASED,)


def test_what_is_anothers_can_only_be_forced() -> None:
    """Whose a hold is decides over its release and its renewal, not over a compare, nor over a force."""
    driver = CellDriver()
    driver.run(OnBehalf("ann", TransactCells((), (take_part("a", "ha"),))))
    assert driver.machine.is_of(HoldId("ha"), "ann")
    for part in (end_part("ha"), renew_part("ha", 100)):
        assert driver.run(OnBehalf("bob", TransactCells((), (part,)))) == LEASE_EXPIRED
    command = TransactCells((is_held("a", "ha"),), (end_part("ha", "because"), take_part("a", "hb")))
    expect(Transacted, driver.run(OnBehalf("bob", command)))
    assert (driver.events[0].principal, driver.events[0].by) == ("ann", "bob")
    assert driver.machine.belongs_to(HoldId("hb"), "bob")
    assert not driver.machine.belongs_to(HoldId("ha"), "ann")


def test_quotas_count_what_is_left_and_taken_together() -> None:
    """What a transaction ends leaves room for what it takes behind that, and takes count beside cells."""
    driver = CellDriver()
    driver.run(SetQuota("ann", Quota(holds=2, bytes=8)))
    take = TransactCells((), (take_part("a", "h1"), take_part("b", "h2"), take_part("c", "h3")))
    assert reason(driver.run(OnBehalf("ann", take))) is Reason.QUOTA_EXCEEDED
    assert driver.machine.counts()["holds"] == 0
    driver.run(OnBehalf("ann", msgspec.structs.replace(take, then=take.then[:2])))
    again = TransactCells((), (end_part("h1"), take_part("a", "h4", value="vv")))
    expect(Transacted, driver.run(OnBehalf("ann", again)))
    too_much = TransactCells((), (end_part("h4"), take_part("a", "h5", value="vvvvv"), put_part("k", "x")))
    before = driver.machine.state.principals.used_by("ann")
    result = expect(QuotaExceeded, driver.run(OnBehalf("ann", too_much)))
    assert (result.quota, driver.machine.state.principals.used_by("ann")) == ("bytes", before)
    assert driver.machine.no_room_for(too_much, "ann") == result
    assert driver.machine.is_sound


def test_a_wait_for_more_counts_no_more_with_its_hold() -> None:
    """What a hold waits to be given leaves room in a quota, if a transaction ends it."""
    driver = CellDriver()
    driver.run(SetQuota("ann", Quota(holds=2)))
    driver.granted("b")
    driver.run(OnBehalf("ann", TransactCells((), (take_part("a", "h-a"),))))
    wait = AddLocks(HoldId("h-a"), wanted("b"), HoldId("t"), AttemptId("t"), 500)
    expect(Queued, driver.run(OnBehalf("ann", wait)))
    both = (take_part("c", "h-c"), take_part("d", "h-d"))
    assert reason(driver.run(OnBehalf("ann", TransactCells((), both)))) is Reason.QUOTA_EXCEEDED
    expect(Transacted, driver.run(OnBehalf("ann", TransactCells((), (end_part("h-a"), *both)))))


def test_namespaces_say_what_may_be_taken() -> None:
    """Bounds of leases, no deadline, how long something may be held, and what the asked node allows."""
    driver = CellDriver()
    driver.run(SetNamespace("n", NamespaceSettings(ttl_ms_max=500, no_deadline=False, held_ms_max=100)))
    assert refused(driver, take_part("n/a", "h1")).reason is Reason.TTL_OUT_OF_RANGE
    assert refused(driver, take_part("n/a", "h1", ttl_ms=0)).reason is Reason.INVALID_REQUEST
    held = driver.transact(then=(take_part("n/a", "h1", ttl_ms=500),)).results
    assert held == (LockTaken(1, 100),)
    assert refused(driver, renew_part("h1", 600)).reason is Reason.TTL_OUT_OF_RANGE
    endless = TransactCells((), (take_part("b", "h2", ttl_ms=0),), endless_not_for=("b",))
    assert reason(driver.run(endless)) is Reason.INVALID_REQUEST
    allowed = expect(Transacted, driver.run(msgspec.structs.replace(endless, endless_not_for=())))
    assert allowed.results == (LockTaken(2, None),)


def test_there_is_room_for_all_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """One transaction takes no more holds than the cluster may have."""
    monkeypatch.setattr(limits, "HOLDS_COUNT_MAX", 2)
    driver = CellDriver()
    takes = tuple(take_part(name, f"h-{name}") for name in "abc")
    assert refused(driver, *takes).reason is Reason.OVERLOADED
    driver.transact(then=takes[:2])


def test_a_repeated_transaction_tells_what_is_left_now() -> None:
    """Tokens are those of the first time, and nothing is left of what has ended."""
    driver = CellDriver()
    kept = driver.granted("b")
    then = (take_part("a", "h-new", ttl_ms=500), renew_part(kept.hold_id, 300), put_part("c"))
    first = driver.transact(then=then, request_id="r")
    again = driver.transact(then=then, request_id="r", at_ms=100)
    assert again.results == (LockTaken(2, 400), Renewed(kept.token, 200), first.results[2])
    driver.release("h-new")
    driver.release(kept.hold_id)
    gone = driver.transact(then=then, request_id="r", at_ms=100)
    assert gone.results == (LockTaken(2, 0), Renewed(kept.token, 0), first.results[2])


def test_places_of_rate_limits_are_given_back_with_their_hold() -> None:
    """A hold of several kinds ends in a transaction as by a release."""
    driver = CellDriver()
    rates = (WantedRate("mail", 1, 1000),)
    for hold_id, wait_ms in (("h1", 0), ("h2", 2000)):
        ask = AcquireSeveral(
            "",
            EXCLUSIVE,
            HoldId(hold_id),
            AttemptId("a"),
            ttl_ms=5000,
            wait_ms=wait_ms,
            locks=wanted(hold_id),
        )
        expect(Granted, driver.run(msgspec.structs.replace(ask, rates=rates)))
    assert len(driver.machine.state.rates.places) == 1
    driver.transact(then=(end_part("h2"),))
    assert not driver.machine.state.rates.places
    assert driver.machine.is_sound
