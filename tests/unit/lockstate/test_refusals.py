"""Every bound that the machine keeps, also against commands that no node should have let through."""

from typing import Any

import msgspec
import pytest

from lockstate.words import limits
from lockstate.words.commands.admin import SetQuota
from lockstate.words.commands.entries import Batch, Cancel, Command, Entry, OnBehalf, Tick, Undecodable
from lockstate.words.commands.holds import Acquire, AcquireSeveral, PutOff, Release, Renew
from lockstate.words.commands.overrides import ForceRelease, ForceWaits, Freeze
from lockstate.words.commands.primitives import AdvanceFence, TakeRate
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.ids import NO_SESSION, AttemptId, HoldId, SessionId
from lockstate.words.kinds import HoldKind, IfHeld
from lockstate.words.modes import Mode
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted, Queued
from lockstate.words.settings import Quota
from lockstate.words.wanted import Uncommon, WantedRate
from tests.unit.lockstate.machine_driver import (
    EXCLUSIVE,
    SHARED,
    SUBTREE,
    MachineDriver,
    expect,
    reason,
    wanted,
    with_uncommon,
)

GOOD = Acquire("a", Mode.EXCLUSIVE, HoldId("h1"), AttemptId("a1"), ttl_ms=1000)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"name": ""}, Reason.INVALID_REQUEST),
        ({"name": "x" * 513}, Reason.NAME_TOO_LONG),
        ({"hold_id": ""}, Reason.INVALID_REQUEST),
        ({"attempt_id": "x" * 65}, Reason.INVALID_REQUEST),
        ({"owner": "x" * 257}, Reason.INVALID_REQUEST),
        ({"note": "x" * 1025}, Reason.INVALID_REQUEST),
        ({"wait_ms": -1}, Reason.INVALID_REQUEST),
        ({"wait_ms": limits.WAIT_MS_MAX + 1}, Reason.INVALID_REQUEST),
        ({"lock_delay_ms": limits.LOCK_DELAY_MS_MAX + 1}, Reason.INVALID_REQUEST),
        ({"ttl_ms": 0}, Reason.INVALID_REQUEST),
        ({"session_id": "s1"}, Reason.INVALID_REQUEST),
        ({"ttl_ms": 49}, Reason.TTL_OUT_OF_RANGE),
        ({"ttl_ms": -1}, Reason.TTL_OUT_OF_RANGE),
        ({"request_id": "\n"}, Reason.INVALID_REQUEST),
    ],
    ids=str,
)
def test_a_bad_acquire_has_no_effect(changes: dict[str, Any], expected: Reason) -> None:
    """Each field of an acquire is checked, and the refusal has the right code."""
    driver = MachineDriver()
    assert reason(driver.run(msgspec.structs.replace(GOOD, **with_uncommon(changes)))) is expected
    assert driver.events == ()
    assert driver.machine.next_token == 1


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (Undecodable(), Reason.INVALID_REQUEST),
        (OpenSession(NO_SESSION, 1000), Reason.INVALID_REQUEST),
        (OpenSession(SessionId("s1"), 49), Reason.TTL_OUT_OF_RANGE),
        (OpenSession(SessionId("s1"), 1000, {"": "x"}), Reason.INVALID_REQUEST),
        (ForceRelease("", "why"), Reason.INVALID_REQUEST),
        (ForceRelease("a", "x" * 1025), Reason.INVALID_REQUEST),
        (ForceRelease("a", "why", -1), Reason.INVALID_REQUEST),
        (Renew(HoldId("h1"), 49), Reason.TTL_OUT_OF_RANGE),
    ],
    ids=str,
)
def test_a_bad_command_has_no_effect(command: Command | Undecodable, expected: Reason) -> None:
    """Other commands are checked as well."""
    driver = MachineDriver()
    driver.granted("a", ttl_ms=1000)
    assert reason(driver.run(command)) is expected
    assert driver.events == ()
    assert driver.machine.next_deadline_ms() == 1000


def test_a_hold_id_in_use_is_refused() -> None:
    """Ids are random; one that names a hold, a ticket or a session already is a mistake of its maker."""
    driver = MachineDriver()
    driver.open("s1")
    driver.granted("a")
    driver.queued("a")
    for hold_id in ("h1", "h2", "s1"):
        assert reason(driver.run(msgspec.structs.replace(GOOD, hold_id=hold_id))) is Reason.INVALID_REQUEST


