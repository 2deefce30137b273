"""Cells: written, read in order, deleted; they live with a session, with a lease, or for good."""

import pytest

from lockstate import invariants
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.tables import cells, sorted_runs
from lockstate.tables.cells import Cell, CellTable
from lockstate.tables.deadlines import Deadlines
from lockstate.tables.ledger import Ledger
from lockstate.tables.sorted_runs import SortedRuns
from lockstate.words import limits
from lockstate.words.commands.cells import DeleteCells, PutCell
from lockstate.words.ids import NO_SESSION, SessionId
from lockstate.words.refusals import Reason, Refused
from tests.unit.lockstate.cell_driver import CellDriver
from tests.unit.lockstate.machine_driver import expect, reason
from tests.unit.lockstate.short_of_memory import ShortOfMemoryBytes, failing_allocation, short_of_memory


def test_new_keys_are_sorted_in_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether they stand among the young ones or have been sorted in, a listing has all keys in order."""
    monkeypatch.setattr(cells, "_YOUNG_MAX", 3)
    driver = CellDriver()
    driver.run_all([PutCell(bytes([code]), b"") for code in b"hcagbfed"])
    views, _ = driver.machine.cells(b"", b"", 100)
    assert [view.key for view in views] == [bytes([code]) for code in b"abcdefgh"]


def test_cells_with_a_prefix_are_listed_in_order() -> None:
    """A page has as many as asked for, and says where the next begins; keys are ordered by their bytes."""
    driver = CellDriver()
    for key in ("b/2", "a", "b/10", "c", "b/1", "b", "b/é"):
        driver.put(key)
    views, more = driver.machine.cells(b"b/", b"", 2)
    assert ([view.key for view in views], more) == ([b"b/1", b"b/10"], b"b/10")
    views, more = driver.machine.cells(b"b/", b"b/10", 2)
    assert ([view.key for view in views], more) == ([b"b/2", "b/é".encode()], None)
    assert driver.machine.cells(b"b/", b"a", 1)[0][0].key == b"b/1"
    assert driver.machine.cells(b"d", b"", 5) == ([], None)
    assert len(driver.machine.cells(b"", b"", 0)[0]) == 1


def test_a_page_of_large_cells_is_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page ends with the cell that fills it."""
    monkeypatch.setattr(limits, "LIST_CELL_BYTES_MAX", 20)
    driver = CellDriver()
    for key in "abc":
        driver.put(key, "x" * 15)
    views, more = driver.machine.cells(b"", b"", 10)
    assert ([view.key for view in views], more) == ([b"a", b"b"], b"b")


def test_cells_with_a_prefix_are_deleted_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """One command deletes a limited number, the first ones, with one revision, and says if more are left."""
    monkeypatch.setattr(limits, "CELLS_DELETED_MAX", 2)
    driver = CellDriver()
    for key in ("q/3", "q/1", "q/2", "other"):
        driver.put(key)
    deleted = driver.delete("q/", is_prefix=True)
    assert (deleted.count, deleted.is_more, deleted.revision) == (2, True, 5)
    assert {event.mod_revision for event in driver.cell_events} == {5}
    deleted = driver.delete("q/", is_prefix=True)
    assert (deleted.count, deleted.is_more) == (1, False)
    assert driver.values() == {"other": ""}
    assert driver.delete("", is_prefix=True).count == 1


