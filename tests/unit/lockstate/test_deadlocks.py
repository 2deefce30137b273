"""Deadlocks: a request that would wait for ever is refused at once, with the whole cycle; no other is."""

import pytest

from lockstate.words import limits
from lockstate.words.ids import OwnerName
from lockstate.words.results import CycleView, EventKind, Granted, HoldKind, Queued, Reason, Refused, Result
from tests.unit.lockstate.machine_driver import (
    EXCLUSIVE,
    SHARED,
    SUBTREE,
    UPDATE,
    MachineDriver,
    expect,
    reason,
    wanted,
)


def _driver(*session_ids: str) -> MachineDriver:
    """Return a driver with sessions, each with its id as the owner's name."""
    driver = MachineDriver()
    driver.open(*session_ids)
    return driver


def _cycle(result: Result) -> list[tuple[str, str]]:
    """Return the owners of a deadlock, each with what it waits for."""
    refused = expect(Refused, result)
    assert refused.reason is Reason.DEADLOCK, refused
    return [(step.owner, step.name) for step in refused.cycle]


def _assert_real(driver: MachineDriver, refused: Refused) -> None:
    """Check that each step's owner waits for its name, and the next one's has it or waits before."""
    steps = refused.cycle
    for index, step in enumerate(steps):
        view = driver.machine.semaphore(step.name)
        if step.kind is HoldKind.LOCK:
            lock = driver.machine.lock(step.name)
            holders, queue = lock.holders, lock.queue
        else:
            holders, queue = view.holders, view.queue
        next_owner = steps[(index + 1) % len(steps)].owner
        assert next_owner in {holder.owner for holder in holders} | {waiter.owner for waiter in queue}, step
        assert index == 0 or step.owner in {waiter.owner for waiter in queue}, step


def test_two_sessions_that_wait_for_each_other() -> None:
    """The request that would close the cycle is refused; the other goes on waiting and is served."""
    driver = _driver("ann", "bob")
    driver.granted("a", session_id="ann")
    driver.granted("b", session_id="bob")
    driver.queued("b", session_id="ann")
    refused = expect(Refused, driver.acquire("a", session_id="bob", wait_ms=500))
    assert refused.reason is Reason.DEADLOCK
    assert refused.cycle == (CycleView(OwnerName("bob"), "a"), CycleView(OwnerName("ann"), "b"))
    assert refused.detail == "would wait for ever: bob waits for a, ann waits for b"
    assert driver.events == ()
    driver.release("h2")
    assert driver.served() == ["h3"]


def test_a_subtree_that_nobody_has_yet_is_waited_for() -> None:
    """Who holds something below it keeps the waiter waiting, though the subtree itself has no holder."""
    driver = _driver("ann", "bob")
    driver.granted("a/b", session_id="ann")
    driver.granted("x", session_id="bob")
    driver.queued("a", scope=SUBTREE, session_id="bob")
    refused = driver.acquire("x", session_id="ann", wait_ms=500)
    assert _cycle(refused) == [("ann", "x"), ("bob", "a/b")]


def test_three_sessions_in_a_cycle() -> None:
    """However long the cycle, its steps come in order, beginning with the refused request."""
    driver = _driver("ann", "bob", "eve")
    for name, session_id in (("a", "ann"), ("b", "bob"), ("c", "eve")):
        driver.granted(name, session_id=session_id)
    driver.queued("b", session_id="ann")
    driver.queued("c", session_id="bob")
    result = expect(Refused, driver.acquire("a", session_id="eve", wait_ms=500))
    assert _cycle(result) == [("eve", "a"), ("ann", "b"), ("bob", "c")]
    _assert_real(driver, result)


def test_a_request_that_does_not_wait_closes_no_deadlock() -> None:
    """Without a wait the lock is simply held."""
    driver = _driver("ann", "bob")
    driver.granted("a", session_id="ann")
    driver.granted("b", session_id="bob")
    driver.queued("b", session_id="ann")
    assert reason(driver.acquire("a", session_id="bob")) is Reason.LOCK_HELD


