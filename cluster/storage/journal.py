"""The durable Raft log and hard state (term and vote) of one node.

A plain list in memory has the log; the journal gathers every change until `sync()` writes them all as one
block and waits for the disk once: that is the group commit. The node calls it at the end of each tick, and
only then lets out what promises durability (acknowledgements, votes).

No byte of the log is rewritten in place. Removing entries appends a record; whole segment files are unlinked
when nothing in them is needed any more. So a kill at any moment leaves the view of the last sync, or the next
one: never a mixture.

One thread. The journal counts as failed before each change, in memory or on disk, and as sound again only
when the change is complete. So whatever ends one half-way (a disk error, memory that is short, a signal, a
mistake of ours) leaves a journal that refuses every further change: what a failed sync left on disk is
unknown, a second sync that succeeds proves nothing about the first, and to write the same records twice would
damage the log for good.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self, overload

from cluster.errors import DataDirError, NodeFailed
from cluster.storage.files import Files
from cluster.storage.journal_format import (
    NO_SALT,
    LogEntry,
    RecordType,
    begin_record,
    entry_head,
    hard_state_record,
    index_record,
)
from cluster.storage.recovery import recover, segment_path
from cluster.storage.replay import ReplayedLog, Segment
from cluster.storage.segment_writer import SegmentWriter, Sizes

BUFFERED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes that are gathered for one sync at most: a block's length has 32 bits, and its copy takes memory."""

logger = logging.getLogger(__name__)


class JournalError(NodeFailed):
    """A change was not completed, so the node must stop: nothing since the last good sync may be told."""


