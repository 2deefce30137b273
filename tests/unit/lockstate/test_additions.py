"""Additions: a hold gets more locks, all or none, in the ordinary order, and keeps what it has meanwhile."""

import pytest

from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words import limits
from lockstate.words.events import EventKind, Left
from lockstate.words.ids import HoldId
from lockstate.words.kinds import HoldKind
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Cancelled, Granted, Released
from lockstate.words.wanted import Wanted
from tests.unit.lockstate.machine_driver import (
    EXCLUSIVE,
    SHARED,
    SUBTREE,
    MachineDriver,
    expect,
    reason,
    wanted,
)


def newest() -> MachineDriver:
    """Return a driver of a machine that follows the newest rules."""
    return MachineDriver()


def told(driver: MachineDriver) -> list[tuple[str, str, int]]:
    """Return kind, name and token of each event of the last entry."""
    return [(event.kind.value, event.name, event.token) for event in driver.events]


def holders(driver: MachineDriver, name: str) -> list[int]:
    """Return the tokens of those who hold a name."""
    return [holder.token for holder in driver.machine.lock(name).holders]


def test_all_or_none() -> None:
    """As long as one of them is not to be had, nothing is added; without a wait it is refused."""
    driver = newest()
    driver.granted("a")
    driver.granted("c", owner="bob")
    refused = expect(Refused, driver.add("h1", "b", "c"))
    assert (refused.reason, refused.detail) == (Reason.LOCK_HELD, "held by bob")
    assert driver.machine.lock("b").state == "free"
    driver.adding("h1", "b", "c")
    assert driver.machine.lock("b").holders == ()


def test_a_wait_in_vain_leaves_the_hold() -> None:
    """When its time is over, and when it is cancelled."""
    driver = newest()
    driver.granted("a", ttl_ms=60_000)
    driver.granted("b", ttl_ms=60_000)
    driver.adding("h1", "b", wait_ms=100)
    driver.pass_to(101)
    assert expect(Refused, driver.settled["t3"]).reason is Reason.LOCK_HELD
    waiting = driver.adding("h1", "b", at_ms=101)
    assert driver.cancel(waiting.hold_id, "a4", at_ms=101) == Cancelled(undone=True)
    assert holders(driver, "a") == [1]


def test_a_granted_addition_is_not_undone() -> None:
    """Its client went away before the answer: it has the hold, and can give back what it got."""
    driver = newest()
    driver.granted("a")
    driver.granted("b")
    waiting = driver.adding("h1", "b")
    driver.release("h2")
    assert driver.cancel(waiting.hold_id, "a3") == Cancelled(undone=False)
    assert driver.release("h1", "b") == Released(wanted("a"))


def test_the_wait_ends_with_the_hold() -> None:
    """However it ends; those behind it go on."""
    for end in ("release", "expire", "force"):
        driver = newest()
        driver.granted("a", ttl_ms=50)
        driver.granted("b", ttl_ms=60_000, mode=SHARED)
        driver.adding("h1", "b")
        driver.queued("b", mode=SHARED)
        if end == "release":
            driver.release("h1")
        elif end == "force":
            driver.force("a")
        else:
            driver.renew("h2", at_ms=51)
        assert expect(Refused, driver.settled["t3"]).reason is Reason.LEASE_EXPIRED
        assert isinstance(driver.settled["h4"], Granted)
        left = [event.reason for event in driver.events if event.kind is EventKind.LEFT]
        assert left == [Left.LEASE_EXPIRED.value]


def test_it_ends_with_the_session_too() -> None:
    """And is told that its hold is over, not that it was asked for in vain."""
    driver = newest()
    driver.open("s1", ttl_ms=60_000)
    driver.granted("a", session_id="s1")
    driver.granted("b", ttl_ms=60_000)
    driver.adding("h1", "b")
    driver.close("s1")
    assert expect(Refused, driver.settled["t3"]).reason is Reason.LEASE_EXPIRED
    assert not driver.machine.state.tickets


