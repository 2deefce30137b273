"""Several locks at once: all or nothing, one place in all queues, holding nothing meanwhile."""

import msgspec
import pytest

from lockstate import limits
from lockstate.commands import Acquire, Wanted
from lockstate.ids import AttemptId, HoldId, SessionId
from lockstate.results import (
    EventKind,
    ForceReleased,
    Granted,
    Reason,
    Refused,
    Released,
    SessionClosed,
)
from tests.unit.lockstate.world import (
    EXCLUSIVE,
    NODE,
    SHARED,
    SUBTREE,
    UPDATE,
    World,
    expect,
    reason,
    wanted,
)

AB = wanted("a", "b")


def test_all_are_granted_together() -> None:
    """One hold with one token has them all; each has an event of its own."""
    world = World()
    granted = world.granted(locks=AB + wanted("c", mode=SHARED, scope=SUBTREE))
    assert (granted.name, granted.token) == ("", 1)
    assert granted.locks == (*AB, Wanted("c", SHARED, SUBTREE))
    assert [(it.kind.value, it.name, it.mode, it.scope, it.token) for it in world.events] == [
        ("granted", "a", EXCLUSIVE, NODE, 1),
        ("granted", "b", EXCLUSIVE, NODE, 1),
        ("granted", "c", SHARED, SUBTREE, 1),
    ]
    assert [it.token for it in world.machine.lock("c/d").holders] == [1]
    assert world.machine.next_token == 2


def test_none_is_granted_if_one_is_not_free() -> None:
    """When one of them is held, nothing is taken, and the refusal names who has that one."""
    world = World()
    world.granted("b", owner="bob")
    refused = expect(Refused, world.acquire(locks=AB))
    assert refused.reason is Reason.LOCK_HELD
    assert [(it.owner, it.name) for it in refused.holders] == [("bob", "b")]
    assert world.machine.lock("a").state == "free"


def test_a_refusal_names_one_that_is_in_the_way_twice_once() -> None:
    """A hold of several locks that has two of those asked for shows once, with the first of its own."""
    world = World()
    world.granted(locks=AB, owner="ann")
    refused = expect(Refused, world.acquire(locks=wanted("x", "a", "b")))
    assert [(it.owner, it.name) for it in refused.holders] == [("ann", "a")]


def test_one_ticket_waits_in_all_queues_and_holds_nothing() -> None:
    """While it waits others hold what is free of it, if they came before it."""
    world = World()
    world.granted("a")
    world.granted("b")
    world.queued("b", owner="first")
    assert world.queued(locks=AB, owner="both").position == 2
    world.release("h1")
    assert world.machine.lock("a").state == "free"
    assert [it.owner for it in world.machine.lock("a").queue] == ["both"]
    assert [it.owner for it in world.machine.lock("b").queue] == ["first", "both"]
    world.release("h2")
    assert world.served() == ["h3"]
    world.release("h3")
    assert world.served() == ["h4"]
    assert world.machine.lock("a").state == world.machine.lock("b").state == "held"


def test_single_locks_do_not_starve_it() -> None:
    """A stream of single locks on either name does not keep it waiting: who comes later waits behind it."""
    world = World()
    world.granted("a")
    world.granted("b")
    world.queued(locks=AB)
    for name in ("a", "b") * 3:
        world.queued(name)
    world.release("h1")
    assert world.served() == []
    world.queued("a")
    world.release("h2")
    assert world.served() == ["h3"]
    world.release("h3")
    assert world.served() == ["h4", "h5"]


def test_readers_do_not_starve_it_either() -> None:
    """Readers that would join others stand behind a waiting several-lock writer."""
    world = World()
    world.granted("a", mode=SHARED)
    world.queued(locks=AB)
    assert reason(world.acquire("a", mode=SHARED)) is Reason.LOCK_HELD
    assert reason(world.acquire("b", mode=SHARED)) is Reason.LOCK_HELD
    world.queued("b", mode=SHARED)
    world.release("h1")
    assert world.served() == ["h2"]


def test_two_sets_in_opposite_order_are_no_deadlock() -> None:
    """All queues know which came first, so the order in a request does not matter."""
    world = World()
    world.open("s1", "s2")
    world.granted("b")
    world.queued(locks=AB, session_id="s1")
    world.queued(locks=tuple(reversed(AB)), session_id="s2")
    world.release("h1")
    assert world.served() == ["h2"]
    world.release("h2")
    assert world.served() == ["h3"]


def test_a_wait_that_ends_frees_all_its_places() -> None:
    """When it gives up, who waited behind it in any of its queues is served."""
    world = World()
    world.granted("a")
    world.queued(locks=wanted("a", "b", "c/d"), wait_ms=100)
    world.queued("b")
    world.queued("c", scope=SUBTREE)
    world.pass_to(101)
    assert world.refused("h2").reason is Reason.LOCK_HELD
    assert world.served() == ["h3", "h4"]
    assert [event.name for event in world.events if event.kind is EventKind.WAIT_ENDED] == ["a", "b", "c/d"]


