"""Whatever is raised at any operation of the disk or between any two lines, the journal loses nothing."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import get_args

import pytest

from cluster.errors import NodeFailed
from cluster.storage.files import Files
from cluster.storage.journal import Journal, JournalError
from cluster.storage.segment_writer import Sizes
from tests.support.planted import ERRORS, FailingFiles, When, raised_at_line
from tests.unit.cluster.storage.crash_disk import CrashDisk
from tests.unit.cluster.storage.test_journal_crashes import QUIET, View, view_of

DIRECTORY = Path("/data")
SIZES = Sizes(segment_bytes=700, prepared_bytes=300)
CODE = (
    "cluster/storage/journal.py",
    "cluster/storage/log_on_disk.py",
    "cluster/storage/segment_writer.py",
    "cluster/storage/files.py",
)
LIFE = (
    "vote 1, add 1, sync, add 6, sync, add 8, sync, seal, commit, truncate 9, add 5, sync, vote 2, sync,"
    " compact 7, sync, seal, restart, clear, add 3, sync, add 2, vote 3, sync, add 9, commit, restart,"
    " truncate 0, add 4, sync, add 4, seal, sync, compact 3, vote 4, add 1, sync, seal, seal"
)
"""Every kind of change, over several segments and starts."""
PROGRAM = [
    (kind, int(number or 0)) for kind, _, number in (text.strip().partition(" ") for text in LIFE.split(","))
]


@dataclass
class Promises:
    """A plain list next to the journal: what is there now, and all that the disk may show after a failure."""

    view: View = field(default_factory=View)
    on_disk: View = field(default_factory=View)
    allowed: list[View] = field(default_factory=lambda: [View()])
    is_opening: bool = True

    def change(self, **changes: object) -> None:
        """Record what a change is about to make of the journal: the disk may show it from now on."""
        self.view = self.view._replace(**changes)  # type: ignore[arg-type]
        # A log that was cleared and not begun again leaves the old one.
        self.allowed.append(self.view._replace(entries=self.view.entries or self.on_disk.entries))

    def kept(self) -> None:
        """Record that everything so far was promised to be on disk."""
        self.on_disk = self.allowed[-1]
        self.allowed = [self.on_disk]


def take(journal: Journal, promises: Promises, kind: str, number: int) -> None:
    """Do one step on both."""
    entries = promises.view.entries
    match kind:
        case "add":
            for size in range(number):
                last = promises.view.entries[-1:] or ((b"", 50 * promises.view.term, 0),)
                entry = (b"%d " % size * 9 * size, last[0][1] + 1, promises.view.term)
                promises.change(entries=(*promises.view.entries, entry))
                journal.add(*entry)
        case "truncate":
            promises.change(entries=entries[:number])
            journal.remove_from(number)
        case "compact":
            promises.change(entries=entries[number:])
            journal.remove_before(number)
        case "clear":
            promises.change(entries=())
            journal.clear()
        case "vote":
            promises.change(term=number, voted_for=f"node-{number}")
            journal.set_vote(number, f"node-{number}")
        case "commit":
            journal.record_commit(journal.last_index)
        case "sync":
            journal.sync()
            promises.kept()
        case _:
            journal.tidy()
            if not journal.is_dirty:
                journal.sync()


def opened(files: Files) -> Journal:
    """Recover the journal; the many cuts are not logged."""
    return Journal.open(DIRECTORY, sizes=SIZES, files=files, on_cut=QUIET)


def live(files: Files, promises: Promises, lives: list[Journal]) -> None:
    """Take all steps; what was started is in `lives`."""
    lives.append(opened(files))
    promises.is_opening = False
    for kind, number in PROGRAM:
        if kind == "restart":
            lives[-1].close()
            promises.kept()
            promises.is_opening = True
            lives.append(opened(files))
            promises.view, promises.is_opening = promises.on_disk, False
        else:
            take(lives[-1], promises, kind, number)
    lives[-1].close()


def check_refuses(journal: Journal) -> None:
    """Check that a journal that failed takes no change and is no more dirty than to be closed."""
    last_index = journal.last_index
    for change in (
        journal.sync,
        journal.tidy,
        journal.clear,
        lambda: journal.set_vote(99, None),
        lambda: journal.add(b"", last_index + 1, 99),
        lambda: journal.remove_from(0),
        lambda: journal.remove_before(1),
        lambda: journal.record_commit(1),
    ):
        with pytest.raises(JournalError):
            change()


def check_disk(disk: CrashDisk, promises: Promises) -> View:
    """Check that the disk recovers to something that is allowed, and that the journal goes on there."""
    journal = opened(disk)
    recovered = view_of(journal)
    assert recovered in promises.allowed
    journal.set_vote(recovered.term + 1, "node-z")
    journal.add(b"behind the failure", journal.last_index + 1, recovered.term + 1)
    expected = view_of(journal)
    journal.close()
    again = opened(disk)
    assert view_of(again) == expected
    again.close()
    return recovered


def check_everywhere(disk: CrashDisk, promises: Promises, seed: int) -> None:
    """Check the disk as the process left it, after the end of the process, and after a loss of power."""
    for power in (None, Random(seed)):
        twin = disk.copy()
        twin.reboot(power)
        check_disk(twin, promises)
    check_disk(disk, promises)


def failures(
    error: Callable[[], BaseException], when: When
) -> Iterator[tuple[FailingFiles, CrashDisk, Promises, list[Journal]]]:
    """Yield what each exception left, raised at every operation of the program in turn."""
    for fail_at in itertools.count(1):
        disk = CrashDisk()
        files = FailingFiles(disk, fail_at, error, when)
        promises = Promises()
        lives: list[Journal] = []
        with contextlib.suppress(NodeFailed, type(error())):
            live(files, promises, lives)
        if not files.has_failed:
            assert len(files.operations) > 100
            return
        yield files, disk, promises, lives


@pytest.mark.parametrize("when", get_args(When))
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: repr(error()))
def test_an_exception_at_any_operation_loses_nothing(error: Callable[[], BaseException], when: When) -> None:
    """Raised at each operation, before, within or after it, and then `close`: what was synced is there."""
    for files, disk, promises, lives in failures(error, when):
        for journal in lives:
            journal.close()
        check_everywhere(disk, promises, files.fail_at)


@pytest.mark.parametrize("when", get_args(When))
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: repr(error()))
def test_a_failed_journal_refuses_changes_and_writes_nothing(
    error: Callable[[], BaseException], when: When
) -> None:
    """What an exception leaves is not tried again: `close` only gives descriptors back, and all of them."""
    refused = 0
    for files, _, promises, lives in failures(error, when):
        failed_operation = files.operations[files.fail_at - 1]
        if promises.is_opening or failed_operation == "close":
            continue  # there was no journal, or it had come to its end
        if failed_operation == "write_at" and "No space" in str(error()) and lives[-1]._is_sound:
            continue  # for zeros ahead of the log, or the note at the end of a segment
        check_refuses(lives[-1])
        refused += 1
        lives[-1].close()
        assert set(files.since_failure) <= {"close"}
        assert not files.descriptors
    assert refused > 40


@pytest.mark.parametrize(("error", "step"), [(MemoryError, 1), (KeyboardInterrupt, 7)])
def test_an_exception_between_any_two_lines_loses_nothing(error: type[BaseException], step: int) -> None:
    """Memory that runs out in the middle of a change leaves a journal that failed, or is unchanged."""
    for number in itertools.count(1, step):
        disk, promises = CrashDisk(), Promises()
        lives: list[Journal] = []
        with contextlib.suppress(error, NodeFailed), raised_at_line(number, CODE, error) as planted:
            live(disk, promises, lives)
        if not planted.where:
            assert number > 1000
            return
        for journal in lives:
            with contextlib.suppress(NodeFailed):  # of a sync that was taken and never run
                journal.close()
        check_everywhere(disk, promises, number)


def test_memory_that_runs_out_before_a_sync_leaves_a_journal_that_opens(tmp_path: Path) -> None:
    """A MemoryError between a write and its sync is not followed by the same records once more."""
    journal = Journal.open(tmp_path)
    journal.set_vote(1, "n1")
    journal.add(b"x", 1, 1)
    journal.add(b"y", 2, 1)
    journal.sync()
    journal.add(b"z", 3, 1)
    files = FailingFiles(Files(), 2)
    journal._disk.writer._files = files
    with pytest.raises((MemoryError, JournalError)):
        journal.sync()
    assert files.operations == ["write_at", "fdatasync"]
    journal.close()
    reopened = Journal.open(tmp_path)
    assert [command for command, _, _ in reopened[:]] == [b"x", b"y", b"z"]
    reopened.close()
