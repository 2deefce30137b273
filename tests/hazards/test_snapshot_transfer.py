"""A follower far behind gets a snapshot: what is committed meanwhile (H1), and who goes on leading."""

from pathlib import Path
from typing import Any

import pytest
from pysyncobj import FAIL_REASON

from cluster.consensus import snapshot_transfer
from tests.hazards.bare_library import bare_cluster
from tests.hazards.replica_nodes import our_cluster
from tests.hazards.virtual_cluster import STEP_MS, Cluster

ELECTION_MS_MAX = 1000
TAIL = 40
BEHIND = 200


def leave_behind(cluster: Cluster, tail: list[Any], news: list[Any]) -> None:
    """Leave a, once the leader, with a tail that nobody else has, behind a compacted log that replaced it."""
    cluster.elect("a")
    cluster["a"].propose(b"before")
    cluster.run_ms(500)
    cluster.network.held |= {("a", "b"), ("a", "c")}
    cluster["a"].propose(*tail)
    cluster["a"].timer()
    cluster.isolate("a")
    cluster.network.held.clear()
    cluster.run_until(lambda: cluster.leader_of("bc") in ("b", "c"))
    cluster[cluster.leader_of("bc") or ""].propose(*news)
    cluster.run_until(lambda: len(cluster["b"].values) == len(cluster["c"].values) == 1 + len(news))


def start_snapshot(cluster: Cluster) -> str:
    """Reconnect a and deliver until it has the first part of the snapshot; return the leader."""
    leader = cluster.leader_of("bc") or ""
    cluster.connect("a", leader)
    cluster.network.held |= {(leader, "a")}
    while not any(message.get("serialized") for message in cluster.network.queues[leader, "a"]):
        cluster.step()
        cluster.settle()
        while cluster.network.queues[leader, "a"] and not cluster.network.queues[leader, "a"][0].get(
            "serialized"
        ):
            cluster.deliver(leader, "a")
    cluster.deliver(leader, "a")
    return leader


def bare_left_behind(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Return a cluster of bare nodes with a left behind."""
    cluster = bare_cluster(monkeypatch, logCompactionBatchSize=64, logCompactionMinEntries=10**9)
    leave_behind(cluster, list(range(TAIL)), [f"news-{number}" for number in range(BEHIND)])
    for node_id in "bc":
        cluster[node_id].forceLogCompaction()
    cluster.run_ms(500)
    return cluster


def our_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Return a cluster of our nodes with a left behind."""
    monkeypatch.setattr(snapshot_transfer, "CHUNK_BYTES", 64)
    cluster, _ = our_cluster(tmp_path, monkeypatch, compact_entries=100, in_flight_max=10**6)
    leave_behind(
        cluster,
        [b"tail %d" % number for number in range(TAIL)],
        [b"news %d" % number for number in range(BEHIND)],
    )
    cluster.run_ms(500)
    return cluster


def test_the_bare_library_acknowledges_what_was_never_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """H1: between the parts of a snapshot an old leader applies its own tail, and answers SUCCESS."""
    cluster = bare_left_behind(monkeypatch)
    start_snapshot(cluster)
    cluster["a"].timer()
    assert cluster["a"].outcomes.count(FAIL_REASON.SUCCESS) == 1 + TAIL
    assert not set(range(TAIL)) & set(cluster["b"].values)


def test_nothing_is_committed_between_the_parts_of_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H1: in the same moves our node applies nothing of its tail, then takes over the snapshot."""
    cluster = our_left_behind(tmp_path, monkeypatch)
    start_snapshot(cluster)
    for _ in range(3):
        cluster["a"].timer()
        assert cluster["a"].values == [b"before"]
    cluster.network.held.clear()
    cluster.heal()
    cluster.run_until(lambda: cluster["a"].values == cluster["b"].values)
    assert len(cluster["a"].values) == 1 + BEHIND


def test_the_bare_library_never_answers_what_a_snapshot_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """H7: without a tick in between, the same commands never get any answer."""
    cluster = bare_left_behind(monkeypatch)
    leader = start_snapshot(cluster)
    while cluster.network.queues[leader, "a"]:
        cluster.deliver(leader, "a")
    cluster.network.held.clear()
    cluster.run_ms(60_000)
    assert cluster["a"].values == cluster["b"].values
    assert cluster["a"].outcomes == [FAIL_REASON.SUCCESS]


def test_a_snapshot_waits_for_room_without_holding_up_the_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader whose connection is full sends the rest of the snapshot later, and works on meanwhile."""
    cluster = our_left_behind(tmp_path, monkeypatch)
    leader = cluster.leader_of("bc") or ""
    cluster[leader].room = 8
    cluster.connect("a", leader)
    cluster.run_until(lambda: cluster["a"].values == cluster["b"].values, 20_000)


def test_a_snapshot_travels_as_soon_as_the_offer_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the offer and the whole snapshot nothing waits for a heartbeat: no time passes."""
    cluster = our_left_behind(tmp_path, monkeypatch)
    start_snapshot(cluster)
    cluster.network.held.clear()
    before_s = cluster.clock.now_s
    cluster.settle()
    assert len(cluster["a"].values) > 1, "the snapshot is installed"
    assert cluster.clock.now_s == before_s


def test_a_leader_with_one_follower_outlives_a_long_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the only follower left receives a snapshot, for longer than any timeout, its leader stays."""
    cluster = our_left_behind(tmp_path, monkeypatch)
    leader = cluster.leader_of("bc") or ""
    term = cluster[leader].term
    monkeypatch.setattr(snapshot_transfer, "CHUNK_BYTES", 16)
    cluster[leader].room = 10_000
    cluster.crash("c" if leader == "b" else "b")
    cluster.connect("a", leader)
    cluster.network.held.add((leader, "a"))
    for _ in range(3 * ELECTION_MS_MAX // STEP_MS):
        cluster.step()
        cluster.settle()
        if cluster.network.queues[leader, "a"]:
            cluster.deliver(leader, "a")
            cluster.settle()
    assert cluster["a"].values == [b"before"], "the snapshot is still on its way"
    assert cluster[leader].is_leader
    assert cluster[leader].term == term
