"""Locks of subtrees: a name and all that lies below it, against locks of single names on every level."""

from itertools import product

import pytest

from lockstate.words.commands import Wanted
from lockstate.words.ids import OwnerName
from lockstate.words.modes import COMPATIBLE, Mode, Scope
from lockstate.words.results import EventKind, ForceReleased, Granted, LockView, Refused, WaiterView
from tests.unit.lockstate.machine_driver import (
    EXCLUSIVE,
    NODE,
    SHARED,
    SUBTREE,
    UPDATE,
    MachineDriver,
    expect,
)

NAMES = ("a", "a/b", "a/b/c", "a/x", "ab", "b")
LOCKS = [Wanted(*parts) for parts in product(NAMES, Mode, Scope)]


def _covers(lock: Wanted, name: str) -> bool:
    """Whether a lock covers a name, by their paths alone."""
    return name == lock.name or (lock.scope is SUBTREE and name.startswith(lock.name + "/"))


def _conflict(one: Wanted, other: Wanted) -> bool:
    """Whether two locks share a name and do not go together there."""
    return other.mode not in COMPATIBLE[one.mode] and any(
        _covers(one, name) and _covers(other, name) for name in (one.name, other.name)
    )


def _ask(driver: MachineDriver, lock: Wanted) -> Granted | Refused:
    result = driver.acquire(lock.name, mode=lock.mode, scope=lock.scope)
    assert isinstance(result, Granted | Refused)
    return result


def test_every_pair_of_locks_follows_the_path_rule() -> None:
    """Whatever is held, a request is granted exactly if the two locks conflict on no common name."""
    for held, asked in product(LOCKS, LOCKS):
        driver = MachineDriver()
        _ask(driver, held)
        result = _ask(driver, asked)
        assert isinstance(result, Refused) == _conflict(held, asked), (held, asked)
        if isinstance(result, Refused):
            assert [(holder.name, holder.scope) for holder in result.holders] == [(held.name, held.scope)], (
                asked
            )


def test_every_waiter_is_in_the_way_by_the_path_rule() -> None:
    """A waiter is overtaken exactly by requests that conflict with it on no common name."""
    for waiting, asked in product(LOCKS, LOCKS):
        if waiting.mode in COMPATIBLE[UPDATE] or not _covers(waiting, "a/b/c"):
            continue
        driver = MachineDriver()
        driver.granted("a/b/c", mode=UPDATE)
        driver.queued(waiting.name, mode=waiting.mode, scope=waiting.scope)
        held = Wanted("a/b/c", UPDATE)
        result = _ask(driver, asked)
        in_the_way = _conflict(held, asked) or _conflict(waiting, asked)
        assert isinstance(result, Refused) == in_the_way, (waiting, asked)


def test_every_waiter_is_served_by_the_path_rule() -> None:
    """When the only lock in the way ends, its waiters are let through, on any level."""
    for held, asked in product(LOCKS, LOCKS):
        if not _conflict(held, asked):
            continue
        driver = MachineDriver()
        _ask(driver, held)
        driver.queued(asked.name, mode=asked.mode, scope=asked.scope)
        driver.release("h1")
        assert driver.served() == ["h2"], (held, asked)


def test_a_name_and_a_name_below_are_two_locks() -> None:
    """Without a subtree, a path says nothing about the names above and below."""
    driver = MachineDriver()
    for name in ("a", "a/b", "a/b/c"):
        driver.granted(name)


def test_a_name_that_only_begins_alike_is_not_below() -> None:
    """`ab` is not in the subtree `a`."""
    driver = MachineDriver()
    driver.granted("a", scope=SUBTREE)
    driver.granted("ab")
    driver.granted("ab/c", scope=SUBTREE)


