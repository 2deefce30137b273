"""Several locks at once: all or nothing, one place in all queues, holding nothing meanwhile."""

import msgspec
import pytest

from lockstate.words import limits
from lockstate.words.commands import Acquire, Wanted
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.results import (
    EventKind,
    ForceReleased,
    Granted,
    Reason,
    Refused,
    Released,
    SessionClosed,
)
from tests.unit.lockstate.machine_driver import (
    EXCLUSIVE,
    NODE,
    SHARED,
    SUBTREE,
    UPDATE,
    MachineDriver,
    expect,
    reason,
    wanted,
)

AB = wanted("a", "b")


def test_all_are_granted_together() -> None:
    """One hold with one token has them all; each has an event of its own."""
    driver = MachineDriver()
    granted = driver.granted(locks=AB + wanted("c", mode=SHARED, scope=SUBTREE))
    assert (granted.name, granted.token) == ("", 1)
    assert granted.locks == (*AB, Wanted("c", SHARED, SUBTREE))
    assert [
        (event.kind.value, event.name, event.mode, event.scope, event.token) for event in driver.events
    ] == [
        ("granted", "a", EXCLUSIVE, NODE, 1),
        ("granted", "b", EXCLUSIVE, NODE, 1),
        ("granted", "c", SHARED, SUBTREE, 1),
    ]
    assert [holder.token for holder in driver.machine.lock("c/d").holders] == [1]
    assert driver.machine.next_token == 2


def test_none_is_granted_if_one_is_not_free() -> None:
    """When one of them is held, nothing is taken, and the refusal names the holder of that one."""
    driver = MachineDriver()
    driver.granted("b", owner="bob")
    refused = expect(Refused, driver.acquire(locks=AB))
    assert refused.reason is Reason.LOCK_HELD
    assert [(holder.owner, holder.name) for holder in refused.holders] == [("bob", "b")]
    assert driver.machine.lock("a").state == "free"


def test_a_refusal_names_one_that_is_in_the_way_twice_once() -> None:
    """A hold of several locks that has two of those asked for shows once, with the first of its own."""
    driver = MachineDriver()
    driver.granted(locks=AB, owner="ann")
    refused = expect(Refused, driver.acquire(locks=wanted("x", "a", "b")))
    assert [(holder.owner, holder.name) for holder in refused.holders] == [("ann", "a")]


def test_one_ticket_waits_in_all_queues_and_holds_nothing() -> None:
    """While it waits others hold what is free of it, if they came before it."""
    driver = MachineDriver()
    driver.granted("a")
    driver.granted("b")
    driver.queued("b", owner="first")
    assert driver.queued(locks=AB, owner="both").position == 2
    driver.release("h1")
    assert driver.machine.lock("a").state == "free"
    assert [waiter.owner for waiter in driver.machine.lock("a").queue] == ["both"]
    assert [waiter.owner for waiter in driver.machine.lock("b").queue] == ["first", "both"]
    driver.release("h2")
    assert driver.served() == ["h3"]
    driver.release("h3")
    assert driver.served() == ["h4"]
    assert driver.machine.lock("a").state == driver.machine.lock("b").state == "held"


def test_single_locks_do_not_starve_it() -> None:
    """A stream of single locks on either name does not starve it: later requests wait behind it."""
    driver = MachineDriver()
    driver.granted("a")
    driver.granted("b")
    driver.queued(locks=AB)
    for name in ("a", "b") * 3:
        driver.queued(name)
    driver.release("h1")
    assert driver.served() == []
    driver.queued("a")
    driver.release("h2")
    assert driver.served() == ["h3"]
    driver.release("h3")
    assert driver.served() == ["h4", "h5"]


def test_readers_do_not_starve_it_either() -> None:
    """Readers that would join others stand behind a waiting several-lock writer."""
    driver = MachineDriver()
    driver.granted("a", mode=SHARED)
    driver.queued(locks=AB)
    assert reason(driver.acquire("a", mode=SHARED)) is Reason.LOCK_HELD
    assert reason(driver.acquire("b", mode=SHARED)) is Reason.LOCK_HELD
    driver.queued("b", mode=SHARED)
    driver.release("h1")
    assert driver.served() == ["h2"]


def test_two_sets_in_opposite_order_do_not_deadlock() -> None:
    """All queues know which came first, so the order in a request does not matter."""
    driver = MachineDriver()
    driver.open("s1", "s2")
    driver.granted("b")
    driver.queued(locks=AB, session_id="s1")
    driver.queued(locks=tuple(reversed(AB)), session_id="s2")
    driver.release("h1")
    assert driver.served() == ["h2"]
    driver.release("h2")
    assert driver.served() == ["h3"]


