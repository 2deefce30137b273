"""Locks in the machine: grants, queues, leases, delays, cancel and force."""

from lockstate.words.events import EventKind
from lockstate.words.ids import HoldId
from lockstate.words.modes import Mode
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Cancelled, Granted, Queued, Released, Renewed
from tests.unit.lockstate.machine_driver import MachineDriver, expect, reason


def test_no_more_than_sixteen_holders_are_shown() -> None:
    """A refusal by a crowd names the oldest sixteen."""
    driver = MachineDriver()
    for _ in range(17):
        driver.granted("a", mode=Mode.SHARED)
    refused = expect(Refused, driver.acquire("a"))
    assert [holder.token for holder in refused.holders] == list(range(1, 17))


def test_waiters_are_served_in_order() -> None:
    """A release hands the lock to the waiter that has waited longest."""
    driver = MachineDriver()
    driver.granted("a")
    assert [driver.queued("a").position, driver.queued("a").position] == [1, 2]
    assert driver.release("h1") == Released()
    assert [(event.kind, event.session_id, event.token) for event in driver.events] == [
        (EventKind.RELEASED, "h1", 1),
        (EventKind.GRANTED, "h2", 2),
    ]
    assert driver.served() == ["h2"]
    assert expect(Granted, _attempt(driver, "h2")).token == 2
    assert _attempt(driver, "h3") == Queued(HoldId("h3"), 1)
    assert _attempt(driver, "h1") is None


def _attempt(driver: MachineDriver, hold_id: str) -> Granted | Queued | None:
    return driver.machine.attempt(HoldId(hold_id))


def test_renewing_starts_the_lease_anew() -> None:
    """Renewing restarts the lease from now, with another ttl if one is given."""
    driver = MachineDriver()
    driver.granted("a", ttl_ms=1000)
    assert driver.renew("h1", at_ms=900) == Renewed(1, 1000)
    assert driver.renew("h1", 5000, at_ms=1000) == Renewed(1, 5000)
    assert driver.pass_to(6000) == []
    assert driver.pass_to(6001) == [EventKind.EXPIRED]


def test_no_renewal_ends_a_lease_earlier() -> None:
    """A shorter ttl counts from the next renewal on; what an earlier one promised is kept."""
    driver = MachineDriver()
    driver.granted("a", ttl_ms=1000)
    assert driver.renew("h1", 50, at_ms=100) == Renewed(1, 900)
    assert driver.renew("h1", at_ms=980) == Renewed(1, 50)
    assert driver.pass_to(1030) == []
    assert driver.pass_to(1031) == [EventKind.EXPIRED]


def test_what_ended_can_not_be_renewed_or_released() -> None:
    """Holds that ended, never existed or are still waited for are not held."""
    driver = MachineDriver()
    driver.granted("a")
    driver.queued("a")
    for hold_id in ("h2", "nobody"):
        assert reason(driver.renew(hold_id)) is Reason.LEASE_EXPIRED
        assert reason(driver.release(hold_id)) is Reason.LEASE_EXPIRED


def test_the_longest_delay_wins() -> None:
    """Of several delays of one lock the last to end counts, in whichever order they begin."""
    for delays_ms in ((500, 200), (200, 500)):
        driver = MachineDriver()
        for delay_ms in delays_ms:
            driver.granted("a", mode=Mode.SHARED, ttl_ms=1000, lock_delay_ms=delay_ms)
        driver.pass_to(1001)
        assert driver.machine.next_deadline_ms() == 1501


def test_cancel_of_another_attempt_has_no_effect() -> None:
    """A cancel ends only the attempt that it names."""
    driver = MachineDriver()
    driver.granted("a")
    driver.queued("a")
    for hold_id, attempt_id in (("h1", "a2"), ("h2", "a1"), ("h3", "a1")):
        assert driver.cancel(hold_id, attempt_id) == Cancelled(undone=False)
    assert len(driver.machine.lock("a").queue) == 1
