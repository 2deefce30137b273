"""The simulated disk: what a kill keeps, what a loss of power takes, and how it fails."""

import errno
from functools import partial
from pathlib import Path
from random import Random

import pytest

from cluster.storage.files import replace_file
from tests.simulation.world.disk import MOMENTS, Disk
from tests.simulation.world.event_loop import Killed
from tests.simulation.world.files import SimFiles
from tests.simulation.world.inode import SECTOR_BYTES

ROOT = Path("/sim")
FILE = ROOT / "file"


def process(disk: Disk) -> SimFiles:
    """Return a process's way to the disk, which dies when the disk says so."""

    def kill() -> None:
        files.is_dead = True

    files = SimFiles(disk, lambda _: None, kill)
    return files


def new_disk(seed: int = 1) -> Disk:
    """Return an empty disk."""
    return Disk(ROOT, Random(seed))


def write_synced(files: SimFiles, data: bytes) -> int:
    """Create FILE with durable content; return its descriptor."""
    fd = files.create(FILE)
    files.write(fd, data)
    files.fdatasync(fd)
    files.fsync_dir(ROOT)
    return fd


def test_kill_keeps_what_was_written() -> None:
    """The page cache outlives the process: the next one reads what was never synced."""
    disk = new_disk()
    files = process(disk)
    files.write(files.create(FILE), b"not synced")
    files.is_dead = True
    assert process(disk).read(FILE) == b"not synced"


def test_power_takes_names_that_were_not_synced() -> None:
    """Without a sync of the directory a new name may be gone, and with it never is."""
    found = set()
    for seed in range(20):
        disk = new_disk(seed)
        write_synced(process(disk), b"kept")
        process(disk).create(ROOT / "new")
        disk.lose_power()
        assert process(disk).read(FILE) == b"kept"
        found.add(process(disk).exists(ROOT / "new"))
    assert found == {True, False}


def test_a_record_is_seen_before_it_is_on_the_platter() -> None:
    """A kill leaves what programs saw; who looks at a disk then sees it, too."""
    disk = new_disk()
    files = process(disk)
    fd = files.create(ROOT / "cluster.json")
    files.write(fd, b"{}")
    assert (disk.record_seen(), disk.record()) == ((b"", b"{}"), (b"", b""))
    files.fdatasync(fd)
    files.fsync_dir(ROOT)
    assert disk.record_seen() == disk.record() == (b"", b"{}")


def test_power_takes_any_sectors_that_were_not_synced() -> None:
    """Of unsynced sectors any are kept, each as a whole; synced ones are always there."""
    old, new = b"a" * (3 * SECTOR_BYTES), b"b" * (3 * SECTOR_BYTES)
    seen = set()
    for seed in range(100):
        disk = new_disk(seed)
        files = process(disk)
        files.write_at(write_synced(files, old), new, 0)
        disk.lose_power()
        left = process(disk).read(FILE)
        assert len(left) == len(old)
        sectors = [left[start : start + SECTOR_BYTES] for start in range(0, len(left), SECTOR_BYTES)]
        assert all(len(set(sector)) == 1 for sector in sectors)
        seen.add(bytes(sector[0] for sector in sectors))
    assert len(seen) == 8


def test_power_may_keep_a_part_of_a_longer_file() -> None:
    """A file that grew without a sync has any length in between afterwards."""
    lengths = set()
    for seed in range(50):
        disk = new_disk(seed)
        files = process(disk)
        files.write(write_synced(files, b"x" * 100), b"y" * 2000)
        disk.lose_power()
        left = process(disk).read(FILE)
        assert left[:100] == b"x" * 100 or len(left) > 100
        lengths.add(len(left))
    assert {100, 2100} < lengths
    assert min(lengths) >= 100
    assert max(lengths) <= 2100


def test_rename_is_atomic_under_power() -> None:
    """A replaced file has the whole old or the whole new content, wherever the power is lost."""
    for seed in range(60):
        disk = new_disk(seed)
        replace_file(process(disk), FILE, b"old")
        files = process(disk)
        disk.kill_after_operations = seed % 12
        try:
            replace_file(files, FILE, b"new")
        except Killed:
            allowed = {b"old", b"new"}
        else:
            allowed = {b"new"}
        disk.kill_after_operations = None
        disk.lose_power()
        assert process(disk).read(FILE) in allowed


