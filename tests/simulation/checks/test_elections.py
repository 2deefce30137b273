"""The checkers of elections, of what leaders believe, and of member lists object to what they are for."""

import msgspec

from tests.simulation.checks.members import Appended
from tests.simulation.checks.scripted_cluster import ScriptedCluster, acquire, objects

VOTERS = ("a", "b", "c")
CHANGE = Appended(
    leader_id="a",
    term=2,
    index=12,
    voters=("a", "b", "c", "d"),
    index_before=8,
    voters_before=VOTERS,
    committed=11,
    committed_term=2,
)
"""A change that is as it should be."""


def yes(term: int) -> dict[str, object]:
    """Return a consent to an election."""
    return {"type": "pre_vote_granted", "term": term}


def vote(term: int) -> dict[str, object]:
    """Return a vote."""
    return {"type": "response_vote", "term": term}


def test_an_election_that_a_majority_agreed_to() -> None:
    """A node that asked first and got the votes of a majority may stand and lead."""
    elections = ScriptedCluster().checkers.elections
    elections.sent("b", "a", yes(2), hears_leader=False)
    elections.stands("a", 2, VOTERS)
    elections.received("a", "b", vote(2))
    elections.leads("a", 2, VOTERS)


def test_an_election_without_consent() -> None:
    """A node that stands although no majority agreed, in this very term, is found."""
    elections = ScriptedCluster().checkers.elections
    elections.sent("b", "a", yes(2), hears_leader=False)
    with objects("election-agreed"):
        elections.stands("a", 3, VOTERS)


def test_consent_of_one_that_hears_the_leader() -> None:
    """A node that agrees to an election while it hears a leader is found."""
    with objects("leader-kept"):
        ScriptedCluster().checkers.elections.sent("b", "a", yes(2), hears_leader=True)


def test_a_leader_without_a_majority() -> None:
    """A leader that one vote came to twice, or one of a stranger, is found."""
    for voter in ("b", "stranger"):
        elections = ScriptedCluster().checkers.elections
        for _ in range(2):
            elections.received("a", voter, vote(2))
        with objects("elected-by-majority"):
            elections.leads("a", 2, (*VOTERS, "d", "e"))


def test_a_leader_that_believes_too_much() -> None:
    """A leader that takes more for promised than its peer has promised in its term is found."""
    cluster = ScriptedCluster()
    cluster.ask(acquire("h1"))
    last = cluster.log[-1][1]
    cluster.checkers.matched("a", 1, "b", last)
    for term, index in ((1, last + 1), (2, last)):
        with objects("match-index"):
            cluster.checkers.matched("a", term, "b", index)


def test_nothing_is_promised_by_who_never_answered() -> None:
    """A leader that knows nothing of a peer believes nothing, and that is right."""
    ScriptedCluster().checkers.matched("a", 1, "b", 0)


def test_a_promise_that_is_cut() -> None:
    """A log that is cut below what was promised in this very term is found; in a later one it may be."""
    cluster = ScriptedCluster()
    cluster.ask(acquire("h1"))
    last = cluster.log[-1][1]
    cluster.checkers.stored("b", 1, "a")
    with objects("promise-kept"):
        cluster.checkers.synced("b", last - 1)
    cluster.checkers.stored("b", 2, None)
    cluster.checkers.synced("b", last - 1)


def test_a_change_of_one_node() -> None:
    """A leader that is sure of its log may add or remove one voter, or a learner."""
    changes = ScriptedCluster().checkers.changes
    for voters in (("a", "b", "c", "d"), ("a", "b"), VOTERS):
        changes.appended(msgspec.structs.replace(CHANGE, voters=voters))


def test_changes_that_overlap() -> None:
    """A change before the one before it is committed, and one of two nodes, are found."""
    changes = ScriptedCluster().checkers.changes
    for fields in ({"committed": 7}, {"voters": ("a",)}, {"voters": ("a", "b", "d")}):
        with objects("one-change"):
            changes.appended(msgspec.structs.replace(CHANGE, **fields))


def test_a_change_by_an_unsure_leader() -> None:
    """A change by a leader that has committed nothing in its term is found."""
    with objects("sure-leader"):
        ScriptedCluster().checkers.changes.appended(msgspec.structs.replace(CHANGE, committed_term=1))
