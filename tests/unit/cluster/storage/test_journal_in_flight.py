"""A sync that is under way: what changes meanwhile is of the next one, and nothing counts before its end."""

import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from cluster.storage.journal import Journal, JournalError
from cluster.storage.segment_writer import Sizes
from tests.unit.cluster.storage.crash_disk import CrashDisk

DIRECTORY = Path("/data")


def opened(disk: CrashDisk) -> Journal:
    """Return the journal on a disk; small segments."""
    return Journal.open(DIRECTORY, files=disk, sizes=Sizes(400, 100))


def add(journal: Journal, *indexes: int, term: int = 1) -> None:
    """Add entries that say which they are."""
    for index in indexes:
        journal.add(b"%d:%d" % (index, term), index, term)


def after_power_loss(disk: CrashDisk, seed: int = 1) -> Journal:
    """Return what is there after a loss of power."""
    again = disk.copy()
    again.reboot(Random(seed))
    return opened(again)


def indexes(journal: Journal) -> list[tuple[int, int]]:
    """Return index and term of each entry."""
    return [(index, term) for _, index, term in journal[:]]


@pytest.fixture
def disk() -> CrashDisk:
    """Return a disk that can be looked at after a loss of power."""
    return CrashDisk()


def test_nothing_counts_before_its_end(disk: CrashDisk) -> None:
    """Not when it has begun, and not when it was run: only what is taken over."""
    journal = opened(disk)
    add(journal, 1, 2)
    sync = journal.begin_sync()
    assert sync is not None
    assert (journal.synced_index, journal.is_dirty, journal.wants_sync) == (0, True, False)
    sync.run()
    assert (journal.synced_index, journal.is_dirty) == (0, True)
    journal.end_sync(sync)
    assert (journal.synced_index, journal.is_dirty) == (2, False)
    assert indexes(after_power_loss(disk)) == [(1, 1), (2, 1)]
    journal.close()


def test_what_is_added_meanwhile_belongs_to_the_next(disk: CrashDisk) -> None:
    """It is not in the block, and does not count with it; a vote neither."""
    journal = opened(disk)
    journal.set_vote(1, "a")
    add(journal, 1)
    sync = journal.begin_sync()
    assert sync is not None
    add(journal, 2, 3)
    journal.set_vote(2, "b")
    sync.run()
    journal.end_sync(sync)
    assert (journal.synced_index, journal.is_dirty, journal.wants_sync) == (1, True, True)
    on_disk = after_power_loss(disk)
    assert (indexes(on_disk), on_disk.term, on_disk.voted_for) == ([(1, 1)], 1, "a")
    journal.sync()
    on_disk = after_power_loss(disk)
    assert (indexes(on_disk), on_disk.term, on_disk.voted_for) == ([(1, 1), (2, 1), (3, 1)], 2, "b")
    journal.close()


def cut(journal: Journal) -> None:
    """Cut the last two entries, which are under way, and put others there."""
    journal.remove_from(1)
    add(journal, 2, 3, 4, term=2)


def begin_anew(journal: Journal) -> None:
    """Begin at another place, as behind a snapshot that was received."""
    journal.clear()
    add(journal, 41, 42, term=2)


@pytest.mark.parametrize(
    ("change", "synced", "expected"),
    [(cut, 1, [(1, 1), (2, 2), (3, 2), (4, 2)]), (begin_anew, 0, [(41, 2), (42, 2)])],
)
@pytest.mark.parametrize("is_run_first", [True, False])
def test_what_is_cut_meanwhile_does_not_count(
    disk: CrashDisk,
    change: Callable[[Journal], None],
    synced: int,
    expected: list[tuple[int, int]],
    *,
    is_run_first: bool,
) -> None:
    """Nor does what came in its place, before it has a sync of its own."""
    journal = opened(disk)
    add(journal, 1, 2, 3)
    sync = journal.begin_sync()
    assert sync is not None
    if is_run_first:
        sync.run()
    change(journal)
    if not is_run_first:
        sync.run()
    journal.end_sync(sync)
    assert journal.synced_index == synced
    assert indexes(after_power_loss(disk)) == [(1, 1), (2, 1), (3, 1)]
    journal.sync()
    assert journal.synced_index == journal.last_index
    assert indexes(after_power_loss(disk)) == expected
    journal.close()


def test_a_compaction_meanwhile_takes_nothing_that_is_under_way(disk: CrashDisk) -> None:
    """It is in the next block; segments go when that is on disk, and what stays is all there."""
    journal = opened(disk)
    for index in range(1, 60):
        add(journal, index)
        journal.sync()
    add(journal, 60)
    sync = journal.begin_sync()
    assert sync is not None
    journal.remove_before(50)
    sync.run()
    journal.end_sync(sync)
    assert indexes(after_power_loss(disk))[-1] == (60, 1)
    assert journal.synced_index == 60
    for _ in range(20):
        journal.tidy()
        journal.sync()
    assert indexes(after_power_loss(disk)) == [(index, 1) for index in range(51, 61)]
    journal.close()
    assert indexes(opened(disk)) == [(index, 1) for index in range(51, 61)]


