"""Lock-delays: after an expiry or by force, nobody gets what a delay covers until it is over."""

from itertools import product

import pytest

from lockstate.modes import Mode, Scope
from lockstate.results import EventKind, Granted, LockView, Reason, Refused
from tests.unit.lockstate.world import EXCLUSIVE, NODE, SHARED, SUBTREE, UPDATE, World, expect, reason, wanted


def _delayed(name: str, mode: Mode = EXCLUSIVE, scope: Scope = NODE) -> World:
    """Return a world at 101 ms in which a delay of 500 ms began."""
    world = World()
    world.granted(name, mode=mode, scope=scope, ttl_ms=100, lock_delay_ms=500)
    assert world.pass_to(101) == [EventKind.EXPIRED]
    return world


@pytest.mark.parametrize(("held", "asked"), list(product(Mode, Mode)))
def test_a_delay_is_in_everybodys_way(held: Mode, asked: Mode) -> None:
    """Whatever mode has expired and whatever is asked for: a late writer may still be at work."""
    world = _delayed("a", held)
    refused = expect(Refused, world.acquire("a", mode=asked))
    assert (refused.reason, refused.holders) == (Reason.LOCK_HELD, ())
    assert refused.detail == "delayed after an expiry or a forced release"
    assert refused.retry_after_ms == 500


def test_a_delay_of_a_name_leaves_other_levels_alone() -> None:
    """It covers what the lock covered: the name, and not what lies above or below."""
    world = _delayed("a/b")
    assert [world.machine.lock(name).state for name in ("a", "a/b", "a/b/c")] == ["free", "delayed", "free"]
    world.granted("a")
    world.granted("a/b/c", scope=SUBTREE)
    refused = expect(Refused, world.acquire("a", scope=SUBTREE))
    assert refused.retry_after_ms == 500


def test_a_delay_of_a_subtree_covers_all_below() -> None:
    """Names below are delayed as well, and a subtree above waits."""
    world = _delayed("a/b", scope=SUBTREE)
    assert [world.machine.lock(name).state for name in ("a", "a/b", "a/b/c/d")] == [
        "free",
        "delayed",
        "delayed",
    ]
    for name in ("a/b", "a/b/c/d"):
        assert expect(Refused, world.acquire(name, mode=SHARED)).retry_after_ms == 500
    world.queued("a/b/c/d")
    world.queued("a", scope=SUBTREE)
    assert world.pass_to(601) == []
    assert world.pass_to(602) == [EventKind.GRANTED]
    assert world.served() == ["h4"]


def test_node_and_subtree_are_delayed_apart() -> None:
    """The delays of one name in both scopes run beside each other."""
    world = World()
    world.granted("a", mode=SHARED, ttl_ms=100, lock_delay_ms=300)
    world.granted("a", mode=SHARED, scope=SUBTREE, ttl_ms=100, lock_delay_ms=200)
    world.pass_to(101)
    assert world.machine.lock("a/b").state == "delayed"
    assert expect(Refused, world.acquire("a")).retry_after_ms == 200
    world.pass_to(302)
    assert world.machine.lock("a/b").state == "free"
    assert expect(Refused, world.acquire("a")).retry_after_ms == 99
    world.pass_to(402)
    assert world.machine.lock("a") == LockView("a", "free")


def test_every_lock_of_a_hold_is_delayed() -> None:
    """An expired hold of several leaves a delay on each of its names, with its scope."""
    world = World()
    world.granted(locks=wanted("a", "b/c", scope=SUBTREE) + wanted("d"), ttl_ms=100, lock_delay_ms=500)
    world.pass_to(101)
    assert [world.machine.lock(name).state for name in ("a/x", "b/c/x", "d", "d/x")] == [
        "delayed",
        "delayed",
        "delayed",
        "free",
    ]
    assert reason(world.acquire(locks=wanted("x", "d"))) is Reason.LOCK_HELD


def test_a_part_given_back_leaves_no_delay() -> None:
    """Only what is still held at the expiry is delayed."""
    world = World()
    world.granted(locks=wanted("a", "b"), ttl_ms=100, lock_delay_ms=500)
    world.release("h1", "a")
    world.pass_to(101)
    assert [world.machine.lock(name).state for name in ("a", "b")] == ["free", "delayed"]


@pytest.mark.parametrize(("own_ms", "forced_ms"), [(500, 0), (0, 500), (500, 300), (300, 500)])
def test_a_force_delays_all_that_was_held(own_ms: int, forced_ms: int) -> None:
    """Who was ended by force still believes to have all of it: the longer of the two delays covers it all."""
    world = World()
    world.granted(locks=wanted("a", scope=SUBTREE) + wanted("b"), lock_delay_ms=own_ms)
    world.force("a", forced_ms)
    states = [world.machine.lock(name).state for name in ("a", "a/x", "b", "b/x")]
    assert states == ["delayed", "delayed", "delayed", "free"]
    assert world.machine.next_deadline_ms() == 500


def test_a_force_without_a_delay_frees_at_once() -> None:
    """Neither the holder nor who forced it asked for one."""
    world = World()
    world.granted("a")
    world.force("a")
    world.granted("a")


def test_the_longer_of_two_delays_counts() -> None:
    """A force that delays less than a delay that runs changes nothing; one that delays more does."""
    world = World()
    world.granted("a", mode=SHARED, ttl_ms=100, lock_delay_ms=500)
    world.granted("a", mode=SHARED, ttl_ms=9000)
    world.pass_to(101)
    world.force("a", 200)
    assert expect(Refused, world.acquire("a")).retry_after_ms == 500
    world = World()
    world.granted("a", mode=SHARED, ttl_ms=100, lock_delay_ms=500)
    world.granted("a", mode=SHARED, ttl_ms=9000)
    world.pass_to(101)
    world.force("a", 700)
    assert expect(Refused, world.acquire("a")).retry_after_ms == 700
    world.pass_to(802)
    world.granted("a")


def test_a_delay_serves_its_queue_in_order() -> None:
    """When it is over, those who waited are let through as after a release."""
    world = _delayed("a")
    for mode in (SHARED, UPDATE, EXCLUSIVE, SHARED):
        world.queued("a", mode=mode)
    world.pass_to(602)
    assert world.served() == ["h2", "h3"]


def test_a_listing_has_delayed_names() -> None:
    """A name that is only delayed is still shown; its ancestors are not."""
    world = _delayed("a/b")
    views, more = world.machine.locks("", "", 10)
    assert [(view.name, view.state) for view in views] == [("a/b", "delayed")]
    assert more is None


def test_a_delay_of_an_hour_does_not_touch_others() -> None:
    """Other names are not concerned, also if they begin alike."""
    world = _delayed("a", scope=SUBTREE)
    assert isinstance(world.acquire("ab"), Granted)
    assert expect(Refused, world.acquire("a/b", scope=SUBTREE)).retry_after_ms == 500
    assert isinstance(world.acquire("b", scope=SUBTREE), Granted)
