"""A disk without room for a snapshot, and with room for all else: how often it is tried, what is taken."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.commands.outbox import Answer
from cluster.consensus import compaction
from cluster.errors import Overloaded
from lockstate.words.commands.holds import Acquire, Release
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.modes import Mode
from lockstate.words.results import Granted, Released
from tests.hazards.replica_nodes import our_cluster
from tests.hazards.virtual_cluster import Cluster
from tests.hazards.whole_nodes import Clients, whole_cluster
from tests.support.replica_parts import InlineChild

MINUTE_MS = 60_000


def fail_snapshots(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Let every child fail from now on; return how many each node starts."""
    forks: Counter[str] = Counter()

    def failing(node_id: str, child: InlineChild) -> Callable[[Callable[[], None]], None]:
        def start(_: Callable[[], None]) -> None:
            forks[node_id] += 1
            child._outcome = "failed"

        return start

    for node_id in cluster.ids:
        node = cluster[node_id]
        replica = node.parts.replica if hasattr(node, "parts") else node.replica
        child = replica._transfer._store._child
        monkeypatch.setattr(child, "start", failing(node_id, child))
    return forks


def test_a_snapshot_that_cannot_be_written_is_not_tried_in_every_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each node forks 1, 2, 4, 8, 16, 32 s after a failure, then once a minute; it was 600 times a minute."""
    cluster, _ = our_cluster(tmp_path, monkeypatch, compact_entries=8)
    forks = fail_snapshots(cluster, monkeypatch)
    cluster.elect("a")
    cluster["a"].propose(*[b"%d" % number for number in range(40)])
    cluster.run_ms(MINUTE_MS)
    assert set(forks) == {"a", "b", "c"}, "all of them have written more than they may"
    assert max(forks.values()) <= 7, forks
    forks.clear()
    cluster.run_ms(2 * MINUTE_MS)
    assert max(forks.values()) <= 3, forks
    assert all(cluster[node_id].journal.first_index == 1 for node_id in "abc")
    monkeypatch.undo()


def test_a_log_is_compacted_as_soon_as_the_disk_takes_a_snapshot_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has to do anything for it: the next try, a minute later at most, makes the log short."""
    cluster, checker = our_cluster(tmp_path, monkeypatch, compact_entries=8)
    with monkeypatch.context() as failing:
        fail_snapshots(cluster, failing)
        cluster.elect("a")
        cluster["a"].propose(*[b"%d" % number for number in range(40)])
        cluster.run_ms(2 * MINUTE_MS)
        assert cluster["a"].replica.engine.snapshots_failing_s > 100
    cluster.run_ms(MINUTE_MS + 1000)
    for node_id in "abc":
        assert cluster[node_id].journal.first_index > 30
        assert cluster[node_id].replica.engine.snapshots_failing_s == 0
        assert dict(cluster[node_id].entries) == checker.committed


def ask(cluster: Cluster, node_id: str, command: Acquire | Release) -> "asyncio.Task[Answer]":
    """Let a client of a node ask for something; the task ends with what it is told."""
    node = cluster[node_id]

    def begin() -> "asyncio.Task[Answer]":
        return asyncio.get_running_loop().create_task(node.parts.requests.submit(command, 60.0))

    task: asyncio.Task[Answer] = node.loop.call(begin)
    cluster.settle()
    return task


def acquire(number: int) -> Acquire:
    """Return a request for a lock of its own."""
    hold_id = HoldId(f"hold-{number:020d}")
    return Acquire(f"lock-{number}", Mode.EXCLUSIVE, hold_id, AttemptId(f"a{number}"), ttl_ms=3_600_000)


def test_a_leader_that_cannot_compact_takes_only_what_frees_and_then_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of every node are told `overloaded` before anything is sent; all is well after a snapshot."""
    monkeypatch.setattr(compaction, "UNCOMPACTED_ENTRIES", 40)
    cluster = whole_cluster(tmp_path, monkeypatch, compact_entries=100)
    journal = cluster["a"].journal
    with monkeypatch.context() as failing:
        fail_snapshots(cluster, failing)
        cluster.elect("a")
        clients = Clients()
        while cluster["a"].parts.replica.engine.log_room is compaction.LogSpace.ANYTHING:
            clients.ask(cluster["a"])
            cluster.run_ms(50)
        assert len(journal) == 2 * (100 + 20) + 1
        cluster.run_ms(2000)
        held = [HoldId(hold_id) for hold_id, _, _ in clients.asked]
        for node_id in "abc":
            refused = ask(cluster, node_id, acquire(1000))
            assert isinstance(refused.exception(), Overloaded), node_id
            taken = ask(cluster, node_id, Release(held.pop()))
            cluster.run_ms(500)
            assert isinstance(taken.result().result, Released), node_id
        while cluster["a"].parts.replica.engine.log_room is compaction.LogSpace.WHAT_FREES:
            taken = ask(cluster, "b", Release(held.pop()))
            cluster.run_ms(50)
        cluster.run_ms(2000)
        length = len(journal)
        for node_id in "abc":
            refused = ask(cluster, node_id, Release(held.pop()))
            assert isinstance(refused.exception(), Overloaded), node_id
        clients.ask(cluster["c"])
        cluster.run_ms(10_000)
        assert len(journal) == length == 3 * (100 + 20) + 1, "nothing gets in by other ways either"
    cluster.run_ms(MINUTE_MS + 3_000)
    assert len(journal) < 100
    for node_id in "abc":
        taken = ask(cluster, node_id, acquire(2000 + ord(node_id)))
        cluster.run_ms(500)
        assert isinstance(taken.result().result, Granted), node_id
