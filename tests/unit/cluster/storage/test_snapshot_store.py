"""A snapshot is whole and verified or it is not there; writing one does not hold up the node."""

import errno
import hashlib
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from cluster.errors import DataDirError, StateDamaged
from cluster.storage import forked_child, snapshot_format
from cluster.storage.disk_work import Job
from cluster.storage.files import Files
from cluster.storage.forked_child import GROUP_TRIES, NICENESS, Child, ChildState
from cluster.storage.journal_format import LogEntry
from cluster.storage.snapshot_format import DIGEST_BYTES, write_snapshot
from cluster.storage.snapshot_store import Snapshot, SnapshotDamaged, SnapshotId, SnapshotStore
from lockstate.stored.snapshot import SnapshotError
from tests.unit.cluster.storage.crash_disk import CrashDisk

DEADLINE_S = 30
AUTOGROUP = Path("/proc/self/autogroup")
PREVIOUS = (b"previous", 41, 6)
LAST = (b"last", 42, 7)


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; fail after the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        os.sched_yield()


def outcome_of(store: SnapshotStore) -> ChildState:
    """Poll until the child has ended and return how."""
    outcomes: list[ChildState] = []

    def has_ended() -> bool:
        outcomes.append(store.poll())
        return outcomes[-1] != "running"

    wait_until(has_ended)
    return outcomes[-1]


def write(store: SnapshotStore, state: bytes) -> None:
    """Write a snapshot with `state`."""
    store.begin_write(LAST, PREVIOUS, b"", lambda: state)
    assert outcome_of(store) == "done"


def run(steps: Generator[None, None, Snapshot]) -> Snapshot:
    """Do all steps; return what comes of them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("Snapshot", end.value)


def announced(data: bytes, last: LogEntry = LAST) -> SnapshotId:
    """Return how a leader announces these bytes."""
    return SnapshotId(last[1], last[2], len(data), data[-DIGEST_BYTES:])


def send(source: SnapshotStore, target: SnapshotStore, size_bytes: int) -> Snapshot:
    """Copy the snapshot in pieces as a leader and a follower do."""
    reader = source.open_reader()
    target.begin_receive(SnapshotId(LAST[1], LAST[2], reader.size, reader.digest))
    is_complete = False
    while chunk := reader.read(size_bytes):
        assert not is_complete
        is_complete = target.write_chunk(chunk)
    assert is_complete
    reader.close()
    received = run(target.check_received(None))
    target.put_received_in_place()
    return received


@pytest.fixture
def child() -> Child:
    """The child that writes the store's snapshots."""
    return Child()


@pytest.fixture
def store(tmp_path: Path, child: Child) -> SnapshotStore:
    """Return a store in an empty directory."""
    return SnapshotStore(tmp_path, child=child)


def files_in(path: Path) -> list[str]:
    """Return the names in the directory."""
    return sorted(entry.name for entry in path.iterdir())


def test_there_is_no_snapshot_at_first(store: SnapshotStore) -> None:
    """An empty directory loads as None and has nothing to send."""
    assert store.load() is None
    assert store.poll() == "idle"
    with pytest.raises(FileNotFoundError):
        store.open_reader()


def test_a_snapshot_written_by_the_child_loads(store: SnapshotStore, tmp_path: Path) -> None:
    """State and log entries come back, done is told once, and nothing else stays in the directory."""
    state = os.urandom(9_000_000)
    write(store, state)
    assert store.poll() == "idle"
    assert store.load() == Snapshot(PREVIOUS, LAST, state)
    assert files_in(tmp_path) == ["snapshot"]


def test_the_child_sees_the_state_of_the_fork(store: SnapshotStore) -> None:
    """What the node changes after `begin_write` is not in the snapshot."""
    state = [b"before"]
    store.begin_write(LAST, PREVIOUS, b"", lambda: state[0])
    state[0] = b"after"
    assert outcome_of(store) == "done"
    loaded = store.load()
    assert loaded is not None
    assert loaded.state == b"before"


def test_the_old_snapshot_stays_until_the_poll_that_tells_done(store: SnapshotStore, child: Child) -> None:
    """Only the node's own process replaces the snapshot."""
    write(store, b"old")
    store.begin_write(LAST, PREVIOUS, b"", lambda: b"new")
    pid = child.pid
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert store.load() == Snapshot(PREVIOUS, LAST, b"old")
    assert store.poll() == "done"
    assert store.load() == Snapshot(PREVIOUS, LAST, b"new")


