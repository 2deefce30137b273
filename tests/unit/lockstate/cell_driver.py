"""Shorthand of the tests of cells: keys and values as texts."""

from lockstate.words.cell_operations import (
    CellCompare,
    CellField,
    CellOperation,
    Compare,
    DeleteOperation,
    GetOperation,
    HoldCompare,
    PutOperation,
    Relation,
)
from lockstate.words.commands import DeleteCells, Entry, PutCell, TransactCells
from lockstate.words.ids import HoldId, SessionId
from lockstate.words.results import (
    CellEvent,
    CellsDeleted,
    CellView,
    CellWritten,
    Outcome,
    Result,
    Transacted,
)
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
        then: tuple[CellOperation, ...] = (),
        otherwise: tuple[CellOperation, ...] = (),
        request_id: str = "",
    ) -> Transacted:
        """Carry out a transaction that is not refused."""
        return expect(Transacted, self.run(TransactCells(compares, then, otherwise, request_id)))

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


def put_part(key: str, value: str = "", session_id: str = "", ttl_ms: int = 0) -> PutOperation:
    """Return the part of a transaction that writes a cell."""
    return PutOperation(key.encode(), value.encode(), SessionId(session_id), ttl_ms)


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