def test_a_cycle_through_readers() -> None:
    """Of several readers of a lock, one that waits for the writer-to-be is enough."""
    driver = _driver("ann", "bob", "eve")
    driver.granted("a", mode=SHARED, session_id="ann")
    driver.granted("a", mode=SHARED, session_id="eve")
    driver.granted("b", session_id="bob")
    driver.queued("b", mode=SHARED, session_id="eve")
    result = expect(Refused, driver.acquire("a", session_id="bob", wait_ms=500))
    assert _cycle(result) == [("bob", "a"), ("eve", "b")]
    _assert_real(driver, result)
    assert isinstance(driver.acquire("a", mode=SHARED, session_id="bob", wait_ms=500), Granted)


def test_readers_do_not_wait_for_readers() -> None:
    """Readers do not wait for each other."""
    driver = _driver("ann", "bob")
    driver.granted("a", mode=SHARED, session_id="ann")
    driver.granted("b", mode=SHARED, session_id="bob")
    driver.granted("b", mode=SHARED, session_id="ann")
    driver.granted("a", mode=SHARED, session_id="bob")


def test_a_cycle_through_a_waiter() -> None:
    """A waiter behind another waits for what that one waits for, since order is kept."""
    driver = _driver("ann", "bob", "eve")
    driver.granted("a", mode=SHARED, session_id="ann")
    driver.granted("b", session_id="bob")
    driver.queued("a", session_id="eve")
    driver.queued("a", mode=SHARED, session_id="bob")
    result = expect(Refused, driver.acquire("b", session_id="ann", wait_ms=500))
    assert _cycle(result) == [("ann", "b"), ("bob", "a"), ("eve", "a")]
    _assert_real(driver, result)


def test_a_waiter_without_owner_can_stand_in_between() -> None:
    """A hold without session and owner can be part of a cycle too; the refusal names it after its id."""
    driver = _driver("ann", "bob")
    driver.granted("a", mode=SHARED, session_id="ann")
    driver.granted("b", session_id="bob")
    driver.queued("a")
    driver.queued("a", mode=SHARED, session_id="bob")
    result = driver.acquire("b", session_id="ann", wait_ms=500)
    steps = _cycle(result)
    assert [owner.partition("-")[0] for owner, _ in steps] == ["ann", "bob", "hold"]
    _assert_real(driver, expect(Refused, result))


def test_a_lock_in_another_session_is_not_a_deadlock() -> None:
    """Ann waits for Bob; Bob waits for somebody that waits for nobody."""
    driver = _driver("ann", "bob")
    driver.granted("a", session_id="ann")
    driver.granted("b", session_id="bob")
    driver.granted("c")
    driver.queued("b", session_id="ann")
    driver.queued("c", session_id="bob")
    driver.release("h3")
    assert driver.served() == ["h5"]


def test_owners_of_one_session_are_parties_of_their_own() -> None:
    """Two threads of one program deadlock like two programs, and do not stand for each other."""
    driver = _driver("s1")
    driver.granted("a", session_id="s1", owner="one")
    driver.granted("b", session_id="s1", owner="two")
    driver.queued("b", session_id="s1", owner="one")
    assert _cycle(driver.acquire("a", session_id="s1", owner="two", wait_ms=500)) == [
        ("two", "a"),
        ("one", "b"),
    ]
    driver.queued("a", session_id="s1", owner="three")


def test_a_session_that_waits_for_itself() -> None:
    """A session that holds a lock and waits for it in another mode would wait for ever."""
    driver = _driver("ann")
    driver.granted("a", mode=SHARED, session_id="ann")
    assert _cycle(driver.acquire("a", session_id="ann", wait_ms=500)) == [("ann", "a")]
    assert reason(driver.acquire("a", session_id="ann")) is Reason.LOCK_HELD


