"""Conversion of a hold to another mode: down at once, up when no other holder is in the way."""

from itertools import product

import pytest

from lockstate.words import limits
from lockstate.words.commands.holds import Convert
from lockstate.words.ids import NO_HOLD, AttemptId, HoldId, OwnerName
from lockstate.words.modes import COMPATIBLE, Mode
from lockstate.words.refusals import CycleView, Reason, Refused
from lockstate.words.results import Cancelled, Granted, Queued
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, UPDATE, MachineDriver, expect, reason

DOWN = [(EXCLUSIVE, UPDATE), (EXCLUSIVE, SHARED), (UPDATE, SHARED)]
UP = [(SHARED, UPDATE), (SHARED, EXCLUSIVE), (UPDATE, EXCLUSIVE)]


@pytest.mark.parametrize(("old", "new"), DOWN + UP)
def test_an_only_holder_is_converted_at_once(old: Mode, new: Mode) -> None:
    """A sole holder gets any mode at once; only a conversion to exclusive takes a new token."""
    driver = MachineDriver()
    driver.granted("a", mode=old)
    converted = expect(Granted, driver.convert("h1", new))
    assert (converted.hold_id, converted.mode) == ("h1", new)
    assert converted.token == (2 if new is EXCLUSIVE else 1)
    assert [(event.kind.value, event.mode, event.token) for event in driver.events] == [
        ("converted", new, converted.token)
    ]
    assert [(holder.mode, holder.token) for holder in driver.machine.lock("a").holders] == [
        (new, converted.token)
    ]


@pytest.mark.parametrize("mode", list(Mode))
def test_to_the_same_mode_nothing_changes(mode: Mode) -> None:
    """A conversion to the mode that a hold has returns it as it is, without an event."""
    driver = MachineDriver()
    driver.granted("a", mode=mode)
    assert expect(Granted, driver.convert("h1", mode, at_ms=300)) == Granted(HoldId("h1"), 1, "a", mode, 700)
    assert driver.events == ()
    assert driver.machine.next_token == 2


@pytest.mark.parametrize(("old", "new"), DOWN)
def test_down_serves_waiters_that_are_compatible_now(old: Mode, new: Mode) -> None:
    """Waiters that the old mode kept out and the new one does not are let through, in order."""
    driver = MachineDriver()
    driver.granted("a", mode=old)
    waiting = [mode for mode in (SHARED, UPDATE) if mode not in COMPATIBLE[old]]
    for mode in waiting:
        driver.queued("a", mode=mode)
    driver.convert("h1", new)
    served = [mode for mode in waiting if mode in COMPATIBLE[new]]
    assert [expect(Granted, driver.settled[hold_id]).mode for hold_id in driver.served()] == served


@pytest.mark.parametrize(("new", "other"), list(product((UPDATE, EXCLUSIVE), (SHARED, UPDATE))))
def test_up_needs_the_other_holders_only(new: Mode, other: Mode) -> None:
    """Another holder is in the way if the table of modes says so."""
    driver = MachineDriver()
    driver.granted("a", mode=SHARED)
    driver.granted("a", mode=other, owner="bob")
    result = driver.convert("h1", new)
    assert isinstance(result, Granted) == (other in COMPATIBLE[new])
    if isinstance(result, Refused):
        assert (result.reason, result.detail) == (Reason.LOCK_HELD, "held by bob")
        assert [holder.owner for holder in result.holders] == ["bob"]
        assert [holder.token for holder in driver.machine.lock("a").holders] == [1, 2]


def test_two_that_would_write_are_a_deadlock() -> None:
    """Each holds what the other waits for: the second is refused at once, whether it would wait or not."""
    for wait_ms in (0, 500):
        driver = MachineDriver()
        driver.open("ann", "bob")
        for session_id in ("ann", "bob"):
            driver.granted("a", mode=SHARED, session_id=session_id)
        driver.converting("h1", EXCLUSIVE)
        refused = expect(Refused, driver.convert("h2", EXCLUSIVE, wait_ms=wait_ms))
        assert refused.reason is Reason.CONVERSION_DEADLOCK
        assert refused.cycle == (CycleView(OwnerName("bob"), "a"), CycleView(OwnerName("ann"), "a"))
        driver.release("h2")
        assert driver.served() == ["t3"]


