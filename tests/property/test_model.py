"""The model itself, on examples that anybody can check by hand."""

from collections.abc import Sequence

import pytest

from lockstate.words.commands.entries import Batch, Cancel, Command, Entry, Tick
from lockstate.words.commands.holds import Acquire, AcquirePermits, Campaign, Convert, Proclaim, Release
from lockstate.words.commands.overrides import ForceRelease
from lockstate.words.commands.primitives import ResizeSemaphore
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.ids import AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.modes import Mode, Scope
from lockstate.words.refusals import CycleView, Reason, Refused
from lockstate.words.results import ForceReleased, Granted, Proclaimed, Queued, Released, Resized, Result
from lockstate.words.wanted import Wanted
from tests.property.model import apply
from tests.property.model_deadlock import check_cycle
from tests.property.model_locks import conflict
from tests.property.model_records import ModelState
from tests.property.model_views import election_view, lock_view, semaphore_view

SHARED, UPDATE, EXCLUSIVE = Mode.SHARED, Mode.UPDATE, Mode.EXCLUSIVE


class ModelDriver:
    """A model, fed one command at a time."""

    def __init__(self, *session_ids: str) -> None:
        self.state = ModelState()
        self.seq = 0
        for session_id in session_ids:
            self.ask(OpenSession(SessionId(session_id), 1000, {"owner": session_id}))

    def ask(self, command: Command, now_ms: int = 0) -> Result:
        """Apply one command and return its result."""
        self.seq += 1
        ((_, _, result),) = apply(self.state, Entry(now_ms, (Batch("n1", (self.seq,), (command,)),)))
        return result

    def lock(self, session_id: str, name: str, hold_id: str, mode: Mode = EXCLUSIVE) -> Result:
        """Ask for a lock, for a session, and wait."""
        return self.ask(
            Acquire(
                name, mode, HoldId(hold_id), AttemptId("a"), session_id=SessionId(session_id), wait_ms=500
            )
        )

    def settled(self) -> list[tuple[str, str]]:
        """Return the waits that the last entry ended, each with how."""
        return [
            (s.hold_id, s.result.reason if isinstance(s.result, Refused) else "granted")
            for s in self.state.settled
        ]


def reason(result: Result) -> Reason:
    """Return why a command was refused."""
    assert isinstance(result, Refused)
    return result.reason


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (Wanted("a"), Wanted("a"), True),
        (Wanted("a"), Wanted("a/b"), False),
        (Wanted("a", scope=Scope.SUBTREE), Wanted("a/b"), True),
        (Wanted("a", scope=Scope.SUBTREE), Wanted("ab"), False),
        (Wanted("a/b", scope=Scope.SUBTREE), Wanted("a"), False),
        (Wanted("a/b", scope=Scope.SUBTREE), Wanted("a", scope=Scope.SUBTREE), True),
        (Wanted("a", SHARED), Wanted("a", SHARED), False),
        (Wanted("a", SHARED), Wanted("a", UPDATE), False),
        (Wanted("a", UPDATE), Wanted("a", UPDATE), True),
        (Wanted("a", SHARED), Wanted("a", EXCLUSIVE), True),
    ],
)
def test_locks_conflict_over_a_common_name(one: Wanted, other: Wanted, *, expected: bool) -> None:
    """Two locks conflict exactly if they cover a common name in modes that disagree."""
    assert conflict(one, other) == conflict(other, one) == expected


def test_several_locks_come_together() -> None:
    """A ticket for several locks holds none of them until it can have all, and then has one token."""
    model = ModelDriver("s1", "s2")
    model.lock("s1", "a", "h1")
    both = (Wanted("a"), Wanted("b"))
    asked = Acquire(
        "", EXCLUSIVE, HoldId("h2"), AttemptId("a"), session_id=SessionId("s2"), wait_ms=500, locks=both
    )
    assert model.ask(asked) == Queued(HoldId("h2"), 1)
    assert lock_view(model.state, "b").state == "free"
    model.ask(Release(HoldId("h1")))
    assert model.settled() == [("h2", "granted")]
    assert [lock_view(model.state, name).holders[0].token for name in "ab"] == [2, 2]
    assert model.ask(Release(HoldId("h2"), names=("a", "c"))) == Refused(Reason.NOT_HOLDER, "")
    assert model.ask(Release(HoldId("h2"), names=("a",))) == Released((Wanted("b"),))
    assert model.ask(Release(HoldId("h2"), names=("b",))) == Released()


