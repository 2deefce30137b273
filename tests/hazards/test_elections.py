"""Elections (H11): a returning node deposes nobody, a lost leader is replaced, two of three find one.

What a leader does that loses its majority is in test_check_quorum.py.
"""

from pathlib import Path

import pytest

from tests.hazards.bare_library import bare_cluster
from tests.hazards.replica_nodes import our_cluster
from tests.hazards.virtual_cluster import STEP_MS, Cluster

ELECTION_MS_MAX = 1000
AWAY_MS = 10_000
TAIL = 40

CUTS = {
    "from all": {("a", "c"), ("b", "c"), ("c", "a"), ("c", "b")},
    "from the leader": {("a", "c"), ("c", "a")},
    "hears nobody": {("a", "c"), ("b", "c")},
    "hears all but the leader": {("a", "c")},
}
"""Which ways of c, a follower of a, are cut without a notice. What was sent arrives when c is back."""
MUTE = {("c", "a"), ("c", "b")}
"""Cuts after which c still hears its leader."""


# -- nodes that return (PreVote) --------------------------------------------------------------------------


def go_away_and_return(cluster: Cluster, cut: set[tuple[str, str]]) -> int:
    """Cut c, a follower, off for a while; return how often the term rose."""
    cluster.elect("a")
    term = int(cluster["a"].term)
    cluster.network.held |= cut
    cluster.run_ms(AWAY_MS)
    cluster.network.held.clear()
    cluster.run_ms(3000)
    return max(int(cluster[node_id].term) for node_id in "abc") - term


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS.keys())
def test_the_bare_library_deposes_a_healthy_leader_when_a_node_returns(
    cut: set[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """H11: a bare node raises its term while it is cut off, and a healthy leader is deposed for it."""
    cluster = bare_cluster(monkeypatch)
    assert go_away_and_return(cluster, cut) > 0


@pytest.mark.parametrize("cut", [*CUTS.values(), MUTE], ids=[*CUTS.keys(), "is heard by nobody"])
def test_a_node_that_returns_deposes_nobody(
    cut: set[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H11: after the same cuts leader and term are the same, all the time."""
    cluster, _ = our_cluster(tmp_path, monkeypatch)
    assert go_away_and_return(cluster, cut) == 0
    assert [cluster[node_id].leader_id for node_id in "abc"] == ["a", "a", "a"]


def test_broken_connections_depose_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H11: the same when the connections of c break openly, to all or to the leader only."""
    cluster, _ = our_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    term = cluster["a"].term
    for lost in ("ab", "a"):
        for peer_id in lost:
            cluster.disconnect("c", peer_id)
        cluster.run_ms(AWAY_MS)
        cluster["a"].propose(b"meanwhile")
        cluster.heal()
        cluster.run_ms(2000)
        assert [cluster[node_id].leader_id for node_id in "abc"] == ["a", "a", "a"]
        assert [cluster[node_id].term for node_id in "abc"] == [term] * 3
    assert cluster["c"].values == [b"meanwhile"] * 2


def return_with_a_longer_log(cluster: Cluster, tail: list[object]) -> int:
    """Cut c, the leader, off with a tail for 40 s; return how often the term rose when it came back."""
    cluster.elect("c")
    cluster.network.held |= {("c", "a"), ("c", "b"), ("a", "c"), ("b", "c")}
    cluster["c"].propose(*tail)
    cluster.run_ms(40_000)
    assert cluster.leader_of("ab") in ("a", "b")
    term = int(cluster["a"].term)
    for peer_id in "ab":
        cluster.disconnect("c", peer_id)
    cluster.heal()
    cluster.run_ms(5000)
    return max(int(cluster[node_id].term) for node_id in "abc") - term


def test_an_old_leader_of_the_bare_library_deposes_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """H11: a leader that gave up after 30 s stands for election at once, and again and again, all alone."""
    assert return_with_a_longer_log(bare_cluster(monkeypatch), list(range(TAIL))) > 0


def test_an_old_leader_with_a_longer_log_deposes_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H11: in the same moves our old leader follows the new one, and its tail is gone."""
    cluster, checker = our_cluster(tmp_path, monkeypatch, in_flight_max=10**6)
    assert return_with_a_longer_log(cluster, [b"tail %d" % number for number in range(TAIL)]) == 0
    assert cluster["c"].leader_id in ("a", "b")
    assert cluster["c"].replica.log.last_index == cluster["a"].replica.log.last_index
    assert not any(entry.startswith(b"tail") for entry in checker.committed.values())


def test_a_voter_that_restarts_helps_nobody_against_the_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has not heard its leader for long, and who has just started and heard nobody yet, elect nobody."""
    cluster, _ = our_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    term = cluster["a"].term
    cluster.disconnect("a", "c")
    cluster.run_ms(3000)
    cluster.crash("b")
    cluster.start("b")
    cluster.connect("b", "c")
    cluster.run_ms(100)
    cluster.connect("a", "b")
    cluster.run_ms(2000)
    assert cluster["a"].term == term
    assert cluster["a"].is_leader


def test_a_successor_that_was_cut_off_deposes_nobody_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that was asked to take over and lost all connections at once does not do it a minute later."""
    cluster, _ = our_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    cluster["a"].transfer("b")
    while cluster.network.queues["a", "b"]:
        cluster.deliver("a", "b")
    cluster.isolate("b")
    cluster.run_ms(60_000)
    term = cluster["a"].term
    assert cluster["a"].is_leader
    cluster.heal()
    cluster.run_ms(3000)
    assert cluster["a"].term == term
    assert cluster["a"].is_leader


# -- lost leaders and their successors --------------------------------------------------------------------


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
    cluster.run_until(lambda: cluster.leader_of("bc") in ("b", "c"), 2 * ELECTION_MS_MAX)


def test_a_transfer_moves_leadership_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The successor that was asked leads without waiting for any timeout, PreVote notwithstanding."""
    cluster, _ = our_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    cluster["a"].transfer("b")
    cluster.settle()
    assert cluster.leaders() == ["b"]
    cluster.run_ms(2 * STEP_MS)
    assert cluster.leader_of("abc") == "b"


def stand_alone_in_a_new_term(cluster: Cluster) -> None:
    """Make b raise its term in vain: the leader a pauses, c agrees that it is gone, but a is back first."""
    network = cluster.network
    network.held |= {("a", "b"), ("a", "c")}
    cluster["c"].be_patient()
    cluster["b"].replica.engine.election_deadline_s = cluster.clock.now_s + 0.55
    for _ in range(40):
        if cluster["b"].term != cluster["a"].term:
            break
        cluster.step()
        cluster.settle_but(("b", "c"), "request_vote")
    assert cluster["b"].term == cluster["a"].term + 1
    network.held -= {("a", "c")}
    cluster.run_ms(STEP_MS)
    network.held.clear()
    cluster.run_ms(3 * STEP_MS)
    assert cluster["a"].is_leader
    assert cluster["c"].leader_id == "a"


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
    cluster.run_until(lambda: cluster.leader_of("bc") in ("b", "c"), 60_000)
