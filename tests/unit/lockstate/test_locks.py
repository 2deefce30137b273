"""Locks in the machine: grants, queues, leases, delays, cancel and force."""

from lockstate.words.commands import ForceRelease
from lockstate.words.ids import HoldId
from lockstate.words.modes import Mode
from lockstate.words.results import (
    Cancelled,
    EventKind,
    ForceReleased,
    Granted,
    Queued,
    Reason,
    Refused,
    Released,
    Renewed,
)
from tests.unit.lockstate.machine_driver import MachineDriver, expect, reason


def test_a_held_lock_is_refused_at_once() -> None:
    """A request that does not wait learns who holds the lock, how many wait and when to ask again."""
    driver = MachineDriver()
    driver.granted("a", ttl_ms=1000, owner="ann")
    driver.queued("a")
    refused = expect(Refused, driver.acquire("a", at_ms=400))
    assert refused.reason is Reason.LOCK_HELD
    assert [(holder.owner, holder.token, holder.expires_in_ms) for holder in refused.holders] == [
        ("ann", 1, 600)
    ]
    assert refused.queue_length == 1
    assert 0 < refused.retry_after_ms <= 601


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


def test_a_waiting_exclusive_blocks_newer_shared() -> None:
    """A reader that comes after a writer waits behind it, and the readers behind share what it leaves."""
    driver = MachineDriver()
    driver.granted("a", mode=Mode.SHARED)
    driver.queued("a")
    driver.queued("a", mode=Mode.SHARED)
    driver.queued("a", mode=Mode.SHARED)
    driver.release("h1")
    assert driver.served() == ["h2"]
    driver.release("h2")
    assert driver.served() == ["h3", "h4"]


def test_a_wait_that_ends_serves_those_behind_it() -> None:
    """When a waiting writer gives up, the readers behind it join the present holders."""
    driver = MachineDriver()
    driver.granted("a", mode=Mode.SHARED)
    driver.acquire("a", wait_ms=100)
    driver.queued("a", mode=Mode.SHARED)
    assert driver.pass_to(101) == [EventKind.LEFT, EventKind.GRANTED]


def test_the_lease_of_a_waiter_starts_at_its_grant() -> None:
    """Time in the queue does not count against the lease."""
    driver = MachineDriver()
    driver.granted("a")
    driver.queued("a", ttl_ms=700)
    driver.release("h1", at_ms=900)
    assert expect(Granted, driver.settled["h2"]).expires_in_ms == 700


def test_own_leases_are_never_merged() -> None:
    """The same owner with leases of its own gets two holds of a shared lock."""
    driver = MachineDriver()
    tokens = [driver.granted("a", mode=Mode.SHARED, owner="ann").token for _ in range(2)]
    assert tokens == [1, 2]


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


def test_expiry_leaves_a_lock_delay() -> None:
    """After an expiry nobody gets the lock until the delay has passed; refusals say so."""
    driver = MachineDriver()
    driver.granted("a", ttl_ms=1000, lock_delay_ms=500)
    driver.pass_to(1001)
    assert driver.machine.lock("a").state == "delayed"
    refused = expect(Refused, driver.acquire("a"))
    assert (refused.reason, refused.holders) == (Reason.LOCK_HELD, ())
    driver.queued("a")
    assert reason(driver.acquire("a")) is Reason.LOCK_HELD
    assert driver.pass_to(1501) == []
    assert driver.pass_to(1502) == [EventKind.GRANTED]


def test_the_longest_delay_wins() -> None:
    """Of several delays of one lock the last to end counts, in whichever order they begin."""
    for delays_ms in ((500, 200), (200, 500)):
        driver = MachineDriver()
        for delay_ms in delays_ms:
            driver.granted("a", mode=Mode.SHARED, ttl_ms=1000, lock_delay_ms=delay_ms)
        driver.pass_to(1001)
        assert driver.machine.next_deadline_ms() == 1501


