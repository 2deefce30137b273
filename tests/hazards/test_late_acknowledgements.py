"""Acknowledgements that come late: from an earlier term of the same leader (H3), or with old wishes (H17)."""

from pathlib import Path
from typing import Any

import pytest
from pysyncobj import FAIL_REASON

from tests.hazards.bare_library import bare_cluster
from tests.hazards.replica_nodes import our_cluster
from tests.hazards.virtual_cluster import Cluster

FIVE = "abcde"
EARLY, LATE = 5, 3
"""How many entries a proposes in its first and in its second leadership."""


def commit_on_an_old_acknowledgement(cluster: Cluster, early: list[Any], late: list[Any]) -> None:
    """Let a lead twice while what b says reaches it late; a and d alone have `late` when a is told of it.

    Only the way from b to a is slow. The leader in between, c, replaces what b acknowledged.
    """
    network = cluster.network
    cluster.elect("a")
    network.held.add(("b", "a"))
    for node_id in "cde":
        cluster.disconnect("a", node_id)
    cluster["a"].propose(*early)
    for _ in range(3):
        cluster.step()
        cluster.settle()
    assert any(message.get("success") for message in network.queues["b", "a"])
    cluster.elect("c")
    for node_id in "cde":
        cluster.connect("a", node_id)
    cluster.run_ms(500)
    assert [cluster[node_id].leader_id for node_id in FIVE] == ["c"] * 5

    cluster.isolate("c")
    cluster.elect("a")
    cluster.isolate("e")
    network.held.add(("a", "b"))
    cluster["a"].propose(*late)
    cluster.run_ms(200)
    deliver_up_to_the_vote(cluster)
    cluster.run_ms(200)


def deliver_up_to_the_vote(cluster: Cluster) -> None:
    """Deliver what b said before a was elected again, and nothing that b said since."""
    queue = cluster.network.queues["b", "a"]
    is_vote = [message["type"] == "response_vote" for message in queue]
    for _ in range(is_vote.index(True)):
        cluster.deliver("b", "a")


def lose_the_two_that_have_it(cluster: Cluster) -> list[Any]:
    """Kill a and d, two of five; return what the others have when they are a cluster again."""
    for node_id in "ad":
        cluster.crash(node_id)
    cluster.network.held.clear()
    for one, other in ("bc", "be", "ce"):
        cluster.connect(one, other)
    cluster.run_until(lambda: cluster.leader_of("bce") in ("b", "c", "e"))
    cluster.run_ms(1000)
    return list(cluster["b"].values)


def test_the_bare_library_commits_on_an_acknowledgement_of_an_earlier_term(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """H3: what two of five nodes have is answered with SUCCESS, and gone when these two die."""
    cluster = bare_cluster(monkeypatch, node_ids=FIVE)
    early, late = [f"early {number}" for number in range(EARLY)], [f"late {number}" for number in range(LATE)]
    commit_on_an_old_acknowledgement(cluster, early, late)
    leader = cluster["a"]
    assert leader.is_leader
    assert leader.values == late
    assert leader.outcomes.count(FAIL_REASON.SUCCESS) == LATE
    assert lose_the_two_that_have_it(cluster) == []


def test_an_acknowledgement_counts_in_its_own_term_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H3: after the same moves our leader has applied nothing that a majority does not have."""
    cluster, _ = our_cluster(tmp_path, monkeypatch, node_ids=FIVE, in_flight_max=10**6)
    early, late = [b"early %d" % number for number in range(EARLY)], [b"late %d" % n for n in range(LATE)]
    commit_on_an_old_acknowledgement(cluster, early, late)
    leader = cluster["a"]
    assert leader.is_leader
    assert leader.values == []
    lose_the_two_that_have_it(cluster)


def install_an_old_snapshot(cluster: Cluster, old: list[Any], new: list[Any]) -> list[Any]:
    """Let b ask a more than once for what it missed; let the last question arrive after b was helped.

    a and b alone have `new` when a answers with a snapshot that ends before it. Then a dies, with what it
    sent behind the snapshot on its way; return what c gets.
    """
    leader, network = cluster["a"], cluster.network
    cluster.elect("a")
    cluster.disconnect("b", "c")
    cluster["b"].be_patient()
    network.held |= {("a", "b"), ("b", "a")}
    leader.propose(old[0])
    leader.timer()
    cluster.connect("a", "b")
    for _ in range(12):
        cluster.clock.pass_ms(50)
        leader.timer()
    deliver_all(cluster, "a", "b")
    questions = [message for message in network.queues["b", "a"] if message["reset"]]
    assert len(questions) >= 2
    leader.propose(*old[1:])
    cluster.run_ms(1000)
    compact(leader)
    cluster.run_ms(300)
    deliver_all(cluster, "a", "b")
    for _ in range(8):
        if cluster["b"].values != old:
            answer_question(cluster)
            deliver_all(cluster, "a", "b")
    assert cluster["b"].values == leader.values == old
    cluster.isolate("c")
    leader.propose(*new)
    leader.timer()
    deliver_all(cluster, "a", "b")
    for _ in range(4):
        answer_question(cluster)
    deliver_all(cluster, "b", "a")
    leader.timer()
    assert leader.values == old + new, "a has committed and answered"
    while network.queues["a", "b"]:
        chunk = cluster.deliver("a", "b").get("serialized")
        if chunk is not None and chunk[2]:
            break  # the last one of the snapshot: a dies while it sends what is behind
    cluster.crash("a")
    network.held.clear()
    cluster.connect("b", "c")
    cluster.run_until(lambda: cluster.leader_of("bc") in ("b", "c"))
    cluster.run_ms(1000)
    return list(cluster["c"].values)


def compact(leader: Any) -> None:
    """Make the leader compact its log, if it does not of itself."""
    if hasattr(leader, "forceLogCompaction"):
        leader.forceLogCompaction()


def answer_question(cluster: Cluster) -> None:
    """Let a hear that b misses something, and do what it does about it in its next ticks."""
    while not cluster.deliver("b", "a").get("reset"):
        pass
    for _ in range(3):
        cluster.clock.pass_ms(150)
        cluster["a"].timer()


def deliver_all(cluster: Cluster, source: str, target: str) -> None:
    """Deliver everything of one direction; the target works and ticks."""
    while cluster.network.queues[source, target]:
        cluster.deliver(source, target)
    cluster[target].timer()
    while cluster[target].work():
        pass


def test_a_follower_of_the_bare_library_installs_a_snapshot_that_ends_before_its_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """H17: commands that were answered are gone from the second of the two nodes that had them."""
    cluster = bare_cluster(monkeypatch, appendEntriesUseBatch=False, leaderFallbackTimeout=3600)
    leader = cluster["a"]
    old, new = [f"old {number}" for number in range(30)], [f"new {number}" for number in range(5)]
    left = install_an_old_snapshot(cluster, old, new)
    assert leader.outcomes == [FAIL_REASON.SUCCESS] * 35
    assert left == old


def test_a_snapshot_that_tells_nothing_new_is_declined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H17: after the same moves our follower has everything that was answered."""
    cluster, _ = our_cluster(tmp_path, monkeypatch, compact_entries=8, in_flight_max=10**6)
    old, new = [b"old %d" % number for number in range(30)], [b"new %d" % number for number in range(5)]
    assert install_an_old_snapshot(cluster, old, new) == old + new
