"""The journal keeps what it has synced, in order and whole, and says so when the disk does not."""

import errno
import logging
import os
from pathlib import Path

import pytest

from cluster.errors import DataDirError, NodeFailed
from cluster.storage.files import Files
from cluster.storage.journal import HEARD_COUNT_MAX, Journal, JournalError
from cluster.storage.journal_format import LogEntry
from cluster.storage.segment_writer import PREPARED_BYTES, Sizes
from tests.unit.cluster.storage.crash_disk import CrashDisk


def entries_of(journal: Journal) -> list[LogEntry]:
    """Return the whole log."""
    return journal[:]


def fill(journal: Journal, first: int, last: int, term: int = 1) -> list[LogEntry]:
    """Add the entries `first` to `last` and return them."""
    added = [(f"command {index}".encode(), index, term) for index in range(first, last + 1)]
    for entry in added:
        journal.add(*entry)
    return added


def fill_disk(journal: Journal) -> None:
    """Add and sync entries of 100 bytes until the disk is full."""
    for index in range(1, 1000):
        journal.add(b"x" * 100, index, 1)
        journal.sync()


def segment_files(directory: Path) -> list[Path]:
    """Return the segment files, oldest first."""
    return sorted(directory.glob("journal-*.log"))


def abandon(journal: Journal) -> None:
    """Drop the journal as a kill does: nothing is synced or sealed."""
    os.close(journal._fd)


def test_everything_synced_is_there_after_reopening(tmp_path: Path) -> None:
    """Entries, term, vote and commit hint come back as they were."""
    journal = Journal.open(tmp_path)
    added = fill(journal, 1, 5)
    journal.set_vote(7, "node-b")
    journal.record_commit(4)
    assert journal.synced_index == 0
    journal.close()
    assert journal.synced_index == 5
    journal = Journal.open(tmp_path)
    assert entries_of(journal) == added
    assert (journal.term, journal.voted_for) == (7, "node-b")
    assert journal.commit_hint == 4
    assert journal.synced_index == journal.last_index == 5
    journal.close()


def test_a_new_journal_is_empty_with_term_0(tmp_path: Path) -> None:
    """A fresh journal has no entry, no vote, term 0 and commit hint 1, and its first segment exists."""
    journal = Journal.open(tmp_path)
    assert len(journal) == 0
    assert (journal.term, journal.voted_for) == (0, None)
    assert journal.commit_hint == 1
    assert [path.name for path in segment_files(tmp_path)] == ["journal-0000000000000001.log"]
    journal.close()


def test_a_sync_is_one_write_and_one_fdatasync(tmp_path: Path) -> None:
    """However much was gathered, the disk is asked once; with nothing gathered it is not asked at all."""
    disk = CrashDisk()
    journal = Journal.open(tmp_path, files=disk)
    disk.operations.clear()
    fill(journal, 1, 100)
    journal.set_vote(1, "node-a")
    assert journal.sync()
    assert disk.operations == ["write", "fdatasync"]
    assert not journal.sync()
    assert disk.operations == ["write", "fdatasync"]
    journal.close()


def test_unsynced_entries_do_not_count_as_durable(tmp_path: Path) -> None:
    """`synced_index` follows the syncs, and goes back when synced entries are truncated."""
    journal = Journal.open(tmp_path)
    fill(journal, 1, 4)
    assert (journal.synced_index, journal.last_index, journal.is_dirty) == (0, 4, True)
    journal.sync()
    assert (journal.synced_index, journal.is_dirty) == (4, False)
    journal.remove_from(2)
    fill(journal, 3, 6, term=2)
    assert (journal.synced_index, journal.last_index) == (2, 6)
    journal.close()


def test_a_commit_beyond_the_synced_log_waits_for_nothing(tmp_path: Path) -> None:
    """Others may have it on their disks: a leader counts its own copy up to `synced_index` only."""
    disk = CrashDisk()
    journal = Journal.open(tmp_path, files=disk)
    fill(journal, 1, 3)
    disk.operations.clear()
    journal.record_commit(3)
    assert disk.operations == []
    assert journal.synced_index == 0
    journal.sync()
    assert journal.synced_index == journal.commit_hint == 3
    journal.close()


def test_a_commit_hint_alone_asks_nothing_of_the_disk(tmp_path: Path) -> None:
    """The hint rides along with the next sync."""
    journal = Journal.open(tmp_path)
    fill(journal, 1, 3)
    journal.sync()
    journal.record_commit(2)
    assert not journal.is_dirty
    assert not journal.sync()
    fill(journal, 4, 4)
    journal.sync()
    abandon(journal)
    reopened = Journal.open(tmp_path)
    assert reopened.commit_hint == 2
    reopened.close()


