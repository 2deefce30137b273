"""Expiry with a budget: one entry ends a limited number, in order, and the rest is due at the next one."""

import pytest

from lockstate.words import limits
from lockstate.words.commands import Acquire, AcquirePermits, Command, OpenSession, TakeRate
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.results import EventKind, Granted, Refused, SessionOpened
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, MachineDriver, expect, wanted


@pytest.fixture(autouse=True)
def _two_claims_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EXPIRIES_PER_ENTRY_MAX", 2)


def _ended(driver: MachineDriver, at_ms: int) -> list[str]:
    """Let time pass; return the names of the locks that ended."""
    driver.pass_to(at_ms)
    return [event.name for event in driver.events if event.kind is EventKind.EXPIRED]


def test_the_order_is_that_of_deadlines_and_creation() -> None:
    """What should have ended first ends first, over however many entries."""
    driver = MachineDriver()
    for name, ttl_ms in (("late", 900), ("b", 500), ("a", 500), ("first", 400), ("later", 901)):
        driver.granted(name, ttl_ms=ttl_ms)
    assert _ended(driver, 5000) == ["first", "b"]
    assert _ended(driver, 5000) == ["a", "late"]
    assert _ended(driver, 5000) == ["later"]


def test_a_wait_weighs_as_much_as_its_claims() -> None:
    """By rules 9: before, one entry could end 2000 waits of 2000 names each, and stop a node for seconds."""
    driver = MachineDriver()
    driver.granted("a/b", ttl_ms=60_000)
    for _ in range(3):
        driver.queued(locks=wanted("a/b", "c"), wait_ms=1000)
    for left in (2, 1, 0):
        driver.pass_to(1001)
        assert len(driver.machine.state.tickets) == left


def test_no_answer_has_a_time_below_zero() -> None:
    """What is overdue has nothing left: in grants, refusals, views and repeated answers."""
    driver = MachineDriver()
    driver.run(OpenSession(SessionId("s1"), 1000, {}, "r"))
    driver.granted("a", session_id="s1")
    for name in "bc":
        driver.granted(name, ttl_ms=500)
    asked: list[Command] = [
        Acquire("a", EXCLUSIVE, HoldId("h8"), AttemptId("a8"), ttl_ms=1000),
        Acquire("z", EXCLUSIVE, HoldId("h9"), AttemptId("a9"), session_id=SessionId("s1")),
        AcquirePermits("q", 3, 1, HoldId("h10"), AttemptId("a10"), SessionId("s1")),
        OpenSession(SessionId("s2"), 1000, {}, "r"),
    ]
    refused, granted, permitted, opened = driver.run_all(asked, at_ms=5000)
    assert [event.name for event in driver.events[:2]] == ["b", "c"]
    assert expect(Refused, refused).holders[0].expires_in_ms == 0
    assert expect(Refused, refused).retry_after_ms == 1
    assert expect(Granted, granted).expires_in_ms == 0
    assert expect(Granted, permitted).expires_in_ms == 0
    assert expect(SessionOpened, opened).expires_in_ms == 0
    view = driver.machine.session(SessionId("s1"))
    assert view is not None
    assert [view.expires_in_ms, *[holder.expires_in_ms for holder in view.holds]] == [0, 0, 0, 0]


def test_delays_and_rate_limits_count() -> None:
    """Everything that expires counts as a step."""
    driver = MachineDriver()
    for name in "ab":
        driver.granted(name, ttl_ms=50, lock_delay_ms=100)
    driver.run(TakeRate("mail", 5, 1000))
    driver.pass_to(51)
    driver.granted("c", ttl_ms=3000, at_ms=51)
    for deadline_ms in (151, 1000, None):
        assert driver.machine.next_deadline_ms() == deadline_ms
        driver.pass_to(5000)
    assert driver.machine.counts()["rate_limits"] == 0


def test_nothing_is_lost() -> None:
    """However far time has gone, entry after entry ends everything exactly once."""
    driver = MachineDriver()
    for number in range(9):
        driver.granted("shared", mode=SHARED, ttl_ms=100 + number)
    driver.queued("shared", wait_ms=5000, ttl_ms=50)
    ended = []
    for step in range(8):
        driver.pass_to(9000 if step < 6 else 9051)
        ended += [event.token for event in driver.events if event.kind is EventKind.EXPIRED]
        assert len(driver.events) <= 2
    assert ended == list(range(1, 11))
    assert set(driver.machine.counts().values()) == {0}
