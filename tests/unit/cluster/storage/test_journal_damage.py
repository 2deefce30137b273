"""What was synced and is not on disk any more is refused, with the file's name; the rest costs nothing."""

import logging
import struct
import zlib
from pathlib import Path
from random import Random

import pytest

from cluster.errors import DataDirError
from cluster.storage import journal_format, recovery
from cluster.storage.journal import Journal
from cluster.storage.journal_format import LogEntry, RecordType
from cluster.storage.segment_writer import Sizes
from tests.unit.cluster.storage.crash_disk import CrashDisk

DIRECTORY = Path("/data")
SMALL = Sizes(segment_bytes=500, prepared_bytes=200)
QUIET = logging.getLogger("quiet")
QUIET.setLevel(logging.CRITICAL)


def opened(disk: CrashDisk, sizes: Sizes = SMALL) -> Journal:
    """Open the journal on a disk."""
    return Journal.open(DIRECTORY, sizes=sizes, files=disk, on_cut=QUIET)


def write_some(disk: CrashDisk, count: int = 20, sizes: Sizes = SMALL) -> list[LogEntry]:
    """Write a journal of `count` entries in as many blocks, sealed, and return the entries."""
    journal = opened(disk, sizes)
    journal.set_vote(4, "node-a")
    for index in range(1, count + 1):
        journal.add(b"command %d" % index * 3, index, 4)
        journal.sync()
    journal.close()
    return journal[:]


def segments(disk: CrashDisk) -> list[Path]:
    """Return the segment files, oldest first."""
    return [DIRECTORY / name for name in disk.names(DIRECTORY)]


def check_unharmed(disk: CrashDisk, entries: list[LogEntry]) -> None:
    """Check that the journal opens with all its entries, term and vote."""
    journal = opened(disk)
    assert (journal[:], journal.term, journal.voted_for) == (entries, 4, "node-a")
    journal.close()


def check_unharmed_or_refused(disk: CrashDisk, entries: list[LogEntry]) -> str | None:
    """Return why the journal is refused, or None after checking that nothing is missing."""
    try:
        check_unharmed(disk, entries)
    except DataDirError as error:
        return str(error)
    return None


def test_no_flipped_bit_goes_unnoticed_once_sealed() -> None:
    """A changed byte anywhere in a sealed journal stops the node, which names the file, or costs nothing.

    Harmless are prepared space, and what only says that something else was synced: the last seal, and the
    note at the end of a finished segment.
    """
    disk = CrashDisk()
    entries = write_some(disk)
    assert len(segments(disk)) > 3
    refused = harmless = 0
    for path in segments(disk):
        pristine = disk.content(path)
        for offset in range(len(pristine)):
            damaged = disk.copy()
            flipped = pristine[offset] ^ (1 << offset % 8)
            damaged.put(path, pristine[:offset] + bytes([flipped]) + pristine[offset + 1 :])
            refusal = check_unharmed_or_refused(damaged, entries)
            assert refusal is None or refusal.startswith(f"{path}: damaged at offset ")
            harmless += refusal is None
            refused += refusal is not None
    notes_bytes = 60 * len(segments(disk))
    zeros_count = sum(
        len(disk.content(path)) - len(disk.content(path).rstrip(b"\0")) for path in segments(disk)
    )
    assert 0 < harmless <= notes_bytes + zeros_count < refused


def test_no_sector_of_zeros_goes_unnoticed_before_the_last_seal() -> None:
    """A sector that reads as zeros, as a lost write does, stops the node; garbage in prepared space does not.

    Only the sector of the last seal is beyond that: with it goes the proof that its neighbours were synced.
    """
    disk = CrashDisk()
    entries = write_some(disk, 60, Sizes())
    (path,) = segments(disk)
    pristine = disk.content(path)
    end = len(pristine.rstrip(b"\0"))
    for start in range(0, end - 512 - 57, 512):
        damaged = disk.copy()
        damaged.put(path, pristine[:start] + bytes(512) + pristine[start + 512 :])
        with pytest.raises(DataDirError, match="damaged at offset"):
            opened(damaged)
    damaged = disk.copy()
    damaged.put(path, pristine[: end + 512] + b"\xff" * 512 + pristine[end + 1024 :])
    check_unharmed(damaged, entries)
    assert b"\xff" not in damaged.content(path)[end:], "what was there is zeros again"


