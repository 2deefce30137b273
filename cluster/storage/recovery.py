"""What the journal's segments on disk amount to, and the refusal to guess when they do not add up.

A torn last write is cut, with a warning: nobody was told that it is durable. Anything else that is wrong
(damage that a later block proves to have been synced, damage in an older segment, a missing segment) stops
the node: a replica that silently forgets what it acknowledged is worse than a replica that is down.

What is cut is overwritten with zeros, and synced, before anything new is written: the rest of a torn block
can never complete a later one. The file keeps its length, which blocks may have claimed.

A segment is read once, and what was checked is what is used. Only what is taken for unwritten, or for torn,
is read twice: no checksum vouches for it, and a disk that errs there would cost what stands there in truth.
"""

import errno
import logging
import re
import struct
from pathlib import Path
from typing import NoReturn

from cluster.errors import DataDirError
from cluster.storage.files import Files
from cluster.storage.journal_format import (
    NO_DISK,
    SEGMENT_HEADER_BYTES,
    BlockHead,
    FormatError,
    RecordType,
    decode_block,
    later_head_claims,
    parse_index,
    parse_segment_header,
    segment_seed,
)
from cluster.storage.replay import ReplayedLog, Segment

logger = logging.getLogger(__name__)

_SEGMENT_NAME = re.compile(r"journal-(\d{16})\.log")
_UNFINISHED_NAME = re.compile(r"journal-\d{16}\.log\.tmp")
_END_TYPE = RecordType.END.value
_ADVICE = (
    "Restore this data directory"
    " from a copy made after the node's last stop (an older one is unsafe), or replace this node"
    " with a new one (the other nodes have the data). Do not delete or edit single journal files: the node"
    " would forget its votes and what it acknowledged"
)


def segment_path(directory: Path, number: int) -> Path:
    """Return where segment `number` is stored."""
    return directory / f"journal-{number:016d}.log"


def is_segment(name: str) -> bool:
    """Whether a file of this name is a segment of a journal."""
    return _SEGMENT_NAME.fullmatch(name) is not None


def list_segments(directory: Path, files: Files) -> list[Segment]:
    """Return the segments in `directory`, oldest first, unread."""
    found = []
    for name in files.names(directory):
        match = _SEGMENT_NAME.fullmatch(name)
        if match is not None:
            found.append(Segment(int(match[1]), directory / name))
    return sorted(found, key=lambda segment: segment.number)


def recover(directory: Path, files: Files, on_cut: logging.Logger, disk_id: str = NO_DISK) -> ReplayedLog:
    """Read all segments and return what they say; cut a torn last write. Raises DataDirError.

    When this returns, everything in the view is on disk. An empty directory gives an empty view without
    segments. `disk_id` is that of the directory: segments that were written in another one are refused.
    """
    for name in files.names(directory):
        if _UNFINISHED_NAME.fullmatch(name):
            files.unlink(directory / name)
    present = list_segments(directory, files)
    run = _newest_run(present)
    view = ReplayedLog(disk_id)
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
    view: ReplayedLog, segment: Segment, files: Files, on_cut: logging.Logger, *, is_last: bool
) -> None:
    fd = files.open(segment.path)
    try:
        data = _read_from_disk(fd, files)
        view.end = _replay(view, segment, data, is_last=is_last)
        if is_last:
            _check_again(segment, fd, data, view.end, files)
        if is_last and not _is_zeros(data, view.end):
            on_cut.warning(
                "event=torn-write-cut file=%s offset=%d cut_bytes=%d",
                segment.path,
                view.end,
                len(data) - view.end,
            )
            files.write_at(fd, bytes(len(data) - view.end), view.end)
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


def _check_again(segment: Segment, fd: int, data: bytes, offset: int, files: Files) -> None:
    """Read again what no checksum vouches for, from `offset` on. Raises OSError if it is not the same."""
    files.drop_cache(fd)
    if files.read_at(fd, len(data) - offset, offset) != data[offset:]:
        message = f"what stands behind offset {offset} is not the same when it is read twice"
        raise OSError(errno.EIO, message, str(segment.path))


