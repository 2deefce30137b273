"""Quotas of cells, fences and bytes: for whom each counts, and until when."""

import pytest

from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.stored.snapshot import SnapshotError
from lockstate.tables.principals import EVERYBODY
from lockstate.words.cell_operations import DeleteOperation, PutOperation
from lockstate.words.commands.cells import PutCell, TransactCells
from lockstate.words.commands.holds import Acquire, AddLocks, Campaign, Convert, Proclaim, Release
from lockstate.words.commands.overrides import ForgetFence
from lockstate.words.commands.primitives import AdvanceFence
from lockstate.words.commands.sessions import CloseSession, OpenSession
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.refusals import Refused
from lockstate.words.results import (
    CellWritten,
    FenceAdvanced,
    FenceForgotten,
    Granted,
    Proclaimed,
    Queued,
    Released,
    Result,
    SessionClosed,
    SessionOpened,
    Transacted,
)
from lockstate.words.wanted import Uncommon
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, expect, wanted
from tests.unit.lockstate.test_principals import Driver
from tests.unit.lockstate.test_quotas import quota, refusal

S1 = SessionId("s1")


def usage(driver: Driver, principal: str = "ann") -> tuple[int, int, int]:
    """Return how many cells, fences and bytes count for a principal."""
    used = driver.machine.state.principals.used_by(principal)
    return used.cells, used.fences, used.bytes


def put(driver: Driver, key: str, size_bytes: int = 1, who: str = "ann") -> Result:
    """Write a cell."""
    return driver.by(who, PutCell(key.encode(), b"x" * size_bytes))


def opened(driver: Driver, labels: dict[str, str] | None = None, who: str = "ann") -> None:
    """Open a session."""
    expect(SessionOpened, driver.by(who, OpenSession(S1, 60_000, labels or {})))


# -- cells ------------------------------------------------------------------------------------------------


def test_a_cell_that_ends_by_itself_counts_no_more() -> None:
    """Its lease is over, or its session."""
    driver = Driver()
    opened(driver)
    expect(CellWritten, driver.by("ann", PutCell(b"a", b"xy", ttl_ms=1000)))
    expect(CellWritten, driver.by("ann", PutCell(b"b", b"xyz", S1)))
    assert usage(driver) == (2, 0, 7)
    driver.pass_to(1001)
    assert usage(driver) == (1, 0, 4)
    expect(SessionClosed, driver.by("ann", CloseSession(S1), 1001))
    assert usage(driver) == (0, 0, 0)
    assert driver.machine.state.principals.usage == {}


def test_a_transaction_is_counted_as_a_whole() -> None:
    """What it deletes makes no room for what it writes; refused, it has done nothing."""
    driver = Driver()
    quota(driver, cells=2, bytes=100)
    expect(CellWritten, put(driver, "a"))
    two = TransactCells((), (PutOperation(b"b", b""), PutOperation(b"c", b""), DeleteOperation(b"a")))
    refused = expect(Refused, driver.by("ann", two))
    assert (refused.facts, refused.detail) == (
        {"limit": 2, "used": 1},
        "the quota of 2 cells has room for 1 more, not for 2",
    )
    assert usage(driver) == (1, 0, 2)
    expect(Transacted, driver.by("ann", TransactCells((), (PutOperation(b"b", b""), DeleteOperation(b"a")))))
    assert usage(driver) == (1, 0, 1)


def test_who_makes_a_cell_larger_has_it_on_its_account() -> None:
    """Else one could fill the cells of others; who writes as much or less leaves it where it counts."""
    driver = Driver()
    expect(CellWritten, put(driver, "a", 4))
    quota(driver, "bob", cells=0)
    expect(CellWritten, put(driver, "a", 4, "bob"))
    expect(CellWritten, put(driver, "a", 3, "bob"))
    assert (usage(driver), usage(driver, "bob")) == ((1, 0, 4), (0, 0, 0))
    assert refusal(put(driver, "a", 4, "bob"))[0] == "cells"
    quota(driver, "bob", cells=1, bytes=4)
    assert refusal(put(driver, "a", 4, "bob"))[0] == "bytes"
    quota(driver, "bob", cells=1, bytes=5)
    expect(CellWritten, put(driver, "a", 4, "bob"))
    assert (usage(driver), usage(driver, "bob")) == ((0, 0, 0), (1, 0, 5))


def test_a_cell_of_nobody_counts_for_nobody() -> None:
    """As one written through a node without principals does; that may take one from an account, too."""
    driver = Driver()
    expect(CellWritten, driver.run(PutCell(b"a", b"x")))
    assert driver.machine.state.principals.usage == {}
    expect(CellWritten, put(driver, "a", 1))
    assert usage(driver) == (0, 0, 0)
    expect(CellWritten, put(driver, "a", 2))
    assert usage(driver) == (1, 0, 3)
    expect(CellWritten, driver.run(PutCell(b"a", b"yyy")))
    assert usage(driver) == (0, 0, 0)