def test_a_session_that_waits_for_its_own_subtree() -> None:
    """The same is true when what it has lies below what it wants, or above."""
    driver = _driver("ann")
    driver.granted("a/b/c", session_id="ann")
    assert _cycle(driver.acquire("a", scope=SUBTREE, session_id="ann", wait_ms=500)) == [("ann", "a/b/c")]
    driver.granted("t", scope=SUBTREE, session_id="ann")
    assert _cycle(driver.acquire("t/u", session_id="ann", wait_ms=500)) == [("ann", "t")]


@pytest.mark.parametrize("options", [{"owner": "ann"}, {}], ids=["owner", "nobody"])
def test_without_session_nobody_waits_for_itself(options: dict[str, str]) -> None:
    """Two clients may give the same owner's name, or none: a waiter for what one holds is another client."""
    driver = MachineDriver()
    driver.granted("a", **options)
    driver.queued("a", **options)
    driver.release("h1")
    assert driver.served() == ["h2"]


def test_owners_without_session_are_not_parties() -> None:
    """A name proves nothing: many clients may give the same, so what looks like a cycle may be none."""
    driver = MachineDriver()
    driver.granted("a", owner="ann")
    driver.granted("b", owner="bob")
    driver.queued("b", owner="ann")
    driver.queued("a", owner="bob")
    driver.release("h1")
    assert driver.served() == ["h4"]


@pytest.mark.parametrize("first", ["ann", "bob"])
def test_parties_may_stand_in_a_queue_by_turns(first: str) -> None:
    """Threads of two sessions that queue for one lock do not deadlock: the first of each gets it for both."""
    driver = _driver("ann", "bob")
    other = "bob" if first == "ann" else "ann"
    driver.granted("a")
    waiting = [driver.queued("a", session_id=session_id) for session_id in (first, other, first, other)]
    assert [waiter.position for waiter in waiting] == [1, 2, 3, 4]
    driver.release("h1")
    assert driver.served() == ["h2", "h4"]
    driver.release("h2")
    assert driver.served() == ["h3", "h5"]
    assert driver.machine.counts()["tickets"] == 0


def test_owners_may_stand_in_the_queue_of_a_semaphore_by_turns() -> None:
    """Without a session nobody knows that they are one; a session that waits twice waits for itself."""
    driver = _driver("ann")
    driver.permitted("q", 1)
    driver.wanting("q", 1, session_id="ann")
    for _ in range(3):
        driver.wanting("q", 1, owner="x")
        assert reason(driver.permits("q", 1, session_id="ann", wait_ms=10_000)) is Reason.DEADLOCK
    assert len(driver.machine.semaphore("q").queue) == 4


def test_a_session_may_wait_twice_for_one_lock() -> None:
    """Its second wait stands behind its first, not in the way of itself: the two will share a hold."""
    driver = _driver("ann")
    driver.granted("a")
    for position in (1, 2):
        assert driver.queued("a", session_id="ann").position == position


def test_a_session_that_waits_in_the_way_of_itself() -> None:
    """A session that asks for a lock in two conflicting modes waits for itself, as if it held the first."""
    driver = _driver("ann")
    driver.granted("a")
    driver.queued("a", session_id="ann")
    assert _cycle(driver.acquire("a", mode=SHARED, session_id="ann", wait_ms=500)) == [("ann", "a")]
    driver.permitted("q", 2, 2)
    driver.wanting("q", 2, 1, session_id="ann")
    refused = expect(Refused, driver.permits("q", 2, 2, session_id="ann", wait_ms=500))
    assert refused.cycle == (CycleView(OwnerName("ann"), "q", HoldKind.SEMAPHORE),)


def test_what_is_waited_for_first_counts_as_held() -> None:
    """Two sessions that will each get a lock, and wait for that of the other, are refused before they do."""
    driver = _driver("ann", "bob")
    driver.granted("left")
    driver.granted("right")
    driver.queued("left", session_id="ann")
    driver.queued("right", session_id="bob")
    driver.queued("right", session_id="ann")
    refused = expect(Refused, driver.acquire("left", session_id="bob", wait_ms=500))
    _assert_real(driver, refused)
    assert _cycle(refused) == [("bob", "left"), ("ann", "right")]
    driver.release("h1")
    driver.release("h2")
    assert driver.machine.counts()["tickets"] == 1, "ann waits for right, which bob can release"
    driver.release("h4")
    assert driver.machine.counts()["tickets"] == 0


