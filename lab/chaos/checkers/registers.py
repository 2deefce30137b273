"""The guarded register: with a fence no update is lost; without one, a client that stops loses some."""

from lab.chaos.checkers.violation import Violation
from lab.chaos.history import History, Operation


def lost_updates(history: History, *, is_fenced: bool) -> list[Operation]:
    """Return the writes that overwrote another value than the one that they started from."""
    return [
        operation
        for operation in history.operations
        if operation.kind == "register-write"
        and operation.outcome == "ok"
        and operation.arguments["is_fenced"] is is_fenced
        and operation.arguments["base"] != operation.result["before"]
    ]


def fenced_register(history: History) -> list[Violation]:
    """No update of a register with a fence is lost."""
    return objections(history, is_fenced=True)


def objections(history: History, *, is_fenced: bool) -> list[Violation]:
    """Return what is to be said of the updates that were lost."""
    return [
        Violation(
            checker="lost-update",
            text=f"{operation.name} went from {operation.arguments['base']} to "
            f"{operation.arguments['value']}, but was {operation.result['before']}",
            operations=(operation.id,),
            at_ns=operation.return_ns,
        )
        for operation in lost_updates(history, is_fenced=is_fenced)
    ]