def test_the_commit_hint_never_exceeds_the_log(tmp_path: Path) -> None:
    """After a truncation the hint is cut to the last index."""
    journal = Journal.open(tmp_path)
    fill(journal, 1, 5)
    journal.record_commit(5)
    journal.remove_from(3)
    journal.sync()
    assert journal.commit_hint == 3
    journal.close()


def test_compaction_keeps_the_rest_and_the_hard_state(tmp_path: Path) -> None:
    """After compaction over many segments only what is needed is on disk, with term and vote."""
    journal = Journal.open(tmp_path, sizes=Sizes(400, 100))
    journal.set_vote(3, "node-c")
    added: list[LogEntry] = []
    for index in range(1, 101):
        added += fill(journal, index, index)
        journal.sync()
    count_before = len(segment_files(tmp_path))
    journal.remove_before(94)
    journal.sync()
    for _ in range(count_before):
        journal.tidy()
        journal.sync()
    assert len(segment_files(tmp_path)) < count_before / 3
    journal.close()
    reopened = Journal.open(tmp_path)
    assert entries_of(reopened) == added[-6:]
    assert (reopened.term, reopened.voted_for) == (3, "node-c")
    reopened.close()


def test_clear_is_one_step_with_the_adds_after_it(tmp_path: Path) -> None:
    """Until the sync after the next add the old log stays on disk; then only the new one is there."""
    journal = Journal.open(tmp_path, sizes=Sizes(100, 100))
    old = fill(journal, 1, 9)
    journal.sync()
    journal.clear()
    journal.set_vote(2, None)
    journal.sync()
    abandon(journal)
    journal = Journal.open(tmp_path, sizes=Sizes(100, 100))
    assert entries_of(journal) == old
    assert journal.term == 2
    journal.clear()
    new = fill(journal, 500, 501, term=2)
    journal.sync()
    abandon(journal)
    journal = Journal.open(tmp_path)
    assert entries_of(journal) == new
    journal.tidy()
    journal.sync()
    assert len(segment_files(tmp_path)) == 1
    journal.close()


def test_clear_forgets_what_was_not_synced(tmp_path: Path) -> None:
    """Entries added after the last sync and cleared before the next one never reach the disk."""
    journal = Journal.open(tmp_path, sizes=Sizes(100, 100))
    old = fill(journal, 1, 9)
    journal.sync()
    fill(journal, 10, 12)
    journal.clear()
    for term in range(1, 4):
        journal.set_vote(term, None)
        journal.sync()
    abandon(journal)
    reopened = Journal.open(tmp_path)
    assert entries_of(reopened) == old
    reopened.close()


def test_begin_at_keeps_the_entries_behind_the_snapshot(tmp_path: Path) -> None:
    """A kill between snapshot and compaction costs no acknowledged entry."""
    journal = Journal.open(tmp_path)
    added = fill(journal, 1, 10)
    journal.sync()
    journal.begin_at(added[4], added[5])
    journal.sync()
    assert entries_of(journal) == added[4:]
    assert journal.synced_index == 10
    journal.close()


def test_begin_at_replaces_a_log_that_does_not_reach_the_snapshot(tmp_path: Path) -> None:
    """With a snapshot newer than the log, the log becomes the snapshot's two entries."""
    journal = Journal.open(tmp_path)
    fill(journal, 1, 3)
    journal.begin_at((b"a", 70, 4), (b"b", 71, 4))
    assert entries_of(journal) == [(b"a", 70, 4), (b"b", 71, 4)]
    journal.close()


@pytest.mark.parametrize("place", [0, 1], ids=["previous", "last"])
@pytest.mark.parametrize("other", [(b"else", 0), (None, 1)], ids=["command", "term"])
def test_begin_at_replaces_a_log_with_another_history(
    tmp_path: Path, place: int, other: tuple[bytes | None, int]
) -> None:
    """Log and snapshot meet in two equal entries, not in equal indexes: what follows another entry goes."""
    journal = Journal.open(tmp_path)
    meeting = fill(journal, 1, 10)[4:6]
    command, index, term = meeting[place]
    meeting[place] = (other[0] or command, index, term + other[1])
    journal.begin_at(*meeting)
    assert entries_of(journal) == meeting
    journal.close()


def test_begin_at_refuses_a_snapshot_older_than_the_log(tmp_path: Path) -> None:
    """A snapshot that ends before the log begins leaves a gap, and the node does not start."""
    journal = Journal.open(tmp_path)
    fill(journal, 50, 60)
    with pytest.raises(DataDirError, match=r"begins at entry 50.*snapshot ends at 31"):
        journal.begin_at((b"a", 30, 1), (b"b", 31, 1))
    journal.close()


