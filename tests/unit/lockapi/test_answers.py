"""Answers: what the results of commands become, field by field where something depends on the result."""

from typing import Any

import msgspec

from cluster.consensus.member_list import MemberRecord, Members
from lockapi import answers
from lockstate.words import results
from lockstate.words.ids import HoldId, OwnerName
from lockstate.words.modes import Mode, Scope
from lockstate.words.wanted import Wanted


def _json(answer: object) -> dict[str, Any]:
    return msgspec.json.decode(answers.encode(answer), type=dict[str, Any])


def _granted(**fields: Any) -> results.Granted:
    given: dict[str, Any] = {
        "hold_id": HoldId("h"),
        "token": 7,
        "name": "a",
        "mode": Mode.SHARED,
        "expires_in_ms": 500,
    }
    return results.Granted(**given | fields)


def test_one_lock_has_its_name_and_mode() -> None:
    """Its scope is there only when it covers the subtree."""
    plain = {"hold_id": "h", "token": 7, "name": "a", "mode": "shared", "expires_in_ms": 500, "revision": 9}
    assert _json(answers.granted(_granted(), 9)) == plain
    assert _json(answers.granted(_granted(scope=Scope.SUBTREE), 9)) == {**plain, "scope": "subtree"}


def test_several_locks_have_one_id_and_token() -> None:
    """Name and mode stand with each of them."""
    locks = (Wanted("b", Mode.UPDATE, Scope.SUBTREE), Wanted("a"))
    assert _json(answers.granted(_granted(locks=locks), 9)) == {
        "hold_id": "h",
        "token": 7,
        "locks": [
            {"name": "b", "mode": "update", "scope": "subtree"},
            {"name": "a", "mode": "exclusive", "scope": "node"},
        ],
        "expires_in_ms": 500,
        "revision": 9,
    }


def test_a_release_in_part_says_what_is_left() -> None:
    """A release of everything does not."""
    assert _json(answers.released(results.Released(), 9)) == {"released": True, "revision": 9}
    rest = answers.released(results.Released(locks=(Wanted("a"),)), 9)
    assert [lock["name"] for lock in _json(rest)["locks"]] == ["a"]


def test_an_election_names_the_leader_and_its_value() -> None:
    """The value is what the leader campaigned with."""
    elected = _json(answers.elected(_granted(owner=OwnerName("me")), "http://a", 9))
    assert elected["leader"] == {"owner": "me", "value": "http://a", "token": 7}


def test_a_rate_limit_resets_sooner_after_a_wait() -> None:
    """What was waited for the reserved moment is no longer to come, and never below zero."""
    taken = results.RateTaken(allowed=True, limit=5, remaining=2, retry_after_ms=0, reset_in_ms=300, at_ms=1)
    assert [answers.rate_taken(taken, waited_ms, 9).reset_in_ms for waited_ms in (0, 100, 400)] == [
        300,
        200,
        0,
    ]


def test_a_member_that_has_not_caught_up_is_joining() -> None:
    """All others are voters."""
    members = Members({"n1": MemberRecord("h:1", is_voter=True), "n2": MemberRecord("h:2", is_voter=False)})
    assert _json(answers.member_list(members, 9)) == {
        "members": [
            {"id": "n1", "peer": "h:1", "state": "voter"},
            {"id": "n2", "peer": "h:2", "state": "joining"},
        ],
        "revision": 9,
    }
