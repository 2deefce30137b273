"""The disk's half of the journal: blocks go to the end of the last segment, and segments come and go.

It is used by one thread at a time: by that of the event loop, or by the one that syncs, while a block is on
its way (`Journal.begin_sync`). So it looks at nothing of the log in memory, which goes on changing meanwhile:
what it has to know of it is in the block. Errors are OSError; after one, or anything else that ends a write
half-way, do nothing but `close`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from cluster.storage.files import Files
from cluster.storage.journal_format import (
    NO_SALT,
    RecordType,
    begin_record,
    hard_state_record,
    heard_record,
    index_record,
)
from cluster.storage.recovery import segment_path
from cluster.storage.replay import ReplayedLog, Segment
from cluster.storage.segment_writer import SegmentWriter, Sizes

NO_ENTRIES: Final = (0, 0)
"""The span of a log without entries."""


class SyncBlock(msgspec.Struct, kw_only=True):
    """What one sync makes durable, as of the moment when it was begun."""

    records: list[bytes]
    term: int
    voted_for: str | None
    commit_index: int
    index_max: int
    """The highest index of an entry in it; 0 if there is none."""
    restarts: bool
    """Whether the log begins anew in it: nothing before it is needed any more."""
    heard: dict[str, tuple[int, int]]
    """How far the directories of peers have come: term and index, by disk id."""
    span: tuple[int, int]
    """The first entry of the log and the one that will follow its last; NO_ENTRIES if it has none."""


class LogOnDisk:
    """The segments of a journal. `write` waits for the disk; `seal` does not."""

    def __init__(self, directory: Path, view: ReplayedLog, files: Files, sizes: Sizes) -> None:
        """Go on behind what was recovered, or begin the first segment. Raises OSError."""
        self._directory = directory
        self._files = files
        self._sizes = sizes
        self._disk_id = view.disk_id
        self._span = (view.first, view.following)
        self.segments = view.segments
        self.commit_index = view.commit_index
        """The commit hint that is on disk."""
        self.is_sealed = not view.segments
        if view.segments:
            self.writer = SegmentWriter.go_on(view, files, sizes)
        else:
            self.writer = self._begin_segment(
                self._state_records(view.term, view.voted_for, view.commit_index), None
            )

    def write(self, block: SyncBlock) -> None:
        """Write a block, in a new segment if the last one is full, and wait until it is on disk."""
        if self.writer.is_full:
            state = self._state_records(block.term, block.voted_for, block.commit_index)
            state += tuple(heard_record(disk_id, *place) for disk_id, place in block.heard.items())
            self.writer = self._begin_segment((*state, *block.records), self.writer)
        else:
            self.writer.write(block.records)
            self.writer.sync()
        self._count(block)

    def _count(self, block: SyncBlock) -> None:
        """Take over what is durable since `block` is."""
        self.is_sealed = False
        if block.restarts:
            for segment in self.segments:
                segment.last_index = 0
        newest = self.segments[-1]
        newest.last_index = max(newest.last_index, block.index_max)
        if block.span != NO_ENTRIES:
            self._span = block.span
        self.commit_index = block.commit_index

    def seal(self, commit_index: int, hints: Sequence[bytes] = ()) -> None:
        """Write, without waiting for the disk, a block saying that the block before it was synced.

        Without it the last block, damaged later, would look like a torn write and be cut. The commit hint
        rides along, and other records that are hints; for those a block is written in any case.
        """
        if not self.is_sealed or hints:
            self.is_sealed = True
            self.writer.write((index_record(RecordType.COMMIT, commit_index), *hints))
            self.commit_index = commit_index

    @property
    def has_obsolete(self) -> bool:
        """Whether there is a segment in which nothing is needed any more."""
        return len(self.segments) > 1 and self.segments[0].last_index < self._span[0]

    def unlink_obsolete(self) -> None:
        """Remove the oldest segment if nothing in it is needed: one at a time, because each takes 20 ms.

        The next sync or second looks again. What a crash leaves is removed by recovery.
        """
        if self.has_obsolete:
            self._files.unlink(self.segments.pop(0).path)
            self._files.fsync_dir(self._directory)

    def close(self) -> None:
        """Give the descriptor back; writes nothing. Idempotent."""
        self.writer.close()

    def _begin_segment(self, records: Sequence[bytes], old: SegmentWriter | None) -> SegmentWriter:
        """Begin the segment after `old` with `records` in its first block; it gets its name when synced."""
        number = self.segments[-1].number + 1 if self.segments else 1
        path = segment_path(self._directory, number)
        temporary = path.with_name(path.name + ".tmp")
        if old is not None:
            # A seal may not be on disk yet, and only the last segment may end with a torn write.
            old.sync()
        new = SegmentWriter.create(
            temporary,
            number=number,
            previous_salt=old.salt if old is not None else NO_SALT,
            disk_id=self._disk_id,
            sequence=old.sequence if old is not None else 0,
            files=self._files,
            sizes=self._sizes,
        )
        try:
            new.write(records)
            new.sync()
            self._files.rename(temporary, path)
            self._files.fsync_dir(self._directory)
            self.segments.append(Segment(number, path))
            if old is not None:
                old.finish(number)
        except BaseException:
            new.close()
            raise
        return new

    def _state_records(self, term: int, voted_for: str | None, commit_index: int) -> tuple[bytes, ...]:
        """Return the records that make a segment readable without the ones before it."""
        return (
            begin_record(*self._span),
            hard_state_record(term, voted_for),
            index_record(RecordType.COMMIT, commit_index),
        )
