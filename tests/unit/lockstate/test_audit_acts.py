"""What operators do to others stays in the audit when everything else of that time is pushed out."""

import json
from typing import Any

import msgspec
import pytest

from holdfast.cli.audit_chain import ChainCheck
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.tables import audit
from lockstate.words import limits
from lockstate.words.commands.entries import OfSomebody, OnBehalf
from lockstate.words.commands.holds import Acquire, Release
from lockstate.words.commands.overrides import ForceRelease, LiftDelay
from lockstate.words.events import EventKind
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.modes import Mode
from tests.unit.lockstate.machine_driver import MachineDriver


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> MachineDriver:
    """Return a machine whose audit is short."""
    monkeypatch.setattr(limits, "AUDIT_COUNT_MAX", 6)
    monkeypatch.setattr(limits, "ACTS_COUNT_MAX", 4)
    return MachineDriver()


def _by(driver: MachineDriver, who: str, command: OfSomebody) -> None:
    driver.run(OnBehalf(who, command) if who else command)


def _act(driver: MachineDriver, name: str, *, of: str = "ann", by: str = "eve") -> None:
    """Let somebody end what somebody holds."""
    acquire = Acquire(name, Mode.EXCLUSIVE, HoldId(f"h-{name}"), AttemptId("a"), ttl_ms=60_000)
    _by(driver, of, acquire)
    _by(driver, by, ForceRelease(name, f"why {name}"))


def _flood(driver: MachineDriver, who: str = "eve", count: int = 10) -> None:
    """Let somebody push everything else out of the audit, with what is its own."""
    for number in range(count):
        hold_id = HoldId(f"flood-{number}")
        acquire = Acquire(f"own{number}", Mode.EXCLUSIVE, hold_id, AttemptId("a"), ttl_ms=60_000)
        _by(driver, who, acquire)
        _by(driver, who, Release(hold_id))


def _acts(driver: MachineDriver) -> list[str]:
    """Return the names of the acts that are left, the newest first."""
    return [event.name for event in driver.machine.audit() if event.kind is EventKind.FORCED]


def _rows(machine: LockMachine, behind: int | None = 0) -> list[dict[str, Any]]:
    found = machine.audit_records(limit=limits.AUDIT_LIMIT_MAX, behind=behind)
    rows: list[dict[str, Any]] = json.loads(msgspec.json.encode([audit.row(*linked) for linked in found]))
    return rows


def test_grants_do_not_push_out_what_was_done_to_others(driver: MachineDriver) -> None:
    """It is found by its name, behind everything that came later, with its hash."""
    _act(driver, "payroll")
    told = {row["number"]: row for row in _rows(driver.machine)}
    _flood(driver)
    (kept,) = driver.machine.audit_records("payroll")
    assert (kept[0].kind, kept[0].principal, kept[0].by) == (EventKind.FORCED, "ann", "eve")
    row = json.loads(msgspec.json.encode(audit.row(*kept)))
    assert row == told[row["number"]]
    assert "hash" in row
    numbers = [row["number"] for row in _rows(driver.machine, None)]
    assert numbers == sorted(numbers, reverse=True)
    assert len(numbers) == 7


@pytest.mark.parametrize(("of", "by"), [("eve", "eve"), ("", "eve"), ("ann", ""), ("", "")])
def test_only_what_is_known_to_be_ones_own_goes(driver: MachineDriver, of: str, by: str) -> None:
    """Where nobody knows whose it was, it is kept."""
    _act(driver, "a", of=of, by=by)
    _flood(driver)
    assert _acts(driver) == ([] if of and by in {"", of} else ["a"])


def test_who_does_one_thing_often_pushes_out_only_that(driver: MachineDriver) -> None:
    """Neither what others did nor what it did otherwise."""
    _act(driver, "one", by="ops")
    for number in range(5):
        _by(driver, "eve", LiftDelay(f"none{number}", "x"))
        _act(driver, f"many{number}")
    acquire = Acquire("d", Mode.EXCLUSIVE, HoldId("h-d"), AttemptId("a"), ttl_ms=60_000)
    _by(driver, "ann", acquire)
    _by(driver, "eve", ForceRelease("d", "why d", 60_000))
    _by(driver, "eve", LiftDelay("d", "all is well"))
    _flood(driver)
    kept = [(event.kind, event.name) for event, _ in driver.machine.state.audit.acts.all()]
    assert kept == [
        (EventKind.FORCED, "one"),
        (EventKind.FORCED, "many4"),
        (EventKind.FORCED, "d"),
        (EventKind.DELAY_LIFTED, "d"),
    ]


def test_of_many_who_do_one_thing_each_some_go(driver: MachineDriver) -> None:
    """No more are kept than fit: the oldest go, and nothing is left of those who did them."""
    for number in range(6):
        _act(driver, f"n{number}", by=f"ops{number}")
    _flood(driver)
    acts = driver.machine.state.audit.acts
    assert [event.name for event, _ in acts.all()] == ["n2", "n3", "n4", "n5"]
    assert len(acts._groups) == limits.ACTS_COUNT_MAX


def test_a_reader_that_came_too_late_gets_what_is_left(driver: MachineDriver) -> None:
    """In the order of the numbers; the check of the chain says what is missing, and nothing else."""
    _act(driver, "a")
    _flood(driver)
    _act(driver, "b")
    _flood(driver)
    rows = _rows(driver.machine)
    numbers = [row["number"] for row in rows]
    assert numbers == sorted(numbers)
    assert [row["name"] for row in rows if row["event"] == "forced"] == ["a", "b"]
    check = ChainCheck()
    wrong = [text for row in rows for text in check.look(row)]
    assert all(text.endswith("missing") for text in wrong), wrong
    assert len(wrong) == 2
    behind = rows[0]["number"]
    assert _rows(driver.machine, behind) == rows[1:]


def test_what_was_pushed_out_before_it_was_linked_has_its_number(driver: MachineDriver) -> None:
    """Also if one entry pushes out what it did itself."""
    for number in range(9):
        acquire = Acquire("q", Mode.SHARED, HoldId(f"h{number}"), AttemptId("a"), ttl_ms=60_000)
        _by(driver, "ann", acquire)
    _by(driver, "eve", ForceRelease("q", "all of them"))
    rows = _rows(driver.machine)
    assert [row["event"] for row in rows] == ["forced"] * 9
    assert [row["number"] for row in rows] == list(range(10, 19))
    assert not any("hash" in row for row in rows[:3])


def test_a_restart_makes_no_difference(driver: MachineDriver) -> None:
    """They are in the snapshot, and later ones push out the same."""
    for by in ("eve", "ops", "eve"):
        _act(driver, f"a-{by}-{driver.machine.revision}", by=by)
        _flood(driver)
    restored = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    assert snapshot.encode(restored.state) == snapshot.encode(driver.machine.state)
    assert _rows(restored) == _rows(driver.machine)
    other = MachineDriver()
    other.machine, other.seq = restored, driver.seq
    for number in range(4):
        for each in (driver, other):
            _act(each, f"later{number}")
            _flood(each)
    assert _acts(driver) == _acts(other)
