"""Transactions with parts about locks: compares, takes, ends and renewals, all of them or none."""

import pytest

from lockstate.words.cell_operations import LockCompare, Operation
from lockstate.words.commands import Acquire, Freeze, TransactCells, Uncommon
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.results import (
    RELEASED,
    CellRead,
    CellWritten,
    EventKind,
    Granted,
    LockTaken,
    Queued,
    Reason,
    Refused,
    Renewed,
)
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
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, SUBTREE, expect, reason


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
