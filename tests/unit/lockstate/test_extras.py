"""What few records have beside their fields: kept up, stored and forgotten with them."""

import pytest

from lockstate import invariants
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.tables import budget, fingerprint
from lockstate.tables.extras import NO_EXTRA, Extra
from lockstate.words.commands import Acquire, CloseSession, IfHeld, OpenSession, Release
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.modes import Mode
from tests.unit.lockstate.machine_driver import MachineDriver

TWICE = Extra(depth=2)
REFUSING = Extra(if_held=IfHeld.REFUSE)


@pytest.fixture
def driver() -> MachineDriver:
    """Return a machine with a session that holds a lock, and a waiter for it, each with an extra."""
    driver = MachineDriver()
    driver.run(OpenSession(SessionId("s1"), 10_000))
    for number, ttl_ms in ((1, 0), (2, 10_000)):
        session = SessionId("s1" if number == 1 else "")
        driver.run(
            Acquire("x", Mode.EXCLUSIVE, HoldId(f"h{number}"), AttemptId("a"), session, ttl_ms, wait_ms=9_000)
        )
    for record_id in ("s1", "h2"):
        driver.machine.state.extras.put(record_id, TWICE)
    driver.machine.state.extras.put("h1", REFUSING)
    return driver


def extras_of(machine: LockMachine) -> list[str]:
    """Return the ids of the records that have something, after all invariants were checked."""
    invariants.check(machine.state)
    return [record_id for record_id, _ in machine.state.extras.dump()]


def test_they_go_with_their_records(driver: MachineDriver) -> None:
    """A hold that ends takes its extra along, a ticket hands its own on to the hold that it becomes."""
    extras = driver.machine.state.extras
    assert extras_of(driver.machine) == ["h1", "h2", "s1"]
    driver.run(Release(HoldId("h1")))
    assert extras_of(driver.machine) == ["h2", "s1"]
    assert "h2" in driver.machine.state.holds
    assert extras.get("h2") == TWICE
    driver.run(CloseSession(SessionId("s1")))
    assert extras_of(driver.machine) == ["h2"]
    for _ in range(2):
        driver.run(Release(HoldId("h2")))
    assert extras_of(driver.machine) == []
    assert extras.get("h2") is NO_EXTRA


def test_what_is_as_usual_is_not_kept(driver: MachineDriver) -> None:
    """An extra with nothing but defaults is none; what is put there counts at once, in place of the old."""
    state = driver.machine.state
    before, bytes_before = fingerprint.of(state), budget.bytes_of(state)
    state.extras.put("h2", Extra(depth=3))
    assert fingerprint.of(state) == fingerprint.recomputed(state) != before
    assert budget.bytes_of(state) == budget.recounted(state) == bytes_before
    state.extras.put("h1", NO_EXTRA)
    assert "h1" not in state.extras
    assert "h2" in state.extras
    assert budget.bytes_of(state) == budget.recounted(state) < bytes_before


def test_a_snapshot_has_them(driver: MachineDriver) -> None:
    """It is the same state again."""
    data = snapshot.encode(driver.machine.state)
    restored = LockMachine(snapshot.decode(data))
    invariants.check(restored.state)
    assert snapshot.encode(restored.state) == data
    assert restored.fingerprint == driver.machine.fingerprint
    assert restored.bytes_count == driver.machine.bytes_count
    assert restored.state.extras.get("h1") == REFUSING