def test_a_part_can_be_released() -> None:
    """What is given back is served; the rest is kept with the same token, and answers say what that is."""
    world = World()
    world.granted(locks=(*AB, *wanted("c/d", "c/e", mode=SHARED)))
    world.queued("b")
    world.queued("c", scope=SUBTREE)
    assert world.release("h1", "b") == Released((Wanted("a"), *wanted("c/d", "c/e", mode=SHARED)))
    assert world.happened() == [("released", "b"), ("granted", "b")]
    assert world.release("h1", "c/e") == Released((Wanted("a"), Wanted("c/d", SHARED)))
    assert world.served() == []
    assert world.release("h1", "c/d") == Released((Wanted("a"),))
    assert world.served() == ["h3"]
    assert [it.token for it in world.machine.lock("a").holders] == [1]
    assert world.release("h1", "a") == Released()
    assert world.machine.lock("a").state == "free"


def test_releasing_all_by_name_ends_the_hold() -> None:
    """Who names every lock of a hold, in any order, has none left."""
    world = World()
    world.granted(locks=AB)
    assert world.release("h1", "b", "a") == Released()
    assert reason(world.release("h1")) is Reason.LEASE_EXPIRED


def test_one_lock_can_be_released_by_its_name() -> None:
    """Also a hold of a single lock may be named."""
    world = World()
    world.granted("a")
    assert reason(world.release("h1", "b")) is Reason.NOT_HOLDER
    assert world.release("h1", "a") == Released()


def test_a_part_that_is_not_held_releases_nothing() -> None:
    """One name too many, or one twice, and all stay held."""
    world = World()
    world.granted(locks=AB)
    assert reason(world.release("h1", "a", "c")) is Reason.NOT_HOLDER
    assert reason(world.release("h1", "a", "a")) is Reason.INVALID_REQUEST
    assert world.events == ()
    assert [world.machine.lock(name).state for name in ("a", "b")] == ["held", "held"]


def test_a_release_without_names_ends_all() -> None:
    """Each lock has its event, and who waits is served."""
    world = World()
    world.granted(locks=AB)
    world.queued("b")
    assert world.release("h1") == Released()
    assert world.happened() == [("released", "a"), ("released", "b"), ("granted", "b")]


def test_forcing_one_name_ends_the_whole_hold() -> None:
    """A hold is one right: who loses one of its locks by force loses all."""
    world = World()
    world.granted(locks=(Wanted("a"), Wanted("b", SHARED, SUBTREE)), owner="ann")
    world.queued("a")
    released = expect(ForceReleased, world.force("b")).released
    assert [(it.owner, it.name, it.mode, it.scope) for it in released] == [("ann", "b", SHARED, SUBTREE)]
    assert world.happened() == [("forced", "a"), ("forced", "b"), ("granted", "a")]


def test_a_session_gets_the_same_locks_once() -> None:
    """The same list, in any order, is the same hold; another list is another request."""
    world = World()
    world.open("s1")
    first = world.granted(locks=AB, session_id="s1")
    again = world.granted(locks=tuple(reversed(AB)), session_id="s1", at_ms=300)
    assert (again.hold_id, again.token, again.expires_in_ms) == (first.hold_id, 1, 1000)
    assert reason(world.acquire(locks=wanted("a", "b", "c"), session_id="s1")) is Reason.LOCK_HELD
    assert reason(world.acquire("a", session_id="s1")) is Reason.LOCK_HELD


def test_a_hold_of_several_lives_like_any_other() -> None:
    """It expires with its lease, leaves a delay on each of its names, and shows in its session."""
    world = World()
    world.open("s1", ttl_ms=1000)
    world.granted(locks=(Wanted("a"), Wanted("b/c", UPDATE, SUBTREE)), session_id="s1", lock_delay_ms=500)
    view = world.machine.session(SessionId("s1"))
    assert view is not None
    assert [(it.name, it.mode, it.scope) for it in view.holds] == [
        ("a", EXCLUSIVE, NODE),
        ("b/c", UPDATE, SUBTREE),
    ]
    world.pass_to(1001)
    assert world.happened() == [("expired", "a"), ("expired", "b/c"), ("session-expired", "")]
    assert [world.machine.lock(name).state for name in ("a", "b/c", "b/c/d")] == ["delayed"] * 3
    world.open("s2")
    world.granted(locks=wanted("x", "y"), session_id="s2")


def test_closing_a_session_names_all_locks() -> None:
    """Every lock that it held is named, in order of tokens."""
    world = World()
    world.open("s1")
    world.granted(locks=wanted("c", "b"), session_id="s1")
    world.granted("a", session_id="s1")
    assert world.close("s1") == SessionClosed(("c", "b", "a"))


def test_a_session_sees_its_wait_in_each_queue() -> None:
    """A ticket of several shows once for each name, with its place there."""
    world = World()
    world.open("s1")
    world.granted("a")
    world.granted("b")
    world.queued("b")
    world.queued(locks=AB, session_id="s1")
    view = world.machine.session(SessionId("s1"))
    assert view is not None
    assert [(it.name, it.position) for it in view.tickets] == [("a", 1), ("b", 2)]


