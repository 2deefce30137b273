"""What commands do to cells: writes and deletions, alone and as parts of transactions.

A command is carried out as a whole or refused as a whole: everything that could refuse a part of it is looked
at before the first part is done. It changes the revision of the table by one, or not at all.
"""

from collections.abc import Sequence
from itertools import islice

from lockstate.reads.views import cell_view
from lockstate.rules.checks import invalid
from lockstate.rules.effects import Effects
from lockstate.rules.refusals import SESSION_EXPIRED
from lockstate.tables import budget
from lockstate.tables.cells import Cell, size_of
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.cell_operations import CellOperation, GetOperation, PutOperation
from lockstate.words.commands.cells import DeleteCells, PutCell
from lockstate.words.events import CellEventKind
from lockstate.words.ids import SessionId
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import CellDone, CellRead, CellsDeleted, CellWritten, Result


def check_put(command: PutCell | PutOperation) -> Refused | None:
    """Return what is wrong with a write, whatever the state, or None."""
    if (
        0 < len(command.key) <= limits.CELL_KEY_BYTES_MAX
        and len(command.value) <= limits.CELL_VALUE_BYTES_MAX
        and not command.ttl_ms
    ):
        return None
    if len(command.value) > limits.CELL_VALUE_BYTES_MAX:
        return invalid(
            f"value: {len(command.value)} bytes; at most {limits.CELL_VALUE_BYTES_MAX} are allowed"
        )
    if command.session_id and command.ttl_ms:
        return invalid("session_id, ttl_ms: give at most one of the two")
    return limits.check_key(command.key) or (limits.check_ttl(command.ttl_ms) if command.ttl_ms else None)


def check_put_part(operation: PutOperation) -> Refused | None:
    """Return what is wrong with a write in a transaction, whatever the state, or None."""
    if operation.keeps_lease and (operation.session_id or operation.ttl_ms):
        return invalid("keeps_lease: give no session_id or ttl_ms with it")
    return check_put(operation)


