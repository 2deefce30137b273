"""Concurrent reads and writes: beside whom they stand, how holds go to and from them, and since when."""

from itertools import product
from typing import Final

import pytest

from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.modes import COMPATIBLE, Mode, is_down
from lockstate.words.refusals import Refused
from lockstate.words.results import Granted
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, SUBTREE, UPDATE, MachineDriver, expect

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


_H, _A, _S = HoldId("h"), AttemptId("a"), SessionId("s")
