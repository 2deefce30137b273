"""Changes of the member list (H23): two at once make two clusters of one."""

from pathlib import Path
from typing import Any

import pytest
from pysyncobj import FAIL_REASON
from pysyncobj.node import Node as LibraryNode

from cluster.consensus import member_list
from cluster.consensus.member_list import Members
from tests.hazards.bare_library import bare_cluster
from tests.hazards.replica_nodes import our_cluster
from tests.hazards.virtual_cluster import Cluster

THREE, FIVE = "abc", "abcde"


def two_clusters_of_bare_nodes(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Return three members led by a, and two nodes that wait to be added."""
    cluster = bare_cluster(
        monkeypatch,
        node_ids=FIVE,
        members={**dict.fromkeys(THREE, THREE), **dict.fromkeys("de", FIVE)},
        dynamicMembershipChange=True,
    )
    for node_id in "de":
        cluster.isolate(node_id)
    cluster.elect("a")
    return cluster


def add_two_at_once(cluster: Cluster) -> None:
    """Cut a off from its majority, and add two nodes to it that it reaches."""
    for node_id in "bc":
        cluster.disconnect("a", node_id)
    for node_id in "de":
        cluster.connect("a", node_id)
        cluster["a"].addNodeToCluster(LibraryNode(node_id), callback=note_in(cluster["a"].outcomes))
    cluster.run_until(lambda: cluster.leader_of("bc") in ("b", "c"))


def note_in(outcomes: list[int]) -> Any:
    """Return a callback that notes the library's answer."""
    return lambda _, outcome: outcomes.append(outcome)


def test_the_bare_library_changes_its_members_twice_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """H23: nothing says that a change is under way; the old and the new majority need not share a node.

    Two leaders answer at the same time, and their commands stand at the same places of two logs.
    """
    cluster = two_clusters_of_bare_nodes(monkeypatch)
    add_two_at_once(cluster)
    other = cluster[cluster.leader_of("bc") or ""]
    cluster["a"].propose("left")
    other.propose("right")
    cluster.run_ms(2000)
    assert cluster["a"].outcomes == [FAIL_REASON.SUCCESS] * 3
    assert other.outcomes == [FAIL_REASON.SUCCESS]
    assert [cluster[node_id].values for node_id in "ade"] == [["left"]] * 3
    assert [cluster[node_id].values for node_id in "bc"] == [["right"]] * 2


def with_voter(before: Members, node_id: str) -> Members:
    """Return the list with one more voter, without the time in which it learns."""
    learning = member_list.with_learner(before, node_id, f"127.0.0.1:{ord(node_id)}")
    return member_list.promoted(learning, node_id, f"disk-{node_id}")


def test_our_members_change_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H23: in the same moves our leader refuses the second change, and cannot commit the first one alone."""
    cluster, checker = our_cluster(tmp_path, monkeypatch, node_ids=FIVE, member_ids=THREE)
    for node_id in "de":
        cluster.isolate(node_id)
    cluster.elect("a")
    leader = cluster["a"].replica
    for node_id in "bc":
        cluster.disconnect("a", node_id)
    for node_id in "de":
        cluster.connect("a", node_id)
    leader.change_members(with_voter(leader.membership.latest, "d"))
    cluster.run_ms(200)
    assert leader.membership.voters == set("abcd")
    assert not leader.may_change_members
    with pytest.raises(AssertionError, match="wrong time"):
        leader.change_members(with_voter(leader.membership.latest, "e"))
    cluster["a"].propose(b"left")
    cluster.run_until(lambda: cluster.leader_of("bc") in ("b", "c"))
    cluster[cluster.leader_of("bc") or ""].propose(b"right")
    cluster.run_ms(2000)
    assert list(checker.committed.values()) == [b"right"]
    cluster.heal()
    cluster.run_ms(3000)
    assert [cluster[node_id].values for node_id in THREE] == [[b"right"]] * 3
    assert {cluster[node_id].replica.membership.voters for node_id in THREE} == {frozenset(THREE)}
