"""Deadlocks: who would wait for ever is refused at once, and told the whole circle; nobody else is."""

import pytest

from lockstate import limits
from lockstate.ids import OwnerName
from lockstate.results import CycleView, EventKind, Granted, HoldKind, Queued, Reason, Refused, Result
from tests.unit.lockstate.world import (
    EXCLUSIVE,
    SHARED,
    SUBTREE,
    UPDATE,
    World,
    expect,
    reason,
    wanted,
)


def _world(*session_ids: str) -> World:
    """Return a world with sessions whose owners are called like them."""
    world = World()
    world.open(*session_ids)
    return world


def _cycle(result: Result) -> list[tuple[str, str]]:
    """Return the owners of a deadlock, each with what it waits for."""
    refused = expect(Refused, result)
    assert refused.reason is Reason.DEADLOCK, refused
    return [(step.owner, step.name) for step in refused.cycle]


def _assert_real(world: World, refused: Refused) -> None:
    """Check that each step's owner waits for its name, and the next one's has it or waits before."""
    steps = refused.cycle
    for at, step in enumerate(steps):
        view = world.machine.semaphore(step.name)
        if step.kind is HoldKind.LOCK:
            lock = world.machine.lock(step.name)
            holders, queue = lock.holders, lock.queue
        else:
            holders, queue = view.holders, view.queue
        next_owner = steps[(at + 1) % len(steps)].owner
        assert next_owner in {it.owner for it in holders} | {it.owner for it in queue}, step
        assert at == 0 or step.owner in {it.owner for it in queue}, step


def test_two_sessions_that_wait_for_each_other() -> None:
    """The one who would close the circle is refused; the other goes on waiting and is served."""
    world = _world("ann", "bob")
    world.granted("a", session_id="ann")
    world.granted("b", session_id="bob")
    world.queued("b", session_id="ann")
    refused = expect(Refused, world.acquire("a", session_id="bob", wait_ms=500))
    assert refused.reason is Reason.DEADLOCK
    assert refused.cycle == (CycleView(OwnerName("bob"), "a"), CycleView(OwnerName("ann"), "b"))
    assert refused.detail == "would wait for ever: bob waits for a, ann waits for b"
    assert world.events == ()
    world.release("h2")
    assert world.served() == ["h3"]


def test_three_sessions_in_a_circle() -> None:
    """However long the circle, its steps come in order, from the one who is refused."""
    world = _world("ann", "bob", "eve")
    for name, session_id in (("a", "ann"), ("b", "bob"), ("c", "eve")):
        world.granted(name, session_id=session_id)
    world.queued("b", session_id="ann")
    world.queued("c", session_id="bob")
    result = expect(Refused, world.acquire("a", session_id="eve", wait_ms=500))
    assert _cycle(result) == [("eve", "a"), ("ann", "b"), ("bob", "c")]
    _assert_real(world, result)


def test_who_does_not_wait_is_in_no_deadlock() -> None:
    """Without a wait the lock is simply held."""
    world = _world("ann", "bob")
    world.granted("a", session_id="ann")
    world.granted("b", session_id="bob")
    world.queued("b", session_id="ann")
    assert reason(world.acquire("a", session_id="bob")) is Reason.LOCK_HELD


def test_a_circle_through_readers() -> None:
    """Of several readers of a lock, one that waits for the writer-to-be is enough."""
    world = _world("ann", "bob", "eve")
    world.granted("a", mode=SHARED, session_id="ann")
    world.granted("a", mode=SHARED, session_id="eve")
    world.granted("b", session_id="bob")
    world.queued("b", mode=SHARED, session_id="eve")
    result = expect(Refused, world.acquire("a", session_id="bob", wait_ms=500))
    assert _cycle(result) == [("bob", "a"), ("eve", "b")]
    _assert_real(world, result)
    assert isinstance(world.acquire("a", mode=SHARED, session_id="bob", wait_ms=500), Granted)


def test_readers_do_not_wait_for_readers() -> None:
    """Where all would read there is nothing to wait for."""
    world = _world("ann", "bob")
    world.granted("a", mode=SHARED, session_id="ann")
    world.granted("b", mode=SHARED, session_id="bob")
    world.granted("b", mode=SHARED, session_id="ann")
    world.granted("a", mode=SHARED, session_id="bob")


