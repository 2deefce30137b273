"""Two waits of a session for the same get one hold: acquire is reentrant, whenever the second one comes."""

from collections.abc import Callable

import pytest

from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words.commands.holds import Acquire
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.results import Granted, Queued
from tests.unit.lockstate.machine_driver import EXCLUSIVE, MachineDriver, expect, wanted


def _driver() -> MachineDriver:
    driver = MachineDriver()
    driver.open("ann", "bob", ttl_ms=60_000)
    return driver


def _settled(driver: MachineDriver) -> dict[str, Granted]:
    """Return what the waits that ended got."""
    return {hold_id: expect(Granted, result) for hold_id, result in driver.settled.items()}


WAITS: dict[str, tuple[Callable[[MachineDriver], object], Callable[[MachineDriver], Queued]]] = {
    "several": (
        lambda driver: driver.granted("b"),
        lambda driver: driver.queued(locks=wanted("a", "b"), session_id="ann"),
    ),
    "election": (
        lambda driver: driver.campaign("e", "bob", "x"),
        lambda driver: expect(Queued, driver.campaign("e", "ann", "y", wait_ms=500)),
    ),
}


@pytest.mark.parametrize("kind", WAITS)
def test_waits_of_every_kind_get_one_hold(kind: str) -> None:
    """Several locks and elections are shared like a single lock, also after a restart."""
    hold, wait = WAITS[kind]
    driver = _driver()
    hold(driver)
    first, second = wait(driver).hold_id, wait(driver).hold_id
    driver.machine = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    driver.release("h1")
    got = _settled(driver)
    assert got[first].hold_id == got[second].hold_id == first
    assert driver.machine.counts()["tickets"] == 0
    assert driver.machine.counts()["holds"] == 1


def test_several_locks_in_another_order_are_the_same() -> None:
    """A list names a set; and one lock in a list is that lock."""
    driver = _driver()
    driver.granted("a")
    for locks in (wanted("a", "b"), wanted("b", "a")):
        driver.queued(locks=locks, session_id="ann")
    driver.release("h1")
    assert len(_settled(driver)) == 2
    driver.release("h2")
    for first, again in (({"name": "a"}, {"locks": wanted("a")}), ({"locks": wanted("b")}, {"name": "b"})):
        held = driver.granted(session_id="ann", **first)
        assert driver.granted(session_id="ann", **again).hold_id == held.hold_id


def test_a_shared_hold_belongs_to_the_last_attempt() -> None:
    """The first client that goes away takes nothing from the second; the second wait may end alone, too."""
    driver = _driver()
    driver.granted("a")
    first = Acquire("a", EXCLUSIVE, HoldId("w1"), AttemptId("t1"), session_id=SessionId("ann"), wait_ms=500)
    second = Acquire("a", EXCLUSIVE, HoldId("w2"), AttemptId("t2"), session_id=SessionId("ann"), wait_ms=500)
    third = Acquire("a", EXCLUSIVE, HoldId("w3"), AttemptId("t3"), session_id=SessionId("ann"), wait_ms=500)
    driver.run_all([first, second, third])
    driver.cancel("w3", "t3")
    driver.release("h1")
    assert {waited: got.hold_id for waited, got in _settled(driver).items()} == {"w1": "w1", "w2": "w1"}
    driver.cancel("w1", "t1")
    assert "w1" in driver.machine.state.holds
    driver.cancel("w1", "t2")
    assert driver.machine.counts()["holds"] == 0
