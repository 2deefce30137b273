"""Wherever a kill or a loss of power stops the journal, the next start sees the last sync or the next one."""

import os
import pickle
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.files import Files
from cluster.journal import Journal
from cluster.records import LogEntry
from tests.unit.cluster.crash_disk import Crash, CrashDisk

SEGMENT_BYTES = 250


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
            ["add", "add", "sync", "sync", "truncate", "compact", "restart", "vote", "commit", "seal"]
        ),
        st.integers(0, 6),
    ),
    min_size=3,
    max_size=14,
)


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
            journal.deleteEntriesFrom(position)
        case "compact":
            del model.entries[:position]
            journal.deleteEntriesTo(position)
        case "restart":
            model.entries.clear()
            journal.clear()
            add(journal, model, 1000 * step.number + 1, step.number)
        case "vote":
            model.term, model.voted_for = model.term + 1, f"node-{step.number}" if step.number else None
            journal.setCurrentTerm(model.term, model.voted_for)
        case "commit":
            journal.setRaftCommitIndex(journal.last_index)
        case "seal":
            journal.onOneSecondTimer()
        case "sync":
            journal.sync()
    if not journal.is_dirty and step.kind in ("commit", "sync"):
        model.end_sync()


def add(journal: Journal, model: Model, index: int, count: int) -> None:
    """Add `count` + 1 entries of different sizes from `index` on."""
    for offset in range(count + 1):
        entry = (bytes([65 + offset]) * 17 * offset, index + offset, model.term)
        model.entries.append(entry)
        journal.add(*entry)


def view_of(journal: Journal) -> View:
    """Return what the journal says after recovery."""
    return View(tuple(journal[:]), journal.getCurrentTerm(), journal.getVotedForNodeId())


def run(directory: Path, disk: Files, program: list[Step], told: Callable[[Model], None]) -> None:
    """Open the journal and take all steps, telling `told` the model before and after each."""
    model = Model()
    journal = Journal.open(directory, segment_bytes=SEGMENT_BYTES, files=disk)
    try:
        for step in program:
            model.begin_sync()
            told(model)
            take(journal, model, step)
            told(model)
    finally:
        os.close(journal._fd)


def check(directory: Path, model: Model) -> None:
    """Check that the directory recovers to one of the two views that are right, and works on."""
    journal = Journal.open(directory, segment_bytes=SEGMENT_BYTES)
    recovered = view_of(journal)
    assert recovered in (model.acknowledged, model.attempted)
    assert journal.synced_index == journal.last_index
    assert journal.getRaftCommitIndex() <= max(1, journal.last_index)
    journal.setCurrentTerm(recovered.term + 1, "node-z")
    journal.add(b"after the crash", journal.last_index + 1, recovered.term + 1)
    expected = view_of(journal)
    journal.close()
    reopened = Journal.open(directory)
    assert view_of(reopened) == expected
    reopened.close()


def crash_everywhere(program: list[Step], torn_part: float, power: Random | None) -> None:
    """Run the program once for each of its disk operations, with a crash there."""
    crash_at = 0
    is_finished = False
    while not is_finished:
        crash_at += 1
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            disk = CrashDisk(crash_at, torn_part)
            seen = [Model()]
            try:
                run(directory, disk, program, seen.append)
                is_finished = True
            except Crash:
                pass
            if power is not None:
                disk.lose_power(directory, power)
            check(directory, seen[-1])


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
    """The same holds when unsynced bytes are cut or zeroed and unsynced names are undone."""
    crash_everywhere(program, torn_part, Random(seed))


class KillingDisk(Files):
    """A real disk whose process kills itself instead of operation number `kill_at`."""

    def __init__(self, kill_at: int) -> None:
        """Kill at operation `kill_at` (from 1)."""
        self.left = kill_at

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self, fd: int, data: bytes) -> None:
        """Write byte groups, so that a kill may tear."""
        half = len(data) // 2
        super().write(fd, data[:half])
        self._count()
        super().write(fd, data[half:])

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
            run(directory, KillingDisk(kill_at), PROGRAM, lambda model: tell(writer, model))
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
        check(directory, model)
        kill_at += 4
    assert kill_at > 20


def test_a_lost_seal_before_a_torn_write_is_no_damage(tmp_path: Path) -> None:
    """Power lost, a seal gone, the unsynced block behind it intact: both are cut, and the node starts."""
    journal = Journal.open(tmp_path)
    journal.add(b"synced", 1, 1)
    journal.sync()
    (file,) = tmp_path.glob("journal-*.log")
    seal_at = file.stat().st_size
    journal.onOneSecondTimer()
    seal_end = file.stat().st_size
    journal.add(b"never acknowledged", 2, 1)
    journal.sync()
    os.close(journal._fd)
    content = file.read_bytes()
    file.write_bytes(content[:seal_at] + bytes(seal_end - seal_at) + content[seal_end:])
    reopened = Journal.open(tmp_path)
    assert reopened[:] == [(b"synced", 1, 1)]
    reopened.close()
