"""Attempts at one request: what they asked for is undone with the last of them, whichever comes last."""

import pytest

from lockstate import invariants
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words.commands.entries import AbandonWaits, Batch, Cancel, Command, Entry
from lockstate.words.commands.holds import Acquire, Release
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.kinds import IfHeld
from lockstate.words.limits import ATTEMPTS_COUNT_MAX
from lockstate.words.modes import Mode
from lockstate.words.results import Cancelled, Queued, Result, WaitsAbandoned
from tests.unit.lockstate.machine_driver import MachineDriver, expect

UNDONE, NOT_UNDONE = Cancelled(undone=True), Cancelled(undone=False)


@pytest.fixture
def driver() -> MachineDriver:
    """Return a driver whose lock "a" somebody else holds."""
    driver = MachineDriver()
    driver.run(Acquire("a", Mode.EXCLUSIVE, HoldId("other"), AttemptId("t"), ttl_ms=60_000))
    return driver


def ask(number: int) -> Acquire:
    """Return one attempt at a request that waits for "a", with one text for both ids, as nodes make them."""
    ids = HoldId(f"x{number}"), AttemptId(f"x{number}")
    return Acquire("a", Mode.EXCLUSIVE, *ids, ttl_ms=60_000, wait_ms=60_000, request_id="again")


def through(driver: MachineDriver, origin: str, command: Command) -> Result:
    """Apply a command that came through a node process."""
    batch = Batch(origin, (driver.machine.applied_seq(origin) + 1,), (command,))
    (result,) = driver.apply(Entry(driver.machine.now_ms, (batch,))).batches[0].results
    return result


def cancel(driver: MachineDriver, number: int) -> Result:
    """Take an attempt back; all of them wait under the id of the first."""
    return driver.run(Cancel(HoldId("x1"), AttemptId(f"x{number}")))


def test_an_attempt_that_comes_late_takes_no_hold_from_another(driver: MachineDriver) -> None:
    """A node stood still, so the first attempt comes behind the second. Its client has left it long ago."""
    expect(Queued, through(driver, "slow", ask(1)))
    expect(Queued, through(driver, "quick", ask(2)))
    driver.run(Release(HoldId("other")))
    assert cancel(driver, 2) == NOT_UNDONE
    assert [holder.token for holder in driver.machine.lock("a").holders] == [2]
    assert cancel(driver, 1) == UNDONE
    assert driver.machine.lock("a").state == "free"
    assert not driver.machine.state.rare_count


def test_the_same_attempt_counts_once(driver: MachineDriver) -> None:
    """It may come again, also when others came meanwhile."""
    for number in (1, 1, 2, 1):
        driver.run(ask(number))
    assert cancel(driver, 1) == NOT_UNDONE
    assert cancel(driver, 2) == UNDONE


def test_a_lost_node_takes_only_its_own_clients_along(driver: MachineDriver) -> None:
    """A wait goes on as long as somebody waits, and is found under every node that keeps a connection."""
    through(driver, "slow", ask(1))
    through(driver, "quick", ask(2))
    assert sorted(driver.machine.waiting_origins()) == ["quick", "slow"]
    driver.machine = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    assert sorted(driver.machine.waiting_origins()) == ["quick", "slow"]
    assert driver.run(AbandonWaits("slow")) == WaitsAbandoned(0, 0)
    assert driver.machine.waiting_origins() == ["quick"]
    assert len(driver.machine.lock("a").queue) == 1
    invariants.check(driver.machine.state)
    assert driver.run(AbandonWaits("quick")) == WaitsAbandoned(1, 0)
    assert driver.machine.lock("a").queue == ()
    assert driver.machine.waiting_origins() == []


def test_a_lost_node_leaves_what_came_through_another_later(driver: MachineDriver) -> None:
    """The newest attempt is taken back, and those before it wait on."""
    through(driver, "slow", ask(1))
    through(driver, "quick", ask(2))
    assert driver.run(AbandonWaits("quick")) == WaitsAbandoned(0, 0)
    assert driver.machine.waiting_origins() == ["slow"]
    assert cancel(driver, 1) == UNDONE


def test_what_too_many_attempts_have_ends_by_itself(driver: MachineDriver) -> None:
    """Not all of them are known, so nobody's leaving undoes it: its own time does."""
    count = ATTEMPTS_COUNT_MAX + 3
    for number in range(1, count + 1):
        driver.run(ask(number))
    assert {cancel(driver, number) == NOT_UNDONE for number in range(1, count + 1)} == {True}
    (ticket,) = driver.machine.state.tickets.values()
    assert len(ticket.details.attempts) <= ATTEMPTS_COUNT_MAX
    driver.pass_to(driver.machine.now_ms + 60_001)
    assert driver.machine.lock("a").queue == ()


def test_a_late_attempt_does_not_take_a_count_back(driver: MachineDriver) -> None:
    """What the repetition counted stays counted for its client."""
    driver.open("s1", ttl_ms=60_000)
    own = {"name": "b", "mode": Mode.EXCLUSIVE, "session_id": SessionId("s1")}
    driver.run(Acquire(hold_id=HoldId("b1"), attempt_id=AttemptId("b1"), **own))  # type: ignore[arg-type]
    for number in (2, 3):
        ids = {"hold_id": HoldId(f"b{number}"), "attempt_id": AttemptId(f"b{number}"), "request_id": "r"}
        driver.run(Acquire(if_held=IfHeld.COUNT, **own, **ids))  # type: ignore[arg-type]
    assert driver.run(Cancel(HoldId("b1"), AttemptId("b3"))) == NOT_UNDONE
    assert driver.machine.state.holds[HoldId("b1")].details.depth == 2
    assert driver.run(Cancel(HoldId("b1"), AttemptId("b2"))) == UNDONE
    assert driver.machine.state.holds[HoldId("b1")].details.depth == 1


def test_another_request_of_the_session_takes_over_alone(driver: MachineDriver) -> None:
    """The attempts at the request before have nothing to take back any more."""
    driver.open("s1", ttl_ms=60_000)
    own = {"name": "b", "mode": Mode.EXCLUSIVE, "session_id": SessionId("s1")}
    for number in (1, 2):
        ids = {"hold_id": HoldId(f"b{number}"), "attempt_id": AttemptId(f"b{number}"), "request_id": "r"}
        driver.run(Acquire(**own, **ids))  # type: ignore[arg-type]
    driver.run(Acquire(hold_id=HoldId("b3"), attempt_id=AttemptId("b3"), **own))  # type: ignore[arg-type]
    assert driver.run(Cancel(HoldId("b1"), AttemptId("b1"))) == NOT_UNDONE
    assert driver.machine.lock("b").state == "held"
    assert not driver.machine.state.rare_count