def test_any_length_but_the_right_one_is_refused() -> None:
    """A segment cut anywhere stops the node, the last one too: blocks say how long the file was."""
    disk = CrashDisk()
    write_some(disk, 8, Sizes(prepared_bytes=2000))
    (path,) = segments(disk)
    pristine = disk.content(path)
    for length in range(len(pristine)):
        damaged = disk.copy()
        damaged.put(path, pristine[:length])
        with pytest.raises(DataDirError, match=path.name):
            opened(damaged)


def test_a_finished_segment_cut_anywhere_is_refused_or_costs_nothing() -> None:
    """The next segment says which block is due."""
    disk = CrashDisk()
    entries = write_some(disk)
    path = segments(disk)[1]
    pristine = disk.content(path)
    for length in range(len(pristine)):
        damaged = disk.copy()
        damaged.put(path, pristine[:length])
        refusal = check_unharmed_or_refused(damaged, entries)
        if refusal is None:
            assert length > len(pristine) - 60, "only the note at its end is gone"
        else:
            assert refusal.startswith(f"{path}: damaged at offset ")


@pytest.mark.parametrize("position", [0, 1, -2, -1])
def test_a_missing_segment_is_refused(position: int) -> None:
    """A needed segment that is gone, the first, one in the middle or the last, stops the node."""
    disk = CrashDisk()
    write_some(disk)
    disk.unlink(segments(disk)[position])
    with pytest.raises(DataDirError, match="missing"):
        opened(disk)


def test_swapped_segments_are_refused() -> None:
    """A segment under another's name is not read as that one."""
    disk = CrashDisk()
    write_some(disk)
    one, two = segments(disk)[1:3]
    first, second = disk.content(one), disk.content(two)
    disk.put(one, second)
    disk.put(two, first)
    with pytest.raises(DataDirError, match=f"{one.name}: .* the header says segment 3"):
        opened(disk)


def test_an_older_copy_of_a_finished_segment_is_refused() -> None:
    """A copy made before the segment was finished lacks blocks that the next segment counts on."""
    disk = CrashDisk()
    write_some(disk, 1)
    path = segments(disk)[-1]
    older = disk.content(path)
    journal = opened(disk)
    while segments(disk)[-1] == path:
        journal.add(b"more", journal.last_index + 1, 4)
        journal.sync()
    journal.close()
    disk.put(path, older)
    with pytest.raises(
        DataDirError, match=rf"{path.name}: damaged at offset \d+: block \d+ is damaged or missing"
    ):
        opened(disk)


def test_a_segment_of_another_journal_is_refused() -> None:
    """A segment with the right number, sequence and indexes from another node's journal does not fit in."""
    one, two = CrashDisk(), CrashDisk()
    write_some(one)
    write_some(two)
    assert segments(one) == segments(two)
    for path in segments(one)[1:]:
        mixed = one.copy()
        mixed.put(path, two.content(path))
        with pytest.raises(DataDirError, match="one of them is of another journal"):
            opened(mixed)


def test_old_segments_that_came_back_are_removed() -> None:
    """A removal that a loss of power undid, in any part, harms nothing: the rest is complete without them."""
    disk = CrashDisk()
    write_some(disk)
    old = {path: disk.content(path) for path in segments(disk)}
    journal = opened(disk)
    journal.remove_before(len(journal) - 1)
    journal.sync()
    for _ in old:
        journal.tidy()
        journal.sync()
    kept = journal[:]
    journal.close()
    removed = [path for path in old if path not in segments(disk)]
    assert len(removed) > 2
    for seed in range(20):
        back = disk.copy()
        for path in Random(seed).sample(removed, Random(seed).randint(1, len(removed))):
            back.put(path, old[path])
        check_unharmed(back, kept)


