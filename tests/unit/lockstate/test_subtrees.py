"""Locks of subtrees: a name and all that lies below it, against locks of single names on every level."""

from itertools import product

from lockstate.words.modes import COMPATIBLE, Mode, Scope
from lockstate.words.refusals import Refused
from lockstate.words.results import Granted
from lockstate.words.wanted import Wanted
from tests.unit.lockstate.machine_driver import NODE, SHARED, SUBTREE, UPDATE, MachineDriver, expect

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
