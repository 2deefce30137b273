"""What a loss of power (H4) and a kill within a compaction (H5) leave of the log, the term and the vote."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pysyncobj import FAIL_REASON
from pysyncobj.journal import FileJournal

from cluster.errors import DataDirError
from cluster.storage.files import Files
from cluster.storage.journal import Journal
from cluster.storage.segment_writer import Sizes
from tests.hazards.bare_library import bare_cluster
from tests.hazards.power_loss import PowerDisk, PowerFiles
from tests.hazards.replica_nodes import our_cluster
from tests.hazards.virtual_cluster import Cluster

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # the library does not close its files

COUNT = 20


# -- loss of power (H4) -------------------------------------------------------------------------------------


class BareDisk:
    """The disk below bare nodes, with their files in one directory; counts every sync that they ask for."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.syncs = 0
        self._directory = directory
        self._disk = PowerDisk()
        for name in ("fsync", "fdatasync", "sync"):
            monkeypatch.setattr(os, name, self._synced)

    def _synced(self, *_: int) -> None:
        self.syncs += 1

    def lose_power(self, node_id: str) -> None:
        """Take away what a node has never synced: all of it."""
        assert self.syncs == 0
        for path in self._directory.glob(f"{node_id}.*"):
            path.unlink()


def commit_and_lose_power(
    cluster: Cluster, values: list[Any], lose_power: Callable[[str], None]
) -> dict[str, Any]:
    """Commit `values`, then let the power fail under all nodes at once; return the nodes as they were."""
    cluster.elect("a")
    cluster["a"].propose(*values)
    cluster.run_until(lambda: [len(cluster[node_id].values) for node_id in "abc"] == [len(values)] * 3)
    before = dict(cluster.nodes)
    for node_id in "abc":
        cluster.crash(node_id)
        lose_power(node_id)
    cluster.heal()
    cluster.run_until(lambda: cluster.leader_of("abc") is not None)
    cluster.run_ms(2000)
    return before


def test_the_bare_library_forgets_what_it_acknowledged_when_the_power_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H4: everything was answered with SUCCESS, and no call ever waited for a disk."""
    disk = BareDisk(tmp_path, monkeypatch)
    cluster = bare_cluster(monkeypatch, directory=tmp_path)
    before = commit_and_lose_power(cluster, list(range(COUNT)), disk.lose_power)
    assert before["a"].outcomes == [FAIL_REASON.SUCCESS] * COUNT
    assert [cluster[node_id].values for node_id in "abc"] == [[], [], []]


def test_what_was_acknowledged_is_there_when_the_power_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H4: after the same moves, on a disk that takes everything that was not synced, ours have everything."""
    disk = PowerDisk()
    cluster, _ = our_cluster(tmp_path, monkeypatch, files=PowerFiles(disk))
    values = [b"%d" % number for number in range(COUNT)]
    commit_and_lose_power(cluster, values, lambda node_id: disk.lose_power(tmp_path / node_id))
    assert [cluster[node_id].values for node_id in "abc"] == [values] * 3


def vote_and_lose_power(cluster: Cluster, lose_power: Callable[[str], None]) -> int:
    """Let b lead with the vote of c; then c loses power and meets a, which stands for election.

    Return the term of b.
    """
    cluster.isolate("a")
    cluster["c"].be_patient()
    cluster.run_until(lambda: cluster["b"].is_leader)
    term = int(cluster["b"].term)
    cluster.crash("c")
    lose_power("c")
    cluster.start("c")
    cluster["c"].be_patient()
    cluster.connect("a", "c")
    cluster.run_until(lambda: cluster.leader_of("ac") in ("a", "c"), 20_000)
    return term


