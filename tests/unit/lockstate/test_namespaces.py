"""Namespaces: what each counts, what its quotas refuse, and what is stored."""

from typing import Any

import msgspec
import pytest

from lockstate.machine import LockMachine
from lockstate.reads import listings
from lockstate.stored import snapshot
from lockstate.stored.snapshot import SnapshotError
from lockstate.tables import fingerprint
from lockstate.tables.audit import Audit
from lockstate.words import limits
from lockstate.words.cell_operations import DeleteOperation, PutOperation
from lockstate.words.commands.admin import SetNamespace
from lockstate.words.commands.cells import DeleteCells, PutCell, TransactCells
from lockstate.words.commands.entries import Tick
from lockstate.words.commands.holds import AcquireSeveral, AddLocks, Proclaim
from lockstate.words.commands.overrides import ForgetFence
from lockstate.words.commands.primitives import AdvanceFence
from lockstate.words.commands.sessions import CloseSession
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.refusals import Reason, RefusedInNamespace
from lockstate.words.results import (
    CellsDeleted,
    CellWritten,
    FenceAdvanced,
    Granted,
    NamespaceSet,
    Proclaimed,
    Queued,
    Result,
    Transacted,
)
from lockstate.words.settings import NamespaceSettings
from lockstate.words.views import NamespaceSummary
from lockstate.words.wanted import WantedPermits
from tests.unit.lockstate.machine_driver import SHARED, expect, reason, wanted
from tests.unit.lockstate.test_principals import Driver


def space(driver: Driver, prefix: str = "jobs", **settings: Any) -> None:
    """Set a namespace."""
    command = SetNamespace(prefix, msgspec.structs.replace(NamespaceSettings(), **settings))
    expect(NamespaceSet, driver.run(command, driver.machine.now_ms))


def used(driver: Driver, prefix: str = "jobs") -> tuple[int, int, int, int]:
    """Return how many holds, waits, cells and fences a namespace counts."""
    usage = driver.machine.state.namespaces.usage[prefix]
    return usage.holds, usage.waits, usage.cells, usage.fences


def refusal(result: Result) -> tuple[str, str, dict[str, int]]:
    """Return which namespace has no room, for what, and the numbers that are told."""
    refused = expect(RefusedInNamespace, result)
    assert refused.reason is Reason.QUOTA_EXCEEDED
    assert refused.retry_after_ms > 0
    return refused.namespace, refused.quota, refused.facts


def test_holds_of_every_kind_count_in_each_namespace_around_them() -> None:
    """Locks, permits, a lead, and several things at once, of which each name counts where it lies."""
    driver = Driver()
    space(driver)
    space(driver, "jobs/night")
    driver.open("s1")
    driver.granted("jobs")
    driver.granted("jobs2")
    driver.granted("jobs/night/7")
    driver.permitted("jobs/night", 3)
    expect(Granted, driver.campaign("jobs/night/boss", "s1"))
    driver.granted(locks=wanted("jobs/a", "jobs/b", "other"))
    assert used(driver) == (6, 0, 0, 0)
    assert used(driver, "jobs/night") == (3, 0, 0, 0)
    permits = (WantedPermits("jobs/night/p", 2),)
    several = AcquireSeveral("", SHARED, HoldId("x"), AttemptId("x"), ttl_ms=1000, permits=permits)
    expect(Granted, driver.run(msgspec.structs.replace(several, locks=wanted("else"))))
    assert used(driver, "jobs/night") == (4, 0, 0, 0)
    driver.release("h3")
    driver.close("s1")
    driver.pass_to(1001)
    assert used(driver) == used(driver, "jobs/night") == (0, 0, 0, 0)


def test_what_was_there_is_not_counted() -> None:
    """Neither when the namespace is set nor when it ends, also if one is removed and set again."""
    driver = Driver()
    driver.granted("jobs/1", ttl_ms=50_000)
    driver.queued("jobs/1")
    driver.run(PutCell(b"jobs/c", b""))
    driver.draw(2)
    driver.run(AdvanceFence("jobs/f", 1))
    space(driver)
    assert used(driver) == (0, 0, 0, 0)
    driver.granted("jobs/2")
    driver.run(PutCell(b"jobs/c", b"x"))
    driver.run(PutCell(b"jobs/d", b"x"))
    driver.run(AdvanceFence("jobs/f", 2))
    driver.run(AdvanceFence("jobs/g", 2))
    assert used(driver) == (1, 0, 1, 1)
    driver.run(SetNamespace("jobs"))
    driver.run(SetNamespace("jobs"))
    space(driver)
    assert used(driver) == (0, 0, 0, 0)
    driver.release("h3")
    driver.run(DeleteCells(b"jobs/", is_prefix=True))
    driver.run(ForgetFence("jobs/g", ""))
    driver.run(ForgetFence("jobs/f", ""))
    assert used(driver) == (0, 0, 0, 0)
    driver.release("h1")
    assert used(driver) == (1, 0, 0, 0), "what it waited for before is held from now on"