def test_a_circle_through_a_waiter() -> None:
    """Who stands behind a waiter waits for what that one waits for: order is kept, so it counts."""
    world = _world("ann", "bob", "eve")
    world.granted("a", mode=SHARED, session_id="ann")
    world.granted("b", session_id="bob")
    world.queued("a", session_id="eve")
    world.queued("a", mode=SHARED, session_id="bob")
    result = expect(Refused, world.acquire("b", session_id="ann", wait_ms=500))
    assert _cycle(result) == [("ann", "b"), ("bob", "a"), ("eve", "a")]
    _assert_real(world, result)


def test_a_waiter_without_owner_can_stand_in_between() -> None:
    """Also who has no session and no name can be in somebody's way; the refusal calls it after its hold."""
    world = _world("ann", "bob")
    world.granted("a", mode=SHARED, session_id="ann")
    world.granted("b", session_id="bob")
    world.queued("a")
    world.queued("a", mode=SHARED, session_id="bob")
    result = world.acquire("b", session_id="ann", wait_ms=500)
    steps = _cycle(result)
    assert [owner.partition("-")[0] for owner, _ in steps] == ["ann", "bob", "hold"]
    _assert_real(world, expect(Refused, result))


def test_a_lock_in_another_session_is_no_deadlock() -> None:
    """Ann waits for Bob; Bob waits for somebody who waits for nobody."""
    world = _world("ann", "bob")
    world.granted("a", session_id="ann")
    world.granted("b", session_id="bob")
    world.granted("c")
    world.queued("b", session_id="ann")
    world.queued("c", session_id="bob")
    world.release("h3")
    assert world.served() == ["h5"]


def test_owners_of_one_session_are_parties_of_their_own() -> None:
    """Two threads of one program deadlock like two programs, and do not stand for each other."""
    world = _world("s1")
    world.granted("a", session_id="s1", owner="one")
    world.granted("b", session_id="s1", owner="two")
    world.queued("b", session_id="s1", owner="one")
    assert _cycle(world.acquire("a", session_id="s1", owner="two", wait_ms=500)) == [
        ("two", "a"),
        ("one", "b"),
    ]
    world.queued("a", session_id="s1", owner="three")


def test_a_session_that_waits_for_itself() -> None:
    """Who holds a lock and waits for it in another mode would wait for ever."""
    world = _world("ann")
    world.granted("a", mode=SHARED, session_id="ann")
    assert _cycle(world.acquire("a", session_id="ann", wait_ms=500)) == [("ann", "a")]
    assert reason(world.acquire("a", session_id="ann")) is Reason.LOCK_HELD


def test_a_session_that_waits_for_its_own_subtree() -> None:
    """Also when what it has lies below what it wants, or above."""
    world = _world("ann")
    world.granted("a/b/c", session_id="ann")
    assert _cycle(world.acquire("a", scope=SUBTREE, session_id="ann", wait_ms=500)) == [("ann", "a/b/c")]
    world.granted("t", scope=SUBTREE, session_id="ann")
    assert _cycle(world.acquire("t/u", session_id="ann", wait_ms=500)) == [("ann", "t")]


@pytest.mark.parametrize("options", [{"owner": "ann"}, {}], ids=["owner", "nobody"])
def test_without_session_nobody_waits_for_itself(options: dict[str, str]) -> None:
    """Two clients may use one owner's name, or none: who waits for what it has is evidently another one."""
    world = World()
    world.granted("a", **options)
    world.queued("a", **options)
    world.release("h1")
    assert world.served() == ["h2"]


def test_owners_without_session_are_no_parties() -> None:
    """A name proves nothing: many clients may give the same, so what looks like a circle may be none."""
    world = World()
    world.granted("a", owner="ann")
    world.granted("b", owner="bob")
    world.queued("b", owner="ann")
    world.queued("a", owner="bob")
    world.release("h1")
    assert world.served() == ["h4"]


@pytest.mark.parametrize("first", ["ann", "bob"])
def test_parties_may_stand_in_a_queue_by_turns(first: str) -> None:
    """Threads of two sessions that queue for one lock are no deadlock: the first of each gets it for both."""
    world = _world("ann", "bob")
    other = "bob" if first == "ann" else "ann"
    world.granted("a")
    waiting = [world.queued("a", session_id=session_id) for session_id in (first, other, first, other)]
    assert [it.position for it in waiting] == [1, 2, 3, 4]
    world.release("h1")
    assert world.served() == ["h2", "h4"]
    world.release("h2")
    assert world.served() == ["h3", "h5"]
    assert world.machine.counts()["tickets"] == 0