def test_a_full_queue_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock for which too many wait already takes no more waiters."""
    monkeypatch.setattr(limits, "QUEUE_LENGTH_MAX", 1)
    driver = MachineDriver()
    driver.granted("a")
    driver.queued("a")
    assert reason(driver.acquire("a", wait_ms=100)) is Reason.QUEUE_FULL
    assert reason(driver.acquire("a")) is Reason.LOCK_HELD


@pytest.mark.parametrize("bound", ["HOLDS_COUNT_MAX", "TICKETS_COUNT_MAX"])
def test_full_tables_refuse(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    """When a table is full, what would make it grow is refused."""
    monkeypatch.setattr(limits, bound, 1)
    driver = MachineDriver()
    driver.granted("a")
    if bound == "TICKETS_COUNT_MAX":
        driver.queued("a")
    assert reason(driver.acquire("a", wait_ms=100)) is Reason.OVERLOADED


def test_full_sessions_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a largest number of sessions."""
    monkeypatch.setattr(limits, "SESSIONS_COUNT_MAX", 1)
    driver = MachineDriver()
    driver.open("s1")
    assert reason(driver.run(OpenSession(SessionId("s2"), 500))) is Reason.OVERLOADED


def test_own_leases_take_no_room_of_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many hold locks without a session, sessions can be opened."""
    monkeypatch.setattr(limits, "SESSIONS_COUNT_MAX", 1)
    driver = MachineDriver()
    driver.granted("a")
    driver.open("s1")
    assert driver.machine.session(SessionId("s1")) is not None


@pytest.mark.parametrize("bound", ["HOLDS_COUNT_MAX", "TICKETS_COUNT_MAX"])
def test_full_tables_let_holders_renew(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    """Asking again for what one holds adds nothing, so it is never refused for want of room."""
    driver = MachineDriver()
    driver.open("s1")
    driver.granted("a", session_id="s1")
    driver.queued("a")
    monkeypatch.setattr(limits, bound, 1)
    assert driver.granted("a", session_id="s1").token == 1


def test_a_crowd_of_holders_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shared lock takes no more holders than it may have; others wait until one leaves."""
    monkeypatch.setattr(limits, "HOLDERS_COUNT_MAX", 2)
    driver = MachineDriver()
    for _ in range(2):
        driver.granted("a", mode=Mode.SHARED)
    assert reason(driver.acquire("a", mode=Mode.SHARED)) is Reason.LOCK_HELD
    driver.queued("a", mode=Mode.SHARED, ttl_ms=500)
    driver.queued("a", mode=Mode.SHARED)
    driver.pass_to(1001)
    assert [event.session_id for event in driver.events] == ["h1", "h4", "h2", "h5"]


def test_origins_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The origin that has been silent for longest makes room for a new one."""
    monkeypatch.setattr(limits, "ORIGINS_COUNT_MAX", 2)
    driver = MachineDriver()
    for at_ms, origin in enumerate(["n1", "n2", "n1", "n3"]):
        driver.apply(Entry(at_ms, (Batch(origin, (at_ms + 1,), (Tick(),)),)))
    assert [driver.machine.applied_seq(origin) for origin in ("n1", "n2", "n3")] == [3, 0, 4]


def test_a_wait_of_a_day_is_allowed() -> None:
    """The bounds themselves are allowed."""
    driver = MachineDriver()
    command = msgspec.structs.replace(
        GOOD,
        wait_ms=limits.WAIT_MS_MAX,
        ttl_ms=limits.TTL_MS_MAX,
        uncommon=Uncommon(limits.LOCK_DELAY_MS_MAX),
    )
    assert expect(Granted, driver.run(command)).expires_in_ms == limits.TTL_MS_MAX


def test_a_session_has_so_many_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock is one claim and one more for each ancestor, permits and leadership one; waits count."""
    monkeypatch.setattr(limits, "SESSION_CLAIMS_MAX", 8)
    driver = MachineDriver()
    driver.open("s1", "s2")
    driver.granted("a", session_id="s1")
    driver.granted("b/c/d", session_id="s1")
    driver.permitted("q", 3, 2, session_id="s1")
    driver.campaign("e/f", "s1")
    refused = expect(Refused, driver.acquire("x/y/z", session_id="s1"))
    assert (refused.reason, refused.detail) == (
        Reason.OVERLOADED,
        "the session has 6 claims; 8 are allowed",
    )
    driver.granted("x/y", session_id="s1")
    for result in (
        driver.acquire("z", session_id="s1", wait_ms=500),
        driver.permits("r", 3, session_id="s1"),
        driver.campaign("f", "s1"),
    ):
        assert reason(result) is Reason.OVERLOADED
    driver.granted("z", session_id="s2")
    driver.granted("y")
    driver.release("h1")
    ticket = driver.queued("y", session_id="s1")
    assert reason(driver.acquire("w", session_id="s1")) is Reason.OVERLOADED
    driver.run(Cancel(ticket.hold_id, AttemptId(ticket.hold_id.replace("h", "a"))))
    driver.granted("w", session_id="s1")