def test_a_compacted_log_without_its_snapshot_refuses(tmp_path: Path) -> None:
    """A log that does not begin at entry 1 needs a snapshot; one that does, or is empty, needs none."""
    journal = Journal.open(tmp_path)
    journal.begin_without_snapshot()
    fill(journal, 1, 9)
    journal.begin_without_snapshot()
    journal.remove_before(3)
    with pytest.raises(DataDirError, match="begins at entry 4 and the snapshot before it is missing"):
        journal.begin_without_snapshot()
    journal.close()


def test_a_torn_last_write_is_cut_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The warning names the file, the offset and the bytes; what was synced before stays."""
    journal = Journal.open(tmp_path)
    added = fill(journal, 1, 3)
    journal.sync()
    abandon(journal)
    (file,) = segment_files(tmp_path)
    content = file.read_bytes()
    end = len(content.rstrip(b"\0"))
    with file.open("r+b") as segment:
        segment.seek(end)
        segment.write(b"\xb1Hf\n torn")
    with caplog.at_level(logging.WARNING):
        journal = Journal.open(tmp_path)
    assert entries_of(journal) == added
    assert f"event=torn-write-cut file={file} offset={end} cut_bytes={len(content) - end}" in caplog.text
    assert file.read_bytes() == content
    journal.close()


class FailingDisk(Files):
    """A disk on which one kind of operation begins to fail when told so."""

    def __init__(self, operation: str) -> None:
        """Prepare to fail `operation`."""
        self.operation = operation
        self.is_failing = False
        self.count = 0

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        """Write half and run out of space."""
        if self.is_failing and self.operation == "write":
            os.pwrite(fd, data[: len(data) // 2], offset)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write_at(fd, data, offset)

    def fdatasync(self, fd: int) -> None:
        """Fail once; a retry would succeed, as on a real system after a failed sync."""
        self.count += 1
        if self.is_failing and self.operation == "fdatasync":
            self.is_failing = False
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().fdatasync(fd)


@pytest.mark.parametrize("operation", ["write", "fdatasync"])
def test_a_disk_error_ends_all_changes(tmp_path: Path, operation: str) -> None:
    """After a failed write or sync every change raises, nothing is retried, and the synced part survives."""
    disk = FailingDisk(operation)
    journal = Journal.open(tmp_path, files=disk)
    added = fill(journal, 1, 3)
    journal.set_vote(2, "node-a")
    journal.sync()
    more = fill(journal, 4, 5)
    disk.is_failing = True
    with pytest.raises(JournalError):
        journal.sync()
    syncs = disk.count
    changes = (
        journal.sync,
        journal.clear,
        journal.tidy,
        lambda: journal.add(b"x", 6, 2),
        lambda: journal.remove_from(1),
        lambda: journal.remove_before(1),
        lambda: journal.record_commit(1),
        lambda: journal.set_vote(3, None),
    )
    for change in changes:
        with pytest.raises(NodeFailed):
            change()
    journal.close()
    assert disk.count == syncs
    assert journal.synced_index == 3
    reopened = Journal.open(tmp_path)
    assert entries_of(reopened) in (added, added + more)
    assert (reopened.term, reopened.voted_for) == (2, "node-a")
    reopened.close()


def test_indexes_and_terms_have_64_bits(tmp_path: Path) -> None:
    """Large indexes, large terms, empty and large commands survive."""
    journal = Journal.open(tmp_path)
    journal.add(b"", 2**62, 2**61)
    journal.add(bytes(3_000_000), 2**62 + 1, 2**61)
    journal.set_vote(2**61, "nœud")
    journal.close()
    reopened = Journal.open(tmp_path)
    assert entries_of(reopened) == [(b"", 2**62, 2**61), (bytes(3_000_000), 2**62 + 1, 2**61)]
    assert reopened.voted_for == "nœud"
    assert (reopened[-1][1], len(reopened)) == (2**62 + 1, 2)
    reopened.close()


def test_space_is_prepared_in_the_sync_that_reaches_the_end_of_the_file(tmp_path: Path) -> None:
    """Syncs in between are one write; the one that grows the file writes the zeros of the next step, too."""
    disk = CrashDisk()
    journal = Journal.open(tmp_path, files=disk)
    (path,) = (tmp_path / name for name in disk.names(tmp_path))
    assert len(disk.content(path)) == PREPARED_BYTES
    writes = []
    for index in range(1, 20):
        disk.operations.clear()
        journal.add(bytes(PREPARED_BYTES // 10), index, 1)
        journal.sync()
        writes.append(list(disk.operations))
    assert writes.count(["write", "write", "fdatasync"]) == 1
    assert writes.count(["write", "fdatasync"]) == 18
    assert len(disk.content(path)) == 2 * PREPARED_BYTES
    journal.close()


def test_a_large_block_prepares_nothing(tmp_path: Path) -> None:
    """Zeros behind every block of megabytes would double what is written."""
    disk = CrashDisk()
    journal = Journal.open(tmp_path, files=disk)
    for index in range(1, 4):
        journal.add(bytes(2_000_000), index, 1)
        disk.operations.clear()
        journal.sync()
        assert disk.operations == ["write", "fdatasync"]
    journal.close()


def test_a_disk_without_room_to_prepare_takes_blocks_while_they_fit(tmp_path: Path) -> None:
    """The journal goes on into the last bytes of the disk; then it fails, having lost nothing it synced."""
    disk = CrashDisk()
    disk.free_bytes = 3000
    journal = Journal.open(tmp_path, files=disk)
    with pytest.raises(JournalError, match="No space left"):
        fill_disk(journal)
    synced_index = journal.synced_index
    assert synced_index > 3000 // 200
    assert disk.free_bytes == 0
    disk.reboot(None)
    reopened = Journal.open(tmp_path, files=disk)
    assert reopened.last_index == synced_index
    assert all(command == b"x" * 100 for command, _, _ in reopened[:])


def test_a_segment_changes_on_a_disk_that_is_nearly_full(tmp_path: Path) -> None:
    """Neither the zeros nor the note at the end of a segment is worth a failure."""
    for free_bytes in range(2000, 2400, 7):
        disk = CrashDisk()
        disk.free_bytes = free_bytes
        journal = Journal.open(tmp_path, files=disk, sizes=Sizes(1000, 400))
        with pytest.raises(JournalError, match="No space left"):
            fill_disk(journal)
        assert len(disk.names(tmp_path)) >= 2
        disk.reboot(None)
        assert Journal.open(tmp_path, files=disk).last_index == journal.synced_index


DISK_A, DISK_B = "a" * 32, "b" * 32


def test_what_was_heard_of_peers_is_there_again(tmp_path: Path) -> None:
    """It goes with a block, with a tidying, or at the end, and into each new segment; never becomes less."""
    journal = Journal.open(tmp_path, sizes=Sizes(400, 100))
    journal.hear(DISK_A, 3, 7)
    assert not journal.wants_sync
    journal.add(b"one", 1, 3)
    journal.sync()
    assert Journal.open(tmp_path, sizes=Sizes(400, 100)).heard == {DISK_A: (3, 7)}
    journal.hear(DISK_A, 2, 9)
    journal.hear(DISK_B, 4, 1)
    for index in range(2, 30):
        journal.add(b"more" * 8, index, 3)
        journal.sync()
        journal.remove_before(len(journal) - 2)
        journal.sync()
    assert segment_files(tmp_path)[0].name > "journal-0000000000000001.log"
    journal.sync()
    journal.tidy()
    journal.sync()
    journal.hear(DISK_B, 5, 1)
    journal.tidy()
    assert journal.sync() is False, "there is no block to wait for"
    heard = {DISK_A: (3, 9), DISK_B: (5, 1)}
    again = Journal.open(tmp_path, sizes=Sizes(400, 100))
    assert again.heard == heard
    again.hear(DISK_B, 6, 6)
    again.close()
    assert Journal.open(tmp_path).heard == heard | {DISK_B: (6, 6)}


def test_of_few_directories_it_is_kept_how_far_they_have_come(tmp_path: Path) -> None:
    """The newest, however many nodes come and go."""
    journal = Journal.open(tmp_path)
    for number in range(HEARD_COUNT_MAX + 5):
        journal.hear(f"{number:032x}", 1, 1)
    assert len(journal.heard) == HEARD_COUNT_MAX
    assert f"{4:032x}" not in journal.heard


@pytest.mark.parametrize("disk_id", ["", "disk-n2", "A" * 32, "a" * 34, "\u0663" * 32])
def test_what_is_no_disk_id_breaks_no_journal(tmp_path: Path, disk_id: str) -> None:
    """It is a peer's word, and one peer's word stops no node."""
    journal = Journal.open(tmp_path)
    journal.hear(disk_id, 3, 7)
    journal.add(b"one", 1, 3)
    journal.sync()
    assert Journal.open(tmp_path).heard == {}


def test_a_term_counts_as_synced_when_it_is(tmp_path: Path) -> None:
    """Peers hold a node to the term that it tells: it must be on its disk."""
    journal = Journal.open(tmp_path)
    journal.set_vote(5, None)
    assert journal.synced_term == 0
    journal.sync()
    assert (journal.synced_term, Journal.open(tmp_path).synced_term) == (5, 5)
