"""Wherever a kill or a loss of power stops the journal, the next start sees the last sync or the next one."""

import contextlib
import itertools
import logging
import os
import pickle
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.storage.files import Files
from cluster.storage.journal import Journal
from cluster.storage.journal_format import LogEntry
from cluster.storage.segment_writer import Sizes
from tests.unit.cluster.storage.crash_disk import Crash, CrashDisk

DIRECTORY = Path("/data")
LIVES_COUNT = int(os.environ.get("HOLDFAST_JOURNAL_LIVES", "2000"))
"""Seeds of the test that lives and dies many times; each is eight lives."""
QUIET = logging.getLogger("quiet")
QUIET.setLevel(logging.CRITICAL)
SIZES = Sizes(segment_bytes=900, prepared_bytes=300)


class View(NamedTuple):
    """What must be on disk."""

    entries: tuple[LogEntry, ...] = ()
    term: int = 0
    voted_for: str | None = None


@dataclass
class Model:
    """A plain list next to the journal: what was promised as durable, and what the next sync will promise."""

    entries: list[LogEntry] = field(default_factory=list)
    term: int = 0
    voted_for: str | None = None
    acknowledged: View = field(default_factory=View)
    attempted: View = field(default_factory=View)

    def begin_sync(self) -> None:
        """Note what a sync writes; a log that was cleared and not begun again leaves the old one."""
        entries = tuple(self.entries) or self.acknowledged.entries
        self.attempted = View(entries, self.term, self.voted_for)

    @classmethod
    def of(cls, view: View) -> "Model":
        """Return the model of a journal that was just recovered."""
        return cls(list(view.entries), view.term, view.voted_for, view, view)

    def end_sync(self) -> None:
        """Note that the sync has returned."""
        self.acknowledged = self.attempted


class Step(NamedTuple):
    """One call; `number` is its argument, whatever it means there."""

    kind: str
    number: int


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(
            [
                "add",
                "add",
                "sync",
                "truncate",
                "compact",
                "restart",
                "vote",
                "commit",
                "seal",
            ]
        ),
        st.integers(0, 9),
    ),
    min_size=3,
    max_size=14,
)


def seal(journal: Journal) -> None:
    """Let a second pass: what waits for a sync is left to that."""
    journal.tidy()
    if not journal.is_dirty:
        journal.sync()


def take(journal: Journal, model: Model, step: Step) -> None:
    """Do one step on both."""
    position = min(step.number, len(model.entries))
    model.begin_sync()
    match step.kind:
        case "add":
            add(
                journal,
                model,
                (model.entries[-1][1] if model.entries else 100 * step.number) + 1,
                step.number,
            )
        case "truncate":
            del model.entries[position:]
            journal.remove_from(position)
        case "compact":
            del model.entries[:position]
            journal.remove_before(position)
        case "restart":
            model.entries.clear()
            journal.clear()
            add(journal, model, 1000 * step.number + 1, step.number)
        case "vote":
            model.term, model.voted_for = model.term + 1, f"node-{step.number}" if step.number else None
            journal.set_vote(model.term, model.voted_for)
        case "commit":
            journal.record_commit(journal.last_index)
        case "seal":
            seal(journal)
        case _:
            journal.sync()
    if not journal.is_dirty and step.kind in ("commit", "sync"):
        model.end_sync()


def add(journal: Journal, model: Model, index: int, count: int) -> None:
    """Add `count` + 1 entries of different sizes from `index` on."""
    for offset in range(count + 1):
        entry = (b"%d " % model.term * 30 * offset, index + offset, model.term)
        model.entries.append(entry)
        journal.add(*entry)


def opened(files: Files, directory: Path = DIRECTORY, sizes: Sizes = SIZES) -> Journal:
    """Recover the journal; the many cuts are not logged."""
    return Journal.open(directory, sizes=sizes, files=files, on_cut=QUIET)


def view_of(journal: Journal) -> View:
    """Return what the journal says after recovery."""
    return View(tuple(journal[:]), journal.term, journal.voted_for)


def run(
    journal: Journal, model: Model, program: list[Step], told: Callable[[Model], None] = lambda _: None
) -> None:
    """Take all steps, telling `told` the model before and after each."""
    for step in program:
        model.begin_sync()
        told(model)
        take(journal, model, step)
        told(model)


def check(files: Files, directory: Path, model: Model) -> View:
    """Check that the directory recovers to one of the two views that are right, and works on."""
    journal = opened(files, directory)
    recovered = view_of(journal)
    assert recovered in (model.acknowledged, model.attempted)
    assert journal.synced_index == journal.last_index
    assert journal.commit_hint <= max(1, journal.last_index)
    journal.set_vote(recovered.term + 1, "node-z")
    journal.add(b"after the crash", journal.last_index + 1, recovered.term + 1)
    expected = view_of(journal)
    journal.close()
    reopened = opened(files, directory)
    assert view_of(reopened) == expected
    reopened.close()
    return recovered