def test_a_part_that_is_released_leaves_its_namespace() -> None:
    """The rest of the hold counts where it lies."""
    driver = Driver()
    space(driver)
    space(driver, "other")
    driver.granted(locks=wanted("jobs/1", "jobs/2", "other/1"))
    driver.release("h1", "other/1")
    assert (used(driver)[0], used(driver, "other")[0]) == (2, 0)
    driver.release("h1", "jobs/1")
    assert used(driver)[0] == 1
    driver.force("jobs/2")
    assert used(driver)[0] == 0


def test_a_quota_of_cells() -> None:
    """Each way to make and to lose one is counted; who writes one again makes none."""
    driver = Driver()
    space(driver, cells=2)
    expect(CellWritten, driver.run(PutCell(b"jobs", b"1")))
    expect(CellWritten, driver.run(PutCell(b"jobs/\xff", b"1", ttl_ms=100)))
    expect(CellWritten, driver.run(PutCell(b"jobs2", b"1")))
    expect(CellWritten, driver.run(PutCell(b"jobs", b"2")))
    assert refusal(driver.run(PutCell(b"jobs/3", b""))) == ("jobs", "cells", {"limit": 2, "used": 2})
    driver.pass_to(101)
    assert used(driver) == (0, 0, 1, 0)
    two = (PutOperation(b"jobs/3", b""), PutOperation(b"jobs/4", b""))
    assert refusal(driver.run(TransactCells((), two), 101))[2] == {"limit": 2, "used": 1}
    one = (DeleteOperation(b"jobs"), PutOperation(b"jobs/3", b""))
    expect(Transacted, driver.run(TransactCells((), one), 101))
    driver.open("s1", at_ms=101)
    expect(CellWritten, driver.run(PutCell(b"jobs/5", b"", SessionId("s1")), 101))
    driver.run(CloseSession(SessionId("s1")), 101)
    assert expect(CellsDeleted, driver.run(DeleteCells(b"", is_prefix=True), 101)).count == 2
    assert used(driver) == (0, 0, 0, 0)


def bytes_of(driver: Driver, prefix: str = "jobs") -> int:
    """Return how many bytes a namespace counts."""
    return driver.machine.state.namespaces.usage[prefix].bytes


def test_a_quota_of_bytes_counts_cells() -> None:
    """As they grow and shrink, those alone that were made since; what is deleted in vain makes no room."""
    driver = Driver()
    expect(CellWritten, driver.run(PutCell(b"jobs/old", b"1")))
    space(driver, bytes=10)
    expect(CellWritten, driver.run(PutCell(b"jobs/1", b"12")))
    expect(CellWritten, driver.run(PutCell(b"jobs/old", b"123456789")))
    expect(CellWritten, driver.run(PutCell(b"jobs2", b"123456789")))
    assert bytes_of(driver) == 8
    larger = driver.run(TransactCells((), (PutOperation(b"jobs/1", b"1234"), PutOperation(b"jobs", b""))))
    assert refusal(larger) == ("jobs", "bytes", {"limit": 10, "used": 8})
    assert "no room for 6 more" in expect(RefusedInNamespace, larger).detail
    expect(CellWritten, driver.run(PutCell(b"jobs/1", b"1234")))
    space(driver, bytes=3)
    expect(CellWritten, driver.run(PutCell(b"jobs/1", b"4321")))
    expect(CellWritten, driver.run(PutCell(b"jobs/1", b"4")))
    assert bytes_of(driver) == 7
    expect(CellsDeleted, driver.run(DeleteCells(b"", is_prefix=True)))
    assert bytes_of(driver) == 0


