"""What is taken while the leader's log has little room."""

from typing import get_args

import pytest

from cluster.commands.log_space import RETRY_MS, check_log_space, deciding
from cluster.errors import Overloaded
from lockstate.catalogue import FREES
from lockstate.words.cell_operations import (
    DeleteOperation,
    EndOperation,
    GetOperation,
    LockCompare,
    PutOperation,
    RenewOperation,
    TakeOperation,
)
from lockstate.words.commands.cells import TransactCells
from lockstate.words.commands.entries import Command, Tick
from lockstate.words.commands.holds import Acquire, Release
from lockstate.words.commands.streams import EndWait, Numbered
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.modes import Mode

TAKES_ROOM = {
    "OpenSession",
    "Acquire",
    "Convert",
    "HandOver",
    "AcquirePermits",
    "AcquireSeveral",
    "AddLocks",
    "ResizeSemaphore",
    "Campaign",
    "Proclaim",
    "TakeRate",
    "AdvanceFence",
    "PutCell",
    "TransactCells",
    "ResumeStream",
    "Numbered",
    "OnBehalf",  # never asked for: what is in it decides
}


def test_every_command_is_sorted() -> None:
    """Somebody has thought about a new one."""
    assert {command.__name__ for command in get_args(Command)} == TAKES_ROOM | {
        command.__name__ for command in FREES - {EndWait}
    }


@pytest.mark.parametrize("command", get_args(Command))
def test_what_frees_is_taken_longest(command: type[Command]) -> None:
    """At the end nothing is taken; a client is told when to ask again."""
    check_log_space(command, for_anything=True, for_what_frees=True)
    if command in FREES:
        check_log_space(command, for_anything=False, for_what_frees=True)
    else:
        with pytest.raises(Overloaded, match="only requests that free") as refused:
            check_log_space(command, for_anything=False, for_what_frees=True)
        assert refused.value.retry_after_ms == RETRY_MS
    with pytest.raises(Overloaded, match="log is full"):
        check_log_space(command, for_anything=False, for_what_frees=False)


def test_a_frame_is_taken_as_what_is_in_it() -> None:
    """One that only frees and keeps something passes as long as a release; with an acquire it does not."""
    free = Release(HoldId("h")), EndWait(1)
    acquire = Acquire("a", Mode.EXCLUSIVE, HoldId("h"), AttemptId("a"), ttl_ms=100)
    for commands in ((), free):
        assert deciding(Numbered(len(commands), SessionId("s"), 1, 1, (), commands)) in FREES
    assert deciding(Numbered(3, SessionId("s"), 1, 1, (), (*free, acquire))) is Numbered
    assert deciding(Tick()) is Tick


def test_a_transaction_is_taken_as_what_it_may_do() -> None:
    """One that ends, deletes, renews and reads lets clients of Redis go home as well; not one that adds."""
    hold_id = HoldId("h")
    free = EndOperation(hold_id), DeleteOperation(b"k"), GetOperation(b"k"), RenewOperation(hold_id, 100)
    compares = (LockCompare("a", hold_id),)
    assert deciding(TransactCells(compares, free, free)) in FREES
    for adds in (PutOperation(b"k", b"v"), TakeOperation("a", HoldId("t"), ttl_ms=100)):
        assert deciding(TransactCells(compares, (*free, adds))) is TransactCells
        assert deciding(TransactCells(compares, free, (adds,))) is TransactCells
