"""The durable Raft log and hard state (term and vote) of one node.

A plain list in memory has the log; the journal gathers every change until a sync writes them all as one
block and waits for the disk once: that is the group commit. The node begins one at the end of each tick, and
only when it has ended lets out what promises durability (acknowledgements, votes).

No byte of the log is rewritten in place. Removing entries appends a record; whole segment files are unlinked
when nothing in them is needed any more. So a kill at any moment leaves the view of the last sync, or the next
one: never a mixture.

A sync has three parts, so that nobody needs to wait for the disk: `begin_sync` takes what has changed,
`Sync.run` brings it to the disk, in any thread, and `end_sync` takes over what is durable then. What changes
in between belongs to the next one. `sync` is all three at once. All else is for one thread.

The journal counts as failed before each change, in memory or on disk, and as sound again only when the change
is complete. So whatever ends one half-way (a disk error, memory that is short, a signal, a
mistake of ours) leaves a journal that refuses every further change: what a failed sync left on disk is
unknown, a second sync that succeeds proves nothing about the first, and to write the same records twice would
damage the log for good.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn, Self, overload

from cluster.errors import DataDirError, NodeFailed
from cluster.storage.files import Files
from cluster.storage.journal_format import (
    DISK_ID,
    NO_DISK,
    LogEntry,
    RecordType,
    entry_head,
    hard_state_record,
    heard_record,
    index_record,
)
from cluster.storage.log_on_disk import NO_ENTRIES, LogOnDisk, SyncBlock
from cluster.storage.recovery import recover
from cluster.storage.replay import ReplayedLog
from cluster.storage.segment_writer import Sizes

HEARD_COUNT_MAX: Final = 64
"""The directories of peers of which it is kept how far they have come, the newest: those of members, and some
that were replaced."""
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
        self._is_sound = True
        self._failure: BaseException | None = None
        self._is_closed = False

        self.entries: Final = view.entries
        """The log, oldest entry first. To be read only: it is changed by the methods here, in place."""
        self.bytes_count = sum(len(command) for command, _, _ in view.entries)
        """The memory that the commands of the log take, in bytes."""
        self._term, self._voted_for = view.term, view.voted_for
        self.synced_term = view.term
        """The term that is surely on disk."""
        self.heard: Final = view.heard
        """How far the directories of peers have come, as far as they have told: term and committed index, by
        disk id. Changed by `hear`."""
        self._heard_anew: dict[str, tuple[int, int]] = {}
        self._commit_index = view.commit_index
        self._find_ends()
        self.synced_index = self.last_index
        """The index of the last entry of this log that is surely on disk; 0 if none."""
        self.is_dirty = False
        """Whether anything is not surely on disk: it waits for a sync, or its sync has not ended.

        A commit hint alone does not count."""
        self.wants_sync = False
        """Whether a sync would have anything to do, beside the one that is under way."""

        self._records: list[bytes] = []
        self._buffered_bytes = 0
        self._buffered_index_max = 0
        self._restarts = False
        self._is_hard_state_dirty = False

        self._present: Sync | None = None
        self._present_index = 0
        self._is_tidy_due = False
        self._disk = LogOnDisk(directory, view, files, sizes)

    @classmethod
    def open(
        cls,
        directory: Path,
        disk_id: str = NO_DISK,
        *,
        sizes: Sizes | None = None,
        on_cut: logging.Logger = logger,
        files: Files | None = None,
    ) -> Self:
        """Recover the journal in `directory`, or begin one; a torn last write is cut and told to `on_cut`.

        `disk_id` is that of the data directory: a journal that was written in another one is refused.
        Raises DataDirError when what is on disk cannot be trusted, JournalError when the disk fails.
        """
        files = files or Files()
        try:
            view = recover(directory, files, on_cut, disk_id)
            journal = cls(directory, view, files, sizes or Sizes())
        except OSError as error:
            message = f"{directory}: the journal cannot be opened: {error}"
            raise JournalError(message) from error
        return journal

    @property
    def _fd(self) -> int:
        return self._disk.writer.fd

    def _find_ends(self) -> None:
        """Find out where the log begins and ends now."""
        self.first_index: int = self.entries[0][1] if self.entries else 0
        """The index of the first entry; 0 if the log is empty."""
        self.last_index: int = self.entries[-1][1] if self.entries else 0
        """The index of the last entry; 0 if the log is empty."""

    def _find_work(self) -> None:
        """Find out what is left to be done, where it may have become less."""
        is_changed = self._is_hard_state_dirty or bool(self._records)
        self.wants_sync = is_changed or self._is_tidy_due
        self.is_dirty = is_changed or self._present is not None

    def __len__(self) -> int:
        return len(self.entries)

    @overload
    def __getitem__(self, item: int) -> LogEntry: ...
    @overload
    def __getitem__(self, item: slice) -> list[LogEntry]: ...
    def __getitem__(self, item: int | slice) -> LogEntry | list[LogEntry]:
        return self.entries[item]

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append one entry; durable after the next sync. The first on an empty log may have any index."""
        if not self._is_sound or self._is_closed:
            self._refuse()
        assert not self.entries or idx == self.entries[-1][1] + 1, (idx, self.entries[-1][1])
        self._is_sound = False
        self.is_dirty = self.wants_sync = True
        if not self.entries:
            self._records.append(index_record(RecordType.RESTART_AT, idx))
            self._restarts = True
            self.first_index = idx
        self.entries.append((command, idx, term))
        self.last_index = idx
        self.bytes_count += len(command)
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
        self.entries.clear()
        self.first_index = self.last_index = 0
        self.bytes_count = 0
        self._records.clear()
        self._buffered_bytes = self._buffered_index_max = 0
        self.synced_index = self._present_index = 0
        self._restarts = False
        self._find_work()
        self._is_sound = True

    def remove_from(self, position: int) -> None:
        """Remove the entries at `position` and behind it; durable after the next sync."""
        self._check_usable()
        if position <= 0:
            self.clear()
        elif position < len(self.entries):
            self._is_sound = False
            self.is_dirty = self.wants_sync = True
            self._records.append(index_record(RecordType.TRUNCATE_FROM, self.entries[position][1]))
            self.bytes_count -= sum(len(command) for command, _, _ in self.entries[position:])
            del self.entries[position:]
            self._find_ends()
            self.synced_index = min(self.synced_index, self.last_index)
            self._present_index = min(self._present_index, self.last_index)
            self._is_sound = True

    def remove_before(self, position: int) -> None:
        """Remove the entries before `position`; their disk space is freed after the next sync."""
        self._check_usable()
        if position >= len(self.entries):
            self.clear()
        elif position > 0:
            self._is_sound = False
            self.is_dirty = self.wants_sync = True
            self._records.append(index_record(RecordType.KEEP_FROM, self.entries[position][1]))
            self.bytes_count -= sum(len(command) for command, _, _ in self.entries[:position])
            del self.entries[:position]
            self._find_ends()
            self._is_sound = True

    def tail_start(self, index: int, count_max: int, bytes_max: int) -> int:
        """Return from which index on at most so many entries and bytes of commands stand before `index`."""
        end = start = index - self.first_index
        while start > 0 and end - start < count_max:
            bytes_max -= len(self.entries[start - 1][0])
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
                f" {last[1]}: an older snapshot was put here. Restore the whole directory"
                " from a copy made after the node's last stop (an older one is unsafe), or"
                " replace this node with a new one"
            )
            raise DataDirError(message)
        position = previous[1] - self.first_index
        if self.entries[position : position + 2] == [previous, last]:
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
                " before it is missing. Restore the whole directory"
                " from a copy made after the node's last stop (an older one is unsafe), or replace this node"
                " with a new one"
            )
            raise DataDirError(message)

    def set_vote(self, term: int, voted_for: str | None) -> None:
        """Set term and vote; durable after the next sync, before which no message may show them."""
        self._check_usable()
        if (term, voted_for) != (self._term, self._voted_for):
            self._is_sound = False
            self.is_dirty = self.wants_sync = True
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
        """Record that the log is committed up to `index`: a hint, which goes to the disk with the next block.

        Nothing needs to be on this disk for that: a majority has it, in which a leader counts its own copy
        only up to `synced_index`.
        """
        if not self._is_sound or self._is_closed:
            self._refuse()
        self._commit_index = index

    def hear(self, disk_id: str, term: int, index: int) -> None:
        """Record that a peer's directory has come to this term, and holds the committed log up to `index`.

        A hint, which goes to the disk with the next block, or when the journal is tidied next. What is
        no disk id, as only a broken peer says, is left out.
        """
        if DISK_ID.fullmatch(disk_id) is None:
            return
        before = self.heard.get(disk_id, (0, 0))
        now = (max(term, before[0]), max(index, before[1]))
        if now != before:
            self.heard.pop(disk_id, None)
            self.heard[disk_id] = self._heard_anew[disk_id] = now
            if len(self.heard) > HEARD_COUNT_MAX:
                del self.heard[next(iter(self.heard))]

    def _take_heard(self) -> list[bytes]:
        """Return the records of what was heard since this was called last."""
        heard, self._heard_anew = self._heard_anew, {}
        return [heard_record(disk_id, *place) for disk_id, place in heard.items()]

    @property
    def commit_hint(self) -> int:
        """The last durable commit hint, at least 1 and not beyond the log."""
        return max(1, min(self._disk.commit_index, self.last_index))

    def tidy(self) -> None:
        """Let the next sync seal what was synced, and remove what is obsolete. Called once a second."""
        self._check_usable()
        if self._present is None:
            is_told = self._disk.is_sealed and not self._heard_anew
            self._is_tidy_due = not is_told or self._disk.has_obsolete
            self._find_work()

    def sync(self) -> bool:
        """Write all changes since the last sync as one block and wait until they are on disk.

        Returns False when there was nothing to write. Raises JournalError, now and at every later change,
        when the disk fails or anything else ends the sync half-way.
        """
        self._check_usable()
        self.wait()
        if not self.wants_sync:
            return False
        sync = self._take_sync()
        sync.run()
        self.end_sync(sync)
        return sync.block is not None

    def begin_sync(self) -> "Sync | None":
        """Take what has changed; None if there is nothing to do. The last one has ended.

        `run` it, anywhere, and then hand it to `end_sync`. Until then no other is begun, and nothing of it
        counts as being on disk.
        """
        if not self._is_sound or self._is_closed:
            self._refuse()
        assert self._present is None, "two syncs at once"
        if not self.wants_sync:
            return None
        sync = self._take_sync()
        self._is_sound = True
        return sync

    def _take_sync(self) -> "Sync":
        """Take what has changed. The journal is not sound before the sync is in good hands."""
        self._is_sound = False
        self._present = sync = Sync(
            self._disk,
            self._take_block() if self._is_hard_state_dirty or self._records else None,
            self._commit_index,
            self._take_heard() if self._heard_anew else (),
        )
        self._present_index = self.last_index
        self._is_tidy_due = self.wants_sync = False
        self.is_dirty = True
        return sync

    def _take_block(self) -> SyncBlock:
        """Return everything that has changed, and begin to gather anew."""
        if self._is_hard_state_dirty:
            self._records.append(hard_state_record(self._term, self._voted_for))
        if self._commit_index != self._disk.commit_index:
            self._records.append(index_record(RecordType.COMMIT, self._commit_index))
        if self._heard_anew:
            self._records += self._take_heard()
        block = SyncBlock(
            records=self._records,
            term=self._term,
            voted_for=self._voted_for,
            commit_index=self._commit_index,
            index_max=self._buffered_index_max,
            restarts=self._restarts,
            heard=dict(self.heard),
            span=(self.first_index, self.last_index + 1) if self.entries else NO_ENTRIES,
        )
        self._records = []
        self._buffered_bytes = self._buffered_index_max = 0
        self._restarts = self._is_hard_state_dirty = False
        return block

    def end_sync(self, sync: "Sync") -> None:
        """Take over what is durable now; nothing if `wait` has done so. The sync has been run.

        Raises JournalError, or what ended the sync half-way.
        """
        if sync is not self._present:
            return
        self._is_sound = False
        self._present = None
        error = sync.error
        if error is not None:
            self._fail(error)
        if sync.block is not None:
            # Not what was cut off meanwhile, though it is there; nor what came in its place.
            self.synced_index = self._present_index
            self.synced_term = sync.block.term
        self._find_work()
        self._is_sound = True

    def wait(self) -> None:
        """Wait for the sync that is under way, if there is one. Raises as `end_sync`."""
        sync = self._present
        if sync is not None:
            sync.join()
            self.end_sync(sync)

    def close(self) -> None:
        """Sync, seal and close; after a failure only give the descriptor back. Idempotent.

        Waits for a sync that is under way.
        """
        if self._is_closed:
            return
        try:
            if self._is_sound:
                self.sync()
                self._on_disk(lambda: self._disk.seal(self._commit_index, self._take_heard()))
        finally:
            self._is_closed = True
            if self._present is not None:
                self._present.join()
            self._disk.close()

    def _check_usable(self) -> None:
        if not self._is_sound or self._is_closed:
            self._refuse()

    def _refuse(self) -> NoReturn:
        """Raise why nothing can be changed any more."""
        assert not self._is_sound, "the journal is closed"
        message = f"{self._directory}: the journal stopped when a change of it failed: {self._failure!r}"
        raise JournalError(message) from self._failure

    def _on_disk(self, operation: Callable[[], None]) -> None:
        """Do `operation`; whatever ends it half-way makes the journal unusable for good."""
        self._is_sound = False
        try:
            operation()
        except BaseException as error:  # noqa: BLE001 - raised again
            self._fail(error)
        self._is_sound = True

    def _fail(self, error: BaseException) -> NoReturn:
        """Raise what ended a change half-way; it is not sound any more."""
        self._failure = error
        logger.critical("event=journal-failed directory=%s error=%r", self._directory, repr(error))
        if not isinstance(error, Exception):
            raise error  # somebody wants this process to end, and is to hear that it does
        message = f"{self._directory}: the journal cannot be written: {error!r}"
        raise JournalError(message) from error