def test_permits_that_will_be_kept_count_as_held() -> None:
    """The same is true for permits: a waiter in front keeps what it gets while it waits elsewhere."""
    driver = _driver("ann", "bob")
    driver.permitted("q", 2, 2)
    driver.granted("a")
    driver.wanting("q", 2, 1, session_id="ann")
    driver.queued("a", session_id="bob")
    driver.queued("a", session_id="ann")
    assert isinstance(driver.permits("q", 2, 1, session_id="bob", wait_ms=500), Queued), "both have room"
    assert _cycle(driver.permits("q", 2, 2, session_id="bob", wait_ms=500))[0] == ("bob", "q")


def test_a_wait_that_shares_a_hold_closes_nothing() -> None:
    """Whatever waits between two waits for the same, the second goes with the first."""
    driver = _driver("ann", "bob")
    driver.granted("a")
    driver.queued("a", session_id="ann")
    driver.queued("a", session_id="bob")
    driver.granted("b", session_id="bob")
    driver.queued("a", session_id="ann")
    assert _cycle(driver.acquire("b", session_id="ann", wait_ms=500)) == [("ann", "b"), ("bob", "a")]


def test_conversions_are_part_of_cycles() -> None:
    """A conversion waits like a request, and in front of others."""
    driver = _driver("ann", "bob", "eve")
    driver.granted("a", mode=SHARED, session_id="ann")
    driver.granted("a", mode=SHARED, session_id="bob")
    driver.granted("b", session_id="ann")
    driver.converting("h1", EXCLUSIVE)
    result = expect(Refused, driver.acquire("b", session_id="bob", wait_ms=500))
    assert _cycle(result) == [("bob", "b"), ("ann", "a")]
    _assert_real(driver, result)


def test_two_conversions_of_different_locks() -> None:
    """Two parties that each upgrade what the other reads have the code of conversions, wherever they wait."""
    driver = _driver("ann", "bob")
    for name in ("a", "b"):
        for session_id in ("ann", "bob"):
            driver.granted(name, mode=SHARED, session_id=session_id)
    driver.converting("h1", EXCLUSIVE)
    for wait_ms in (0, 500):
        refused = expect(Refused, driver.convert("h4", EXCLUSIVE, wait_ms=wait_ms))
        assert refused.reason is Reason.CONVERSION_DEADLOCK
        assert refused.cycle == (CycleView(OwnerName("bob"), "b"), CycleView(OwnerName("ann"), "a"))


def test_two_conversions_at_different_names_of_one_path() -> None:
    """The same is true of a subtree and a name in it."""
    driver = _driver("ann", "bob")
    driver.granted("a/b", mode=SHARED, scope=SUBTREE, session_id="ann")
    driver.granted("a/b/c", mode=SHARED, session_id="bob")
    driver.converting("h1", EXCLUSIVE)
    assert reason(driver.convert("h2", EXCLUSIVE)) is Reason.CONVERSION_DEADLOCK


def test_several_locks_wait_for_every_holder_of_one() -> None:
    """A request for several is stuck when one of them will never be free."""
    driver = _driver("ann", "bob")
    driver.granted("a", session_id="ann")
    driver.granted("b")
    driver.granted("c", session_id="bob")
    driver.queued("c", session_id="ann")
    result = expect(Refused, driver.acquire(locks=wanted("b", "a"), session_id="bob", wait_ms=500))
    assert _cycle(result) == [("bob", "a"), ("ann", "c")]
    driver.queued(locks=wanted("b", "x"), session_id="bob")


def test_subtrees_are_part_of_cycles() -> None:
    """Ann has something below what Bob wants, and waits for something that he has."""
    driver = _driver("ann", "bob")
    driver.granted("a/b", session_id="ann")
    driver.granted("x", scope=SUBTREE, session_id="bob")
    driver.queued("x/y/z", session_id="ann")
    steps = _cycle(driver.acquire("a", scope=SUBTREE, session_id="bob", wait_ms=500))
    assert steps == [("bob", "a/b"), ("ann", "x")]


