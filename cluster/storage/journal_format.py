"""The journal's format: segments of blocks of records. Bytes in, values out; no file is touched here.

    segment   header, then blocks, then zeros: space prepared for the next blocks
    header    magic 8 | format version u16 | group u16 | segment number u64 | salt 8 | previous salt 8
              | disk id 16 | crc32 u32
    block     magic 4 | payload length u32 | sequence u64 | synced u64 | file length u64
              | crc32 u32 of the payload | crc32 u32 of what stands before | payload
    payload   records: type u8 | body length u32 | body

All integers are little-endian. A block is what one sync writes: it counts whole or not at all, so whatever is
synced together is atomic. Its checksums start from the segment's own, salted one, so neither a block of
another segment nor bytes chosen by a client can pass for a block. `sequence` counts blocks for ever, across
segments. `previous salt` is that of the segment before: a copy from another journal does not fit in.

Two claims tell damage from a torn last write, in which any of the disk's sectors may be missing. `synced` is
the highest sequence that was surely on disk when the block was written, `file length` the length that the
file surely had: what contradicts a claim was there and is gone.

`group` is the number of the Raft group. `disk id` is that of the data directory for which the segment was
written: a journal that was copied into another directory is not taken for that directory's own.
"""

import re
import struct
import zlib
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from lockstate.words.versions import GROUP

LogEntry = tuple[bytes, int, int]
"""A position of the Raft log as the Raft library stores it: (command, index, term)."""

FORMAT_VERSION: Final = 1
"""The version of the format that segments are written in and read from."""
SEGMENT_MAGIC: Final = b"HOLDFJNL"
BLOCK_MAGIC: Final = b"\xb1Hf\n"
SALT_BYTES: Final = 8
NO_SALT: Final = bytes(SALT_BYTES)
"""Stands for the salt of a segment before the first one."""

DISK_ID_BYTES: Final = 16
NO_DISK: Final = "0" * (2 * DISK_ID_BYTES)
"""The disk id of a journal that is in no data directory."""
DISK_ID: Final = re.compile(f"[0-9a-f]{{{2 * DISK_ID_BYTES}}}")
"""What disk ids look like."""

_SEGMENT_HEAD: Final = struct.Struct("<8sHHQ8s8s16s")
_CRC: Final = struct.Struct("<I")
_BLOCK_HEAD: Final = struct.Struct("<4sIQQQI")
_WHOLE_HEAD: Final = struct.Struct("<4sIQQQII")
_RECORD_HEAD: Final = struct.Struct("<BI")
_ENTRY: Final = struct.Struct("<BIQQ")
_ONE: Final = struct.Struct("<BIQ")
_TWO: Final = struct.Struct("<BIQQ")
_HARD_STATE: Final = struct.Struct("<BIQ?")
_SHORT_BYTES: Final = 4096
"""Bytes below which copying a payload is quicker than looking at it through a view."""
_PAIR: Final = struct.Struct("<QQ")
_HEARD: Final = struct.Struct(f"<BI{DISK_ID_BYTES}sQQ")
_unpack_entry: Final = _ENTRY.unpack_from
_unpack_head: Final = _WHOLE_HEAD.unpack_from

SEGMENT_HEADER_BYTES: Final = _SEGMENT_HEAD.size + _CRC.size
BLOCK_HEADER_BYTES: Final = _BLOCK_HEAD.size + _CRC.size


class RecordType(IntEnum):
    """What a record says. Numbers are stored: never reuse one."""

    ENTRY = 1
    """index, term, command: appended to the log."""
    TRUNCATE_FROM = 2
    """index: this entry and all later ones are gone."""
    KEEP_FROM = 3
    """index: the entries before it are gone (compaction)."""
    RESTART_AT = 4
    """index: all entries are gone; the next one has this index."""
    HARD_STATE = 5
    """term, whether a vote was given, the node voted for."""
    COMMIT = 6
    """index: a hint that the log is committed up to here."""
    BEGIN = 7
    """first, next: where the log stood when this segment was begun."""
    END = 8
    """number of the next segment, which was durable when this was written. Alone in the last block."""
    HEARD = 9
    """disk id, term, index: a hint how far the data directory of a peer has come."""


