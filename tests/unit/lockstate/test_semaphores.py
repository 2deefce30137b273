"""Semaphores: permits with weight and lease, given in order of arrival, with a limit that can change."""

from typing import Any

import pytest

from lockstate.words import limits
from lockstate.words.commands import (
    AcquirePermits,
    AcquirePermitsOf,
    Cancel,
    CloseSession,
    Command,
    Release,
    ResizeSemaphore,
)
from lockstate.words.ids import NO_HOLD, AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.results import (
    Cancelled,
    EventKind,
    Granted,
    GrantedPermits,
    HoldKind,
    Reason,
    Refused,
    Renewed,
    Resized,
    Result,
    SemaphoreView,
    WaiterView,
)
from tests.unit.lockstate.cell_driver import CellDriver
from tests.unit.lockstate.machine_driver import EXCLUSIVE, MachineDriver, expect, reason


def test_permits_are_given_while_they_last() -> None:
    """Each grant says how many permits are left; a request that comes too late learns who has them."""
    driver = MachineDriver()
    assert driver.permitted("q", 3, 2, owner="ann").available == 1
    second = driver.permitted("q", 3, owner="bob", ttl_ms=400)
    assert (second.permits, second.available, second.token, second.mode) == (1, 0, 2, EXCLUSIVE)
    refused = expect(Refused, driver.permits("q", 3))
    assert (refused.reason, refused.detail) == (Reason.NO_PERMITS, "0 of 3 permits are available")
    assert [(holder.owner, holder.permits, holder.token) for holder in refused.holders] == [
        ("ann", 2, 1),
        ("bob", 1, 2),
    ]
    assert refused.facts == {"available": 0, "limit": 3}
    assert refused.retry_after_ms == 400
    assert refused.queue_length == 0


def test_a_semaphore_exists_while_somebody_has_or_wants_it() -> None:
    """The first request sets the limit; when nobody is left, the next one may set another."""
    driver = MachineDriver()
    assert driver.machine.semaphore("q") == SemaphoreView("q", 0, 0)
    driver.permitted("q", 3)
    driver.release("h1")
    assert driver.machine.counts()["semaphores"] == 0
    assert driver.permitted("q", 5).available == 4


def test_another_limit_is_refused_with_the_right_one() -> None:
    """Two programs that disagree about the limit find out at once."""
    driver = MachineDriver()
    driver.permitted("q", 3)
    for limit in (2, 4):
        refused = expect(Refused, driver.permits("q", limit, wait_ms=500))
        assert (refused.reason, refused.facts) == (Reason.LIMIT_MISMATCH, {"limit": 3})
    assert driver.machine.semaphore("q").available == 2


def test_a_read_shows_holders_and_queue() -> None:
    """A view shows who has how many permits, who waits for how many, and how many are free."""
    driver = MachineDriver()
    driver.permitted("q", 5, 3, owner="ann")
    driver.wanting("q", 5, 4, owner="bob")
    driver.wanting("q", 5, 1, owner="eve", at_ms=200)
    view = driver.machine.semaphore("q")
    assert (view.limit, view.available) == (5, 2)
    assert [(holder.owner, holder.permits, holder.name, holder.kind) for holder in view.holders] == [
        ("ann", 3, "q", HoldKind.SEMAPHORE)
    ]
    assert view.queue == (
        WaiterView(OwnerName("bob"), EXCLUSIVE, 1, 200, "q", kind=HoldKind.SEMAPHORE, permits=4, ticket=2),
        WaiterView(OwnerName("eve"), EXCLUSIVE, 2, 0, "q", kind=HoldKind.SEMAPHORE, permits=1, ticket=3),
    )


def test_nobody_overtakes() -> None:
    """One that would fit waits behind one that does not, whether it would wait or not."""
    driver = MachineDriver()
    driver.permitted("q", 4, 2)
    driver.wanting("q", 4, 3)
    assert reason(driver.permits("q", 4)) is Reason.NO_PERMITS
    assert driver.wanting("q", 4).position == 2
    driver.release("h1")
    assert driver.served() == ["h2", "h4"]
    assert expect(Granted, driver.settled["h4"]).available == 0


def test_one_release_may_serve_many_and_many_releases_one() -> None:
    """Permits are given in order as far as they go."""
    driver = MachineDriver()
    driver.permitted("q", 4, 4)
    for permits in (1, 2, 2, 4):
        driver.wanting("q", 4, permits)
    driver.release("h1")
    assert driver.served() == ["h2", "h3"]
    driver.release("h2")
    assert driver.served() == ["h4"]
    driver.release("h3")
    assert driver.served() == []
    driver.release("h4")
    assert driver.served() == ["h5"]


