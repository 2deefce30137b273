"""What transactions have taken, for checkers that follow holds and tokens."""

from lockstate.words.cell_operations import TakeOperation
from lockstate.words.commands.cells import TransactCells
from lockstate.words.commands.entries import Command, Undecodable
from lockstate.words.results import LockTaken, Result, Transacted


def takes_of(command: Command | Undecodable, result: Result) -> list[tuple[TakeOperation, LockTaken]]:
    """Return what a transaction has taken, with what was told of each."""
    if not (isinstance(command, TransactCells) and isinstance(result, Transacted)):
        return []
    operations = command.then if result.succeeded else command.otherwise
    return [
        (take, taken)
        for take, taken in zip(operations, result.results, strict=True)
        if isinstance(take, TakeOperation) and isinstance(taken, LockTaken)
    ]
