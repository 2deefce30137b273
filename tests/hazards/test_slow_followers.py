"""A follower whose snapshot takes longer than the log behind it used to stay, under a load without end."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from cluster.consensus import member_list, pinned_log, snapshot_transfer
from tests.hazards.replica_nodes import our_cluster
from tests.hazards.virtual_cluster import Checker, Cluster

ENTRIES_PER_STEP = 5
COMPACT_ENTRIES = 40
"""So a snapshot is written every 0.4 s, and a quarter of these entries stays of the log."""


class Load:
    """Five entries in each step of 50 ms: one hundred a second."""

    def __init__(self, cluster: Cluster, leader: str) -> None:
        self._cluster = cluster
        self._leader = leader
        self._numbers = count()

    def run_ms(self, milliseconds: int, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass under load, until something is true; tell whether it became true."""
        for _ in range(milliseconds // 50):
            entries = [b"%d" % next(self._numbers) for _ in range(ENTRIES_PER_STEP)]
            self._cluster[self._leader].propose(*entries)
            self._cluster.run_ms(50)
            if until is not None and until():
                return True
        return False


def left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, node_ids: str = "abc"
) -> tuple[Cluster, Checker, Load]:
    """Return a cluster that a leads under load; c was away for longer than the log goes back."""
    monkeypatch.setattr(snapshot_transfer, "CHUNK_BYTES", 1024)
    cluster, checker = our_cluster(
        tmp_path, monkeypatch, node_ids=node_ids, compact_entries=COMPACT_ENTRIES, in_flight_max=10**6
    )
    cluster.elect("a")
    load = Load(cluster, "a")
    cluster.isolate("c")
    load.run_ms(5_000)
    assert cluster["a"].journal.first_index > cluster["c"].journal.last_index + COMPACT_ENTRIES
    return cluster, checker, load


def has_caught_up(cluster: Cluster, node_id: str) -> bool:
    """Whether a node has nearly all that the leader has."""
    return bool(cluster[node_id].journal.last_index >= cluster["a"].journal.last_index - 2 * ENTRIES_PER_STEP)


def slow_down(cluster: Cluster) -> None:
    """Let a chunk of 1 kB leave for a peer every 250 ms."""
    cluster["a"].room = 8


def test_a_follower_with_a_slow_snapshot_catches_up_under_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log behind the snapshot that it gets stays: at its end it needs entries, and no other snapshot."""
    cluster, checker, load = left_behind(tmp_path, monkeypatch)
    slow_down(cluster)
    cluster.connect("a", "c")
    cluster.connect("b", "c")
    assert load.run_ms(20_000, lambda: has_caught_up(cluster, "c")), "it never caught up"
    load.run_ms(2_000)
    assert has_caught_up(cluster, "c")
    assert len(cluster["a"].journal) < 4 * COMPACT_ENTRIES, "nothing is kept for who has caught up"
    assert len(checker.committed) > 700


def test_two_slow_followers_catch_up_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one begins later, with a newer snapshot: the log of the older one stays meanwhile."""
    cluster, _, load = left_behind(tmp_path, monkeypatch, node_ids="abcde")
    slow_down(cluster)
    cluster.isolate("d")
    cluster.connect("a", "c")
    load.run_ms(1_500)
    cluster.connect("a", "d")
    assert load.run_ms(30_000, lambda: has_caught_up(cluster, "c") and has_caught_up(cluster, "d"))


def test_a_broken_connection_does_not_begin_another_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link that breaks every second under load: the follower goes on with what it has."""
    cluster, _, load = left_behind(tmp_path, monkeypatch)
    slow_down(cluster)
    for _ in range(20):
        cluster.connect("a", "c")
        if load.run_ms(1_000, lambda: has_caught_up(cluster, "c")):
            break
        cluster.isolate("c")
    assert has_caught_up(cluster, "c")


def test_nothing_is_kept_for_who_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that dies in the middle of its snapshot pins the log for a minute, and no longer."""
    cluster, _, load = left_behind(tmp_path, monkeypatch)
    slow_down(cluster)
    cluster.connect("a", "c")
    load.run_ms(500)
    cluster.crash("c")
    load.run_ms(5_000)
    assert len(cluster["a"].journal) > 5 * ENTRIES_PER_STEP * 20, "it may come back at once"
    cluster.run_ms(int(pinned_log.IDLE_S_MAX * 1000))
    load.run_ms(2_000)
    assert len(cluster["a"].journal) < 4 * COMPACT_ENTRIES


def test_nothing_is_kept_for_who_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that is removed in the middle of its snapshot will never need the log behind it."""
    cluster, _, load = left_behind(tmp_path, monkeypatch)
    slow_down(cluster)
    monkeypatch.setattr(snapshot_transfer, "CHUNK_BYTES", 16)
    cluster.connect("a", "c")
    load.run_ms(3_000)
    leader = cluster["a"]
    assert len(leader.journal) > 4 * COMPACT_ENTRIES, "the log behind the snapshot is kept for c"
    members = leader.replica.membership.latest
    assert load.run_ms(1_000, lambda: leader.replica.may_change_members)
    leader.replica.change_members(member_list.without(members, "c", "", "ab"))
    assert load.run_ms(1_000, lambda: "c" not in leader.replica.membership.committed.voters)
    assert not has_caught_up(cluster, "c")
    load.run_ms(2_000)
    assert len(leader.journal) < 4 * COMPACT_ENTRIES


@pytest.mark.parametrize("bound", ["ENTRIES_MAX", "BYTES_MAX"])
def test_the_log_that_is_kept_has_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    """A follower that is slower than that begins anew; the leader's memory is not its hostage."""
    monkeypatch.setattr(pinned_log, bound, 400)
    cluster, _, load = left_behind(tmp_path, monkeypatch)
    slow_down(cluster)
    monkeypatch.setattr(snapshot_transfer, "CHUNK_BYTES", 16)
    cluster.connect("a", "c")
    for _ in range(10):
        load.run_ms(1_000)
        assert len(cluster["a"].journal) < 400 + 4 * COMPACT_ENTRIES
    assert not has_caught_up(cluster, "c")
    monkeypatch.setattr(snapshot_transfer, "CHUNK_BYTES", 64 * 1024)
    assert load.run_ms(10_000, lambda: has_caught_up(cluster, "c"))