def test_a_wait_that_ends_frees_all_its_places() -> None:
    """When it gives up, the waiters behind it in all its queues are served."""
    driver = MachineDriver()
    driver.granted("a")
    driver.queued(locks=wanted("a", "b", "c/d"), wait_ms=100)
    driver.queued("b")
    driver.queued("c", scope=SUBTREE)
    driver.pass_to(101)
    assert driver.refused("h2").reason is Reason.LOCK_HELD
    assert driver.served() == ["h3", "h4"]
    assert [event.name for event in driver.events if event.kind is EventKind.LEFT] == ["a", "b", "c/d"]


def test_a_part_can_be_released() -> None:
    """What is given back is served; the rest is kept with the same token, and answers say what that is."""
    driver = MachineDriver()
    driver.granted(locks=(*AB, *wanted("c/d", "c/e", mode=SHARED)))
    driver.queued("b")
    driver.queued("c", scope=SUBTREE)
    assert driver.release("h1", "b") == Released((Wanted("a"), *wanted("c/d", "c/e", mode=SHARED)))
    assert driver.happened() == [("released", "b"), ("granted", "b")]
    assert driver.release("h1", "c/e") == Released((Wanted("a"), Wanted("c/d", SHARED)))
    assert driver.served() == []
    assert driver.release("h1", "c/d") == Released((Wanted("a"),))
    assert driver.served() == ["h3"]
    assert [holder.token for holder in driver.machine.lock("a").holders] == [1]
    assert driver.release("h1", "a") == Released()
    assert driver.machine.lock("a").state == "free"


def test_releasing_all_by_name_ends_the_hold() -> None:
    """A release that names every lock of a hold, in any order, ends it."""
    driver = MachineDriver()
    driver.granted(locks=AB)
    assert driver.release("h1", "b", "a") == Released()
    assert reason(driver.release("h1")) is Reason.LEASE_EXPIRED


def test_one_lock_can_be_released_by_its_name() -> None:
    """A release may name the lock of a hold of one."""
    driver = MachineDriver()
    driver.granted("a")
    assert reason(driver.release("h1", "b")) is Reason.NOT_HOLDER
    assert driver.release("h1", "a") == Released()


def test_a_part_that_is_not_held_releases_nothing() -> None:
    """One name too many, or one twice, and all stay held."""
    driver = MachineDriver()
    driver.granted(locks=AB)
    assert reason(driver.release("h1", "a", "c")) is Reason.NOT_HOLDER
    assert reason(driver.release("h1", "a", "a")) is Reason.INVALID_REQUEST
    assert driver.events == ()
    assert [driver.machine.lock(name).state for name in ("a", "b")] == ["held", "held"]


def test_a_release_without_names_ends_all() -> None:
    """Each lock has its event, and the waiters are served."""
    driver = MachineDriver()
    driver.granted(locks=AB)
    driver.queued("b")
    assert driver.release("h1") == Released()
    assert driver.happened() == [("released", "a"), ("released", "b"), ("granted", "b")]


def test_forcing_one_name_ends_the_whole_hold() -> None:
    """A hold is one right: a force on one of its locks ends all of it."""
    driver = MachineDriver()
    driver.granted(locks=(Wanted("a"), Wanted("b", SHARED, SUBTREE)), owner="ann")
    driver.queued("a")
    released = expect(ForceReleased, driver.force("b")).released
    assert [(holder.owner, holder.name, holder.mode, holder.scope) for holder in released] == [
        ("ann", "b", SHARED, SUBTREE)
    ]
    assert driver.happened() == [("forced", "a"), ("forced", "b"), ("granted", "a")]


def test_a_session_gets_the_same_locks_once() -> None:
    """The same list, in any order, is the same hold; another list is another request."""
    driver = MachineDriver()
    driver.open("s1")
    first = driver.granted(locks=AB, session_id="s1")
    again = driver.granted(locks=tuple(reversed(AB)), session_id="s1", at_ms=300)
    assert (again.hold_id, again.token, again.expires_in_ms) == (first.hold_id, 1, 1000)
    assert reason(driver.acquire(locks=wanted("a", "b", "c"), session_id="s1")) is Reason.LOCK_HELD
    assert reason(driver.acquire("a", session_id="s1")) is Reason.LOCK_HELD


def test_a_hold_of_several_lives_like_any_other() -> None:
    """It expires with its lease, leaves a delay on each of its names, and shows in its session."""
    driver = MachineDriver()
    driver.open("s1", ttl_ms=1000)
    driver.granted(locks=(Wanted("a"), Wanted("b/c", UPDATE, SUBTREE)), session_id="s1", lock_delay_ms=500)
    view = driver.machine.session(SessionId("s1"))
    assert view is not None
    assert [(holder.name, holder.mode, holder.scope) for holder in view.holds] == [
        ("a", EXCLUSIVE, NODE),
        ("b/c", UPDATE, SUBTREE),
    ]
    driver.pass_to(1001)
    assert driver.happened() == [("expired", "a"), ("expired", "b/c"), ("session-expired", "")]
    assert [driver.machine.lock(name).state for name in ("a", "b/c", "b/c/d")] == ["delayed"] * 3
    driver.open("s2")
    driver.granted(locks=wanted("x", "y"), session_id="s2")


