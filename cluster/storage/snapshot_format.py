"""The snapshot's format on disk and on the wire: bytes in, a verified `Snapshot` out.

    magic 8 | format version u32 | header length u32 | header (MessagePack) | state | blake2b-256 of all
    before

The header holds the last two log entries that the state contains, because the Raft library's log begins with
them. A snapshot that does not verify is never used: a replica with a wrong state is worse than one that is
down.
"""

import hashlib
import struct
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from cluster.storage.files import Files
from cluster.storage.journal_format import LogEntry

FORMAT_VERSION: Final = 1
"""The version of the file format."""
MAGIC: Final = b"HOLDFSNP"
DIGEST_BYTES: Final = 32
WRITE_BYTES: Final = 1024 * 1024
"""Bytes that are written and synced at once: the journal's next sync would wait behind one large sync."""

_PREFIX: Final = struct.Struct("<8sII")
_HEADER_BYTES_MAX: Final = 64 << 20
"""Bytes of the longest header: two entries and a member list. A longer one is damage."""


class SnapshotDamaged(Exception):
    """The bytes are not a whole, undamaged snapshot of this format."""


class Snapshot(msgspec.Struct, frozen=True):
    """A state with the last two entries that it contains; `state` is the machine's own encoding.

    `members` is the member list as of `last`, in the replica's own encoding. `decoded` is what the host made
    of a received state before it counted; `state` is empty then. `log_digest` is the digest of the log up to
    `last`, None if it was not known.
    """

    previous: LogEntry
    last: LogEntry
    state: bytes
    members: bytes = b""
    decoded: object = None
    log_digest: int | None = None


class SnapshotId(NamedTuple):
    """Which bytes: two nodes at one index may have encoded them differently. The digest is the stored one."""

    last_index: int
    last_term: int
    size_bytes: int
    digest: bytes


class SnapshotHeader(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot file says of itself. Later fields come at the end, with a default."""

    previous: LogEntry
    last: LogEntry
    state_bytes: int
    members: bytes = b""
    log_digest: int | None = None


class Digest(Protocol):
    """A digest that is being made, as those of hashlib are."""

    def update(self, data: bytes, /) -> None:
        """Take the next bytes into account."""

    def digest(self) -> bytes:
        """Return it."""


def write_snapshot(path: Path, snapshot: Snapshot, files: Files) -> None:
    """Write `snapshot` to the new file `path` and sync it. Raises OSError."""
    header = msgspec.msgpack.encode(
        SnapshotHeader(
            snapshot.previous, snapshot.last, len(snapshot.state), snapshot.members, snapshot.log_digest
        )
    )
    head = _PREFIX.pack(MAGIC, FORMAT_VERSION, len(header)) + header
    write_sealed(path, head, snapshot.state, hashlib.blake2b(digest_size=DIGEST_BYTES), files)


def write_sealed(path: Path, head: bytes, state: bytes, digest: Digest, files: Files) -> None:
    """Write head, state and the digest of both to the new file `path`, and sync it. Raises OSError."""
    parts = memoryview(state)
    fd = files.create(path)
    try:
        digest.update(head)
        files.write(fd, head)
        for start in range(0, len(parts), WRITE_BYTES):
            part = bytes(parts[start : start + WRITE_BYTES])
            digest.update(part)
            files.write(fd, part)
            files.fdatasync(fd)
        files.write(fd, digest.digest())
        files.fdatasync(fd)
    finally:
        files.close(fd)


def read_header(fd: int, files: Files) -> tuple[SnapshotHeader, bytes]:
    """Return the header of an open snapshot file, and all bytes before its state. Raises SnapshotDamaged.

    It is to be believed once the digest of these bytes and the state has been found right. Neither is read
    again then.
    """
    prefix = files.read_at(fd, _PREFIX.size, 0)
    if len(prefix) < _PREFIX.size or not prefix.startswith(MAGIC):
        message = "it is not a snapshot"
        raise SnapshotDamaged(message)
    _, version, header_bytes = _PREFIX.unpack(prefix)
    if version != FORMAT_VERSION:
        message = f"it has format {version}; this release reads format {FORMAT_VERSION}"
        raise SnapshotDamaged(message)
    if header_bytes > _HEADER_BYTES_MAX:
        message = f"its header has {header_bytes} bytes"
        raise SnapshotDamaged(message)
    encoded = files.read_at(fd, header_bytes, _PREFIX.size)
    try:
        header = msgspec.msgpack.decode(encoded, type=SnapshotHeader)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"its header cannot be read: {error}"
        raise SnapshotDamaged(message) from error
    state_bytes = files.size(fd) - _PREFIX.size - header_bytes - DIGEST_BYTES
    if header.state_bytes != state_bytes:
        message = f"it holds {state_bytes} bytes of state; its header says {header.state_bytes}"
        raise SnapshotDamaged(message)
    return header, prefix + encoded


def read_snapshot(fd: int, files: Files) -> Snapshot:
    """Return the verified snapshot of an open file; its state is in memory once. Raises SnapshotDamaged."""
    header, before = read_header(fd, files)
    state = files.read_at(fd, header.state_bytes, len(before))
    digest = hashlib.blake2b(before, digest_size=DIGEST_BYTES)
    digest.update(state)
    if digest.digest() != stored_digest(fd, files):
        message = "its checksum does not match"
        raise SnapshotDamaged(message)
    return Snapshot(header.previous, header.last, state, header.members, log_digest=header.log_digest)


def stored_digest(fd: int, files: Files) -> bytes:
    """Return the digest that an open snapshot file ends with."""
    return files.read_at(fd, DIGEST_BYTES, max(0, files.size(fd) - DIGEST_BYTES))
