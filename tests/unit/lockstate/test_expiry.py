"""Expiry with a budget: one entry ends only so much, in order, and the rest is due at the next one."""

import pytest

from lockstate import limits
from lockstate.commands import Acquire, AcquirePermits, Command, KeepAlive, OpenSession, Renew, TakeRate
from lockstate.ids import AttemptId, HoldId, SessionId
from lockstate.results import EventKind, Granted, Reason, Refused, Renewed, SessionKept, SessionOpened
from tests.unit.lockstate.world import EXCLUSIVE, SHARED, World, expect, reason, wanted


@pytest.fixture(autouse=True)
def _two_claims_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EXPIRIES_PER_ENTRY_MAX", 2)


def _ended(world: World, at_ms: int) -> list[str]:
    """Let time pass; return the names of the locks that ended."""
    world.pass_to(at_ms)
    return [event.name for event in world.events if event.kind is EventKind.EXPIRED]


def test_the_rest_is_due_at_the_next_entry() -> None:
    """Each entry ends as much as it may, and the host is told that a deadline has passed."""
    world = World()
    for name in "abcde":
        world.granted(name, ttl_ms=1000)
    assert _ended(world, 1001) == ["a", "b"]
    assert world.machine.next_deadline_ms() == 1000 < world.machine.now_ms
    assert _ended(world, 1001) == ["c", "d"]
    assert _ended(world, 1001) == ["e"]
    assert world.machine.next_deadline_ms() is None


def test_the_order_is_that_of_deadlines_and_creation() -> None:
    """What should have ended first ends first, over however many entries."""
    world = World()
    for name, ttl_ms in (("late", 900), ("b", 500), ("a", 500), ("first", 400), ("later", 901)):
        world.granted(name, ttl_ms=ttl_ms)
    assert _ended(world, 5000) == ["first", "b"]
    assert _ended(world, 5000) == ["a", "late"]
    assert _ended(world, 5000) == ["later"]


def test_what_is_overdue_still_counts() -> None:
    """Until it ends it holds its lock, shows in reads, and can be renewed and kept alive."""
    world = World()
    for name in "abcd":
        world.granted(name, ttl_ms=1000)
    world.open("s1", ttl_ms=1000)
    world.granted("e", session_id="s1")
    asked = Acquire("d", EXCLUSIVE, HoldId("h9"), AttemptId("a9"), ttl_ms=1000)
    results = world.run_all([asked, Renew(HoldId("h3")), KeepAlive(SessionId("s1"))], at_ms=1001)
    assert reason(results[0]) is Reason.LOCK_HELD
    assert results[1:] == (Renewed(3, 1000), SessionKept(SessionId("s1"), 1000))
    assert [event.name for event in world.events] == ["a", "b"]
    assert [it.expires_in_ms for it in world.machine.lock("d").holders] == [0]
    assert _ended(world, 1001) == ["d"]
    assert _ended(world, 2001) == []
    assert _ended(world, 2002) == ["c", "e"]


def test_no_answer_has_a_time_below_zero() -> None:
    """What is overdue has nothing left: in grants, refusals, views and repeated answers."""
    world = World()
    world.run(OpenSession(SessionId("s1"), 1000, {}, "r"))
    world.granted("a", session_id="s1")
    for name in "bc":
        world.granted(name, ttl_ms=500)
    asked: list[Command] = [
        Acquire("a", EXCLUSIVE, HoldId("h8"), AttemptId("a8"), ttl_ms=1000),
        Acquire("z", EXCLUSIVE, HoldId("h9"), AttemptId("a9"), session_id=SessionId("s1")),
        AcquirePermits("q", 3, 1, HoldId("h10"), AttemptId("a10"), SessionId("s1")),
        OpenSession(SessionId("s2"), 1000, {}, "r"),
    ]
    refused, granted, permitted, opened = world.run_all(asked, at_ms=5000)
    assert [event.name for event in world.events[:2]] == ["b", "c"]
    assert expect(Refused, refused).holders[0].expires_in_ms == 0
    assert expect(Refused, refused).retry_after_ms == 1
    assert expect(Granted, granted).expires_in_ms == 0
    assert expect(Granted, permitted).expires_in_ms == 0
    assert expect(SessionOpened, opened).expires_in_ms == 0
    view = world.machine.session(SessionId("s1"))
    assert view is not None
    assert [view.expires_in_ms, *[it.expires_in_ms for it in view.holds]] == [0, 0, 0, 0]