def test_a_node_of_the_bare_library_votes_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H4: the voter forgot its vote with the power; one term has two leaders."""
    disk = BareDisk(tmp_path, monkeypatch)
    cluster = bare_cluster(monkeypatch, directory=tmp_path)
    term = vote_and_lose_power(cluster, disk.lose_power)
    assert cluster["a"].is_leader
    assert cluster["b"].is_leader
    assert cluster["a"].term == cluster["b"].term == term


def test_a_vote_outlives_the_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H4: after the same moves the next leader is one of a later term; the checker saw no second vote."""
    disk = PowerDisk()
    cluster, _ = our_cluster(tmp_path, monkeypatch, files=PowerFiles(disk))
    term = vote_and_lose_power(cluster, lambda node_id: disk.lose_power(tmp_path / node_id))
    assert cluster[cluster.leader_of("ac") or ""].term > term


def test_the_bare_journal_takes_damage_for_an_entry(tmp_path: Path) -> None:
    """H4: records carry no checksum: a changed byte comes back as another command."""
    path = tmp_path / "journal"
    journal = FileJournal(str(path))
    journal.add(b"release", 1, 1)
    journal.flush()
    path.write_bytes(path.read_bytes().replace(b"release", b"renewal"))
    assert FileJournal(str(path))[0][0] == b"renewal"


def test_our_journal_refuses_a_damaged_entry(tmp_path: Path) -> None:
    """H4: the same change in our log is found before anything is replayed, and the file is named."""
    journal = Journal.open(tmp_path)
    for index, command in enumerate((b"release", b"more", b"and more"), start=1):
        journal.add(command, index, 1)
        journal.sync()
    journal.close()
    (path,) = [path for path in tmp_path.iterdir() if b"release" in path.read_bytes()]
    path.write_bytes(path.read_bytes().replace(b"release", b"renewal"))
    with pytest.raises(DataDirError, match=path.name):
        Journal.open(tmp_path)


# -- killed within a compaction (H5) ------------------------------------------------------------------------


class Killed(BaseException):
    """The process ends here."""


class MortalFiles(Files):
    """Real files; the process dies instead of operation number `dies_at`."""

    def __init__(self) -> None:
        self.dies_at = 0
        self.count = 0

    def __getattribute__(self, name: str) -> Any:
        """Count every operation."""
        if not name.startswith("_") and callable(getattr(Files, name, None)):
            self.count += 1
            if self.count == self.dies_at:
                raise Killed
        return super().__getattribute__(name)


def fill(journal: Any) -> None:
    """Put ten entries into a journal."""
    for index in range(1, 11):
        journal.add(b"entry", index, 1)


def test_the_bare_journal_is_empty_between_clearing_and_writing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H5: a kill in the middle of a compaction takes the entries that were to stay."""
    path = str(tmp_path / "journal")
    journal = FileJournal(path)
    fill(journal)

    def killed_at_the_second(self: Any, command: bytes, index: int, term: int) -> None:
        if index == 7:
            raise Killed
        add(self, command, index, term)

    add = FileJournal.add
    with monkeypatch.context() as patch:
        patch.setattr(FileJournal, "add", killed_at_the_second)
        with pytest.raises(Killed):
            journal.deleteEntriesTo(5)
    assert [entry[1] for entry in FileJournal(path)[:]] == [6]


def test_a_kill_within_a_compaction_takes_nothing_that_was_to_stay(tmp_path: Path) -> None:
    """H5: our journal, killed before any of the operations of the same compaction, has entries 6 to 10."""
    survived = 0
    for dies_at in range(1, 100):
        directory = tmp_path / str(dies_at)
        directory.mkdir()
        files = MortalFiles()
        journal = Journal.open(directory, files=files, sizes=Sizes(segment_bytes=256, prepared_bytes=0))
        fill(journal)
        journal.sync()
        files.count, files.dies_at = 0, dies_at
        try:
            journal.remove_before(5)
            journal.sync()
        except Killed:
            survived += 1
        else:
            break
        finally:
            if journal._fd >= 0:
                # Killed between two segments: the old one was closed already.
                os.close(journal._fd)
        assert [entry[1] for entry in Journal.open(directory)[:]][-5:] == [6, 7, 8, 9, 10]
    assert survived >= 2, "nothing was killed"
