"""The data directory belongs to one process and one node, and says so when it does not."""

import contextlib
import errno
import itertools
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from cluster.errors import DataDirError, DataDirUnknown, advice_on
from cluster.storage.cluster_record import ClusterRecord, Founder, Founding
from cluster.storage.data_directory import DataDir
from cluster.storage.files import Files, LookingFiles
from cluster.storage.journal import Journal
from cluster.storage.recovery import segment_path
from tests.unit.cluster.storage.crash_disk import Crash, CrashDisk

DIRECTORY = Path("/data")


def test_a_new_directory_is_private_and_gets_a_random_disk_id(tmp_path: Path) -> None:
    """Two directories never share an id, and nobody else may read them."""
    one = DataDir.open(tmp_path / "deep" / "one", "node-a")
    two = DataDir.open(tmp_path / "two", "node-a")
    assert one.path.stat().st_mode & 0o777 == 0o700
    assert len(one.disk_id) == 32
    assert int(one.disk_id, 16) != int(two.disk_id, 16)
    one.close()
    two.close()


BEFORE_1_0_0 = (
    b'{"content":{"format":1,"node_id":"n1","disk_id":"c0d8160395d4b6a447046736207efb68"},"crc32":1919800479}'
)
"""The identity that a version before 1.0.0 has written."""
LATER = b'{"content":{"format":2,"owner":"n1","directory_format":2},"crc32":223783732}'
"""One that a later release might write."""


@pytest.mark.parametrize(
    ("identity", "said"), [(BEFORE_1_0_0, "was written before release 1.0.0"), (LATER, "has format 2")]
)
def test_what_another_release_wrote_is_refused_and_stays_as_it_is(
    identity: bytes, said: str, tmp_path: Path
) -> None:
    """In one sentence, with the exit code of a wrong setting; no file is made."""
    (tmp_path / "identity.json").write_bytes(identity)
    (tmp_path / "journal-0000000000000001.log").write_bytes(b"whatever it is")
    with pytest.raises(
        DataDirUnknown, match=f"{said}, and this release reads format 1 alone: use"
    ) as refused:
        DataDir.open(tmp_path, "n1")
    assert refused.value.exit_code == 2
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {
        "identity.json": identity,
        "journal-0000000000000001.log": b"whatever it is",
    }


def test_the_identity_and_the_known_peers_survive(tmp_path: Path) -> None:
    """What was remembered is there at the next start; what was forgotten is not."""
    data_dir = DataDir.open(tmp_path, "node-a")
    disk_id = data_dir.disk_id
    data_dir.remember("node-b", "b" * 32)
    data_dir.remember("node-c", "c" * 32)
    data_dir.remember("node-c", "c" * 32)
    data_dir.forget("node-b")
    Journal.open(tmp_path).close()
    data_dir.close()
    again = DataDir.open(tmp_path, "node-a")
    assert again.disk_id == disk_id
    assert again.known == {"node-c": "c" * 32}
    again.close()


