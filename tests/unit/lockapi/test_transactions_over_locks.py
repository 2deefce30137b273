"""What a caller needs for a transaction that has parts about locks, and what the node adds to it."""

import pytest

from holdfast.token_lines import Right
from lockapi import rights_needed, spelling
from lockapi.allowed_names import allowed
from lockapi.problems import ProblemError
from lockapi.rights import Rights
from lockstate.words.cell_operations import (
    EndOperation,
    HoldCompare,
    LockCompare,
    PutOperation,
    RenewOperation,
    TakeOperation,
)
from lockstate.words.commands.cells import TransactCells
from lockstate.words.ids import HoldId

HOLD = HoldId("h")
READ, ACQUIRE, FORCE = Right.READ, Right.ACQUIRE, Right.FORCE
A = LockCompare("a/x", HOLD)


def may(command: TransactCells, **prefixes: set[Right]) -> bool:
    """Whether rights on these prefixes are enough for a command."""
    rights = Rights({prefix: frozenset(words) for prefix, words in prefixes.items()})
    try:
        rights_needed.check_command(rights, command)
    except ProblemError as problem:
        if problem.code != "forbidden":
            raise
        return False
    return True


@pytest.mark.parametrize(
    ("command", "enough", "too_little"),
    [
        (TransactCells((A,)), {"a": {READ}}, {"b": {READ, ACQUIRE}}),
        (TransactCells((HoldCompare(HOLD),)), {"b": {ACQUIRE}}, {"a": {READ}}),
        (TransactCells((), (TakeOperation("a/x", HOLD),)), {"a": {ACQUIRE}}, {"a": {READ}, "b": {ACQUIRE}}),
        (TransactCells((), (), (TakeOperation("a/x", HOLD),)), {"a": {ACQUIRE}}, {"b": {ACQUIRE}}),
        (TransactCells((), (EndOperation(HOLD),)), {"b": {ACQUIRE}}, {"a": {READ}}),
        (TransactCells((), (RenewOperation(HOLD, 100),)), {"b": {ACQUIRE}}, {"a": {READ}}),
        (TransactCells((A,), (EndOperation(HOLD),)), {"a": {READ, ACQUIRE}}, {"a": {READ}, "b": {ACQUIRE}}),
        (TransactCells((A,), (RenewOperation(HOLD, 9),)), {"a": {READ, ACQUIRE}}, {"b": {READ, ACQUIRE}}),
        (
            TransactCells((A,), (EndOperation(HOLD, "why"),)),
            {"a": {READ, FORCE}},
            {"a": {READ, ACQUIRE}, "b": {FORCE}},
        ),
        (TransactCells((), (EndOperation(HOLD, "why"),)), {"b": {FORCE}}, {"b": {ACQUIRE}}),
        (TransactCells((), (PutOperation(b"a/k", b""),)), {"a": {ACQUIRE}}, {"b": {ACQUIRE}}),
    ],
)
def test_each_part_needs_its_right(
    command: TransactCells, enough: dict[str, set[Right]], too_little: dict[str, set[Right]]
) -> None:
    """Of a hold that a compare names, on that name; of one that is known by its id alone, anywhere."""
    assert may(command, **enough)
    assert not may(command, **too_little)


def test_what_is_taken_is_spelled_as_an_acquire_spells_it() -> None:
    """What looks the same to people is one name; compares and ends take what there is."""
    spelling.check_command(TransactCells((LockCompare("a "),), (EndOperation(HOLD),)))
    with pytest.raises(spelling.Misspelled, match="name"):
        spelling.check_command(TransactCells((), (TakeOperation("a ", HOLD),)))


def test_the_node_says_where_it_allows_no_deadline() -> None:
    """Of what is taken without one; of other transactions it says nothing."""
    few = allowed(no_deadline=("a",))
    takes = (
        TakeOperation("a/x", HOLD),
        TakeOperation("b", HoldId("i")),
        TakeOperation("c", HoldId("j"), "", ttl_ms=9),
    )
    told = few.told(TransactCells((), takes))
    assert isinstance(told, TransactCells)
    assert told.endless_not_for == ("b",)
    cells = TransactCells((), (PutOperation(b"k", b""),))
    assert few.told(cells) is cells