def test_a_wait_for_permits_and_a_lock_can_be_a_deadlock() -> None:
    """A holder of permits that waits for a party that waits for them is refused, with the cycle."""
    model = ModelDriver("s1", "s2", "s3")
    permits = AcquirePermits(
        "pool", 3, 2, HoldId("h1"), AttemptId("a"), session_id=SessionId("s1"), wait_ms=500
    )
    model.ask(permits)
    model.lock("s2", "a", "h2")
    waits = AcquirePermits(
        "pool", 3, 2, HoldId("h3"), AttemptId("a"), session_id=SessionId("s2"), wait_ms=500
    )
    assert model.ask(waits) == Queued(HoldId("h3"), 1)
    assert reason(model.lock("s1", "a", "h4")) is Reason.DEADLOCK
    model.ask(
        AcquirePermits("pool", 3, 1, HoldId("h5"), AttemptId("a"), session_id=SessionId("s3"), wait_ms=500)
    )
    model.ask(Release(HoldId("h1")))
    assert model.settled() == [("h3", "granted"), ("h5", "granted")]


def test_permits_of_others_resolve_a_wait() -> None:
    """A waiter for permits is not stuck as long as parties that can go on hold enough of them."""
    model = ModelDriver("s1", "s2", "s3")
    for number in (1, 3):
        model.ask(
            AcquirePermits(
                "pool", 2, 1, HoldId(f"h{number}"), AttemptId("a"), session_id=SessionId(f"s{number}")
            )
        )
    model.lock("s2", "a", "h2")
    model.ask(
        AcquirePermits("pool", 2, 1, HoldId("h4"), AttemptId("a"), session_id=SessionId("s2"), wait_ms=500)
    )
    assert isinstance(model.lock("s1", "a", "h5"), Queued)
    assert reason(model.lock("s3", "a", "h6")) is Reason.DEADLOCK


def test_a_cycle_is_checked_step_by_step() -> None:
    """A cycle of two is taken for one only if each owner really blocks the one before."""
    model = ModelDriver("s1", "s2", "s3")
    model.lock("s1", "a", "h1")
    model.lock("s2", "b", "h2")
    model.lock("s2", "a", "h3")
    assert reason(model.lock("s1", "b", "h4")) is Reason.DEADLOCK
    ((_, edges, starts),) = model.state.deadlocks
    check_cycle(edges, starts, [CycleView(OwnerName("s1"), "b"), CycleView(OwnerName("s2"), "a")])
    for wrong in (
        [CycleView(OwnerName("s1"), "b"), CycleView(OwnerName("s3"), "a")],
        [CycleView(OwnerName("s1"), "a"), CycleView(OwnerName("s2"), "b")],
        [CycleView(OwnerName("s2"), "a"), CycleView(OwnerName("s1"), "b")],
        [CycleView(OwnerName("s1"), "b")],
        [],
    ):
        with pytest.raises(AssertionError):
            check_cycle(edges, starts, wrong)


def test_conversions_stand_ahead_of_tickets() -> None:
    """A conversion that waits is served before a ticket that came earlier, and gets a new token."""
    model = ModelDriver("s1", "s2", "s3")
    model.lock("s1", "a", "h1", SHARED)
    model.lock("s2", "a", "h2", SHARED)
    assert model.lock("s3", "a", "h3") == Queued(HoldId("h3"), 1)
    assert model.ask(Convert(HoldId("h1"), EXCLUSIVE, HoldId("t1"), AttemptId("a"), 500)) == Queued(
        HoldId("t1"), 1
    )
    assert (
        reason(model.ask(Convert(HoldId("h1"), UPDATE, HoldId("t2"), AttemptId("a"))))
        is Reason.INVALID_REQUEST
    )
    assert (
        reason(model.ask(Convert(HoldId("h2"), EXCLUSIVE, HoldId("t3"), AttemptId("a"))))
        is Reason.CONVERSION_DEADLOCK
    )
    model.ask(Release(HoldId("h2")))
    assert model.settled() == [("t1", "granted")]
    assert lock_view(model.state, "a").holders[0].token == 3
    model.ask(Convert(HoldId("h1"), SHARED, HoldId("t4"), AttemptId("a")))
    model.ask(Release(HoldId("h1")))
    assert model.settled() == [("h3", "granted")]


def test_a_conversion_ends_with_its_hold() -> None:
    """Forcing away the hold ends its conversion's wait with lease-expired."""
    model = ModelDriver("s1", "s2")
    model.lock("s1", "a", "h1", SHARED)
    model.lock("s2", "a", "h2", SHARED)
    model.ask(Convert(HoldId("h1"), EXCLUSIVE, HoldId("t1"), AttemptId("a"), 500))
    forced = model.ask(ForceRelease("a", "because", 100))
    assert isinstance(forced, ForceReleased)
    assert [view.token for view in forced.released] == [1, 2]
    assert model.settled() == [("t1", Reason.LEASE_EXPIRED)]
    assert lock_view(model.state, "a").state == "delayed"
    model.ask(Tick(), 101)
    assert lock_view(model.state, "a").state == "free"