def test_owners_may_stand_in_the_queue_of_a_semaphore_by_turns() -> None:
    """The same is true for permits, with and without sessions."""
    world = _world("ann")
    world.permitted("q", 1)
    for _ in range(3):
        world.wanting("q", 1, owner="x")
        world.wanting("q", 1, session_id="ann")
    assert len(world.machine.semaphore("q").queue) == 6


def test_a_session_may_wait_twice_for_one_lock() -> None:
    """Its second wait stands behind its first, not in the way of itself: the two will share a hold."""
    world = _world("ann")
    world.granted("a")
    for position in (1, 2):
        assert world.queued("a", session_id="ann").position == position


def test_a_session_that_waits_in_the_way_of_itself() -> None:
    """Who asks for a lock in two modes that conflict waits for itself, as if it had the first already."""
    world = _world("ann")
    world.granted("a")
    world.queued("a", session_id="ann")
    assert _cycle(world.acquire("a", mode=SHARED, session_id="ann", wait_ms=500)) == [("ann", "a")]
    world.permitted("q", 2, 2)
    world.wanting("q", 2, 1, session_id="ann")
    refused = expect(Refused, world.permits("q", 2, 2, session_id="ann", wait_ms=500))
    assert refused.cycle == (CycleView(OwnerName("ann"), "q", HoldKind.SEMAPHORE),)


def test_what_is_waited_for_first_counts_as_held() -> None:
    """Two sessions that will each get a lock, and wait for that of the other, are refused before they do."""
    world = _world("ann", "bob")
    world.granted("left")
    world.granted("right")
    world.queued("left", session_id="ann")
    world.queued("right", session_id="bob")
    world.queued("right", session_id="ann")
    refused = expect(Refused, world.acquire("left", session_id="bob", wait_ms=500))
    _assert_real(world, refused)
    assert _cycle(refused) == [("bob", "left"), ("ann", "right")]
    world.release("h1")
    world.release("h2")
    assert world.machine.counts()["tickets"] == 1, "ann waits for right, which bob can release"
    world.release("h4")
    assert world.machine.counts()["tickets"] == 0


def test_permits_that_will_be_kept_count_as_held() -> None:
    """The same is true for permits: who stands in front keeps what it gets while it waits elsewhere."""
    world = _world("ann", "bob")
    world.permitted("q", 2, 2)
    world.granted("a")
    world.wanting("q", 2, 1, session_id="ann")
    world.queued("a", session_id="bob")
    world.queued("a", session_id="ann")
    assert isinstance(world.permits("q", 2, 1, session_id="bob", wait_ms=500), Queued), "both have room"
    assert _cycle(world.permits("q", 2, 2, session_id="bob", wait_ms=500))[0] == ("bob", "q")


def test_a_wait_that_shares_a_hold_closes_nothing() -> None:
    """Whoever stands between two waits for the same: the second goes with the first."""
    world = _world("ann", "bob")
    world.granted("a")
    world.queued("a", session_id="ann")
    world.queued("a", session_id="bob")
    world.granted("b", session_id="bob")
    world.queued("a", session_id="ann")
    assert _cycle(world.acquire("b", session_id="ann", wait_ms=500)) == [("ann", "b"), ("bob", "a")]


def test_conversions_are_part_of_circles() -> None:
    """A conversion waits like a request, and in front of others."""
    world = _world("ann", "bob", "eve")
    world.granted("a", mode=SHARED, session_id="ann")
    world.granted("a", mode=SHARED, session_id="bob")
    world.granted("b", session_id="ann")
    world.converting("h1", EXCLUSIVE)
    result = expect(Refused, world.acquire("b", session_id="bob", wait_ms=500))
    assert _cycle(result) == [("bob", "b"), ("ann", "a")]
    _assert_real(world, result)


def test_two_conversions_of_different_locks() -> None:
    """Two parties that each upgrade what the other reads have the code of conversions, wherever they wait."""
    world = _world("ann", "bob")
    for name in ("a", "b"):
        for session_id in ("ann", "bob"):
            world.granted(name, mode=SHARED, session_id=session_id)
    world.converting("h1", EXCLUSIVE)
    for wait_ms in (0, 500):
        refused = expect(Refused, world.convert("h4", EXCLUSIVE, wait_ms=wait_ms))
        assert refused.reason is Reason.CONVERSION_DEADLOCK
        assert refused.cycle == (CycleView(OwnerName("bob"), "b"), CycleView(OwnerName("ann"), "a"))


