"""What promises that something is on disk leaves after the sync, on the connection that it was meant for."""

from pathlib import Path

import pytest

from tests.hazards.replica_nodes import our_cluster
from tests.hazards.virtual_cluster import Cluster


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Return three of our nodes, led by a."""
    cluster, _ = our_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    return cluster


def append_to_b(cluster: Cluster) -> None:
    """Make a send an entry to b, and b take it without syncing."""
    cluster.network.held |= {("a", "c"), ("b", "a")}
    cluster["a"].propose(b"entry")
    cluster["a"].work()
    while cluster.network.queues["a", "b"]:
        cluster.deliver("a", "b")
    assert cluster["b"].journal.is_dirty


def test_an_acknowledgement_waits_for_the_sync(cluster: Cluster) -> None:
    """The leader hears of an entry only when it is on the follower's disk."""
    append_to_b(cluster)
    queue = cluster.network.queues["b", "a"]
    last_index = cluster["b"].journal.last_index
    assert last_index + 1 not in [message.get("next_node_idx") for message in queue]
    cluster["b"].sync()
    assert queue[-1]["next_node_idx"] == last_index + 1
    assert queue[-1]["success"]


def test_an_acknowledgement_is_not_sent_over_another_connection(cluster: Cluster) -> None:
    """What was held when the connection broke dies with it; the new one begins afresh."""
    append_to_b(cluster)
    cluster.connect("a", "b")
    cluster["b"].sync()
    assert not [message for message in cluster.network.queues["b", "a"] if message.get("success")]


def test_a_follower_killed_before_its_sync_has_acknowledged_nothing(cluster: Cluster) -> None:
    """The entry that it forgot is sent again, and nothing was committed on its word."""
    append_to_b(cluster)
    committed = cluster["a"].replica.log.committed
    cluster.crash("b")
    cluster.settle()
    assert cluster["a"].replica.log.committed == committed
    cluster.heal()
    cluster.run_until(lambda: [cluster[node_id].values for node_id in "abc"] == [[b"entry"]] * 3)


def test_a_leader_commits_nothing_that_is_not_on_its_own_disk(cluster: Cluster) -> None:
    """Its own copy counts for the majority like any other: when it is on the disk, and not before."""
    leader = cluster["a"]
    leader.propose(b"entry")
    leader.work()
    assert leader.journal.is_dirty
    for source, target in (("a", "b"), ("b", "a")):
        while cluster.network.queues[source, target]:
            cluster.deliver(source, target)
        cluster["b"].timer()
        cluster["b"].sync()
    leader.timer()
    assert leader.values == []
    leader.sync()
    leader.timer()
    assert leader.values == [b"entry"]
    assert leader.journal.synced_index == leader.journal.last_index


def test_a_vote_waits_for_the_sync_and_is_remembered(cluster: Cluster) -> None:
    """Nobody hears of a vote that is not on the disk; a node killed after that still knows it."""
    cluster.crash("a")
    cluster["c"].be_patient()
    cluster.network.held.add(("c", "b"))
    votes = cluster.network.queues["c", "b"]
    while not cluster["c"].journal.is_dirty:
        cluster.step()
        while cluster["b"].work():
            pass
        while cluster.network.queues["b", "c"]:
            cluster.deliver("b", "c")
        grants = [message for message in votes if message["type"] == "pre_vote_granted"]
        votes.clear()
        for grant in grants:
            cluster["b"].take("c", grant)
    term = cluster["c"].term
    assert not [message for message in votes if message["type"] == "response_vote"]
    cluster["c"].sync()
    assert {"type": "response_vote", "term": term} in votes
    cluster.crash("c")
    cluster.start("c")
    assert cluster["c"].journal.term == term
    assert cluster["c"].journal.voted_for == "b"