def test_a_quota_of_bytes_counts_notes_and_values() -> None:
    """Of holds and of what waits to be one, with their names, in each namespace; and what replaces them."""
    driver = Driver()
    driver.open("s1")
    space(driver, bytes=34)
    space(driver, "jobs/night", holds=9)
    first = driver.granted("jobs/night/1", session_id="s1", note="äöü")
    assert (bytes_of(driver), bytes_of(driver, "jobs/night")) == (18, 18)
    assert driver.acquire("jobs/night/1", note="12345", wait_ms=9).quota == "bytes"  # type: ignore[union-attr]
    driver.queued("jobs/night/1", note="1234", wait_ms=9)
    assert bytes_of(driver) == 34
    longer = driver.acquire("jobs/night/1", session_id="s1", note="1234567")
    assert refusal(longer) == ("jobs", "bytes", {"limit": 34, "used": 34})
    driver.granted("jobs/night/1", session_id="s1", note="1")
    assert bytes_of(driver) == 29
    space(driver, bytes=38)
    term = expect(Granted, driver.campaign("jobs", "s1", "12345"))
    assert refusal(driver.run(Proclaim(term.hold_id, "123456"))) == (
        "jobs",
        "bytes",
        {"limit": 38, "used": 38},
    )
    expect(Proclaimed, driver.run(Proclaim(term.hold_id, "1")))
    driver.run(CloseSession(SessionId("s1")))
    assert (used(driver)[:2], bytes_of(driver), first.name) == ((1, 0), 16, "jobs/night/1")


def test_more_locks_bring_a_note_into_a_namespace() -> None:
    """Where the hold had nothing it needs room for what it says, as a new one does."""
    driver = Driver()
    space(driver, bytes=9)
    hold = driver.granted("a", note="1234")
    more = AddLocks(hold.hold_id, wanted("jobs/1"), HoldId("c1"), AttemptId("c1"))
    assert refusal(driver.run(more)) == ("jobs", "bytes", {"limit": 9, "used": 0})
    space(driver, bytes=10)
    expect(Granted, driver.run(more))
    assert bytes_of(driver) == 10


def test_a_wait_for_more_locks_counts_what_its_hold_says() -> None:
    """As it is, also when it changes meanwhile: there is room for it when the locks come."""
    driver = Driver()
    driver.open("s1")
    space(driver, bytes=17)
    first = driver.granted("jobs/1")
    hold = driver.granted("a", session_id="s1", note="1234")
    more = AddLocks(hold.hold_id, wanted("jobs/1"), HoldId("c1"), AttemptId("c1"), wait_ms=99)
    expect(Queued, driver.run(more))
    assert bytes_of(driver) == 16
    longer = driver.acquire("a", session_id="s1", note="123456")
    assert refusal(longer) == ("jobs", "bytes", {"limit": 17, "used": 16})
    driver.granted("a", session_id="s1", note="12345")
    assert refusal(driver.run(PutCell(b"jobs", b""))) == ("jobs", "bytes", {"limit": 17, "used": 17})
    driver.release(first.hold_id)
    assert (used(driver)[:2], bytes_of(driver)) == ((1, 0), 11)


def test_a_quota_of_fences() -> None:
    """A fence counts until it is forgotten; one of the same name is a new one."""
    driver = Driver()
    driver.draw(2)
    space(driver, fences=1)
    expect(FenceAdvanced, driver.run(AdvanceFence("jobs/1", 1)))
    expect(FenceAdvanced, driver.run(AdvanceFence("jobs/1", 2)))
    assert refusal(driver.run(AdvanceFence("jobs/2", 1))) == ("jobs", "fences", {"limit": 1, "used": 1})
    driver.run(ForgetFence("jobs/1", ""))
    expect(FenceAdvanced, driver.run(AdvanceFence("jobs/2", 1)))
    driver.run(SetNamespace("jobs"))
    space(driver)
    assert used(driver) == (0, 0, 0, 0)
    driver.run(ForgetFence("jobs/2", ""))
    driver.run(AdvanceFence("jobs/2", 1))
    assert used(driver) == (0, 0, 0, 1)


# -- what is stored ------------------------------------------------------------------------------------------


