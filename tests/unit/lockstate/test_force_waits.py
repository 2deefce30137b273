"""Operators end waits: all of a name, or the one of a number."""

import pytest

from lockstate.words import limits
from lockstate.words.commands.entries import Command
from lockstate.words.commands.holds import AcquireSeveral
from lockstate.words.commands.overrides import ForceWaits
from lockstate.words.events import EventKind, Left
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode
from lockstate.words.refusals import Reason
from lockstate.words.results import Queued, WaitsForced
from lockstate.words.wanted import WantedPermits
from tests.unit.lockstate.machine_driver import MachineDriver, expect, reason, wanted


@pytest.fixture
def driver() -> MachineDriver:
    """Return a machine."""
    return MachineDriver()


def _number_of(driver: MachineDriver, hold_id: str) -> int:
    return driver.machine.state.tickets[HoldId(hold_id)].order


def _forced(driver: MachineDriver, command: ForceWaits) -> list[str]:
    """Run the command, and return the names for which it ended waits, in order."""
    return [one.name for one in expect(WaitsForced, driver.run(command)).waits]


def test_a_wait_of_several_kinds_no_longer_closes_a_semaphore(driver: MachineDriver) -> None:
    """It stands first at the semaphore and cannot go; without it those behind it are served at once."""
    driver.granted("a")
    driver.permitted("pool", 10)
    several = AcquireSeveral(
        "",
        Mode.EXCLUSIVE,
        HoldId("big"),
        AttemptId("1"),
        ttl_ms=limits.TTL_MS_MAX,
        wait_ms=limits.WAIT_MS_MAX,
        locks=wanted("a"),
        permits=(WantedPermits("pool", 10, 2),),
    )
    expect(Queued, driver.run(several))
    behind = driver.wanting("pool", 10)
    number = _number_of(driver, "big")
    assert _forced(driver, ForceWaits("pool", "it hangs", HoldKind.SEMAPHORE, number)) == ["pool"]
    assert driver.refused("big").reason is Reason.TICKET_ENDED
    assert driver.refused("big").detail == "an operator ended the wait: it hangs"
    assert driver.served() == [behind.hold_id]
    told = [(event.kind, event.name, event.reason) for event in driver.events if event.ticket == number]
    assert told == [
        (EventKind.WAIT_FORCED, "a", "it hangs"),
        (EventKind.WAIT_FORCED, "pool", "it hangs"),
        (EventKind.LEFT, "a", Left.FORCED),
        (EventKind.LEFT, "pool", Left.FORCED),
    ]
    kept = [event.kind for event in driver.machine.audit(limit=4)]
    assert EventKind.WAIT_FORCED in kept
    assert EventKind.LEFT not in kept


def test_all_waits_of_a_name_end_and_no_others(driver: MachineDriver) -> None:
    """A name above or below, another kind and the holder stay as they are."""
    driver.granted("a")
    driver.granted("a/b")
    for name in ("a", "a", "a/b"):
        driver.queued(name)
    driver.permitted("a", 1)
    driver.wanting("a", 1)
    assert _forced(driver, ForceWaits("a", "x")) == ["a", "a"]
    assert [ticket.kind for ticket in driver.machine.state.tickets.values()] == [
        HoldKind.LOCK,
        HoldKind.SEMAPHORE,
    ]
    assert len(driver.machine.state.holds) == 3
    assert _forced(driver, ForceWaits("a", "x")) == []
    assert _forced(driver, ForceWaits("b", "x", HoldKind.SEMAPHORE)) == []


def test_a_number_must_be_that_of_a_wait_for_the_name(driver: MachineDriver) -> None:
    """The number of a wait for something else ends nothing: who may force one name ends no other wait."""
    driver.granted("a")
    driver.granted("b")
    other = driver.queued("b")
    number = _number_of(driver, other.hold_id)
    assert reason(driver.run(ForceWaits("a", "x", HoldKind.LOCK, number))) is Reason.TICKET_ENDED
    assert reason(driver.run(ForceWaits("b", "x", HoldKind.ELECTION, number))) is Reason.TICKET_ENDED
    assert other.hold_id in driver.machine.state.tickets


@pytest.mark.parametrize(
    "command",
    [ForceWaits("a//b", "x"), ForceWaits("a", "x" * 1025), ForceWaits("a", "x", HoldKind.LOCK, -1)],
)
def test_a_malformed_command_is_refused(driver: MachineDriver, command: Command) -> None:
    """Whatever comes from the log is checked."""
    assert reason(driver.run(command)) in {Reason.INVALID_REQUEST, Reason.NAME_TOO_LONG}


def test_a_repeated_request_hears_that_its_wait_was_ended(driver: MachineDriver) -> None:
    """Or every client that asks again for what it lost would be back in the queue at once."""
    driver.granted("a")
    ticket = driver.queued("a", request_id="r1")
    driver.run(ForceWaits("a", ""))
    assert driver.refused(ticket.hold_id).detail == "an operator ended the wait"
    asked = driver.acquire("a", wait_ms=10_000, request_id="r1")
    assert reason(asked) is Reason.TICKET_ENDED


def test_one_command_ends_a_limited_number(driver: MachineDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left is told, and the next one goes on with it; many claims count as many waits."""
    monkeypatch.setattr(limits, "WAITS_FORCED_PER_COMMAND_MAX", 2)
    driver.granted("a/b")
    for _ in range(5):
        driver.queued("a/b")
    first = expect(WaitsForced, driver.run(ForceWaits("a/b", "x")))
    assert (len(first.waits), first.left) == (2, 3)
    monkeypatch.setattr(limits, "EXPIRIES_PER_ENTRY_MAX", 1)
    second = expect(WaitsForced, driver.run(ForceWaits("a/b", "x")))
    assert (len(second.waits), second.left) == (1, 2)


def test_what_is_repeated_ends_no_later_wait(driver: MachineDriver) -> None:
    """Of a command that ended something the outcome is remembered, also where there is no room."""
    driver.granted("a")
    driver.queued("a")
    once = driver.run(ForceWaits("a", "x", request_id="r1"))
    driver.queued("a")
    assert driver.run(ForceWaits("a", "x", request_id="r1")) == once
    assert len(driver.machine.state.tickets) == 1
