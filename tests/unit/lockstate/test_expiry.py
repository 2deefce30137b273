"""Expiry with a budget: one entry ends a limited number, in order, and the rest is due at the next one."""

import pytest

from lockstate.words import limits
from lockstate.words.commands.primitives import TakeRate
from lockstate.words.events import EventKind
from tests.unit.lockstate.machine_driver import SHARED, MachineDriver


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


def test_who_should_have_ended_gets_no_time() -> None:
    """A session whose turn has not come is granted what it asks for, for 0 ms; the next entry ends both."""
    driver = MachineDriver()
    driver.open("s1", "s2", "s3", ttl_ms=500)
    granted = driver.granted("a", mode=SHARED, session_id="s3", at_ms=5000)
    assert granted.expires_in_ms == 0
    assert _ended(driver, 5000) == ["a"]