def test_sessions_count_with_all_that_they_hold() -> None:
    """A session ends in one step with its holds, however many; what comes after it is left."""
    world = World()
    world.open("s1", ttl_ms=1000)
    for name in ("a", "b/c/d", "e"):
        world.granted(name, session_id="s1")
    world.granted("z", ttl_ms=1000)
    assert _ended(world, 1001) == ["a", "b/c/d", "e"]
    assert _ended(world, 1001) == ["z"]


def test_empty_sessions_and_waits_count_too() -> None:
    """A session without holds is one step, and so is a wait."""
    world = World()
    world.open("s1", "s2", "s3", ttl_ms=500)
    world.granted("a", ttl_ms=9000)
    for _ in range(3):
        world.queued("a", wait_ms=600)
    kinds = [[kind.value for kind in world.pass_to(1001)] for _ in range(4)]
    assert kinds == [
        ["session-expired"] * 2,
        ["session-expired", "wait-ended"],
        ["wait-ended"] * 2,
        [],
    ]


def test_a_hold_of_several_counts_with_all_its_locks() -> None:
    """A lease of its own that has many locks is as much work as many leases."""
    world = World()
    world.granted(locks=wanted("a", "b", "c"), ttl_ms=1000)
    world.granted("z", ttl_ms=1000)
    assert _ended(world, 1001) == ["a", "b", "c"]
    assert _ended(world, 1001) == ["z"]


def test_the_waits_of_a_session_count() -> None:
    """A session that waits in many queues is as much work as many waits."""
    world = World()
    world.open("s1", ttl_ms=1000)
    world.granted("a", ttl_ms=9000)
    for number in range(3):
        world.queued("a", session_id="s1", owner=f"o{number}")
    world.granted("z", ttl_ms=1000)
    assert _ended(world, 1001) == []
    assert len(world.events) == 3 + 1
    assert _ended(world, 1001) == ["z"]


def test_delays_and_rate_limits_count() -> None:
    """Everything that ends by itself is a step."""
    world = World()
    for name in "ab":
        world.granted(name, ttl_ms=50, lock_delay_ms=100)
    world.run(TakeRate("mail", 5, 1000))
    world.pass_to(51)
    world.granted("c", ttl_ms=3000, at_ms=51)
    for deadline_ms in (151, 1000, None):
        assert world.machine.next_deadline_ms() == deadline_ms
        world.pass_to(5000)
    assert world.machine.counts()["rate_limits"] == 0


def test_nothing_is_lost() -> None:
    """However far time has gone, entry after entry ends everything exactly once."""
    world = World()
    for number in range(9):
        world.granted("shared", mode=SHARED, ttl_ms=100 + number)
    world.queued("shared", wait_ms=5000, ttl_ms=50)
    ended = []
    for step in range(8):
        world.pass_to(9000 if step < 6 else 9051)
        ended += [event.token for event in world.events if event.kind is EventKind.EXPIRED]
        assert len(world.events) <= 2
    assert ended == list(range(1, 11))
    assert set(world.machine.counts().values()) == {0}


def test_who_waits_is_served_only_when_it_has_ended() -> None:
    """A waiter gets the lock in the entry in which the overdue lease ends, with a full lease."""
    world = World()
    for name in "abc":
        world.granted(name, ttl_ms=1000)
    world.queued("c", wait_ms=9000, ttl_ms=700)
    world.pass_to(1001)
    assert world.served() == []
    world.pass_to(1001)
    assert expect(Granted, world.settled["h4"]).expires_in_ms == 700


def test_as_much_as_the_budget_is_ended() -> None:
    """Exactly so many leases end in one entry, and nothing is left over."""
    world = World()
    for name in "ab":
        world.granted(name, ttl_ms=1000)
    assert _ended(world, 1001) == ["a", "b"]
    assert world.machine.next_deadline_ms() is None
