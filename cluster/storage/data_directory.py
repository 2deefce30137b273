"""The data directory of one node: who may use it, whose it is, and which peers' directories it has met.

A Raft node that forgets its vote or its log breaks the cluster's promises. So the directory is locked against
a second process, remembers which node it belongs to, and carries a random disk id which the peers remember: a
node that comes back under its old name with another, empty directory is recognised and refused.
"""

import errno
import logging
import secrets
import zlib
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from cluster.errors import DataDirError, DataDirUnknown, IdentityRefused, NodeFailed
from cluster.storage.cluster_record import CLUSTER_NAME, ClusterRecord
from cluster.storage.files import Files, replace_file
from cluster.storage.recovery import list_segments, recover
from cluster.storage.snapshot_store import SNAPSHOT_NAME
from lockstate.words.versions import GROUP

logger = logging.getLogger(__name__)

FORMAT: Final = 1
"""The format of the JSON files in the directory."""
DIRECTORY_FORMAT: Final = 1
"""The format of the directory as a whole, with what stands in its journal and its snapshots."""
IDENTITY_NAME: Final = "identity.json"
PEERS_NAME: Final = "peers.json"
REFUSAL_NAME: Final = "refused.json"

_NOT_OURS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL})
"""Errors of directories in which this user, or anybody, can make no names: there are none to be lost. EINVAL
comes from file systems that sync no directories: squashfs below a live system, autofs above a mounted one."""
_FOLLOWING_FIRST: Final = 2
"""The index behind the entry with which every log begins."""

_REPLACE_ADVICE = (
    "Restore the directory from a copy made after the node's last stop (an older one is unsafe), or replace"
    " this node with a new one (new id, empty directory)"
)


class Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The owner of a directory. `disk_id` is 32 random hexadecimal digits, made once.

    `joins` says that the node was made to join a running cluster, and is not a founder of a new one. `group`
    is the Raft group.
    """

    format: int
    node_id: str
    disk_id: str
    joins: bool = False
    group: int = GROUP
    directory_format: int = DIRECTORY_FORMAT


class _Peers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    disk_ids: dict[str, str]


class _Checked(msgspec.Struct, frozen=True):
    """What a JSON file of ours holds: the content, and the crc32 of its bytes.

    A flipped digit of a disk id would make this node, or a healthy peer, look like one that lost its disk.
    """

    content: msgspec.Raw
    crc32: int


class _Format(msgspec.Struct, frozen=True):
    format: int


class _DirectoryFormat(msgspec.Struct, frozen=True):
    """What is looked at first. What was written before release 1.0.0 does not say it."""

    directory_format: int = 0


class _Refusal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why this directory must never take part again. It counts for the disk id that was refused only."""

    format: int
    disk_id: str
    reason: str


_Stored = TypeVar("_Stored", Identity, _Peers, ClusterRecord, _Refusal)
_T = TypeVar("_T")


