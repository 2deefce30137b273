"""What a kill leaves on the disk: of the bare library (H4, H5, H9, H16), and of our nodes."""

import gc
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pysyncobj import FAIL_REASON
from pysyncobj import journal as library_journal
from pysyncobj.config import SERIALIZER_STATE
from pysyncobj.journal import FileJournal

from cluster import replica as replica_module
from cluster.errors import DataDirError
from cluster.records import LogEntry
from tests.hazards.bare import bare_cluster
from tests.hazards.harness import Cluster
from tests.hazards.ours import our_cluster

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # the library does not close its files


@pytest.fixture(autouse=True)
def _closed_journals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close what the library leaves open."""
    opened: list[Any] = []
    open_journal = library_journal.ResizableFile.__init__

    def remembered(self: Any, *args: Any, **kwargs: Any) -> None:
        opened.append(self)
        open_journal(self, *args, **kwargs)

    monkeypatch.setattr(library_journal.ResizableFile, "__init__", remembered)
    yield
    for file in opened:
        file._destroy()
    gc.collect()


class Killed(BaseException):
    """The process ends here."""


def entries_of(journal: FileJournal) -> list[int]:
    """Return the indexes in a journal of the library's."""
    return [entry[1] for entry in journal[:]]


def test_the_bare_journal_is_empty_between_clearing_and_writing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H5: a kill in the middle of a compaction takes the entries that were to stay."""
    path = str(tmp_path / "journal")
    journal = FileJournal(path)
    for index in range(1, 11):
        journal.add(b"entry", index, 1)

    def killed_at_the_second(self: Any, command: bytes, index: int, term: int) -> None:
        if index == 7:
            raise Killed
        add(self, command, index, term)

    add = FileJournal.add
    with monkeypatch.context() as patch:
        patch.setattr(FileJournal, "add", killed_at_the_second)
        with pytest.raises(Killed):
            journal.deleteEntriesTo(5)
    assert entries_of(FileJournal(path)) == [6]


def test_the_bare_journal_is_never_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H4: entries, term and vote are answered for without one call that waits for the disk."""
    synced: list[str] = []
    with monkeypatch.context() as patch:
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, lambda *_, name=name: synced.append(name))
        patch.setattr(library_journal.ResizableFile, "flush", lambda _: synced.append("flush"))
        journal = FileJournal(str(tmp_path / "journal"))
        journal.setCurrentTerm(7, "a")
        journal.add(b"entry", 1, 7)
        journal.onOneSecondTimer()
    assert synced == []


def test_the_bare_journal_takes_damage_for_an_entry(tmp_path: Path) -> None:
    """H4: records carry no checksum: a flipped bit comes back as another command."""
    path = tmp_path / "journal"
    journal = FileJournal(str(path))
    journal.add(b"release", 1, 1)
    journal.flush()
    data = path.read_bytes()
    path.write_bytes(data.replace(b"release", b"renewal"))
    assert FileJournal(str(path))[0][0] == b"renewal"


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
    applied = cluster["a"].replica._raft.applied_index
    position = applied - journal.first_index
    cluster["a"].store.begin_write(log[position], log[position - 1], cluster["a"].encode_state)
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
    snapshot = tmp_path / "snapshot"
    snapshot.write_bytes(snapshot.read_bytes()[:-20])
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
    snapshot = tmp_path / "a" / "snapshot"
    data = bytearray(snapshot.read_bytes())
    data[len(data) // 2] ^= 1
    snapshot.write_bytes(data)
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
    monkeypatch.setattr(replica_module, "LOG_BYTES_MAX", 1_000_000)
    cluster, checker = our_cluster(tmp_path, monkeypatch, node_ids="a", compact_entries=400)
    snapshots: list[int] = []
    begin_write = cluster["a"].store.begin_write

    def counted(last: LogEntry, previous: LogEntry, encode_state: Callable[[], bytes]) -> None:
        snapshots.append(last[1])
        begin_write(last, previous, encode_state)

    monkeypatch.setattr(cluster["a"].store, "begin_write", counted)
    cluster["a"].propose(*[b"%d" % number * 10_000 for number in range(100, 220)])
    cluster.run_until(lambda: len(checker.committed) == 120)
    cluster.run_ms(1000)
    assert 1 <= len(snapshots) <= 8, "120 entries of 30 kB are less than five times 0.75 MB"
    assert cluster["a"].journal.bytes_count < 1_000_000
