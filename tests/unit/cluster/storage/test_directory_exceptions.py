"""Whatever is raised at any operation of the disk, data directory and snapshot stay whole and true."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple, get_args

import pytest

from cluster.errors import NodeFailed
from cluster.storage.cluster_record import ClusterRecord
from cluster.storage.data_directory import DataDir
from cluster.storage.files import Files, replace_file
from cluster.storage.forked_child import Child, ChildState
from cluster.storage.recovery import segment_path
from cluster.storage.snapshot_format import (
    DIGEST_BYTES,
    Snapshot,
    SnapshotDamaged,
    SnapshotId,
    write_snapshot,
)
from cluster.storage.snapshot_store import SnapshotStore
from tests.support.planted import ERRORS, FailingFiles, When, raised_at_line
from tests.unit.cluster.storage.crash_disk import CrashDisk
from tests.unit.cluster.storage.test_snapshot_store import run

DIRECTORY = Path("/data")
CODE = (
    "cluster/storage/snapshot_store.py",
    "cluster/storage/snapshot_incoming.py",
    "cluster/storage/data_directory.py",
    "cluster/storage/files.py",
)


class Failure(NamedTuple):
    """What an exception left behind."""

    files: FailingFiles
    disk: CrashDisk
    promised: dict[str, object]
    is_at_end: bool


Life = Callable[[Files, dict[str, object]], None]
"""Works on a disk, and writes down what it was promised (`kept`), and what may be true instead (`tried`)."""


def failures(life: Life, error: Callable[[], BaseException], when: When) -> Iterator[Failure]:
    """Yield what each exception left, raised at every operation of a life in turn."""
    for fail_at in itertools.count(1):
        disk = CrashDisk()
        files = FailingFiles(disk, fail_at, error, when)
        promised: dict[str, object] = {}
        try:
            life(files, promised)
            is_at_end = True
        except (NodeFailed, type(error()), Exception) as raised:
            if isinstance(raised, AssertionError):
                raise
            is_at_end = False
        if not files.has_failed:
            assert is_at_end
            assert fail_at > 5
            return
        yield Failure(files, disk, promised, is_at_end)


def disks_after(failure: Failure) -> Iterator[CrashDisk]:
    """Yield the disk as the process left it, after the end of the process, and after a loss of power."""
    for power in (None, Random(failure.files.fail_at)):
        twin = failure.disk.copy()
        twin.reboot(power)
        yield twin
    yield failure.disk


every_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: repr(error()))
every_moment = pytest.mark.parametrize("when", get_args(When))


def replace_thrice(files: Files, promised: dict[str, object]) -> None:
    """Give a file three contents."""
    for content in (b"first", b"second" * 100, b"third"):
        promised["tried"] = content
        replace_file(files, DIRECTORY / "file", content)
        promised["kept"] = content


@every_error
@every_moment
def test_a_file_is_replaced_whole_or_not_at_all(error: Callable[[], BaseException], when: When) -> None:
    """An exception anywhere leaves the old or the new content, and the next replacement works."""
    for failure in failures(replace_thrice, error, when):
        for disk in disks_after(failure):
            there = disk.content(DIRECTORY / "file") if disk.exists(DIRECTORY / "file") else None
            assert there in (failure.promised.get("kept"), failure.promised["tried"])
            replace_file(disk, DIRECTORY / "file", b"later")
            assert disk.content(DIRECTORY / "file") == b"later"


def meet_peers(files: Files, promised: dict[str, object]) -> None:
    """Open a new directory, meet two peers, forget one."""
    promised["kept"] = promised["tried"] = {}
    datadir = DataDir.open(DIRECTORY, "n1", files=files)
    promised["disk_id"] = datadir.disk_id
    # A journal is begun before anybody is met.
    disk = files.inner if isinstance(files, FailingFiles) else files
    assert isinstance(disk, CrashDisk)
    disk.put(segment_path(DIRECTORY, 1), b"")
    steps: list[tuple[Callable[[], None], dict[str, str]]] = [
        (lambda: datadir.remember("n2", "two"), {"n2": "two"}),
        (lambda: datadir.remember("n3", "three"), {"n2": "two", "n3": "three"}),
        (lambda: datadir.store_cluster(ClusterRecord(cluster_id="c" * 32)), {"n2": "two", "n3": "three"}),
        (lambda: datadir.forget("n2"), {"n3": "three"}),
    ]
    for step, known in steps:
        promised["tried"] = known
        try:
            step()
        except BaseException:
            assert datadir.known == promised["kept"]
            if isinstance(files, FailingFiles):
                with pytest.raises(NodeFailed):
                    datadir.remember("n4", "four")
            datadir.close()
            raise
        promised["kept"] = known
        assert datadir.known == known
    datadir.close()


@every_error
@every_moment
def test_a_data_directory_forgets_nobody(error: Callable[[], BaseException], when: When) -> None:
    """An exception anywhere leaves identity and peers of before or after, and frees the lock."""
    for failure in failures(meet_peers, error, when):
        lost = failure.files.operations[failure.files.fail_at - 1] in ("lock", "create", "close")
        assert len(failure.files.descriptors) <= lost
        for disk in disks_after(failure):
            datadir = DataDir.open(DIRECTORY, "n1", files=disk)
            assert datadir.disk_id == failure.promised.get("disk_id", datadir.disk_id)
            assert datadir.known in (failure.promised["kept"], failure.promised["tried"])
            datadir.remember("n9", "nine")
            datadir.close()
            if not disk.exists(segment_path(DIRECTORY, 1)):
                disk.put(segment_path(DIRECTORY, 1), b"")
            assert DataDir.open(DIRECTORY, "n1", files=disk).known["n9"] == "nine"


class InlineChild(Child):
    """Does the work at once, in this process, as a fork would see the disk. Its failures are its own."""

    outcome: ChildState = "idle"

    @property
    def is_running(self) -> bool:
        """Whether its end was not polled yet."""
        return self.outcome != "idle"

    def start(self, work: Callable[[], None]) -> None:
        """Work."""
        try:
            work()
            self.outcome = "done"
        except Exception:  # noqa: BLE001 - as in the child
            self.outcome = "failed"
        self.pid = 77

    def poll(self) -> ChildState:
        """Tell how it ended, once."""
        outcome, self.outcome, self.pid = self.outcome, "idle", 0
        return outcome

    def kill(self) -> None:
        """Fail, even if it has just finished."""
        self.outcome = "failed"

    def stop(self) -> None:
        """Forget it."""
        self.outcome, self.pid = "idle", 0


@pytest.fixture(autouse=True)
def _pids(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work of a child sees the pid that its parent knows."""
    monkeypatch.setattr("cluster.storage.snapshot_store.os.getpid", lambda: 77)