def test_a_refusal_names_the_paths_in_the_way() -> None:
    """A refused request for a subtree learns which names below it, and which subtrees above, others hold."""
    driver = MachineDriver()
    driver.granted("a/b", owner="ann")
    driver.granted("a/c/d", mode=SHARED, owner="bob")
    driver.granted("e", owner="eve")
    refused = expect(Refused, driver.acquire("a", scope=SUBTREE))
    assert [(holder.owner, holder.name, holder.scope) for holder in refused.holders] == [
        ("ann", "a/b", NODE),
        ("bob", "a/c/d", NODE),
    ]
    driver.granted("t", scope=SUBTREE, owner="tim")
    refused = expect(Refused, driver.acquire("t/u/v", mode=SHARED))
    assert [(holder.owner, holder.name, holder.scope) for holder in refused.holders] == [
        ("tim", "t", SUBTREE)
    ]
    assert refused.detail == "held by tim"
    assert refused.queue_length == 0


def test_a_refusal_names_only_what_conflicts() -> None:
    """A reader of a subtree does not hear of the other readers in it."""
    driver = MachineDriver()
    driver.granted("a/b", mode=SHARED)
    driver.granted("a/c", mode=UPDATE, owner="ulf")
    driver.granted("a/d", owner="xen")
    refused = expect(Refused, driver.acquire("a", mode=SHARED, scope=SUBTREE))
    assert [holder.owner for holder in refused.holders] == ["xen"]
    refused = expect(Refused, driver.acquire("a", mode=UPDATE, scope=SUBTREE))
    assert [holder.owner for holder in refused.holders] == ["ulf", "xen"]


def test_a_subtree_waits_for_everybody_below() -> None:
    """It is granted when the last holder below has left, and later requests wait behind it."""
    driver = MachineDriver()
    driver.granted("a/b")
    driver.granted("a/c/d")
    driver.queued("a", scope=SUBTREE)
    driver.queued("a/e")
    driver.release("h1")
    assert driver.served() == []
    driver.release("h2")
    assert driver.served() == ["h3"]
    driver.release("h3")
    assert driver.served() == ["h4"]


def test_names_outside_go_past_a_waiting_subtree() -> None:
    """A request for nothing in the subtree does not wait for a waiter for the subtree."""
    driver = MachineDriver()
    driver.granted("a/b")
    driver.queued("a", scope=SUBTREE)
    driver.granted("b")
    driver.granted("ab")


def test_readers_of_a_subtree_share_it() -> None:
    """A subtree that is read can be read on every level, and written nowhere."""
    driver = MachineDriver()
    driver.granted("a", mode=SHARED, scope=SUBTREE)
    driver.granted("a/b", mode=SHARED)
    driver.granted("a/b", mode=SHARED, scope=SUBTREE)
    driver.granted("a/c", mode=UPDATE)
    driver.queued("a/b", owner="writer")
    driver.granted("a/x", mode=SHARED)
    driver.release("h1")
    assert driver.served() == []
    for hold_id in ("h2", "h3"):
        driver.release(hold_id)
    assert driver.served() == ["h5"]


def test_a_release_serves_above_and_below_in_order_of_arrival() -> None:
    """Waiters at different levels of one path are let through in the order in which they came."""
    driver = MachineDriver()
    driver.granted("a/b", scope=SUBTREE)
    driver.queued("a/b/c", mode=SHARED)
    driver.queued("a", mode=SHARED, scope=SUBTREE)
    driver.queued("a/b", mode=SHARED)
    driver.queued("a/b/c/d")
    driver.queued("a/b/e", mode=SHARED, scope=SUBTREE)
    driver.release("h1")
    assert driver.served() == ["h2", "h3", "h4", "h6"]


def test_a_wait_for_a_subtree_that_ends_lets_those_below_through() -> None:
    """When the waiter for the subtree gives up, later waiters are served, on every level."""
    driver = MachineDriver()
    driver.granted("a/b")
    driver.queued("a", scope=SUBTREE, wait_ms=100)
    driver.queued("a/c")
    driver.queued("a/d/e", mode=SHARED, scope=SUBTREE)
    driver.queued("a/b")
    assert driver.pass_to(101) == [EventKind.LEFT, EventKind.GRANTED, EventKind.GRANTED]
    assert driver.served() == ["h3", "h4"]


