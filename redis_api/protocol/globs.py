r"""Patterns as Redis has them: `*`, `?`, sets in brackets, and `\` before what means itself."""

import re
from typing import Final

from redis_api.protocol.errors import CommandRefused

BYTES_MAX: Final = 512
"""Bytes of a pattern: as many as a name has. Many of them take long to read, and the node waits for that."""


def check_length(pattern: bytes) -> None:
    """Refuse a pattern that is too long. Raises CommandRefused."""
    if len(pattern) > BYTES_MAX:
        raise CommandRefused(f"a pattern has at most {BYTES_MAX} bytes")


def matcher(pattern: bytes) -> "re.Pattern[bytes]":
    """Return what matches, as a whole, what a pattern means. It takes no longer than the product of lengths.

    What stands between two stars is found where it comes first, and not looked for again: no later place
    would let more of the rest match.
    """
    first, *pieces = _pieces(pattern)
    if not pieces:
        return re.compile(first, re.DOTALL)
    *inner, last = pieces
    return re.compile(
        first + b"".join([b"(?>.*?" + piece + b")" for piece in inner]) + b".*" + last, re.DOTALL
    )


def _pieces(pattern: bytes) -> list[bytes]:
    """Return, as regular expressions, what stands before, between and behind the stars."""
    pieces = [b""]
    at = 0
    while at < len(pattern):
        byte = pattern[at : at + 1]
        at += 1
        if byte == b"*":
            if pieces[-1] or len(pieces) == 1:
                pieces.append(b"")
            continue
        if byte == b"?":
            pieces[-1] += b"."
        elif byte == b"[":
            found, at = _set(pattern, at)
            pieces[-1] += found
        else:
            if byte == b"\\" and at < len(pattern):
                byte = pattern[at : at + 1]
                at += 1
            pieces[-1] += re.escape(byte)
    return pieces


def _set(pattern: bytes, at: int) -> tuple[bytes, int]:
    """Return the regular expression of a set, and where it ends. One without an end has all the rest."""
    is_not = pattern[at : at + 1] == b"^"
    at += is_not
    members: set[int] = set()
    while at < len(pattern) and pattern[at] != ord("]"):
        if pattern[at] == ord("\\") and at + 1 < len(pattern):
            at += 1
        elif pattern[at + 1 : at + 2] == b"-" and at + 2 < len(pattern):
            low, high = sorted((pattern[at], pattern[at + 2]))
            members.update(range(low, high + 1))
            at += 3
            continue
        members.add(pattern[at])
        at += 1
    if not members:
        return b"." if is_not else b"(?!)", at + 1
    ranges = b"".join([b"\\x%02x-\\x%02x" % ends for ends in _runs(members)])
    return b"[%b%b]" % (b"^" * is_not, ranges), at + 1


def _runs(members: set[int]) -> list[tuple[int, int]]:
    """Return the first and the last of all that follow each other: few, or the pattern is long itself."""
    firsts = sorted([member for member in members if member - 1 not in members])
    lasts = sorted([member for member in members if member + 1 not in members])
    return [*zip(firsts, lasts, strict=True)]
