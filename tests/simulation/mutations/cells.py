"""Defects of cells and of transactions."""

from itertools import count
from typing import Final

import msgspec

from lockstate.rules.cells import Cells
from lockstate.rules.lock_parts import LockParts
from lockstate.rules.transactions import Transactions
from lockstate.tables.cells import Cell, CellTable
from lockstate.words.cell_operations import Compare, HoldCompare, LockCompare
from lockstate.words.commands.cells import DeleteCells, PutCell, TransactCells
from lockstate.words.events import CellEventKind
from lockstate.words.ids import SessionId
from lockstate.words.refusals import Refused
from lockstate.words.results import Result
from tests.simulation.mutations.mutation import Mutation, Surroundings, replaced

_CELLS: Final = Surroundings(minutes=1, client_settings={"cells_share": 0.7})

_HELD: Final = Surroundings(
    minutes=2, client_settings={"cells_share": 0.5, "vocabulary_share": 0.9, "think_s": 0.15}
)
"""Sessions end often."""

_is_true, _transact = Transactions._is_true, Transactions.transact
_put, _delete = Cells.put, Cells.delete
_give_lease = CellTable._give_lease
_numbers = count()


def _is_always_true(_transactions: Transactions, _compare: Compare) -> bool:
    """Write whatever others have written."""
    return True


def _is_true_without_hold(transactions: Transactions, compare: Compare) -> bool:
    """Let whoever had a hold once write for ever."""
    return isinstance(compare, HoldCompare) or _is_true(transactions, compare)


def _lease_of_first_write(cells: CellTable, cell: Cell, ttl_ms: int, order: int, now_ms: int) -> None:
    """Keep the lease that a cell has."""
    if not (ttl_ms and cell.ttl_ms):
        _give_lease(cells, cell, ttl_ms, order, now_ms)


def _transact_in_part(transactions: Transactions, command: TransactCells) -> Result:
    """Leave out the last operation."""
    then = command.then[:-1] if len(command.then) > 1 else command.then
    return _transact(transactions, msgspec.structs.replace(command, then=then))


def _is_never_looked_at(_locks: LockParts, _compare: LockCompare) -> bool:
    """Take a lock, and release one, whoever has it by now."""
    return True


def _transact_the_first(transactions: Transactions, command: TransactCells) -> Result:
    """Do the first operation even if another one is refused."""
    result = _transact(transactions, command)
    if isinstance(result, Refused):
        first = msgspec.structs.replace(command, then=command.then[:1], otherwise=command.otherwise[:1])
        _transact(transactions, first)
    return result


def _put_at_the_same_revision(cells: Cells, command: PutCell) -> Result:
    """Give every third write the revision of the change before."""
    table = cells._cells
    if table.revision and next(_numbers) % 3 == 0:
        table.revision -= 1
    return _put(cells, command)


def _end_no_cell(_cells: Cells, _session_id: SessionId, _kind: CellEventKind) -> None:
    """Let the cells of a session be when it ends."""


def _delete_all_below(cells: Cells, command: DeleteCells) -> Result:
    """Take a key for a prefix."""
    return _delete(cells, msgspec.structs.replace(command, is_prefix=True))


CELLS: Final = (
    Mutation(
        name="cell-compare-ignored",
        sentence="A transaction succeeds whatever it compares.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(Transactions, "_is_true", _is_always_true),
        surroundings=_CELLS,
    ),
    Mutation(
        name="cell-guard-outlives-hold",
        sentence="A write that depends on a hold is done after the hold has ended.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(Transactions, "_is_true", _is_true_without_hold),
        surroundings=_CELLS,
    ),
    Mutation(
        name="cell-lease-not-renewed",
        sentence="A cell that is written again ends when its first lease does.",
        found_by=("model-state", "model-events", "reply", "read-view"),
        apply=replaced(CellTable, "_give_lease", _lease_of_first_write),
        surroundings=_CELLS,
    ),
    Mutation(
        name="cell-transaction-in-part",
        sentence="A transaction leaves out its last operation.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(Transactions, "transact", _transact_in_part),
        surroundings=_CELLS,
    ),
    Mutation(
        name="transaction-lock-not-compared",
        sentence="A transaction takes and releases locks whoever holds them.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(LockParts, "is_true", _is_never_looked_at),
        surroundings=_CELLS,
    ),
    Mutation(
        name="transaction-refused-in-part",
        sentence="A transaction that is refused keeps its first operation.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(Transactions, "transact", _transact_the_first),
        surroundings=_CELLS,
    ),
    Mutation(
        name="cell-revision-twice",
        sentence="Two changes of cells have one revision.",
        found_by=("cells-rise", "reply", "model-state", "model-events"),
        apply=replaced(Cells, "put", _put_at_the_same_revision),
        surroundings=_CELLS,
    ),
    Mutation(
        name="cell-outlives-session",
        sentence="The cells of a session stay when it ends.",
        found_by=("reply", "model-state", "model-events", "read-view"),
        apply=replaced(Cells, "end_session", _end_no_cell),
        surroundings=_HELD,
    ),
    Mutation(
        name="cell-takes-others-along",
        sentence="Whoever deletes one cell deletes all whose keys begin with its key.",
        found_by=("reply", "model-state", "model-events", "read-view"),
        apply=replaced(Cells, "delete", _delete_all_below),
        surroundings=_CELLS,
    ),
)