def test_who_is_above_its_quota_may_write_less() -> None:
    """A quota that comes later takes nothing away, and refuses nothing that frees."""
    driver = Driver()
    expect(CellWritten, put(driver, "a", 9))
    quota(driver, bytes=5)
    assert refusal(put(driver, "a", 10)) == ("bytes", {"limit": 5, "used": 10})
    expect(CellWritten, put(driver, "a", 8))
    expect(CellWritten, put(driver, "a", 8))
    assert usage(driver) == (1, 0, 9)


# -- fences -----------------------------------------------------------------------------------------------


def test_fences_up_to_the_quota() -> None:
    """One more is refused, until one is forgotten; one that is there is advanced by anybody."""
    driver = Driver()
    driver.draw(7)
    quota(driver, EVERYBODY, fences=1)
    expect(FenceAdvanced, driver.by("ann", AdvanceFence("disk/1", 5)))
    assert refusal(driver.by("ann", AdvanceFence("disk/2", 5))) == ("fences", {"limit": 1, "used": 1})
    expect(FenceAdvanced, driver.by("ann", AdvanceFence("disk/1", 6)))
    expect(FenceAdvanced, driver.by("bob", AdvanceFence("disk/1", 7)))
    assert (usage(driver), usage(driver, "bob")) == ((0, 1, 6), (0, 0, 0))
    expect(FenceForgotten, driver.by("ops", ForgetFence("disk/1", "gone")))
    assert driver.machine.state.principals.usage == {}
    expect(FenceAdvanced, driver.by("ann", AdvanceFence("disk/2", 5)))


# -- bytes ------------------------------------------------------------------------------------------------


def test_labels_are_counted_as_long_as_the_session() -> None:
    """Keys and values, as UTF-8."""
    driver = Driver()
    quota(driver, bytes=5)
    labels = {"é": "abcd"}
    assert refusal(driver.by("ann", OpenSession(S1, 60_000, labels))) == ("bytes", {"limit": 5, "used": 0})
    quota(driver, bytes=6)
    opened(driver, labels)
    assert usage(driver) == (0, 0, 6)
    driver.pass_to(60_001)
    assert usage(driver) == (0, 0, 0)


def noted(hold_id: str, note: str, name: str = "a", wait_ms: int = 0, session_id: str = "") -> Acquire:
    """Return an acquire with a note."""
    return Acquire(
        name,
        EXCLUSIVE,
        HoldId(hold_id),
        AttemptId(hold_id),
        SessionId(session_id),
        0 if session_id else 60_000,
        wait_ms=wait_ms,
        uncommon=Uncommon(note=note),
    )


def test_notes_are_counted_while_held_and_while_waited_for() -> None:
    """Nothing is counted twice when a wait ends in a grant."""
    driver = Driver()
    quota(driver, bytes=12)
    expect(Granted, driver.by("bob", noted("h1", "long enough")))
    expect(Queued, driver.by("ann", noted("h2", "12345678", wait_ms=1000)))
    assert usage(driver) == (0, 0, 9)
    assert refusal(driver.by("ann", noted("h3", "123", "b")))[0] == "bytes"
    expect(Granted, driver.by("ann", noted("h3", "12", "b")))
    expect(Released, driver.by("bob", Release(HoldId("h1"))))
    assert usage(driver) == (0, 0, 12)
    expect(Released, driver.by("ann", Release(HoldId("h2"))))
    assert usage(driver) == (0, 0, 3)


def test_a_note_that_another_acquire_gives_is_counted() -> None:
    """Refused, the hold is as it was, and has not been renewed."""
    driver = Driver()
    opened(driver)
    quota(driver, bytes=5)
    expect(Granted, driver.by("ann", noted("h1", "123", session_id="s1")))
    ends_ms = driver.machine.state.sessions[S1].expires_at_ms
    refused = driver.by("ann", noted("h2", "12345", session_id="s1"), 10)
    assert refusal(refused) == ("bytes", {"limit": 5, "used": 4})
    assert driver.machine.state.sessions[S1].expires_at_ms == ends_ms
    expect(Granted, driver.by("ann", noted("h2", "1234", session_id="s1"), 10))
    assert usage(driver) == (0, 0, 5)
    expect(Granted, driver.by("ann", noted("h2", "", session_id="s1"), 10))
    assert usage(driver) == (0, 0, 5)


