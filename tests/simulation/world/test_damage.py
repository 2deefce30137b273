"""Where the simulated disk flips bits: all that a start must object to, and not a byte more.

The disk works it out from writes, syncs and losses of power, and knows nothing of the journal's format. Here
the real journal lives and dies on it, and what its blocks say of each other has to come to the same.
"""

import contextlib
import copy
import itertools
import logging
import os
import re
from pathlib import Path
from random import Random

import pytest

import cluster.storage.recovery
from cluster.errors import DataDirError
from cluster.storage.journal import Journal, JournalError
from cluster.storage.journal_format import BLOCK_MAGIC, BlockHead, decode_block, segment_seed
from cluster.storage.replay import ReplayedLog
from cluster.storage.segment_writer import Sizes
from tests.simulation.mutations.catalogue import MUTATIONS
from tests.simulation.mutations.hunt import run_mutated, run_sound
from tests.simulation.world.disk import Disk
from tests.simulation.world.event_loop import Killed
from tests.simulation.world.files import SimFiles
from tests.simulation.world.inode import SECTOR_BYTES

ROOT = Path("/sim")
FILE = ROOT / "journal-0000000000000001.log"
SIZES = Sizes(segment_bytes=3_000, prepared_bytes=700)
QUIET = logging.getLogger("quiet")
QUIET.setLevel(logging.CRITICAL)
SEEDS = range(60)
LIVES = 8
FLIPS_COUNT = 4
OPERATIONS_MAX = 60


def process(disk: Disk) -> SimFiles:
    """Return a process's way to the disk, which dies when the disk says so."""

    def kill() -> None:
        files.is_dead = True

    files = SimFiles(disk, lambda _: None, kill)
    return files


def written_and_synced(disk: Disk, *parts: bytes) -> tuple[SimFiles, int]:
    """Write a journal of such parts, each of them synced; return the process and the descriptor."""
    files = process(disk)
    fd = files.create(FILE)
    files.fsync_dir(ROOT)
    for part in parts:
        files.write(fd, part)
        files.fdatasync(fd)
    return files, fd


# -- what the disk takes for provable -----------------------------------------------------------------------


def test_a_later_part_on_the_platter_makes_a_part_provable() -> None:
    """The last one proves what was synced before it, and nothing of itself."""
    disk = Disk(ROOT, Random(1))
    files, fd = written_and_synced(disk, b"a" * 100)
    assert disk.flip_bit() is None
    files.write(fd, b"b" * 100)
    assert disk.flip_bit() is None
    files.fdatasync(fd)
    assert disk.provable_bytes(FILE) == 100


def test_zeros_prove_nothing() -> None:
    """A sync of zeros, written ahead or over a torn part, does not say what was there before."""
    disk = Disk(ROOT, Random(1))
    files, fd = written_and_synced(disk, b"a" * 100)
    files.write(fd, bytes(100))
    files.fdatasync(fd)
    assert disk.flip_bit() is None


def test_what_power_took_is_nothing_that_could_be_damaged() -> None:
    """A part that never got to the platter is not there, however often zeros are synced in its place."""
    provable = set()
    for seed in range(40):
        disk = Disk(ROOT, Random(seed))
        files, fd = written_and_synced(disk, b"a" * 100, b"b" * 100)
        files.write_at(fd, b"c" * 2 * SECTOR_BYTES, 200)
        disk.lose_power()
        is_whole = process(disk).read(FILE)[200:] == b"c" * 2 * SECTOR_BYTES
        files = process(disk)
        fd = files.open(FILE)
        if not is_whole:
            files.write_at(fd, bytes(files.size(fd) - 200), 200)
        for _ in range(3):
            files.fdatasync(fd)
            assert disk.provable_bytes(FILE) == (200 if is_whole else 100)
            files.write_at(fd, bytes(300), 200 + 2 * SECTOR_BYTES)
        provable.add(disk.provable_bytes(FILE))
    assert provable == {100, 200}


def test_a_part_that_was_cut_off_by_a_kill_proves_nothing() -> None:
    """Half a part may lack the very bytes that say what was there before."""
    for seed in range(20):
        disk = Disk(ROOT, Random(seed))
        files, fd = written_and_synced(disk, b"a" * 100)
        disk.kill_after_operations = 0
        with pytest.raises(Killed):
            files.write(fd, b"b" * 100)
        files = process(disk)
        files.fdatasync(files.open(FILE))
        is_whole = files.read(FILE)[100:] == b"b" * 100
        assert disk.provable_bytes(FILE) == (100 if is_whole else 0)


def test_a_part_behind_a_lost_one_proves_until_it_is_overwritten() -> None:
    """Any part on the platter tells of what was there when it was written."""
    for seed in range(200):
        disk = Disk(ROOT, Random(seed))
        files, fd = written_and_synced(disk, b"a" * SECTOR_BYTES, bytes(2 * SECTOR_BYTES))
        files.write_at(fd, b"b" * SECTOR_BYTES, SECTOR_BYTES)
        files.write_at(fd, b"c" * SECTOR_BYTES, 2 * SECTOR_BYTES)
        disk.lose_power()
        left = process(disk).read(FILE)[SECTOR_BYTES:]
        if left == bytes(SECTOR_BYTES) + b"c" * SECTOR_BYTES:
            break
    else:
        pytest.fail("no seed loses the one and keeps the other")
    assert disk.provable_bytes(FILE) == SECTOR_BYTES
    files = process(disk)
    files.write_at(files.open(FILE), bytes(2 * SECTOR_BYTES), SECTOR_BYTES)
    assert disk.provable_bytes(FILE) == 0


