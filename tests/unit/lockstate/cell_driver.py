"""Shorthand of the tests of cells: keys and values as texts."""

from lockstate.words.cell_operations import (
    CellCompare,
    CellField,
    Compare,
    DeleteOperation,
    EndOperation,
    GetOperation,
    HoldCompare,
    LockCompare,
    Operation,
    PutOperation,
    Relation,
    RenewOperation,
    TakeOperation,
)
from lockstate.words.commands.cells import DeleteCells, PutCell, TransactCells
from lockstate.words.commands.entries import Entry
from lockstate.words.events import CellEvent
from lockstate.words.ids import HoldId, OwnerName, SessionId
from lockstate.words.outcomes import Outcome
from lockstate.words.results import CellsDeleted, CellWritten, Result, Transacted
from lockstate.words.views import CellView
from tests.unit.lockstate.machine_driver import MachineDriver, expect


class CellDriver(MachineDriver):
    """A machine, and the events of cells of the last entry."""

    def __init__(self) -> None:
        super().__init__()
        self.cell_events: tuple[CellEvent, ...] = ()

    def apply(self, entry: Entry) -> Outcome:
        """Apply an entry and check the state."""
        outcome = super().apply(entry)
        self.cell_events = outcome.cell_events
        return outcome

    def told(self) -> list[tuple[str, str]]:
        """Return what happened to which cells in the last entry."""
        return [(event.kind.value, event.name) for event in self.cell_events]

    def try_put(
        self,
        key: str,
        value: str = "",
        *,
        session_id: str = "",
        ttl_ms: int = 0,
        request_id: str = "",
        at_ms: int = 0,
    ) -> Result:
        """Write a cell."""
        command = PutCell(key.encode(), value.encode(), SessionId(session_id), ttl_ms, request_id)
        return self.run(command, at_ms)

    def put(
        self, key: str, value: str = "", *, session_id: str = "", ttl_ms: int = 0, at_ms: int = 0
    ) -> CellWritten:
        """Write a cell, and expect that it is written."""
        result = self.try_put(key, value, session_id=session_id, ttl_ms=ttl_ms, at_ms=at_ms)
        return expect(CellWritten, result)

    def delete(self, key: str, *, is_prefix: bool = False, request_id: str = "") -> CellsDeleted:
        """Delete a cell, or those with a prefix."""
        return expect(CellsDeleted, self.run(DeleteCells(key.encode(), is_prefix, request_id)))

    def transact(
        self,
        *compares: Compare,
        then: tuple[Operation, ...] = (),
        otherwise: tuple[Operation, ...] = (),
        request_id: str = "",
        at_ms: int = 0,
    ) -> Transacted:
        """Carry out a transaction that is not refused."""
        return expect(Transacted, self.run(TransactCells(compares, then, otherwise, request_id), at_ms))

    def is_true(self, compare: Compare) -> bool:
        """Whether a compare is true now."""
        return self.transact(compare).succeeded

    def cell(self, key: str) -> CellView | None:
        """Return a cell."""
        return self.machine.cell(key.encode())

    def values(self) -> dict[str, str]:
        """Return all cells."""
        views, more = self.machine.cells(b"", b"", 1000)
        assert more is None
        return {view.key.decode(): view.value.decode() for view in views}


def put_part(
    key: str, value: str = "", session_id: str = "", ttl_ms: int = 0, *, keeps_lease: bool = False
) -> PutOperation:
    """Return the part of a transaction that writes a cell."""
    return PutOperation(key.encode(), value.encode(), SessionId(session_id), ttl_ms, keeps_lease)


def delete_part(key: str) -> DeleteOperation:
    """Return the part of a transaction that deletes a cell."""
    return DeleteOperation(key.encode())


def get_part(key: str) -> GetOperation:
    """Return the part of a transaction that reads a cell."""
    return GetOperation(key.encode())


def value_is(key: str, value: str, relation: Relation = Relation.EQUAL) -> CellCompare:
    """Return a compare of a value."""
    return CellCompare(key.encode(), CellField.VALUE, relation, value=value.encode())


def version_is(key: str, version: int, relation: Relation = Relation.EQUAL) -> CellCompare:
    """Return a compare of a version."""
    return CellCompare(key.encode(), CellField.VERSION, relation, version)


def held(hold_id: str, token: int = 0) -> HoldCompare:
    """Return a compare with a hold."""
    return HoldCompare(HoldId(hold_id), token)


def is_free(name: str) -> LockCompare:
    """Return a compare that nobody has a name."""
    return LockCompare(name)


def is_held(name: str, hold_id: str) -> LockCompare:
    """Return a compare that just this hold has a name."""
    return LockCompare(name, HoldId(hold_id))


def take_part(
    name: str, hold_id: str, *, value: str = "", owner: str = "", ttl_ms: int = 1000
) -> TakeOperation:
    """Return the part of a transaction that takes a lock."""
    return TakeOperation(name, HoldId(hold_id), value, OwnerName(owner), ttl_ms)


def end_part(hold_id: str, reason: str = "") -> EndOperation:
    """Return the part of a transaction that ends a hold."""
    return EndOperation(HoldId(hold_id), reason)


def renew_part(hold_id: str, ttl_ms: int) -> RenewOperation:
    """Return the part of a transaction that renews a hold."""
    return RenewOperation(HoldId(hold_id), ttl_ms)