def test_a_delayed_lock_that_others_hold_is_held() -> None:
    """While some still hold a delayed lock it counts as held, and nobody joins them."""
    driver = MachineDriver()
    driver.granted("a", mode=Mode.SHARED, ttl_ms=1000, lock_delay_ms=500)
    driver.granted("a", mode=Mode.SHARED, ttl_ms=5000)
    driver.pass_to(1001)
    assert driver.machine.lock("a").state == "held"
    assert reason(driver.acquire("a", mode=Mode.SHARED)) is Reason.LOCK_HELD
    driver.pass_to(1502)
    driver.granted("a", mode=Mode.SHARED)


def test_a_release_leaves_no_delay() -> None:
    """A holder that releases is done: no delay follows."""
    driver = MachineDriver()
    driver.granted("a", lock_delay_ms=500)
    driver.release("h1")
    assert driver.granted("a").token == 2


def test_force_release_ends_every_hold() -> None:
    """All holders of the lock lose it, the events give the reason, and the next waiter is served."""
    driver = MachineDriver()
    driver.granted("a", mode=Mode.SHARED, owner="ann")
    driver.granted("a", mode=Mode.SHARED, owner="bob")
    driver.queued("a")
    released = expect(ForceReleased, driver.run(ForceRelease("a", "hangs"))).released
    assert [holder.owner for holder in released] == ["ann", "bob"]
    assert [(event.kind, event.reason) for event in driver.events] == [
        (EventKind.FORCED, "hangs"),
        (EventKind.FORCED, "hangs"),
        (EventKind.GRANTED, ""),
    ]


def test_force_release_may_delay() -> None:
    """A force release with a delay keeps the lock from everybody for that long."""
    driver = MachineDriver()
    driver.granted("a", lock_delay_ms=100)
    driver.run(ForceRelease("a", "hangs", 200))
    assert driver.machine.lock("a").state == "delayed"
    assert driver.machine.next_deadline_ms() == 200


def test_force_release_of_nothing_has_no_effect() -> None:
    """Where nobody holds, nothing is ended and nothing delayed, or delayed for longer."""
    driver = MachineDriver()
    assert driver.run(ForceRelease("a", "", 200)) == ForceReleased(())
    assert driver.machine.lock("a").state == "free"
    driver.granted("a")
    driver.run(ForceRelease("a", "", 200))
    assert driver.run(ForceRelease("a", "", 900)) == ForceReleased(())
    assert driver.machine.next_deadline_ms() == 200


def test_cancel_ends_a_wait() -> None:
    """Every connection that waits on a cancelled ticket hears of its end, and those behind it move up."""
    driver = MachineDriver()
    driver.granted("a", mode=Mode.SHARED)
    driver.queued("a")
    driver.queued("a", mode=Mode.SHARED)
    assert driver.cancel("h2", "a2") == Cancelled(undone=True)
    ends = [(event.kind, event.session_id) for event in driver.events]
    assert ends == [(EventKind.LEFT, "h2"), (EventKind.GRANTED, "h3")]
    assert driver.refused("h2").reason is Reason.LOCK_HELD


def test_cancel_releases_what_was_granted() -> None:
    """A cancel that comes after the grant gives the hold back, and says so."""
    driver = MachineDriver()
    driver.granted("a", lock_delay_ms=500)
    assert driver.cancel("h1", "a1") == Cancelled(undone=True)
    assert [event.kind for event in driver.events] == [EventKind.RELEASED]
    assert driver.machine.lock("a").state == "free"


def test_cancel_of_another_attempt_has_no_effect() -> None:
    """A cancel ends only the attempt that it names."""
    driver = MachineDriver()
    driver.granted("a")
    driver.queued("a")
    for hold_id, attempt_id in (("h1", "a2"), ("h2", "a1"), ("h3", "a1")):
        assert driver.cancel(hold_id, attempt_id) == Cancelled(undone=False)
    assert len(driver.machine.lock("a").queue) == 1
