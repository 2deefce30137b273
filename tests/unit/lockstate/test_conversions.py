"""Conversion of a hold to another mode: down at once, up when no other holder is in the way."""

from itertools import product

import pytest

from lockstate.words import limits
from lockstate.words.commands import Convert
from lockstate.words.ids import NO_HOLD, AttemptId, HoldId, OwnerName
from lockstate.words.modes import COMPATIBLE, Mode
from lockstate.words.results import Cancelled, CycleView, Granted, Queued, Reason, Refused, WaiterView
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


def test_up_goes_past_ordinary_waiters() -> None:
    """A holder that converts does not wait for newcomers."""
    driver = MachineDriver()
    driver.granted("a", mode=SHARED)
    driver.queued("a")
    driver.queued("a", mode=UPDATE)
    assert expect(Granted, driver.convert("h1", UPDATE)).mode is UPDATE
    assert expect(Granted, driver.convert("h1", EXCLUSIVE)).token == 2


def test_a_waiting_conversion_stands_in_front() -> None:
    """It is first in the queue, is shown as a conversion, and goes before waiters that came earlier."""
    driver = MachineDriver()
    driver.granted("a", mode=SHARED, owner="ann")
    driver.granted("a", mode=SHARED, owner="bob")
    driver.queued("a", owner="eve")
    assert driver.converting("h1", EXCLUSIVE, at_ms=5).position == 1
    assert [(event.kind.value, event.mode, event.owner) for event in driver.events] == [
        ("queued", EXCLUSIVE, "ann")
    ]
    assert driver.machine.lock("a").queue == (
        WaiterView(OwnerName("ann"), EXCLUSIVE, 1, 0, "a", is_conversion=True, ticket=4),
        WaiterView(OwnerName("eve"), EXCLUSIVE, 2, 5, "a", ticket=3),
    )
    driver.release("h2", at_ms=9)
    assert driver.served() == ["t4"]
    assert expect(Granted, driver.settled["t4"]) == Granted(HoldId("h1"), 3, "a", EXCLUSIVE, 991)
    assert driver.happened() == [("released", "a"), ("converted", "a")]


def test_newcomers_do_not_join_while_a_conversion_waits() -> None:
    """A reader that comes later would keep the conversion waiting, so it waits behind it."""
    driver = MachineDriver()
    for _ in range(2):
        driver.granted("a", mode=SHARED)
    driver.converting("h1", EXCLUSIVE)
    assert reason(driver.acquire("a", mode=SHARED)) is Reason.LOCK_HELD
    driver.queued("a", mode=SHARED)
    driver.release("h2")
    assert driver.served() == ["t3"]
    driver.convert("h1", SHARED)
    assert driver.served() == ["h5"]


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


def test_to_update_beside_a_waiting_writer_is_a_deadlock() -> None:
    """A reader that would reserve the write waits for the conversion before it, and that for the reader."""
    driver = MachineDriver()
    driver.open("ann", "bob")
    for session_id in ("ann", "bob"):
        driver.granted("a", mode=SHARED, session_id=session_id)
    driver.converting("h1", EXCLUSIVE)
    assert reason(driver.convert("h2", UPDATE)) is Reason.CONVERSION_DEADLOCK


def test_a_conversion_in_a_larger_cycle_is_a_deadlock_only_if_it_waits() -> None:
    """Ann waits for what Bob has, Bob would wait for Ann to leave: refused if he waits, else just held."""
    driver = MachineDriver()
    driver.open("ann", "bob")
    driver.granted("a", mode=SHARED, session_id="ann")
    driver.granted("a", mode=SHARED, session_id="bob")
    driver.granted("b", session_id="bob")
    driver.queued("b", session_id="ann")
    assert reason(driver.convert("h2", EXCLUSIVE)) is Reason.LOCK_HELD
    refused = expect(Refused, driver.convert("h2", EXCLUSIVE, wait_ms=500))
    assert refused.reason is Reason.DEADLOCK
    assert refused.cycle == (CycleView(OwnerName("bob"), "a"), CycleView(OwnerName("ann"), "b"))


def test_conversions_wait_in_order_of_arrival() -> None:
    """Of two conversions that do not wait for each other's holds, the earlier goes first."""
    driver = MachineDriver()
    driver.granted("t", mode=SHARED)
    driver.granted("t/x", mode=SHARED)
    driver.granted("t/x", mode=SHARED)
    driver.granted("t", mode=SHARED)
    driver.converting("h1", EXCLUSIVE)
    driver.converting("h2", EXCLUSIVE)
    driver.release("h3")
    assert driver.served() == ["t6"]
    driver.release("h4")
    assert driver.served() == ["t5"]


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


def test_a_wait_that_ends_leaves_the_hold() -> None:
    """A conversion that waited too long leaves the hold as it was, and those behind it are served."""
    driver = MachineDriver()
    for _ in range(2):
        driver.granted("a", mode=SHARED)
    driver.converting("h1", EXCLUSIVE, wait_ms=100)
    driver.queued("a", mode=SHARED)
    driver.pass_to(101)
    assert driver.refused("t3").reason is Reason.LOCK_HELD
    assert [holder.token for holder in driver.refused("t3").holders] == [2]
    assert driver.served() == ["h4"]
    assert [holder.token for holder in driver.machine.lock("a").holders] == [1, 2, 3]
    driver.release("h2")
    driver.release("h4")
    assert expect(Granted, driver.convert("h1", EXCLUSIVE)).token == 4


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