def _full() -> Driver:
    """Return a machine in which a namespace counts something of everything."""
    driver = Driver()
    driver.granted("jobs/0", ttl_ms=50_000)
    driver.run(AdvanceFence("jobs/0", 1))
    space(driver, holds=7, no_deadline=True)
    space(driver, "jobs/a")
    driver.granted("jobs/a/1", ttl_ms=50_000)
    driver.granted("beside", ttl_ms=50_000)
    driver.adding("h3", "jobs/a/1")
    driver.queued("jobs/a/1")
    permits = (WantedPermits("jobs/p", 2),)
    several = AcquireSeveral("", SHARED, HoldId("x"), AttemptId("x"), ttl_ms=1000, permits=permits)
    expect(Granted, driver.run(msgspec.structs.replace(several, locks=wanted("else"))))
    driver.run(PutCell(b"jobs/c", b"1"))
    driver.run(AdvanceFence("jobs/f", 1))
    return driver


def test_all_of_it_is_in_snapshots() -> None:
    """A machine that is restored counts the same, and is the same."""
    driver = _full()
    data = snapshot.encode(driver.machine.state)
    again = LockMachine(snapshot.decode(data))
    assert snapshot.encode(again.state) == data
    assert again.state.namespaces.usage == driver.machine.state.namespaces.usage
    assert used(driver) == (4, 2, 1, 1)
    assert (again.fingerprint, again.bytes_count) == (driver.machine.fingerprint, driver.machine.bytes_count)
    assert again.is_sound


def test_without_namespaces_nothing_is_stored() -> None:
    """But for the audit, a state that has had some is, byte for byte, one that never had any."""
    driver, other = Driver(), Driver()
    space(driver)
    driver.run(SetNamespace("jobs"))
    other.run(Tick())
    other.run(Tick())
    for each in (driver, other):
        each.granted("jobs/1")
        each.machine.state.audit = Audit()
    assert snapshot.encode(driver.machine.state) == snapshot.encode(other.machine.state)
    assert driver.machine.fingerprint == other.machine.fingerprint
    assert driver.machine.bytes_count == other.machine.bytes_count


def test_a_fence_that_is_not_there_is_inconsistent() -> None:
    """A snapshot in which it counts is refused."""
    driver = _full()
    driver.machine.state.namespaces.fences["gone"] = 1
    with pytest.raises(SnapshotError, match="inconsistent"):
        LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.rows.pop("jobs/a"),
        lambda table: table.fences.pop("jobs/f"),
    ],
)
def test_all_of_it_is_in_the_fingerprint(change: object) -> None:
    """A change that is not told of is found."""
    driver = _full()
    assert callable(change)
    change(driver.machine.state.namespaces)
    assert fingerprint.recomputed(driver.machine.state) != fingerprint.of(driver.machine.state)


def test_there_may_be_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the bound one can still be changed and removed."""
    monkeypatch.setattr(limits, "NAMESPACES_COUNT_MAX", 1)
    driver = Driver()
    space(driver)
    assert reason(driver.run(SetNamespace("other", NamespaceSettings()))) is Reason.OVERLOADED
    space(driver, holds=1)
    driver.run(SetNamespace("jobs"))
    space(driver, "other")


def test_a_namespace_can_be_set_when_there_is_no_room() -> None:
    """A request id that cannot be remembered does not stand in the way of it."""
    driver = Driver()
    driver.machine.state.bytes_max = 1
    result = driver.run(SetNamespace("jobs", NamespaceSettings(holds=0), "r"))
    assert result == NamespaceSet()


def test_a_request_that_comes_again() -> None:
    """It has its first outcome, though the namespace has been removed since."""
    driver = Driver()
    command = SetNamespace("jobs", NamespaceSettings(holds=1), "r")
    driver.run(command)
    driver.run(SetNamespace("jobs"))
    assert driver.run(command) == NamespaceSet()
    assert driver.machine.state.namespaces.rows == {}
    other = msgspec.structs.replace(command, settings=None)
    assert reason(driver.run(other)) is Reason.INVALID_REQUEST


def test_pages_of_namespaces() -> None:
    """By prefix, with what there is in each."""
    driver = Driver()
    for prefix in ("b", "a", "a/c", "ab"):
        space(driver, prefix, waits=3)
    driver.granted("a/c/1")
    state = driver.machine.state
    first = NamespaceSummary("a", NamespaceSettings(waits=3), 1, 0, 0, 0, 0, 5)
    assert listings.namespaces(state, "", "", 1) == ([first], "a")
    assert (listings.namespace(state, "a"), listings.namespace(state, "nowhere")) == (first, None)
    rows, following = listings.namespaces(state, "a", "a", 9)
    assert ([row.name for row in rows], following) == (["a/c", "ab"], None)
