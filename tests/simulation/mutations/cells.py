"""Defects of cells and of transactions."""

from itertools import count
from typing import Final

import msgspec

from lockstate.rules.transactions import Transactions
from lockstate.tables.cells import Cell, CellTable
from lockstate.words.cell_operations import Compare, HoldCompare
from lockstate.words.commands import PutCell, TransactCells
from lockstate.words.results import Result
from tests.simulation.mutations.mutation import Mutation, Surroundings, replaced

_CELLS: Final = Surroundings(minutes=1, client_settings={"cells_share": 0.7})

_is_true, _put, _transact = Transactions._is_true, Transactions.put, Transactions.transact
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


def _put_at_the_same_revision(transactions: Transactions, command: PutCell) -> Result:
    """Give every third write the revision of the change before."""
    cells = transactions._cells
    if cells.revision and next(_numbers) % 3 == 0:
        cells.revision -= 1
    return _put(transactions, command)


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
        name="cell-revision-twice",
        sentence="Two changes of cells have one revision.",
        found_by=("cells-rise", "reply", "model-state", "model-events"),
        apply=replaced(Transactions, "put", _put_at_the_same_revision),
        surroundings=_CELLS,
    ),
)
