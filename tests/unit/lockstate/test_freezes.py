"""Freezes: nothing new is granted at and below a prefix; holders go on, and waiters keep their places."""

import pytest

from lockstate.machine import LockMachine
from lockstate.reads import freezes
from lockstate.stored import snapshot
from lockstate.words import limits
from lockstate.words.commands.entries import Command
from lockstate.words.commands.holds import (
    Acquire,
    AcquirePermits,
    AcquireSeveral,
    AddLocks,
    Campaign,
    Convert,
    Release,
    Renew,
)
from lockstate.words.commands.overrides import Freeze, Thaw
from lockstate.words.commands.primitives import ResizeSemaphore
from lockstate.words.events import EventKind
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.modes import Mode, Scope
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Frozen, Granted, Queued, Resized, Thawed
from lockstate.words.views import LeftView
from lockstate.words.wanted import Wanted, WantedPermits
from tests.unit.lockstate.cell_driver import CellDriver
from tests.unit.lockstate.machine_driver import SHARED, expect, reason
from tests.unit.lockstate.work_meter import Meter

ANN = SessionId("ann")


@pytest.fixture
def driver() -> CellDriver:
    """Return a machine of the newest rules, with a session."""
    driver = CellDriver()
    driver.open("ann", ttl_ms=900_000)
    return driver


def frozen(driver: CellDriver, prefix: str, for_ms: int = 0, at_ms: int = 0) -> Frozen:
    """Freeze a prefix."""
    return expect(Frozen, driver.run(Freeze(prefix, "the disk is moved", for_ms), at_ms))


def thawed(driver: CellDriver, prefix: str, at_ms: int = 0) -> Thawed:
    """Thaw a prefix."""
    return expect(Thawed, driver.run(Thaw(prefix, "done"), at_ms))


def permits(name: str, hold: str, wait_ms: int = 0, limit: int = 2) -> AcquirePermits:
    """Return a request for a permit."""
    return AcquirePermits(name, limit, 1, HoldId(hold), AttemptId(hold), ttl_ms=60_000, wait_ms=wait_ms)


def campaign(name: str, hold: str, wait_ms: int = 0) -> Campaign:
    """Return a request to lead."""
    return Campaign(name, ANN, "here", HoldId(hold), AttemptId(hold), wait_ms=wait_ms)


def test_what_would_not_wait_is_refused_with_the_reason(driver: CellDriver) -> None:
    """Of the prefix itself and below it by whole parts, whatever is free; what lies beside it is granted."""
    frozen(driver, "a/b")
    for name in ("a/b", "a/b/c", "a/b/c/d"):
        refused = expect(Refused, driver.acquire(name))
        assert (refused.reason, refused.detail) == (Reason.FROZEN, "'a/b' is frozen: the disk is moved")
        assert refused.retry_after_ms == 1000
    for name in ("a", "a/bc", "a/c"):
        driver.granted(name)


def test_it_is_said_when_to_ask_again(driver: CellDriver) -> None:
    """When the freeze ends by itself, if that is within a second; and there may be no reason."""
    driver.run(Freeze("a", "", 400))
    refused = expect(Refused, driver.acquire("a/b", at_ms=100))
    assert (refused.detail, refused.retry_after_ms) == ("'a' is frozen", 300)


def test_a_wait_keeps_its_place_and_is_granted_by_the_thaw(driver: CellDriver) -> None:
    """In order of arrival, behind who held it; also one that began after the prefix was frozen."""
    hold = driver.granted("a/b")
    first = driver.queued("a/b")
    frozen(driver, "a")
    second = driver.queued("a/b")
    driver.run(Release(hold.hold_id))
    assert driver.served() == []
    assert thawed(driver, "a") == Thawed(was_frozen=True)
    assert driver.served() == [first.hold_id]
    driver.run(Release(first.hold_id))
    assert driver.served() == [second.hold_id]


def test_a_freeze_ends_by_itself_not_before_its_time(driver: CellDriver) -> None:
    """By cluster time: that is in the audit, with how long it lasted, and who waits is granted."""
    frozen(driver, "a", 1000)
    waiting = driver.queued("a/b")
    assert driver.pass_to(1000) == []
    assert driver.pass_to(1001) == [EventKind.THAWED, EventKind.GRANTED]
    assert driver.served() == [waiting.hold_id]
    event = driver.events[0]
    assert (event.name, event.reason, event.lasted_ms, event.ends_in_ms) == ("a", "", 1001, 0)
    assert not driver.machine.state.freezes