def test_two_conversions_at_different_names_of_one_path() -> None:
    """The same is true of a subtree and a name in it."""
    world = _world("ann", "bob")
    world.granted("a/b", mode=SHARED, scope=SUBTREE, session_id="ann")
    world.granted("a/b/c", mode=SHARED, session_id="bob")
    world.converting("h1", EXCLUSIVE)
    assert reason(world.convert("h2", EXCLUSIVE)) is Reason.CONVERSION_DEADLOCK


def test_several_locks_wait_for_all_who_have_one() -> None:
    """A request for several is stuck when one of them will never be free."""
    world = _world("ann", "bob")
    world.granted("a", session_id="ann")
    world.granted("b")
    world.granted("c", session_id="bob")
    world.queued("c", session_id="ann")
    result = expect(Refused, world.acquire(locks=wanted("b", "a"), session_id="bob", wait_ms=500))
    assert _cycle(result) == [("bob", "a"), ("ann", "c")]
    world.queued(locks=wanted("b", "x"), session_id="bob")


def test_subtrees_are_part_of_circles() -> None:
    """Ann has something below what Bob wants, and waits for something that he has."""
    world = _world("ann", "bob")
    world.granted("a/b", session_id="ann")
    world.granted("x", scope=SUBTREE, session_id="bob")
    world.queued("x/y/z", session_id="ann")
    steps = _cycle(world.acquire("a", scope=SUBTREE, session_id="bob", wait_ms=500))
    assert steps == [("bob", "a/b"), ("ann", "x")]


def test_elections_are_part_of_circles() -> None:
    """A candidate waits for the leader as for a lock."""
    world = _world("ann", "bob")
    world.campaign("e", "ann")
    world.granted("b", session_id="bob")
    world.queued("b", session_id="ann")
    refused = expect(Refused, world.campaign("e", "bob", wait_ms=500))
    assert refused.cycle == (
        CycleView(OwnerName("bob"), "e", HoldKind.ELECTION),
        CycleView(OwnerName("ann"), "b"),
    )


def test_permits_are_waited_for_as_far_as_they_are_missing() -> None:
    """When others can give back enough, a holder who waits for the asker is no reason to refuse."""
    world = _world("ann", "bob")
    world.permitted("q", 3, 1, session_id="ann")
    world.permitted("q", 3, 2)
    world.granted("b", session_id="bob")
    world.queued("b", session_id="ann")
    assert isinstance(world.permits("q", 3, 2, session_id="bob", wait_ms=500), Queued)


def test_permits_that_cannot_come_back_are_a_deadlock() -> None:
    """When all the others together have too few, the asker waits for who waits for it."""
    world = _world("ann", "bob")
    world.permitted("q", 3, 1, session_id="ann")
    world.permitted("q", 3, 2)
    world.granted("b", session_id="bob")
    world.queued("b", session_id="ann")
    refused = expect(Refused, world.permits("q", 3, 3, session_id="bob", wait_ms=500))
    assert refused.cycle == (
        CycleView(OwnerName("bob"), "q", HoldKind.SEMAPHORE),
        CycleView(OwnerName("ann"), "b"),
    )
    _assert_real(world, refused)
    assert reason(world.permits("q", 3, 3, session_id="bob")) is Reason.NO_PERMITS


def test_permits_of_two_semaphores() -> None:
    """Two programs that each have what the other wants of two semaphores deadlock like with locks."""
    world = _world("ann", "bob")
    world.permitted("p", 2, 2, session_id="ann")
    world.permitted("q", 2, 2, session_id="bob")
    world.wanting("q", 2, session_id="ann")
    refused = expect(Refused, world.permits("p", 2, session_id="bob", wait_ms=500))
    assert [(step.owner, step.name, step.kind) for step in refused.cycle] == [
        ("bob", "p", HoldKind.SEMAPHORE),
        ("ann", "q", HoldKind.SEMAPHORE),
    ]


