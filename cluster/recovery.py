"""What the journal's segments on disk amount to, and the refusal to guess when they do not add up.

A torn last write is cut, with a warning: nobody was told that it is durable. Anything else that is wrong
(damage that a later block proves to have been synced, damage in an older segment, a missing segment) stops
the node: a replica that silently forgets what it acknowledged is worse than a replica that is down.
"""

import logging
import re
import struct
from dataclasses import dataclass, field
from pathlib import Path

from cluster.errors import DataDirError
from cluster.files import Files
from cluster.records import (
    SEGMENT_HEADER_BYTES,
    FormatError,
    LogEntry,
    RecordType,
    check_segment_header,
    decode_block,
    later_block_claims_sync,
    parse_begin,
    parse_entry,
    parse_hard_state,
    parse_index,
    segment_seed,
    split_records,
)

logger = logging.getLogger(__name__)

_SEGMENT_NAME = re.compile(r"journal-(\d{16})\.log")
_UNFINISHED_NAME = re.compile(r"journal-\d{16}\.log\.tmp")
_ADVICE = (
    "Restore this data directory from a backup that is not older than its last stop, or replace this node"
    " with a new one (the other nodes have the data). Do not delete or edit single journal files: the node"
    " would forget its votes and what it acknowledged"
)


@dataclass
class Segment:
    """One segment file; `last_index` is the highest entry in it that the log may still need."""

    number: int
    path: Path
    last_index: int = 0