def test_a_wait_that_ends_serves_those_behind_it() -> None:
    """When a large request gives up, the small ones behind it go."""
    driver = MachineDriver()
    driver.permitted("q", 3, 2)
    driver.wanting("q", 3, 3, wait_ms=100)
    driver.wanting("q", 3)
    driver.pass_to(101)
    refused = driver.refused("h2")
    assert (refused.reason, refused.facts) == (Reason.NO_PERMITS, {"available": 1, "limit": 3})
    assert driver.served() == ["h3"]


def test_permits_expire_and_are_renewed_like_locks() -> None:
    """They have a lease of their own, or that of a session."""
    driver = MachineDriver()
    driver.open("s1", ttl_ms=500)
    driver.permitted("q", 2, ttl_ms=1000)
    driver.permitted("q", 2, session_id="s1")
    driver.wanting("q", 2, 2)
    assert driver.renew("h1", at_ms=400) == Renewed(1, 1000)
    assert driver.pass_to(501) == [EventKind.EXPIRED, EventKind.SESSION_EXPIRED]
    assert driver.pass_to(1401) == [EventKind.EXPIRED, EventKind.GRANTED]


def test_expiry_keeps_permits_away_for_the_delay() -> None:
    """They count as used until it is over, and the semaphore lives as long."""
    driver = MachineDriver()
    driver.permitted("q", 3, 2, ttl_ms=100, lock_delay_ms=500)
    driver.pass_to(101)
    assert driver.machine.semaphore("q") == SemaphoreView("q", 3, 1)
    assert driver.permitted("q", 3).available == 0
    driver.wanting("q", 3, 2)
    refused = expect(Refused, driver.permits("q", 3, at_ms=301))
    assert refused.reason is Reason.NO_PERMITS
    assert refused.retry_after_ms == 300
    assert driver.pass_to(601) == []
    assert driver.pass_to(602) == [EventKind.GRANTED]
    driver.release("h2")
    driver.release("h3")
    assert driver.machine.counts()["semaphores"] == 0


def test_a_semaphore_of_which_only_a_delay_is_left_goes_with_it() -> None:
    """Delays of one semaphore run apart from each other, and after the last it is forgotten."""
    driver = MachineDriver()
    for lock_delay_ms in (300, 500):
        driver.permitted("q", 2, ttl_ms=100, lock_delay_ms=lock_delay_ms)
    driver.pass_to(101)
    assert driver.machine.semaphore("q").available == 0
    driver.pass_to(402)
    assert driver.machine.semaphore("q").available == 1
    driver.pass_to(602)
    assert driver.machine.semaphore("q") == SemaphoreView("q", 0, 0)


@pytest.mark.parametrize("end", ["release", "close", "cancel"])
def test_only_expiry_leaves_a_delay(end: str) -> None:
    """A holder that gives permits back is done with them: there is no delay."""
    driver = MachineDriver()
    driver.open("s1")
    driver.permitted("q", 2, session_id="s1", lock_delay_ms=500)
    commands: dict[str, Command] = {
        "release": Release(HoldId("h1")),
        "close": CloseSession(SessionId("s1")),
        "cancel": Cancel(HoldId("h1"), AttemptId("a1")),
    }
    driver.run(commands[end])
    assert driver.machine.semaphore("q") == SemaphoreView("q", 0, 0)


def test_a_larger_limit_serves_the_queue() -> None:
    """The waiters for which there are permits now are let through, in order."""
    driver = MachineDriver()
    driver.permitted("q", 2, 2)
    for permits in (1, 2, 1):
        driver.wanting("q", 2, permits)
    assert driver.resize("q", 4) == Resized(4, 1)
    assert driver.served() == ["h2"]
    assert driver.resize("q", 6) == Resized(6, 0)
    assert driver.served() == ["h3", "h4"]


def test_a_smaller_limit_takes_nothing_away() -> None:
    """Holders keep their permits; new ones are granted when few enough are held."""
    driver = MachineDriver()
    for _ in range(4):
        driver.permitted("q", 4)
    driver.wanting("q", 4)
    assert driver.resize("q", 2) == Resized(2, -2)
    assert driver.machine.semaphore("q").available == -2
    refused = expect(Refused, driver.permits("q", 2))
    assert (refused.facts, refused.queue_length) == ({"available": 0, "limit": 2}, 1)
    for hold_id, served in (("h1", []), ("h2", []), ("h3", ["h5"])):
        driver.release(hold_id)
        assert driver.served() == served