def test_many_cells_of_sessions_expire_in_several_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells count in what one entry ends."""
    monkeypatch.setattr(limits, "EXPIRIES_PER_ENTRY_MAX", 3)
    driver = CellDriver()
    driver.open("s", "t")
    for number in range(3):
        driver.put(f"s{number}", session_id="s")
    driver.put("t", session_id="t")
    driver.pass_to(5000)
    assert driver.values() == {"t": ""}
    driver.pass_to(5000)
    assert driver.values() == {}


@pytest.mark.parametrize(
    ("command", "detail"),
    [
        (PutCell(b"", b""), "key: 0 bytes; must be 1 to 512"),
        (PutCell(b"x" * 513, b""), "key: 513 bytes; must be 1 to 512"),
        (PutCell(b"a", b"x" * 4097), "value: 4097 bytes; at most 4096 are allowed"),
        (PutCell(b"a", b"", SessionId("s"), 100), "session_id, ttl_ms: give at most one of the two"),
        (PutCell(b"a", b"", ttl_ms=49), "ttl_ms: 49; must be 50 to 86400000"),
        (PutCell(b"", b"", ttl_ms=50), "key: 0 bytes; must be 1 to 512"),
        (DeleteCells(b""), "key: 0 bytes; must be 1 to 512"),
        (DeleteCells(b"x" * 513), "key: 513 bytes; must be 1 to 512"),
        (DeleteCells(b"x" * 513, is_prefix=True), "prefix: 513 bytes; at most 512 are allowed"),
    ],
)
def test_what_cannot_be_is_refused(command: PutCell | DeleteCells, detail: str) -> None:
    """A refused command changes nothing."""
    driver = CellDriver()
    assert expect(Refused, driver.run(command)).detail == detail
    assert (driver.values(), driver.machine.cells_revision) == ({}, 0)


def test_keys_and_values_may_be_any_bytes() -> None:
    """A key that is not text is shown with escapes."""
    driver = CellDriver()
    key = bytes(range(256)) * 2
    driver.run(PutCell(key, b"\xff" * 4096))
    assert driver.cell_events[0].name.endswith("\\xff")
    view = driver.machine.cell(key)
    assert view is not None
    assert view.value == b"\xff" * 4096


def test_a_cell_cannot_live_with_a_session_that_is_over() -> None:
    """The refusal is that of everything a session does."""
    driver = CellDriver()
    assert reason(driver.try_put("a", session_id="s")) is Reason.SESSION_EXPIRED
    assert driver.values() == {}


def test_cells_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In number, in bytes and for each session; what makes nothing larger is done all the same."""
    monkeypatch.setattr(limits, "CELLS_COUNT_MAX", 3)
    monkeypatch.setattr(limits, "CELLS_BYTES_MAX", 20)
    monkeypatch.setattr(limits, "SESSION_CELLS_MAX", 1)
    driver = CellDriver()
    driver.open("s")
    driver.put("a", "x" * 4, session_id="s")
    refused = expect(Refused, driver.try_put("b", session_id="s"))
    assert (refused.reason, refused.retry_after_ms) == (Reason.OVERLOADED, 1000)
    assert refused.detail == "a session may have 1 cells"
    driver.put("a", "y" * 4, session_id="s")
    refused = expect(Refused, driver.try_put("b", "x" * 15))
    assert refused.detail == "all cells may have 20 bytes of keys and values"
    driver.put("b", "x" * 12)
    driver.put("c")
    assert expect(Refused, driver.try_put("d")).detail == "the cluster has 3 cells; no more are allowed"
    assert reason(driver.try_put("c", "xxx")) is Reason.OVERLOADED
    driver.put("b", "x" * 13)
    driver.put("b", "x" * 13)
    driver.put("b", "x")
    assert driver.values() == {"a": "yyyy", "b": "x", "c": ""}


def test_many_cells_stay_in_order() -> None:
    """However many come, and in whatever order they come and go."""
    driver = CellDriver()
    keys = [f"{number * 7919 % 5000:05}" for number in range(5000)]
    for first in range(0, 5000, 500):
        driver.run_all([PutCell(key.encode(), b"") for key in keys[first : first + 500]])
    driver.run_all([DeleteCells(key.encode()) for key in keys if key.endswith("3")])
    expected = sorted(key.encode() for key in keys if not key.endswith("3"))
    found: list[bytes] = []
    after: bytes | None = b""
    while after is not None:
        views, after = driver.machine.cells(b"", after, 1000)
        found += [view.key for view in views]
    assert found == expected


def test_runs_that_empty_go_away() -> None:
    """Keys can all be removed again, from any side."""
    runs = SortedRuns[str]()
    keys = [f"{number:04}" for number in range(2000)]
    for key in keys:
        runs.add([key])
    for key in reversed(keys):
        runs.remove([key])
    assert list(runs.after("", inclusive=True)) == []
    runs.add(["b"])
    runs.add(["a"])
    assert list(runs.after("a", inclusive=False)) == ["b"]


def test_a_snapshot_has_all_cells() -> None:
    """Values, revisions and leases are as they were; the index and the tables of sessions are made anew."""
    driver = CellDriver()
    driver.open("s")
    driver.put("b", "1", session_id="s")
    driver.put("c", "2", ttl_ms=500)
    driver.put("a", "3")
    driver.put("a", "4")
    driver.put("d")
    driver.delete("d")
    data = snapshot.encode(driver.machine.state)
    restored = LockMachine(snapshot.decode(data))
    invariants.check(restored.state)
    assert snapshot.encode(restored.state) == data
    assert restored.fingerprint == driver.machine.fingerprint
    assert restored.bytes_count == driver.machine.bytes_count
    assert restored.cells_revision == 6
    assert restored.cells(b"", b"", 9) == driver.machine.cells(b"", b"", 9)
    driver.machine = restored
    driver.close("s")
    assert driver.told() == [("cell-deleted", "b")]
    driver.pass_to(501)
    assert driver.told() == [("cell-expired", "c")]