def test_a_wait_that_ends_in_a_freeze_says_so(driver: CellDriver) -> None:
    """Whoever held it meanwhile: that was not what it waited for in the end."""
    driver.granted("a/b")
    waiting = driver.queued("a/b", wait_ms=100)
    frozen(driver, "a")
    driver.pass_to(101)
    assert driver.refused(waiting.hold_id).reason is Reason.FROZEN


def test_holders_go_on(driver: CellDriver) -> None:
    """They renew, acquire again what they have, convert down, and release; upwards is a new lock."""
    hold = driver.granted("a/b", session_id="ann")
    driver.granted("a/s", session_id="ann", mode=SHARED)
    frozen(driver, "a")
    again = driver.granted("a/b", session_id="ann")
    assert again.token == hold.token
    driver.run(Renew(hold.hold_id))
    down = expect(Granted, driver.run(Convert(hold.hold_id, SHARED, HoldId("t"), AttemptId("t"))))
    assert down.mode is SHARED
    up = Convert(hold.hold_id, Mode.EXCLUSIVE, HoldId("t"), AttemptId("t"))
    assert reason(driver.run(up)) is Reason.FROZEN
    waiting = Convert(hold.hold_id, Mode.EXCLUSIVE, HoldId("u"), AttemptId("u"), 60_000)
    expect(Queued, driver.run(waiting))
    thawed(driver, "a")
    assert driver.served() == [HoldId("u")]


def test_several_locks_wait_for_the_one_that_is_frozen(driver: CellDriver) -> None:
    """All or none, as ever; and a hold gets none of a frozen prefix besides."""
    hold = driver.granted("x")
    frozen(driver, "a")
    locks = (Wanted("b"), Wanted("a/1"))
    both = Acquire("", Mode.EXCLUSIVE, HoldId("h"), AttemptId("h"), ttl_ms=60_000, locks=locks)
    assert reason(driver.run(both)) is Reason.FROZEN
    more = AddLocks(hold.hold_id, (Wanted("a/2"),), HoldId("m"), AttemptId("m"))
    assert reason(driver.run(more)) is Reason.FROZEN
    waiting = Acquire(
        "", Mode.EXCLUSIVE, HoldId("w"), AttemptId("w"), ttl_ms=60_000, wait_ms=60_000, locks=locks
    )
    expect(Queued, driver.run(waiting))
    assert reason(driver.acquire("b")) is Reason.LOCK_HELD
    thawed(driver, "a")
    assert driver.served() == [HoldId("w")]


@pytest.mark.parametrize("name", ["a", "a/b", "a/b/c"])
def test_a_subtree_that_has_anything_frozen_waits(driver: CellDriver, name: str) -> None:
    """From above, at the prefix and below it; one that has nothing of it is granted."""
    frozen(driver, "a/b")
    frozen(driver, "a/d")
    assert reason(driver.acquire(name, scope=Scope.SUBTREE)) is Reason.FROZEN
    beside = driver.granted("a/c", scope=Scope.SUBTREE)
    thawed(driver, "a/d")
    waiting = driver.queued(name, mode=SHARED, scope=Scope.SUBTREE)
    driver.run(Release(beside.hold_id))
    assert driver.served() == []
    thawed(driver, "a/b")
    assert driver.served() == [waiting.hold_id]


def test_permits_and_elections_are_frozen_as_well(driver: CellDriver) -> None:
    """Also those that nobody has: a wait begins them. A thaw serves them, at the prefix and below."""
    frozen(driver, "a")
    assert reason(driver.run(permits("a", "p0"))) is Reason.FROZEN
    assert reason(driver.run(campaign("a", "e0"))) is Reason.FROZEN
    assert not driver.machine.state.semaphores
    driver.run(campaign("a/c", "e9", 60_000))
    view = driver.machine.election("a/c")
    assert (view.leader, len(view.queue)) == (None, 1)
    for number, name in enumerate(("a", "a/b")):
        expect(Queued, driver.run(permits(name, f"p{number}", 60_000)))
        expect(Queued, driver.run(campaign(name, f"e{number}", 60_000)))
    expect(Resized, driver.run(ResizeSemaphore("a", 1)))
    assert driver.served() == []
    thawed(driver, "a")
    assert sorted(driver.served()) == ["e0", "e1", "e9", "p0", "p1"]


