"""The journal's format: segments of blocks of records. Bytes in, values out; no file is touched here.

    segment   header, then blocks
    header    magic 8 | format version u32 | segment number u64 | salt 8 | crc32 u32 of what stands before
    block     magic 4 | payload length u32 | sequence u64 | synced u64 | crc32 u32 | payload
    payload   records: type u8 | body length u32 | body

All integers are little-endian. A block is what one sync writes: it counts whole or not at all, so whatever is
synced together is atomic. Its crc32 covers its header and payload and starts from the segment's own (salted)
checksum, so neither a block of another segment nor bytes chosen by a client can pass for a block. `sequence`
counts blocks for ever, across segments. `synced` is the highest sequence that was surely on disk when the
block was written: that is how a torn last write (no later block claims it was synced) is told from damage
(one does).
"""

import struct
import zlib
from enum import IntEnum
from typing import Final, NamedTuple

LogEntry = tuple[bytes, int, int]
"""A position of the Raft log as the Raft library stores it: (command, index, term)."""

FORMAT_VERSION: Final = 1
SEGMENT_MAGIC: Final = b"HOLDFJNL"
BLOCK_MAGIC: Final = b"\xb1Hf\n"
SALT_BYTES: Final = 8

_SEGMENT_HEAD: Final = struct.Struct("<8sIQ8s")
_CRC: Final = struct.Struct("<I")
_BLOCK_HEAD: Final = struct.Struct("<4sIQQ")
_RECORD_HEAD: Final = struct.Struct("<BI")
_ENTRY: Final = struct.Struct("<BIQQ")
_ONE: Final = struct.Struct("<BIQ")
_TWO: Final = struct.Struct("<BIQQ")
_HARD_STATE: Final = struct.Struct("<BIQ?")

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


_TYPES: Final = {record_type.value: record_type for record_type in RecordType}


class FormatError(ValueError):
    """These bytes are not what the format says. The caller knows the file and the offset."""


class Block(NamedTuple):
    """One block as read; `end` is the offset of the byte after it."""

    sequence: int
    synced: int
    payload: bytes
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


def split_records(payload: bytes) -> list[tuple[RecordType, bytes]]:
    """Return the (type, body) pairs of a block's payload. Raises FormatError."""
    records = []
    offset = 0
    while offset < len(payload):
        try:
            number, length = _RECORD_HEAD.unpack_from(payload, offset)
            record_type = _TYPES[number]
        except (struct.error, KeyError) as error:
            message = f"unknown record at byte {offset} of the block"
            raise FormatError(message) from error
        body = payload[offset + _RECORD_HEAD.size : offset + _RECORD_HEAD.size + length]
        if len(body) != length:
            message = f"record at byte {offset} of the block is longer than the block"
            raise FormatError(message)
        records.append((record_type, body))
        offset += _RECORD_HEAD.size + length
    return records


def parse_entry(body: bytes) -> LogEntry:
    """Return the log entry of an ENTRY body."""
    index, term = struct.unpack_from("<QQ", body)
    return body[16:], index, term


def parse_index(body: bytes) -> int:
    """Return the index of a one-index body."""
    return int.from_bytes(body, "little")


def parse_begin(body: bytes) -> tuple[int, int]:
    """Return (first, next) of a BEGIN body."""
    first, following = struct.unpack("<QQ", body)
    return first, following


def parse_hard_state(body: bytes) -> tuple[int, str | None]:
    """Return (term, node voted for or None) of a HARD_STATE body."""
    term, has_vote = struct.unpack_from("<Q?", body)
    return term, body[9:].decode() if has_vote else None


def segment_header(number: int, salt: bytes) -> bytes:
    """Return the first bytes of segment `number`; `salt` is random."""
    head = _SEGMENT_HEAD.pack(SEGMENT_MAGIC, FORMAT_VERSION, number, salt)
    return head + _CRC.pack(zlib.crc32(head))


def segment_seed(header: bytes) -> int:
    """Return the value from which the checksums of this segment's blocks start."""
    return zlib.crc32(header[:SEGMENT_HEADER_BYTES])


def check_segment_header(data: bytes, number: int) -> None:
    """Check that `data` begins segment `number` in this format. Raises FormatError saying what is wrong."""
    head = data[: _SEGMENT_HEAD.size]
    if len(data) < SEGMENT_HEADER_BYTES or not head.startswith(SEGMENT_MAGIC):
        message = "this is no journal segment"
        raise FormatError(message)
    if _CRC.unpack_from(data, _SEGMENT_HEAD.size)[0] != zlib.crc32(head):
        message = "the header is damaged"
        raise FormatError(message)
    _, version, stored_number, _ = _SEGMENT_HEAD.unpack(head)
    if version != FORMAT_VERSION:
        message = f"journal format {version} is not the format {FORMAT_VERSION} of this release"
        raise FormatError(message)
    if stored_number != number:
        message = f"the header says segment {stored_number}"
        raise FormatError(message)


def encode_block(payload: bytes, sequence: int, synced: int, seed: int) -> bytes:
    """Return the block that one sync writes."""
    head = _BLOCK_HEAD.pack(BLOCK_MAGIC, len(payload), sequence, synced)
    return b"".join((head, _CRC.pack(zlib.crc32(payload, zlib.crc32(head, seed))), payload))


def decode_block(data: bytes, offset: int, seed: int) -> Block | None:
    """Return the block at `offset`, or None when no whole, undamaged block begins there."""
    start = offset + BLOCK_HEADER_BYTES
    if start > len(data) or not data.startswith(BLOCK_MAGIC, offset):
        return None
    head = data[offset : offset + _BLOCK_HEAD.size]
    _, length, sequence, synced = _BLOCK_HEAD.unpack(head)
    end = start + length
    if end > len(data):
        return None
    view = memoryview(data)[start:end]
    if _CRC.unpack_from(data, offset + _BLOCK_HEAD.size)[0] != zlib.crc32(view, zlib.crc32(head, seed)):
        return None
    return Block(sequence, synced, bytes(view), end)


def later_block_claims_sync(data: bytes, offset: int, sequence: int, seed: int) -> bool:
    """Tell whether a valid block after `offset` says that block `sequence` was already on disk."""
    offset = data.find(BLOCK_MAGIC, offset + 1)
    while offset >= 0:
        block = decode_block(data, offset, seed)
        if block is not None and block.synced >= sequence:
            return True
        offset = data.find(BLOCK_MAGIC, offset + 1)
    return False