def test_several_locks_claim_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they have in common counts once; what is given back counts no more."""
    monkeypatch.setattr(limits, "SESSION_CLAIMS_MAX", 3)
    driver = MachineDriver()
    driver.open("s1")
    assert reason(driver.acquire(locks=wanted("a/b", "a/c", "d"), session_id="s1")) is Reason.OVERLOADED
    driver.granted(locks=wanted("a/b", "a/c"), session_id="s1")
    assert reason(driver.acquire("d", session_id="s1")) is Reason.OVERLOADED
    driver.release("h2", "a/c")
    driver.granted("d", session_id="s1")
    assert reason(driver.acquire("e", session_id="s1")) is Reason.OVERLOADED


def test_asking_again_needs_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that is full still renews what it has."""
    driver = MachineDriver()
    driver.open("s1")
    driver.granted("a", session_id="s1")
    driver.campaign("e", "s1")
    monkeypatch.setattr(limits, "SESSION_CLAIMS_MAX", 1)
    assert driver.granted("a", session_id="s1").token == 1
    assert expect(Granted, driver.campaign("e", "s1")).token == 2


@pytest.mark.parametrize("kind", ["lock", "several", "subtree", "semaphore", "election", "conversion"])
def test_every_queue_is_bounded(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A queue takes as many waiters as it may have, of whatever kind, and not one more."""
    monkeypatch.setattr(limits, "QUEUE_LENGTH_MAX", 1)
    driver = MachineDriver()
    driver.open("s1", "s2", "s3")
    driver.granted("a", mode=SHARED)
    driver.granted("a", mode=SHARED)
    driver.permitted("q", 1)
    driver.campaign("e", "s1")
    match kind:
        case "semaphore":
            driver.wanting("q", 1)
            result = driver.permits("q", 1, wait_ms=500)
        case "election":
            assert isinstance(driver.campaign("e", "s2", wait_ms=500), Queued)
            result = driver.campaign("e", "s3", wait_ms=500)
        case "several":
            driver.queued("a")
            result = driver.acquire(locks=wanted("x", "a"), wait_ms=500)
        case "subtree":
            driver.queued("a", scope=SUBTREE)
            result = driver.acquire("a", wait_ms=500)
        case "conversion":
            driver.queued("a")
            result = driver.convert("h1", EXCLUSIVE, wait_ms=500)
        case _:
            driver.queued("a")
            result = driver.acquire("a", wait_ms=500)
    refused = expect(Refused, result)
    assert (refused.reason, refused.queue_length) == (Reason.QUEUE_FULL, 1)
    assert refused.detail == "1 wait already; no more are allowed"


def test_waiters_above_or_below_take_no_place_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue is that of one name."""
    monkeypatch.setattr(limits, "QUEUE_LENGTH_MAX", 1)
    driver = MachineDriver()
    driver.granted("a", scope=SUBTREE)
    for name in ("a", "a/b", "a/b/c"):
        driver.queued(name)


@pytest.mark.parametrize("bound", ["HOLDS_COUNT_MAX", "RECORDS_COUNT_MAX"])
def test_full_tables_refuse_every_kind_of_hold(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    """Locks, permits and leadership need a place among the holds, and their names one among the names."""
    driver = MachineDriver()
    driver.open("s1")
    driver.granted("a/b")
    monkeypatch.setattr(limits, bound, 1 if bound == "HOLDS_COUNT_MAX" else 2)
    for result in (driver.acquire("b"), driver.permits("q", 3), driver.campaign("e", "s1")):
        refused = expect(Refused, result)
        assert (refused.reason, refused.retry_after_ms) == (Reason.OVERLOADED, 1000)
    monkeypatch.setattr(limits, bound, 9)
    driver.granted("b")


def test_a_name_takes_one_place_whatever_is_done_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held, and has something held below it, is one name among those that there may be."""
    driver = MachineDriver()
    driver.granted("a", mode=SHARED)
    driver.granted("a/b", mode=SHARED)
    monkeypatch.setattr(limits, "RECORDS_COUNT_MAX", 3)
    driver.granted("c")
    refused = expect(Refused, driver.acquire("d"))
    assert refused.detail == "the cluster has 3 names; no more are allowed"


def test_names_that_are_only_waited_for_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait makes its names active."""
    driver = MachineDriver()
    driver.granted("a", mode=SHARED)
    driver.granted("a", mode=SHARED)
    monkeypatch.setattr(limits, "RECORDS_COUNT_MAX", 1)
    assert reason(driver.acquire(locks=wanted("a", "b"), wait_ms=500)) is Reason.OVERLOADED
    assert reason(driver.convert("h1", EXCLUSIVE, wait_ms=500)) is Reason.OVERLOADED


@pytest.mark.parametrize("kind", ["semaphore", "election", "conversion"])
def test_full_tickets_refuse_every_kind_of_wait(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """All waiters share one table."""
    monkeypatch.setattr(limits, "TICKETS_COUNT_MAX", 1)
    driver = MachineDriver()
    driver.open("s1", "s2")
    for name in ("a", "b"):
        driver.granted(name, mode=SHARED)
        driver.granted(name, mode=SHARED)
    driver.permitted("q", 1)
    driver.campaign("e", "s1")
    driver.queued("a")
    results = {
        "semaphore": lambda: driver.permits("q", 1, wait_ms=500),
        "election": lambda: driver.campaign("e", "s2", wait_ms=500),
        "conversion": lambda: driver.convert("h3", EXCLUSIVE, wait_ms=500),
    }
    assert reason(results[kind]()) is Reason.OVERLOADED


def test_semaphores_that_are_only_delayed_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Permits that stay away for long keep their records, so more are refused when there are too many."""
    driver = MachineDriver()
    for number in range(2):
        driver.permitted(f"q{number}", 1, ttl_ms=50, lock_delay_ms=5000)
    monkeypatch.setattr(limits, "SEMAPHORES_COUNT_MAX", 4)
    driver.pass_to(51)
    assert driver.machine.counts()["holds"] == 0
    assert reason(driver.permits("q2", 1, at_ms=51)) is Reason.OVERLOADED
    assert driver.machine.counts()["semaphores"] == 2
    monkeypatch.setattr(limits, "SEMAPHORES_COUNT_MAX", 5)
    driver.permitted("q2", 1)


def test_a_full_lock_lets_waiters_for_something_else_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A place that becomes free goes to the first waiter that can take it, past one that waits for more."""
    monkeypatch.setattr(limits, "HOLDERS_COUNT_MAX", 2)
    driver = MachineDriver()
    for _ in range(2):
        driver.granted("a", mode=SHARED)
    driver.granted("b")
    driver.queued(locks=wanted("a", "b", mode=SHARED))
    driver.queued("a", mode=SHARED)
    driver.queued("a", mode=SHARED)
    driver.release("h1")
    assert driver.served() == ["h5"]
    driver.release("h3")
    assert driver.served() == []
    driver.release("h2")
    assert driver.served() == ["h4"]


def test_a_full_subtree_lock_is_bounded_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers of a subtree and of its name share the places of the name; those below have their own."""
    monkeypatch.setattr(limits, "HOLDERS_COUNT_MAX", 2)
    driver = MachineDriver()
    driver.granted("a", mode=SHARED, scope=SUBTREE)
    driver.granted("a", mode=SHARED)
    assert reason(driver.acquire("a", mode=SHARED)) is Reason.LOCK_HELD
    for _ in range(2):
        driver.granted("a/b", mode=SHARED)
    driver.queued("a", mode=SHARED, scope=SUBTREE)
    driver.release("h2")
    assert driver.served() == ["h6"]


ALL_REASONS = {
    Reason.INVALID_REQUEST: lambda driver: driver.acquire("a//b"),
    Reason.NAME_TOO_LONG: lambda driver: driver.acquire("x" * 513),
    Reason.TTL_OUT_OF_RANGE: lambda driver: driver.acquire("x", ttl_ms=49),
    Reason.LOCK_HELD: lambda driver: driver.acquire("a"),
    Reason.SESSION_EXPIRED: lambda driver: driver.acquire("a", session_id="nobody"),
    Reason.LEASE_EXPIRED: lambda driver: driver.release("nobody"),
    Reason.QUEUE_FULL: lambda driver: driver.acquire("a", wait_ms=500),
    Reason.OVERLOADED: lambda driver: driver.run(OpenSession(SessionId("s3"), 500)),
    Reason.DEADLOCK: lambda driver: driver.acquire("c", session_id="s1", wait_ms=500),
    Reason.CONVERSION_DEADLOCK: lambda driver: driver.convert("h4", EXCLUSIVE),
    Reason.NOT_HOLDER: lambda driver: driver.release("h1", "b"),
    Reason.NO_PERMITS: lambda driver: driver.permits("q", 1),
    Reason.LIMIT_MISMATCH: lambda driver: driver.permits("q", 2),
    Reason.STALE_TOKEN: lambda driver: driver.run(AdvanceFence("disk", 4)),
    Reason.TICKET_ENDED: lambda driver: driver.run(ForceWaits("a", "x", ticket=99)),
    Reason.FROZEN: lambda driver: driver.acquire("frozen/x"),
    Reason.NOT_REVOKED: lambda driver: driver.run(PutOff(HoldId("h1"))),
    Reason.WRONG_KIND: lambda driver: driver.run(Release(HoldId("h1"), kind=HoldKind.SEMAPHORE)),
    Reason.RATE_LIMITED: lambda driver: driver.run(
        AcquireSeveral(
            "",
            EXCLUSIVE,
            HoldId("x"),
            AttemptId("t"),
            ttl_ms=1000,
            locks=wanted("d"),
            rates=(WantedRate("r", 1, 1000),),
        )
    ),
    Reason.QUOTA_EXCEEDED: lambda driver: driver.run(
        OnBehalf("ann", Acquire("d", EXCLUSIVE, HoldId("x"), AttemptId("t"), ttl_ms=1000))
    ),
    Reason.ALREADY_HELD: lambda driver: driver.run(
        Acquire("c", SHARED, HoldId("x"), AttemptId("t"), SessionId("s1"), if_held=IfHeld.REFUSE)
    ),
}


@pytest.mark.parametrize("expected", list(Reason))
def test_every_reason_occurs(monkeypatch: pytest.MonkeyPatch, expected: Reason) -> None:
    """For each code there is a command that gets it, and that changes nothing."""
    monkeypatch.setattr(limits, "QUEUE_LENGTH_MAX", 1)
    monkeypatch.setattr(limits, "SESSIONS_COUNT_MAX", 2)
    driver = MachineDriver()
    driver.open("s1", "s2")
    driver.granted("a")
    driver.queued("a")
    for session_id in ("s1", "s2"):
        driver.granted("b", mode=SHARED, session_id=session_id)
    driver.converting("h3", EXCLUSIVE)
    driver.granted("c", mode=SHARED, session_id="s1")
    driver.permitted("q", 1)
    driver.draw(9)
    driver.run(AdvanceFence("disk", 5))
    driver.run(TakeRate("r", 1, 1000))
    driver.run(SetQuota("ann", Quota(holds=0)))
    driver.run(Freeze("frozen", "a move"))
    before = driver.machine.counts()
    assert reason(ALL_REASONS[expected](driver)) is expected
    assert driver.events == ()
    assert driver.settled == {}
    assert driver.machine.counts() == before
