"""What is on a disk after a kill, a compaction, a damage (H9, H15, H16, H24); a disk that is lost (H18)."""

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pysyncobj import FAIL_REASON, SyncObjConf, replicated
from pysyncobj.config import SERIALIZER_STATE
from pysyncobj.journal import FileJournal

from cluster.consensus import compaction
from cluster.errors import DataDirError
from cluster.storage.journal_format import LogEntry
from lockstate.stored import snapshot
from tests.hazards.bare_library import BareNode, bare_cluster
from tests.hazards.replica_nodes import our_cluster
from tests.hazards.virtual_cluster import Cluster, Network
from tests.hazards.whole_nodes import Clients, whole_cluster

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # the library does not close its files


def bare_cluster_of_one(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Return one bare node, whose snapshots are written but never reported as finished."""
    cluster: Cluster

    def serialize(path: str, data: tuple[Any, ...]) -> None:
        Path(path).write_bytes(pickle.dumps((data, cluster["a"].values)))

    def deserialize(path: str) -> tuple[Any, ...]:
        data, cluster["a"].values = pickle.loads(Path(path).read_bytes())  # noqa: S301 - written above
        return tuple(data)

    states = [SERIALIZER_STATE.NOT_SERIALIZING]
    cluster = bare_cluster(
        monkeypatch,
        node_ids="a",
        journalFile=str(directory / "journal"),
        fullDumpFile=str(directory / "snapshot"),
        logCompactionMinEntries=10**9,
        serializer=serialize,
        deserializer=deserialize,
        serializeChecker=lambda: states[0],
    )
    cluster.run_ms(3000)
    return cluster


def test_the_bare_library_drops_the_log_behind_a_snapshot_that_it_had_not_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H16: killed between snapshot and compaction, it starts without what was acknowledged since."""
    before = tmp_path / "before"
    before.mkdir()
    cluster = bare_cluster_of_one(before, monkeypatch)
    cluster["a"].propose(*range(10))
    cluster.run_ms(3000)
    cluster["a"].forceLogCompaction()
    cluster.run_ms(1000)
    cluster["a"].propose(*range(10, 20))
    cluster.run_ms(3000)
    assert cluster["a"].outcomes == [FAIL_REASON.SUCCESS] * 20

    after = tmp_path / "after"
    shutil.copytree(before, after)
    cluster = bare_cluster_of_one(after, monkeypatch)
    cluster.run_ms(3000)
    assert cluster["a"].values == list(range(10))


def test_the_log_behind_a_snapshot_that_was_not_compacted_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H16: killed between the rename of a snapshot and the compaction, our node has everything."""
    cluster, _ = our_cluster(tmp_path, monkeypatch, node_ids="a", compact_entries=10**6)
    entries = [b"%d" % number for number in range(20)]
    cluster["a"].propose(*entries[:10])
    cluster.run_ms(1000)
    journal = cluster["a"].journal
    log = journal[:]
    applied = cluster["a"].replica.engine.applied_index
    position = applied - journal.first_index
    cluster["a"].store.begin_write(log[position], log[position - 1], b"", cluster["a"].encode_state)
    assert cluster["a"].store.poll() == "done"
    cluster["a"].propose(*entries[10:])
    cluster.run_ms(1000)
    cluster.crash("a")
    cluster.start("a")
    assert cluster["a"].values == entries[:10]
    cluster.run_ms(1000)
    assert cluster["a"].values == entries


def test_the_bare_library_starts_empty_from_a_damaged_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H9: a snapshot that cannot be read is ignored, and the node goes on with what is left."""
    first = bare_cluster_of_one(tmp_path, monkeypatch)
    first["a"].propose(*range(10))
    first.run_ms(3000)
    first["a"].forceLogCompaction()
    first.run_ms(1000)
    FileJournal(str(tmp_path / "journal")).deleteEntriesTo(8)
    path = tmp_path / "snapshot"
    path.write_bytes(path.read_bytes()[:-20])
    second = bare_cluster_of_one(tmp_path, monkeypatch)
    second.run_ms(3000)
    assert second["a"].values != list(range(10))
    assert second["a"].is_leader


def test_a_damaged_snapshot_stops_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H9: our replica does not start from a snapshot that does not verify, and says which file it is."""
    cluster, _ = our_cluster(tmp_path, monkeypatch, node_ids="a", compact_entries=10)
    cluster["a"].propose(*[b"%d" % number for number in range(50)])
    cluster.run_ms(1000)
    cluster.crash("a")
    path = tmp_path / "a" / "snapshot"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataDirError, match="snapshot"):
        cluster.start("a")


def test_a_kill_of_all_nodes_at_once_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one node has applied is there after all three were killed in the same moment."""
    cluster, checker = our_cluster(tmp_path, monkeypatch, compact_entries=20)
    for round_number in range(10):
        cluster.run_until(lambda: cluster.leader_of("abc") is not None)
        leader = cluster[cluster.leader_of("abc") or ""]
        leader.propose(*[b"%d.%d" % (round_number, number) for number in range(30)])
        while len(checker.committed) < 20 * (round_number + 1):
            cluster.step()
            cluster.settle()
        for node_id in "abc":
            cluster.crash(node_id)
        cluster.heal()
    cluster.run_ms(5000)
    for node_id in "abc":
        assert dict(cluster[node_id].entries) == checker.committed


def test_large_entries_do_not_make_a_node_write_snapshot_after_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stays of the log after a compaction is far below the size that asks for the next one."""
    monkeypatch.setattr(compaction, "LOG_BYTES_MAX", 1_000_000)
    cluster, checker = our_cluster(tmp_path, monkeypatch, node_ids="a", compact_entries=400)
    snapshots: list[int] = []
    begin_write = cluster["a"].store.begin_write

    def counted(
        last: LogEntry,
        previous: LogEntry,
        members: bytes,
        encode_state: Callable[[], bytes],
        log_digest: int | None,
    ) -> None:
        snapshots.append(last[1])
        begin_write(last, previous, members, encode_state, log_digest)

    monkeypatch.setattr(cluster["a"].store, "begin_write", counted)
    cluster["a"].propose(*[b"%d" % number * 10_000 for number in range(100, 220)])
    cluster.run_until(lambda: len(checker.committed) == 120)
    cluster.run_ms(1000)
    assert 1 <= len(snapshots) <= 8, "120 entries of 30 kB are less than five times 0.75 MB"
    assert cluster["a"].journal.bytes_count < 1_000_000


# -- what a snapshot holds (H15, H24) -----------------------------------------------------------------------


class EarlyNode(BareNode):
    """A node that sets a part of its state before the library's constructor runs."""

    def __init__(self, node_id: str, network: Network, conf: SyncObjConf, member_ids: str) -> None:
        self.count = 0
        super().__init__(node_id, network, conf, member_ids)

    @replicated  # type: ignore[untyped-decorator]
    def add(self, number: int) -> None:
        """Count, and keep what was counted."""
        self.count += number
        self.values.append(number)


def test_the_bare_library_leaves_state_out_of_its_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H15: what the constructor finds there is taken for the library's own, and gone after a restart."""
    cluster = bare_cluster(
        monkeypatch, node_ids="a", directory=tmp_path, kinds={"a": EarlyNode}, useFork=False
    )
    cluster.run_ms(3000)
    for number in range(1, 5):
        cluster["a"].add(number)
    cluster.run_ms(1000)
    cluster["a"].forceLogCompaction()
    cluster.run_ms(1000)
    assert cluster["a"].count == 10
    cluster.crash("a")
    cluster.start("a")
    cluster.run_ms(3000)
    assert cluster["a"].values[:3] == [1, 2, 3]
    assert cluster["a"].count < 10


def test_our_snapshot_holds_all_of_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H15, H24: after a compaction and a restart the state of a whole node is the same, to the byte."""
    cluster, clients = whole_cluster(tmp_path, monkeypatch, node_ids="a", compact_entries=100), Clients()
    cluster.run_ms(3000)
    for _ in range(150):
        clients.ask(cluster["a"])
        cluster.settle()
    cluster.run_ms(1000)
    assert cluster["a"].journal.first_index > 2, "nothing was compacted"
    before = snapshot.encode(cluster["a"].machine.state)
    cluster.crash("a")
    cluster.start("a")
    cluster.run_ms(3000)
    assert snapshot.encode(cluster["a"].machine.state) == before


def test_the_bare_library_compacts_its_log_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H24: with a log file and no snapshot file, all that was compacted is gone after a restart."""
    cluster = bare_cluster(monkeypatch, node_ids="a", journalFile=str(tmp_path / "journal"))
    cluster.run_ms(3000)
    cluster["a"].propose(*range(20))
    cluster.run_ms(3000)
    cluster["a"].forceLogCompaction()
    cluster.run_ms(1000)
    assert cluster["a"].outcomes == [FAIL_REASON.SUCCESS] * 20
    cluster.crash("a")
    cluster.start("a")
    cluster.run_ms(3000)
    assert cluster["a"].is_leader
    assert cluster["a"].values == []


# -- a disk that is lost (H18) ------------------------------------------------------------------------------


def test_a_bare_node_that_lost_its_disk_votes_against_what_it_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H18: two nodes have it, one of them comes back empty, and elects the third, which never had it."""
    cluster = bare_cluster(monkeypatch, directory=tmp_path)
    cluster.elect("a")
    cluster.isolate("c")
    cluster["a"].propose("a lock")
    cluster.run_until(lambda: cluster["a"].outcomes == [FAIL_REASON.SUCCESS])
    cluster.crash("a")
    cluster.crash("b")
    for path in tmp_path.glob("b.*"):
        path.unlink()
    cluster.start("b")
    cluster.connect("b", "c")
    cluster.run_until(lambda: cluster.leader_of("bc") in ("b", "c"))
    cluster.run_ms(1000)
    assert cluster["b"].values == cluster["c"].values == []


def test_a_node_that_lost_its_disk_is_not_let_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H18: in the same moves both others refuse ours, by the disk that they remember from the beginning."""
    cluster = whole_cluster(tmp_path, monkeypatch)

    def objections_to_b(others: str) -> list[object]:
        b = cluster["b"].parts.peering
        nodes = {node_id: cluster[node_id].parts.peering for node_id in others}
        return [
            peering.objection("b", b.particulars(node_id), is_known=True)
            for node_id, peering in nodes.items()
        ]

    assert objections_to_b("ac") == [None, None]
    cluster.elect("a")
    cluster.isolate("c")
    cluster.crash("a")
    cluster.crash("b")
    shutil.rmtree(tmp_path / "b")
    cluster.start("a")
    cluster.start("b")
    assert all("known here with another data directory" in str(text) for text in objections_to_b("ac"))
