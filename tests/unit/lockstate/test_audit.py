"""The audit: what happened last, the newest first, the same on every node."""

import pytest

from lockstate import limits, snapshot
from lockstate.commands import Acquire, Proclaim, Release
from lockstate.ids import AttemptId, HoldId, SessionId
from lockstate.results import EventKind
from tests.unit.lockstate.effort import Meter
from tests.unit.lockstate.world import EXCLUSIVE, SHARED, World, wanted


def _kinds(world: World, name: str = "", session_id: str = "", limit: int = 1000) -> list[str]:
    """Return the kinds of events in the audit, the newest first."""
    return [event.kind.value for event in world.machine.audit(name, SessionId(session_id), limit)]


def _busy_world() -> World:
    world = World()
    world.open("s1", ttl_ms=1000)
    world.granted("a", session_id="s1")
    world.queued("a", wait_ms=100, ttl_ms=700)
    world.granted("b", mode=SHARED, ttl_ms=500)
    world.convert("h3", SHARED)
    world.campaign("e", "s1", "x")
    world.run(Proclaim(HoldId("h5"), "y"))
    world.release("h5")
    world.force("b")
    world.pass_to(101)
    world.pass_to(1001)
    return world


def test_everything_that_changes_a_hold_is_kept() -> None:
    """Grants, conversions, elections and every kind of end, not what waits."""
    assert _kinds(_busy_world()) == [
        "session-expired",
        "expired",
        "forced",
        "resigned",
        "elected",
        "elected",
        "granted",
        "granted",
    ]


def test_conversions_and_releases_are_kept() -> None:
    """Also what a holder does itself, for each lock of several."""
    world = World()
    world.granted(locks=wanted("a", "b"))
    world.convert("h1", SHARED)
    world.release("h1", "b")
    world.release("h1")
    assert [(event.kind.value, event.name) for event in world.machine.audit()] == [
        ("released", "a"),
        ("released", "b"),
        ("converted", "b"),
        ("converted", "a"),
        ("granted", "b"),
        ("granted", "a"),
    ]


def test_an_event_is_what_was_told() -> None:
    """The audit has the events themselves, with their revisions."""
    world = World()
    world.granted("a", owner="ann", at_ms=5)
    (granted,) = world.events
    assert world.machine.audit() == [granted]
    assert (granted.revision, granted.now_ms, granted.owner) == (1, 5, "ann")


def test_it_can_be_asked_of_a_name() -> None:
    """Only what happened to that very name."""
    world = _busy_world()
    assert _kinds(world, name="a") == ["expired", "granted"]
    assert _kinds(world, name="e") == ["resigned", "elected", "elected"]
    assert _kinds(world, name="nothing") == []


def test_it_can_be_asked_of_a_session_or_hold() -> None:
    """Who knows the id of a session, or of a hold with a lease of its own, sees what it did."""
    world = _busy_world()
    assert _kinds(world, session_id="s1") == [
        "session-expired",
        "expired",
        "resigned",
        "elected",
        "elected",
        "granted",
    ]
    assert _kinds(world, session_id="h3") == ["forced", "granted"]
    assert _kinds(world, name="a", session_id="h3") == []
    assert _kinds(world, name="b", session_id="h3") == ["forced", "granted"]


@pytest.mark.parametrize(("limit", "count"), [(-5, 1), (0, 1), (1, 1), (3, 3), (1000, 8), (10**9, 8)])
def test_an_answer_has_so_many_events(limit: int, count: int) -> None:
    """The newest come first, at least one and at most a thousand."""
    world = _busy_world()
    assert _kinds(world, limit=limit) == _kinds(world)[:count]


def test_an_answer_has_at_most_a_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked for, an answer is bounded."""
    monkeypatch.setattr(limits, "AUDIT_LIMIT_MAX", 2)
    assert len(_busy_world().machine.audit(limit=10**9)) == 2


def test_the_oldest_are_forgotten() -> None:
    """It keeps the last ten thousand events, and a restart keeps the same."""
    meter = Meter()
    locks = wanted(*[str(number) for number in range(limits.LOCKS_COUNT_MAX)])
    grants_count = limits.AUDIT_COUNT_MAX // (2 * len(locks)) + 1
    for number in range(grants_count):
        acquire = Acquire("", EXCLUSIVE, HoldId(f"h{number}"), AttemptId("a1"), ttl_ms=1000, locks=locks)
        meter.run(acquire, Release(HoldId(f"h{number}")))
    kept = meter.machine.state.audit
    assert len(kept) == limits.AUDIT_COUNT_MAX
    forgotten = 2 * len(locks) * grants_count - limits.AUDIT_COUNT_MAX
    assert 0 < forgotten < 2 * len(locks)
    assert kept[-1].token == grants_count
    assert (kept[0].token, kept[0].name) == (1, str(forgotten % len(locks)))
    assert list(snapshot.decode(snapshot.encode(meter.machine)).state.audit) == list(kept)


def test_it_survives_a_restart() -> None:
    """The audit is part of the state: every node has the same, also from a snapshot."""
    world = _busy_world()
    restored = snapshot.decode(snapshot.encode(world.machine))
    assert restored.audit() == world.machine.audit()
    assert restored.audit("a", SessionId("s1"), 1) == world.machine.audit("a", SessionId("s1"), 1)


def test_closing_is_no_expiry() -> None:
    """A session that is closed leaves its releases, and no event of its own."""
    world = World()
    world.open("s1")
    world.granted("a", session_id="s1")
    world.close("s1")
    assert _kinds(world) == ["released", "granted"]
    assert EventKind.SESSION_EXPIRED not in {event.kind for event in world.events}