def test_a_session_that_ends_ends_its_conversions() -> None:
    """The conversion ends with lease-expired like its hold, other waits with session-expired."""
    driver = MachineDriver()
    driver.open("s1")
    driver.granted("a", mode=SHARED, session_id="s1")
    driver.granted("a", mode=SHARED)
    driver.converting("h1", EXCLUSIVE)
    driver.queued("a", session_id="s1", owner="another")
    driver.queued("a", mode=SHARED)
    driver.close("s1")
    assert driver.refused("t3").reason is Reason.LEASE_EXPIRED
    assert driver.refused("h4").reason is Reason.SESSION_EXPIRED
    assert driver.served() == ["h5"]


def test_a_delay_is_in_the_way_of_up_and_not_of_down() -> None:
    """While a lock-delay runs nobody new may write, but a holder may let others in."""
    driver = MachineDriver()
    driver.granted("a", mode=SHARED, ttl_ms=5000)
    driver.granted("a", mode=SHARED, ttl_ms=100, lock_delay_ms=500)
    driver.pass_to(101)
    refused = expect(Refused, driver.convert("h1", EXCLUSIVE))
    assert (refused.reason, refused.retry_after_ms) == (Reason.LOCK_HELD, 500)
    driver.converting("h1", UPDATE)
    driver.pass_to(602)
    assert driver.served() == ["t4"]
    driver.granted("b", ttl_ms=5000)
    driver.force("b")
    assert isinstance(driver.convert("h1", SHARED), Granted)


def test_every_lock_of_a_hold_is_converted() -> None:
    """Of several locks all get the mode, in one step with one token, each with its event."""
    driver = MachineDriver()
    driver.granted(locks=wanted("a/x", "b", mode=SHARED))
    driver.granted("b", mode=SHARED)
    driver.converting("h1", EXCLUSIVE)
    assert [driver.machine.lock(name).queue[0].is_conversion for name in ("a/x", "b")] == [True, True]
    driver.release("h2")
    converted = expect(Granted, driver.settled["t3"])
    assert converted.locks == wanted("a/x", "b")
    assert converted.token == 3
    assert driver.happened() == [("released", "b"), ("converted", "a/x"), ("converted", "b")]
    expect(Granted, driver.convert("h1", SHARED))
    driver.granted("a", mode=SHARED, scope=SUBTREE)


def test_mixed_modes_go_down_only_if_none_goes_up() -> None:
    """A hold that reads one lock and writes another is converted like one that goes up."""
    driver = MachineDriver()
    driver.granted(locks=wanted("a") + wanted("b", mode=SHARED))
    driver.granted("b", mode=UPDATE, owner="bob")
    assert reason(driver.convert("h1", UPDATE)) is Reason.LOCK_HELD
    down = expect(Granted, driver.convert("h1", SHARED))
    assert (down.token, [lock.mode for lock in down.locks]) == (1, [SHARED, SHARED])
    driver.granted("a", mode=SHARED)


def test_a_part_cannot_be_released_while_the_whole_is_converted() -> None:
    """The wait is for all its locks; to give one back, end the conversion or the hold."""
    driver = MachineDriver()
    driver.granted(locks=wanted("a", "b", mode=SHARED))
    driver.granted("b", mode=SHARED)
    driver.converting("h1", EXCLUSIVE)
    assert reason(driver.release("h1", "a")) is Reason.INVALID_REQUEST
    driver.release("h1", "a", "b")
    assert driver.refused("t3").reason is Reason.LEASE_EXPIRED


def test_a_subtree_is_converted_with_all_below() -> None:
    """To write a subtree, readers below must be gone."""
    driver = MachineDriver()
    driver.granted("a", mode=SHARED, scope=SUBTREE)
    driver.granted("a/b/c", mode=SHARED, owner="below")
    refused = expect(Refused, driver.convert("h1", EXCLUSIVE))
    assert [(holder.owner, holder.name) for holder in refused.holders] == [("below", "a/b/c")]
    driver.converting("h1", EXCLUSIVE)
    driver.release("h2")
    assert driver.served() == ["t4"]
    assert driver.machine.lock("a/b").holders[0].mode is EXCLUSIVE


def test_only_locks_can_be_converted() -> None:
    """Permits and leadership have one mode; what has ended has none."""
    driver = MachineDriver()
    driver.open("s1")
    driver.permitted("q", 1)
    driver.campaign("e", "s1")
    for hold_id in ("h1", "h2"):
        assert reason(driver.convert(hold_id, SHARED)) is Reason.INVALID_REQUEST
    assert reason(driver.convert("nobody", SHARED)) is Reason.LEASE_EXPIRED


def test_a_conversion_does_not_renew_the_lease() -> None:
    """The hold ends when it would have ended."""
    driver = MachineDriver()
    driver.granted("a", mode=SHARED, ttl_ms=1000)
    assert expect(Granted, driver.convert("h1", EXCLUSIVE, at_ms=400)).expires_in_ms == 600
    driver.renew("h1", at_ms=500)
    assert driver.machine.next_deadline_ms() == 1500


def test_a_cancelled_conversion_leaves_the_hold() -> None:
    """Only the wait is undone, and only by the attempt it belongs to; what came through stays."""
    driver = MachineDriver()
    for _ in range(2):
        driver.granted("a", mode=SHARED)
    driver.converting("h1", EXCLUSIVE)
    assert driver.cancel("t3", "a1") == Cancelled(undone=False)
    assert driver.cancel("t3", "a3") == Cancelled(undone=True)
    assert driver.refused("t3").reason is Reason.LOCK_HELD
    assert len(driver.machine.lock("a").holders) == 2
    driver.converting("h1", EXCLUSIVE)
    driver.release("h2")
    assert driver.cancel("t4", "a4") == Cancelled(undone=False)
    assert driver.machine.lock("a").holders[0].mode is EXCLUSIVE


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