class DataDir:
    """An exclusively locked data directory. One per process and directory; close it to free the lock."""

    def __init__(
        self,
        path: Path,
        identity: Identity,
        known: dict[str, str],
        *,
        cluster: ClusterRecord,
        lock_fd: int,
        files: Files,
    ) -> None:
        """Use `DataDir.open`."""
        self.path = path
        self.identity = identity
        self.cluster = cluster
        """What this directory knows of its cluster; changed by `store_cluster`."""
        self._known = known
        self._is_sound = True
        self._lock_fd = lock_fd
        self._files = files

    @classmethod
    def open(cls, path: Path, node_id: str, *, joins: bool = False, files: Files | None = None) -> "DataDir":
        """Take the directory for `node_id`, creating it if it is not there. Raises DataDirError.

        `joins` is remembered in a new directory, and refused for one that was made without it, unless that
        never came to hold anything.
        """
        files = files or Files()
        try:
            _check_owner(path, files)
            _check_known(path, files)
            _create_directory(path, files)
            lock_fd = _take_lock(path, files)
        except OSError as error:
            message = f"{path}: the data directory cannot be used: {error}"
            raise DataDirError(message) from error
        try:
            identity = _load_identity(path, node_id, files, joins=joins)
            _check_not_refused(path, identity.disk_id, files)
            known = _load_peers(path, files)
            cluster = _load_cluster(path, files)
            is_in_use = known or files.exists(path / CLUSTER_NAME) or files.exists(path / SNAPSHOT_NAME)
            if is_in_use and not list_segments(path, files):
                message = (
                    f"{path}: the journal is missing from a directory that was in use. {_REPLACE_ADVICE}"
                )
                raise DataDirError(message)  # noqa: TRY301 - the lock must be freed on every way out
        except BaseException as error:
            files.close(lock_fd)
            if not isinstance(error, OSError):
                raise
            message = f"{path}: the data directory cannot be read or written: {error}"
            raise DataDirError(message) from error
        return cls(path, identity, known, cluster=cluster, lock_fd=lock_fd, files=files)

    @property
    def disk_id(self) -> str:
        """The random id of this directory."""
        return self.identity.disk_id

    @property
    def cluster_id(self) -> str:
        """The id of the cluster that this directory belongs to; empty until that is certain."""
        return self.cluster.cluster_id

    def store_cluster(self, record: ClusterRecord) -> None:
        """Remember what this node knows of its cluster; durable before return. Raises OSError."""
        if record != self.cluster:
            self._store(CLUSTER_NAME, _encode(record))
            self.cluster = record

    @property
    def known(self) -> dict[str, str]:
        """The remembered disk id of each peer met so far (a copy)."""
        return dict(self._known)

    def remember(self, peer_id: str, disk_id: str) -> None:
        """Remember the peer's disk id; durable before return. A known id changes only through `forget`.

        Raises OSError when the disk fails, and NodeFailed from then on.
        """
        if self._known.get(peer_id) == disk_id:
            return
        assert peer_id not in self._known, f"{peer_id} is remembered with another disk id"
        self._store_peers({**self._known, peer_id: disk_id})

    def forget(self, peer_id: str) -> None:
        """Forget the peer's disk id, when it left the cluster or was replaced; durable before return."""
        if peer_id in self._known:
            self._store_peers({other: known for other, known in self._known.items() if other != peer_id})

    def remember_refusal(self, reason: str) -> None:
        """Never take part again, as the cluster has refused this directory for good; durable before return.

        Raises OSError when the disk fails, and NodeFailed from then on.
        """
        self._store(REFUSAL_NAME, _encode(_Refusal(FORMAT, self.disk_id, reason)))

    def close(self) -> None:
        """Free the lock. Idempotent."""
        fd, self._lock_fd = self._lock_fd, -1
        if fd >= 0:
            self._files.close(fd)

    def _store_peers(self, disk_ids: dict[str, str]) -> None:
        self._store(PEERS_NAME, _encode(_Peers(FORMAT, disk_ids)))
        self._known = disk_ids

    def _store(self, name: str, content: bytes) -> None:
        """Replace a file, durably. After a failure nothing is stored: what the file says is unknown."""
        if not self._is_sound:
            raise NodeFailed(f"{self.path}: a file of the data directory could not be replaced before")
        self._is_sound = False
        replace_file(self._files, self.path / name, content)
        self._is_sound = True


def owner_of(path: Path, files: Files) -> str:
    """Return the node that a directory belongs to. Raises DataDirError."""
    file = path / IDENTITY_NAME
    if not files.exists(file):
        raise DataDirError(f"{path}: is not the data directory of a node: it has no {IDENTITY_NAME}")
    _check_known(path, files)
    return _decode(file, Identity, files).node_id


def _check_owner(path: Path, files: Files) -> None:
    """Refuse root the directory of another user. Raises DataDirError.

    A start or a restore by hand as root would leave files that the node of that user cannot read.
    """
    if owner := files.other_owner(path):
        raise DataDirError(
            f"{path}: the data directory belongs to the user {owner}, who could not read what root writes"
            f" there: run this as that user (`setpriv --reuid {owner} --regid {owner} --init-groups COMMAND`)"
        )


def _check_known(path: Path, files: Files) -> None:
    """Refuse a directory that another release wrote, before anything is changed.

    Raises DataDirUnknown; DataDirError for a damaged identity.
    """
    file = path / IDENTITY_NAME
    if not files.exists(file):
        return
    found = _parsed(file, _verified(file, files), _DirectoryFormat).directory_format
    if found != DIRECTORY_FORMAT:
        written = f"has format {found}" if found else "was written before release 1.0.0"
        message = (
            f"{path}: the data directory {written}, and this release reads format {DIRECTORY_FORMAT} alone:"
            " use the release that wrote it, or give this node an empty directory"
        )
        raise DataDirUnknown(message)


def _create_directory(path: Path, files: Files) -> None:
    """Create the directory, and those above it, with durable names; what exists is left as it is.

    Every name must be durable: losing that of a parent would lose all below it. A directory that is there may
    have been made a moment ago, by a start that ended before its name was durable. Only the identity in it
    says that one got further.
    """
    if files.exists(path / IDENTITY_NAME):
        return
    for directory in reversed((path, *path.parents)):
        if not files.is_directory(directory):
            files.make_directory(directory)
    for directory in path.parents:
        try:
            files.fsync_dir(directory)
        except OSError as error:
            if error.errno not in _NOT_OURS:
                raise


def _take_lock(path: Path, files: Files) -> int:
    """Return the descriptor that holds the lock. It ends with the process; children do not inherit it."""
    try:
        return files.lock(path)
    except BlockingIOError:
        raise in_use(path) from None  # the disk is sound: no advice on disks belongs to this


def in_use(path: Path) -> DataDirError:
    """Return what a start is told whose directory another process has."""
    return DataDirError(
        f"{path}: the data directory is in use by another process (`fuser {path}` shows its pid). Stop that"
        " node first, or give this one a directory of its own"
    )


