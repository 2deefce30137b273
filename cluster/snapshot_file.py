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
from typing import Final

import msgspec

from cluster.files import Files
from cluster.records import LogEntry

FORMAT_VERSION: Final = 2
READABLE_VERSIONS: Final = (1, 2)
"""Format 1 had no member list; what it lacks reads as empty."""
MAGIC: Final = b"HOLDFSNP"
DIGEST_BYTES: Final = 32
WRITE_BYTES: Final = 4 * 1024 * 1024
"""Synced piece by piece: one large sync would make the journal's next sync wait behind it."""

_PREFIX: Final = struct.Struct("<8sII")


class SnapshotDamaged(Exception):
    """The bytes are no whole, undamaged snapshot of this format."""


class Snapshot(msgspec.Struct, frozen=True):
    """A state with the last two entries that it contains; `state` is the machine's own encoding.

    `members` is the member list as of `last`, in the replica's own encoding.
    """

    previous: LogEntry
    last: LogEntry
    state: bytes
    members: bytes = b""


class _Header(msgspec.Struct, frozen=True, array_like=True):
    previous: LogEntry
    last: LogEntry
    state_bytes: int
    members: bytes = b""


def write_snapshot(path: Path, snapshot: Snapshot, files: Files) -> None:
    """Write `snapshot` to the new file `path` and sync it. Raises OSError."""
    header = msgspec.msgpack.encode(
        _Header(snapshot.previous, snapshot.last, len(snapshot.state), snapshot.members)
    )
    prefix = _PREFIX.pack(MAGIC, FORMAT_VERSION, len(header)) + header
    digest = hashlib.blake2b(prefix, digest_size=DIGEST_BYTES)
    fd = files.create(path)
    try:
        files.write(fd, prefix)
        for start in range(0, len(snapshot.state), WRITE_BYTES):
            part = snapshot.state[start : start + WRITE_BYTES]
            digest.update(part)
            files.write(fd, part)
            files.fdatasync(fd)
        files.write(fd, digest.digest())
        files.fdatasync(fd)
    finally:
        files.close(fd)


def parse_snapshot(data: bytes, digest: bytes | None = None) -> Snapshot:
    """Return the snapshot that `data` is. Raises SnapshotDamaged.

    `digest` is that of all bytes before the stored one, if the caller has computed it already.
    """
    body = memoryview(data)[:-DIGEST_BYTES]
    if digest is None:
        digest = hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest()
    if len(data) < _PREFIX.size + DIGEST_BYTES or not data.startswith(MAGIC):
        message = "it is no snapshot"
        raise SnapshotDamaged(message)
    if digest != data[-DIGEST_BYTES:]:
        message = "its checksum does not match"
        raise SnapshotDamaged(message)
    _, version, header_bytes = _PREFIX.unpack_from(data)
    if version not in READABLE_VERSIONS:
        message = f"it has format {version}; this release reads formats up to {FORMAT_VERSION}"
        raise SnapshotDamaged(message)
    start = _PREFIX.size + header_bytes
    try:
        header = msgspec.msgpack.decode(body[_PREFIX.size : start], type=_Header)
    except msgspec.DecodeError as error:
        message = f"its header cannot be read: {error}"
        raise SnapshotDamaged(message) from error
    if header.state_bytes != len(body) - start:
        message = f"it holds {len(body) - start} bytes of state; its header says {header.state_bytes}"
        raise SnapshotDamaged(message)
    return Snapshot(header.previous, header.last, bytes(body[start:]), header.members)
