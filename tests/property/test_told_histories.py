"""Histories that a checker once read wrongly, while the machine was right: told word by word."""

from typing import Any

import msgspec
import pytest

from lockstate.words.commands.entries import Cancel, Command, OnBehalf
from lockstate.words.commands.holds import Acquire, AcquirePermits, AcquireSeveral, AddLocks, Convert
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.commands.streams import Numbered, ResumeStream
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.modes import Mode
from lockstate.words.wanted import Uncommon, Wanted, WantedPermits
from tests.property.machine_with_model import MachineWithModel

EXCLUSIVE, SHARED = Mode.EXCLUSIVE, Mode.SHARED


class Told(MachineWithModel):
    """Machine, model and referee, told what happens."""

    def __init__(self) -> None:
        """Everybody is somebody whom no node knows."""
        super().__init__(principals=("",))

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
        asked(Acquire, "W", "S", name="n", mode=EXCLUSIVE, uncommon=Uncommon(priority=4)),
    )
    assert told.waiting() == {"T1", "Z", "T2", "P", "K", "W"}
    told.tell(Cancel(HoldId("T1"), AttemptId("a1")))
    told.tell(asked(Acquire, "N", name="n", mode=EXCLUSIVE))
    assert told.waiting() == {"Z", "T2", "P", "K", "W", "N"}


def test_a_hold_that_got_more_after_a_wait_is_told_of_twice_in_one_entry() -> None:
    """Its wait ends with the time of the entry, in which it is asked for the mode that it has already.

    The referee took the second answer for a grant without a wait, which had overtaken the wait itself.
    """
    told = Told()
    told.tell(
        asked(Acquire, "h6", name="e", mode=EXCLUSIVE, ttl_ms=50),
        asked(Acquire, "h8", name="a", mode=EXCLUSIVE),
        AddLocks(HoldId("h8"), (Wanted("e", EXCLUSIVE),), HoldId("t15"), AttemptId("a1"), 3_000),
    )
    assert told.waiting() == {"t15"}
    told.now_ms += 51
    told.tell(converted("h8", EXCLUSIVE, "t16"))
    assert told.machine.state.holds[HoldId("h8")].token == 3


def test_the_priority_in_a_frame_of_a_principal_counts() -> None:
    """Who asks with a higher one goes first, and overtakes nobody."""
    told = Told()
    told.open("A", "S", "T")
    low = asked(
        Acquire,
        "L",
        name="",
        mode=EXCLUSIVE,
        locks=(Wanted("a", SHARED), Wanted("e", EXCLUSIVE)),
        uncommon=Uncommon(priority=4),
    )
    told.tell(asked(Acquire, "H", "A", name="a", mode=EXCLUSIVE))
    told.tell(OnBehalf("ann", OpenSession(SessionId("own"), 60_000, {})))
    told.ids.append(low.hold_id)
    told.tell(OnBehalf("ann", ResumeStream(SessionId("own"))))
    told.tell(OnBehalf("ann", Numbered(1, SessionId("own"), 1, 1, (), (low,))))
    assert told.waiting() == {"L"}
    told.tell(asked(Acquire, "N", "S", name="e", mode=SHARED))
    assert told.machine.lock("e").state == "held"