def test_elections_are_part_of_cycles() -> None:
    """A candidate waits for the leader as for a lock."""
    driver = _driver("ann", "bob")
    driver.campaign("e", "ann")
    driver.granted("b", session_id="bob")
    driver.queued("b", session_id="ann")
    refused = expect(Refused, driver.campaign("e", "bob", wait_ms=500))
    assert refused.cycle == (
        CycleView(OwnerName("bob"), "e", HoldKind.ELECTION),
        CycleView(OwnerName("ann"), "b"),
    )


def test_permits_are_waited_for_as_far_as_they_are_missing() -> None:
    """When others can give back enough, a holder that waits for the client does not make a deadlock."""
    driver = _driver("ann", "bob")
    driver.permitted("q", 3, 1, session_id="ann")
    driver.permitted("q", 3, 2)
    driver.granted("b", session_id="bob")
    driver.queued("b", session_id="ann")
    assert isinstance(driver.permits("q", 3, 2, session_id="bob", wait_ms=500), Queued)


def test_permits_that_cannot_come_back_are_a_deadlock() -> None:
    """When all the others together have too few permits, the request waits for a holder that waits for it."""
    driver = _driver("ann", "bob")
    driver.permitted("q", 3, 1, session_id="ann")
    driver.permitted("q", 3, 2)
    driver.granted("b", session_id="bob")
    driver.queued("b", session_id="ann")
    refused = expect(Refused, driver.permits("q", 3, 3, session_id="bob", wait_ms=500))
    assert refused.cycle == (
        CycleView(OwnerName("bob"), "q", HoldKind.SEMAPHORE),
        CycleView(OwnerName("ann"), "b"),
    )
    _assert_real(driver, refused)
    assert reason(driver.permits("q", 3, 3, session_id="bob")) is Reason.NO_PERMITS


def test_permits_of_two_semaphores() -> None:
    """Two programs that each have what the other wants of two semaphores deadlock like with locks."""
    driver = _driver("ann", "bob")
    driver.permitted("p", 2, 2, session_id="ann")
    driver.permitted("q", 2, 2, session_id="bob")
    driver.wanting("q", 2, session_id="ann")
    refused = expect(Refused, driver.permits("p", 2, session_id="bob", wait_ms=500))
    assert [(step.owner, step.name, step.kind) for step in refused.cycle] == [
        ("bob", "p", HoldKind.SEMAPHORE),
        ("ann", "q", HoldKind.SEMAPHORE),
    ]


def test_all_holders_must_be_stuck_for_one_permit() -> None:
    """One permit can come from any holder; only when each of them waits for the client does it never come."""
    driver = _driver("ann", "bob", "eve")
    driver.permitted("q", 2, session_id="ann")
    driver.permitted("q", 2, session_id="bob")
    driver.granted("e", session_id="eve")
    driver.queued("e", session_id="ann")
    assert isinstance(driver.permits("q", 2, session_id="eve", wait_ms=500), Queued)
    driver.pass_to(501)
    driver.queued("e", session_id="bob")
    assert reason(driver.permits("q", 2, session_id="eve", wait_ms=500)) is Reason.DEADLOCK


def test_a_session_that_has_the_permits_it_wants() -> None:
    """A session that has two of three permits and wants two more waits for itself; one more is there."""
    driver = _driver("ann")
    driver.permitted("q", 3, 2, session_id="ann")
    driver.permitted("q", 3, 1)
    refused = expect(Refused, driver.permits("q", 3, 3, session_id="ann", wait_ms=500))
    assert refused.cycle == (CycleView(OwnerName("ann"), "q", HoldKind.SEMAPHORE),)
    assert isinstance(driver.permits("q", 3, 1, session_id="ann", wait_ms=500), Queued)