def test_closing_a_session_names_all_locks() -> None:
    """Every lock that it held is named, in order of tokens."""
    driver = MachineDriver()
    driver.open("s1")
    driver.granted(locks=wanted("c", "b"), session_id="s1")
    driver.granted("a", session_id="s1")
    assert driver.close("s1") == SessionClosed(("c", "b", "a"))


def test_a_session_sees_its_wait_in_each_queue() -> None:
    """A ticket of several shows once for each name, with its place there."""
    driver = MachineDriver()
    driver.open("s1")
    driver.granted("a")
    driver.granted("b")
    driver.queued("b")
    driver.queued(locks=AB, session_id="s1")
    view = driver.machine.session(SessionId("s1"))
    assert view is not None
    assert [(waiter.name, waiter.position) for waiter in view.tickets] == [("a", 1), ("b", 2)]


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
def test_bad_lists_of_locks_are_refused(locks: tuple[Wanted, ...], name: str, detail: str) -> None:
    """A list that contradicts itself is refused with the names that do."""
    driver = MachineDriver()
    refused = expect(Refused, driver.acquire(name, locks=locks))
    assert (refused.reason, refused.detail) == (Reason.INVALID_REQUEST, detail)
    assert driver.machine.counts()["locks"] == 0


def test_a_list_may_have_sixty_four_locks() -> None:
    """The bound itself is allowed, one lock is a list too, and names may lie below names."""
    driver = MachineDriver()
    driver.granted(locks=wanted(*map(str, range(limits.LOCKS_COUNT_MAX))))
    driver.granted(locks=wanted("one"))
    driver.granted(locks=wanted("a", "a/b", "a/b/c"))
    driver.granted(locks=wanted("t", "tt", "u/t", scope=SUBTREE))


def test_mode_and_scope_of_the_command_mean_nothing_for_several() -> None:
    """Each lock of a list brings its own."""
    driver = MachineDriver()
    command = Acquire("", SHARED, HoldId("h"), AttemptId("t"), ttl_ms=1000, scope=SUBTREE, locks=AB)
    granted = expect(Granted, driver.run(command))
    assert {(lock.mode, lock.scope) for lock in granted.locks} == {(EXCLUSIVE, NODE)}
    again = msgspec.structs.replace(command, hold_id="i", mode=EXCLUSIVE)
    assert reason(driver.run(again)) is Reason.LOCK_HELD


def test_a_reader_of_several_that_is_stuck_lets_other_readers_past() -> None:
    """Readers do not wait for each other, so one that waits elsewhere keeps nobody waiting here."""
    driver = MachineDriver()
    driver.granted("a")
    driver.granted("b")
    driver.queued(locks=wanted("a", "b", mode=SHARED))
    driver.queued("a", mode=SHARED)
    driver.queued(locks=wanted("a", "b", mode=SHARED))
    driver.queued(locks=wanted("a", "c", mode=SHARED))
    driver.queued("a")
    driver.queued("a", mode=SHARED)
    driver.release("h1")
    assert driver.served() == ["h4", "h6"]
    driver.release("h2")
    assert driver.served() == ["h3", "h5"]


def test_waiters_for_the_same_several_locks_are_let_through_once_each() -> None:
    """One that is found in the queues of all its names is granted once, in its turn."""
    driver = MachineDriver()
    driver.granted(locks=wanted("c", "a"))
    driver.granted("b")
    driver.queued(locks=wanted("a", "b", mode=SHARED))
    for _ in range(4):
        driver.queued(locks=wanted("a", "c", mode=SHARED))
    driver.queued("c", mode=SHARED)
    driver.release("h1")
    assert driver.served() == ["h4", "h5", "h6", "h7", "h8"]


def test_a_refusal_behind_waiters_names_the_holders_of_what_was_asked_for() -> None:
    """When only a waiter is in the way, the holders are shown, each with the lock that covers the name."""
    driver = MachineDriver()
    driver.granted(locks=wanted("x", "a", mode=SHARED, scope=SUBTREE), owner="ann")
    driver.queued("a/b")
    refused = expect(Refused, driver.acquire("a/b", mode=SHARED))
    assert [(holder.owner, holder.name, holder.scope) for holder in refused.holders] == [
        ("ann", "a", SUBTREE)
    ]


def test_the_claims_of_one_request_are_bounded() -> None:
    """Very deep names together are too many to be looked at in one step; one fewer part is not."""
    driver = MachineDriver()
    deep = ["/".join([str(number), *"x" * 199]) for number in range(10)]
    assert expect(Granted, driver.acquire(locks=wanted(*deep))).token == 1
    too_deep = ["/".join([f"y{number}", *"x" * 199]) for number in range(9)] + ["/".join(["y9", *"x" * 200])]
    refused = expect(Refused, driver.acquire(locks=wanted(*too_deep)))
    assert refused.reason is Reason.INVALID_REQUEST
    assert "2001" in refused.detail