class Cells:
    """Changes the cells of one state."""

    def __init__(self, state: State, effects: Effects) -> None:
        self._state = state
        self._cells = state.cells
        self._effects = effects

    # -- commands -------------------------------------------------------------------------------------------

    def put(self, command: PutCell) -> Result:
        """Write a cell, unless there is no room for it or its session is over."""
        refused = check_put(command) or self.check_room((command,))
        if refused is not None:
            return refused
        self._cells.revision += 1
        return self._write(command)

    def delete(self, command: DeleteCells) -> Result:
        """Delete a cell, or a limited number of those with a prefix. There may be none."""
        cells, is_more = self._cells, False
        if not command.is_prefix:
            refused = limits.check_key(command.key)
            if refused is not None:
                return refused
            cell = cells.get(command.key)
            found = [] if cell is None else [cell]
        elif len(command.key) > limits.CELL_KEY_BYTES_MAX:
            return invalid(
                f"prefix: {len(command.key)} bytes; at most {limits.CELL_KEY_BYTES_MAX} are allowed"
            )
        else:
            found = list(islice(cells.below(command.key, b""), limits.CELLS_DELETED_MAX + 1))
            is_more = len(found) > limits.CELLS_DELETED_MAX
            found = found[: limits.CELLS_DELETED_MAX]
        self.remove(found, CellEventKind.DELETED)
        return CellsDeleted(len(found), cells.revision, is_more)

    def end_session(self, session_id: SessionId, kind: CellEventKind) -> None:
        """Remove the cells of a session that ends, in order of their keys."""
        of_session = self._cells.of_session(session_id)
        if of_session:
            self.remove([of_session[key] for key in sorted(of_session)], kind)

    def remove(self, cells: Sequence[Cell], kind: CellEventKind) -> None:
        """Remove cells with one revision of the table."""
        if cells:
            self._cells.revision += 1
            for cell in cells:
                self._remove(cell, kind)

    def _remove(self, cell: Cell, kind: CellEventKind) -> None:
        """Remove a cell at the present revision of the table."""
        self._cells.remove(cell)
        self._state.principals.drop_cell(cell.key, size_of(cell))
        self._state.namespaces.count_cell(cell, -1)
        self._effects.tell_cell(kind, cell)

    # -- parts of transactions ------------------------------------------------------------------------------

    def check_room(self, puts: Sequence[PutCell | PutOperation]) -> Refused | None:
        """Refuse writes for which there is no room, or whose session is over."""
        state, cells = self._state, self._cells
        new_count = growth_bytes = 0
        joining: dict[SessionId, int] = {}
        for put in puts:
            if put.session_id and state.principals.is_foreign(put.session_id):
                return SESSION_EXPIRED
            cell = cells.get(put.key)
            if cell is None:
                new_count += 1
                growth_bytes += size_of(put)
            else:
                growth_bytes += size_of(put) - size_of(cell)
            if put.session_id and (cell is None or cell.session_id != put.session_id):
                joining[put.session_id] = joining.get(put.session_id, 0) + 1
        refused = self._check_sessions(joining) if joining else None
        if refused is None and state.principals.quotas:
            refused = self._check_quota(puts)
        if refused is None and state.spaces:
            refused = state.namespaces.check_cells([(cells.get(put.key), put) for put in puts])
        if refused is not None or (growth_bytes <= 0 and not new_count):
            return refused
        if len(cells) + new_count > limits.CELLS_COUNT_MAX:
            return _overloaded(f"the cluster has {len(cells)} cells; no more are allowed")
        if cells.content_bytes + growth_bytes > limits.CELLS_BYTES_MAX:
            return _overloaded(f"all cells may have {limits.CELLS_BYTES_MAX} bytes of keys and values")
        return budget.check_room(state) if state.is_tight else None

    def _check_sessions(self, joining: dict[SessionId, int]) -> Refused | None:
        """Refuse cells for sessions that are over, or have too many of them."""
        for session_id, count in joining.items():
            if session_id not in self._state.sessions:
                return SESSION_EXPIRED
            if len(self._cells.of_session(session_id)) + count > limits.SESSION_CELLS_MAX:
                return _overloaded(f"a session may have {limits.SESSION_CELLS_MAX} cells")
        return None

    def _check_quota(self, puts: Sequence[PutCell | PutOperation]) -> Refused | None:
        """Refuse writes for which the quota of who asks has no room."""
        principals = self._state.principals
        shares = [principals.share_of_write(put.key, self._size_at(put.key), size_of(put)) for put in puts]
        return principals.check("cells", sum([cells for cells, _ in shares])) or principals.check(
            "bytes", sum([size_bytes for _, size_bytes in shares])
        )

    def _size_at(self, key: bytes) -> int | None:
        cell = self._cells.get(key)
        return None if cell is None else size_of(cell)

    def do(self, operation: CellOperation) -> CellDone:
        """Carry out one operation, for which there is room, at the present revision of the table."""
        if type(operation) is PutOperation:
            return self._write(operation)
        if type(operation) is GetOperation:
            return self.read(operation.key)
        cell = self._cells.get(operation.key)
        if cell is None:
            return CellsDeleted(0, self._cells.revision)
        self._remove(cell, CellEventKind.DELETED)
        return CellsDeleted(1, self._cells.revision)

    def _write(self, put: PutCell | PutOperation) -> CellWritten:
        """Write at the present revision of the table."""
        state = self._state
        if state.principals.asking or state.principals.cells:
            state.principals.count_write(put.key, self._size_at(put.key), size_of(put))
        order = state.take_order() if put.ttl_ms else 0
        had_bytes = self._size_at(put.key) if state.spaces else None
        cell = self._cells.write(put, order, state.now_ms)
        if state.spaces:
            if had_bytes is None:
                state.namespaces.count_cell(cell, 1)
            else:
                state.namespaces.count_rewrite(cell, had_bytes)
        self._effects.tell_cell(CellEventKind.PUT, cell)
        return CellWritten(cell.create_revision, cell.mod_revision, cell.version)

    def read(self, key: bytes) -> CellRead:
        """Return the cell of a key as it is."""
        cell = self._cells.get(key)
        return CellRead(None if cell is None else cell_view(self._state, cell))


def _overloaded(detail: str) -> Refused:
    return Refused(Reason.OVERLOADED, detail, (), 0, limits.RETRY_MS)
