"""The checkers of what clients relied on: each finds what it is for, and nothing in what is well."""

from dataclasses import replace

import holdfast
from tests.process.belief_checkers import Belief, too_many_believers, wrong_grants, wrong_tokens

LOCK = Belief("a", "call-1", token=1, permits=1, limit=1, asked_s=0.0, from_s=1.0, until_s=2.0)
LATER = replace(LOCK, call="call-2", token=2, asked_s=0.5, from_s=2.0, until_s=3.0)


def event(revision: int, what: str, token: int, owner: str = "call-1") -> holdfast.Event:
    """Return an event of the audit."""
    return holdfast.Event(revision, what, "lock", "a", owner=owner, token=token)


def test_two_believers_are_found() -> None:
    """One behind the other is well, also at the same moment; so is what was over before it began."""
    assert too_many_believers([LOCK, LATER]) == []
    assert len(too_many_believers([LOCK, replace(LATER, from_s=1.9)])) == 1
    assert too_many_believers([LOCK, replace(LATER, name="b", from_s=1.5)]) == []
    assert too_many_believers([LOCK, replace(LATER, from_s=1.5, until_s=1.4)]) == []


def test_too_many_permits_are_found() -> None:
    """Up to the limit is well."""
    one, other = (replace(each, permits=2, limit=3, from_s=1.0) for each in (LOCK, LATER))
    assert too_many_believers([one, replace(other, permits=1)]) == []
    assert len(too_many_believers([one, other])) == 1


def test_tokens_that_are_wrong_are_found() -> None:
    """The same one twice, and a lower one asked for when a higher one was known."""
    assert wrong_tokens([LOCK, LATER]) == []
    assert len(wrong_tokens([LOCK, replace(LATER, token=1)])) == 2
    assert wrong_tokens([replace(LOCK, token=3), LATER]) == []
    assert len(wrong_tokens([replace(LOCK, token=3), replace(LATER, asked_s=1.5)])) == 1


def test_a_call_with_two_grants_is_found() -> None:
    """At a time: one that was given back before the next is well."""
    granted, again = event(1, "granted", 1), event(2, "granted", 2)
    assert len(wrong_grants([granted, again], {"call-1": 2}, [])) == 1
    assert wrong_grants([granted, event(1, "released", 1), again], {"call-1": 2}, ["call-1"]) == []


def test_what_was_left_is_found() -> None:
    """Who was told for sure what it has leaves nothing else to its lease."""
    events = [event(1, "granted", 1), event(2, "expired", 1)]
    assert wrong_grants(events, {"call-1": 1}, ["call-1"]) == []
    assert wrong_grants(events, {}, []) == []
    assert len(wrong_grants(events, {}, ["call-1"])) == 1
    assert wrong_grants([events[0], event(2, "released", 1)], {}, ["call-1"]) == []
    assert len(wrong_grants([*events, event(3, "granted", 2)], {"call-1": 2}, ["call-1"])) == 1


def test_what_was_made_up_is_found() -> None:
    """A token that the cluster has not granted, or to somebody else."""
    assert len(wrong_grants([event(1, "granted", 1, "call-2")], {"call-1": 1}, [])) == 1
