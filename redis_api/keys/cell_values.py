"""What a cell holds for clients of Redis: a string as it is, or a list, which is told apart by a mark.

A string is the value of its cell, so other faces read and write strings as they are. Only one that begins
with the mark itself, a zero byte, gets two bytes in front. What other faces wrote is a string as well.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from lockstate.words.limits import CELL_VALUE_BYTES_MAX
from redis_api.protocol.errors import MANUAL, CommandRefused

_STRING: Final = b"\0s"
_LIST: Final = b"\0l"

Value = bytes | tuple[bytes, ...]
"""A string, or the elements of a list, of which there is at least one."""

_decoder: Final = msgspec.msgpack.Decoder(tuple[bytes, ...])


def encode(value: bytes | Sequence[bytes]) -> bytes:
    """Return the value of the cell. Raises CommandRefused if it is too long for one."""
    if isinstance(value, bytes):
        encoded = _STRING + value if value.startswith(b"\0") else value
    else:
        encoded = _LIST + msgspec.msgpack.encode(value)
    if len(encoded) > CELL_VALUE_BYTES_MAX:
        raise CommandRefused(
            f"{len(encoded)} bytes for one key; at most {CELL_VALUE_BYTES_MAX} are allowed, because this is a"
            f" lock service and no database; see {MANUAL}"
        )
    return encoded


def decode(encoded: bytes) -> Value:
    """Return what a cell holds."""
    if encoded.startswith(_LIST):
        try:
            items = _decoder.decode(encoded[len(_LIST) :])
        except msgspec.DecodeError:
            return encoded
        return items or encoded
    return encoded.removeprefix(_STRING)
