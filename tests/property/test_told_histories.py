"""Histories that a checker once read wrongly, while the machine was right: told word by word."""

from typing import Any

import msgspec
import pytest

from lockstate.commands import (
    Acquire,
    AcquireAs,
    AcquirePermits,
    AcquireSeveral,
    Cancel,
    Command,
    Convert,
    OpenSession,
    Wanted,
    WantedPermits,
)
from lockstate.ids import AttemptId, HoldId, SessionId
from lockstate.modes import Mode
from tests.property.machine_with_model import MachineWithModel

EXCLUSIVE, SHARED = Mode.EXCLUSIVE, Mode.SHARED


class Told(MachineWithModel):
    """Machine, model and referee, told what happens."""

    def tell(self, *commands: Command) -> None:
        """Apply each command in an entry of its own, and check all that is checked of random ones."""
        for command in commands:
            self.ids += [
                name for name in (getattr(command, "hold_id", ""), getattr(command, "ticket_id", "")) if name
            ]
            self._apply([("n1", [command])])

    def open(self, *session_ids: str) -> None:
        """Open sessions."""
        for session_id in session_ids:
            self.tell(OpenSession(SessionId(session_id), 60_000, {"owner": "ann"}))

    def waiting(self) -> set[HoldId]:
        """Return all that waits."""
        return set(self.machine.state.tickets)


def asked(kind: type[Any], hold_id: str, session_id: str = "", **fields: Any) -> Any:
    """Return a request with a lease of its own, or one for a session, that waits."""
    given = {"ttl_ms": 0 if session_id else 60_000, "wait_ms": 50_000} | fields
    return kind(
        hold_id=HoldId(hold_id), attempt_id=AttemptId("a1"), session_id=SessionId(session_id), **given
    )


def converted(hold_id: str, mode: Mode, ticket_id: str) -> Convert:
    """Return a conversion that does not wait."""
    return Convert(HoldId(hold_id), mode, HoldId(ticket_id), AttemptId("a1"), 0, "")


def two_holds_of_one_name() -> Told:
    """Return a session that has a name twice, to read and to write without protection."""
    told = Told()
    told.open("s3")
    told.tell(
        asked(Acquire, "h6", "s3", name="a/d", mode=EXCLUSIVE),
        converted("h6", Mode.CONCURRENT_READ, "t10"),
        asked(Acquire, "h11", "s3", name="a/d", mode=Mode.CONCURRENT_WRITE),
    )
    assert len(told.machine.lock("a/d").holders) == 2
    return told


def test_the_second_of_two_holds_of_one_session_is_converted() -> None:
    """The referee knows which of them it was: the other one may stay beside it."""
    told = two_holds_of_one_name()
    told.tell(converted("h11", SHARED, "t12"))
    assert [holder.mode for holder in told.machine.lock("a/d").holders] == [Mode.CONCURRENT_READ, SHARED]


def test_and_the_referee_objects_if_the_other_one_is_in_its_way() -> None:
    """It does not take that one for the converted one to make things fit."""
    told = two_holds_of_one_name()
    (first,) = [event for event in told.referee.held if event.mode is Mode.CONCURRENT_READ]
    told.referee.held[told.referee.held.index(first)] = msgspec.structs.replace(
        first, mode=Mode.CONCURRENT_WRITE
    )
    with pytest.raises(AssertionError, match="is granted beside"):
        told.tell(converted("h11", SHARED, "t12"))


@pytest.mark.parametrize("wanted", [1, 4])
def test_who_comes_behind_a_deadlock_without_being_part_of_it_may_wait(wanted: int) -> None:
    """Also if it overtakes somebody whose permits one of those ahead could do without.

    A twin that leaves can leave a deadlock that nobody was refused for: here of `T2` and `Z`, with `P` and
    `K` behind it in the queue of a semaphore. The newcomer waits for `K`, and makes `W` wait. `W` keeps the
    permit that `P` will get; but without that one there are as many as are `wanted` by `K`.
    """
    told = Told()
    told.open("A", "S")
    permit = (WantedPermits("q", 5, 1),)
    told.tell(
        asked(Acquire, "H", name="y", mode=EXCLUSIVE),
        asked(Acquire, "a", "A", name="a", mode=EXCLUSIVE),
        asked(Acquire, "T1", "A", name="y", mode=EXCLUSIVE),
        asked(
            AcquireSeveral,
            "Z",
            name="",
            mode=EXCLUSIVE,
            locks=(Wanted("y", EXCLUSIVE), Wanted("a", EXCLUSIVE)),
            permits=permit,
        ),
        asked(Acquire, "T2", "A", name="y", mode=EXCLUSIVE),
        asked(AcquirePermits, "P", "S", name="q", limit=5, permits=1),
        asked(
            AcquireSeveral,
            "K",
            name="",
            mode=EXCLUSIVE,
            locks=(Wanted("n", EXCLUSIVE),),
            permits=(WantedPermits("q", 5, wanted),),
        ),
        asked(AcquireAs, "W", "S", name="n", mode=EXCLUSIVE, priority=4),
    )
    assert told.waiting() == {"T1", "Z", "T2", "P", "K", "W"}
    told.tell(Cancel(HoldId("T1"), AttemptId("a1")))
    told.tell(asked(Acquire, "N", name="n", mode=EXCLUSIVE))
    assert told.waiting() == {"Z", "T2", "P", "K", "W", "N"}
