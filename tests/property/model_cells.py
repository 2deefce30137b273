"""Cells in the model: a list that is searched from end to end."""

from operator import attrgetter, eq, gt, lt, ne

from lockstate.words import limits
from lockstate.words.cell_operations import (
    CellCompare,
    CellField,
    CellOperation,
    DeleteOperation,
    GetOperation,
    PutOperation,
    Relation,
)
from lockstate.words.commands.cells import DeleteCells, PutCell
from lockstate.words.events import CellEvent, CellEventKind
from lockstate.words.ids import NO_OWNER, SessionId
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import CellRead, CellsDeleted, CellWritten, Result
from lockstate.words.views import CellView
from tests.property.model_namespaces import refuse_cells
from tests.property.model_principals import is_foreign, refuse_more
from tests.property.model_records import Cell, ModelState

BAD = Refused(Reason.INVALID_REQUEST, "")
RELATIONS = {Relation.EQUAL: eq, Relation.NOT_EQUAL: ne, Relation.LESS: lt, Relation.GREATER: gt}


def refuse_bad_cells(command: PutCell | DeleteCells) -> list[Refused | None]:
    """Return what is wrong with a command about cells, whatever the state."""
    if isinstance(command, PutCell):
        return check_operation(command)
    shortest = 0 if command.is_prefix else 1
    return [None if shortest <= len(command.key) <= limits.CELL_KEY_BYTES_MAX else BAD]


def check_operation(operation: PutCell | CellOperation) -> list[Refused | None]:
    """Return what is wrong with a change of a cell, or a read of one."""
    checks: list[Refused | None] = [None if 0 < len(operation.key) <= limits.CELL_KEY_BYTES_MAX else BAD]
    if (
        isinstance(operation, PutOperation)
        and operation.keeps_lease
        and (operation.session_id or operation.ttl_ms)
    ):
        return [BAD]
    if isinstance(operation, PutCell | PutOperation):
        checks.append(BAD if len(operation.value) > limits.CELL_VALUE_BYTES_MAX else None)
        checks.append(BAD if operation.session_id and operation.ttl_ms else None)
        checks.append(limits.check_ttl(operation.ttl_ms) if operation.ttl_ms else None)
    # A value that is too long is told first, and a wrong ttl last.
    return [*checks[1:3], checks[0], *checks[3:]]


def change_cells(state: ModelState, command: PutCell | DeleteCells) -> Result:
    """Do what a command about cells asks for, as a whole."""
    if isinstance(command, PutCell):
        refused = refuse_puts(state, [command])
        if refused is None:
            state.cells_revision += 1
        return refused or do(state, command)  # type: ignore[return-value]
    found = [
        cell
        for cell in in_order(state)
        if (cell.key.startswith(command.key) if command.is_prefix else cell.key == command.key)
    ]
    ended = found[: limits.CELLS_DELETED_MAX]
    end_cells(state, ended, CellEventKind.DELETED)
    return CellsDeleted(len(ended), state.cells_revision, len(found) > len(ended))


def end_cells(state: ModelState, cells: list[Cell], kind: CellEventKind) -> None:
    """End cells together."""
    state.cells_revision += bool(cells)
    for cell in cells:
        _end(state, cell, kind)


def end_cells_of(state: ModelState, session_id: SessionId, kind: CellEventKind) -> None:
    """End the cells of a session."""
    end_cells(state, [cell for cell in in_order(state) if cell.session_id == session_id], kind)


def in_order(state: ModelState) -> list[Cell]:
    """Return all cells by key."""
    return sorted(state.cells, key=attrgetter("key"))


def cell_view(state: ModelState, cell: Cell) -> CellView:
    """Return a cell as anybody may see it."""
    session = state.session(cell.session_id)
    lease = session.lease if session else cell.lease
    return CellView(
        cell.key,
        cell.value,
        cell.create_revision,
        cell.mod_revision,
        cell.version,
        session.owner if session else NO_OWNER,
        None if lease is None else max(0, lease.expires_at_ms - state.now_ms),
    )


def is_true_of_cell(state: ModelState, compare: CellCompare) -> bool:
    """Whether a compare with a cell is true."""
    cell = state.cell(compare.key)
    if compare.of is CellField.VALUE:
        if cell is None:
            return compare.relation is Relation.NOT_EQUAL
        return bool(RELATIONS[compare.relation](cell.value, compare.value))
    number = 0 if cell is None else getattr(cell, compare.of.value)
    return bool(RELATIONS[compare.relation](number, compare.number))


def refuse_puts(state: ModelState, puts: list[PutCell | PutOperation]) -> Refused | None:
    """Return the refusal of writes that cannot be done together."""
    for put in puts:
        session = state.session(put.session_id)
        if put.session_id and (session is None or is_foreign(state, session)):
            return Refused(Reason.SESSION_EXPIRED, "")
    shares = [_share(state, put) for put in puts]
    return (
        refuse_more(state, "cells", sum(cells for cells, _ in shares))
        or refuse_more(state, "bytes", sum(size_bytes for _, size_bytes in shares))
        or refuse_cells(state, puts)
    )


def _share(state: ModelState, put: PutCell | PutOperation) -> tuple[int, int]:
    """Return how many cells and bytes more are of who writes."""
    cell, has = state.cell(put.key), len(put.key) + len(put.value)
    if cell is None or (cell.principal != state.principal and len(put.value) > len(cell.value)):
        return 1, has
    return 0, len(put.value) - len(cell.value) if cell.principal == state.principal else 0


def do(state: ModelState, operation: PutCell | CellOperation) -> CellWritten | CellsDeleted | CellRead:
    """Do one operation."""
    cell = state.cell(operation.key)
    if isinstance(operation, GetOperation):
        return read(state, operation.key)
    if isinstance(operation, DeleteOperation):
        if cell is not None:
            _end(state, cell, CellEventKind.DELETED)
        return CellsDeleted(int(cell is not None), state.cells_revision)
    if cell is None:
        cell = Cell(operation.key, b"", state.cells_revision, principal=state.principal)
        state.cells.append(cell)
    if len(operation.value) > len(cell.value):
        cell.principal = state.principal
    cell.value, cell.writer = operation.value, state.principal
    cell.mod_revision, cell.version = state.cells_revision, cell.version + 1
    if not (isinstance(operation, PutOperation) and operation.keeps_lease):
        cell.session_id = operation.session_id
        cell.lease = state.new_lease(operation.ttl_ms) if operation.ttl_ms else None
    _tell(state, CellEventKind.PUT, cell)
    return CellWritten(cell.create_revision, cell.mod_revision, cell.version)


def read(state: ModelState, key: bytes) -> CellRead:
    """Return what a read of a cell tells."""
    cell = state.cell(key)
    return CellRead(None if cell is None else cell_view(state, cell))


def _end(state: ModelState, cell: Cell, kind: CellEventKind) -> None:
    state.cells.remove(cell)
    cell.mod_revision, cell.version = state.cells_revision, 0
    _tell(state, kind, cell)


def _tell(state: ModelState, kind: CellEventKind, cell: Cell) -> None:
    state.cell_events.append(
        CellEvent(state.revision, state.now_ms, kind, cell.key, cell.mod_revision, cell.version)
    )