class Journal:
    """Raft log, term, vote and commit hint on disk. Positions count from 0; indexes are Raft's."""

    def __init__(self, directory: Path, view: ReplayedLog, files: Files, sizes: Sizes) -> None:
        """Use `Journal.open`."""
        self._directory = directory
        self._files = files
        self._sizes = sizes
        self._is_sound = True
        self._failure: BaseException | None = None
        self._is_closed = False

        self._entries = view.entries
        self._bytes_count = sum(len(command) for command, _, _ in view.entries)
        self._term, self._voted_for = view.term, view.voted_for
        self._commit_index = self._commit_on_disk = view.commit_index
        self._disk_first, self._disk_following = view.first, view.following
        self._find_ends()
        self._synced_index = self.last_index

        self._records: list[bytes] = []
        self._buffered_bytes = 0
        self._buffered_index_max = 0
        self._restarts = False
        self._is_hard_state_dirty = False

        self._segments = view.segments
        self._is_sealed = not view.segments
        if view.segments:
            self._writer = SegmentWriter.go_on(
                view.segments[-1].path, end=view.end, sequence=view.sequence, files=files, sizes=sizes
            )
        else:
            self._writer = self._begin_segment(())

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        sizes: Sizes | None = None,
        on_cut: logging.Logger = logger,
        files: Files | None = None,
    ) -> Self:
        """Recover the journal in `directory`, or begin one; a torn last write is cut and told to `on_cut`.

        Raises DataDirError when what is on disk cannot be trusted, JournalError when the disk fails.
        """
        files = files or Files()
        try:
            view = recover(directory, files, on_cut)
            journal = cls(directory, view, files, sizes or Sizes())
        except OSError as error:
            message = f"{directory}: the journal cannot be opened: {error}"
            raise JournalError(message) from error
        return journal

    @property
    def _fd(self) -> int:
        return self._writer.fd

    @property
    def is_dirty(self) -> bool:
        """Whether there is something that the next sync must write. A commit hint alone does not count."""
        return self._is_hard_state_dirty or bool(self._records)

    @property
    def synced_index(self) -> int:
        """The index of the last entry of this log that is surely on disk; 0 if none."""
        return self._synced_index

    def _find_ends(self) -> None:
        """Find out where the log begins and ends now."""
        self.first_index: int = self._entries[0][1] if self._entries else 0
        """The index of the first entry; 0 if the log is empty."""
        self.last_index: int = self._entries[-1][1] if self._entries else 0
        """The index of the last entry; 0 if the log is empty."""

    @property
    def bytes_count(self) -> int:
        """The memory that the commands of the log take, in bytes."""
        return self._bytes_count

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, item: int) -> LogEntry: ...
    @overload
    def __getitem__(self, item: slice) -> list[LogEntry]: ...
    def __getitem__(self, item: int | slice) -> LogEntry | list[LogEntry]:
        return self._entries[item]

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append one entry; durable after the next sync. The first on an empty log may have any index."""
        self._check_usable()
        assert not self._entries or idx == self._entries[-1][1] + 1, (idx, self._entries[-1][1])
        self._is_sound = False
        if not self._entries:
            self._records.append(index_record(RecordType.RESTART_AT, idx))
            self._restarts = True
            self.first_index = idx
        self._entries.append((command, idx, term))
        self.last_index = idx
        self._bytes_count += len(command)
        self._records += (entry_head(command, idx, term), command)
        self._buffered_index_max = max(self._buffered_index_max, idx)
        self._buffered_bytes += len(command)
        self._is_sound = True
        if self._buffered_bytes > BUFFERED_BYTES_MAX:
            self.sync()

    def clear(self) -> None:
        """Forget all entries. The disk keeps the old log until a sync after an add: both are one step."""
        self._check_usable()
        self._is_sound = False
        self._entries.clear()
        self.first_index = self.last_index = 0
        self._bytes_count = 0
        self._records.clear()
        self._buffered_bytes = self._buffered_index_max = self._synced_index = 0
        self._restarts = False
        self._is_sound = True

    def remove_from(self, position: int) -> None:
        """Remove the entries at `position` and behind it; durable after the next sync."""
        self._check_usable()
        if position <= 0:
            self.clear()
        elif position < len(self._entries):
            self._is_sound = False
            self._records.append(index_record(RecordType.TRUNCATE_FROM, self._entries[position][1]))
            self._bytes_count -= sum(len(command) for command, _, _ in self._entries[position:])
            del self._entries[position:]
            self._find_ends()
            self._synced_index = min(self._synced_index, self.last_index)
            self._is_sound = True

    def remove_before(self, position: int) -> None:
        """Remove the entries before `position`; their disk space is freed after the next sync."""
        self._check_usable()
        if position >= len(self._entries):
            self.clear()
        elif position > 0:
            self._is_sound = False
            self._records.append(index_record(RecordType.KEEP_FROM, self._entries[position][1]))
            self._bytes_count -= sum(len(command) for command, _, _ in self._entries[:position])
            del self._entries[:position]
            self._find_ends()
            self._is_sound = True

    def tail_start(self, index: int, count_max: int, bytes_max: int) -> int:
        """Return from which index on at most so many entries and bytes of commands stand before `index`."""
        end = start = index - self.first_index
        while start > 0 and end - start < count_max:
            bytes_max -= len(self._entries[start - 1][0])
            if bytes_max < 0:
                break
            start -= 1
        return self.first_index + start

    def begin_at(self, previous: LogEntry, last: LogEntry) -> None:
        """Make the log begin with the last two entries of the loaded snapshot, keeping what follows them.

        A node killed between writing a snapshot and compacting still has the older entries; the Raft library
        would take that for another log and drop the acknowledged entries behind the snapshot too. To be
        called before the library sees the journal. Raises DataDirError when the journal needs a newer
        snapshot than this.
        """
        if self.first_index > previous[1]:
            message = (
                f"{self._directory}: the journal begins at entry {self.first_index}, but the snapshot ends at"
                f" {last[1]}: an older snapshot was put here. Restore the whole directory from a backup, or"
                " replace this node with a new one"
            )
            raise DataDirError(message)
        position = previous[1] - self.first_index
        if self._entries[position : position + 2] == [previous, last]:
            self.remove_before(position)
        else:
            self.clear()
            self.add(*previous)
            self.add(*last)

    def begin_without_snapshot(self) -> None:
        """Check that the log needs no snapshot, because there is none. Raises DataDirError."""
        if self.first_index > 1:
            message = (
                f"{self._directory}: the journal begins at entry {self.first_index} and the snapshot"
                " before it is missing. Restore the whole directory from a backup, or replace this node"
                " with a new one"
            )
            raise DataDirError(message)

    def set_vote(self, term: int, voted_for: str | None) -> None:
        """Set term and vote; durable after the next sync, before which no message may show them."""
        self._check_usable()
        if (term, voted_for) != (self._term, self._voted_for):
            self._is_sound = False
            self._term, self._voted_for = term, voted_for
            self._is_hard_state_dirty = True
            self._is_sound = True

    @property
    def term(self) -> int:
        """The current term; 0 at first."""
        return self._term

    @property
    def voted_for(self) -> str | None:
        """Whom this node voted for in the current term."""
        return self._voted_for

    def record_commit(self, index: int) -> None:
        """Record that the log is committed up to `index`, syncing first if that is not on this disk yet.

        The leader applies right after this call. Its own copy counted for the majority, so it must be
        durable: what is acknowledged on the strength of an unsynced copy could be lost with one other disk.
        """
        self._check_usable()
        self._commit_index = index
        if index > self._synced_index:
            self.sync()

    @property
    def commit_hint(self) -> int:
        """The last durable commit hint, at least 1 and not beyond the log."""
        return max(1, min(self._commit_on_disk, self.last_index))

    def tidy(self) -> None:
        """Seal what was synced (see `_seal`), and remove what is obsolete. Called once a second."""
        self._check_usable()
        self._on_disk(self._seal)
        self._on_disk(self._unlink_obsolete)

    def sync(self) -> bool:
        """Write all changes since the last sync as one block and wait until they are on disk.

        Returns False when there was nothing to write. Raises JournalError, now and at every later change,
        when the disk fails or anything else ends the sync half-way.
        """
        self._check_usable()
        if not self.is_dirty:
            return False
        self._on_disk(self._write_synced)
        self._on_disk(self._unlink_obsolete)
        return True

    def close(self) -> None:
        """Sync, seal and close; after a failure only give the descriptor back. Idempotent."""
        if self._is_closed:
            return
        try:
            if self._is_sound:
                self.sync()
                self._on_disk(self._seal)
        finally:
            self._is_closed = True
            self._writer.close()

    def _check_usable(self) -> None:
        if not self._is_sound:
            message = f"{self._directory}: the journal stopped when a change of it failed: {self._failure!r}"
            raise JournalError(message) from self._failure
        assert not self._is_closed, "the journal is closed"

    def _on_disk(self, operation: Callable[[], None]) -> None:
        """Do `operation`; whatever ends it half-way makes the journal unusable for good."""
        self._is_sound = False
        try:
            operation()
        except BaseException as error:
            self._failure = error
            logger.critical("event=journal-failed directory=%s error=%r", self._directory, repr(error))
            if not isinstance(error, Exception):
                raise  # somebody wants this process to end, and is to hear that it does
            message = f"{self._directory}: the journal cannot be written: {error!r}"
            raise JournalError(message) from error
        self._is_sound = True

    def _write_synced(self) -> None:
        """Write what changed as one block, wait for the disk, and take over what is durable now."""
        if self._is_hard_state_dirty:
            self._records.append(hard_state_record(self._term, self._voted_for))
        if self._commit_index != self._commit_on_disk:
            self._records.append(index_record(RecordType.COMMIT, self._commit_index))
        if self._writer.is_full:
            self._writer = self._begin_segment(self._records, self._writer)
        else:
            self._writer.write(self._records)
            self._writer.sync()
        self._is_sealed = False
        self._note_synced()

    def _seal(self) -> None:
        """Write, without waiting for the disk, a block saying that the block before it was synced.

        Without it the last block, damaged later, would look like a torn write and be cut. The commit hint
        rides along.
        """
        if not self._is_sealed:
            self._is_sealed = True
            self._writer.write((index_record(RecordType.COMMIT, self._commit_index),))
            self._commit_on_disk = self._commit_index

    def _begin_segment(self, records: Sequence[bytes], old: SegmentWriter | None = None) -> SegmentWriter:
        """Begin the segment after `old` with `records` in its first block; it gets its name when synced."""
        number = self._segments[-1].number + 1 if self._segments else 1
        path = segment_path(self._directory, number)
        temporary = path.with_name(path.name + ".tmp")
        if old is not None:
            # A seal may not be on disk yet, and only the last segment may end with a torn write.
            old.sync()
        new = SegmentWriter.create(
            temporary,
            number=number,
            previous_salt=old.salt if old is not None else NO_SALT,
            sequence=old.sequence if old is not None else 0,
            files=self._files,
            sizes=self._sizes,
        )
        try:
            new.write((*self._state_records(), *records))
            new.sync()
            self._files.rename(temporary, path)
            self._files.fsync_dir(self._directory)
            self._segments.append(Segment(number, path))
            if old is not None:
                old.finish(number)
        except BaseException:
            new.close()
            raise
        return new

    def _state_records(self) -> tuple[bytes, ...]:
        """Return the records that make a segment readable without the ones before it."""
        return (
            begin_record(self._disk_first, self._disk_following),
            hard_state_record(self._term, self._voted_for),
            index_record(RecordType.COMMIT, self._commit_index),
        )

    def _note_synced(self) -> None:
        """Take over what is durable now."""
        if self._restarts:
            for segment in self._segments:
                segment.last_index = 0
        newest = self._segments[-1]
        newest.last_index = max(newest.last_index, self._buffered_index_max)
        if self._entries:
            self._disk_first, self._disk_following = self.first_index, self.last_index + 1
        self._synced_index = self.last_index
        self._commit_on_disk = self._commit_index
        self._records.clear()
        self._buffered_bytes = self._buffered_index_max = 0
        self._restarts = self._is_hard_state_dirty = False

    def _unlink_obsolete(self) -> None:
        """Remove the oldest segment if nothing in it is needed: one at a time, because each takes 20 ms.

        The next sync or second looks again. What a crash leaves is removed by recovery.
        """
        if len(self._segments) > 1 and self._segments[0].last_index < self._disk_first:
            self._files.unlink(self._segments.pop(0).path)
            self._files.fsync_dir(self._directory)