def test_all_holders_must_be_stuck_for_one_permit() -> None:
    """One permit can come from any holder; only when each of them waits for the asker it never comes."""
    world = _world("ann", "bob", "eve")
    world.permitted("q", 2, session_id="ann")
    world.permitted("q", 2, session_id="bob")
    world.granted("e", session_id="eve")
    world.queued("e", session_id="ann")
    assert isinstance(world.permits("q", 2, session_id="eve", wait_ms=500), Queued)
    world.pass_to(501)
    world.queued("e", session_id="bob")
    assert reason(world.permits("q", 2, session_id="eve", wait_ms=500)) is Reason.DEADLOCK


def test_a_session_that_has_the_permits_it_wants() -> None:
    """Who has two of three and wants two more waits for itself; for one more there is one."""
    world = _world("ann")
    world.permitted("q", 3, 2, session_id="ann")
    world.permitted("q", 3, 1)
    refused = expect(Refused, world.permits("q", 3, 3, session_id="ann", wait_ms=500))
    assert refused.cycle == (CycleView(OwnerName("ann"), "q", HoldKind.SEMAPHORE),)
    assert isinstance(world.permits("q", 3, 1, session_id="ann", wait_ms=500), Queued)


def test_a_queue_of_permits_is_waited_for() -> None:
    """Nobody overtakes, so who stands in front is in the way, even with permits free."""
    world = _world("ann", "bob")
    world.permitted("q", 3, 1, session_id="ann")
    world.granted("b", session_id="bob")
    world.wanting("q", 3, 3)
    world.wanting("q", 3, 1, session_id="bob")
    steps = _cycle(world.acquire("b", session_id="ann", wait_ms=500))
    assert [owner.partition("-")[0] for owner, _ in steps] == ["ann", "bob", "hold"]


def test_somebody_else_in_the_queue_changes_nothing() -> None:
    """Also with another waiter before it, who would close a circle is refused."""
    world = _world("ann", "bob", "eve")
    world.granted("a", session_id="ann")
    world.granted("b", session_id="bob")
    world.queued("b", session_id="ann")
    world.queued("a", session_id="eve")
    assert reason(world.acquire("a", session_id="bob", wait_ms=500)) is Reason.DEADLOCK


def test_a_wait_that_will_end_is_a_deadlock_all_the_same() -> None:
    """That a lease or a wait ends by itself one day is no reason to let somebody wait for nothing."""
    world = _world("ann", "bob")
    world.granted("a", session_id="ann")
    world.granted("b", session_id="bob")
    world.queued("b", session_id="ann", wait_ms=50)
    assert reason(world.acquire("a", session_id="bob", wait_ms=500)) is Reason.DEADLOCK
    assert world.pass_to(51) == [EventKind.WAIT_ENDED]
    assert isinstance(world.acquire("a", session_id="bob", wait_ms=500), Queued)


def test_a_long_circle_is_shown_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal names at most so many steps."""
    monkeypatch.setattr(limits, "CYCLE_SHOWN_MAX", 3)
    world = _world(*[f"s{number}" for number in range(5)])
    for number in range(5):
        world.granted(str(number), session_id=f"s{number}")
    for number in range(4):
        world.queued(str(number + 1), session_id=f"s{number}")
    steps = _cycle(world.acquire("0", session_id="s4", wait_ms=500))
    assert steps == [("s4", "0"), ("s0", "1"), ("s1", "2")]


def test_a_search_that_takes_too_long_lets_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond so many steps the wait is allowed, and ends with its `wait_ms` like any other."""
    world = _world(*[f"s{number}" for number in range(5)])
    for number in range(5):
        world.granted(str(number), session_id=f"s{number}")
    for number in range(4):
        world.queued(str(number + 1), session_id=f"s{number}")
    monkeypatch.setattr(limits, "DEADLOCK_STEPS_MAX", 9)
    assert isinstance(world.acquire("0", session_id="s4", wait_ms=500), Queued)
    world.pass_to(501)
    assert world.refused("h10").reason is Reason.LOCK_HELD
    monkeypatch.setattr(limits, "DEADLOCK_STEPS_MAX", 10)
    assert reason(world.acquire("0", session_id="s4", wait_ms=500)) is Reason.DEADLOCK


def test_a_session_with_many_holds_is_searched() -> None:
    """However many locks a session has, a circle through one of them is found."""
    world = _world("ann", "bob")
    for number in range(70):
        world.granted(f"a{number}", session_id="ann")
    world.granted("b", session_id="bob")
    world.queued("a69", session_id="bob")
    assert _cycle(world.acquire("b", session_id="ann", wait_ms=500)) == [("ann", "b"), ("bob", "a69")]


