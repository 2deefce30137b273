"""Transactions: compares of cells and holds, and all of one branch or nothing."""

import pytest

from lockstate.words import limits
from lockstate.words.cell_operations import CellCompare, CellField, HoldCompare, PutOperation, Relation
from lockstate.words.commands.cells import TransactCells
from lockstate.words.ids import HoldId
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import CellRead, CellsDeleted, CellWritten
from tests.unit.lockstate.cell_driver import (
    CellDriver,
    delete_part,
    get_part,
    held,
    put_part,
    value_is,
    version_is,
)
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, UPDATE, expect, reason

EQUAL, NOT_EQUAL, LESS, GREATER = Relation


def test_one_branch_is_carried_out() -> None:
    """`then` if all compares are true, or there are none; else `otherwise`."""
    driver = CellDriver()
    then, otherwise = (put_part("a", "1"),), (get_part("a"),)
    first = driver.transact(version_is("a", 0), then=then, otherwise=otherwise)
    assert (first.succeeded, first.results) == (True, (CellWritten(1, 1, 1),))
    second = driver.transact(version_is("a", 0), then=then, otherwise=otherwise)
    assert (second.succeeded, second.results) == (False, (CellRead(driver.cell("a")),))
    assert driver.transact(then=(put_part("b"),)).succeeded
    both = driver.transact(version_is("a", 1), version_is("b", 7), otherwise=(delete_part("b"),))
    assert (both.succeeded, both.results) == (False, (CellsDeleted(1, 3),))


def test_a_transaction_changes_the_revision_once_or_not_at_all() -> None:
    """All that it writes has one revision; one that only reads, or deletes nothing, changes none."""
    driver = CellDriver()
    driver.put("a")
    result = driver.transact(then=(put_part("b"), put_part("c"), delete_part("a"), delete_part("x")))
    assert result.revision == 2
    assert {event.mod_revision for event in driver.cell_events} == {2}
    assert driver.told() == [("cell-put", "b"), ("cell-put", "c"), ("cell-deleted", "a")]
    assert driver.transact(then=(get_part("b"), delete_part("x"))).revision == 2
    assert driver.told() == []


def test_operations_see_those_before_them() -> None:
    """A read shows what the same transaction has written or deleted."""
    driver = CellDriver()
    driver.put("a", "1")
    before, _, after, _, gone = driver.transact(
        then=(get_part("a"), put_part("a", "2"), get_part("a"), delete_part("b"), get_part("b"))
    ).results
    assert expect_value(before) == b"1"
    assert expect_value(after) == b"2"
    assert gone == CellRead(None)


def expect_value(result: object) -> bytes:
    """Return the value that was read."""
    assert isinstance(result, CellRead)
    assert result.cell is not None
    return result.cell.value


@pytest.mark.parametrize(
    ("compare", "expected"),
    [
        *[(value_is("a", other, EQUAL), other == "m") for other in "lmn"],
        *[(value_is("a", other, NOT_EQUAL), other != "m") for other in "lmn"],
        *[(value_is("a", other, LESS), other > "m") for other in "lmn"],
        *[(value_is("a", other, GREATER), other < "m") for other in "lmn"],
        *[(version_is("a", other, LESS), other > 2) for other in (1, 2, 3)],
        *[(version_is("a", other, GREATER), other < 2) for other in (1, 2, 3)],
        (CellCompare(b"a", CellField.VERSION, EQUAL, 2), True),
        (CellCompare(b"a", CellField.CREATE_REVISION, EQUAL, 1), True),
        (CellCompare(b"a", CellField.MOD_REVISION, EQUAL, 3), True),
        (CellCompare(b"a", CellField.MOD_REVISION, NOT_EQUAL, 3), False),
        (value_is("none", "", EQUAL), False),
        (value_is("none", "", NOT_EQUAL), True),
        (value_is("none", "x", LESS), False),
        (value_is("none", "", GREATER), False),
        (version_is("none", 0, EQUAL), True),
        (CellCompare(b"none", CellField.MOD_REVISION, LESS, 1), True),
    ],
)
def test_compares_of_cells(compare: CellCompare, expected: bool) -> None:  # noqa: FBT001
    """A cell that is not there has the numbers 0 and no value."""
    driver = CellDriver()
    driver.put("a", "x")
    driver.put("b")
    driver.put("a", "m")
    assert driver.is_true(compare) is expected


def test_compares_of_holds() -> None:
    """True as long as the hold is there, of whatever kind, and has the token if one is given."""
    driver = CellDriver()
    driver.open("s")
    lock = driver.granted("a", session_id="s")
    permits = driver.permitted("q", 5)
    driver.campaign("e", "s")
    assert driver.is_true(held(lock.hold_id))
    assert driver.is_true(held(lock.hold_id, lock.token))
    assert not driver.is_true(held(lock.hold_id, lock.token + 1))
    assert driver.is_true(held(permits.hold_id, permits.token))
    assert driver.is_true(held("h3", 3))
    assert not driver.is_true(held("h9"))
    driver.close("s")
    assert not driver.is_true(held(lock.hold_id))


def test_a_write_is_guarded_by_a_hold() -> None:
    """Who has lost a lock can write nothing any more, in the very entry that ends the hold."""
    driver = CellDriver()
    driver.granted("a", ttl_ms=100)
    guarded = TransactCells((held("h1"),), (put_part("a", "mine"),))
    assert expect_success(driver, guarded, 100)
    assert not expect_success(driver, guarded, 101)
    driver.granted("b", mode=UPDATE, ttl_ms=10_000)
    driver.granted("b", mode=SHARED, ttl_ms=10_000)
    driver.release("h3")
    driver.convert("h2", EXCLUSIVE)
    assert not driver.is_true(held("h2", 2))
    assert driver.is_true(held("h2", 4))


