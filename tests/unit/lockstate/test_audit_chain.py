"""The chain of the audit: each record is tied to the one before, on every node and after a restart."""

import hashlib
import json
from typing import Any

import msgspec
import pytest

from holdfast.cli.audit_chain import ChainCheck
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.tables import audit, audit_record
from lockstate.words import limits
from lockstate.words.commands.entries import Entry
from lockstate.words.events import Event, EventKind
from lockstate.words.ids import OwnerName, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode, Scope
from tests.unit.lockstate.machine_driver import MachineDriver, wanted


def _rows(machine: LockMachine, *, behind: int | None = 0) -> list[dict[str, Any]]:
    """Return the records as they are shown."""
    found = machine.audit_records(limit=limits.AUDIT_LIMIT_MAX, behind=behind)
    rows: list[dict[str, Any]] = json.loads(msgspec.json.encode([audit.row(*linked) for linked in found]))
    return rows


def _wrong(rows: list[dict[str, Any]]) -> list[str]:
    check = ChainCheck()
    return [text for row in rows for text in check.look(row)]


def _idle(driver: MachineDriver, count: int = 1) -> None:
    for _ in range(count):
        driver.apply(Entry(driver.machine.now_ms))


def _linked_count(driver: MachineDriver) -> int:
    (base,) = driver.machine.state.audit.base()
    return base.linked_count