def crash_everywhere(program: list[Step], torn_part: float, power: Random | None) -> None:
    """Run the program once for each of its disk operations, with a crash there, and check what is left.

    The recovery crashes, too, at every third of its own operations.
    """
    for crash_at in itertools.count(1):
        disk = CrashDisk(crash_at, torn_part)
        model = Model()
        try:
            run(opened(disk), model, program)
        except Crash:
            disk.reboot(power)
        else:
            return
        for recovery_crash_at in itertools.count(1 + crash_at % 3, 3):
            again = disk.copy()
            again.reboot(None, recovery_crash_at)
            try:
                opened(again)
                break
            except Crash:
                again.reboot(power)
                crashed = check(again, DIRECTORY, model)
                if power is not None:
                    assert crashed == check(disk.copy(), DIRECTORY, model)
        check(disk, DIRECTORY, model)


@settings(max_examples=30)
@given(program=steps, torn_part=st.floats(0, 1))
def test_a_kill_at_any_operation_loses_nothing_synced(program: list[Step], torn_part: float) -> None:
    """After a kill before or within any disk operation, recovery gives the last sync or the one under way."""
    crash_everywhere(program, torn_part, None)


@settings(max_examples=30)
@given(program=steps, torn_part=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_a_power_loss_at_any_operation_loses_nothing_synced(
    program: list[Step], torn_part: float, seed: int
) -> None:
    """The same holds when any subset of unsynced sectors stays and unsynced names are undone."""
    crash_everywhere(program, torn_part, Random(seed))


KINDS = (
    *("add", "add", "add", "sync", "sync"),
    *("truncate", "compact", "restart", "vote", "commit", "seal"),
)


def live_and_die(disk: CrashDisk, random: Random, sizes: Sizes, model: Model) -> Model:
    """Recover, work, crash somewhere on the way; return the model of what the next life may find."""
    disk.torn_part = random.random()
    try:
        journal = opened(disk, sizes=sizes)
    except Crash:
        return model
    recovered = view_of(journal)
    assert recovered in (model.acknowledged, model.attempted)
    model = Model.of(recovered)
    program = [Step(random.choice(KINDS), random.randint(0, 9)) for _ in range(random.randint(1, 20))]
    with contextlib.suppress(Crash):
        run(journal, model, program)
    return model


@pytest.mark.parametrize("start", range(0, LIVES_COUNT, LIVES_COUNT // 4))
def test_no_crash_in_a_row_of_them_brings_anything_back(start: int) -> None:
    """Life after life on one disk, crashing in work and in recovery: each sees the last sync or the next."""
    for seed in range(start, start + LIVES_COUNT // 4):
        random = Random(seed)
        disk, model = CrashDisk(), Model()
        sizes = Sizes(random.choice((400, 3000, 50_000)), random.choice((0, 300, 512, 1024, 4096)))
        for _ in range(8):
            disk.crash_at = random.choice((None, random.randint(1, 12), random.randint(1, 60)))
            model = live_and_die(disk, random, sizes, model)
            disk.reboot(random if random.random() < 0.7 else None)
        disk.crash_at = None
        recovered = view_of(opened(disk))
        assert recovered in (model.acknowledged, model.attempted), f"seed {seed}"


class KillingDisk(Files):
    """A real disk whose process kills itself instead of operation number `kill_at`."""

    def __init__(self, kill_at: int) -> None:
        """Kill at operation `kill_at` (from 1)."""
        self.left = kill_at

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        """Write in two parts, so that a kill may tear."""
        half = len(data) // 2
        super().write_at(fd, data[:half], offset)
        self._count()
        super().write_at(fd, data[half:], offset + half)

    def fdatasync(self, fd: int) -> None:
        """Sync unless killed."""
        self._count()
        super().fdatasync(fd)

    def rename(self, source: Path, target: Path) -> None:
        """Rename unless killed."""
        self._count()
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        """Unlink unless killed."""
        self._count()
        super().unlink(path)

    def fsync_dir(self, directory: Path) -> None:
        """Sync unless killed."""
        self._count()
        super().fsync_dir(directory)


PROGRAM_TEXT = (
    "add 1, vote 1, sync 0, add 6, commit 0, seal 0, truncate 5, add 5, sync 0,"
    " compact 4, sync 0, restart 3, vote 2, sync 0, add 2, sync 0"
)
PROGRAM = [Step(kind, int(number)) for kind, number in (text.split() for text in PROGRAM_TEXT.split(","))]
"""Every kind of step, over several segments."""


def run_until_killed(directory: Path, kill_at: int) -> tuple[Model, bool]:
    """Run the program in a child that kills itself; return the last model told and whether it was killed."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            journal = opened(KillingDisk(kill_at), directory)
            run(journal, Model(), PROGRAM, lambda model: tell(writer, model))
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        model = Model()
        while pipe.peek(1):
            model = pickle.load(pipe)  # noqa: S301 - our own child wrote it
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL)
    return model, code != 0


def tell(fd: int, model: Model) -> None:
    """Write the model to the pipe, whole, before the next step may kill us."""
    os.write(fd, pickle.dumps(model))


@pytest.mark.parametrize("start", range(4))
def test_a_process_killed_for_real_loses_nothing_synced(tmp_path: Path, start: int) -> None:
    """SIGKILL before each disk operation leaves the last sync or the one under way."""
    kill_at = start + 1
    was_killed = True
    while was_killed:
        directory = tmp_path / str(kill_at)
        directory.mkdir()
        model, was_killed = run_until_killed(directory, kill_at)
        check(Files(), directory, model)
        kill_at += 4
    assert kill_at > 20