_ENTRY_TYPE: Final = RecordType.ENTRY.value
_TYPES: Final = {record_type.value: record_type for record_type in RecordType}
_BODY_BYTES: Final = {
    RecordType.TRUNCATE_FROM: 8,
    RecordType.KEEP_FROM: 8,
    RecordType.RESTART_AT: 8,
    RecordType.COMMIT: 8,
    RecordType.BEGIN: 16,
    RecordType.HEARD: DISK_ID_BYTES + 16,
}
"""How long the bodies of records are that all are of one length."""
_ENTRY_BYTES_MIN: Final = _ENTRY.size - _RECORD_HEAD.size
_HARD_STATE_BYTES_MIN: Final = _HARD_STATE.size - _RECORD_HEAD.size
"""How long the others are at least: what lacks would be read out of the record behind."""


class FormatError(ValueError):
    """These bytes are not what the format says. The caller knows the file and the offset."""


class SegmentHeader(NamedTuple):
    """What the first bytes of a segment say, of this version and group."""

    number: int
    salt: bytes
    previous_salt: bytes
    disk_id: str


class BlockHead(NamedTuple):
    """What a block says of itself and of what was on disk before it. Offsets are those of the file."""

    sequence: int
    synced: int
    file_bytes: int
    checksum: int
    start: int
    end: int


def entry_head(command: bytes, index: int, term: int) -> bytes:
    """Return what stands before `command` in an ENTRY record (the command follows unchanged, uncopied)."""
    return _ENTRY.pack(RecordType.ENTRY, 16 + len(command), index, term)


def index_record(record_type: RecordType, index: int) -> bytes:
    """Return a record whose body is one index."""
    return _ONE.pack(record_type, 8, index)


def begin_record(first: int, following: int) -> bytes:
    """Return the record that heads a segment: the log so far is `first` up to but without `following`."""
    return _TWO.pack(RecordType.BEGIN, 16, first, following)


def hard_state_record(term: int, voted_for: str | None) -> bytes:
    """Return the record of the current term and vote."""
    name = b"" if voted_for is None else voted_for.encode()
    return _HARD_STATE.pack(RecordType.HARD_STATE, 9 + len(name), term, voted_for is not None) + name


def heard_record(disk_id: str, term: int, index: int) -> bytes:
    """Return the record of how far a peer's directory has come."""
    return _HEARD.pack(RecordType.HEARD, DISK_ID_BYTES + 16, bytes.fromhex(disk_id), term, index)


def read_entries(data: bytes, start: int, end: int) -> tuple[list[LogEntry], int]:
    """Return the entries of the ENTRY records from `start` on, and where the first other record begins.

    The commands are the one copy that recovery makes. This is its innermost loop.
    """
    entries = []
    head_bytes, least_bytes = _ENTRY.size, _ENTRY_BYTES_MIN
    command_start = start + head_bytes
    while command_start <= end and data[start] == _ENTRY_TYPE:
        _, length, index, term = _unpack_entry(data, start)
        if length < least_bytes:
            raise _wrong_length(RecordType.ENTRY, length)
        start += _RECORD_HEAD.size + length
        if start > end:
            message = "an entry is longer than its block"
            raise FormatError(message)
        entries.append((data[command_start:start], index, term))
        command_start = start + head_bytes
    return entries, start


def _wrong_length(record_type: RecordType, length: int) -> FormatError:
    return FormatError(f"a record of type {record_type.name} has {length} bytes")


def read_record(data: bytes, start: int, end: int) -> tuple[RecordType, int, int]:
    """Return type, start and end of the body of the record at `start`. Raises FormatError."""
    body = start + _RECORD_HEAD.size
    if body > end:
        message = "a record is longer than its block"
        raise FormatError(message)
    number, length = _RECORD_HEAD.unpack_from(data, start)
    record_type = _TYPES.get(number)
    if record_type is None or body + length > end:
        message = "a record is unknown, or longer than its block"
        raise FormatError(message)
    is_short = record_type is RecordType.HARD_STATE and length < _HARD_STATE_BYTES_MIN
    if is_short or length != _BODY_BYTES.get(record_type, length):
        raise _wrong_length(record_type, length)
    return record_type, body, body + length


def parse_index(data: bytes, start: int, end: int) -> int:
    """Return the index of a one-index body."""
    return int.from_bytes(data[start:end], "little")


def parse_begin(data: bytes, start: int) -> tuple[int, int]:
    """Return (first, next) of a BEGIN body."""
    first, following = _PAIR.unpack_from(data, start)
    return first, following


def parse_heard(data: bytes, start: int) -> tuple[str, int, int]:
    """Return disk id, term and index of a HEARD body."""
    disk, term, index = struct.unpack_from(f"<{DISK_ID_BYTES}sQQ", data, start)
    return disk.hex(), term, index