def test_a_known_disk_id_does_not_change_by_itself(tmp_path: Path) -> None:
    """Remembering another disk id for a known peer is a bug of the caller."""
    data_dir = DataDir.open(tmp_path, "node-a")
    data_dir.remember("node-b", "b" * 32)
    with pytest.raises(AssertionError, match="node-b"):
        data_dir.remember("node-b", "d" * 32)
    assert data_dir.known == {"node-b": "b" * 32}
    data_dir.close()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    """The message names the directory. Only the end of the first process frees it, no deleted file."""
    program = (
        "import sys, pathlib; from cluster.storage.data_directory import DataDir;"
        "d = DataDir.open(pathlib.Path(sys.argv[1]), 'node-a');"
        "print(d.disk_id, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    root = Path(__file__).parents[3]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=root, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        disk_id = holder.stdout.readline().strip()
        with pytest.raises(DataDirError) as caught:
            DataDir.open(tmp_path, "node-a")
        assert f"{tmp_path}: the data directory is in use" in str(caught.value)
        (tmp_path / "identity.json").rename(tmp_path / "kept")
        with pytest.raises(DataDirError, match="in use"):
            DataDir.open(tmp_path, "node-a")
        (tmp_path / "kept").rename(tmp_path / "identity.json")
        holder.stdin.close()
    data_dir = DataDir.open(tmp_path, "node-a")
    assert data_dir.disk_id == disk_id
    data_dir.close()


def test_the_lock_is_not_inherited_and_ends_with_close(tmp_path: Path) -> None:
    """A program started by the node does not keep the lock; closing frees it at once."""
    data_dir = DataDir.open(tmp_path, "node-a")
    assert not os.get_inheritable(data_dir._lock_fd)
    with pytest.raises(DataDirError, match="in use"):
        DataDir.open(tmp_path, "node-a")
    data_dir.close()
    data_dir.close()
    DataDir.open(tmp_path, "node-a").close()


def test_a_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    """The message names both nodes, and the refusal frees the lock."""
    DataDir.open(tmp_path, "node-a").close()
    for _ in range(2):
        with pytest.raises(DataDirError, match="belongs to node 'node-a', not to 'node-b'"):
            DataDir.open(tmp_path, "node-b")


RECORD = ClusterRecord(
    cluster_id="c" * 32,
    founding=Founding("c" * 32, {"node-a": Founder("127.0.0.1:1", "a" * 32)}),
    is_complete=True,
)


def test_the_cluster_is_remembered(tmp_path: Path) -> None:
    """What is stored of the founding is there after a restart; a new directory belongs to no cluster."""
    data_dir = DataDir.open(tmp_path, "node-a")
    assert (data_dir.cluster_id, data_dir.cluster) == ("", ClusterRecord())
    data_dir.store_cluster(RECORD)
    assert (data_dir.cluster_id, data_dir.cluster) == ("c" * 32, RECORD)
    data_dir.close()
    Journal.open(tmp_path).close()
    again = DataDir.open(tmp_path, "node-a")
    assert (again.cluster_id, again.cluster) == ("c" * 32, RECORD)
    again.close()


def test_a_cluster_without_an_identity_is_refused(tmp_path: Path) -> None:
    """Who has lost its identity but knows its cluster gets no new disk id."""
    data_dir = DataDir.open(tmp_path, "node-a")
    data_dir.store_cluster(RECORD)
    data_dir.close()
    (tmp_path / "identity.json").unlink()
    with pytest.raises(DataDirError, match=r"identity.json is missing"):
        DataDir.open(tmp_path, "node-a")


FILES = ["identity.json", "cluster.json"]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"content":{"format":1,"disk_ids":{}},"crc32":1}'])
def test_what_only_caches_is_made_anew(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged list of the peers met stops no node: those that count are in the member list."""
    with contextlib.closing(DataDir.open(tmp_path, "n1")) as directory:
        Journal.open(tmp_path, directory.disk_id).close()
        directory.remember("n2", "2" * 32)
    (tmp_path / "peers.json").write_bytes(content)
    with contextlib.closing(DataDir.open(tmp_path, "n1")) as directory:
        assert directory.known == {}
        directory.remember("n2", "2" * 32)
    with contextlib.closing(DataDir.open(tmp_path, "n1")) as directory:
        assert directory.known == {"n2": "2" * 32}
    assert caplog.text.count("event=peers-forgotten") == 1


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 1}', b'{"format": "\xff"}'])
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    """A file that cannot be read stops the node with its name."""
    data_dir = DataDir.open(tmp_path, "node-a")
    data_dir.remember("node-b", "b" * 32)
    data_dir.store_cluster(RECORD)
    data_dir.close()
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataDirError, match=f"{name} is damaged"):
        DataDir.open(tmp_path, "node-a")


@pytest.mark.parametrize("name", FILES)
def test_no_flipped_bit_passes_for_another_disk(tmp_path: Path, name: str) -> None:
    """Whichever bit of a file is flipped, the node refuses to start, or it reads what was written."""
    data_dir = DataDir.open(tmp_path, "node-a")
    data_dir.remember("node-b", "b" * 32)
    data_dir.store_cluster(RECORD)
    disk_id = data_dir.disk_id
    data_dir.close()
    Journal.open(tmp_path).close()
    content = (tmp_path / name).read_bytes()
    refused = 0
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        (tmp_path / name).write_bytes(flipped)
        try:
            again = DataDir.open(tmp_path, "node-a")
        except DataDirUnknown:
            pytest.fail("damage is taken for what another release wrote")
        except DataDirError:
            refused += 1
        else:
            assert (again.disk_id, again.known) == (disk_id, {"node-b": "b" * 32})
            assert again.cluster == RECORD
            again.close()
    assert refused > 7 * len(content)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    """A file of a later release is not guessed at."""
    DataDir.open(tmp_path, "node-a").close()
    content = b'{"format": 2, "node_id": "node-a", "disk_id": "00", "directory_format": 1}'
    checked = b'{"content": %s, "crc32": %d}' % (content, zlib.crc32(content))
    (tmp_path / "identity.json").write_bytes(checked)
    with pytest.raises(DataDirError, match="format 2"):
        DataDir.open(tmp_path, "node-a")


def test_a_directory_of_another_group_is_refused(tmp_path: Path) -> None:
    """Each Raft group has directories of its own."""
    DataDir.open(tmp_path, "node-a").close()
    assert b'"group":0' in (tmp_path / "identity.json").read_bytes()
    content = b'{"format": 1, "node_id": "node-a", "disk_id": "00", "group": 7, "directory_format": 1}'
    checked = b'{"content": %s, "crc32": %d}' % (content, zlib.crc32(content))
    (tmp_path / "identity.json").write_bytes(checked)
    with pytest.raises(DataDirError, match="belongs to Raft group 7, not to group 0"):
        DataDir.open(tmp_path, "node-a")


def test_a_journal_without_identity_is_refused(tmp_path: Path) -> None:
    """Somebody deleted the identity: the node must not invent a new one for old data."""
    DataDir.open(tmp_path, "node-a").close()
    Journal.open(tmp_path).close()
    (tmp_path / "identity.json").unlink()
    with pytest.raises(DataDirError, match=r"identity\.json is missing"):
        DataDir.open(tmp_path, "node-a")


def test_an_identity_without_journal_is_refused_once_peers_are_known(tmp_path: Path) -> None:
    """A node that has met peers may have voted: without its journal it must not start."""
    data_dir = DataDir.open(tmp_path, "node-a")
    Journal.open(tmp_path).close()
    data_dir.remember("node-b", "b" * 32)
    data_dir.close()
    for segment in tmp_path.glob("journal-*.log"):
        segment.unlink()
    with pytest.raises(DataDirError, match="journal is missing"):
        DataDir.open(tmp_path, "node-a")


def test_a_snapshot_without_journal_is_refused(tmp_path: Path) -> None:
    """A journal is older than any snapshot: without it the entries behind the snapshot would be forgotten."""
    DataDir.open(tmp_path, "node-a").close()
    (tmp_path / "snapshot").touch()
    with pytest.raises(DataDirError, match="journal is missing"):
        DataDir.open(tmp_path, "node-a")


def test_a_cluster_without_journal_is_refused(tmp_path: Path) -> None:
    """A node that founded its cluster, alone or not, may have given tokens that it would give again."""
    data_dir = DataDir.open(tmp_path, "node-a")
    Journal.open(tmp_path).close()
    founding = Founding("c" * 32, {"node-a": Founder("127.0.0.1:7800", data_dir.disk_id)})
    data_dir.store_cluster(ClusterRecord(cluster_id="c" * 32, founding=founding, is_complete=True))
    data_dir.close()
    DataDir.open(tmp_path, "node-a").close()
    for segment in tmp_path.glob("journal-*.log"):
        segment.unlink()
    with pytest.raises(DataDirError, match="journal is missing"):
        DataDir.open(tmp_path, "node-a")


def test_root_leaves_nothing_in_the_directory_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node of that user could not read it. A start, a check and a restore are refused alike."""
    if os.geteuid() == 0:
        os.chown(tmp_path, 7700, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for files in (Files(), LookingFiles()):
        with pytest.raises(DataDirError, match=r"belongs to the user .* run this as that user") as refused:
            DataDir.open(tmp_path, "node-a", files=files)
        assert advice_on(refused.value) == ""
    assert list(tmp_path.iterdir()) == []


class RecordingFiles(Files):
    """The real disk, with a list of the directories that were synced; may run out of space."""

    def __init__(self) -> None:
        self.synced: list[Path] = []
        self.is_full = False
        self.refused: Path | None = None
        self.refused_with = 0

    def fsync_dir(self, directory: Path) -> None:
        """Note and sync, or refuse."""
        if directory == self.refused:
            raise OSError(self.refused_with, os.strerror(self.refused_with))
        self.synced.append(directory)
        super().fsync_dir(directory)

    def write(self, fd: int, data: bytes) -> None:
        """Write, or fail."""
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(fd, data)


def test_the_names_of_all_new_directories_are_durable(tmp_path: Path) -> None:
    """With the name of a parent everything below it would be lost: votes, log and identity."""
    files = RecordingFiles()
    DataDir.open(tmp_path / "one" / "two" / "three", "node-a", files=files).close()
    new = {tmp_path, tmp_path / "one", tmp_path / "one" / "two"}
    assert new <= set(files.synced)
    files.synced.clear()
    DataDir.open(tmp_path / "one" / "two" / "three", "node-a", files=files).close()
    assert files.synced == []


class UnsureNames(Files):
    """The real disk, with a list of the directories whose names are not durable; stops at an operation."""

    def __init__(self) -> None:
        self.unsure: set[Path] = set()
        self.stop_at = 0
        self.stop_with: BaseException = Crash()

    def make_directory(self, path: Path) -> None:
        """Make a directory whose name a loss of power would take."""
        self._count()
        super().make_directory(path)
        self.unsure.add(path)

    def fsync_dir(self, directory: Path) -> None:
        """Make the names in a directory durable."""
        self._count()
        super().fsync_dir(directory)
        self.unsure = {path for path in self.unsure if path.parent != directory}

    def _count(self) -> None:
        self.stop_at -= 1
        if self.stop_at == 0:
            raise self.stop_with


@pytest.mark.parametrize("stop_with", [Crash(), OSError(errno.EIO, "no"), MemoryError()], ids=repr)
@pytest.mark.parametrize("stop_at", range(1, 8))
def test_names_that_a_failed_start_left_are_made_durable(
    tmp_path: Path, stop_at: int, stop_with: BaseException
) -> None:
    """Directories that are there already may have been made a moment ago, by a start that did not get far."""
    files = UnsureNames()
    files.stop_at, files.stop_with = stop_at, stop_with
    path = tmp_path / "one" / "two" / "three"
    with pytest.raises((Crash, DataDirError, MemoryError)):
        DataDir.open(path, "node-a", files=files)
    DataDir.open(path, "node-a", files=files).close()
    assert path.is_dir()
    assert not files.unsure


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL])
def test_a_directory_above_that_cannot_be_synced_does_no_harm(tmp_path: Path, number: int) -> None:
    """Where this user may not write, or nobody, or names are on no disk, none is lost; else one may be."""
    files = RecordingFiles()
    files.refused, files.refused_with = tmp_path.parent, number
    DataDir.open(tmp_path / "one" / "two", "node-a", files=files).close()
    assert {tmp_path, tmp_path / "one"} <= set(files.synced)
    files.refused_with = errno.EIO
    with pytest.raises(DataDirError, match="cannot be used"):
        DataDir.open(tmp_path / "one" / "three", "node-a", files=files)