@pytest.mark.parametrize(
    ("locks", "name", "detail"),
    [
        (wanted("a", "a"), "", "locks: a name is given twice"),
        ((Wanted("a"), Wanted("a", SHARED)), "", "locks: a name is given twice"),
        (wanted("a"), "a", "name and locks: only one of the two is allowed"),
        (wanted("a//b"), "", "name: no part between two '/' may be empty"),
        (
            (*wanted("a", scope=SUBTREE), *wanted("a/b/c")),
            "",
            "locks: 'a/b/c' lies in the subtree 'a', which is asked for too",
        ),
        (
            (*wanted("a/b"), *wanted("a", scope=SUBTREE)),
            "",
            "locks: 'a/b' lies in the subtree 'a', which is asked for too",
        ),
        (wanted(*map(str, range(limits.LOCKS_COUNT_MAX + 1))), "", "locks: 65; at most 64 are allowed"),
    ],
)
def test_what_is_no_list_of_locks_is_refused(locks: tuple[Wanted, ...], name: str, detail: str) -> None:
    """A list that contradicts itself is refused with the names that do."""
    world = World()
    refused = expect(Refused, world.acquire(name, locks=locks))
    assert (refused.reason, refused.detail) == (Reason.INVALID_REQUEST, detail)
    assert world.machine.counts()["locks"] == 0


def test_a_list_may_have_sixty_four_locks() -> None:
    """The bound itself is allowed, one lock is a list too, and names may lie below names."""
    world = World()
    world.granted(locks=wanted(*map(str, range(limits.LOCKS_COUNT_MAX))))
    world.granted(locks=wanted("one"))
    world.granted(locks=wanted("a", "a/b", "a/b/c"))
    world.granted(locks=wanted("t", "tt", "u/t", scope=SUBTREE))


def test_mode_and_scope_of_the_command_mean_nothing_for_several() -> None:
    """Each lock of a list brings its own."""
    world = World()
    command = Acquire("", SHARED, HoldId("h"), AttemptId("t"), ttl_ms=1000, scope=SUBTREE, locks=AB)
    granted = expect(Granted, world.run(command))
    assert {(it.mode, it.scope) for it in granted.locks} == {(EXCLUSIVE, NODE)}
    again = msgspec.structs.replace(command, hold_id="i", mode=EXCLUSIVE)
    assert reason(world.run(again)) is Reason.LOCK_HELD


def test_a_reader_of_several_that_is_stuck_lets_other_readers_past() -> None:
    """Readers do not wait for each other, so one that waits elsewhere keeps nobody waiting here."""
    world = World()
    world.granted("a")
    world.granted("b")
    world.queued(locks=wanted("a", "b", mode=SHARED))
    world.queued("a", mode=SHARED)
    world.queued(locks=wanted("a", "b", mode=SHARED))
    world.queued(locks=wanted("a", "c", mode=SHARED))
    world.queued("a")
    world.queued("a", mode=SHARED)
    world.release("h1")
    assert world.served() == ["h4", "h6"]
    world.release("h2")
    assert world.served() == ["h3", "h5"]


def test_waiters_for_the_same_several_locks_are_let_through_once_each() -> None:
    """One that is found in the queues of all its names is granted once, in its turn."""
    world = World()
    world.granted(locks=wanted("c", "a"))
    world.granted("b")
    world.queued(locks=wanted("a", "b", mode=SHARED))
    for _ in range(4):
        world.queued(locks=wanted("a", "c", mode=SHARED))
    world.queued("c", mode=SHARED)
    world.release("h1")
    assert world.served() == ["h4", "h5", "h6", "h7", "h8"]


def test_a_refusal_behind_waiters_names_who_has_what_was_asked_for() -> None:
    """When only a waiter is in the way, the holders are shown, each with the lock that covers the name."""
    world = World()
    world.granted(locks=wanted("x", "a", mode=SHARED, scope=SUBTREE), owner="ann")
    world.queued("a/b")
    refused = expect(Refused, world.acquire("a/b", mode=SHARED))
    assert [(it.owner, it.name, it.scope) for it in refused.holders] == [("ann", "a", SUBTREE)]


def test_the_claims_of_one_request_are_bounded() -> None:
    """Very deep names together are too many to be looked at in one step; one fewer part is not."""
    world = World()
    deep = ["/".join([str(number), *"x" * 199]) for number in range(10)]
    assert expect(Granted, world.acquire(locks=wanted(*deep))).token == 1
    too_deep = ["/".join([f"y{number}", *"x" * 199]) for number in range(9)] + ["/".join(["y9", *"x" * 200])]
    refused = expect(Refused, world.acquire(locks=wanted(*too_deep)))
    assert refused.reason is Reason.INVALID_REQUEST
    assert "2001" in refused.detail