def parse_hard_state(data: bytes, start: int, end: int) -> tuple[int, str | None]:
    """Return (term, node voted for or None) of a HARD_STATE body."""
    term, has_vote = struct.unpack_from("<Q?", data, start)
    return term, data[start + 9 : end].decode() if has_vote else None


def segment_header(number: int, salt: bytes, previous_salt: bytes, disk_id: str = NO_DISK) -> bytes:
    """Return the first bytes of segment `number`; `salt` is random, `previous_salt` zeros for the first.

    `disk_id` is written in hexadecimal digits.
    """
    disk = bytes.fromhex(disk_id)
    head = _SEGMENT_HEAD.pack(SEGMENT_MAGIC, FORMAT_VERSION, GROUP, number, salt, previous_salt, disk)
    return head + _CRC.pack(zlib.crc32(head))


def segment_seed(header: bytes) -> int:
    """Return the value from which the checksums of this segment's blocks start."""
    return zlib.crc32(header[:SEGMENT_HEADER_BYTES])


def segment_salt(header: bytes) -> bytes:
    """Return the salt in a header that is known to be good."""
    salt: bytes = _SEGMENT_HEAD.unpack_from(header)[4]
    return salt


def parse_segment_header(data: bytes, number: int) -> SegmentHeader:
    """Return what begins segment `number`. Raises FormatError saying what is wrong."""
    head = data[: _SEGMENT_HEAD.size]
    if len(data) < SEGMENT_HEADER_BYTES or not head.startswith(SEGMENT_MAGIC):
        message = "this is not a journal segment"
        raise FormatError(message)
    _, version, group, stored_number, salt, previous_salt, disk = _SEGMENT_HEAD.unpack(head)
    if version != FORMAT_VERSION or _CRC.unpack_from(data, _SEGMENT_HEAD.size)[0] != zlib.crc32(head):
        message = (
            f"the header is damaged, or of another release: it says format {version}, this release reads"
            f" format {FORMAT_VERSION}"
        )
        raise FormatError(message)
    if group != GROUP:
        message = f"the segment belongs to Raft group {group}, not to group {GROUP}"
        raise FormatError(message)
    if stored_number != number:
        message = f"the header says segment {stored_number}"
        raise FormatError(message)
    return SegmentHeader(stored_number, salt, previous_salt, disk.hex())


def encode_block(records: Sequence[bytes], sequence: int, synced: int, file_bytes: int, seed: int) -> bytes:
    """Return the block that one sync writes; the only copy that is made of the records."""
    checksum, length = seed, 0
    for record in records:
        checksum = zlib.crc32(record, checksum)
        length += len(record)
    head = _BLOCK_HEAD.pack(BLOCK_MAGIC, length, sequence, synced, file_bytes, checksum)
    return b"".join((head, _CRC.pack(zlib.crc32(head, seed)), *records))


def decode_head(data: bytes, offset: int, seed: int) -> BlockHead | None:
    """Return the head of a block at `offset`, or None if none was written there. Its payload may be torn."""
    start = offset + BLOCK_HEADER_BYTES
    if start > len(data):
        return None
    magic, length, sequence, synced, file_bytes, checksum, head_checksum = _unpack_head(data, offset)
    if magic != BLOCK_MAGIC or head_checksum != zlib.crc32(data[offset : start - _CRC.size], seed):
        return None
    return BlockHead(sequence, synced, file_bytes, checksum, start, start + length)


def decode_block(data: bytes, offset: int, seed: int) -> BlockHead | None:
    """Return the head of the block at `offset`, or None when no whole, undamaged block begins there."""
    head = decode_head(data, offset, seed)
    if head is None or head.end > len(data):
        return None
    is_short = head.end - head.start < _SHORT_BYTES
    payload = data[head.start : head.end] if is_short else memoryview(data)[head.start : head.end]
    return head if zlib.crc32(payload, seed) == head.checksum else None


def later_head_claims(data: bytes, offset: int, sequence: int, seed: int) -> bool:
    """Tell whether a head at or after `offset` claims that block `sequence`, or a longer file, was on disk.

    A head suffices, whether or not its payload is torn: it was written, so its claims were true.
    """
    offset = data.find(BLOCK_MAGIC, offset)
    while offset >= 0:
        head = decode_head(data, offset, seed)
        if head is not None and (head.file_bytes > len(data) or head.synced >= sequence < head.sequence):
            return True
        offset = data.find(BLOCK_MAGIC, offset + 1)
    return False