def test_clients_that_share_an_owner_share_a_semaphore() -> None:
    """Who has permits and wants more under an owner's name may be two clients of that name."""
    world = World()
    world.permitted("q", 2, owner="ann")
    world.permitted("q", 2, owner="bob")
    world.wanting("q", 2, owner="ann")
    world.wanting("q", 2, owner="bob")
    world.release("h1")
    assert world.served() == ["h3"]


def test_who_only_waits_for_a_circle_is_not_in_it() -> None:
    """A circle that a conversion or a semaphore left to others does not concern who stands behind it."""
    world = _world("ann", "bob", "eve")
    world.permitted("q", 2, session_id="ann")
    world.permitted("q", 2, session_id="bob")
    world.granted("e", session_id="eve")
    world.queued("e", session_id="ann")
    world.wanting("q", 2, session_id="eve")
    assert reason(world.acquire("e", session_id="bob", wait_ms=500)) is Reason.DEADLOCK
    world.queued("e")


def test_a_circle_leaves_out_who_is_not_stuck() -> None:
    """Of two readers in the way, one waits for somebody who will be done: the circle is through the other."""
    world = _world("ann", "bob", "eve")
    for session_id in ("eve", "ann"):
        world.granted("a", mode=SHARED, session_id=session_id)
    world.granted("b", session_id="bob")
    world.granted("c")
    world.queued("c", session_id="eve")
    world.queued("b", session_id="ann")
    steps = _cycle(world.acquire("a", session_id="bob", wait_ms=500))
    assert steps == [("bob", "a"), ("ann", "b")]


def test_who_waits_for_a_deadlock_of_others_is_in_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is theirs, and one of their waits will end: whoever stands outside the circle may wait for that."""
    world = _world("ann", "bob", "eve")
    for name, session_id in (("a", "ann"), ("b", "bob"), ("c", "eve")):
        world.granted(name, session_id=session_id)
    world.queued("c")
    world.queued("b", session_id="ann")
    with monkeypatch.context() as patch:
        patch.setattr(limits, "DEADLOCK_STEPS_MAX", 0)
        world.queued("a", session_id="bob")
    world.queued("a", session_id="eve")


def test_a_conversion_will_stand_ahead_of_those_who_wait() -> None:
    """Ann would wait for Bob, who waits for a name that her conversion, ahead of him, keeps from him."""
    world = _world("ann", "bob")
    world.granted("a", mode=SHARED, scope=SUBTREE, session_id="ann")
    world.granted("a/y", mode=SHARED, session_id="bob")
    world.granted("a/x", mode=UPDATE)
    world.queued("a/x", mode=UPDATE, session_id="bob")
    assert reason(world.convert("h1", EXCLUSIVE)) is Reason.LOCK_HELD
    steps = _cycle(world.convert("h1", EXCLUSIVE, wait_ms=500))
    assert [owner for owner, _ in steps] == ["ann", "bob"]


def test_a_holder_of_permits_with_one_wait_that_will_end() -> None:
    """Of two waits of a holder, the one that is stuck keeps its permits away."""
    world = _world("ann", "bob")
    world.permitted("q", 2, 2, session_id="ann")
    world.granted("b", session_id="bob")
    world.granted("c")
    world.queued("c", session_id="ann")
    world.queued("b", session_id="ann")
    refused = expect(Refused, world.permits("q", 2, session_id="bob", wait_ms=500))
    assert refused.cycle == (
        CycleView(OwnerName("bob"), "q", HoldKind.SEMAPHORE),
        CycleView(OwnerName("ann"), "b"),
    )


def test_the_waits_of_a_party_are_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session with many waits is no longer a search than it may be: beyond, the newcomer just waits."""
    world = _world("ann", "bob")
    world.granted("c", session_id="ann")
    world.granted("a", mode=SHARED, session_id="bob")
    world.granted("f")
    for _ in range(30):
        world.queued("f", session_id="bob", owner="bob")
    world.queued("c", session_id="bob", owner="bob")
    monkeypatch.setattr(limits, "DEADLOCK_STEPS_MAX", 20)
    assert isinstance(world.acquire("a", session_id="ann", wait_ms=500), Queued)
    monkeypatch.setattr(limits, "DEADLOCK_STEPS_MAX", 2000)
    assert reason(world.acquire("a", session_id="ann", wait_ms=500)) is Reason.DEADLOCK
