"""A read that returns wrong bytes, once: it is noticed, or it costs nothing. The bytes on the disk are right.

So whatever is checked is what is used: nothing is read a second time and believed because the first time was
right.
"""

import itertools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import DataDirError
from cluster.storage.data_directory import DataDir
from cluster.storage.files import Files
from cluster.storage.journal import Journal, JournalError
from cluster.storage.segment_writer import Sizes
from cluster.storage.snapshot_format import Snapshot, write_snapshot
from cluster.storage.snapshot_store import SnapshotDamaged, SnapshotStore
from tests.support.planted import FailingFiles
from tests.unit.cluster.storage.crash_disk import CrashDisk
from tests.unit.cluster.storage.test_snapshot_store import LAST, PREVIOUS, announced, run

DIRECTORY = Path("/data")
SMALL = Sizes(segment_bytes=500, prepared_bytes=200)
QUIET = logging.getLogger("quiet")
QUIET.setLevel(logging.CRITICAL)
STATE = b"a state of some length " * 40


class WrongReads(FailingFiles):
    """The disk `inner`, of which read number `wrong_at` (from 1) returns what `change` makes of it."""

    def __init__(self, inner: Files, wrong_at: int, change: Callable[[bytes], bytes]) -> None:
        super().__init__(inner)
        self._wrong_at = wrong_at
        self._change = change
        self._reads_count = 0
        self.longest_bytes = 0
        """Of the read that was wrong."""

    @property
    def was_wrong(self) -> bool:
        """Whether the wrong read has come."""
        return self._reads_count >= self._wrong_at

    def carry_out(self, name: str, *args: Any) -> Any:
        """Do one operation; a read may return something else."""
        result = super().carry_out(name, *args)
        if name in ("read", "read_at"):
            self._reads_count += 1
            if self._reads_count == self._wrong_at:
                self.longest_bytes = len(result)
                return self._change(result)
        return result


def flipped(at: int) -> Callable[[bytes], bytes]:
    """Return what flips a bit of a byte, if there is one."""
    return lambda data: data[:at] + bytes(byte ^ (1 << at % 8) for byte in data[at : at + 1]) + data[at + 1 :]


def zeros(at: int) -> Callable[[bytes], bytes]:
    """Return what makes zeros of everything from a byte on."""
    return lambda data: data[:at] + bytes(len(data[at:]))


def wrong_reads(make_disk: Callable[[], CrashDisk]) -> Iterator[WrongReads]:
    """Yield disks, each with one wrong read: every read in turn, changed at many places."""
    for wrong_at in itertools.count(1):
        for at in itertools.count(0, 5):
            for change in (flipped(at), zeros(at)):
                files = WrongReads(make_disk(), wrong_at, change)
                yield files
                if not files.was_wrong:
                    assert wrong_at > 1
                    return
            if at >= files.longest_bytes:
                break


def written_journal() -> CrashDisk:
    """Return a disk with a journal of some segments, whose process was killed behind a sync."""
    disk = CrashDisk()
    journal = Journal.open(DIRECTORY, sizes=SMALL, files=disk, on_cut=QUIET)
    journal.set_vote(4, "node-a")
    for index in range(1, 10):
        journal.add(b"command %d" % index * 3, index, 4)
        journal.sync()
    disk.reboot(None)
    return disk


def test_a_journal_loses_nothing_by_a_wrong_read() -> None:
    """It does not open, or it has everything, and so it has at its next start, with what was added."""
    disk = written_journal()
    assert len(disk.names(DIRECTORY)) > 1
    opened = Journal.open(DIRECTORY, sizes=SMALL, files=disk.copy(), on_cut=QUIET)
    entries = opened[:]
    added = (b"added", len(entries) + 1, 4)
    refused = 0
    for files in wrong_reads(disk.copy):
        expected = entries
        try:
            journal = Journal.open(DIRECTORY, sizes=SMALL, files=files, on_cut=QUIET)
        except (DataDirError, JournalError):
            refused += 1
        else:
            assert (journal[:], journal.term, journal.voted_for) == (entries, 4, "node-a")
            journal.add(*added)
            journal.sync()
            expected = [*entries, added]
        after = Journal.open(DIRECTORY, sizes=SMALL, files=files.inner, on_cut=QUIET)
        assert (after[:], after.term, after.voted_for) == (expected, 4, "node-a")
    assert refused > 100


def disk_with_snapshot() -> CrashDisk:
    """Return a disk with a snapshot."""
    disk = CrashDisk()
    write_snapshot(DIRECTORY / "snapshot", SNAPSHOT, disk)
    return disk


SNAPSHOT = Snapshot(PREVIOUS, LAST, STATE, b"members", log_digest=7)


def test_a_snapshot_is_loaded_as_it_is_or_not_at_all() -> None:
    """What was checked is what is used: its header, too."""
    refused = 0
    for files in wrong_reads(disk_with_snapshot):
        try:
            assert SnapshotStore(DIRECTORY, files).load() == SNAPSHOT
        except DataDirError:
            refused += 1
    assert refused > 100


def test_a_received_snapshot_is_taken_as_it_was_sent_or_not_at_all() -> None:
    """The state that a node goes on with is read back from its disk: that is what has to be right."""
    data = disk_with_snapshot().content(DIRECTORY / "snapshot")
    refused = 0
    for files in wrong_reads(CrashDisk):
        store = SnapshotStore(DIRECTORY, files)
        store.begin_receive(announced(data))
        assert store.write_chunk(data)
        try:
            assert run(store.check_received(None)) == SNAPSHOT
        except SnapshotDamaged:
            refused += 1
    assert refused > 100


def written_directory() -> CrashDisk:
    """Return a disk with a data directory that has met a peer."""
    disk = CrashDisk()
    data_dir = DataDir.open(DIRECTORY, "node-a", files=disk)
    Journal.open(DIRECTORY, sizes=SMALL, files=disk)
    data_dir.remember("node-b", "b" * 32)
    disk.reboot(None)
    return disk


def test_a_directory_is_what_it_is_or_refused() -> None:
    """No wrong read gives a node another disk id, or one to a peer; a peer may be forgotten."""
    disk = written_directory()
    disk_id = DataDir.open(DIRECTORY, "node-a", files=disk.copy()).disk_id
    refused = 0
    for files in wrong_reads(disk.copy):
        try:
            data_dir = DataDir.open(DIRECTORY, "node-a", files=files)
        except DataDirError:
            refused += 1
        else:
            assert data_dir.disk_id == disk_id
            assert data_dir.known in ({"node-b": "b" * 32}, {})
    assert refused > 10


@pytest.mark.parametrize("change", [flipped(3), zeros(0)])
def test_the_disk_of_these_tests_is_wrong_once(change: Callable[[bytes], bytes]) -> None:
    """The second time it returns what it has."""
    disk = CrashDisk()
    disk.put(DIRECTORY / "file", b"content")
    files = WrongReads(disk, 1, change)
    assert files.read(DIRECTORY / "file") != b"content"
    assert files.read(DIRECTORY / "file") == b"content"
