"""Concurrent reads and writes: beside whom they stand, how holds go to and from them, and since when."""

from itertools import product
from typing import Final

import pytest

from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words.ids import AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.modes import COMPATIBLE, Mode, is_down
from lockstate.words.results import CycleView, Granted, Reason, Refused
from tests.unit.lockstate.machine_driver import (
    EXCLUSIVE,
    SHARED,
    SUBTREE,
    UPDATE,
    MachineDriver,
    expect,
    reason,
    wanted,
)

READ, WRITE = Mode.CONCURRENT_READ, Mode.CONCURRENT_WRITE
DOWN: Final = {
    *[(EXCLUSIVE, mode) for mode in Mode],
    *[(mode, READ) for mode in Mode],
    (UPDATE, SHARED),
    *[(mode, mode) for mode in Mode],
}
"""The conversions that are done at once."""
DRAWING: Final = {
    *[(mode, EXCLUSIVE) for mode in (SHARED, UPDATE, READ, WRITE)],
    *[(mode, WRITE) for mode in (SHARED, UPDATE, READ)],
    *[(mode, kept) for mode in (READ, WRITE) for kept in (SHARED, UPDATE)],
}
"""The conversions that draw a token."""
CHANGES: Final = [(old, new) for old, new in product(Mode, Mode) if old is not new]


# -- beside whom they stand ---------------------------------------------------------------------------------


def test_the_table() -> None:
    """A concurrent read goes with all but exclusive, a concurrent write with reads and writes of its kind."""
    assert COMPATIBLE[READ] == {READ, WRITE, SHARED, UPDATE}
    assert COMPATIBLE[WRITE] == {READ, WRITE}


def test_a_waiting_concurrent_write_lets_no_reader_pass() -> None:
    """What waits is in the way like what is held; who goes with it goes past."""
    driver = MachineDriver()
    driver.granted("a", mode=SHARED)
    driver.queued("a", mode=WRITE)
    assert reason(driver.acquire("a", mode=SHARED)) is Reason.LOCK_HELD
    driver.granted("a", mode=READ)
    driver.queued("a", mode=SHARED)
    driver.queued("a", mode=WRITE)
    driver.release("h1")
    assert driver.served() == ["h2"]
    driver.release("h2")
    assert driver.served() == ["h5"]
    driver.release("h5")
    assert driver.served() == ["h6"]


def test_concurrent_writers_are_served_together() -> None:
    """They share a lock that a reader had, and an exclusive one waits for all of them."""
    driver = MachineDriver()
    driver.granted("a", mode=SHARED)
    for mode in (WRITE, WRITE, EXCLUSIVE, WRITE):
        driver.queued("a", mode=mode)
    driver.release("h1")
    assert driver.served() == ["h2", "h3"]
    driver.release("h2")
    driver.release("h3")
    assert driver.served() == ["h4"]


def test_an_intent_below_meets_a_subtree() -> None:
    """A subtree is read beside concurrent reads in it, and not beside concurrent writes."""
    driver = MachineDriver()
    driver.granted("a/b", mode=READ)
    driver.granted("a", mode=SHARED, scope=SUBTREE)
    refused = expect(Refused, driver.acquire("a/b/c", mode=WRITE))
    assert [(holder.name, holder.mode) for holder in refused.holders] == [("a", SHARED)]
    driver.queued("a/b/c", mode=WRITE)
    driver.queued("a", mode=SHARED, scope=SUBTREE)
    driver.release("h2")
    assert driver.served() == ["h4"]
    refused = expect(Refused, driver.acquire("a", mode=SHARED, scope=SUBTREE))
    assert [(holder.name, holder.mode) for holder in refused.holders] == [("a/b/c", WRITE)]
    driver.granted("a", mode=READ, scope=SUBTREE)
    driver.release("h4")
    assert driver.served() == ["h5"]


def test_several_locks_in_several_modes() -> None:
    """Each lock of a hold has its own mode; the whole waits for the one that conflicts."""
    driver = MachineDriver()
    driver.granted("b", mode=SHARED)
    locks = wanted("a", mode=READ) + wanted("b", mode=WRITE)
    driver.queued(locks=locks)
    assert reason(driver.acquire("a")) is Reason.LOCK_HELD
    driver.release("h1")
    assert expect(Granted, driver.settled["h2"]).locks == locks
    assert driver.machine.check_fence("b", 2).valid


def test_a_session_gets_the_same_again() -> None:
    """The same is the same mode; another one is another wish, which may have to wait."""
    driver = MachineDriver()
    driver.open("s")
    driver.granted("a", mode=WRITE, session_id="s")
    assert expect(Granted, driver.acquire("a", mode=WRITE, session_id="s")).token == 1
    assert expect(Granted, driver.acquire("a", mode=READ, session_id="s")).token == 2
    assert reason(driver.acquire("a", mode=SHARED, session_id="s", wait_ms=100)) is Reason.DEADLOCK


def test_a_snapshot_has_them() -> None:
    """Holds and waits in the new modes come back as they were."""
    driver = MachineDriver()
    driver.granted("a/b", mode=WRITE)
    driver.granted("a/b", mode=READ)
    driver.queued("a", mode=SHARED, scope=SUBTREE)
    driver.converting("h2", UPDATE)
    data = snapshot.encode(driver.machine.state)
    driver.machine = LockMachine(snapshot.decode(data))
    assert snapshot.encode(driver.machine.state) == data
    driver.release("h1")
    assert driver.served() == ["t4", "h3"]


