"""One snapshot on its way in: the bytes so far on disk, read back and verified before they count.

Its syncs are disk work (disk_work), which may take as long as it likes. What comes while one is under way
waits in memory, up to a bound.
"""

import hashlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Final

from cluster.storage.disk_work import DiskWork, Job
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
"""Received bytes that are synced at once, and that wait in memory meanwhile, at most."""
READ_BYTES: Final = 1024 * 1024
"""Bytes that are read back at once."""
_NO_MATCH: Final = "its checksum does not match"


class Incoming:
    """The snapshot `id`, from its first byte to the last. What is here survives a broken connection."""

    def __init__(
        self, path: Path, snapshot_id: SnapshotId, files: Files, work: DiskWork, woken: Callable[[], None]
    ) -> None:
        """Begin the new file `path`; `woken` hears that a sync, done by `work`, has ended. Raises OSError."""
        self.path = path
        self.id = snapshot_id
        self._files = files
        self._work = work
        self._woken = woken
        self._syncing: Job | None = None
        self._is_closing = False
        self._failure: BaseException | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._is_whole = True
        self._written_bytes = self._unsynced_bytes = 0
        self._fd = files.create(path)

    @property
    def size_bytes(self) -> int:
        """Return how much has come."""
        return self._written_bytes + self._waiting_bytes

    @property
    def is_complete(self) -> bool:
        """Whether all bytes are here."""
        return self.size_bytes == self.id.size_bytes

    @property
    def is_busy(self) -> bool:
        """Whether a sync is under way."""
        return self._syncing is not None

    @property
    def has_room(self) -> bool:
        """Whether more may come: not while much waits for the end of a sync."""
        return self._waiting_bytes < SYNC_BYTES

    def write(self, data: bytes) -> None:
        """Append the next bytes. After any exception nothing is known of the file: `verify` refuses it.

        Raises what an earlier sync raised, too.
        """
        self._check_failure()
        if self.is_busy:
            self._waiting.append(data)
            self._waiting_bytes += len(data)
        else:
            self._append(data)

    def _append(self, data: bytes) -> None:
        self._is_whole = False
        self._files.write(self._fd, data)
        self._written_bytes += len(data)
        self._unsynced_bytes += len(data)
        if self._unsynced_bytes >= SYNC_BYTES:
            self._sync()
        self._is_whole = True

    def verify(self) -> Generator[None, None, tuple[SnapshotHeader, bytes]]:
        """Make all bytes durable and return the header, and the bytes before the state, for `read_state`.

        Yields while a sync is under way. Raises OSError, or SnapshotDamaged when these are not the bytes that
        were announced.
        """
        yield from self._synced()
        if not self._is_whole:
            message = "it was not written to the end"
            raise SnapshotDamaged(message)
        self._sync()
        yield from self._synced()
        if stored_digest(self._fd, self._files) != self.id.digest:
            raise SnapshotDamaged(_NO_MATCH)
        header, before = read_header(self._fd, self._files)
        if header.last[1:] != (self.id.last_index, self.id.last_term):
            announced = (self.id.last_index, self.id.last_term)
            message = f"it ends at {header.last[1:]} and was announced as {announced}"
            raise SnapshotDamaged(message)
        return header, before

    def read_state(self, header: SnapshotHeader, before: bytes, state: bytearray) -> Iterator[None]:
        """Append the state to `state`, in steps of a few milliseconds. Raises OSError or SnapshotDamaged.

        The digest is that of the bytes that were read back, which are used. Those that came may be others.
        """
        digest = hashlib.blake2b(before, digest_size=DIGEST_BYTES)
        end = len(before) + header.state_bytes
        for offset in range(len(before), end, READ_BYTES):
            part = self._files.read_at(self._fd, min(READ_BYTES, end - offset), offset)
            digest.update(part)
            state += part
            yield
        if digest.digest() != self.id.digest:
            raise SnapshotDamaged(_NO_MATCH)

    def close(self) -> None:
        """Close the file, behind the sync that is under way; it stays where it is. Idempotent."""
        self._is_closing = True
        # Until then the number belongs to this file: another file that got it would be synced instead.
        if self._syncing is None or self._syncing.is_done:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                self._files.close(fd)

    def _sync(self) -> None:
        """Begin to make durable what is written. Raises OSError if it has failed already."""
        fd, self._unsynced_bytes = self._fd, 0
        job = self._syncing = Job(lambda: self._files.fdatasync(fd), lambda: self._sync_ended(job))
        self._work.start(job)
        self._check_failure()

    def _sync_ended(self, job: Job) -> None:
        """Write what has come meanwhile. What fails is raised to whoever asks next."""
        self._syncing = None
        try:
            if self._is_closing:
                self.close()
                return
            job.check()
            waiting, self._waiting, self._waiting_bytes = b"".join(self._waiting), [], 0
            if waiting:
                self._append(waiting)
        except BaseException as error:  # noqa: BLE001 - raised where the node hears of it
            self._failure = error
        self._woken()

    def _synced(self) -> Iterator[None]:
        """Yield while a sync is under way. Raises what it raised."""
        while self.is_busy:
            yield
        self._check_failure()

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
