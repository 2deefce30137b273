"""What is taken past the library's own handling of messages has the effects that it would have there."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from cluster.consensus.library_words import to_library
from cluster.consensus.messages import Acknowledgement, AppendEntries, Message
from tests.unit.cluster.consensus.one_replica import Site


def take_through_the_library(site: Site, peer_id: str, message: Message) -> None:
    """Hand a message to the library itself."""
    taking: Any = site.replica.engine.library
    taking._SyncObj__onMessageReceived(taking._peers[peer_id], to_library(message))
    taking.observe()


def followed(site: Site) -> tuple[object, ...]:
    """Return all that a leader's message may have changed, and what it is answered."""
    engine = site.replica.engine
    return (
        (engine.term, engine.leader_id, engine.is_leader, engine.is_candidate, engine.is_takeover_asked),
        (engine.commit_index, engine.applied_index, engine.election_deadline_s),
        (site.journal.entries, site.journal.committed, engine.take_sent()),
    )


def test_what_a_leader_adds(make: Callable[..., Site], monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats, entries, commits, also beyond what is here; a change of the leader is the library's own."""
    monkeypatch.setattr(random, "random", lambda: 0.5)
    direct, through = make("n2"), make("n3")
    taken_directly: list[bool] = []
    is_next = direct.replica.engine.library._is_next

    def noted(*arguments: Any) -> bool:
        taken_directly.append(is_next(*arguments))
        return taken_directly[-1]

    monkeypatch.setattr(direct.replica.engine.library, "_is_next", noted)
    for leader_id, term, terms, commit in (
        ("n1", 1, [], 1),
        ("n1", 1, [1, 1], 2),
        ("n1", 1, None, 3),
        ("n1", 1, [1], 9),
        ("n1", 1, [], 9),
        ("n1", 2, [2], 9),
        ("n1", 2, None, 2),
        ("n1", 1, [1], 9),
    ):
        bare = AppendEntries(term=term, commit_index=commit)
        message = bare if terms is None else direct.append(terms, term=term, commit=commit)
        direct.clock.now_s += 0.1
        direct.replica.engine.receive(leader_id, message)
        take_through_the_library(through, leader_id, message)
        assert followed(direct) == followed(through)
    assert taken_directly == [False, True, True, True, True, False, True, False]


@pytest.mark.parametrize("is_success", [True, False])
@pytest.mark.parametrize("is_reset", [True, False])
@pytest.mark.parametrize("behind", [-1, 0, 1])
def test_an_acknowledgement(
    make: Callable[..., Site], behind: int, *, is_reset: bool, is_success: bool
) -> None:
    """It raises the match index only, moves what is sent next, and is a sign of life."""
    sites = make("n1"), make("n3")
    for site in sites:
        site.lead()
        site.commit()
        site.replica.engine.append(b"one")
        site.replica.engine.take_sent()
    sites[0].clock.now_s += 0.1
    message = Acknowledgement(
        next_index=sites[0].journal.last_index + behind, reset=is_reset, success=is_success, term=1
    )
    sites[0].replica.engine.receive("n2", message)
    take_through_the_library(sites[1], "n2", message)
    known = []
    for site in sites:
        taking: Any = site.replica.engine.library
        known.append(
            (taking.match_index("n2"), taking._SyncObj__raftNextIndex["n2"], taking.answered_s("n2"))
        )
        assert site.replica.engine.take_sent() == []
    assert known[0] == known[1]


def test_an_acknowledgement_for_no_leader(follower: Site) -> None:
    """Who does not lead any more has nothing to record."""
    follower.follow()
    answered_s = follower.replica.engine.library.answered_s("n1")
    follower.clock.now_s += 1
    message = Acknowledgement(next_index=2, reset=False, success=True, term=1)
    follower.replica.engine.receive("n1", message)
    assert follower.replica.engine.match_index("n1") == 0
    assert follower.replica.engine.library.answered_s("n1") == answered_s