def snapshot_of(index: int) -> Snapshot:
    """Return the snapshot that ends at `index`."""
    return Snapshot((b"p", index - 1, 1), (b"l", index, 1), b"state %d" % index * 50)


def received(index: int) -> tuple[SnapshotId, bytes]:
    """Return a snapshot as a peer sends it."""
    disk = CrashDisk()
    write_snapshot(DIRECTORY / "sent", snapshot_of(index), disk)
    data = disk.content(DIRECTORY / "sent")
    return SnapshotId(index, 1, len(data), data[-DIGEST_BYTES:]), data


RECEIVED = {index: received(index) for index in (30, 50)}


def keep_snapshots(files: Files, promised: dict[str, object]) -> None:
    """Write two snapshots, receive two, the second while another one is being written."""
    promised["tried"] = promised["kept"] = None
    store = SnapshotStore(DIRECTORY, files, InlineChild())
    try:
        for index in (10, 20, 30, 40, 50):
            promised["tried"] = index
            if index in RECEIVED:
                receive(store, index)
            else:
                write(store, index)
            promised["kept"] = index
            if index == 40:
                store.begin_write(snapshot_of(45).last, snapshot_of(45).previous, b"", lambda: b"superseded")
        assert store.poll() == "failed", "a snapshot that was superseded is not put in place"
    finally:
        store.close()


def write(store: SnapshotStore, index: int) -> None:
    """Write a snapshot; once more if that failed."""
    snapshot = snapshot_of(index)
    outcome: ChildState = "failed"
    while outcome == "failed":
        store.begin_write(snapshot.last, snapshot.previous, b"", lambda: snapshot.state)
        outcome = store.poll()


def receive(store: SnapshotStore, index: int) -> None:
    """Receive a snapshot; once more from its beginning if the disk failed."""
    snapshot_id, data = RECEIVED[index]
    for attempt in range(2):
        try:
            store.begin_receive(snapshot_id)
            for offset in range(0, len(data), 300):
                store.write_chunk(data[offset : offset + 300])
            run(store.check_received(None))
        except (OSError, SnapshotDamaged):
            assert attempt == 0
            continue
        store.put_received_in_place()
        return


def check_store(disk: CrashDisk, promised: dict[str, object]) -> None:
    """Check that the snapshot is whole and one that may be there, and that the next one can be written."""
    store = SnapshotStore(DIRECTORY, disk, InlineChild())
    loaded = store.load()
    assert (None if loaded is None else loaded.last[1]) in (promised["kept"], promised["tried"])
    if loaded is not None:
        assert loaded == snapshot_of(loaded.last[1])
    write(store, 60)
    again = store.load()
    assert again is not None
    assert again.last[1] == 60
    store.close()
    assert [name for name in disk.names(DIRECTORY) if name.endswith("tmp")] == []


@every_error
@every_moment
def test_a_snapshot_is_whole_and_not_older_than_promised(
    error: Callable[[], BaseException], when: When
) -> None:
    """An exception anywhere leaves the last snapshot that was put in place, or the one under way, whole."""
    for failure in failures(keep_snapshots, error, when):
        for disk in disks_after(failure):
            check_store(disk, failure.promised)


def test_a_received_snapshot_that_was_written_in_part_is_refused() -> None:
    """Bytes that stand in the file twice, because a write was repeated, are not taken for a state."""
    snapshot_id, data = RECEIVED[30]
    disk = CrashDisk()
    files = FailingFiles(disk)
    store = SnapshotStore(DIRECTORY, files, InlineChild())
    store.begin_receive(snapshot_id)
    store.write_chunk(data[:400])
    files.fail_at, files.when = len(files.operations) + 1, "within"
    with pytest.raises(MemoryError):
        store.write_chunk(data[400:500])
    store.write_chunk(data[400:])
    with pytest.raises(SnapshotDamaged):
        run(store.check_received(None))


@pytest.mark.parametrize("life", [keep_snapshots, meet_peers])
def test_an_exception_between_any_two_lines_is_as_harmless(life: Life) -> None:
    """Memory that runs out between two lines loses nothing and puts nothing in place that is not whole."""
    for number in itertools.count(1):
        disk, promised = CrashDisk(), dict[str, object]()
        with contextlib.suppress(MemoryError), raised_at_line(number, CODE) as planted:
            life(disk, promised)
        if not planted.where:
            assert number > 100
            return
        if life is keep_snapshots:
            check_store(disk, promised)
        else:
            datadir = DataDir.open(DIRECTORY, "n1", files=disk)
            assert datadir.known in (promised["kept"], promised["tried"])