@pytest.mark.parametrize("owners", [("ann", "bob"), ("", ""), ("ann", "")])
def test_holds_without_session_deadlock_alike(owners: tuple[str, str]) -> None:
    """Holds with leases of their own, with or without owner, are part of deadlocks too."""
    driver = MachineDriver()
    for owner in owners:
        driver.granted("a", mode=SHARED, owner=owner)
    driver.converting("h1", EXCLUSIVE)
    assert reason(driver.convert("h2", EXCLUSIVE)) is Reason.CONVERSION_DEADLOCK
    assert reason(driver.convert("h2", EXCLUSIVE, wait_ms=500)) is Reason.CONVERSION_DEADLOCK


def test_a_second_conversion_of_one_hold_is_refused() -> None:
    """A hold waits for one mode at a time."""
    driver = MachineDriver()
    for _ in range(2):
        driver.granted("a", mode=SHARED)
    driver.converting("h1", EXCLUSIVE)
    for mode in (EXCLUSIVE, UPDATE, SHARED):
        refused = expect(Refused, driver.convert("h1", mode))
        assert refused.reason is Reason.INVALID_REQUEST
        assert "is being converted" in refused.detail
    assert len(driver.machine.lock("a").queue) == 1


@pytest.mark.parametrize("end", ["release", "force", "expire", "cancel"])
def test_a_hold_that_ends_ends_its_conversion(end: str) -> None:
    """The wait ends with lease-expired, and the waiters behind the conversion are let through."""
    driver = MachineDriver()
    driver.granted("a", mode=SHARED, ttl_ms=1000)
    driver.granted("a", mode=SHARED, ttl_ms=5000)
    driver.converting("h1", EXCLUSIVE)
    driver.queued("a", mode=SHARED)
    match end:
        case "release":
            driver.release("h1")
        case "force":
            driver.force("a")
        case "expire":
            driver.pass_to(1001)
        case _:
            assert driver.cancel("h1", "a1") == Cancelled(undone=True)
    assert driver.refused("t3").reason is Reason.LEASE_EXPIRED
    assert driver.served() == ["h4"]


def test_only_locks_can_be_converted() -> None:
    """Permits and leadership have one mode; what has ended has none."""
    driver = MachineDriver()
    driver.open("s1")
    driver.permitted("q", 1)
    driver.campaign("e", "s1")
    for hold_id in ("h1", "h2"):
        assert reason(driver.convert(hold_id, SHARED)) is Reason.INVALID_REQUEST
    assert reason(driver.convert("nobody", SHARED)) is Reason.LEASE_EXPIRED


@pytest.mark.parametrize(
    "command",
    [
        Convert(HoldId("h1"), EXCLUSIVE, NO_HOLD, AttemptId("a9")),
        Convert(HoldId("h1"), EXCLUSIVE, HoldId("t9"), AttemptId("")),
        Convert(HoldId("h1"), EXCLUSIVE, HoldId("t9"), AttemptId("a9"), -1),
        Convert(HoldId("h1"), EXCLUSIVE, HoldId("h1"), AttemptId("a9")),
        Convert(HoldId("h1"), EXCLUSIVE, HoldId("h2"), AttemptId("a9")),
        Convert(HoldId("h1"), EXCLUSIVE, HoldId("s1"), AttemptId("a9")),
    ],
    ids=str,
)
def test_a_malformed_conversion_has_no_effect(command: Convert) -> None:
    """Each field is checked, and a ticket needs an id of its own."""
    driver = MachineDriver()
    driver.open("s1")
    for _ in range(2):
        driver.granted("a", mode=SHARED)
    assert reason(driver.run(command)) is Reason.INVALID_REQUEST
    assert driver.events == ()


def test_a_conversion_that_waits_counts_for_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a session holds and awaits together is bounded, conversions too."""
    driver = MachineDriver()
    driver.open("s")
    driver.granted("a", mode=SHARED, session_id="s")
    driver.granted("a", mode=SHARED)
    monkeypatch.setattr(limits, "SESSION_CLAIMS_MAX", 1)
    assert reason(driver.convert("h1", Mode.EXCLUSIVE, wait_ms=100)) is Reason.OVERLOADED
    monkeypatch.setattr(limits, "SESSION_CLAIMS_MAX", 2)
    assert isinstance(driver.convert("h1", Mode.EXCLUSIVE, wait_ms=100), Queued)
