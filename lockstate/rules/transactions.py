"""Transactions: compares, and what is done then to cells and locks, all of it or nothing.

Everything that could refuse a part is looked at before the first part is done. Locks are in
`lock_parts`, cells in `cells`.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from lockstate.rules.cells import Cells, check_put_part
from lockstate.rules.checks import invalid
from lockstate.rules.lock_parts import LOCK_OPERATIONS, LockParts, check_lock_part, refuse_forced
from lockstate.tables.cells import Cell
from lockstate.tables.claim_table import Freed
from lockstate.tables.principals import lease_id_of
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.cell_operations import (
    CellCompare,
    CellField,
    Compare,
    DeleteOperation,
    GetOperation,
    HoldCompare,
    LockCompare,
    LockOperation,
    Operation,
    PutOperation,
    Relation,
    TakeOperation,
)
from lockstate.words.commands.cells import TransactCells
from lockstate.words.refusals import Refused
from lockstate.words.results import CellDone, LockDone, LockTaken, Renewed, Result, Transacted

_VALUE: Final = CellField.VALUE
_EQUAL, _NOT_EQUAL, _LESS = Relation.EQUAL, Relation.NOT_EQUAL, Relation.LESS


def check_transaction(command: TransactCells) -> Refused | None:
    """Return what is wrong with a transaction, whatever the state, or None."""
    branches = (("then", command.then), ("else", command.otherwise))
    for field, parts in (("compares", command.compares), *branches):
        if len(parts) > limits.TRANSACTION_PARTS_MAX:
            return invalid(f"{field}: {len(parts)}; at most {limits.TRANSACTION_PARTS_MAX} are allowed")
    for compare in command.compares:
        refused = _check_compare(compare)
        if refused is not None:
            return refused
    for field, operations in branches:
        refused = _check_branch(field, operations)
        if refused is not None:
            return refused
    return None if _is_of_cells(command.then + command.otherwise) else refuse_forced(command)


def _is_of_cells(operations: Iterable[Operation]) -> bool:
    """Whether none of these is about a lock."""
    return LOCK_OPERATIONS.isdisjoint(map(type, operations))


def _check_compare(compare: Compare) -> Refused | None:
    if isinstance(compare, CellCompare):
        return limits.check_key(compare.key)
    if isinstance(compare, HoldCompare):
        return limits.check_made_id("hold_id", compare.hold_id)
    refused = limits.check_made_id("hold_id", compare.hold_id) if compare.hold_id else None
    return refused or limits.check_name(compare.name)


def _check_branch(field: str, operations: Iterable[Any]) -> Refused | None:
    changed: set[bytes | str] = set()
    names: set[str] = set()
    for operation in operations:
        kind: type = operation.__class__
        refused = _check_operation(operation)
        if refused is not None:
            return refused
        if kind is GetOperation:
            continue
        of = operation.hold_id if kind in LOCK_OPERATIONS else operation.key
        if of in changed:
            what = (
                "a hold is taken, ended or renewed" if isinstance(of, str) else "a key is written or deleted"
            )
            return invalid(f"{field}: {what} twice")
        changed.add(of)
        if kind is TakeOperation:
            if operation.name in names:
                return invalid(f"{field}: a name is taken twice")
            names.add(operation.name)
    if not names:
        return None
    claims_count = sum([1 + name.count("/") for name in names])
    if claims_count > limits.REQUEST_CLAIMS_MAX:
        taken = f"{claims_count} names are taken with their ancestors"
        return invalid(f"{field}: {taken}; at most {limits.REQUEST_CLAIMS_MAX} are allowed")
    return None


def _check_operation(operation: Any) -> Refused | None:
    kind: type = operation.__class__
    if kind in LOCK_OPERATIONS:
        return check_lock_part(operation)
    return check_put_part(operation) if kind is PutOperation else limits.check_key(operation.key)


class Transactions:
    """Carries out the transactions of one state."""

    def __init__(self, state: State, cells: Cells, locks: LockParts) -> None:
        self._state = state
        self._cells = cells
        self._locks = locks

    def transact(self, command: TransactCells) -> Result:
        """Compare, and carry out one of the two branches."""
        refused = check_transaction(command)
        if refused is not None:
            return refused
        succeeded, operations = self._branch(command)
        refused = self._check(command, operations)
        if refused is not None:
            return refused
        table = self._state.cells
        if any(map(self._changes_cell, operations)):
            table.revision += 1
        freed: Freed = []
        results = tuple([self._do(command, operation, freed) for operation in operations])
        self._locks.serve(freed)
        return Transacted(succeeded, table.revision, results)

    def check_room(self, command: TransactCells) -> Refused | None:
        """Return why a transaction that is well formed would be refused now, or None. It changes nothing."""
        return check_transaction(command) or self._check(command, self._branch(command)[1])

    def _check(self, command: TransactCells, operations: tuple[Any, ...]) -> Refused | None:
        """Look at all that could refuse a part. Cells count beside what the locks leave and take."""
        puts = [operation for operation in operations if operation.__class__ is PutOperation]
        if _is_of_cells(operations):
            return self._cells.check_room(puts)
        locks = [operation for operation in operations if isinstance(operation, LockOperation)]
        return self._locks.check(locks, command.endless_not_for, lambda: self._cells.check_room(puts))

    def _changes_cell(self, operation: Operation) -> bool:
        if type(operation) is DeleteOperation:
            return operation.key in self._state.cells
        return type(operation) is PutOperation

    def _do(self, command: TransactCells, operation: Any, freed: Freed) -> CellDone | LockDone:
        kind: type = operation.__class__
        if kind in LOCK_OPERATIONS:
            return self._locks.do(operation, command.endless_not_for, freed)
        return self._cells.do(operation)

    def repeated(self, command: TransactCells, first: Transacted) -> Transacted:
        """Return the first outcome of a transaction, with what it read, and what is left, as it is now."""
        operations = command.then if first.succeeded else command.otherwise
        results = [
            self._as_it_is_now(operation, result)
            for operation, result in zip(operations, first.results, strict=True)
        ]
        return msgspec.structs.replace(first, results=tuple(results))

    def _as_it_is_now(self, operation: Operation, result: CellDone | LockDone) -> CellDone | LockDone:
        if isinstance(operation, GetOperation):
            return self._cells.read(operation.key)
        if isinstance(operation, LockOperation) and isinstance(result, LockTaken | Renewed):
            return self._locks.repeated(operation, result)
        return result

    def _branch(self, command: TransactCells) -> tuple[bool, tuple[Operation, ...]]:
        """Return whether all compares of a transaction are true, and what it does then."""
        succeeded = all(map(self._is_true, command.compares))
        return succeeded, command.then if succeeded else command.otherwise

    def _is_true(self, compare: Compare) -> bool:
        if isinstance(compare, CellCompare):
            cell = self._state.cells.get(compare.key)
            if compare.of is not _VALUE:
                number = 0 if cell is None else _number_of(cell, compare)
                return _stands(compare.relation, number, compare.number)
            if cell is None:
                return compare.relation is _NOT_EQUAL
            return _stands(compare.relation, cell.value, compare.value)
        if isinstance(compare, LockCompare):
            return self._locks.is_true(compare)
        hold = self._state.holds.get(compare.hold_id)
        if hold is None or self._state.principals.is_foreign(lease_id_of(hold)):
            return False
        return compare.token in (0, hold.token)


def _number_of(cell: Cell, compare: CellCompare) -> int:
    match compare.of:
        case CellField.VERSION:
            return cell.version
        case CellField.CREATE_REVISION:
            return cell.create_revision
        case _:
            return cell.mod_revision


def _stands(relation: Relation, left: int | bytes, right: int | bytes) -> bool:
    """Return whether `left` stands to `right` as `relation` says. Both are of one type."""
    if relation is _EQUAL:
        return left == right
    if relation is _NOT_EQUAL:
        return left != right
    return left < right if relation is _LESS else left > right  # type: ignore[operator]
