"""Which commands are taken while the leader's log has little space left (compaction.LogSpace)."""

from typing import Final

from cluster.errors import Overloaded
from lockstate.catalogue import FREES
from lockstate.words.cell_operations import PutOperation, TakeOperation
from lockstate.words.commands.cells import TransactCells
from lockstate.words.commands.entries import Command
from lockstate.words.commands.holds import Release
from lockstate.words.commands.streams import Numbered

RETRY_MS: Final = 1_000
"""The time, in ms, after which a client that was refused for want of room may ask again."""


def deciding(command: Command) -> type[Command]:
    """Return the class by which a command is taken: one with parts that only free something is a release."""
    if isinstance(command, Numbered):
        only_frees = all(type(each) in FREES for each in command.commands)
    elif isinstance(command, TransactCells):
        parts = (*command.then, *command.otherwise)
        only_frees = not any(isinstance(part, PutOperation | TakeOperation) for part in parts)
    else:
        return type(command)
    return Release if only_frees else type(command)


def check_log_space(command: type[Command], *, for_anything: bool, for_what_frees: bool) -> None:
    """Raise Overloaded if the leader has no room for such a command."""
    if for_anything or (for_what_frees and command in FREES):
        return
    refusal = Overloaded(
        "the leader's log has no room left, because it cannot write snapshots: only requests that free"
        " something are accepted"
        if for_what_frees
        else "the leader's log is full, because it cannot write snapshots"
    )
    refusal.retry_after_ms = RETRY_MS
    raise refusal