def test_a_full_disk_does_not_keep_the_lock(tmp_path: Path) -> None:
    """A start that fails for lack of space is refused clearly and can be repeated in the same process."""
    files = RecordingFiles()
    files.is_full = True
    with pytest.raises(DataDirError, match=r"cannot be read or written: .*No space left"):
        DataDir.open(tmp_path, "node-a", files=files)
    files.is_full = False
    DataDir.open(tmp_path, "node-a", files=files).close()


def test_a_crash_anywhere_keeps_what_was_remembered() -> None:
    """Kill or loss of power at any operation: the disk id once used and the peers remembered stay."""
    for crash_at, power in itertools.product(range(1, 60), (None, Random(1), Random(2), Random(3))):
        disk = CrashDisk(crash_at)
        disk_ids: list[str] = []
        remembered: dict[str, str] = {}
        attempted: dict[str, str] = {}
        with contextlib.suppress(Crash):
            data_dir = DataDir.open(DIRECTORY, "node-a", files=disk)
            disk_ids.append(data_dir.disk_id)
            Journal.open(DIRECTORY, files=disk)
            for peer in ("node-b", "node-c"):
                attempted = {**remembered, peer: peer * 4}
                data_dir.remember(peer, peer * 4)
                remembered = attempted
            attempted = {"node-c": "node-c" * 4}
            data_dir.forget("node-b")
            remembered = attempted
        disk.reboot(power)
        again = DataDir.open(DIRECTORY, "node-a", files=disk)
        assert again.known in (remembered, attempted)
        assert [again.disk_id] == disk_ids or not disk_ids