def test_failed_sync_loses_pages_that_are_read_no_more() -> None:
    """After a sync that failed the cache shows what the disk may not have; without the cache the truth."""
    kept = set()
    for seed in range(20):
        disk = new_disk(seed)
        files = process(disk)
        fd = write_synced(files, b"old")
        files.write_at(fd, b"new", 0)
        disk.fail_syncs = 1
        with pytest.raises(OSError, match="simulated") as error:
            files.fdatasync(fd)
        assert error.value.errno == errno.EIO
        files.fdatasync(fd)
        assert files.read(FILE) == b"new"
        files.drop_cache(fd)
        kept.add(files.read(FILE))
    assert kept == {b"old", b"new"}


def test_full_disk_takes_a_part() -> None:
    """A write on a full disk leaves some of its bytes and fails with ENOSPC."""
    disk = new_disk()
    files = process(disk)
    fd = write_synced(files, b"")
    disk.is_full = True
    with pytest.raises(OSError, match="simulated") as error:
        files.write(fd, b"x" * 1000)
    assert error.value.errno == errno.ENOSPC
    assert files.size(fd) <= 1000
    with pytest.raises(OSError, match="simulated"):
        files.create(ROOT / "another")


def test_no_room_for_files_of_one_name() -> None:
    """A disk may have no room for files of some names; others are written as ever."""
    disk = new_disk()
    files = process(disk)
    fd = write_synced(files, b"old")
    disk.full_names = "fil"
    with pytest.raises(OSError, match="simulated disk error") as caught:
        files.write(fd, b"new")
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="simulated disk error"):
        files.create(ROOT / "file.2")
    files.close(files.create(ROOT / "another"))
    assert files.errors_count == 2


def test_dead_process_changes_nothing() -> None:
    """From the operation on at which a process dies, the disk stays as it is for it."""
    disk = new_disk()
    files = process(disk)
    fd = write_synced(files, b"before")
    disk.kill_after_operations = 0
    with pytest.raises(Killed):
        files.fdatasync(fd)
    with pytest.raises(Killed):
        files.write_at(fd, b"after!", 0)
    with pytest.raises(Killed):
        files.unlink(FILE)
    assert process(disk).read(FILE) == b"before"


def test_lock_ends_with_its_process() -> None:
    """A second process does not get the lock of a living one, and gets that of a dead one."""
    disk = new_disk()
    first, second = process(disk), process(disk)
    first.lock(FILE.parent)
    with pytest.raises(BlockingIOError):
        second.lock(FILE.parent)
    disk.forget_owner(first)
    second.lock(FILE.parent)


def test_lying_disk_forgets_what_it_said_is_synced() -> None:
    """Where a test wants it, syncs promise what they do not do."""
    disk = new_disk()
    files = process(disk)
    fd = write_synced(files, b"first")
    disk.lies = True
    left = set()
    for number in range(20):
        files.write_at(fd, b"%05d" % number, 0)
        files.fdatasync(fd)
        disk.lose_power()
        left.add(process(disk).read(FILE) == b"%05d" % number)
        files = process(disk)
        fd = files.open(FILE)
    assert left == {True, False}


def test_flipped_bit_is_where_damage_must_be_found() -> None:
    """Of a journal only what a later synced block protects is damaged, and the backup is as it was."""
    disk = new_disk()
    files = process(disk)
    path = ROOT / "journal-0000000000000001.log"
    fd = files.create(path)
    for part in (b"a" * 100, b"b" * 100, b"c" * 100):
        files.write(fd, part)
        files.fdatasync(fd)
    before = files.read(path)
    damaged = disk.flip_bit()
    assert damaged is not None
    changed = [
        at for at, (one, two) in enumerate(zip(before, process(disk).read(path), strict=True)) if one != two
    ]
    assert len(changed) == 1
    assert changed[0] < 200
    disk.restore(damaged[1])
    assert process(disk).read(path) == before


def test_a_disk_tells_of_moments_once() -> None:
    """Starts, snapshots and removals are told when they are reached, and only to who waits for them."""
    disk = new_disk()
    told: list[str] = []
    for moment in MOMENTS:
        disk.aims[moment] = partial(told.append, moment)
    files = process(disk)
    journal = ROOT / "journal-0000000000000001.log"
    fd = files.create(journal)
    files.write(fd, b"a block")
    files.drop_cache(fd)
    files.write_at(fd, bytes(3), 4)
    files.drop_cache(fd)
    assert told == ["recovery", "torn"]
    files.unlink(journal)
    files.create(ROOT / "incoming.tmp")
    files.create(ROOT / "snapshot.7.tmp")
    files.rename(ROOT / "snapshot.7.tmp", ROOT / "snapshot")
    assert told[2:] == ["removal", "incoming", "snapshot", "placed"]
    assert disk.aims.keys() == {"cut", "term"}