def test_every_change_of_a_cell_changes_the_fingerprint() -> None:
    """Nodes that differ in a value, a lease or the revision of the table find out."""
    driver = CellDriver()
    seen = {driver.machine.fingerprint}
    driver.open("s")
    for put in (
        {"value": "1"},
        {"value": "2"},
        {"value": "2"},
        {"value": "2", "ttl_ms": 500},
        {"value": "2", "session_id": "s"},
    ):
        driver.put("a", **put)
        seen.add(driver.machine.fingerprint)
    driver.delete("a")
    seen.add(driver.machine.fingerprint)
    assert len(seen) == 7
    before = driver.machine.fingerprint
    driver.machine.state.cells.revision += 1
    assert driver.machine.fingerprint != before


def test_a_full_state_takes_no_larger_cells() -> None:
    """What makes nothing larger, and a deletion, is done; one that deleted nothing is not remembered."""
    driver = CellDriver()
    driver.put("a", "x" * 100)
    driver.machine.state.bytes_max = driver.machine.bytes_count
    driver.machine.state.ledger.room = -1
    assert reason(driver.try_put("b")) is Reason.OVERLOADED
    assert reason(driver.try_put("a", "x" * 101)) is Reason.OVERLOADED
    driver.put("a", "y" * 100)
    assert driver.delete("none", request_id="r").count == 0
    assert driver.machine.counts()["requests"] == 0
    assert driver.delete("a", request_id="q").count == 1
    assert driver.machine.counts()["requests"] == 1
    driver.put("b")


def test_a_cell_takes_at_most_400_bytes_beside_its_content() -> None:
    """As it is counted; what Python takes is less for cells without a lease."""
    driver = CellDriver()
    before = driver.machine.bytes_count
    driver.run_all([PutCell(f"app/{number:012}".encode(), b"v" * 100) for number in range(100)])
    assert (driver.machine.bytes_count - before) / 100 - 116 <= 400


@pytest.mark.parametrize("comparisons", range(1, 40))
def test_a_listing_that_fails_for_want_of_memory_leaves_the_keys_in_order(
    monkeypatch: pytest.MonkeyPatch, comparisons: int
) -> None:
    """Wherever it stops, each cell is listed once, and no longer than it is there."""
    monkeypatch.setattr(sorted_runs, "_RUN_MAX", 6)
    table, keys = CellTable(Deadlines(), Ledger()), [ShortOfMemoryBytes([number]) for number in range(20)]
    made = {key: Cell(0, 0, 0, key, b"", 1, 1, 1, NO_SESSION) for key in keys}
    for key in keys[:8]:
        table.enter(made[key])
    assert [cell.key for cell in table.below(b"", b"")] == keys[:8]
    for key in keys[8:16]:
        table.enter(made[key])
    with short_of_memory(comparisons):
        list(table.below(b"", b""))
    for key in keys[3:12]:
        table.remove(made[key])
    for key in keys[5:6] + keys[10:11] + keys[16:]:
        table.enter(made[key])
    assert [cell.key for cell in table.below(b"", b"")] == [*keys[:3], keys[5], keys[10], *keys[12:]]


@pytest.mark.parametrize("first", range(1, 16))
@pytest.mark.parametrize("second", range(1, 16))
def test_two_listings_that_fail_one_after_the_other(first: int, second: int) -> None:
    """No key stays behind that has come while others waited to be sorted in, and has gone since."""
    table = CellTable(Deadlines(), Ledger())
    for failing, prefix, count in ((first, b"a", 700), (second, b"b", 1000)):
        for number in range(count):
            table.enter(Cell(0, 0, 0, b"%b%04d" % (prefix, number), b"", 1, 1, 1, NO_SESSION))
        with failing_allocation(failing):
            list(table.below(b"", b""))
    for cell in table.all()[::2]:
        table.remove(cell)
    assert [cell.key for cell in table.below(b"", b"")] == sorted(cell.key for cell in table.all())