def test_the_advice_for_a_damaged_directory_is_safe(tmp_path: Path) -> None:
    """An old copy would forget votes: what is advised is what docs/operating.md allows."""
    DataDir.open(tmp_path, "node-a").close()
    (tmp_path / "identity.json").write_bytes(b"{")
    with pytest.raises(
        DataDirError, match=r"a copy made after the node's last stop \(an older one is unsafe"
    ):
        DataDir.open(tmp_path, "node-a")


def test_a_path_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    """A wrong path is a clear message, not a traceback."""
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(DataDirError, match="cannot be used"):
        DataDir.open(file, "node-a")


def test_a_node_that_joined_is_no_founder_later(tmp_path: Path) -> None:
    """What a new directory was made for stays with it, whatever the flags of a later start say."""
    DataDir.open(tmp_path / "joined", "n4", joins=True).close()
    again = DataDir.open(tmp_path / "joined", "n4")
    assert again.identity.joins
    again.close()


def test_a_founder_does_not_join(tmp_path: Path) -> None:
    """The directory of a node that has voted is refused under --join: it would count for nothing there."""
    DataDir.open(tmp_path, "n1").close()
    with contextlib.closing(journal_in(tmp_path)) as journal:
        journal.set_vote(1, "n1")
        journal.sync()
    with pytest.raises(DataDirError, match="without --join"):
        DataDir.open(tmp_path, "n1", joins=True)
    DataDir.open(tmp_path, "n1").close()


