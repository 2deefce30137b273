"""Links that are replaced by new ones, as when the secret is exchanged: messages are lost, no leader is."""

from pathlib import Path

import pytest

from tests.hazards.replica_nodes import our_cluster
from tests.hazards.virtual_cluster import Cluster

LONGEST_MS = 1500
"""A leader that is gone is replaced by then, with the patience that these nodes have."""


def replace_all_links(cluster: Cluster, node_id: str) -> None:
    """Let a node and all others make new connections at the same moment; what was on its way is lost."""
    for peer_id in cluster.ids:
        if peer_id != node_id:
            cluster.connect(node_id, peer_id)


@pytest.mark.parametrize("seed", range(10))
def test_a_leader_whose_links_are_all_replaced_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """At any moment between two heartbeats, with an entry under way: its term does not end."""
    cluster, _ = our_cluster(tmp_path, monkeypatch, seed)
    cluster.elect("a")
    cluster.run_ms(1000)
    leader, term = cluster["a"], cluster["a"].term
    for number in range(10):
        leader.propose(b"entry %d" % number)
        leader.work()
        replace_all_links(cluster, "a")
        cluster.run_ms(10 * number)
        replace_all_links(cluster, "a")
        cluster.run_ms(500)
    assert (leader.is_leader, leader.term) == (True, term)
    assert [len(cluster[node_id].values) for node_id in cluster.ids] == [10, 10, 10]


@pytest.mark.parametrize("seed", range(5))
def test_an_entry_that_a_replaced_link_lost_is_sent_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Who waits for it does not wait until a heartbeat is due."""
    cluster, _ = our_cluster(tmp_path, monkeypatch, seed)
    cluster.elect("a")
    cluster.run_ms(1000 + 17 * seed)
    leader = cluster["a"]
    leader.propose(b"lost")
    leader.work()
    replace_all_links(cluster, "a")
    cluster.settle()  # no time passes
    assert [len(cluster[node_id].values) for node_id in "abc"] == [1, 1, 1]


@pytest.fixture(params=range(5))
def replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Cluster:
    """A cluster whose leader a has been heard for a while, and has new links with all others."""
    cluster, _ = our_cluster(tmp_path, monkeypatch, request.param)
    cluster.elect("a")
    cluster.run_ms(1000)
    replace_all_links(cluster, "a")
    return cluster


def test_a_leader_that_dies_behind_a_new_link_is_lost_as_soon_as_any_other(replaced: Cluster) -> None:
    """A link says that a process is there, and not that it leads."""
    replaced.network.held |= {("a", "b"), ("a", "c"), ("b", "a"), ("c", "a")}
    replaced.run_ms(LONGEST_MS)
    assert {replaced[node_id].leader_id for node_id in "bc"} < {"b", "c"}


def test_a_link_that_is_lost_after_it_was_replaced_is_lost(replaced: Cluster) -> None:
    """The others look for another leader at once."""
    replaced.crash("a")
    replaced.run_ms(300)
    assert {replaced[node_id].leader_id for node_id in "bc"} < {"b", "c"}
