"""A running digest over the log: two logs with equal digests at one entry have the same history. Pure.

    digest(i) = mix(digest(i - 1), crc32(entry i), i, term of i)

Raft compares logs by index and term alone (section 5.3); that is enough as long as no disk forgets and no two
leaders share a term. The digest notices when it was not: it travels with AppendEntries, and with snapshots.

They go back to the first entry. While a node does not know the history before an entry, its digest is not
known either, and nothing is compared.

It finds bugs, wrong disks and mixed histories. Forgers are kept out by the links.
"""

import zlib
from collections.abc import Iterable
from typing import Final, Protocol

import msgspec

from cluster.consensus.messages import UNSET, AppendEntries, Chunk
from cluster.storage.journal_format import LogEntry

Digest = int
"""64 bits."""

MEMBERS_MARK: Final = b"\x10"
"""The first byte of an entry that is a member list."""
FIRST_INDEX: Final = 1
"""Where a log begins that has lost nothing: its digests are known from there on."""

_ANEW: Final = 0x9E3779B97F4A7C15
"""Stands for the digest before the first entry."""
_WORD: Final = (1 << 64) - 1
_SPREAD: Final = 0xD6E8FEB86659FD93
_INDEX: Final = 0xC2B2AE3D27D4EB4F
_TERM: Final = 0x165667B19E3779F9
_FOLD_BITS: Final = 32

_crc32: Final = zlib.crc32


def digest_behind(previous: Digest | None, command: bytes, index: int, term: int) -> Digest | None:
    """Return the digest at an entry, given the one before it; None if that is needed and not known.

    Each step can be undone, so a difference never goes away by itself. Measured: 0.6 us, and the CRC: 0.3 us
    for 1 kB, 18 us for the 50 kB of 500 commands.
    """
    if previous is None:
        return None
    mixed = (previous ^ _crc32(command)) * _SPREAD + index * _INDEX + term * _TERM & _WORD
    return mixed ^ mixed >> _FOLD_BITS


class LogDigests:
    """The digests of the entries that a log in memory holds, by position. They grow and are cut like it."""

    def __init__(self, entries: Iterable[LogEntry]) -> None:
        self.values: Final[list[Digest | None]] = []
        """The digests, the oldest first; None where it is not known. Always this very list."""
        for entry in entries:
            self.append(*entry)

    def append(self, command: bytes, index: int, term: int) -> None:
        """Follow an entry that is appended to the log."""
        digests = self.values
        before = _ANEW if index == FIRST_INDEX else None
        digests.append(digest_behind(digests[-1] if digests else before, command, index, term))

    def remove_from(self, position: int) -> None:
        """Follow a log that is cut behind."""
        del self.values[max(position, 0) :]

    def remove_before(self, position: int) -> None:
        """Follow a log that is compacted."""
        del self.values[: max(position, 0)]

    def learn(self, position: int, digest: Digest, behind: Iterable[LogEntry]) -> bool:
        """Take the digest at a position from a snapshot, and find those `behind`; False if it contradicts."""
        if self.values[position] is None:
            self.values[position:] = [digest]
            for entry in behind:
                self.append(*entry)
        return self.values[position] == digest


class Difference(msgspec.Struct, frozen=True):
    """Two histories: the leader and this node have different digests at the same entry."""

    index: int
    term: int
    own: Digest
    theirs: Digest


class DigestView(Protocol):
    """What is to be known of a log to compare it."""

    def term_at(self, index: int) -> int | None:
        """Return the term of the entry at `index`, None if it is not in the log."""

    def digest_at(self, index: int) -> Digest | None:
        """Return the digest at `index`, None if it is not known."""


def difference(message: AppendEntries, log: DigestView) -> Difference | None:
    """Return where a leader's history differs from this log although index and term are the same.

    It looks at the place before the entries, and at the last of the entries that are here already: whatever a
    follower acknowledges or commits because of this message is covered by one of the two.
    """
    theirs = None if message.previous_digest is UNSET else message.previous_digest
    if isinstance(message.chunk, Chunk):
        return _difference_at(message.chunk.id.last_index, message.chunk.id.last_term, theirs, log)
    if message.entries is UNSET or message.previous_index is UNSET or message.previous_term is UNSET:
        return None
    found = _difference_at(message.previous_index, message.previous_term, theirs, log)
    if found is not None:
        return found
    last: LogEntry | None = None
    for entry in message.entries:
        if log.term_at(entry[1]) != entry[2]:
            break
        theirs = digest_behind(theirs, *entry)
        last = entry
    return None if last is None else _difference_at(last[1], last[2], theirs, log)


def _difference_at(index: int, term: int, theirs: Digest | None, log: DigestView) -> Difference | None:
    own = log.digest_at(index)
    if theirs is None or own is None or theirs == own or log.term_at(index) != term:
        return None
    return Difference(index, term, own, theirs)
