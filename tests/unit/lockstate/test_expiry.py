"""Expiry with a budget: one entry ends a limited number, in order, and the rest is due at the next one."""

import pytest

from lockstate.words import limits
from lockstate.words.commands import Acquire, AcquirePermits, Command, KeepAlive, OpenSession, Renew, TakeRate
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.results import EventKind, Granted, Reason, Refused, Renewed, SessionKept, SessionOpened
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, MachineDriver, expect, reason, wanted


@pytest.fixture(autouse=True)
def _two_claims_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EXPIRIES_PER_ENTRY_MAX", 2)


def _ended(driver: MachineDriver, at_ms: int) -> list[str]:
    """Let time pass; return the names of the locks that ended."""
    driver.pass_to(at_ms)
    return [event.name for event in driver.events if event.kind is EventKind.EXPIRED]


def test_the_rest_is_due_at_the_next_entry() -> None:
    """Each entry ends as much as it may, and the next deadline tells the host that more is due."""
    driver = MachineDriver()
    for name in "abcde":
        driver.granted(name, ttl_ms=1000)
    assert _ended(driver, 1001) == ["a", "b"]
    assert driver.machine.next_deadline_ms() == 1000 < driver.machine.now_ms
    assert _ended(driver, 1001) == ["c", "d"]
    assert _ended(driver, 1001) == ["e"]
    assert driver.machine.next_deadline_ms() is None


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


def test_what_is_overdue_still_counts() -> None:
    """Until it ends it holds its lock, shows in reads, and can be renewed and kept alive."""
    driver = MachineDriver()
    for name in "abcd":
        driver.granted(name, ttl_ms=1000)
    driver.open("s1", ttl_ms=1000)
    driver.granted("e", session_id="s1")
    asked = Acquire("d", EXCLUSIVE, HoldId("h9"), AttemptId("a9"), ttl_ms=1000)
    results = driver.run_all([asked, Renew(HoldId("h3")), KeepAlive(SessionId("s1"))], at_ms=1001)
    assert reason(results[0]) is Reason.LOCK_HELD
    assert results[1:] == (Renewed(3, 1000), SessionKept(SessionId("s1"), 1000))
    assert [event.name for event in driver.events] == ["a", "b"]
    assert [holder.expires_in_ms for holder in driver.machine.lock("d").holders] == [0]
    assert _ended(driver, 1001) == ["d"]
    assert _ended(driver, 2001) == []
    assert _ended(driver, 2002) == ["c", "e"]


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


def test_sessions_count_with_all_that_they_hold() -> None:
    """A session ends in one step with its holds, however many; what comes after it is left."""
    driver = MachineDriver()
    driver.open("s1", ttl_ms=1000)
    for name in ("a", "b/c/d", "e"):
        driver.granted(name, session_id="s1")
    driver.granted("z", ttl_ms=1000)
    assert _ended(driver, 1001) == ["a", "b/c/d", "e"]
    assert _ended(driver, 1001) == ["z"]


def test_empty_sessions_and_waits_count_too() -> None:
    """A session without holds is one step, and so is a wait."""
    driver = MachineDriver()
    driver.open("s1", "s2", "s3", ttl_ms=500)
    driver.granted("a", ttl_ms=9000)
    for _ in range(3):
        driver.queued("a", wait_ms=600)
    kinds = [[kind.value for kind in driver.pass_to(1001)] for _ in range(4)]
    assert kinds == [
        ["session-expired"] * 2,
        ["session-expired", "left"],
        ["left"] * 2,
        [],
    ]


def test_a_hold_of_several_counts_with_all_its_locks() -> None:
    """A lease of its own that has many locks is as much work as many leases."""
    driver = MachineDriver()
    driver.granted(locks=wanted("a", "b", "c"), ttl_ms=1000)
    driver.granted("z", ttl_ms=1000)
    assert _ended(driver, 1001) == ["a", "b", "c"]
    assert _ended(driver, 1001) == ["z"]


def test_the_waits_of_a_session_count() -> None:
    """A session that waits in many queues is as much work as many waits."""
    driver = MachineDriver()
    driver.open("s1", ttl_ms=1000)
    driver.granted("a", ttl_ms=9000)
    for number in range(3):
        driver.queued("a", session_id="s1", owner=f"o{number}")
    driver.granted("z", ttl_ms=1000)
    assert _ended(driver, 1001) == []
    assert len(driver.events) == 3 + 1
    assert _ended(driver, 1001) == ["z"]


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


def test_waiters_are_served_only_when_it_has_ended() -> None:
    """A waiter gets the lock in the entry in which the overdue lease ends, with a full lease."""
    driver = MachineDriver()
    for name in "abc":
        driver.granted(name, ttl_ms=1000)
    driver.queued("c", wait_ms=9000, ttl_ms=700)
    driver.pass_to(1001)
    assert driver.served() == []
    driver.pass_to(1001)
    assert expect(Granted, driver.settled["h4"]).expires_in_ms == 700


def test_as_much_as_the_budget_is_ended() -> None:
    """One entry ends exactly as many leases as it may, and nothing is left over."""
    driver = MachineDriver()
    for name in "ab":
        driver.granted(name, ttl_ms=1000)
    assert _ended(driver, 1001) == ["a", "b"]
    assert driver.machine.next_deadline_ms() is None