def test_a_limit_that_drains_to_one_serves_one_by_one() -> None:
    """A semaphore resized to 1 becomes a lock, and back."""
    driver = MachineDriver()
    driver.permitted("q", 3, 3)
    for _ in range(3):
        driver.wanting("q", 3)
    driver.resize("q", 1)
    driver.release("h1")
    assert driver.served() == ["h2"]
    assert driver.resize("q", 3) == Resized(3, 0)
    assert driver.served() == ["h3", "h4"]


def test_waiters_for_more_than_the_new_limit_are_refused() -> None:
    """It could never be served; the others move up, and go if there are the permits."""
    driver = MachineDriver()
    driver.permitted("q", 5, 1)
    driver.wanting("q", 5, 5)
    driver.wanting("q", 5, 1)
    assert driver.resize("q", 3) == Resized(3, 1)
    refused = driver.refused("h2")
    assert (refused.reason, refused.facts) == (Reason.LIMIT_MISMATCH, {"limit": 3})
    assert driver.served() == ["h3"]


def test_what_nobody_has_cannot_be_resized() -> None:
    """A semaphore without holders and waiters has limit 0; one with only a delay keeps its limit."""
    driver = MachineDriver()
    assert reason(driver.resize("q", 5)) is Reason.NOT_HOLDER
    driver.permitted("q", 2, ttl_ms=100, lock_delay_ms=500)
    driver.pass_to(101)
    assert driver.resize("q", 5) == Resized(5, 4)


def test_a_cancelled_wait_serves_those_behind_it() -> None:
    """A waiter that goes away gives up its place."""
    driver = MachineDriver()
    driver.permitted("q", 2)
    driver.wanting("q", 2, 2)
    driver.wanting("q", 2)
    assert driver.cancel("h2", "a2") == Cancelled(undone=True)
    assert driver.served() == ["h3"]
    assert driver.refused("h2").reason is Reason.NO_PERMITS


def test_no_more_than_sixteen_holders_are_shown() -> None:
    """A refusal by a crowd names the oldest sixteen."""
    driver = MachineDriver()
    for _ in range(17):
        driver.permitted("q", 17)
    refused = expect(Refused, driver.permits("q", 17))
    assert [holder.token for holder in refused.holders] == list(range(1, 17))


def test_a_waiting_session_sees_its_place() -> None:
    """A session shows its permits and its waits for some."""
    driver = MachineDriver()
    driver.open("s1")
    driver.permitted("q", 2, session_id="s1")
    driver.permitted("q", 2)
    driver.wanting("q", 2, 2)
    driver.wanting("q", 2, session_id="s1", owner="bob")
    view = driver.machine.session(SessionId("s1"))
    assert view is not None
    assert [(holder.name, holder.permits, holder.kind) for holder in view.holds] == [
        ("q", 1, HoldKind.SEMAPHORE)
    ]
    assert [(waiter.name, waiter.permits, waiter.position) for waiter in view.tickets] == [("q", 1, 2)]
    attempt = driver.machine.attempt(HoldId("h4"))
    assert attempt is not None
    assert attempt.hold_id == "h4"


LARGEST = limits.SEMAPHORE_LIMIT_MAX


@pytest.mark.parametrize(
    ("limit", "permits", "detail"),
    [
        (0, 1, "limit: 0; must be 1 to 1000000"),
        (-1, 1, "limit: -1; must be 1 to 1000000"),
        (LARGEST + 1, 1, "limit: 1000001; must be 1 to 1000000"),
        (3, 0, "permits: 0; must be 1 to the limit, 3"),
        (3, 4, "permits: 4; must be 1 to the limit, 3"),
        (1, 1, ""),
        (3, 3, ""),
        (LARGEST, LARGEST, ""),
    ],
)
def test_limit_and_permits_have_bounds(limit: int, permits: int, detail: str) -> None:
    """A limit is 1 to a million, and nobody can ask for more permits than there are."""
    result = MachineDriver().permits("q", limit, permits)
    if detail:
        assert (reason(result), expect(Refused, result).detail) == (Reason.INVALID_REQUEST, detail)
    else:
        assert expect(Granted, result).available == limit - permits


@pytest.mark.parametrize("limit", [0, LARGEST + 1])
def test_a_resize_has_the_same_bounds(limit: int) -> None:
    """The new limit is checked like the first one."""
    driver = MachineDriver()
    driver.permitted("q", 3)
    assert reason(driver.resize("q", limit)) is Reason.INVALID_REQUEST
    assert reason(driver.run(ResizeSemaphore("", 5))) is Reason.INVALID_REQUEST
    assert driver.resize("q", LARGEST) == Resized(LARGEST, LARGEST - 1)