@dataclass
class LogView:
    """What the records say so far. `first` and `following` bound the log even where it is not loaded."""

    first: int = 1
    following: int = 1
    entries: list[LogEntry] = field(default_factory=list)
    term: int = 0
    voted_for: str | None = None
    commit_index: int = 1
    sequence: int = 0
    segments: list[Segment] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether every entry between `first` and `following` is loaded."""
        return len(self.entries) == self.following - self.first

    def apply(self, record_type: RecordType, body: bytes) -> None:
        """Take one record into account. Raises FormatError when it contradicts what was read before."""
        match record_type:
            case RecordType.ENTRY:
                self._append(parse_entry(body))
            case RecordType.TRUNCATE_FROM:
                self._truncate_from(parse_index(body))
            case RecordType.KEEP_FROM:
                self._keep_from(parse_index(body))
            case RecordType.RESTART_AT:
                self.first = self.following = parse_index(body)
                self.entries.clear()
                for segment in self.segments:
                    segment.last_index = 0
            case RecordType.HARD_STATE:
                self.term, self.voted_for = parse_hard_state(body)
            case RecordType.COMMIT:
                self.commit_index = parse_index(body)
            case RecordType.BEGIN:
                self._begin(*parse_begin(body))

    def _append(self, entry: LogEntry) -> None:
        if entry[1] != self.following:
            message = f"entry {entry[1]} follows where {self.following} is due"
            raise FormatError(message)
        self.entries.append(entry)
        self.following += 1
        self.segments[-1].last_index = max(self.segments[-1].last_index, entry[1])

    def _truncate_from(self, index: int) -> None:
        if self.entries:
            del self.entries[max(0, index - self.entries[0][1]) :]
        self.following = index

    def _keep_from(self, index: int) -> None:
        self.first = index
        if self.entries:
            del self.entries[: max(0, index - self.entries[0][1])]

    def _begin(self, first: int, following: int) -> None:
        if len(self.segments) == 1:
            self.first, self.following = first, following
        elif (first, following) != (self.first, self.following):
            message = (
                f"the segment continues a log from {first} to before {following}, but the segments before it"
                f" hold one from {self.first} to before {self.following}"
            )
            raise FormatError(message)


def segment_path(directory: Path, number: int) -> Path:
    """Return where segment `number` is stored."""
    return directory / f"journal-{number:016d}.log"


def list_segments(directory: Path, files: Files) -> list[Segment]:
    """Return the segments in `directory`, oldest first, unread."""
    found = []
    for name in files.names(directory):
        match = _SEGMENT_NAME.fullmatch(name)
        if match is not None:
            found.append(Segment(int(match[1]), directory / name))
    return sorted(found, key=lambda segment: segment.number)


def recover(directory: Path, files: Files, on_cut: logging.Logger) -> LogView:
    """Read all segments and return what they say; cut a torn last write. Raises DataDirError.

    When this returns, everything in the view is on disk. An empty directory gives an empty view without
    segments.
    """
    for name in files.names(directory):
        if _UNFINISHED_NAME.fullmatch(name):
            files.unlink(directory / name)
    present = list_segments(directory, files)
    run = _newest_run(present)
    view = LogView()
    for segment in run:
        _read_segment(view, segment, files, on_cut, is_last=segment is run[-1])
    if not view.is_complete:
        message = (
            f"{directory}: the journal's log begins at entry {view.first}, but the segment files that hold"
            f" its beginning are missing (the oldest usable one is {run[0].path.name}). {_ADVICE}"
        )
        raise DataDirError(message)
    for segment in present[: len(present) - len(run)]:
        # A removal that was not yet durable when the power went; the complete run shows that it is not
        # needed.
        logger.warning("event=obsolete-segment-removed file=%s", segment.path)
        files.unlink(segment.path)
    files.fsync_dir(directory)
    return view


def _newest_run(segments: list[Segment]) -> list[Segment]:
    """Return the longest tail of `segments` without a gap in the numbers."""
    start = len(segments) - 1
    while start > 0 and segments[start - 1].number == segments[start].number - 1:
        start -= 1
    return segments[max(start, 0) :]


def _read_segment(
    view: LogView, segment: Segment, files: Files, on_cut: logging.Logger, *, is_last: bool
) -> None:
    fd = files.open(segment.path)
    try:
        data = _read_from_disk(fd, files)
        size_bytes = _replay(view, segment, data, is_last=is_last)
        if size_bytes < len(data):
            on_cut.warning(
                "event=torn-write-cut file=%s offset=%d cut_bytes=%d",
                segment.path,
                size_bytes,
                len(data) - size_bytes,
            )
            files.truncate(fd, size_bytes)
            files.fdatasync(fd)
    finally:
        files.close(fd)


def _read_from_disk(fd: int, files: Files) -> bytes:
    """Return the file's content as the disk has it, with nothing left that is only in memory.

    After a kill the last block may be in the page cache only: the sync makes it durable before anybody relies
    on it. After a *failed* sync the cache may show what the disk never got: dropping it makes us read the
    truth.
    """
    files.fdatasync(fd)
    files.drop_cache(fd)
    return files.read_at(fd, files.size(fd), 0)


def _replay(view: LogView, segment: Segment, data: bytes, *, is_last: bool) -> int:
    """Apply the segment's blocks to `view` and return the offset behind the last good one."""
    offset = 0
    try:
        check_segment_header(data, segment.number)
        view.segments.append(segment)
        seed = segment_seed(data)
        offset = SEGMENT_HEADER_BYTES
        while offset < len(data):
            block = decode_block(data, offset, seed)
            if block is None:
                _check_torn(view, data, offset, seed, is_last=is_last)
                break
            if view.sequence and block.sequence != view.sequence + 1:
                message = f"block {block.sequence} stands where block {view.sequence + 1} is due"
                raise FormatError(message)  # noqa: TRY301 - one place adds file, offset and advice
            for record_type, body in split_records(block.payload):
                view.apply(record_type, body)
            view.sequence = block.sequence
            offset = block.end
        if offset == SEGMENT_HEADER_BYTES:
            message = (
                "the first block, which was synced before the segment got its name, is missing or damaged"
            )
            raise FormatError(message)  # noqa: TRY301 - as above
    except (FormatError, struct.error, UnicodeDecodeError) as error:
        message = f"{segment.path}: damaged at offset {offset}: {error}. {_ADVICE}"
        raise DataDirError(message) from error
    return offset


def _check_torn(view: LogView, data: bytes, offset: int, seed: int, *, is_last: bool) -> None:
    """Return when the bad block at `offset` can be a torn last write. Raises FormatError when it cannot."""
    if not is_last:
        message = "a block of a finished segment does not verify"
        raise FormatError(message)
    if later_block_claims_sync(data, offset, view.sequence + 1, seed):
        message = "a block does not verify that a later one says was synced"
        raise FormatError(message)