def test_a_value_is_counted_whoever_is_told() -> None:
    """Also a secret one, which no event has; another acquire may replace it."""
    driver = Driver()
    opened(driver)
    secret = Acquire(
        "a", SHARED, HoldId("h1"), AttemptId("h1"), S1, uncommon=Uncommon(value="abc", is_secret=True)
    )
    expect(Granted, driver.by("ann", secret))
    assert usage(driver) == (0, 0, 4)
    quota(driver, bytes=5)
    longer = Acquire(
        "a", SHARED, HoldId("h2"), AttemptId("h2"), S1, uncommon=Uncommon(value="abcde", is_secret=True)
    )
    assert refusal(driver.by("ann", longer))[0] == "bytes"
    expect(Released, driver.by("ann", Release(HoldId("h1"))))
    assert usage(driver) == (0, 0, 0)


def test_what_a_leader_says_is_counted() -> None:
    """When it is elected, proclaims, or campaigns again."""
    driver = Driver()
    opened(driver)
    quota(driver, bytes=5)
    ids = HoldId("h1"), AttemptId("h1")
    assert refusal(driver.by("ann", Campaign("e", S1, "12345", *ids)))[0] == "bytes"
    expect(Granted, driver.by("ann", Campaign("e", S1, "123", *ids)))
    assert refusal(driver.by("ann", Proclaim(ids[0], "12345"))) == ("bytes", {"limit": 5, "used": 4})
    again = HoldId("h2"), AttemptId("h2")
    assert refusal(driver.by("ann", Campaign("e", S1, "12345", *again)))[0] == "bytes"
    expect(Proclaimed, driver.by("ann", Proclaim(ids[0], "1234")))
    assert usage(driver) == (0, 0, 5)
    expect(Granted, driver.by("ann", Campaign("e", S1, "", *again)))
    assert usage(driver) == (0, 0, 1)


def test_a_wait_for_a_change_says_nothing_of_its_own() -> None:
    """The note that it carries is that of its hold."""
    driver = Driver()
    for who, hold_id in (("ann", "h1"), ("bob", "h2")):
        asked = Acquire(
            "a", SHARED, HoldId(hold_id), AttemptId(hold_id), ttl_ms=1000, uncommon=Uncommon(note="abc")
        )
        expect(Granted, driver.by(who, asked))
    expect(Queued, driver.by("ann", Convert(HoldId("h1"), EXCLUSIVE, HoldId("t1"), AttemptId("t1"), 500)))
    assert usage(driver) == (0, 0, 4)
    quota(driver, "bob", bytes=5)
    adding = AddLocks(HoldId("h2"), wanted("b"), HoldId("t2"), AttemptId("t2"))
    expect(Granted, driver.by("bob", adding))
    assert usage(driver, "bob") == (0, 0, 5)


def test_what_nobody_says_counts_for_nobody() -> None:
    """Whatever changes of it, while others have something."""
    driver = Driver()
    expect(Granted, driver.by("ann", noted("h1", "abc")))
    expect(SessionOpened, driver.run(OpenSession(S1, 60_000)))
    expect(Granted, driver.run(noted("h2", "abc", "b", session_id="s1")))
    expect(Granted, driver.run(noted("h3", "abcdef", "b", session_id="s1")))
    expect(Queued, driver.run(noted("h4", "abc", wait_ms=1000)))
    assert usage(driver) == (0, 0, 4)
    assert set(driver.machine.state.principals.usage) == {"ann"}


# -- snapshots --------------------------------------------------------------------------------------------


def test_what_counts_survives_a_restart() -> None:
    """For whom, and how much."""
    driver = Driver()
    opened(driver, {"a": "b"})
    expect(CellWritten, put(driver, "a", 3))
    expect(CellWritten, put(driver, "b", 3, "bob"))
    driver.draw(5)
    expect(FenceAdvanced, driver.by("bob", AdvanceFence("disk", 5)))
    expect(Granted, driver.by("ann", noted("h1", "note")))
    machine = driver.machine
    again = LockMachine(snapshot.decode(snapshot.encode(machine.state)))
    assert again.state.principals.usage == machine.state.principals.usage
    assert (again.fingerprint, again.bytes_count) == (machine.fingerprint, machine.bytes_count)
    assert again.is_sound
    assert machine.is_sound
    assert snapshot.encode(again.state) == snapshot.encode(machine.state)


@pytest.mark.parametrize("table", ["cells", "fences"])
def test_a_snapshot_that_counts_what_is_not_there(table: str) -> None:
    """It is inconsistent."""
    driver = Driver()
    expect(CellWritten, put(driver, "a"))
    driver.draw(5)
    expect(FenceAdvanced, driver.by("ann", AdvanceFence("a", 5)))
    rows: dict[object, str] = getattr(driver.machine.state.principals, table)
    rows["b" if table == "fences" else b"b"] = "ann"
    with pytest.raises(SnapshotError, match="is referred to and not there"):
        LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