def test_a_record_has_the_hash_of_all_that_it_shows() -> None:
    """Anybody can compute it: SHA-256 of compact JSON with sorted fields, the hash before it among them."""
    driver = MachineDriver()
    driver.granted("a", owner='ann "é')
    driver.release("h1")
    first, second = _rows(driver.machine)
    assert (first["number"], first["chain"], first["previous"]) == (1, 1, "")
    assert (second["number"], second["chain"], second["previous"]) == (2, 1, first["hash"])
    del second["hash"]
    text = json.dumps(second, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert driver.machine.audit_records()[0][1].hash == hashlib.sha256(text.encode()).hexdigest()


def test_both_orders_have_the_same_links() -> None:
    """The newest first, or the oldest first behind a number: of linked ones and of those that are not yet."""
    driver = MachineDriver()
    driver.granted(locks=wanted(*"abcdefghijklmnopqrst"))
    assert _linked_count(driver) == audit.LINKS_MAX < 20
    rows = _rows(driver.machine)
    assert [row["number"] for row in rows] == list(range(1, 21))
    assert [row["number"] for row in rows if "hash" in row] == list(range(1, audit.LINKS_MAX + 1))
    assert not any(row.keys() & {"chain", "previous"} for row in rows[audit.LINKS_MAX :])
    assert _wrong(rows) == []
    assert _rows(driver.machine, behind=None) == rows[::-1]
    for behind in (0, 3, audit.LINKS_MAX, 18, 20, 99):
        assert _rows(driver.machine, behind=behind) == rows[behind:]
    assert [linked[0].name for linked in driver.machine.audit_records("c", behind=0)] == ["c"]
    assert [linked[0].name for linked in driver.machine.audit_records("c")] == ["c"]


def test_later_entries_link_what_one_left() -> None:
    """Eight at a time; what a reader was told before stays so, and gets a hash."""
    driver = MachineDriver()
    names = [str(number) for number in range(40)]
    driver.granted(locks=wanted(*names))
    before = _rows(driver.machine)
    counts = []
    for _ in range(5):
        _idle(driver)
        counts.append(_linked_count(driver))
    assert counts == [16, 24, 32, 40, 40]
    after = _rows(driver.machine)
    assert [told | row for told, row in zip(before, after, strict=True)] == after
    assert all("hash" in row for row in after)
    driver.release("h1", "0")
    check = ChainCheck()
    assert [text for row in before + _rows(driver.machine, behind=40) for text in check.look(row)] == []
    assert check.uncovered_count == 0


def test_hashes_wait_until_somebody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few at most; with those that waited the records are the same as if none had."""
    monkeypatch.setattr(audit, "BEHIND_MAX", 20)
    made: list[bytes] = []

    def sha256(data: bytes) -> Any:
        made.append(data)
        return hashlib.sha256(data)

    monkeypatch.setattr(audit, "sha256", sha256)
    driver, prompt = MachineDriver(), MachineDriver()
    for number in range(30):
        for each in (driver, prompt):
            each.granted(str(number))
            if each is prompt:
                each.machine.state.audit.catch_up()
    assert len(made) == 30 + 21, "when 21 wait, all are made"
    rows = _rows(driver.machine)
    assert len(made) == 60
    assert rows == _rows(prompt.machine)
    assert _wrong(rows) == []
    assert all("hash" in row for row in rows)


def test_a_record_that_goes_before_it_was_read_leaves_its_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest that is kept tells of it, as if its hash had been made at once."""
    monkeypatch.setattr(limits, "AUDIT_COUNT_MAX", 10)
    driver, prompt = MachineDriver(), MachineDriver()
    for number in range(15):
        for each in (driver, prompt):
            each.granted(str(number))
            if each is prompt:
                each.machine.state.audit.catch_up()
    rows = _rows(driver.machine)
    assert rows == _rows(prompt.machine)
    assert rows[0]["previous"]
    assert snapshot.encode(driver.machine.state) == snapshot.encode(prompt.machine.state)


def test_a_read_makes_no_hash_of_what_is_not_linked(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many records are not linked yet: who reads does not pay for them."""
    driver = MachineDriver()
    driver.granted(locks=wanted(*[str(number) for number in range(40)]))
    driver.machine.state.audit.catch_up()
    monkeypatch.setattr(audit, "sha256", lambda _: pytest.fail("a hash was made"))
    assert len(_rows(driver.machine)) == len(_rows(driver.machine, behind=None)) == 40
    assert driver.machine.audit_records(limit=1)[0][1] == audit.AuditLink(40)


def test_nothing_provisional_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads after each entry misses nothing, and is told nothing that a new chain makes untrue."""
    monkeypatch.setattr(limits, "AUDIT_COUNT_MAX", 60)
    driver = MachineDriver()
    told: list[dict[str, Any]] = []
    names = [str(number) for number in range(25)]
    for number in range(1, 9):
        driver.granted(locks=wanted(*names))
        told += _rows(driver.machine, behind=len(told))
        driver.release(f"h{number}")
        told += _rows(driver.machine, behind=len(told))
    _idle(driver, 8)
    now = _rows(driver.machine)
    assert {row["chain"] for row in now} == {now[0]["number"]} == {341}
    known = {row["number"]: row for row in told}
    assert all(row | known[row["number"]] == row for row in now)
    driver.granted("a")
    told += _rows(driver.machine, behind=len(told))
    check = ChainCheck()
    assert [text for row in told for text in check.look(row)] == []
    assert check.count == 401
    assert check.last is not None
    assert (check.last.number, check.last.chain, check.uncovered_count > 0) == (401, 341, True)


@pytest.mark.parametrize("idle_entries", [0, 1, 5])
def test_a_restart_makes_no_difference(idle_entries: int) -> None:
    """A snapshot keeps the chain, and how far it is linked."""
    driver = MachineDriver()
    driver.granted(locks=wanted(*[str(number) for number in range(40)]))
    _idle(driver, idle_entries)
    restored = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    assert snapshot.encode(restored.state) == snapshot.encode(driver.machine.state)
    assert _rows(restored) == _rows(driver.machine)


def test_what_was_forgotten_is_still_in_the_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest record that is kept says the hash of the one before it, also after a restart."""
    monkeypatch.setattr(limits, "AUDIT_COUNT_MAX", 5)
    driver = MachineDriver()
    told: list[dict[str, Any]] = []
    for number in range(1, 5):
        driver.granted("a")
        driver.release(f"h{number}")
        told += _rows(driver.machine, behind=len(told))
        driver.machine = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    assert [row["number"] for row in told] == list(range(1, 9))
    assert _wrong(told) == []
    assert _rows(driver.machine) == told[3:]


def test_a_chain_begins_anew_behind_what_was_forgotten_too_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that was never linked cannot be in a hash: the next one says that its chain begins with it."""
    monkeypatch.setattr(limits, "AUDIT_COUNT_MAX", 12)
    driver = MachineDriver()
    driver.granted(locks=wanted(*[str(number) for number in range(10)]))
    before = _rows(driver.machine)
    driver.release("h1")
    rows = _rows(driver.machine)
    assert [(row["number"], row["chain"]) for row in rows[:2]] == [(9, 1), (10, 1)]
    assert _wrong(before + rows[2:]) == []
    driver.granted(locks=wanted(*[str(number) for number in range(22)]))
    anew = _rows(driver.machine)
    assert {row["chain"] for row in anew if "chain" in row} == {anew[0]["number"]} == {31}
    assert anew[0]["previous"] == ""
    state = driver.machine.state
    assert snapshot.encode(snapshot.decode(snapshot.encode(state))) == snapshot.encode(state)
    assert _wrong(rows + anew) == [
        "records 21 to 30 are missing",
        "record 31 is of a chain that begins anew with record 31",
    ]


@pytest.mark.parametrize(
    ("kind", "of", "beside"),
    [
        (EventKind.GRANTED, HoldKind.LOCK, {"kind", "token", "ticket", "mode", "scope", "value"}),
        (EventKind.GRANTED, HoldKind.SEMAPHORE, {"kind", "token", "ticket", "permits", "value"}),
        (EventKind.ELECTED, HoldKind.ELECTION, {"kind", "token", "ticket", "value"}),
        (EventKind.RESIGNED, HoldKind.ELECTION, {"kind", "token", "ticket"}),
        (EventKind.REVOKED, HoldKind.ELECTION, {"kind", "token", "ticket", "ends_in_ms"}),
        (EventKind.REVOCATION_WITHDRAWN, HoldKind.ELECTION, {"kind", "token", "ticket"}),
        (EventKind.SESSION_EXPIRED, HoldKind.LOCK, set()),
        (EventKind.FENCE_FORGOTTEN, HoldKind.LOCK, {"token"}),
        (EventKind.RATE_LIMIT_FORGOTTEN, HoldKind.LOCK, set()),
        (EventKind.DELAY_LIFTED, HoldKind.LOCK, {"kind", "ticket", "scope", "value"}),
        (EventKind.DELAY_LIFTED, HoldKind.SEMAPHORE, {"kind", "ticket", "permits", "value"}),
    ],
)
def test_a_record_shows_what_its_kind_has(kind: EventKind, of: HoldKind, beside: set[str]) -> None:
    """Beside what all have: what others may see of a hold, a delay or a fence, and no id."""
    mode, owner = Mode.EXCLUSIVE, OwnerName("ann")
    session_id = SessionId("secret")
    event = Event(3, 5, kind, "a", mode, owner, 7, session_id, 2, "why", of, Scope.NODE, 2, "v", 9, 4)
    shown = json.loads(msgspec.json.encode(audit_record.shown(event)))
    always = {"revision", "event", "name", "owner", "reason", "at_ms", "lasted_ms"}
    assert shown.keys() - always == beside
    assert "secret" not in json.dumps(shown)
