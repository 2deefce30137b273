"""The end of the log on disk: one segment file, blocks behind each other in it, zeros ahead of them.

The zeros are there because overwriting takes half the time of growing: a sync that changes no length and no
extent need not wait for the file system's own journal. (`posix_fallocate` alone saves much less: the first
write into its space changes extents, too. Reusing old segments saves no more than zeros.) They are written
in the sync of the block that reaches the end of the file, in steps small enough for that one to stay quick.

One thread. No decision about the log lives here. Whatever any of this raises, do nothing but `close` then: a
block may be there in part, or whole and not counted.
"""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cluster.storage.files import Files
from cluster.storage.journal_format import (
    SALT_BYTES,
    RecordType,
    encode_block,
    index_record,
    segment_header,
    segment_salt,
    segment_seed,
)
from cluster.storage.replay import ReplayedLog

SEGMENT_BYTES: Final = 64 * 1024 * 1024
"""Bytes from which on a segment is full. It is read whole at recovery and unlinked whole after compaction:
both stay quick at this size."""
PREPARED_BYTES: Final = 512 * 1024
"""Bytes of zeros that are kept ahead of the log. One sync in 128 of 4 KiB writes them and takes a millisecond
longer. Larger steps make the longest sync longer, smaller ones make long syncs frequent."""

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Sizes(NamedTuple):
    """How long segments get, and how far a file is kept ahead of the log (0: not at all)."""

    segment_bytes: int = SEGMENT_BYTES
    prepared_bytes: int = PREPARED_BYTES


class SegmentWriter:
    """An open segment. What is written is durable after the next `sync`."""

    def __init__(
        self,
        fd: int,
        header: bytes,
        *,
        end: int,
        sequence: int,
        file_bytes: int,
        files: Files,
        sizes: Sizes,
    ) -> None:
        """Use `SegmentWriter.create` or `SegmentWriter.go_on`."""
        self.fd = fd
        self.salt = segment_salt(header)
        self.sequence = self._synced_sequence = sequence
        self._seed = segment_seed(header)
        self._end = end
        self._file_bytes = self._synced_file_bytes = file_bytes
        self._files = files
        self._sizes = sizes

    @classmethod
    def create(
        cls,
        path: Path,
        *,
        number: int,
        previous_salt: bytes,
        disk_id: str,
        sequence: int,
        files: Files,
        sizes: Sizes,
    ) -> "SegmentWriter":
        """Begin segment `number` behind block `sequence`, to be named after its first sync and not before.

        So its blocks may claim the length that the file has from the start.
        """
        header = segment_header(number, os.urandom(SALT_BYTES), previous_salt, disk_id)
        fd = files.create(path)
        try:
            files.write_at(fd, header, 0)
            writer = cls(
                fd,
                header,
                end=len(header),
                sequence=sequence,
                file_bytes=len(header),
                files=files,
                sizes=sizes,
            )
            writer._prepare()
        except BaseException:
            files.close(fd)
            raise
        writer._synced_file_bytes = writer._file_bytes
        return writer

    @classmethod
    def go_on(cls, view: ReplayedLog, files: Files, sizes: Sizes) -> "SegmentWriter":
        """Go on in the last segment of a recovered log. Nothing is read again: it might be something else."""
        return cls(
            files.open(view.segments[-1].path),
            view.header,
            end=view.end,
            sequence=view.sequence,
            file_bytes=view.file_bytes,
            files=files,
            sizes=sizes,
        )

    @property
    def is_full(self) -> bool:
        """Whether the next block belongs into the next segment."""
        return self._end >= self._sizes.segment_bytes

    def write(self, records: Sequence[bytes]) -> None:
        """Write the next block."""
        self.sequence += 1
        block = encode_block(
            records, self.sequence, self._synced_sequence, self._synced_file_bytes, self._seed
        )
        self._files.write_at(self.fd, block, self._end)
        self._end += len(block)

    def sync(self) -> None:
        """Make durable what was written, with space for more."""
        self._prepare()
        self._files.fdatasync(self.fd)
        self._synced_sequence = self.sequence
        self._synced_file_bytes = self._file_bytes

    def finish(self, next_number: int) -> None:
        """Note, without waiting for the disk, that the next segment is durable, and close the file.

        Its first block is the next in sequence: without the note a lost last segment would not be missed.
        """
        self._synced_sequence = self.sequence + 1
        end = (index_record(RecordType.END, next_number),)
        self._write_if_room(
            encode_block(end, self._synced_sequence, self._synced_sequence, self._file_bytes, self._seed)
        )
        self.close()

    def close(self) -> None:
        """Give the descriptor back; writes nothing. Idempotent."""
        # Forgotten first: the number may be another file's by the time of a second close.
        fd, self.fd = self.fd, -1
        if fd >= 0:
            self._files.close(fd)

    def _prepare(self) -> None:
        """Write zeros up to the next step if the log has reached the end of the file.

        The block stands before them, so a disk that is getting full takes it if it can. A block that is large
        beside the step prepares nothing: it would gain little.
        """
        grown_bytes = self._end - self._file_bytes
        if grown_bytes < 0:
            return
        self._file_bytes = self._end
        step_bytes = self._sizes.prepared_bytes
        if step_bytes and grown_bytes <= step_bytes:
            target = min((self._end // step_bytes + 1) * step_bytes, self._sizes.segment_bytes)
            if target > self._end:
                self._write_if_room(bytes(target - self._end))
                self._file_bytes = self._files.size(self.fd)

    def _write_if_room(self, data: bytes) -> None:
        """Write behind the log what is useful but not needed; a disk that has no room takes a part of it."""
        try:
            self._files.write_at(self.fd, data, self._end)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