def test_a_queue_of_permits_is_waited_for() -> None:
    """Nobody overtakes, so a waiter in front is in the way even while permits are free."""
    driver = _driver("ann", "bob")
    driver.permitted("q", 3, 1, session_id="ann")
    driver.granted("b", session_id="bob")
    driver.wanting("q", 3, 3)
    driver.wanting("q", 3, 1, session_id="bob")
    steps = _cycle(driver.acquire("b", session_id="ann", wait_ms=500))
    assert [owner.partition("-")[0] for owner, _ in steps] == ["ann", "bob", "hold"]


def test_somebody_else_in_the_queue_changes_nothing() -> None:
    """A request that would close a cycle is refused also when another waiter stands before it."""
    driver = _driver("ann", "bob", "eve")
    driver.granted("a", session_id="ann")
    driver.granted("b", session_id="bob")
    driver.queued("b", session_id="ann")
    driver.queued("a", session_id="eve")
    assert reason(driver.acquire("a", session_id="bob", wait_ms=500)) is Reason.DEADLOCK


def test_a_wait_that_will_end_is_a_deadlock_all_the_same() -> None:
    """A deadlock is refused although a lease or a wait in it would end some day."""
    driver = _driver("ann", "bob")
    driver.granted("a", session_id="ann")
    driver.granted("b", session_id="bob")
    driver.queued("b", session_id="ann", wait_ms=50)
    assert reason(driver.acquire("a", session_id="bob", wait_ms=500)) is Reason.DEADLOCK
    assert driver.pass_to(51) == [EventKind.LEFT]
    assert isinstance(driver.acquire("a", session_id="bob", wait_ms=500), Queued)


def test_a_long_cycle_is_shown_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal names a limited number of steps."""
    monkeypatch.setattr(limits, "CYCLE_SHOWN_MAX", 3)
    driver = _driver(*[f"s{number}" for number in range(5)])
    for number in range(5):
        driver.granted(str(number), session_id=f"s{number}")
    for number in range(4):
        driver.queued(str(number + 1), session_id=f"s{number}")
    steps = _cycle(driver.acquire("0", session_id="s4", wait_ms=500))
    assert steps == [("s4", "0"), ("s0", "1"), ("s1", "2")]


def test_a_search_that_takes_too_long_lets_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit of steps the wait is allowed, and ends with its `wait_ms` like any other."""
    driver = _driver(*[f"s{number}" for number in range(5)])
    for number in range(5):
        driver.granted(str(number), session_id=f"s{number}")
    for number in range(4):
        driver.queued(str(number + 1), session_id=f"s{number}")
    monkeypatch.setattr(limits, "DEADLOCK_STEPS_MAX", 9)
    assert isinstance(driver.acquire("0", session_id="s4", wait_ms=500), Queued)
    driver.pass_to(501)
    assert driver.refused("h10").reason is Reason.LOCK_HELD
    monkeypatch.setattr(limits, "DEADLOCK_STEPS_MAX", 10)
    assert reason(driver.acquire("0", session_id="s4", wait_ms=500)) is Reason.DEADLOCK


def test_a_session_with_many_holds_is_searched() -> None:
    """However many locks a session has, a cycle through one of them is found."""
    driver = _driver("ann", "bob")
    for number in range(70):
        driver.granted(f"a{number}", session_id="ann")
    driver.granted("b", session_id="bob")
    driver.queued("a69", session_id="bob")
    assert _cycle(driver.acquire("b", session_id="ann", wait_ms=500)) == [("ann", "b"), ("bob", "a69")]


def test_clients_that_share_an_owner_share_a_semaphore() -> None:
    """One owner's name that has permits and wants more may be two clients of that name."""
    driver = MachineDriver()
    driver.permitted("q", 2, owner="ann")
    driver.permitted("q", 2, owner="bob")
    driver.wanting("q", 2, owner="ann")
    driver.wanting("q", 2, owner="bob")
    driver.release("h1")
    assert driver.served() == ["h3"]


