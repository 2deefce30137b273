"""The one snapshot of a node: written by a forked child, read in pieces for a peer, received from one.

The file `snapshot` is always whole: it is replaced by renaming a finished, synced file over it, and only by
the node's own process. The file that was there before gets the name `snapshot.old` until the next child
removes it: to free the blocks of a large file takes longer than the loop may stop, and the last name or
descriptor to go pays for it. Only `load` takes long (it reads the whole state); writing is the child's
work, and a received snapshot is checked step by step (`check_received`). What waits for the disk when a
snapshot is received is disk work (disk_work).
"""

import contextlib
import logging
import os
import re
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

from cluster.errors import DataDirError
from cluster.storage.disk_work import DiskWork, Job, WorkInPlace
from cluster.storage.files import Files
from cluster.storage.forked_child import Child, ChildState
from cluster.storage.journal_format import LogEntry
from cluster.storage.snapshot_format import (
    Snapshot,
    SnapshotDamaged,
    SnapshotId,
    read_snapshot,
    stored_digest,
    write_snapshot,
)
from cluster.storage.snapshot_incoming import Incoming

__all__ = ["DecodeState", "Snapshot", "SnapshotDamaged", "SnapshotId", "SnapshotReader", "SnapshotStore"]

SNAPSHOT_NAME: Final = "snapshot"
OLD_NAME: Final = "snapshot.old"
INCOMING_NAME: Final = "incoming.tmp"
RECEIVED_BYTES_MAX: Final = 64 * 1024**3
"""Bytes of the largest snapshot that is received: no memory holds more. A peer that sends more is broken, and
would fill the disk."""

DecodeState = Callable[[bytearray, bytes], Generator[None, None, object]]
"""Makes a state of its bytes and the member list, step by step; raises when they cannot be read."""

BACKUP_NAME: Final = "backup"
"""The beginning of the name of a backup while it is made and sent (cluster/backups.py)."""

_UNFINISHED_NAME: Final = re.compile(rf"(?:{SNAPSHOT_NAME}|{BACKUP_NAME})\.\d+\.tmp")

logger = logging.getLogger(__name__)