def _founding(directory: DataDir) -> None:
    founders = {"n1": Founder("h:1", directory.disk_id), "n2": Founder("h:2", "2" * 32)}
    directory.store_cluster(ClusterRecord(founding=Founding("c" * 32, founders)))


@pytest.mark.parametrize(
    "remember",
    [_founding, lambda directory: directory.remember("n2", "2" * 32)],
    ids=["its-founding", "a-peer"],
)
def test_a_founder_that_remembers_anything_does_not_join(
    tmp_path: Path, remember: Callable[[DataDir], None]
) -> None:
    """A part in a founding, or a peer met, is enough to keep the directory for what it was made for."""
    with contextlib.closing(DataDir.open(tmp_path, "n1")) as directory:
        remember(directory)
    Journal.open(tmp_path).close()
    with pytest.raises(DataDirError, match="without --join"):
        DataDir.open(tmp_path, "n1", joins=True)


def test_a_founder_that_never_took_part_joins_with_another_disk_id(tmp_path: Path) -> None:
    """A directory without vote, log, founding or peers counts as new, also one that the peers refused."""
    founder = DataDir.open(tmp_path, "n1")
    with contextlib.closing(Journal.open(tmp_path, founder.disk_id)) as journal:
        journal.add(b"", 1, 0)
        journal.sync()
    founder.remember_refusal("known with another disk")
    founder.close()
    with contextlib.closing(DataDir.open(tmp_path, "n1", joins=True)) as joining:
        assert joining.identity.joins
        assert joining.disk_id != founder.disk_id
    with contextlib.closing(DataDir.open(tmp_path, "n1", joins=True)) as again:
        assert again.disk_id == joining.disk_id
    journal_in(tmp_path).close()


def journal_in(path: Path) -> Journal:
    """Open the journal of a data directory that is not in use."""
    with contextlib.closing(DataDir.open(path, "n1")) as directory:
        return Journal.open(path, directory.disk_id)


def test_the_journal_of_another_directory_is_refused(tmp_path: Path) -> None:
    """Whoever copies a healthy node's journal into another's directory is told; nothing is changed."""
    for name in ("one", "two"):
        DataDir.open(tmp_path / name, "n1").close()
        journal_in(tmp_path / name).close()
    own, others = (segment_path(tmp_path / name, 1) for name in ("one", "two"))
    content = others.read_bytes()
    own.write_bytes(content)
    with pytest.raises(DataDirError, match=r"was written in another data directory \(disk .* Do not delete"):
        journal_in(tmp_path / "one")
    assert own.read_bytes() == content
