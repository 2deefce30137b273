"""Marks: numbers that stand for records in the fingerprint of a state (see `fingerprint`). Pure and stable.

The mark of a record depends on every field that is stored of it, and on nothing else: not on the process (no
`hash()`), not on the node, not on the order of the table. A table keeps the sum of the marks of its records:
whoever adds, changes or removes a record adds the difference. So the sum follows every change at a cost that
does not depend on the size of the table.

Sums of checksums alone would often be the same when two records have exchanged a value, for a CRC is linear
over XOR; the square is not.

Above the 64 bits of the fingerprint a mark says how many bytes of texts its record has (see `budget`).
"""

import zlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from lockstate.tables.deadlines import Timed

WORD: Final = (1 << 64) - 1
"""The 64 bits that are kept of a fingerprint. Sums are kept whole, and may be longer."""

LENGTH_SHIFT: Final = 64
"""The bit from which on a mark has the length of its record."""
_SHORT: Final = 1024
_LENGTHS: Final = tuple(size << LENGTH_SHIFT for size in range(_SHORT))
"""The lengths of nearly all records as they stand in marks: to look one up is quicker than to shift it."""

_encode: Final = msgspec.msgpack.Encoder().encode
_crc32: Final = zlib.crc32


def of_content(content: Any, more_bytes: int = 0) -> int:
    """Return the mark of a record or a tuple, from all that it says.

    `more_bytes` belong to it, and show only in its length: something that it says implies them.
    """
    data = _encode(content)
    crc = _crc32(data)
    size = len(data) + more_bytes
    try:
        return crc * crc + _LENGTHS[size]
    except IndexError:
        return crc * crc + of_length(size)


def of_record(record: Timed) -> int:
    """Return the mark of a record but for its deadline, which the calendar of deadlines has a sum for."""
    expires_at_ms = record.expires_at_ms
    if not expires_at_ms:
        data = _encode(record)
        crc = _crc32(data)
        try:
            return crc * crc + _LENGTHS[len(data)]
        except IndexError:
            return crc * crc + of_length(len(data))
    # A renewal, which nearly every command is that keeps something alive, then changes one number.
    record.expires_at_ms = 0
    try:
        data = _encode(record)
    finally:
        # Reads count marks, too: one that fails for want of memory must not take the deadline away.
        record.expires_at_ms = expires_at_ms
    crc = _crc32(data)
    try:
        return crc * crc + _LENGTHS[len(data)]
    except IndexError:
        return crc * crc + of_length(len(data))


def sum_of_records(records: Sequence[Timed]) -> int:
    """Return the sum of the marks of many records whose deadlines are 0: of each what `of_record` returns."""
    encoded = [*map(_encode, records)]
    crcs = [*map(_crc32, encoded)]
    squares = sum([crc * crc for crc in crcs])
    return squares + of_length(sum(map(len, encoded)))


def of_length(bytes_count: int) -> int:
    """Return the mark of what has only a length: it does not show in the fingerprint."""
    return bytes_count << LENGTH_SHIFT


def length_in(sums: int) -> int:
    """Return the bytes that a sum of marks counts; the rest of each mark may add up to one more."""
    return sums >> LENGTH_SHIFT


def of_name(name: str) -> int:
    """Return a weight for what is kept under `name`: the mark is weight * value. Never 0."""
    return _crc32(name.encode()) + 1