# -- conversion ---------------------------------------------------------------------------------------------


def test_which_way_is_down() -> None:
    """Down is to what goes with everything that the old mode goes with; all else is up, both ways if so."""
    assert {(old, new) for old, new in product(Mode, Mode) if is_down(old, new)} == DOWN


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_tokens_of_conversions(old: Mode, new: Mode) -> None:
    """Who may write behind others, and who reads behind writers, draws a token above all of theirs."""
    driver = MachineDriver()
    driver.granted("a", mode=old)
    driver.granted("b")
    converted = expect(Granted, driver.convert("h1", new))
    assert converted.token == (3 if (old, new) in DRAWING else 1)
    assert [(event.mode, event.token) for event in driver.events] == [(new, converted.token)]


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_whatever_stands_beside_stays_compatible(old: Mode, new: Mode) -> None:
    """Whoever holds beside the old mode is in the way exactly if it does not go with the new one."""
    for other in COMPATIBLE[old]:
        driver = MachineDriver()
        driver.granted("a", mode=old)
        driver.granted("a", mode=other, owner="bob")
        result = driver.convert("h1", new)
        assert isinstance(result, Granted) == (other in COMPATIBLE[new])
        if isinstance(result, Refused):
            assert [(holder.owner, holder.mode) for holder in result.holders] == [("bob", other)]
            driver.converting("h1", new)
            driver.release("h2")
            assert expect(Granted, driver.settled["t4"]).mode is new


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_who_goes_with_the_new_mode_is_let_in(old: Mode, new: Mode) -> None:
    """A waiter that only the old mode kept out comes in with the conversion, whichever way it goes."""
    for other in Mode:
        if other in COMPATIBLE[old]:
            continue
        driver = MachineDriver()
        driver.granted("a", mode=old)
        driver.queued("a", mode=other)
        expect(Granted, driver.convert("h1", new))
        assert bool(driver.served()) == (other in COMPATIBLE[new])


def test_a_hold_with_a_new_token_stands_behind_the_others() -> None:
    """Holders are shown in order of their tokens, also when one that has others beside it draws a new one."""
    driver = MachineDriver()
    driver.open("s")
    driver.granted("a", mode=READ, session_id="s")
    driver.granted("a", mode=READ)
    driver.granted("a", mode=SHARED)
    assert expect(Granted, driver.convert("h1", SHARED)).token == 4
    assert [(holder.mode, holder.token) for holder in driver.machine.lock("a").holders] == [
        (READ, 2),
        (SHARED, 3),
        (SHARED, 4),
    ]


def test_a_conversion_goes_past_one_that_its_own_hold_is_in_the_way_of() -> None:
    """Two want to write beside others; the first waits for the second, which waits for a third."""
    driver = MachineDriver()
    driver.granted("a", mode=READ)
    driver.granted("a", mode=SHARED)
    driver.granted("a", mode=SHARED)
    driver.converting("h1", WRITE)
    driver.converting("h2", WRITE)
    driver.release("h3")
    assert driver.served() == ["t5", "t4"]
    assert [(holder.mode, holder.token) for holder in driver.machine.lock("a").holders] == [
        (WRITE, 4),
        (WRITE, 5),
    ]


def test_of_several_conversions_each_that_can_goes() -> None:
    """Those that something else is in the way of stay where they are."""
    driver = MachineDriver()
    for _ in range(2):
        driver.granted("a", mode=READ)
    driver.granted(locks=wanted("a", "b", mode=READ))
    driver.granted("a", mode=UPDATE)
    driver.granted("b", mode=SHARED)
    for hold_id in ("h1", "h3", "h2"):
        driver.converting(hold_id, WRITE)
    driver.convert("h4", READ)
    assert driver.served() == ["t6", "t8"]
    driver.release("h5")
    assert driver.served() == ["t7"]


def test_two_modes_that_are_not_ordered_can_be_a_deadlock() -> None:
    """A reader that would write beside writers, and another one: each waits for the other to stop reading."""
    driver = MachineDriver()
    driver.open("ann", "bob")
    for session_id in ("ann", "bob"):
        driver.granted("a", mode=SHARED, session_id=session_id)
    driver.converting("h1", WRITE)
    for wait_ms in (0, 500):
        refused = expect(Refused, driver.convert("h2", WRITE, wait_ms=wait_ms))
        assert refused.reason is Reason.CONVERSION_DEADLOCK
        assert refused.cycle == (CycleView(OwnerName("bob"), "a"), CycleView(OwnerName("ann"), "a"))
    assert isinstance(driver.convert("h2", READ), Granted)
    assert driver.served() == ["t3"]


def test_a_conversion_keeps_newcomers_of_both_modes_out() -> None:
    """While a reader waits to write, it reads on: neither readers nor writers come in before it."""
    driver = MachineDriver()
    for _ in range(2):
        driver.granted("a", mode=SHARED)
    driver.converting("h1", WRITE)
    for mode in (SHARED, UPDATE, WRITE):
        assert reason(driver.acquire("a", mode=mode)) is Reason.LOCK_HELD
    driver.granted("a", mode=READ)


_H, _A, _S = HoldId("h"), AttemptId("a"), SessionId("s")