def test_a_child_that_fails_changes_nothing(
    store: SnapshotStore, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """An exception in the encoder is failed, once, with the exit code in the log and the reason on stderr."""
    write(store, b"old")

    def fail() -> bytes:
        message = "encoder is broken"
        raise RuntimeError(message)

    store.begin_write(LAST, PREVIOUS, b"", fail)
    assert outcome_of(store) == "failed"
    assert store.poll() == "idle"
    assert "exit_code=202" in caplog.text
    assert "encoder is broken" in capfd.readouterr().err
    assert store.load() == Snapshot(PREVIOUS, LAST, b"old")
    assert files_in(tmp_path) == ["snapshot"]


def test_a_disk_error_of_the_child_is_named(store: SnapshotStore, caplog: pytest.LogCaptureFixture) -> None:
    """The error number travels in the exit code."""

    def fail() -> bytes:
        raise OSError(28, "No space left on device")

    store.begin_write(LAST, PREVIOUS, b"", fail)
    assert outcome_of(store) == "failed"
    assert "No space left on device" in caplog.text


def test_a_damaged_state_is_told_and_not_written(store: SnapshotStore) -> None:
    """The child finds out, and the node has to stop; the snapshot of before stays."""
    write(store, b"sound")

    def find_damage() -> bytes:
        raise StateDamaged

    store.begin_write(LAST, PREVIOUS, b"", find_damage)
    with pytest.raises(StateDamaged, match="the state in memory is damaged"):
        outcome_of(store)
    assert store.load() == Snapshot(PREVIOUS, LAST, b"sound")


def test_a_killed_child_is_failed(store: SnapshotStore, child: Child, tmp_path: Path) -> None:
    """A child that somebody kills leaves no file."""
    store.begin_write(LAST, PREVIOUS, b"", wait_for_ever)
    os.kill(child.pid, signal.SIGKILL)
    assert outcome_of(store) == "failed"
    assert files_in(tmp_path) == []


def wait_for_ever() -> bytes:
    """Block until killed."""
    while True:
        signal.pause()


def test_without_a_process_to_spare_the_write_fails_once(
    store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failing fork is told by the next poll, and a later write works."""

    def fail() -> int:
        raise OSError(12, "Cannot allocate memory")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fork", fail)
        store.begin_write(LAST, PREVIOUS, b"", lambda: b"state")
    assert store.poll() == "failed"
    assert store.poll() == "idle"
    write(store, b"state")


def test_the_child_keeps_no_descriptor_and_no_handler(
    store: SnapshotStore, child: Child, tmp_path: Path
) -> None:
    """Sockets and locks of the node are closed in the child, and a SIGTERM ends it like any process."""
    held = os.open(tmp_path / "held", os.O_CREAT | os.O_RDWR)
    handler_ran = []
    before = signal.signal(signal.SIGTERM, lambda *_: handler_ran.append(True))
    try:
        store.begin_write(LAST, PREVIOUS, b"", wait_for_ever)
        descriptors = Path(f"/proc/{child.pid}/fd")
        wait_until(lambda: all(int(entry.name) < 3 for entry in descriptors.iterdir()))
        os.kill(child.pid, signal.SIGTERM)
        assert outcome_of(store) == "failed"
        assert not handler_ran
    finally:
        signal.signal(signal.SIGTERM, before)
        os.close(held)


def test_a_child_takes_little_from_other_programs_of_this_machine(store: SnapshotStore, child: Child) -> None:
    """Its nice value counts against those of other sessions, too, where the kernel groups them so."""
    store.begin_write(LAST, PREVIOUS, b"", wait_for_ever)
    wait_until(lambda: os.getsid(child.pid) == child.pid)
    assert os.getpriority(os.PRIO_PROCESS, child.pid) == NICENESS
    group = Path(f"/proc/{child.pid}/autogroup")
    if AUTOGROUP.exists():
        wait_until(lambda: group.read_text().endswith(f"nice {NICENESS}\n"))
    os.kill(child.pid, signal.SIGTERM)
    assert outcome_of(store) == "failed"


@pytest.mark.parametrize(
    ("what", "error", "count", "is_own"),
    [
        ("open", FileNotFoundError(errno.ENOENT, "no such groups"), 1, False),
        ("open", PermissionError(errno.EACCES, "not allowed"), 1, False),
        ("setsid", PermissionError(errno.EPERM, "not allowed"), 1, False),
        ("write", BlockingIOError(errno.EAGAIN, "later"), 2, True),
        ("write", BlockingIOError(errno.EAGAIN, "later"), GROUP_TRIES, True),
        ("write", PermissionError(errno.EACCES, "not allowed"), 1, True),
    ],
)
def test_a_child_writes_whatever_becomes_of_its_session(
    store: SnapshotStore,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    error: OSError,
    count: int,
    *,
    is_own: bool,
) -> None:
    """The kernel changes one group in 100 ms; elsewhere there is none, or a container does not let it.

    Then it stays in the session of its node, where the nice value counts at least against that.
    """
    plain, left = getattr(os, what), [error] * count

    def failing(*arguments: Any) -> Any:
        is_of_group = what != "open" or "autogroup" in str(arguments[0])
        if left and is_of_group:
            raise left.pop()
        return plain(*arguments)

    monkeypatch.setattr(forked_child, "GROUP_PAUSE_S", 0.001)
    monkeypatch.setattr(os, what, failing)
    own = os.getsid(0)
    store.begin_write(LAST, PREVIOUS, b"", lambda: b"%d %d" % (os.getsid(0) != own, len(left)))
    assert outcome_of(store) == "done"
    assert store.load() == Snapshot(PREVIOUS, LAST, b"%d 0" % is_own)


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this kernel has no groups of sessions")
def test_a_child_that_takes_long_gets_as_much_as_others(
    store: SnapshotStore, child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where everything is busy a tenth of a processor may be too little: meanwhile the log grows."""
    monkeypatch.setattr(forked_child, "PATIENCE_S", 0.3)
    store.begin_write(LAST, PREVIOUS, b"", wait_for_ever)
    group = Path(f"/proc/{child.pid}/autogroup")
    wait_until(lambda: group.read_text().endswith(f"nice {NICENESS}\n"))
    wait_until(lambda: store.poll() == "running" and group.read_text().endswith("nice 0\n"))
    os.kill(child.pid, signal.SIGKILL)
    assert outcome_of(store) == "failed"


def test_a_child_that_cannot_get_more_now_gets_it_later(
    store: SnapshotStore, child: Child, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The kernel takes one change in 100 ms, so it is tried again; what it never takes is told once."""
    later, never = BlockingIOError(errno.EAGAIN, "later"), PermissionError(errno.EPERM, "never")
    answers: list[OSError] = [later, later, never]
    tried: list[Path] = []

    def refuse(path: Path, _: bytes) -> int:
        tried.append(path)
        raise answers[len(tried) - 1]

    caplog.set_level("INFO")
    monkeypatch.setattr(forked_child, "PATIENCE_S", 0.0)
    monkeypatch.setattr(forked_child, "GROUP_PAUSE_S", 0.001)
    monkeypatch.setattr(Path, "write_bytes", refuse)
    store.begin_write(LAST, PREVIOUS, b"", wait_for_ever)
    monkeypatch.setattr(child, "_hurry_at_s", None)
    wait_until(lambda: os.getsid(child.pid) == child.pid)
    monkeypatch.setattr(child, "_hurry_at_s", 0.0)
    wait_until(lambda: store.poll() == "running" and len(tried) == len(answers))
    assert child._hurry_at_s is None
    assert tried == [Path(f"/proc/{child.pid}/autogroup")] * len(answers)
    assert caplog.text.count("event=child-not-hurried") == 1
    os.kill(child.pid, signal.SIGKILL)
    assert outcome_of(store) == "failed"


def test_the_session_of_a_node_is_left_alone(
    store: SnapshotStore, child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a child could not leave it, its nice value is what somebody chose for the node."""
    written: list[Path] = []
    monkeypatch.setattr(os, "setsid", lambda: (_ for _ in ()).throw(PermissionError(errno.EPERM, "no")))
    monkeypatch.setattr(forked_child, "PATIENCE_S", 0.0)
    monkeypatch.setattr(Path, "write_bytes", lambda path, _: written.append(path))
    store.begin_write(LAST, PREVIOUS, b"", wait_for_ever)
    assert store.poll() == "running"
    os.kill(child.pid, signal.SIGKILL)
    assert outcome_of(store) == "failed"
    assert written == []


def test_killing_the_node_ends_the_child_and_keeps_the_old_snapshot(
    store: SnapshotStore, tmp_path: Path
) -> None:
    """After kill -9 during a write no child runs on, and the next start sees the old snapshot only."""
    write(store, b"old")
    program = (
        "import sys, pathlib, signal; from cluster.storage.snapshot_store import SnapshotStore;"
        "from cluster.storage.forked_child import Child;"
        "path = pathlib.Path(sys.argv[1]); child = Child();"
        "store = SnapshotStore(path, child=child);"
        "encode = lambda: (path / 'snapshot.0.tmp').touch() or signal.pause();"
        "store.begin_write((b'l', 2, 1), (b'p', 1, 1), b'', encode);"
        "print(child.pid, flush=True); signal.pause()"
    )
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as node:
        assert node.stdout is not None
        child = Path("/proc", node.stdout.readline().strip())
        wait_until((tmp_path / "snapshot.0.tmp").exists)
        assert child.exists()
        node.kill()
    wait_until(lambda: not child.exists() or ") Z " in (child / "stat").read_text())
    assert SnapshotStore(tmp_path).load() == Snapshot(PREVIOUS, LAST, b"old")
    assert files_in(tmp_path) == ["snapshot"]


def test_a_damaged_byte_anywhere_refuses(store: SnapshotStore, tmp_path: Path) -> None:
    """Whichever byte is changed, and wherever the file is cut, it is not loaded, and the message names it."""
    write(store, b"the state")
    file = tmp_path / "snapshot"
    pristine = file.read_bytes()
    for offset in range(len(pristine)):
        changed = bytearray(pristine)
        changed[offset] ^= 1
        for content in (bytes(changed), pristine[:offset]):
            file.write_bytes(content)
            with pytest.raises(DataDirError, match=f"{file}: the snapshot cannot be used"):
                store.load()
    file.write_bytes(pristine)
    assert store.load() == Snapshot(PREVIOUS, LAST, b"the state")


@pytest.mark.parametrize("size_bytes", [1, 31, 32, 33, 1000, 10**6])
def test_a_snapshot_travels_in_pieces(tmp_path: Path, size_bytes: int) -> None:
    """Whatever the size of the pieces, the receiver has the same snapshot, on disk too."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    source, target = SnapshotStore(one), SnapshotStore(two)
    write(source, bytes(range(256)) * 20)
    assert send(source, target, size_bytes) == source.load() == target.load()
    assert (one / "snapshot").read_bytes() == (two / "snapshot").read_bytes()
    assert files_in(two) == ["snapshot"]


def test_a_reader_keeps_the_snapshot_it_opened(store: SnapshotStore, tmp_path: Path) -> None:
    """A snapshot that replaces the file during a transfer does not mix with the one being sent."""
    write(store, b"old" * 1000)
    size_bytes = (tmp_path / "snapshot").stat().st_size
    reader = store.open_reader()
    first = reader.read(100)
    write(store, b"new" * 5000)
    rest = reader.read(10**6)
    assert reader.size == len(first + rest) == size_bytes
    assert b"new" not in rest
    assert reader.read(1) == b""
    reader.close()


DAMAGES: list[Callable[[bytes], bytes]] = [
    lambda data: bytes([data[0] ^ 1]) + data[1:],
    lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:],
    lambda data: bytes(len(data)),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_transfer_changes_nothing(
    store: SnapshotStore, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    """What does not verify is dropped, and the old snapshot stays."""
    write(store, b"old")
    data = (tmp_path / "snapshot").read_bytes()
    store.begin_receive(announced(data))
    assert store.write_chunk(damage(data))
    with pytest.raises(SnapshotDamaged):
        run(store.check_received(None))
    store.abort_receive()
    assert store.load() == Snapshot(PREVIOUS, LAST, b"old")
    assert files_in(tmp_path) == ["snapshot"]


def test_an_oversized_transfer_is_dropped(
    store: SnapshotStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer cannot fill the disk."""
    monkeypatch.setattr("cluster.storage.snapshot_store.RECEIVED_BYTES_MAX", 1000)
    with pytest.raises(SnapshotDamaged, match="longer than 1000 bytes"):
        store.begin_receive(announced(bytes(1001)))
    store.begin_receive(announced(bytes(1000)))
    assert not store.write_chunk(bytes(999))
    with pytest.raises(SnapshotDamaged, match="longer than the 1000 bytes"):
        store.write_chunk(b"xx")
    store.abort_receive()
    assert files_in(tmp_path) == []


def test_a_snapshot_that_ends_elsewhere_is_refused(store: SnapshotStore, tmp_path: Path) -> None:
    """The entry at which a snapshot ends is the one that the leader announced."""
    write(store, b"state")
    data = (tmp_path / "snapshot").read_bytes()
    store.begin_receive(announced(data, (b"", 43, 7)))
    store.write_chunk(data)
    with pytest.raises(SnapshotDamaged, match="announced as"):
        run(store.check_received(None))


def test_a_state_that_cannot_be_read_is_not_put_in_place(store: SnapshotStore, tmp_path: Path) -> None:
    """The state is decoded before it replaces one that could be read: the node could never start again."""
    write(store, b"old")
    one = tmp_path / "one"
    one.mkdir()
    write_snapshot(one / "snapshot", Snapshot(PREVIOUS, LAST, b"newer format"), Files())
    data = (one / "snapshot").read_bytes()

    def decode(state: bytearray, _: bytes) -> Generator[None, None, object]:
        yield
        raise SnapshotError(bytes(state))

    store.begin_receive(announced(data))
    store.write_chunk(data)
    with pytest.raises(SnapshotError, match="newer format"):
        run(store.check_received(decode))
    store.abort_receive()
    assert store.load() == Snapshot(PREVIOUS, LAST, b"old")


def test_a_snapshot_carries_the_members(store: SnapshotStore) -> None:
    """The member list comes back as it was given."""
    store.begin_write(LAST, PREVIOUS, b"n1, n2", lambda: b"state")
    assert outcome_of(store) == "done"
    assert store.load() == Snapshot(PREVIOUS, LAST, b"state", b"n1, n2")


def test_a_header_may_say_more(store: SnapshotStore, tmp_path: Path) -> None:
    """A later release may add to the header of this format what this one need not know."""
    put_file(tmp_path, 1, [PREVIOUS, LAST, 5, b"members", 77, {"colour": "red"}])
    assert store.load() == Snapshot(PREVIOUS, LAST, b"state", b"members", log_digest=77)


def put_file(directory: Path, version: int, header: list[object]) -> None:
    """Write a snapshot file of the state b"state" by hand."""
    encoded = msgspec.msgpack.encode(header)
    data = b"HOLDFSNP" + struct.pack("<II", version, len(encoded)) + encoded + b"state"
    digest = hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()
    (directory / "snapshot").write_bytes(data + digest)


def test_a_new_transfer_replaces_an_unfinished_one(tmp_path: Path) -> None:
    """A transfer that begins again is not mixed with its first part."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    source, target = SnapshotStore(one), SnapshotStore(two)
    write(source, b"state")
    target.begin_receive(announced(bytes(100)))
    target.write_chunk(b"unfinished")
    assert send(source, target, 10).state == b"state"


def test_a_received_snapshot_is_not_replaced_by_an_older_write(tmp_path: Path) -> None:
    """A child that was writing when a newer snapshot arrived fails, even if it had just finished."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    child = Child()
    source, target = SnapshotStore(one), SnapshotStore(two, child=child)
    write(source, b"newer")
    target.begin_write(LAST, PREVIOUS, b"", lambda: b"older")
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    send(source, target, 100)
    assert outcome_of(target) == "failed"
    assert target.poll() == "idle"
    loaded = target.load()
    assert loaded is not None
    assert loaded.state == b"newer"
    assert files_in(two) == ["snapshot"]


class LateWork:
    """Disk work that is done when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.is_late = False

    def start(self, job: Job) -> None:
        """Keep the job, or do it."""
        self.jobs.append(job)
        if not self.is_late:
            self.do()

    def do(self) -> None:
        """Do what is there."""
        for job in self.jobs:
            job.do()
            job.ended()
        self.jobs.clear()

    def close(self) -> None:
        """Do nothing."""


def test_what_is_being_put_in_place_is_not_dropped(tmp_path: Path) -> None:
    """Nobody can stop the rename: to drop the file before it would leave the node with a disk in trouble."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    work = LateWork()
    source, target = SnapshotStore(one), SnapshotStore(two, work=work)
    write(source, b"state")
    reader = source.open_reader()
    target.begin_receive(SnapshotId(LAST[1], LAST[2], reader.size, reader.digest))
    target.write_chunk(reader.read(reader.size))
    reader.close()
    run(target.check_received(None))
    work.is_late = True
    assert not target.put_received_in_place()
    target.abort_receive()
    assert target.is_busy
    assert not target.put_received_in_place()
    work.do()
    assert target.put_received_in_place()
    assert target.incoming is None
    loaded = target.load()
    assert loaded is not None
    assert loaded.state == b"state"
    target.close()


def test_the_node_frees_no_replaced_snapshot(store: SnapshotStore, tmp_path: Path) -> None:
    """A replaced snapshot keeps a name, and with it its blocks, until the next child removes it."""
    snapshot, old = tmp_path / "snapshot", tmp_path / "snapshot.old"
    write(store, b"1")
    assert files_in(tmp_path) == ["snapshot"]
    for state in (b"2", b"3"):
        replaced = snapshot.stat().st_ino
        write(store, state)
        assert old.stat().st_ino == replaced
        assert store.load() == Snapshot(PREVIOUS, LAST, state)
    store.begin_write(LAST, PREVIOUS, b"", wait_for_ever)
    wait_until(lambda: not old.exists())
    assert store.load() == Snapshot(PREVIOUS, LAST, b"3")


def test_a_received_snapshot_frees_no_replaced_one(tmp_path: Path) -> None:
    """What comes from a peer is put in place as what the child wrote."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    child = Child()
    source, target = SnapshotStore(one), SnapshotStore(two, child=child)
    write(source, b"newer")
    write(target, b"older")
    replaced = (two / "snapshot").stat().st_ino
    send(source, target, 100)
    assert (two / "snapshot.old").stat().st_ino == replaced
    send(source, target, 100)
    assert (two / "snapshot.old").stat().st_ino == replaced, "one old snapshot is enough"
    assert target.load() == source.load()


def test_a_file_system_without_links_is_served(
    store: SnapshotStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot is put in place although the replaced one cannot be kept."""
    write(store, b"old")

    def fail(_files: Files, _path: Path, _name: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Files, "link", fail)
    write(store, b"new")
    assert store.load() == Snapshot(PREVIOUS, LAST, b"new")
    assert files_in(tmp_path) == ["snapshot"]


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    """A new store begins with the snapshot alone."""
    for name in ("snapshot.17.tmp", "incoming.tmp", "snapshot.old", "snapshot"):
        (tmp_path / name).touch()
    SnapshotStore(tmp_path)
    assert files_in(tmp_path) == ["snapshot"]


def test_closing_ends_the_child(store: SnapshotStore, child: Child, tmp_path: Path) -> None:
    """A node that stops leaves no process and no unfinished file."""
    store.begin_write(LAST, PREVIOUS, b"", wait_for_ever)
    pid = child.pid
    store.begin_receive(announced(bytes(100)))
    store.close()
    assert not Path("/proc", str(pid)).exists()
    assert files_in(tmp_path) == []


def test_a_header_that_lies_too_deep_is_refused() -> None:
    """Fields of later releases are not looked at; nested deeper than a decoder goes, they are damage."""
    disk, path = CrashDisk(), Path("/data/snapshot")
    header = msgspec.msgpack.encode(snapshot_format.SnapshotHeader((b"", 1, 1), (b"", 2, 1), 0))
    header = bytes([header[0] + 1]) + header[1:] + b"\x91" * 3000 + b"\xc0"
    prefix = struct.pack("<8sII", snapshot_format.MAGIC, snapshot_format.FORMAT_VERSION, len(header))
    disk.put(path, prefix + header + bytes(snapshot_format.DIGEST_BYTES))
    with pytest.raises(SnapshotDamaged, match="its header cannot be read"):
        snapshot_format.read_header(disk.open(path), disk)
