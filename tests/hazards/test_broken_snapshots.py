"""Snapshots that are damaged (H20) or late (H21): what a node says it has, and what it has afterwards."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pysyncobj import FAIL_REASON

from tests.hazards.bare_library import bare_cluster
from tests.hazards.replica_nodes import our_cluster
from tests.hazards.test_snapshot_transfer import leave_behind
from tests.hazards.virtual_cluster import Cluster

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # the library does not close its files

TAIL, NEWS, ALONE = 60, 30, 40
"""The tail of the old leader ends behind all that replaced it, and within what is proposed next."""
FILES: dict[str, Any] = {
    "appendEntriesUseBatch": False,
    "logCompactionMinEntries": 10**6,
    "leaderFallbackTimeout": 3600,
}


def spoil(snapshot: Path) -> None:
    """Flip one bit in the middle of a file."""
    data = bytearray(snapshot.read_bytes())
    data[len(data) // 2] ^= 1
    snapshot.write_bytes(data)


def commit_with_a_node_that_has_nothing(
    cluster: Cluster, snapshot_of: Callable[[str], Path], alone: list[Any]
) -> Any:
    """Leave a leader whose snapshot is damaged with a, which needs it; propose `alone`. Return the leader."""
    leader_id = cluster.leader_of("bc") or ""
    cluster.crash("c" if leader_id == "b" else "b")
    spoil(snapshot_of(leader_id))
    cluster.connect("a", leader_id)
    cluster.run_ms(1000)
    leader = cluster[leader_id]
    leader.propose(*alone)
    cluster.run_ms(5000)
    return leader


def test_the_bare_library_acknowledges_a_snapshot_that_it_could_not_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H20: the follower says that it has all of its own log, and the leader answers what nobody else has."""
    cluster = bare_cluster(monkeypatch, directory=tmp_path, useFork=False, **FILES)
    leave_behind(
        cluster, [f"tail {number}" for number in range(TAIL)], [f"news {number}" for number in range(NEWS)]
    )
    for node_id in "bc":
        cluster[node_id].forceLogCompaction()
    cluster.run_ms(500)
    alone = [f"alone {number}" for number in range(ALONE)]
    leader = commit_with_a_node_that_has_nothing(
        cluster, lambda node_id: tmp_path / f"{node_id}.snapshot", alone
    )
    assert alone[0] in leader.values
    assert leader.outcomes.count(FAIL_REASON.SUCCESS) >= NEWS + ALONE // 2
    assert not set(alone) & set(cluster["a"].values)


def test_a_snapshot_that_does_not_verify_acknowledges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H20: after the same moves our leader has answered nothing; it does when a real majority is back."""
    cluster, checker = our_cluster(tmp_path, monkeypatch, compact_entries=10_000, in_flight_max=10**6)
    leave_behind(
        cluster, [b"tail %d" % number for number in range(TAIL)], [b"news %d" % n for n in range(NEWS)]
    )
    for node_id in "bc":
        monkeypatch.setattr(cluster[node_id].replica.engine, "_retained", 0)
        cluster[node_id].replica.engine.force_compaction()
    cluster.run_ms(500)
    alone = [b"alone %d" % number for number in range(ALONE)]
    leader = commit_with_a_node_that_has_nothing(
        cluster, lambda node_id: tmp_path / node_id / "snapshot", alone
    )
    assert leader.is_leader
    assert not set(alone) & set(checker.committed.values())
    assert cluster["a"].values == [b"before"]
    cluster.heal()
    cluster.run_until(lambda: set(alone) <= set(checker.committed.values()))


# -- a snapshot that is finished late -----------------------------------------------------------------------


class SlowToPickle:
    """In a forked child, takes until somebody writes to the pipe."""

    def __init__(self, wait_fd: int) -> None:
        self._wait_fd = wait_fd
        self._parent_pid = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        if os.getpid() != self._parent_pid:
            os.read(self._wait_fd, 1)
        return str, ("",)


def finish_an_old_snapshot_late(
    cluster: Cluster,
    begin: Callable[[], None],
    compact: Callable[[], None],
    finish: Callable[[], None],
    value: Callable[[int], Any],
) -> list[Any]:
    """Let b begin a snapshot, install a newer one from a, acknowledge more, finish its own, be killed.

    Then a, the only other node that has all, dies. Return what b and c have together.
    """
    cluster.elect("a")
    cluster["a"].propose(*[value(number) for number in range(10)])
    cluster.run_ms(1000)
    begin()
    cluster.run_ms(100)
    cluster.isolate("b")
    cluster["a"].propose(*[value(number) for number in range(10, 40)])
    cluster.run_ms(1000)
    compact()
    cluster.isolate("c")
    cluster.connect("a", "b")
    cluster.run_until(lambda: len(cluster["b"].values) == 40)
    cluster["a"].propose(*[value(number) for number in range(40, 50)])
    cluster.run_until(lambda: len(cluster["a"].values) == 50)
    finish()
    cluster.run_ms(200)
    cluster.crash("a")
    cluster.crash("b")
    cluster.start("b")
    cluster.connect("b", "c")
    cluster.run_until(lambda: cluster.leader_of("bc") in ("b", "c"))
    cluster.run_ms(1000)
    return list(cluster["b"].values)


def wait_for_child(node: Any) -> None:
    """Wait until the child that writes a bare node's snapshot has ended; leave it to the node."""
    pid = node._SyncObj__serializer._Serializer__pid
    if pid:  # on a busy machine the node may have seen its end already
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the library forks whatever threads there are
def test_the_bare_library_puts_an_older_snapshot_over_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H21: the node starts from the older one, drops the log behind it, and what was answered is gone."""
    cluster = bare_cluster(monkeypatch, directory=tmp_path, **FILES)
    wait_fd, release_fd = os.pipe()

    def begin() -> None:
        cluster["b"].anchor = SlowToPickle(wait_fd)
        cluster["b"].forceLogCompaction()

    def compact() -> None:
        cluster["a"].forceLogCompaction()
        cluster.run_ms(100)
        wait_for_child(cluster["a"])
        cluster.run_ms(100)

    def finish() -> None:
        os.write(release_fd, b"x")
        wait_for_child(cluster["b"])

    left = finish_an_old_snapshot_late(cluster, begin, compact, finish, lambda number: f"value {number}")
    assert left != [f"value {number}" for number in range(50)]
    assert len(left) < 50
    for fd in (wait_fd, release_fd):
        os.close(fd)


def test_a_received_snapshot_ends_an_older_one_that_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H21: after the same moves our node has everything that was answered."""
    cluster, checker = our_cluster(tmp_path, monkeypatch, compact_entries=10_000, in_flight_max=10**6)
    child = cluster["b"].child

    def begin() -> None:
        child.is_slow = True
        cluster["b"].replica.engine.force_compaction()

    def compact() -> None:
        monkeypatch.setattr(cluster["a"].replica.engine, "_retained", 0)
        cluster["a"].replica.engine.force_compaction()
        cluster.run_ms(200)

    def finish() -> None:
        child.is_slow = False

    left = finish_an_old_snapshot_late(cluster, begin, compact, finish, lambda number: b"%d" % number)
    assert left == list(checker.committed.values()) == [b"%d" % number for number in range(50)]
