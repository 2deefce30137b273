"""Simulated reads that bring errors or wrong bytes, and what changes on the platter."""

from pathlib import Path
from random import Random

import pytest

from tests.simulation.world.bad_reads import BadRead, Kind, first_difference, misread
from tests.simulation.world.disk import Disk
from tests.simulation.world.files import SimFiles
from tests.simulation.world.inode import SECTOR_BYTES

ROOT = Path("/sim")
JOURNAL = ROOT / "journal-0000000000000001.log"
SNAPSHOT = ROOT / "snapshot"
CONTENT = b"".join(bytes([number]) * SECTOR_BYTES for number in range(1, 5))


def process(disk: Disk) -> SimFiles:
    """Return a process's way to the disk."""
    return SimFiles(disk, lambda _: None, lambda: None)


def written(path: Path, *parts: bytes, seed: int = 1) -> Disk:
    """Return a disk with one file of such parts, each of them synced."""
    disk = Disk(ROOT, Random(seed))
    files = process(disk)
    fd = files.create(path)
    for part in parts:
        files.write(fd, part)
        files.fdatasync(fd)
    files.fsync_dir(ROOT)
    return disk


def test_a_read_fails_once() -> None:
    """The reads before it are right, and those behind it, too; the node may stop because of it."""
    disk = written(SNAPSHOT, CONTENT)
    disk.bad_read = BadRead("error", after=1, names="snap")
    files = process(disk)
    assert files.read(SNAPSHOT) == CONTENT
    files.write(files.create(JOURNAL), CONTENT)
    assert files.read(JOURNAL) == CONTENT
    with pytest.raises(OSError, match="simulated disk error"):
        files.read(SNAPSHOT)
    assert files.read(SNAPSHOT) == CONTENT
    assert files.errors_count == 1
    assert not files.misled


@pytest.mark.parametrize("kind", ["flip", "zeros", "misdirected"])
def test_a_read_is_wrong_once(kind: Kind) -> None:
    """It differs in one bit, or in one sector; the disk itself is well."""
    for seed in range(20):
        disk = written(SNAPSHOT, CONTENT, seed=seed)
        disk.bad_read = BadRead(kind, after=0)
        files = process(disk)
        read = files.read_at(files.open(SNAPSHOT), len(CONTENT), 0)
        assert len(read) == len(CONTENT)
        differing = {at // SECTOR_BYTES for at in range(len(read)) if read[at] != CONTENT[at]}
        # A sector may be mistaken for itself.
        assert len(differing) == 1 or (kind == "misdirected" and not differing)
        assert len(files.misled) == files.errors_count == len(differing)
        assert files.read(SNAPSHOT) == CONTENT


def test_what_nothing_vouches_for_misleads_nobody() -> None:
    """Wrong bytes behind what a later part of a journal proves may pass for a torn write."""
    disk = written(JOURNAL, b"a" * SECTOR_BYTES, b"b" * SECTOR_BYTES)
    for seed in range(20):
        disk.bad_read = BadRead("flip", after=0)
        disk.random = Random(seed)
        files = process(disk)
        read = files.read(JOURNAL)
        place = first_difference(read, b"a" * SECTOR_BYTES + b"b" * SECTOR_BYTES)
        assert place is not None
        assert bool(files.misled) == (place < SECTOR_BYTES)
        assert files.errors_count == 1


def test_misread_bytes_have_their_length() -> None:
    """Also where the last sector is not whole."""
    for seed in range(50):
        data = Random(seed).randbytes(seed * 30 + 1)
        for kind in ("flip", "zeros", "misdirected"):
            assert len(misread(kind, data, Random(seed))) == len(data)


def test_rot_shows_when_memory_has_forgotten_the_file() -> None:
    """A kill keeps what memory has of a file; after a loss of power programs see what the platter has."""
    disk = written(SNAPSHOT, CONTENT)
    assert disk.rot()
    files = process(disk)
    assert files.read(SNAPSHOT) == CONTENT
    assert not files.misled
    disk.lose_power()
    files = process(disk)
    assert files.read(SNAPSHOT) != CONTENT
    assert len(files.misled) == files.errors_count == 1
    disk.repair()
    files = process(disk)
    assert files.read(SNAPSHOT) == CONTENT
    assert not files.misled


def test_a_copy_of_rot_misleads_as_the_original_does() -> None:
    """What a later part of a journal proves is proved in a backup, too."""
    disk = written(JOURNAL, b"a" * SECTOR_BYTES, b"b" * SECTOR_BYTES)
    assert disk.rot()
    disk.lose_power()
    disk.restore(disk.copy())
    files = process(disk)
    files.read(JOURNAL)
    assert len(files.misled) == 1
    disk.repair()
    assert process(disk).read(JOURNAL) == b"a" * SECTOR_BYTES + b"b" * SECTOR_BYTES


def test_rot_stays_out_of_sectors_that_are_written_again() -> None:
    """What a later write brings back to the platter does not count as damage."""
    for seed in range(20):
        disk = written(JOURNAL, CONTENT + b"end", b"more", seed=seed)
        assert disk.provable_bytes(JOURNAL) == len(CONTENT) + 3
        assert disk.rot()
        assert max(disk.names[JOURNAL].rotten) < len(CONTENT)
    disk = written(JOURNAL, b"short", b"more")
    assert not disk.rot()


def test_a_copy_knows_what_is_rotten() -> None:
    """A disk that is put aside and found again has rotten all the same."""
    disk = written(SNAPSHOT, CONTENT)
    disk.rot()
    disk.lose_power()
    twin = disk.copy()
    files = process(twin)
    files.read(SNAPSHOT)
    assert files.misled
    twin.repair()
    assert process(twin).read(SNAPSHOT) == CONTENT


def test_what_has_rotten_is_still_known_as_written() -> None:
    """A checker that asks what a node has stored must not be blinded by what the node cannot see either."""
    identity, record = ROOT / "identity.json", ROOT / "cluster.json"
    disk = written(identity, b'{"content":1}')
    assert disk.rot()
    assert bytes(disk.names[identity].synced) != b'{"content":1}'
    told: list[tuple[bytes, bytes]] = []
    disk.on_record = lambda *both: told.append(both)
    files = process(disk)
    fd = files.create(record)
    files.write(fd, b"{}")
    files.fdatasync(fd)
    files.fsync_dir(ROOT)
    assert told == [(b'{"content":1}', b"{}")]