def _load_identity(path: Path, node_id: str, files: Files, *, joins: bool) -> Identity:
    """Return the directory's identity, made now if the directory is new."""
    file = path / IDENTITY_NAME
    if not files.exists(file):
        if list_segments(path, files) or any(
            files.exists(path / name) for name in (PEERS_NAME, CLUSTER_NAME)
        ):
            message = f"{file} is missing from a directory that was in use. {_REPLACE_ADVICE}"
            raise DataDirError(message)
        return _new_identity(path, node_id, files, joins=joins)
    identity = _decode(file, Identity, files)
    if joins and not identity.joins and _is_blank(path, identity.disk_id, files):
        logger.info("event=blank-directory-joins path=%s disk_before=%s", path, identity.disk_id[:8])
        for segment in list_segments(path, files):
            files.unlink(segment.path)
        return _new_identity(path, node_id, files, joins=True)
    if identity.node_id != node_id:
        message = (
            f"{path}: the data directory belongs to node {identity.node_id!r}, not to {node_id!r}. Correct"
            " the node id or the directory in the configuration"
        )
        raise DataDirError(message)
    if identity.group != GROUP:
        message = f"{path}: the data directory belongs to Raft group {identity.group}, not to group {GROUP}"
        raise DataDirError(message)
    if joins and not identity.joins:
        message = (
            f"{path}: the data directory is that of a founder of its cluster. Start it without --join, or, to"
            " join another cluster, with a new directory"
        )
        raise DataDirError(message)
    return identity


def _new_identity(path: Path, node_id: str, files: Files, *, joins: bool) -> Identity:
    """Return an identity with a disk id that nobody has met, durable before return."""
    identity = Identity(FORMAT, node_id, secrets.token_hex(16), joins)
    replace_file(files, path / IDENTITY_NAME, _encode(identity))
    return identity


def _is_blank(path: Path, disk_id: str, files: Files) -> bool:
    """Whether the node of this directory never took part. Raises DataDirError for a damaged journal.

    A founder that waits for the others has no vote, no log and no founding on its disk. A node that lost its
    disk and is started with its old settings waits like that until it is refused: to empty its directory once
    more would change nothing, so it counts as empty.
    """
    if any(files.exists(path / name) for name in (PEERS_NAME, CLUSTER_NAME, SNAPSHOT_NAME)):
        return False
    log = recover(path, files, logger, disk_id)
    return log.term == 0 and log.following <= _FOLLOWING_FIRST


def _load_peers(path: Path, files: Files) -> dict[str, str]:
    """Return the disk ids of the peers met so far; none if the file is damaged: it is made anew.

    Whoever counts has its disk in the member list. What is lost is the disk of a node that has yet to count,
    and what that one acknowledges is compared with what it comes with (entry_check).
    """
    file = path / PEERS_NAME
    if not files.exists(file):
        return {}
    try:
        return _decode(file, _Peers, files).disk_ids
    except DataDirError as error:
        logger.warning("event=peers-forgotten detail=%r", str(error))
        return {}


def _load_cluster(path: Path, files: Files) -> ClusterRecord:
    file = path / CLUSTER_NAME
    return _decode(file, ClusterRecord, files) if files.exists(file) else ClusterRecord()


def _check_not_refused(path: Path, disk_id: str, files: Files) -> None:
    """Refuse a directory that the cluster has refused for good. Raises IdentityRefused, DataDirError."""
    file = path / REFUSAL_NAME
    if not files.exists(file):
        return
    refusal = _decode(file, _Refusal, files)
    if refusal.disk_id == disk_id:
        raise IdentityRefused(
            f"{path}: this data directory was refused by its cluster and does not take part again:"
            f" {refusal.reason}"
        )


def _encode(stored: Identity | _Peers | ClusterRecord | _Refusal) -> bytes:
    """Return the bytes of one of our JSON files."""
    content = msgspec.json.encode(stored)
    return msgspec.json.encode(_Checked(msgspec.Raw(content), zlib.crc32(content)))


def _decode(file: Path, stored_type: type[_Stored], files: Files) -> _Stored:
    """Return the content of one of our JSON files. Raises DataDirError naming it."""
    content = _verified(file, files)
    stored_format = _parsed(file, content, _Format).format
    if stored_format != FORMAT:
        message = (
            f"{file} has format {stored_format}; this release reads format {FORMAT}. Use the matching release"
        )
        raise DataDirError(message)
    return _parsed(file, content, stored_type)


def _verified(file: Path, files: Files) -> msgspec.Raw:
    """Return the content of one of our JSON files, whose checksum is right. Raises DataDirError."""
    checked = _parsed(file, files.read(file), _Checked)
    if zlib.crc32(checked.content) != checked.crc32:
        message = f"{file} is damaged: its checksum does not match. {_REPLACE_ADVICE}"
        raise DataDirError(message)
    return checked.content


def _parsed(file: Path, content: bytes | msgspec.Raw, of: type[_T]) -> _T:
    """Return what stands in a file. Raises DataDirError."""
    try:
        return msgspec.json.decode(content, type=of)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"{file} is damaged: {error}. {_REPLACE_ADVICE}"
        raise DataDirError(message) from error
