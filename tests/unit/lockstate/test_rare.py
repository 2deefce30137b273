"""What few holds and tickets have: kept up, stored and forgotten with them, and None for all others."""

import pytest

from lockstate import invariants
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.tables import budget, fingerprint
from lockstate.tables.rare import PLAIN, Rare, changed, of_hold
from lockstate.tables.records import Hold, Ticket
from lockstate.words.commands.holds import Acquire, Release
from lockstate.words.commands.sessions import CloseSession, OpenSession
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.kinds import IfHeld
from lockstate.words.modes import Mode
from lockstate.words.wanted import Asking, Uncommon
from tests.unit.lockstate.machine_driver import MachineDriver

NOTED = Rare(note="why")


@pytest.fixture
def driver() -> MachineDriver:
    """Return a machine with a session that holds a lock, and a waiter for it; both have something rare."""
    driver = MachineDriver()
    driver.run(OpenSession(SessionId("s1"), 10_000))
    for number, session, asked in (
        (1, "s1", Uncommon(note="why")),
        (2, "", Uncommon(value="mine", is_secret=True, priority=7)),
    ):
        ttl_ms = 0 if session else 10_000
        ids = HoldId(f"h{number}"), AttemptId("a"), SessionId(session), ttl_ms
        driver.run(Acquire("x", Mode.EXCLUSIVE, *ids, wait_ms=9_000, uncommon=asked))
    return driver


def having(machine: LockMachine) -> dict[str, Rare]:
    """Return what holds and tickets have that is rare, after all invariants were checked."""
    invariants.check(machine.state)
    records: list[Hold | Ticket] = [*machine.state.holds.values(), *machine.state.tickets.values()]
    return {record.hold_id: record.rare for record in records if record.rare is not None}


def test_a_hold_has_what_its_ticket_had(driver: MachineDriver) -> None:
    """It goes with its record; a hold keeps nothing of what only waits have."""
    waiting = Rare(value="mine", is_secret=True, priority=7)
    assert having(driver.machine) == {"h1": NOTED, "h2": waiting}
    driver.run(Release(HoldId("h1")))
    assert having(driver.machine) == {"h2": waiting}
    driver.run(CloseSession(SessionId("s1")))
    driver.run(Release(HoldId("h2")))
    assert having(driver.machine) == {}
    assert driver.machine.state.rare_count == 0


def test_what_is_as_usual_is_nothing() -> None:
    """What says nothing is None, whatever it has come from."""
    assert changed(None, note="") is None
    assert changed(NOTED, note="") is None
    assert changed(NOTED, depth=2) == Rare(note="why", depth=2)
    assert of_hold(None) is None
    assert of_hold(Rare(if_held=IfHeld.COUNT, is_addition=True, asks=Asking(1, 2))) is None
    assert Hold.__struct_defaults__[-3:] == (None, 0, HoldId("")), "a plain hold has None"
    assert Rare() == PLAIN


def test_a_change_is_in_the_sums(driver: MachineDriver) -> None:
    """Another text changes the fingerprint; one more record with something rare takes more room."""
    state = driver.machine.state
    hold = state.holds[HoldId("h1")]
    before, bytes_before = fingerprint.of(state), budget.bytes_of(state)
    state.set_rare(hold, Rare(note="who"))
    assert fingerprint.of(state) == fingerprint.recomputed(state) != before
    assert budget.bytes_of(state) == budget.recounted(state) == bytes_before
    state.set_rare(hold, None)
    assert having(driver.machine).keys() == {"h2"}
    assert budget.bytes_of(state) == budget.recounted(state) < bytes_before


def test_a_snapshot_has_it(driver: MachineDriver) -> None:
    """It is the same state again."""
    data = snapshot.encode(driver.machine.state)
    restored = LockMachine(snapshot.decode(data))
    assert having(restored) == having(driver.machine)
    assert snapshot.encode(restored.state) == data
    assert restored.fingerprint == driver.machine.fingerprint
    assert restored.bytes_count == driver.machine.bytes_count