def change(journal: Journal, random: Random, step: int) -> None:
    """Change something in the log, or vote."""
    match random.randrange(6):
        case 0 if len(journal) > 1:
            journal.remove_from(random.randrange(1, len(journal)))
        case 1 if len(journal) > 2:
            journal.remove_before(random.randrange(1, len(journal) - 1))
        case 2:
            journal.set_vote(step + 1, f"n{step}")
        case _:
            add(journal, (journal.last_index or step * 100) + 1, term=step)


def check_values(journal: Journal) -> None:
    """Fail if a plain value of the journal is not what the log and the work to be done say."""
    log = journal[:]
    assert journal.entries == log
    assert journal.bytes_count == sum(len(command) for command, _, _ in log)
    assert (journal.first_index, journal.last_index) == ((log[0][1], log[-1][1]) if log else (0, 0))
    is_changed = journal._is_hard_state_dirty or bool(journal._records)
    assert journal.wants_sync == (is_changed or journal._is_tidy_due)
    assert journal.is_dirty == (is_changed or journal._present is not None)
    assert journal.synced_index <= journal.last_index


def test_what_the_journal_tells_of_itself_is_never_stale() -> None:
    """Its plain values are right after every change, after every part of a sync, and after a restart."""
    for seed in range(60):
        random, disk = Random(seed), CrashDisk()
        journal = opened(disk)
        entries, sync = journal.entries, None
        for step in range(80):
            match random.randrange(8):
                case 0 if sync is None:
                    sync = journal.begin_sync()
                case 0 | 1 if sync is not None:
                    sync.run()
                    journal.end_sync(sync)
                    sync = None
                case 2:
                    journal.tidy()
                case 3 if random.random() < 0.2:
                    journal.clear()
                case 4 if sync is None and random.random() < 0.2:
                    journal.sync()
                    assert journal.synced_index == journal.last_index
                case _:
                    change(journal, random, step)
            check_values(journal)
            assert journal.entries is entries, "who has taken hold of the log sees it as it is"
        if sync is not None:
            sync.run()
        journal.close()
        journal = opened(disk)
        check_values(journal)
        assert not journal.is_dirty
        assert journal.synced_index == journal.last_index
        journal.close()


def test_random_syncs_in_flight_lose_nothing() -> None:
    """After any mixture of changes before, during and behind a sync the disk has what was taken over."""
    for seed in range(150):
        random, disk = Random(seed), CrashDisk()
        journal = opened(disk)
        sync, taken = None, (indexes(journal), journal.term, journal.voted_for)
        for step in range(60):
            if random.random() < 0.75:
                change(journal, random, step)
            elif sync is None:
                taken = (indexes(journal), journal.term, journal.voted_for)
                sync = journal.begin_sync()
            else:
                sync.run()
                journal.end_sync(sync)
                sync, on_disk = None, after_power_loss(disk, seed)
                assert (indexes(on_disk), on_disk.term, on_disk.voted_for) == taken, seed
        if sync is not None:
            sync.run()
        journal.close()
        assert indexes(opened(disk)) == indexes(journal)


def test_a_failure_is_told_at_the_end_and_is_final(disk: CrashDisk) -> None:
    """Whatever was changed meanwhile: the journal takes nothing more, and `close` writes nothing."""
    journal = opened(disk)
    add(journal, 1)
    sync = journal.begin_sync()
    assert sync is not None
    sync.error = OSError(5, "the disk is gone")
    add(journal, 2)
    with pytest.raises(JournalError, match="the disk is gone"):
        journal.end_sync(sync)
    with pytest.raises(JournalError):
        add(journal, 3)
    operations = len(disk.operations)
    journal.close()
    assert set(disk.operations[operations:]) <= {"close"}


def test_a_sync_that_nobody_ran_is_a_failure(disk: CrashDisk) -> None:
    """Something broke between its beginning and its thread: what it took is in no block."""
    journal = opened(disk)
    add(journal, 1)
    assert journal.begin_sync() is not None
    with pytest.raises(JournalError, match="before the sync could be run"):
        journal.close()
    assert indexes(after_power_loss(disk)) == []


def test_close_waits_for_what_is_under_way(tmp_path: Path) -> None:
    """The descriptor is not given back while a thread writes to it, and what came later is written, too."""
    journal = Journal.open(tmp_path)
    add(journal, 1)
    sync = journal.begin_sync()
    assert sync is not None
    thread = threading.Timer(0.1, sync.run)
    sync.wait_for = thread.join
    thread.start()
    add(journal, 2)
    journal.close()
    assert not thread.is_alive()
    again = Journal.open(tmp_path)
    assert indexes(again) == [(1, 1), (2, 1)]
    again.close()


def test_one_at_a_time(disk: CrashDisk) -> None:
    """The end of one that was waited for elsewhere is nothing more."""
    journal = opened(disk)
    add(journal, 1)
    sync = journal.begin_sync()
    assert sync is not None
    with pytest.raises(AssertionError, match="two syncs"):
        journal.begin_sync()
    sync.wait_for = sync.run
    journal.wait()
    assert journal.synced_index == 1
    journal.end_sync(sync)
    assert journal.begin_sync() is None
    journal.close()
