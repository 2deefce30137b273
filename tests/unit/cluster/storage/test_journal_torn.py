"""Torn last writes, sector by sector: they are cut for good, and never taken for damage."""

import logging
from pathlib import Path
from random import Random

import pytest

from cluster.storage.journal import Journal, JournalError
from cluster.storage.journal_format import RecordType, encode_block, entry_head, index_record
from cluster.storage.segment_writer import Sizes
from tests.unit.cluster.storage.crash_disk import SECTOR_BYTES, Crash, CrashDisk

DIRECTORY = Path("/data")
SIZES = Sizes(prepared_bytes=8192)
BLOCK_BYTES = len(encode_block((), 1, 1, 1, 1))
ENTRY_BYTES = len(entry_head(b"", 1, 1))
SEAL_BYTES = BLOCK_BYTES + len(index_record(RecordType.COMMIT, 1))
QUIET = logging.getLogger("quiet")
QUIET.setLevel(logging.CRITICAL)


def opened(disk: CrashDisk) -> Journal:
    """Recover the journal; the many cuts are not logged."""
    return Journal.open(DIRECTORY, sizes=SIZES, files=disk, on_cut=QUIET)


def block_written(disk: CrashDisk, command: bytes) -> tuple[bytes, bytes]:
    """Return the last segment before and after one more block with `command` in it."""
    (path,) = [DIRECTORY / name for name in disk.names(DIRECTORY)]
    journal = opened(disk)
    before = disk.content(path)
    journal.add(command, journal.last_index + 1, 1)
    journal.sync()
    return before, disk.content(path)


def torn(before: bytes, after: bytes, survivors: int) -> bytes:
    """Return `before` with those of the changed sectors from `after` whose bits in `survivors` are set."""
    mixed, bit = bytearray(before), 1
    for start in range(0, len(before), SECTOR_BYTES):
        sector = slice(start, start + SECTOR_BYTES)
        if before[sector] != after[sector]:
            if survivors & bit:
                mixed[sector] = after[sector]
            bit *= 2
    return bytes(mixed)


def changed_sectors(before: bytes, after: bytes) -> int:
    """Return how many sectors differ."""
    return sum(
        before[start : start + SECTOR_BYTES] != after[start : start + SECTOR_BYTES]
        for start in range(0, len(before), SECTOR_BYTES)
    )


@pytest.mark.parametrize("second_bytes", [1, 600, 1500, 2500])
def test_no_rest_of_a_torn_block_ever_completes_a_later_one(second_bytes: int) -> None:
    """Torn in any way, cut, written over with the same sequence, torn in any way: the first is gone."""
    path = DIRECTORY / "journal-0000000000000001.log"
    disk = CrashDisk()
    journal = opened(disk)
    journal.add(b"synced", 1, 1)
    journal.sync()
    start = disk.content(path)
    before, first = block_written(disk, b"first " * 250)
    assert before == start
    for first_survivors in range(2 ** changed_sectors(before, first) - 1):
        disk.put(path, torn(before, first, first_survivors))
        again, second = block_written(disk, b"2" * second_bytes)
        assert again == before, "what was torn is overwritten with zeros"
        for second_survivors in range(2 ** changed_sectors(again, second)):
            disk.put(path, torn(again, second, second_survivors))
            commands = [command for command, _, _ in opened(disk)[:]]
            assert commands in ([b"synced"], [b"synced", b"2" * second_bytes])


def test_a_lost_seal_before_a_torn_write_is_no_damage() -> None:
    """Power lost, a seal gone, the unsynced block behind it intact: both are cut, and the node starts."""
    disk = CrashDisk()
    journal = opened(disk)
    journal.add(b"synced", 1, 1)
    journal.sync()
    path = DIRECTORY / "journal-0000000000000001.log"
    synced = disk.content(path)
    seal_end_before = len(synced.rstrip(b"\0"))
    journal.tidy()
    journal.sync()
    sealed = disk.content(path)
    journal.add(b"never acknowledged", 2, 1)
    journal.sync()
    content = disk.content(path)
    seal = slice(seal_end_before, len(sealed.rstrip(b"\0")))
    disk.put(path, content[: seal.start] + synced[seal] + content[seal.stop :])
    assert opened(disk)[:] == [(b"synced", 1, 1)]
    assert disk.content(path).rstrip(b"\0") == synced.rstrip(b"\0")


def test_what_followed_a_lost_seal_does_not_come_back_behind_the_next_seal() -> None:
    """The block behind a lost seal is cut for good: a new seal of the same length does not join it again."""
    disk = CrashDisk()
    journal = opened(disk)
    journal.add(b"synced", 1, 1)
    journal.sync()
    path = DIRECTORY / "journal-0000000000000001.log"
    end = len(disk.content(path).rstrip(b"\0"))
    journal.add(bytes([1]) * (2 * SECTOR_BYTES - (end + BLOCK_BYTES + ENTRY_BYTES + SEAL_BYTES)), 2, 1)
    journal.sync()
    journal.tidy()
    journal.sync()
    journal.add(b"never acknowledged", 3, 1)
    disk.crash_at = len(disk.operations) + 2
    with pytest.raises(Crash):
        journal.sync()
    was_cut = 0
    for seed in range(200):
        again = disk.copy()
        again.reboot(Random(seed))
        journal = opened(again)
        recovered = journal[:]
        was_cut += len(recovered) == 2
        journal.tidy()
        journal.sync()
        again.reboot(Random(seed + 1000))
        assert opened(again)[:] == recovered
    assert 0 < was_cut < 200


def test_a_failed_sync_is_not_believed_by_the_next_process() -> None:
    """After a failed sync the page cache shows what the disk never got: recovery reads the disk."""
    disk = CrashDisk()
    journal = opened(disk)
    journal.add(b"synced", 1, 1)
    journal.sync()
    journal.add(b"failed", 2, 1)
    disk.failing = "fdatasync"
    with pytest.raises(JournalError):
        journal.sync()
    disk.reboot(None)
    assert opened(disk)[:] == [(b"synced", 1, 1)]
