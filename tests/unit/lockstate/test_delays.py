"""Lock-delays: after an expiry or by force, nobody gets what a delay covers until it is over."""

from itertools import product

import pytest

from lockstate.words.events import EventKind
from lockstate.words.modes import Mode, Scope
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted
from tests.unit.lockstate.machine_driver import (
    EXCLUSIVE,
    NODE,
    SHARED,
    SUBTREE,
    UPDATE,
    MachineDriver,
    expect,
    wanted,
)


def _delayed(name: str, mode: Mode = EXCLUSIVE, scope: Scope = NODE) -> MachineDriver:
    """Return a driver at 101 ms in which a delay of 500 ms began."""
    driver = MachineDriver()
    driver.granted(name, mode=mode, scope=scope, ttl_ms=100, lock_delay_ms=500)
    assert driver.pass_to(101) == [EventKind.EXPIRED]
    return driver


@pytest.mark.parametrize(("held", "asked"), list(product(Mode, Mode)))
def test_a_delay_is_in_everybodys_way(held: Mode, asked: Mode) -> None:
    """Whatever mode has expired and whatever is asked for: a late writer may still be at work."""
    driver = _delayed("a", held)
    refused = expect(Refused, driver.acquire("a", mode=asked))
    assert (refused.reason, refused.holders) == (Reason.LOCK_HELD, ())
    assert refused.detail == "delayed after an expiry or a forced release"
    assert refused.retry_after_ms == 500


@pytest.mark.parametrize(("own_ms", "forced_ms"), [(500, 0), (0, 500), (500, 300), (300, 500)])
def test_a_force_delays_all_that_was_held(own_ms: int, forced_ms: int) -> None:
    """A holder that was ended by force may still believe in all of it: the longer delay covers it all."""
    driver = MachineDriver()
    driver.granted(locks=wanted("a", scope=SUBTREE) + wanted("b"), lock_delay_ms=own_ms)
    driver.force("a", forced_ms)
    states = [driver.machine.lock(name).state for name in ("a", "a/x", "b", "b/x")]
    assert states == ["delayed", "delayed", "delayed", "free"]
    assert driver.machine.next_deadline_ms() == 500


def test_the_longer_of_two_delays_counts() -> None:
    """A force that delays less than a delay that runs changes nothing; one that delays more does."""
    driver = MachineDriver()
    driver.granted("a", mode=SHARED, ttl_ms=100, lock_delay_ms=500)
    driver.granted("a", mode=SHARED, ttl_ms=9000)
    driver.pass_to(101)
    driver.force("a", 200)
    assert expect(Refused, driver.acquire("a")).retry_after_ms == 500
    driver = MachineDriver()
    driver.granted("a", mode=SHARED, ttl_ms=100, lock_delay_ms=500)
    driver.granted("a", mode=SHARED, ttl_ms=9000)
    driver.pass_to(101)
    driver.force("a", 700)
    assert expect(Refused, driver.acquire("a")).retry_after_ms == 700
    driver.pass_to(802)
    driver.granted("a")


def test_a_delay_serves_its_queue_in_order() -> None:
    """When it is over, the waiters are let through as after a release."""
    driver = _delayed("a")
    for mode in (SHARED, UPDATE, EXCLUSIVE, SHARED):
        driver.queued("a", mode=mode)
    driver.pass_to(602)
    assert driver.served() == ["h2", "h3"]


def test_a_delay_of_an_hour_does_not_touch_others() -> None:
    """Other names are not concerned, also if they begin alike."""
    driver = _delayed("a", scope=SUBTREE)
    assert isinstance(driver.acquire("ab"), Granted)
    assert expect(Refused, driver.acquire("a/b", scope=SUBTREE)).retry_after_ms == 500
    assert isinstance(driver.acquire("b", scope=SUBTREE), Granted)


def test_what_ends_late_is_asked_for_again_within_a_second() -> None:
    """Whatever is in the way, a lock or permits: holders release long before their leases end."""
    driver = MachineDriver()
    driver.granted("a", ttl_ms=3_600_000)
    driver.permits("p", 1, ttl_ms=3_600_000)
    assert expect(Refused, driver.acquire("a")).retry_after_ms == 1000
    assert expect(Refused, driver.permits("p", 1)).retry_after_ms == 1000