def test_a_waiter_behind_a_cycle_is_not_in_it() -> None:
    """A cycle that a conversion or a semaphore left to others does not concern the waiters behind it."""
    driver = _driver("ann", "bob", "eve")
    driver.permitted("q", 2, session_id="ann")
    driver.permitted("q", 2, session_id="bob")
    driver.granted("e", session_id="eve")
    driver.queued("e", session_id="ann")
    driver.wanting("q", 2, session_id="eve")
    assert reason(driver.acquire("e", session_id="bob", wait_ms=500)) is Reason.DEADLOCK
    driver.queued("e")


def test_a_cycle_leaves_out_tickets_that_are_not_stuck() -> None:
    """Of two readers in the way, one waits for somebody that can go on: the cycle is through the other."""
    driver = _driver("ann", "bob", "eve")
    for session_id in ("eve", "ann"):
        driver.granted("a", mode=SHARED, session_id=session_id)
    driver.granted("b", session_id="bob")
    driver.granted("c")
    driver.queued("c", session_id="eve")
    driver.queued("b", session_id="ann")
    steps = _cycle(driver.acquire("a", session_id="bob", wait_ms=500))
    assert steps == [("bob", "a"), ("ann", "b")]


def test_a_waiter_behind_a_deadlock_of_others_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadlock is theirs, and one of their waits will end: a waiter outside the cycle may wait."""
    driver = _driver("ann", "bob", "eve")
    for name, session_id in (("a", "ann"), ("b", "bob"), ("c", "eve")):
        driver.granted(name, session_id=session_id)
    driver.queued("c")
    driver.queued("b", session_id="ann")
    with monkeypatch.context() as patch:
        patch.setattr(limits, "DEADLOCK_STEPS_MAX", 0)
        driver.queued("a", session_id="bob")
    driver.queued("a", session_id="eve")


def test_a_conversion_will_stand_ahead_of_the_waiters() -> None:
    """Ann would wait for Bob, and Bob for a name that her conversion, ahead of him, keeps from him."""
    driver = _driver("ann", "bob")
    driver.granted("a", mode=SHARED, scope=SUBTREE, session_id="ann")
    driver.granted("a/y", mode=SHARED, session_id="bob")
    driver.granted("a/x", mode=UPDATE)
    driver.queued("a/x", mode=UPDATE, session_id="bob")
    assert reason(driver.convert("h1", EXCLUSIVE)) is Reason.LOCK_HELD
    steps = _cycle(driver.convert("h1", EXCLUSIVE, wait_ms=500))
    assert [owner for owner, _ in steps] == ["ann", "bob"]


def test_a_holder_of_permits_with_one_wait_that_will_end() -> None:
    """Of two waits of a holder, the one that is stuck keeps its permits away."""
    driver = _driver("ann", "bob")
    driver.permitted("q", 2, 2, session_id="ann")
    driver.granted("b", session_id="bob")
    driver.granted("c")
    driver.queued("c", session_id="ann")
    driver.queued("b", session_id="ann")
    refused = expect(Refused, driver.permits("q", 2, session_id="bob", wait_ms=500))
    assert refused.cycle == (
        CycleView(OwnerName("bob"), "q", HoldKind.SEMAPHORE),
        CycleView(OwnerName("ann"), "b"),
    )


def test_the_waits_of_a_party_are_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session with many waits does not make a search longer than allowed; the newcomer just waits."""
    driver = _driver("ann", "bob")
    driver.granted("c", session_id="ann")
    driver.granted("a", mode=SHARED, session_id="bob")
    driver.granted("f")
    for _ in range(30):
        driver.queued("f", session_id="bob", owner="bob")
    driver.queued("c", session_id="bob", owner="bob")
    monkeypatch.setattr(limits, "DEADLOCK_STEPS_MAX", 20)
    assert isinstance(driver.acquire("a", session_id="ann", wait_ms=500), Queued)
    monkeypatch.setattr(limits, "DEADLOCK_STEPS_MAX", 2000)
    assert reason(driver.acquire("a", session_id="ann", wait_ms=500)) is Reason.DEADLOCK