class SnapshotReader:
    """The snapshot file as it was when opened: a later one that replaces it does not show."""

    def __init__(self, path: Path, files: Files) -> None:
        """Open the file. Raises OSError."""
        self._files = files
        self.offset = 0
        self._fd = files.open_to_read(path)
        try:
            self.size = files.size(self._fd)
            self.digest = stored_digest(self._fd, files)
        except BaseException:
            self.close()
            raise

    def read(self, size_bytes: int) -> bytes:
        """Return the next bytes from `offset` on, at most `size_bytes`; empty at the end."""
        data = self._files.read_at(self._fd, size_bytes, self.offset)
        self.offset += len(data)
        return data

    def close(self) -> None:
        """Close the file. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._files.close(fd)


class SnapshotStore:
    """The snapshot in a locked data directory. One thread."""

    def __init__(
        self,
        directory: Path,
        files: Files | None = None,
        child: Child | None = None,
        work: DiskWork | None = None,
    ) -> None:
        """Use `directory` and remove what the last process left there beside the snapshot.

        What waits for the disk when a snapshot is received is done by `work`; without it in place.
        """
        self._directory = directory
        self._path = directory / SNAPSHOT_NAME
        self._old_path = directory / OLD_NAME
        self._files = files or Files()
        self._child = child or Child()
        self._written_path: Path | None = None
        self._incoming: Incoming | None = None
        self._work = work or WorkInPlace()
        self._placing: Job | None = None
        self.woken: Callable[[], None] = _nothing
        """Called when disk work has ended. To be set by the host."""
        for name in self._files.names(directory):
            if name in (OLD_NAME, INCOMING_NAME) or _UNFINISHED_NAME.fullmatch(name):
                self._files.unlink(directory / name)

    def exists(self) -> bool:
        """Whether there is a snapshot, whole or not."""
        return self._files.exists(self._path)

    def size_bytes(self) -> int:
        """Return the size of the snapshot, 0 if there is none. Raises OSError."""
        try:
            fd = self._files.open_to_read(self._path)
        except FileNotFoundError:
            return 0
        try:
            return self._files.size(fd)
        finally:
            self._files.close(fd)

    def load(self) -> Snapshot | None:
        """Return the verified snapshot, None if there is none yet. Raises DataDirError if it is damaged."""
        try:
            fd = self._files.open_to_read(self._path)
        except FileNotFoundError:
            return None
        try:
            return read_snapshot(fd, self._files)
        except SnapshotDamaged as error:
            message = (
                f"{self._path}: the snapshot cannot be used: {error}. Restore this data directory from a"
                " backup that is not older than its last stop, or replace this node with a new one (the"
                " other nodes have the data)"
            )
            raise DataDirError(message) from error
        finally:
            self._files.close(fd)

    def begin_write(
        self,
        last: LogEntry,
        previous: LogEntry,
        members: bytes,
        encode_state: Callable[[], bytes],
        log_digest: int | None = None,
    ) -> None:
        """Fork a child that encodes and writes the state as it is now; `poll` tells how it goes."""
        directory, files, old_path = self._directory, self._files, self._old_path

        def write() -> None:
            _remove(old_path, files)  # first: so there is never room needed for three
            path = _written_path(directory, os.getpid())
            snapshot = Snapshot(previous, last, encode_state(), members, log_digest=log_digest)
            write_snapshot(path, snapshot, files)

        self._child.start(write)
        self._written_path = _written_path(directory, self._child.pid) if self._child.pid else None

    def poll(self) -> ChildState:
        """Tell how the child is doing, without waiting; "done" and "failed" are told exactly once.

        On "done" the new snapshot is in place and durable: the log before it may go. Raises OSError when
        renaming fails.
        """
        outcome = self._child.poll()
        if outcome in ("done", "failed"):
            path, self._written_path = self._written_path, None
            if path is None:
                return "failed"  # whatever a child wrote: it is not in place
            if outcome == "done":
                self._put_in_place(path)
            else:
                _remove(path, self._files)
        return outcome

    def open_reader(self) -> SnapshotReader:
        """Open the present snapshot for sending. Raises FileNotFoundError when there is none."""
        return SnapshotReader(self._path, self._files)

    @property
    def incoming(self) -> SnapshotId | None:
        """Return which snapshot is being received."""
        return None if self._incoming is None else self._incoming.id

    @property
    def incoming_bytes(self) -> int:
        """Return how much of it is here."""
        return 0 if self._incoming is None else self._incoming.size_bytes

    @property
    def is_busy(self) -> bool:
        """Whether disk work for the snapshot that is being received is under way."""
        if self._placing is not None:
            return not self._placing.is_done
        return self._incoming is not None and self._incoming.is_busy

    @property
    def has_room(self) -> bool:
        """Whether more of it may come now."""
        return self._incoming is None or self._incoming.has_room

    def begin_receive(self, snapshot_id: SnapshotId) -> None:
        """Begin a snapshot from a peer; an unfinished one is dropped. Raises OSError or SnapshotDamaged."""
        self.abort_receive()
        if snapshot_id.size_bytes > RECEIVED_BYTES_MAX:
            message = f"it is longer than {RECEIVED_BYTES_MAX} bytes"
            raise SnapshotDamaged(message)
        path = self._directory / INCOMING_NAME
        _remove(path, self._files)
        self._incoming = Incoming(path, snapshot_id, self._files, self._work, self._wake)

    def write_chunk(self, data: bytes) -> bool:
        """Append the next bytes; tell whether all are here now. Raises OSError or SnapshotDamaged."""
        incoming = self._receiving()
        if incoming.size_bytes + len(data) > incoming.id.size_bytes:
            message = f"it is longer than the {incoming.id.size_bytes} bytes that were announced"
            raise SnapshotDamaged(message)
        incoming.write(data)
        return incoming.is_complete

    def check_received(self, decode: DecodeState | None) -> Generator[None, None, Snapshot]:
        """Verify what was received and decode its state, a few milliseconds of work for each `next`.

        The result has the decoded state, or the bytes if there is no `decode`. Nothing is put in place: a
        state that this node cannot read must not replace one that it can. While the disk is waited for
        (`is_busy`) a step does nothing. Raises SnapshotDamaged or OSError, or what `decode` raises.
        """
        incoming = self._receiving()
        header, before = yield from incoming.verify()
        yield
        state = bytearray()
        yield from incoming.read_state(header, before, state)
        if decode is None:
            return Snapshot(
                header.previous, header.last, bytes(state), header.members, log_digest=header.log_digest
            )
        decoded = yield from decode(state, header.members)
        return Snapshot(header.previous, header.last, b"", header.members, decoded, header.log_digest)

    def put_received_in_place(self) -> bool:
        """Make the received and checked snapshot the one of this node, durably; whether that is done.

        To be called again, and nothing else of this snapshot, until it is. Raises OSError.

        A snapshot that is being written by a child is dropped: it is older, and renaming it later over this
        one would take away entries that the journal no longer has.
        """
        incoming = self._receiving()
        if self._placing is None:
            self._stop_writing()
            self._placing = Job(lambda: self._put_in_place(incoming.path), self._wake)
            self._work.start(self._placing)
        placing = self._placing
        if not placing.is_done:
            return False
        self._placing = None
        placing.check()
        self._incoming = None
        incoming.close()
        return True

    def abort_receive(self) -> None:
        """Drop an unfinished snapshot from a peer, if there is one; not one that is being put in place."""
        if self._placing is not None:
            return
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            incoming.close()
            _remove(incoming.path, self._files)

    def close(self) -> None:
        """End a running child and drop what is unfinished. Idempotent."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._end_receive)
            self._child.stop()
            path, self._written_path = self._written_path, None
            if path is not None:
                _remove(path, self._files)

    def _end_receive(self) -> None:
        """Drop what is unfinished. What is being put in place, or is there, stays."""
        if self._placing is None:
            self.abort_receive()
        elif self._incoming is not None:
            self._incoming.close()

    def _wake(self) -> None:
        """Let the host know that disk work has ended."""
        self.woken()

    def _receiving(self) -> Incoming:
        assert self._incoming is not None, "begin_receive was not called"
        return self._incoming

    def _stop_writing(self) -> None:
        """Kill a writing child; the next `poll` tells "failed" as for any other death of it."""
        if self._child.is_running:
            logger.info("event=snapshot-superseded pid=%d", self._child.pid)
            self._child.kill()

    def _put_in_place(self, path: Path) -> None:
        self._keep_old()
        self._files.rename(path, self._path)
        self._files.fsync_dir(self._directory)

    def _keep_old(self) -> None:
        """Give the present snapshot a second name, so that the rename over the first one frees nothing.

        Without it all is right, too, but slow: where there are no links, or another old one is still there.
        """
        if not self._files.exists(self._path) or self._files.exists(self._old_path):
            return
        try:
            self._files.link(self._path, self._old_path)
        except OSError as error:
            logger.info("event=snapshot-not-kept error=%r", str(error))


def _written_path(directory: Path, pid: int) -> Path:
    """Return where the child `pid` writes."""
    return directory / f"{SNAPSHOT_NAME}.{pid}.tmp"


def _nothing() -> None:
    """Do nothing."""


def _remove(path: Path, files: Files) -> None:
    """Remove `path` if it is there."""
    if files.exists(path):
        files.unlink(path)