@pytest.mark.parametrize("content", [b"", b"\0" * 80, b"HOLDFJNL" + bytes(80), b"HOLDFJNL\x02" + bytes(80)])
def test_what_is_no_segment_of_this_format_is_refused(content: bytes) -> None:
    """A file of another format, or of none, is not read as a segment."""
    disk = CrashDisk()
    disk.put(DIRECTORY / "journal-0000000000000001.log", content)
    with pytest.raises(
        DataDirError, match=r"this is not a journal segment|the header is damaged, or of another"
    ):
        opened(disk)


def test_a_segment_of_another_group_is_refused() -> None:
    """Its header names the Raft group behind the version."""
    disk = CrashDisk()
    write_some(disk)
    path = segments(disk)[0]
    content = bytearray(disk.content(path))
    assert content[8:12] == (1).to_bytes(2, "little") + (0).to_bytes(2, "little")
    content[10] = 7
    content[52:56] = zlib.crc32(content[:52]).to_bytes(4, "little")
    disk.put(path, bytes(content))
    with pytest.raises(DataDirError, match="belongs to Raft group 7, not to group 0"):
        opened(disk)


def test_the_message_names_the_remedy() -> None:
    """The operator learns what to do, and that deleting the journal does not help."""
    disk = CrashDisk()
    write_some(disk)
    path = segments(disk)[0]
    disk.put(path, disk.content(path)[:100] + bytes(disk.content(path)[100:]))
    disk.put(path, disk.content(path).replace(b"command 1", b"command 9", 1))
    with pytest.raises(DataDirError) as caught:
        opened(disk)
    assert "Restore" in str(caught.value)
    assert "Do not delete" in str(caught.value)


def test_heads_made_up_by_a_client_claim_nothing() -> None:
    """Bytes of a command that look like blocks pass for none, and make no torn write look like damage."""
    disk = CrashDisk()
    entries = write_some(disk, 3, Sizes())
    (path,) = segments(disk)
    head = disk.content(path)[44:88]
    journal = opened(disk, Sizes())
    before = disk.content(path)
    journal.add(head * 10_000, 4, 4)
    journal.sync()
    after = disk.content(path)
    end = len(before.rstrip(b"\0")) + 100
    disk.put(path, after[:end] + bytes(512) + after[end + 512 :])
    check_unharmed(disk, entries)


@pytest.mark.parametrize("length", [0, 7, 9, 2000])
@pytest.mark.parametrize("kind", ["TRUNCATE_FROM", "KEEP_FROM", "RESTART_AT", "COMMIT", "BEGIN"])
def test_a_record_of_another_length_than_its_own_is_refused(kind: str, length: int) -> None:
    """Also with all checksums right; it is not read as a number that nobody can print."""
    with pytest.raises(DataDirError, match=f"a record of type {kind} has {length} bytes"):
        opened(_with_record(RecordType[kind], b"\xff" * length))


@pytest.mark.parametrize(("kind", "length"), [("HARD_STATE", 8), ("ENTRY", 15), ("ENTRY", 0)])
def test_a_record_that_is_too_short_takes_nothing_of_the_next_one(kind: str, length: int) -> None:
    """A term, a vote or an index would be made of bytes that say something else."""
    beside = journal_format.index_record(RecordType.COMMIT, 0) * 2
    with pytest.raises(DataDirError, match=f"a record of type {kind} has {length} bytes"):
        opened(_with_record(RecordType[kind], bytes(length), beside))


def _with_record(kind: RecordType, body: bytes, beside: bytes = b"") -> CrashDisk:
    """Return a disk with a journal that has one record with this body, all its checksums right."""
    disk, header = CrashDisk(), journal_format.segment_header(1, bytes(8), bytes(8))
    record = struct.pack("<BI", kind, len(body)) + body + beside
    seed, blocks = journal_format.segment_seed(header), b""
    for sequence, content in enumerate([journal_format.begin_record(1, 1), record], 1):
        blocks += journal_format.encode_block([content], sequence, sequence - 1, 0, seed)
    disk.put(recovery.segment_path(DIRECTORY, 1), header + blocks)
    return disk