def test_a_read_shows_the_subtrees_that_cover_a_name() -> None:
    """A name is held also by a holder of a subtree above it; the view says at which name."""
    driver = MachineDriver()
    driver.granted("a", mode=SHARED, scope=SUBTREE, owner="ann")
    driver.granted("a/b", mode=SHARED, owner="bob")
    driver.granted("a", mode=SHARED, owner="eve")
    view = driver.machine.lock("a/b")
    assert [(holder.owner, holder.name, holder.scope, holder.token) for holder in view.holders] == [
        ("ann", "a", SUBTREE, 1),
        ("bob", "a/b", NODE, 2),
    ]
    assert driver.machine.lock("a/z/z").state == "held"
    assert driver.machine.lock("a/z/z").holders == view.holders[:1]
    assert [holder.owner for holder in driver.machine.lock("a").holders] == ["ann", "eve"]
    assert driver.machine.lock("b") == LockView("b", "free")


def test_a_queue_is_of_one_name() -> None:
    """Waiters show in the queue of the name that they asked for, whatever their scope, and nowhere else."""
    driver = MachineDriver()
    driver.granted("a/b", owner="ann")
    driver.queued("a", scope=SUBTREE, owner="bob")
    driver.queued("a", owner="eve")
    driver.queued("a/b", owner="tim")
    assert driver.machine.lock("a").queue == (
        WaiterView(OwnerName("bob"), EXCLUSIVE, 1, 0, "a", SUBTREE, ticket=2),
        WaiterView(OwnerName("eve"), EXCLUSIVE, 2, 0, "a", ticket=3),
    )
    assert [waiter.owner for waiter in driver.machine.lock("a/b").queue] == ["tim"]
    assert driver.machine.lock("a").state == "free"


def test_a_forced_release_is_of_one_name() -> None:
    """A force ends the holds of that very name, also those of its subtree, and no others."""
    driver = MachineDriver()
    driver.granted("a", mode=SHARED, scope=SUBTREE, owner="ann")
    driver.granted("a/b", mode=SHARED, owner="bob")
    assert expect(ForceReleased, driver.force("a/c")).released == ()
    released = expect(ForceReleased, driver.force("a")).released
    assert [(holder.owner, holder.name, holder.scope) for holder in released] == [("ann", "a", SUBTREE)]
    assert [holder.owner for holder in driver.machine.lock("a/b").holders] == ["bob"]


def test_the_same_name_in_another_scope_is_another_lock() -> None:
    """A session that has a name and asks for its subtree asks for something else, and is in its own way."""
    driver = MachineDriver()
    driver.open("s1")
    driver.granted("a", mode=SHARED, session_id="s1")
    second = driver.granted("a", mode=SHARED, scope=SUBTREE, session_id="s1")
    assert second.token == 2
    assert driver.granted("a", mode=SHARED, scope=SUBTREE, session_id="s1").hold_id == second.hold_id
    assert expect(Refused, driver.acquire("a", scope=SUBTREE, session_id="s1")).queue_length == 0


def test_elections_and_semaphores_are_not_in_a_tree() -> None:
    """Their names may look like paths, and mean nothing to locks of subtrees, or to each other."""
    driver = MachineDriver()
    driver.open("s1", "s2")
    driver.granted("a", scope=SUBTREE)
    driver.campaign("a", "s1")
    driver.campaign("a/b", "s1")
    assert driver.machine.election("a/b").leader is not None
    driver.permitted("a/b", 1)
    driver.campaign("a/b", "s2", wait_ms=100)
    assert set(driver.machine.state.locks) == {"a", "\x01a", "\x01a/b"}


@pytest.mark.parametrize("scope", list(Scope))
def test_events_tell_the_scope(scope: Scope) -> None:
    """Events say what a lock covers."""
    driver = MachineDriver()
    driver.granted("a", scope=scope)
    assert [(event.name, event.scope) for event in driver.events] == [("a", scope)]


def test_an_end_lets_through_only_waiters_below_that_nothing_else_blocks() -> None:
    """When the waiter for everything gives up, readers beside the subtree's reader go; writers wait."""
    driver = MachineDriver()
    driver.granted("t", mode=SHARED, scope=SUBTREE)
    driver.queued("t", scope=SUBTREE, wait_ms=100)
    driver.queued("t/x")
    driver.queued("t/y", mode=SHARED)
    driver.queued("t/z/z", mode=UPDATE)
    driver.pass_to(101)
    assert driver.served() == ["h4", "h5"]