def test_two_that_want_what_the_other_has() -> None:
    """The second would wait for ever, and is refused; with sessions as well as with leases of their own."""
    for session_ids in (("", ""), ("s1", "s2")):
        driver = newest()
        driver.open("s1", "s2", ttl_ms=60_000)
        for name, session_id in zip("ab", session_ids, strict=True):
            driver.granted(name, session_id=session_id, **({} if session_id else {"ttl_ms": 60_000}))
        driver.adding("h1", "b")
        refused = expect(Refused, driver.add("h2", "a", wait_ms=1000))
        assert refused.reason is Reason.DEADLOCK
        assert [step.name for step in refused.cycle] == ["a", "b"]
        assert reason(driver.add("h2", "a")) is Reason.LOCK_HELD


def test_one_change_at_a_time() -> None:
    """While locks are added, the hold is not converted, added to again, or given back in part."""
    driver = newest()
    driver.granted(locks=wanted("a", "e"), ttl_ms=60_000)
    driver.granted("b", ttl_ms=60_000)
    driver.adding("h1", "b")
    for result in (driver.add("h1", "c"), driver.convert("h1", SHARED), driver.release("h1", "e")):
        assert expect(Refused, result).detail.endswith("is being added to")
    driver.granted("x", mode=SHARED)
    driver.granted("x", mode=SHARED)
    driver.converting("h7", EXCLUSIVE)
    assert expect(Refused, driver.add("h7", "c")).detail == "hold_id: is being converted"


@pytest.mark.parametrize(
    "locks",
    [
        (),
        ("b", "b"),
        ("b/",),
        (Wanted("b", scope=SUBTREE), "b/c"),
        ("a/x",),
        (Wanted("a/b/c", mode=SHARED),),
        tuple(f"n{number}" for number in range(limits.LOCKS_COUNT_MAX)),
        tuple(f"n{number}" for number in range(limits.LOCKS_COUNT_MAX + 1)),
    ],
)
def test_what_no_hold_could_have_together_cannot_be_added(locks: tuple[str | Wanted, ...]) -> None:
    """Nothing within a subtree that it has, not the subtree around what it has, and 64 locks in all."""
    driver = newest()
    driver.granted(locks=(Wanted("a", scope=SUBTREE), Wanted("e/f")))
    assert reason(driver.add("h1", *locks)) is Reason.INVALID_REQUEST
    assert reason(driver.add("h1", Wanted("e", scope=SUBTREE))) is Reason.INVALID_REQUEST
    assert reason(driver.add("h9", *locks)) in {Reason.INVALID_REQUEST, Reason.LEASE_EXPIRED}


def test_only_holds_of_locks_are_added_to() -> None:
    """Permits and leaders have no locks; a hold that is gone has nothing."""
    driver = newest()
    driver.open("s1")
    driver.permitted("q", 3)
    driver.campaign("boss", "s1")
    for hold_id in ("h1", "h2"):
        assert reason(driver.add(hold_id, "a")) is Reason.INVALID_REQUEST
    assert reason(driver.add("h-missing", "a")) is Reason.LEASE_EXPIRED


def test_what_is_added_counts_for_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the ancestors of the names; beyond the bound nothing is added."""
    driver = newest()
    monkeypatch.setattr(limits, "SESSION_CLAIMS_MAX", 4)
    driver.open("s1", ttl_ms=60_000)
    driver.granted("a", session_id="s1")
    driver.added("h1", "x/y")
    assert reason(driver.add("h1", "x/z")) is Reason.OVERLOADED
    driver.added("h1", "z")


def test_it_is_known_whether_a_hold_has_a_deadline() -> None:
    """Who may have what without one depends on the names, so an addition is asked for it."""
    driver = newest()
    driver.granted("a")
    assert driver.machine.is_endless(HoldId("h1")) is False
    assert driver.machine.is_endless(HoldId("gone")) is None


def test_a_snapshot_keeps_what_waits_for_more() -> None:
    """It goes on in its place, and is not taken for a conversion afterwards."""
    driver = newest()
    driver.granted("a", ttl_ms=60_000)
    driver.granted("b", ttl_ms=60_000)
    driver.queued("b", ttl_ms=60_000)
    driver.adding("h1", "b")
    driver.machine = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    driver.release("h2")
    assert driver.served() == ["h3"]
    assert driver.machine.state.holds[HoldId("h1")].kind is HoldKind.LOCK
    driver.release("h3")
    assert driver.served() == ["t4"]