def test_permits_that_cannot_wait_leave_no_semaphore_behind(driver: CellDriver) -> None:
    """The first wait for one, for which there is no room."""
    frozen(driver, "a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "TICKETS_COUNT_MAX", 0)
        assert reason(driver.run(permits("a", "p", 60_000))) is Reason.OVERLOADED
    assert not driver.machine.state.semaphores


def test_permits_that_are_held_are_not_granted_again(driver: CellDriver) -> None:
    """What is released stays free until the thaw; who waits has its turn then."""
    expect(Granted, driver.run(permits("a", "p", limit=1)))
    frozen(driver, "a")
    expect(Queued, driver.run(permits("a", "q", 60_000, limit=1)))
    driver.run(Release(HoldId("p")))
    assert driver.served() == []
    thawed(driver, "a")
    assert driver.served() == [HoldId("q")]


def test_several_kinds_wait_for_what_is_frozen(driver: CellDriver) -> None:
    """A lock or a permit of it is enough, and the refusal says so."""
    frozen(driver, "a")
    for locks, permit in ((Wanted("a/1"), "q"), (Wanted("b"), "a/q")):
        wanted = AcquireSeveral(
            "",
            Mode.EXCLUSIVE,
            HoldId("h"),
            AttemptId("h"),
            ttl_ms=60_000,
            locks=(locks,),
            permits=(WantedPermits(permit, 2, 1),),
        )
        assert reason(driver.run(wanted)) is Reason.FROZEN


def test_a_freeze_says_what_is_left(driver: CellDriver) -> None:
    """Holds and waits of every kind at and below the prefix, and locks of subtrees around it, each once."""
    driver.granted("a", scope=Scope.SUBTREE, mode=Mode.CONCURRENT_READ)
    driver.granted("a/b", mode=SHARED)
    driver.granted("a/bc", mode=SHARED)
    driver.run(permits("a/b/q", "p", limit=1))
    driver.run(permits("a/b/q", "w", 60_000, limit=1))
    driver.run(campaign("a/b", "e"))
    assert frozen(driver, "a/b").left == LeftView(4, 1)
    state = driver.machine.state
    view = freezes.freeze(state, "a/b")
    assert (view.is_frozen, view.reason, view.ends_in_ms, view.left) == (
        True,
        "the disk is moved",
        None,
        LeftView(4, 1),
    )
    assert freezes.freeze(state, "a").is_frozen is False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "LIST_ROWS_MAX", 5)
        assert freezes.left_below(state, "a/b") == LeftView(3, 0, is_all=False)


def test_frozen_prefixes_are_listed_in_pages(driver: CellDriver) -> None:
    """By prefix, those that begin with a text."""
    for prefix in ("b", "a/x", "a"):
        frozen(driver, prefix, 5000)
    state = driver.machine.state
    rows, after = freezes.freezes(state, "", "", 2)
    assert ([row.name for row in rows], after) == (["a", "a/x"], "a/x")
    rows, after = freezes.freezes(state, "", "a/x", 2)
    assert ([(row.name, row.ends_in_ms, row.left) for row in rows], after) == ([("b", 5000, None)], None)
    assert [row.name for row in freezes.freezes(state, "a/", "", 9)[0]] == ["a/x"]


def test_a_second_freeze_replaces_the_first(driver: CellDriver) -> None:
    """Its end and its reason, also an earlier one; it is frozen since the first."""
    frozen(driver, "a", 1000)
    frozen(driver, "a", at_ms=500)
    assert driver.pass_to(5000) == []
    assert freezes.freeze(driver.machine.state, "a").frozen_ms == 5000
    frozen(driver, "a", 1, at_ms=5000)
    assert driver.pass_to(5002) == [EventKind.THAWED]
    assert driver.events[0].lasted_ms == 5002


def test_a_prefix_in_a_frozen_one_stays_frozen(driver: CellDriver) -> None:
    """Each freeze ends by itself; to thaw what is not frozen is fine."""
    frozen(driver, "a")
    frozen(driver, "a/b")
    thawed(driver, "a/b")
    assert reason(driver.acquire("a/b")) is Reason.FROZEN
    assert thawed(driver, "a/b") == Thawed(was_frozen=False)
    thawed(driver, "a")
    driver.granted("a/b")