@pytest.mark.parametrize(
    "command",
    [
        AcquirePermits("", 3, 1, HoldId("h9"), AttemptId("a9"), ttl_ms=50),
        AcquirePermits("q", 3, 1, NO_HOLD, AttemptId("a9"), ttl_ms=50),
        AcquirePermits("q", 3, 1, HoldId("h1"), AttemptId("a9"), ttl_ms=50),
        AcquirePermits("q", 3, 1, HoldId("h9"), AttemptId("a9")),
        AcquirePermits("q", 3, 1, HoldId("h9"), AttemptId("a9"), SessionId("s1"), 50),
        AcquirePermits("q", 3, 1, HoldId("h9"), AttemptId("a9"), ttl_ms=50, note="x" * 1025),
    ],
    ids=str,
)
def test_a_malformed_request_has_no_effect(command: AcquirePermits) -> None:
    """What is checked of a lock is checked of permits."""
    driver = MachineDriver()
    driver.permitted("q", 3)
    assert reason(driver.run(command)) is Reason.INVALID_REQUEST
    assert driver.machine.semaphore("q").available == 2


def test_an_unknown_session_gets_no_permits() -> None:
    """What is asked for a session that has expired is refused."""
    assert reason(MachineDriver().permits("q", 3, session_id="s1")) is Reason.SESSION_EXPIRED


def test_a_full_table_of_semaphores_takes_no_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that exist go on giving their permits."""
    driver = MachineDriver()
    monkeypatch.setattr(limits, "SEMAPHORES_COUNT_MAX", 1)
    assert isinstance(driver.permits("q", 2), Granted)
    assert isinstance(driver.permits("q", 2), Granted)
    assert reason(driver.permits("r", 2)) is Reason.OVERLOADED


# -- a limit that need not be known --------------------------------------------------------------------------


def open_permits(driver: MachineDriver, limit: int, permits: int = 1, **options: Any) -> Result:
    """Ask for permits of "q", whatever limit it has."""
    number = driver._next_id()
    ids = HoldId(f"h{number}"), AttemptId(f"a{number}")
    return driver.run(AcquirePermitsOf("q", limit, permits, *ids, ttl_ms=1000, **options))


def test_a_limit_is_only_needed_by_who_comes_first() -> None:
    """Later it may be left out, or be another one; the answer says which it is."""
    driver = CellDriver()
    assert reason(open_permits(driver, 0)) is Reason.LIMIT_MISMATCH
    first = expect(GrantedPermits, open_permits(driver, 3))
    assert (first.limit, first.available) == (3, 2)
    for limit in (0, 3, 7):
        assert reason(open_permits(driver, limit, 4)) in {Reason.LIMIT_MISMATCH, Reason.INVALID_REQUEST}
    assert expect(GrantedPermits, open_permits(driver, 0)).limit == 3
    assert expect(GrantedPermits, open_permits(driver, 7)).limit == 3
    refused = expect(Refused, open_permits(driver, 0))
    assert (refused.reason, refused.facts) == (Reason.NO_PERMITS, {"available": 0, "limit": 3})


def test_who_is_strict_is_refused_another_limit() -> None:
    """As everybody is who asks by the older call; and a strict one says which it wants."""
    driver = CellDriver()
    driver.permitted("q", 3)
    assert reason(open_permits(driver, 4, is_strict=True)) is Reason.LIMIT_MISMATCH
    assert reason(open_permits(driver, 0, is_strict=True)) is Reason.INVALID_REQUEST
    assert isinstance(open_permits(driver, 3, is_strict=True), Granted)
    assert reason(driver.permits("q", 4)) is Reason.LIMIT_MISMATCH


def test_more_than_there_ever_is_is_refused_at_once() -> None:
    """Nobody waits for what cannot come; a resize makes it possible."""
    driver = CellDriver()
    driver.permitted("q", 2)
    refused = expect(Refused, open_permits(driver, 0, 3, wait_ms=1000))
    assert (refused.reason, refused.facts) == (Reason.LIMIT_MISMATCH, {"limit": 2})
    driver.resize("q", 4)
    assert expect(GrantedPermits, open_permits(driver, 0, 3)).limit == 4
    assert reason(open_permits(driver, 0, limits.SEMAPHORE_LIMIT_MAX + 1)) is Reason.INVALID_REQUEST


def test_a_repeated_request_may_have_been_the_older_call() -> None:
    """While the cluster moves to these rules one request may be made by both, and is granted once."""
    driver = CellDriver()
    first = driver.permitted("q", 3, request_id="r", session_id="")
    again = expect(Granted, open_permits(driver, 3, request_id="r"))
    assert again.hold_id == first.hold_id
    assert driver.machine.semaphore("q").available == 2
