"""Cells in the model: a list that is searched from end to end."""

from operator import attrgetter, eq, gt, lt, ne

from lockstate.words import limits
from lockstate.words.cell_operations import (
    CellCompare,
    CellField,
    CellOperation,
    DeleteOperation,
    GetOperation,
    HoldCompare,
    PutOperation,
    Relation,
)
from lockstate.words.commands import DeleteCells, PutCell, TransactCells
from lockstate.words.ids import NO_OWNER, SessionId
from lockstate.words.results import (
    CellEvent,
    CellEventKind,
    CellRead,
    CellsDeleted,
    CellView,
    CellWritten,
    Reason,
    Refused,
    Result,
    Transacted,
)
from tests.property.model_namespaces import refuse_cells
from tests.property.model_principals import is_foreign, refuse_more
from tests.property.model_records import Cell, ModelState

BAD = Refused(Reason.INVALID_REQUEST, "")
RELATIONS = {Relation.EQUAL: eq, Relation.NOT_EQUAL: ne, Relation.LESS: lt, Relation.GREATER: gt}
CHANGES = (PutCell, PutOperation, DeleteOperation)


def refuse_bad_cells(command: PutCell | DeleteCells | TransactCells) -> list[Refused | None]:
    """Return what is wrong with a command about cells, whatever the state."""
    match command:
        case PutCell():
            return _check_operation(command)
        case DeleteCells():
            shortest = 0 if command.is_prefix else 1
            return [None if shortest <= len(command.key) <= limits.CELL_KEY_BYTES_MAX else BAD]
    parts = (command.compares, command.then, command.otherwise)
    found = [BAD for part in parts if len(part) > limits.TRANSACTION_PARTS_MAX]
    checks: list[Refused | None] = [*found]
    for compare in command.compares:
        if isinstance(compare, HoldCompare):
            fits = 0 < len(compare.hold_id) <= limits.ID_CHARS_MAX
        else:
            fits = 0 < len(compare.key) <= limits.CELL_KEY_BYTES_MAX
        checks.append(None if fits else BAD)
    for branch in (command.then, command.otherwise):
        changed = [operation.key for operation in branch if isinstance(operation, CHANGES)]
        checks.append(BAD if len(set(changed)) < len(changed) else None)
        for operation in branch:
            checks += _check_operation(operation)
    return checks


def _check_operation(operation: PutCell | CellOperation) -> list[Refused | None]:
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


def change_cells(state: ModelState, command: PutCell | DeleteCells | TransactCells) -> Result:
    """Do what a command about cells asks for, as a whole."""
    match command:
        case PutCell():
            result = _change(state, [command])
            return result if isinstance(result, Refused) else result[0]  # type: ignore[return-value]
        case DeleteCells():
            found = [
                cell
                for cell in in_order(state)
                if (cell.key.startswith(command.key) if command.is_prefix else cell.key == command.key)
            ]
            ended = found[: limits.CELLS_DELETED_MAX]
            end_cells(state, ended, CellEventKind.DELETED)
            return CellsDeleted(len(ended), state.cells_revision, len(found) > len(ended))
    succeeded = all(_is_true(state, compare) for compare in command.compares)
    results = _change(state, list(command.then if succeeded else command.otherwise))
    if isinstance(results, Refused):
        return results
    return Transacted(succeeded, state.cells_revision, tuple(results))


def read_again(state: ModelState, command: TransactCells, first: Transacted) -> Transacted:
    """Return the outcome of a repeated transaction: what it read is what is there now."""
    branch = command.then if first.succeeded else command.otherwise
    results = [
        _read(state, operation.key) if isinstance(operation, GetOperation) else result
        for operation, result in zip(branch, first.results, strict=True)
    ]
    return Transacted(first.succeeded, first.revision, tuple(results))


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


def _is_true(state: ModelState, compare: CellCompare | HoldCompare) -> bool:
    if isinstance(compare, HoldCompare):
        hold = state.hold(compare.hold_id)
        return hold is not None and not is_foreign(state, hold) and compare.token in {0, hold.token}
    cell = state.cell(compare.key)
    if compare.of is CellField.VALUE:
        if cell is None:
            return compare.relation is Relation.NOT_EQUAL
        return bool(RELATIONS[compare.relation](cell.value, compare.value))
    number = 0 if cell is None else getattr(cell, compare.of.value)
    return bool(RELATIONS[compare.relation](number, compare.number))


def _change(
    state: ModelState, operations: list[PutCell | CellOperation]
) -> Refused | list[CellWritten | CellsDeleted | CellRead]:
    """Do all operations, or none of them."""
    puts = [operation for operation in operations if isinstance(operation, PutCell | PutOperation)]
    for put in puts:
        session = state.session(put.session_id)
        if put.session_id and (session is None or is_foreign(state, session)):
            return Refused(Reason.SESSION_EXPIRED, "")
    shares = [_share(state, put) for put in puts]
    too_many = refuse_more(state, "cells", sum(cells for cells, _ in shares)) or refuse_more(
        state, "bytes", sum(size_bytes for _, size_bytes in shares)
    )
    if too_many is None:
        too_many = refuse_cells(state, puts)
    if too_many is not None:
        return too_many
    is_change = puts or any(isinstance(part, DeleteOperation) and state.cell(part.key) for part in operations)
    state.cells_revision += bool(is_change)
    return [_do(state, operation) for operation in operations]


def _share(state: ModelState, put: PutCell | PutOperation) -> tuple[int, int]:
    """Return how many cells and bytes more are of who writes."""
    cell, has = state.cell(put.key), len(put.key) + len(put.value)
    if cell is None or (cell.principal != state.principal and len(put.value) > len(cell.value)):
        return 1, has
    return 0, len(put.value) - len(cell.value) if cell.principal == state.principal else 0


def _do(state: ModelState, operation: PutCell | CellOperation) -> CellWritten | CellsDeleted | CellRead:
    cell = state.cell(operation.key)
    if isinstance(operation, GetOperation):
        return _read(state, operation.key)
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


def _read(state: ModelState, key: bytes) -> CellRead:
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