def test_the_audit_says_who_and_why(driver: CellDriver) -> None:
    """What froze and what thawed."""
    frozen(driver, "a", 3000)
    thawed(driver, "a", at_ms=10)
    told = driver.machine.audit("a")
    assert [(one.kind, one.reason, one.lasted_ms, one.ends_in_ms) for one in told] == [
        (EventKind.THAWED, "done", 10, 0),
        (EventKind.FROZEN, "the disk is moved", 0, 3000),
    ]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (Freeze("", "x"), Reason.INVALID_REQUEST),
        (Freeze("n" * 513, "x"), Reason.NAME_TOO_LONG),
        (Freeze("a", "\n"), Reason.INVALID_REQUEST),
        (Freeze("a", "x", -1), Reason.INVALID_REQUEST),
        (Freeze("a", "x", limits.FREEZE_MS_MAX + 1), Reason.INVALID_REQUEST),
        (Thaw("a//b", "x"), Reason.INVALID_REQUEST),
        (Thaw("a//", "x"), Reason.INVALID_REQUEST),
        (Thaw("a", "\n"), Reason.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_frozen_is_refused(driver: CellDriver, command: Command, why: Reason) -> None:
    """Prefixes are names, and reasons are for people."""
    assert reason(driver.run(command)) is why


def test_there_is_a_bound(driver: CellDriver) -> None:
    """A prefix that is frozen already can still get another end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "FREEZES_COUNT_MAX", 1)
        frozen(driver, "a")
        assert reason(driver.run(Freeze("b", "x"))) is Reason.OVERLOADED
        frozen(driver, "a", 7)


def test_a_repetition_is_told_what_is_left_by_now(driver: CellDriver) -> None:
    """Of one that ends by itself; the other never does. A thaw that ended nothing is done again."""
    assert expect(Frozen, driver.run(Freeze("a", "x", 1000, "r"))).ends_in_ms == 1000
    assert expect(Frozen, driver.run(Freeze("a", "x", 1000, "r"), 300)).ends_in_ms == 700
    assert expect(Frozen, driver.run(Freeze("b", "x", 0, "r"))).ends_in_ms is None
    assert expect(Frozen, driver.run(Freeze("b", "x", 0, "r"))).ends_in_ms is None
    assert expect(Thawed, driver.run(Thaw("b", "x", "r2"))).was_frozen
    assert expect(Thawed, driver.run(Thaw("b", "x", "r2"))).was_frozen


def test_a_snapshot_keeps_freezes(driver: CellDriver) -> None:
    """With their ends: a machine that comes from one refuses and grants as the other does."""
    frozen(driver, "a", 1000)
    frozen(driver, "b")
    other = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    assert snapshot.digest(other.state) == snapshot.digest(driver.machine.state)
    driver.machine = other
    assert reason(driver.acquire("a/b")) is Reason.FROZEN
    assert driver.pass_to(1001) == [EventKind.THAWED]
    driver.granted("a/b")
    assert reason(driver.acquire("b")) is Reason.FROZEN


def test_a_thaw_is_remembered_without_room_if_it_ended_a_freeze(
    driver: CellDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its repetition is told the same; one that found nothing takes no room."""
    frozen(driver, "a")
    monkeypatch.setattr(limits, "REQUESTS_COUNT_MAX", 0)
    assert driver.run(Thaw("b", "over", "r1")) == Thawed(was_frozen=False)
    assert driver.machine.counts()["requests"] == 0
    thaw = Thaw("a", "over", "r2")
    assert driver.run(thaw) == driver.run(thaw) == Thawed(was_frozen=True)


def test_who_asks_for_a_subtree_does_not_look_through_all_freezes() -> None:
    """Waiters are many, and so may freezes be: those below a name lie side by side."""

    def cost(freezes_count: int) -> int:
        meter = Meter()
        for number in range(freezes_count):
            meter.run(Freeze(f"b/{number}", "moved", 0))
        hold = HoldId("h"), AttemptId("h")
        spent = meter.cost(Acquire("a", Mode.EXCLUSIVE, *hold, ttl_ms=60_000, scope=Scope.SUBTREE))
        assert isinstance(meter.outcome.batches[0].results[0], Granted)
        return spent

    assert cost(limits.FREEZES_COUNT_MAX) <= cost(1) + 10
