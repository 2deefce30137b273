"""Reads that bring something else than what was written: an error, or wrong bytes, once."""

from random import Random
from typing import Literal

import msgspec

from tests.simulation.world.inode import SECTOR_BYTES

Kind = Literal["error", "flip", "zeros", "misdirected"]


class BadRead(msgspec.Struct):
    """One of the next reads of files of some names: so many good ones come before it."""

    kind: Kind
    after: int
    names: str = ""
    """What is in the name of the file; empty: it may be any."""


def misread(kind: Kind, data: bytes, random: Random) -> bytes:
    """Return what a disk gives out for `data`: a flipped bit, or a sector of zeros or of another place."""
    changed = bytearray(data)
    if kind == "flip":
        changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
        return bytes(changed)
    sectors = range(0, len(data), SECTOR_BYTES)
    start, other = random.choice(sectors), random.choice(sectors)
    size_bytes = len(data[start : start + SECTOR_BYTES])
    found = b"" if kind == "zeros" else data[other : other + size_bytes]
    changed[start : start + size_bytes] = found.ljust(size_bytes, b"\0")
    return bytes(changed)


def first_difference(one: bytes, other: bytes) -> int | None:
    """Return where two of the same length begin to differ, None if they do not."""
    pairs = enumerate(zip(one, other, strict=True))
    return next((at for at, (left, right) in pairs if left != right), None)