def expect_success(driver: CellDriver, command: TransactCells, at_ms: int) -> bool:
    """Return whether a transaction succeeds at this time."""
    result = driver.run(command, at_ms)
    assert not isinstance(result, Refused)
    return bool(getattr(result, "succeeded"))  # noqa: B009


def test_a_part_that_is_refused_undoes_nothing_because_nothing_was_done() -> None:
    """A session that is over, or no room for one of the cells, refuses the whole."""
    driver = CellDriver()
    for parts in (
        (put_part("a"), put_part("b", session_id="gone")),
        (put_part("a"), put_part("b", "x" * 4097)),
        (put_part("a"), put_part("")),
        (put_part("a"), put_part("a")),
        (put_part("a"), delete_part("a")),
        (put_part("a"), delete_part("")),
    ):
        expect(Refused, driver.run(TransactCells((), parts)))
        assert (driver.values(), driver.machine.cells_revision) == ({}, 0)
    refused = driver.run(TransactCells((), (), (put_part("a", "x" * 4097),)))
    assert reason(refused) is Reason.INVALID_REQUEST


def test_parts_of_one_session_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cells for a session that may have one more are refused."""
    monkeypatch.setattr(limits, "SESSION_CELLS_MAX", 1)
    driver = CellDriver()
    driver.open("s")
    parts = (put_part("a", session_id="s"), put_part("b", session_id="s"))
    assert reason(driver.run(TransactCells((), parts))) is Reason.OVERLOADED
    monkeypatch.setattr(limits, "SESSION_CELLS_MAX", 2)
    assert driver.transact(then=parts).succeeded


@pytest.mark.parametrize(
    ("command", "detail"),
    [
        (
            TransactCells((held("h"),) * 65),
            "compares: 65; at most 64 are allowed",
        ),
        (TransactCells((), (get_part("a"),) * 65), "then: 65; at most 64 are allowed"),
        (TransactCells((), (), (get_part("a"),) * 65), "else: 65; at most 64 are allowed"),
        (TransactCells((HoldCompare(HoldId("")),)), "hold_id: must be 1 to 64 characters"),
        (TransactCells((version_is("", 0),)), "key: 0 bytes; must be 1 to 512"),
        (TransactCells((), (get_part("x" * 513),)), "key: 513 bytes; must be 1 to 512"),
        (TransactCells((), (put_part("a"),) * 2), "then: a key is written or deleted twice"),
        (TransactCells((), (), (delete_part("a"),) * 2), "else: a key is written or deleted twice"),
    ],
)
def test_what_cannot_be_is_refused(command: TransactCells, detail: str) -> None:
    """The refusal names the part."""
    assert expect(Refused, CellDriver().run(command)).detail == detail


def test_a_repeated_transaction_is_done_once_and_reads_anew() -> None:
    """The outcome is the first one; what is read is not remembered, but read again."""
    driver = CellDriver()
    then, otherwise = (put_part("a", "1"), get_part("b")), (delete_part("a"),)
    first = driver.transact(version_is("a", 0), then=then, otherwise=otherwise, request_id="r")
    assert first.results[1] == CellRead(None)
    driver.put("b", "x")
    again = driver.transact(version_is("a", 0), then=then, otherwise=otherwise, request_id="r")
    assert (again.succeeded, again.revision, again.results[0]) == (True, 1, first.results[0])
    assert expect_value(again.results[1]) == b"x"
    missed = driver.transact(version_is("a", 0), otherwise=(get_part("b"),), request_id="q")
    driver.delete("b")
    repeated = driver.transact(version_is("a", 0), otherwise=(get_part("b"),), request_id="q")
    assert (missed.succeeded, repeated.succeeded, repeated.results) == (False, False, (CellRead(None),))


def test_a_cell_that_is_rewritten_may_live_on_as_it_did() -> None:
    """With its session, or for what is left of its lease; one that is new stays until it is deleted."""
    driver = CellDriver()
    driver.open("s")
    driver.put("of-session", "1", session_id="s")
    driver.put("leased", "1", ttl_ms=500)
    driver.put("endless", "1")
    keys = ("of-session", "leased", "endless", "new")
    driver.transact(then=tuple([put_part(key, "2", keeps_lease=True) for key in keys]), at_ms=300)
    assert driver.values() == dict.fromkeys(keys, "2")
    leased = driver.cell("leased")
    assert leased is not None
    assert (leased.expires_in_ms, leased.version) == (200, 2)
    driver.pass_to(501)
    assert driver.told() == [("cell-expired", "leased")]
    driver.close("s")
    assert driver.values() == {"endless": "2", "new": "2"}


@pytest.mark.parametrize(
    "part", [put_part("a", "", "s", keeps_lease=True), put_part("a", "", ttl_ms=50, keeps_lease=True)]
)
def test_a_cell_cannot_keep_its_lease_and_get_one(part: PutOperation) -> None:
    """Whoever writes says one of the two."""
    driver = CellDriver()
    driver.open("s")
    refused = expect(Refused, driver.run(TransactCells((), (part,))))
    assert refused.detail == "keeps_lease: give no session_id or ttl_ms with it"
