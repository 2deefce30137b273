"""What is taken while the leader's log has little room."""

from typing import get_args

import pytest

from cluster.commands.room import RETRY_MS, WHAT_FREES, check_room
from cluster.errors import Overloaded
from lockstate.commands import Command

TAKES_ROOM = {
    "OpenSession",
    "Acquire",
    "AcquireIf",
    "Convert",
    "AcquirePermits",
    "ResizeSemaphore",
    "Campaign",
    "Proclaim",
    "TakeRate",
    "AdvanceFence",
    "PutCell",
    "TransactCells",
}


def test_every_command_is_sorted() -> None:
    """Somebody has thought about a new one."""
    assert {command.__name__ for command in get_args(Command)} == TAKES_ROOM | {
        command.__name__ for command in WHAT_FREES
    }


@pytest.mark.parametrize("command", get_args(Command))
def test_what_frees_is_taken_longest(command: type[Command]) -> None:
    """At the end nothing is taken; a client is told when to ask again."""
    check_room(command, for_anything=True, for_what_frees=True)
    if command in WHAT_FREES:
        check_room(command, for_anything=False, for_what_frees=True)
    else:
        with pytest.raises(Overloaded, match="frees") as refused:
            check_room(command, for_anything=False, for_what_frees=True)
        assert refused.value.retry_after_ms == RETRY_MS
    with pytest.raises(Overloaded, match="as long as it may get"):
        check_room(command, for_anything=False, for_what_frees=False)