class Sync:
    """One sync of a journal, from `Journal.begin_sync` to `Journal.end_sync`.

    `run` may be called in another thread, and nothing else: it touches only the disk's half of the journal,
    which nobody else does meanwhile.
    """

    def __init__(
        self, disk: LogOnDisk, block: SyncBlock | None, commit_index: int, hints: Sequence[bytes]
    ) -> None:
        """Write `block`, or only tidy if there is none; `commit_index` and `hints` go with a seal."""
        self.block = block
        self.error: BaseException | None = None
        """What ended it half-way; looked at by `Journal.end_sync`."""
        self.took_s = 0.0
        """The time, in seconds, that it took."""
        self.wait_for: Callable[[], None] | None = None
        """Returns when it has been run; set by who runs it in another thread."""
        self._is_run = False
        self._disk = disk
        self._commit_index = commit_index
        self._hints = hints

    def run(self) -> None:
        """Write and wait for the disk. Does not raise: see `error`."""
        try:
            if self.block is not None:
                self._disk.write(self.block)
            else:
                self._disk.seal(self._commit_index, self._hints)
            self._disk.unlink_obsolete()
        except BaseException as error:  # noqa: BLE001 - whoever ends the sync raises it
            self.error = error
        self._is_run = True

    def join(self) -> None:
        """Wait until it has been run. One that nobody runs has failed."""
        if self.wait_for is not None:
            self.wait_for()
        if not self._is_run and self.error is None:
            self.error = RuntimeError("something failed before the sync could be run")