def test_permits_of_a_smaller_semaphore_drain() -> None:
    """After a resize nobody loses permits; waiters that want more than the new limit are refused."""
    model = ModelDriver("s1", "s2", "s3")
    model.ask(AcquirePermits("pool", 3, 3, HoldId("h1"), AttemptId("a"), session_id=SessionId("s1")))
    model.ask(
        AcquirePermits("pool", 3, 2, HoldId("h2"), AttemptId("a"), session_id=SessionId("s2"), wait_ms=500)
    )
    model.ask(
        AcquirePermits("pool", 3, 1, HoldId("h3"), AttemptId("a"), session_id=SessionId("s3"), wait_ms=500)
    )
    assert model.ask(ResizeSemaphore("pool", 1)) == Resized(1, -2)
    assert model.settled() == [("h2", Reason.LIMIT_MISMATCH)]
    model.ask(Release(HoldId("h1")))
    assert model.settled() == [("h3", "granted")]
    model.ask(Release(HoldId("h3")))
    assert semaphore_view(model.state, "pool").limit == 0


def test_an_election_has_one_leader_and_its_value() -> None:
    """The first to campaign leads with its value; the next leads once it resigns."""
    model = ModelDriver("s1", "s2")
    assert isinstance(model.ask(Campaign("e", SessionId("s1"), "one", HoldId("h1"), AttemptId("a"))), Granted)
    assert (
        reason(model.ask(Campaign("e", SessionId("s2"), "two", HoldId("h2"), AttemptId("a"))))
        is Reason.LOCK_HELD
    )
    model.ask(Campaign("e", SessionId("s2"), "two", HoldId("h2"), AttemptId("a"), wait_ms=500))
    assert model.ask(Proclaim(HoldId("h1"), "new")) == Proclaimed(1)
    assert election_view(model.state, "e").value == "new"
    model.ask(Release(HoldId("h1")))
    assert election_view(model.state, "e").value == "two"


def test_a_repeated_request_takes_the_attempt_over() -> None:
    """The later attempt of a request waits in the place of the first; cancelling the first undoes nothing."""
    model = ModelDriver("s1", "s2")
    model.lock("s1", "a", "h1")
    asked = Acquire(
        "a", EXCLUSIVE, HoldId("h2"), AttemptId("a1"), session_id=SessionId("s2"), wait_ms=500, request_id="r"
    )
    again = Acquire(
        "a", EXCLUSIVE, HoldId("h3"), AttemptId("a2"), session_id=SessionId("s2"), wait_ms=500, request_id="r"
    )
    assert model.ask(asked) == model.ask(again) == Queued(HoldId("h2"), 1)
    model.ask(Cancel(HoldId("h2"), AttemptId("a1")))
    assert model.settled() == []
    model.ask(Cancel(HoldId("h2"), AttemptId("a2")))
    assert model.settled() == [("h2", Reason.LOCK_HELD)]


def command_results(model: ModelDriver, commands: Sequence[Command]) -> list[str]:
    """Return the kinds of the results of some commands."""
    return [type(model.ask(command)).__name__ for command in commands]


def test_a_subtree_waits_for_what_lies_in_it() -> None:
    """A subtree is granted when nobody holds anything in it, and a name beside it is not concerned."""
    model = ModelDriver("s1", "s2")
    subtree = Acquire(
        "a",
        EXCLUSIVE,
        HoldId("h3"),
        AttemptId("a"),
        session_id=SessionId("s2"),
        wait_ms=500,
        scope=Scope.SUBTREE,
    )
    below = Acquire("a/b/c", SHARED, HoldId("h1"), AttemptId("a"), session_id=SessionId("s1"))
    beside = Acquire("ab", EXCLUSIVE, HoldId("h2"), AttemptId("a"), session_id=SessionId("s1"))
    inside = Acquire("a/d", SHARED, HoldId("h4"), AttemptId("a"), ttl_ms=100)
    assert command_results(model, [below, beside, subtree, inside]) == [
        "Granted",
        "Granted",
        "Queued",
        "Refused",
    ]
    model.ask(Release(HoldId("h1")))
    assert model.settled() == [("h3", "granted")]
    assert [view.name for view in lock_view(model.state, "a/x").holders] == ["a"]