def _is_zeros(data: bytes, offset: int) -> bool:
    """Whether nothing was ever written at or after `offset`, as in prepared space."""
    return data[offset:] == bytes(len(data) - offset)


def _replay(view: ReplayedLog, segment: Segment, data: bytes, *, is_last: bool) -> int:
    """Apply the segment's blocks to `view` and return the offset behind the last good one."""
    offset = 0
    try:
        seed = _begin_segment(view, segment, data)
        offset = SEGMENT_HEADER_BYTES
        while (block := decode_block(data, offset, seed)) is not None:
            if block.file_bytes > len(data):
                _refuse_length(data, block)
            if block.start < block.end and data[block.start] == _END_TYPE:
                _check_end(data, block, is_last=is_last)
                return offset
            if view.sequence and block.sequence != view.sequence + 1:
                _refuse_gap(view, offset, block)
            view.apply(data, block)
            offset = block.end
        _check_tail(view, data, offset, seed)
    except (FormatError, struct.error, UnicodeDecodeError) as error:
        message = f"{segment.path}: damaged at offset {offset}: {error}. {_ADVICE}"
        raise DataDirError(message) from error
    return offset


def _begin_segment(view: ReplayedLog, segment: Segment, data: bytes) -> int:
    """Check that the segment continues the one before it; return the seed of its checksums."""
    header = parse_segment_header(data, segment.number)
    if header.disk_id != view.disk_id:
        message = (
            f"{segment.path} was written in another data directory (disk {header.disk_id[:8]}; this directory"
            f" is disk {view.disk_id[:8]}): files of two directories were mixed. Do not delete any. Put this"
            " node's own journal back as it was after the node's last stop (an older one is unsafe), or"
            " replace this node with a new one (the other nodes have the data)"
        )
        raise DataDirError(message)
    if view.segments and header.previous_salt != view.salt:
        message = (
            f"the segment does not continue {view.segments[-1].path.name}: one of them is of another journal"
        )
        raise FormatError(message)
    view.segments.append(segment)
    view.salt = header.salt
    view.header, view.file_bytes = data[:SEGMENT_HEADER_BYTES], len(data)
    return segment_seed(view.header)


def _check_end(data: bytes, block: BlockHead, *, is_last: bool) -> None:
    """Refuse a last segment that ends: what it names as the next one is missing."""
    if is_last:
        number = parse_index(data, block.end - 8, block.end)
        message = f"segment {number}, which follows this one, is missing"
        raise FormatError(message)


def _refuse_length(data: bytes, block: BlockHead) -> NoReturn:
    """Raise FormatError for a file that is shorter than a block of it says it was."""
    message = (
        f"the file has {len(data)} bytes, but had {block.file_bytes} when block {block.sequence} was written"
    )
    raise FormatError(message)


def _refuse_gap(view: ReplayedLog, offset: int, block: BlockHead) -> NoReturn:
    """Raise for a block that is not the next one: FormatError, or DataDirError naming the segment before."""
    due = view.sequence + 1
    if offset > SEGMENT_HEADER_BYTES or len(view.segments) == 1:
        message = f"block {block.sequence} stands where block {due} is due"
        raise FormatError(message)
    before, after = view.segments[-2:]
    message = (
        f"{before.path}: damaged at offset {view.end}: block {due} is damaged or missing, because"
        f" {after.path.name} begins with block {block.sequence}. {_ADVICE}"
    )
    raise DataDirError(message)


def _check_tail(view: ReplayedLog, data: bytes, offset: int, seed: int) -> None:
    """Return when what follows the last good block can be cut. Raises FormatError when it cannot.

    That of a finished segment is harmless (a torn END, prepared space) if the next segment goes on with the
    block that is due.
    """
    if offset == SEGMENT_HEADER_BYTES:
        message = "the first block, which was synced before the segment got its name, is missing or damaged"
        raise FormatError(message)
    if not _is_zeros(data, offset) and later_head_claims(data, offset, view.sequence + 1, seed):
        message = f"block {view.sequence + 1} does not verify, but was synced, as a later one says"
        raise FormatError(message)
