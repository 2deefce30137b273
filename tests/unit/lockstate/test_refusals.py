"""Every bound that the machine keeps, also against commands that no node should have let through."""

import msgspec
import pytest

from lockstate import limits
from lockstate.commands import (
    Acquire,
    Batch,
    Command,
    Entry,
    ForceRelease,
    OpenSession,
    Renew,
    Tick,
    Undecodable,
)
from lockstate.modes import Mode
from lockstate.results import Granted, Reason
from tests.unit.lockstate.world import World, expect, reason

GOOD = Acquire("a", Mode.EXCLUSIVE, "h1", "a1", ttl_ms=1000)


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
def test_a_bad_acquire_has_no_effect(changes: dict[str, str | int], expected: Reason) -> None:
    """Each field of an acquire is checked, and the refusal has the right code."""
    world = World()
    assert reason(world.run(msgspec.structs.replace(GOOD, **changes))) is expected
    assert world.events == ()
    assert world.machine.next_token == 1


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (Undecodable(), Reason.INVALID_REQUEST),
        (OpenSession("", 1000), Reason.INVALID_REQUEST),
        (OpenSession("s1", 49), Reason.TTL_OUT_OF_RANGE),
        (OpenSession("s1", 1000, {"": "x"}), Reason.INVALID_REQUEST),
        (ForceRelease("", "why"), Reason.INVALID_REQUEST),
        (ForceRelease("a", "x" * 1025), Reason.INVALID_REQUEST),
        (ForceRelease("a", "why", -1), Reason.INVALID_REQUEST),
        (Renew("h1", 49), Reason.TTL_OUT_OF_RANGE),
    ],
    ids=str,
)
def test_a_bad_command_has_no_effect(command: Command | Undecodable, expected: Reason) -> None:
    """Other commands are checked as well."""
    world = World()
    world.granted("a", ttl_ms=1000)
    assert reason(world.run(command)) is expected
    assert world.events == ()
    assert world.machine.next_deadline_ms() == 1000


def test_a_hold_id_in_use_is_refused() -> None:
    """Ids are random; one that names a hold, a ticket or a session already is a mistake of its maker."""
    world = World()
    world.open("s1")
    world.granted("a")
    world.queued("a")
    for hold_id in ("h1", "h2", "s1"):
        assert reason(world.run(msgspec.structs.replace(GOOD, hold_id=hold_id))) is Reason.INVALID_REQUEST


def test_a_full_queue_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock for which too many wait already takes no more waiters."""
    monkeypatch.setattr(limits, "QUEUE_LENGTH_MAX", 1)
    world = World()
    world.granted("a")
    world.queued("a")
    assert reason(world.acquire("a", wait_ms=100)) is Reason.QUEUE_FULL
    assert reason(world.acquire("a")) is Reason.LOCK_HELD


@pytest.mark.parametrize("bound", ["HOLDS_COUNT_MAX", "TICKETS_COUNT_MAX"])
def test_full_tables_refuse(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    """When a table is full, what would make it grow is refused."""
    monkeypatch.setattr(limits, bound, 1)
    world = World()
    world.granted("a")
    if bound == "TICKETS_COUNT_MAX":
        world.queued("a")
    assert reason(world.acquire("a", wait_ms=100)) is Reason.OVERLOADED


def test_full_sessions_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a largest number of sessions."""
    monkeypatch.setattr(limits, "SESSIONS_COUNT_MAX", 1)
    world = World()
    world.open("s1")
    assert reason(world.run(OpenSession("s2", 500))) is Reason.OVERLOADED


def test_own_leases_take_no_room_of_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many hold locks without a session, sessions can be opened."""
    monkeypatch.setattr(limits, "SESSIONS_COUNT_MAX", 1)
    world = World()
    world.granted("a")
    world.open("s1")
    assert world.machine.session("s1") is not None


@pytest.mark.parametrize("bound", ["HOLDS_COUNT_MAX", "TICKETS_COUNT_MAX"])
def test_full_tables_let_holders_renew(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    """Asking again for what one holds adds nothing, so it is never refused for want of room."""
    world = World()
    world.open("s1")
    world.granted("a", session_id="s1")
    world.queued("a")
    monkeypatch.setattr(limits, bound, 1)
    assert world.granted("a", session_id="s1").token == 1


def test_a_crowd_of_holders_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shared lock takes no more holders than it may have; others wait until one leaves."""
    monkeypatch.setattr(limits, "HOLDERS_COUNT_MAX", 2)
    world = World()
    for _ in range(2):
        world.granted("a", mode=Mode.SHARED)
    assert reason(world.acquire("a", mode=Mode.SHARED)) is Reason.LOCK_HELD
    world.queued("a", mode=Mode.SHARED, ttl_ms=500)
    world.queued("a", mode=Mode.SHARED)
    world.pass_to(1001)
    assert [event.hold_id for event in world.events] == ["h1", "h4", "h2", "h5"]


def test_origins_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The origin that has been silent for longest makes room for a new one."""
    monkeypatch.setattr(limits, "ORIGINS_COUNT_MAX", 2)
    world = World()
    for at_ms, origin in enumerate(["n1", "n2", "n1", "n3"]):
        world.apply(Entry(at_ms, (Batch(origin, (at_ms + 1,), (Tick(),)),)))
    assert [world.machine.applied_seq(origin) for origin in ("n1", "n2", "n3")] == [3, 0, 4]


def test_a_wait_of_a_day_is_allowed() -> None:
    """The bounds themselves are allowed."""
    world = World()
    command = msgspec.structs.replace(
        GOOD, wait_ms=limits.WAIT_MS_MAX, lock_delay_ms=limits.LOCK_DELAY_MS_MAX, ttl_ms=limits.TTL_MS_MAX
    )
    assert expect(Granted, world.run(command)).expires_in_ms == limits.TTL_MS_MAX