# -- what the journal takes for provable --------------------------------------------------------------------


def live(disk: Disk, random: Random) -> None:
    """Open the journal, use it, and die: of a kill at any operation, a bad disk or a loss of power."""
    disk.kill_after_operations = random.choice([None, random.randrange(OPERATIONS_MAX)])
    with contextlib.suppress(Killed, JournalError):
        use(Journal.open(ROOT, sizes=SIZES, on_cut=QUIET, files=process(disk)), disk, random)
    disk.kill_after_operations, disk.is_full, disk.fail_syncs = None, False, 0
    for inode in disk.names.values():
        inode.drop_cache()  # a start does that before it reads
    if random.random() < 0.5:
        disk.lose_power()


def use(journal: Journal, disk: Disk, random: Random) -> None:
    """Append, sync and let seconds pass; the disk may be full or fail from some moment on."""
    for _ in range(random.randrange(12)):
        match random.randrange(8):
            case 0 | 1:
                journal.tidy()
                journal.sync()
            case 2:
                journal.set_vote(journal.term + 1, random.choice([None, "n1", "n2"]))
            case 3 if random.random() < 0.2:
                disk.is_full = True
            case 4 if random.random() < 0.2:
                disk.fail_syncs = 1
            case _:
                size_bytes = random.choice([1, 40, 600])
                journal.add(random.randbytes(size_bytes), journal.last_index + 1, 1)
        if random.random() < 0.7:
            journal.sync()
    if random.random() < 0.3:
        journal.close()


def claimed_bytes(data: bytes) -> int:
    """Return up to where the whole blocks of a segment say that others were on disk before them."""
    seed = segment_seed(data)
    blocks: list[BlockHead] = []
    for found in re.finditer(re.escape(BLOCK_MAGIC), data):
        block = decode_block(data, found.start(), seed)
        if block is not None:
            blocks.append(block)
    ends = [one.end for one, later in itertools.combinations(blocks, 2) if one.sequence <= later.synced]
    return max(ends, default=0)


def segments(disk: Disk) -> list[Path]:
    """Return the journal's files that have their names."""
    return sorted(path for path in disk.names if path.suffix == ".log")


def flipped(disk: Disk, seed: int) -> Disk:
    """Return a copy of the disk with one bit flipped."""
    twin = copy.deepcopy(disk)
    twin.random = Random(seed)
    assert twin.flip_bit() is not None
    return twin


def is_noticed(disk: Disk) -> bool:
    """Whether a journal on the disk refuses to start."""
    try:
        Journal.open(ROOT, sizes=SIZES, on_cut=QUIET, files=process(disk))
    except DataDirError:
        return True
    return False


@pytest.mark.parametrize("seed", SEEDS)
def test_damage_is_where_a_journal_finds_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After any deaths: what the disk takes for provable is what the blocks claim, and a start refuses it."""
    random = Random(seed)
    monkeypatch.setattr(os, "urandom", random.randbytes)
    disk = Disk(ROOT, Random(seed))
    flips_count = 0
    for _ in range(LIVES):
        live(disk, random)
        for path in segments(disk):
            assert disk.provable_bytes(path) == claimed_bytes(bytes(disk.names[path].synced)), path
        if any(disk.provable_bytes(path) for path in segments(disk)):
            for flip in range(FLIPS_COUNT):
                flips_count += 1
                assert is_noticed(flipped(disk, flip))
    assert flips_count


def test_a_journal_that_cuts_damage_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of the bits that the disk flips are missed by a journal that takes all damage for torn writes."""

    def cut_anything(view: ReplayedLog, data: bytes, offset: int, seed: int) -> None:
        """Object to nothing."""

    monkeypatch.setattr(os, "urandom", Random(0).randbytes)
    unnoticed_count = 0
    for seed in SEEDS:
        random = Random(seed)
        disk = Disk(ROOT, Random(seed))
        live(disk, random)
        live(disk, random)
        if any(disk.provable_bytes(path) for path in segments(disk)):
            with monkeypatch.context() as context:
                context.setattr(cluster.storage.recovery, "_check_tail", cut_anything)
                unnoticed_count += not is_noticed(flipped(disk, seed))
    assert unnoticed_count >= len(SEEDS) // 4


def test_unnoticed_damage_is_objected_to() -> None:
    """Where a node forgets by it nothing that was promised, only the disk's own word tells of the defect."""
    mutation = next(each for each in MUTATIONS if each.name == "damage-cut-silently")
    found = (seed for seed in range(1, 61) if run_mutated(mutation, seed).checker == "damage-unnoticed")
    seed = next(found, None)
    assert seed is not None
    assert run_sound(mutation, seed, 60.0).violation == ""
