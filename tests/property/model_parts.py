"""The parts of transactions in the model: what is wrong with them, and what they tell the second time."""

from lockstate.words import limits
from lockstate.words.cell_operations import (
    CellCompare,
    DeleteOperation,
    EndOperation,
    GetOperation,
    HoldCompare,
    LockCompare,
    Operation,
    PutOperation,
    RenewOperation,
    TakeOperation,
)
from lockstate.words.commands.cells import TransactCells
from lockstate.words.ids import HoldId
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import CellDone, LockDone, LockTaken, Renewed, Transacted
from tests.property.model_cells import check_operation, read
from tests.property.model_principals import is_foreign
from tests.property.model_records import ModelState

BAD = Refused(Reason.INVALID_REQUEST, "")


def refuse_bad_transaction(command: TransactCells) -> list[Refused | None]:
    """Return what is wrong with a transaction, whatever the state."""
    checks: list[Refused | None] = [
        BAD
        for part in (command.compares, command.then, command.otherwise)
        if len(part) > limits.TRANSACTION_PARTS_MAX
    ]
    for compare in command.compares:
        match compare:
            case CellCompare():
                fits = 0 < len(compare.key) <= limits.CELL_KEY_BYTES_MAX
            case HoldCompare():
                fits = 0 < len(compare.hold_id) <= limits.ID_CHARS_MAX
            case _:
                fits = len(compare.hold_id) <= limits.ID_CHARS_MAX
                checks.append(limits.check_name(compare.name))
        checks.append(None if fits else BAD)
    named = [compare.hold_id for compare in command.compares if isinstance(compare, LockCompare)]
    nobody: list[HoldId] = []
    for branch, known in ((command.then, named), (command.otherwise, nobody)):
        things = [_thing(operation) for operation in branch if not isinstance(operation, GetOperation)]
        taken = [operation.name for operation in branch if isinstance(operation, TakeOperation)]
        checks.append(BAD if len(set(things)) < len(things) or len(set(taken)) < len(taken) else None)
        for operation in branch:
            checks += _check(operation)
            is_forced = isinstance(operation, EndOperation) and bool(operation.reason)
            checks.append(BAD if is_forced and _thing(operation) not in known else None)
    return checks


def _thing(operation: Operation) -> bytes | str:
    """Return what is written, or with which hold something is done."""
    if isinstance(operation, PutOperation | DeleteOperation | GetOperation):
        return operation.key
    return operation.hold_id


def _check(operation: Operation) -> list[Refused | None]:
    match operation:
        case TakeOperation():
            return [
                limits.check_name(operation.name),
                None if 0 < len(operation.hold_id) <= limits.ID_CHARS_MAX else BAD,
                limits.check_text("owner", operation.owner, limits.OWNER_BYTES_MAX),
                limits.check_text("value", operation.value, limits.HOLD_VALUE_BYTES_MAX),
                limits.check_ttl(operation.ttl_ms) if operation.ttl_ms else None,
            ]
        case EndOperation():
            return [limits.check_text("reason", operation.reason, limits.REASON_BYTES_MAX)]
        case RenewOperation():
            return [limits.check_ttl(operation.ttl_ms)]
    return check_operation(operation)


def done_again(state: ModelState, command: TransactCells, first: Transacted) -> Transacted:
    """Return the outcome of a repeated transaction: what it read, and what is left, is what is there now."""
    branch = command.then if first.succeeded else command.otherwise
    results: list[CellDone | LockDone] = []
    for operation, result in zip(branch, first.results, strict=True):
        if isinstance(operation, GetOperation):
            results.append(read(state, operation.key))
        elif isinstance(operation, TakeOperation | RenewOperation) and isinstance(
            result, LockTaken | Renewed
        ):
            hold = state.hold(operation.hold_id)
            left_ms = state.left_ms(hold) if hold is not None and not is_foreign(state, hold) else 0
            is_take = isinstance(result, LockTaken)
            results.append(
                LockTaken(result.token, left_ms)
                if is_take
                else Renewed(result.token, left_ms, result.revocations)  # type: ignore[union-attr]
            )
        else:
            results.append(result)
    return Transacted(first.succeeded, first.revision, tuple(results))
