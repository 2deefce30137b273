"""Elections (H11): a healthy leader stays, a lost one goes, two of three nodes always find one."""

from pathlib import Path

import pytest

from tests.hazards.bare import bare_cluster
from tests.hazards.harness import STEP_MS, Cluster
from tests.hazards.ours import our_cluster

ELECTION_MS_MAX = 1000


def stand_alone_in_a_new_term(cluster: Cluster) -> None:
    """Make b raise its term in vain: the leader a pauses, c agrees that it is gone, but a is back first."""
    network = cluster.network
    network.held |= {("a", "b"), ("a", "c")}
    cluster["c"].be_patient()
    cluster["b"].replica._raft.election_deadline_s = cluster.clock.now_s + 0.55
    while cluster["b"].term == cluster["a"].term:
        cluster.step()
        cluster.settle_but(("b", "c"), "request_vote")
    network.held -= {("a", "c")}
    cluster.run_ms(STEP_MS)
    network.held.clear()
    cluster.run_ms(3 * STEP_MS)
    assert cluster["a"].is_leader
    assert cluster["c"].leader_id == "a"


def test_the_bare_library_deposes_a_healthy_leader_when_a_node_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """H11: a node of the bare library that was cut off for a while comes back with a higher term and wins."""
    cluster = bare_cluster(monkeypatch)
    cluster.elect("a")
    term = cluster["a"].term
    cluster.disconnect("c", "a")
    cluster.run_ms(5000)
    cluster.connect("c", "a")
    cluster.run_ms(5000)
    assert cluster["a"].term > term


def test_a_node_that_returns_deposes_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H11: whatever a node missed, alone or half cut off, leader and term are the same when it is back."""
    cluster, _ = our_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    term = cluster["a"].term
    for lost in ("ab", "a"):
        for peer_id in lost:
            cluster.disconnect("c", peer_id)
        cluster.run_ms(10_000)
        cluster["a"].propose(b"meanwhile")
        cluster.heal()
        cluster.run_ms(2000)
        assert [cluster[node_id].leader_id for node_id in "abc"] == ["a", "a", "a"]
        assert [cluster[node_id].term for node_id in "abc"] == [term] * 3
    assert cluster["c"].values == [b"meanwhile"] * 2


def test_a_leader_that_is_cut_off_steps_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that no majority answers leads no more after election_ms_max; another one does."""
    cluster, _ = our_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    cluster.network.held |= {("a", "b"), ("a", "c"), ("b", "a"), ("c", "a")}
    cluster.run_ms(ELECTION_MS_MAX + 2 * STEP_MS)
    assert not cluster["a"].is_leader
    cluster.run_until(lambda: cluster.leader_of("bc") in ("b", "c"), 2 * ELECTION_MS_MAX)


def test_the_bare_library_leads_on_alone_for_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """H11: a leader of the bare library that nobody answers keeps its role while another one leads."""
    cluster = bare_cluster(monkeypatch)
    cluster.elect("a")
    cluster.isolate("a")
    cluster.run_ms(20_000)
    assert cluster["a"].is_leader
    assert cluster.leader_of("bc") in ("b", "c")


def test_a_broken_connection_to_the_leader_is_no_election(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower whose connection to the leader flaps asks for pre-votes and gets none."""
    cluster, _ = our_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    term = cluster["a"].term
    for _ in range(20):
        cluster.disconnect("a", "b")
        cluster.run_ms(300)
        cluster.connect("a", "b")
        cluster.run_ms(100)
    assert [cluster[node_id].term for node_id in "abc"] == [term] * 3
    assert cluster["b"].leader_id == "a"


def test_a_dead_leader_is_replaced_within_two_timeouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two survivors agree on a leader soon after the third was killed."""
    cluster, _ = our_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    cluster.crash("a")
    cluster.run_until(lambda: cluster.leader_of("bc") is not None, 2 * ELECTION_MS_MAX)


def test_a_transfer_moves_leadership_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The successor that was asked leads without waiting for any timeout, PreVote notwithstanding."""
    cluster, _ = our_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    assert cluster["a"].replica.transfer("b")
    cluster.settle()
    assert cluster.leaders() == ["b"]
    cluster.run_ms(2 * STEP_MS)
    assert cluster.leader_of("abc") == "b"


def test_a_node_in_a_newer_term_finds_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that raised its term in vain, because the leader was only slow, follows somebody again."""
    cluster, _ = our_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    stand_alone_in_a_new_term(cluster)
    cluster["a"].propose(b"more")
    cluster.run_until(lambda: cluster["b"].values == [b"more"], 10_000)


def test_two_nodes_in_different_terms_elect_a_leader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longer log is on the node in the older term, the third node is dead: the two elect a leader."""
    cluster, _ = our_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    stand_alone_in_a_new_term(cluster)
    cluster["a"].propose(b"more")
    cluster.run_ms(2 * STEP_MS)
    cluster.crash("a")
    cluster.run_until(lambda: cluster.leader_of("bc") is not None, 60_000)
