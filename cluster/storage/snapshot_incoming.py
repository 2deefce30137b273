"""One snapshot on its way in: the bytes so far on disk, hashed as they come, verified before they count."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cluster.storage.files import Files
from cluster.storage.snapshot_format import (
    DIGEST_BYTES,
    SnapshotDamaged,
    SnapshotHeader,
    SnapshotId,
    read_header,
    stored_digest,
)

SYNC_BYTES: Final = 8 * 1024 * 1024
"""Received bytes that are synced at once: no single sync stops the loop for long."""
READ_BYTES: Final = 1024 * 1024
"""Bytes that are read back at once."""


class Incoming:
    """The snapshot `id`, from its first byte to the last. What is here survives a broken connection."""

    def __init__(self, path: Path, snapshot_id: SnapshotId, files: Files) -> None:
        """Begin the new file `path`. Raises OSError."""
        self.path = path
        self.id = snapshot_id
        self.size_bytes = 0
        self._files = files
        self._is_whole = True
        self._unsynced_bytes = 0
        self._digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._fd = files.create(path)

    @property
    def is_complete(self) -> bool:
        """Whether all bytes are here."""
        return self.size_bytes == self.id.size_bytes

    def write(self, data: bytes) -> None:
        """Append the next bytes. After any exception nothing is known of the file: `verify` refuses it."""
        # The digest is that of the bytes that came; what stands in the file may be others after half a write.
        self._is_whole = False
        self._files.write(self._fd, data)
        # The file ends with the digest of what is before.
        hashed_bytes = self.id.size_bytes - DIGEST_BYTES - self.size_bytes
        self._digest.update(data[: max(0, hashed_bytes)])
        self.size_bytes += len(data)
        self._unsynced_bytes += len(data)
        if self._unsynced_bytes >= SYNC_BYTES:
            self._sync()
        self._is_whole = True

    def verify(self) -> tuple[SnapshotHeader, int]:
        """Make all bytes durable and return the header and where the state begins.

        Raises OSError, or SnapshotDamaged when the bytes are not those that were announced.
        """
        if not self._is_whole:
            message = "it was not written to the end"
            raise SnapshotDamaged(message)
        self._sync()
        if self._digest.digest() != self.id.digest or stored_digest(self._fd, self._files) != self.id.digest:
            message = "its checksum does not match"
            raise SnapshotDamaged(message)
        header, start = read_header(self._fd, self._files)
        if header.last[1:] != (self.id.last_index, self.id.last_term):
            announced = (self.id.last_index, self.id.last_term)
            message = f"it ends at {header.last[1:]} and was announced as {announced}"
            raise SnapshotDamaged(message)
        return header, start

    def read_state(self, header: SnapshotHeader, start: int, state: bytearray) -> Iterator[None]:
        """Append the state to `state`, in steps of a few milliseconds."""
        end = start + header.state_bytes
        for offset in range(start, end, READ_BYTES):
            state += self._files.read_at(self._fd, min(READ_BYTES, end - offset), offset)
            yield

    def close(self) -> None:
        """Close the file; it stays where it is. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._files.close(fd)

    def _sync(self) -> None:
        self._files.fdatasync(self._fd)
        self._unsynced_bytes = 0
