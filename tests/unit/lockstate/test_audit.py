"""The audit: what happened last, the newest first, the same on every node."""

import pytest

from lockstate.machine import LockMachine
from lockstate.reads.history import ENDINGS_SEARCHED_MAX
from lockstate.stored import snapshot
from lockstate.words import limits
from lockstate.words.commands.holds import Acquire, Proclaim, Release
from lockstate.words.events import EventKind
from lockstate.words.ids import AttemptId, HoldId, SessionId
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, MachineDriver, wanted
from tests.unit.lockstate.work_meter import Meter


def _kinds(driver: MachineDriver, name: str = "", session_id: str = "", limit: int = 1000) -> list[str]:
    """Return the kinds of events in the audit, the newest first."""
    return [event.kind.value for event in driver.machine.audit(name, SessionId(session_id), limit)]


def _busy_driver() -> MachineDriver:
    driver = MachineDriver()
    driver.open("s1", ttl_ms=1000)
    driver.granted("a", session_id="s1")
    driver.queued("a", wait_ms=100, ttl_ms=700)
    driver.granted("b", mode=SHARED, ttl_ms=500)
    driver.convert("h3", SHARED)
    driver.campaign("e", "s1", "x")
    driver.run(Proclaim(HoldId("h5"), "y"))
    driver.release("h5")
    driver.force("b")
    driver.pass_to(101)
    driver.pass_to(1001)
    return driver


def test_everything_that_changes_a_hold_is_kept() -> None:
    """Grants, conversions, elections and every kind of end, not what waits."""
    assert _kinds(_busy_driver()) == [
        "session-expired",
        "expired",
        "forced",
        "resigned",
        "elected",
        "elected",
        "granted",
        "granted",
    ]


def test_it_can_be_asked_of_a_name() -> None:
    """Only what happened to that very name."""
    driver = _busy_driver()
    assert _kinds(driver, name="a") == ["expired", "granted"]
    assert _kinds(driver, name="e") == ["resigned", "elected", "elected"]
    assert _kinds(driver, name="nothing") == []


@pytest.mark.parametrize(("limit", "count"), [(-5, 1), (0, 1), (1, 1), (3, 3), (1000, 8), (10**9, 8)])
def test_an_answer_has_so_many_events(limit: int, count: int) -> None:
    """The newest come first, at least one and at most a thousand."""
    driver = _busy_driver()
    assert _kinds(driver, limit=limit) == _kinds(driver)[:count]


def test_an_answer_has_at_most_a_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked for, an answer is bounded."""
    monkeypatch.setattr(limits, "AUDIT_LIMIT_MAX", 2)
    assert len(_busy_driver().machine.audit(limit=10**9)) == 2


def test_the_oldest_are_forgotten() -> None:
    """It keeps the last ten thousand events, and a restart keeps the same."""
    meter = Meter()
    locks = wanted(*[str(number) for number in range(limits.LOCKS_COUNT_MAX)])
    grants_count = limits.AUDIT_COUNT_MAX // (2 * len(locks)) + 1
    for number in range(grants_count):
        acquire = Acquire("", EXCLUSIVE, HoldId(f"h{number}"), AttemptId("a1"), ttl_ms=1000, locks=locks)
        meter.run(acquire, Release(HoldId(f"h{number}")))
    kept = meter.machine.state.audit.events
    assert len(kept) == limits.AUDIT_COUNT_MAX
    forgotten = 2 * len(locks) * grants_count - limits.AUDIT_COUNT_MAX
    assert 0 < forgotten < 2 * len(locks)
    assert kept[-1].token == grants_count
    assert (kept[0].token, kept[0].name) == (1, str(forgotten % len(locks)))
    assert list(
        LockMachine(snapshot.decode(snapshot.encode(meter.machine.state))).state.audit.events
    ) == list(kept)


def test_it_survives_a_restart() -> None:
    """The audit is part of the state: every node has the same, also from a snapshot."""
    driver = _busy_driver()
    restored = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    assert restored.audit() == driver.machine.audit()
    assert restored.audit("a", SessionId("s1"), 1) == driver.machine.audit("a", SessionId("s1"), 1)


def test_how_something_ended_is_found_for_a_while() -> None:
    """A hold with a lease of its own and a session are found by their ids; nothing by none."""
    driver = MachineDriver()
    driver.open("s1", ttl_ms=1000)
    driver.granted("a", session_id="s1")
    driver.granted("b", ttl_ms=500)
    driver.granted("c", ttl_ms=60_000)
    driver.granted("d", ttl_ms=60_000)
    machine = driver.machine
    assert machine.ending(session_id=SessionId("s1")) is None
    driver.force("c")
    driver.release("h4")
    driver.pass_to(1001)
    ended = [machine.ending(hold_id=HoldId(hold_id)) for hold_id in ("h2", "h3", "h4", "h1", "")]
    assert [event and event.kind.value for event in ended] == ["expired", "forced", "released", None, None]
    session = machine.ending(session_id=SessionId("s1"))
    assert session is not None
    assert session.kind is EventKind.SESSION_EXPIRED
    for _ in range(ENDINGS_SEARCHED_MAX):
        driver.release(driver.granted("e", ttl_ms=60_000).hold_id)
    assert machine.ending(hold_id=HoldId("h3")) is None
