"""What a peer may say at all: bounds that no correct node ever meets. Pure.

A peer that knows the secret may still be broken: bad memory, a bug, a release that never was. What it says
must not reach the library, whose assertions would stop this node, and every other node at once; nor the
disk, where a term stays for ever. So a message beyond these bounds is taken for what it is, a fault of the
peer, and costs it its connection. Guards (guards.py) decide about what is plausible.
"""

from typing import Final

from cluster.config import Address
from cluster.consensus.engine import Engine
from cluster.consensus.library import SPLIT_BYTES
from cluster.consensus.member_list import MembersUnreadable, decode
from cluster.consensus.messages import (
    UNSET,
    Acknowledgement,
    AppendEntries,
    Chunk,
    Message,
    PreVoteRequest,
    VoteRequest,
)
from cluster.errors import PeerFault
from cluster.storage.journal_format import LogEntry

INDEX_MAX: Final = 1 << 53
"""No log is so long: a million entries a second would take 285 years."""
ENTRY_BYTES_MAX: Final = SPLIT_BYTES // 2
"""Bytes of one entry: correct ones are below half of it."""
SNAPSHOT_BYTES_MAX: Final = 1 << 40
"""Bytes of a snapshot: more than any machine holds in memory."""
TERMS_AT_ONCE: Final = 1_000_000
"""So far may the term rise at once: elections without a pause for six days, while a node was away."""
TERMS_PER_S: Final = 1_000
"""And so far for every second that this process has run: elections make some two terms a second."""


class Implausible(PeerFault):
    """A peer's message is one that no correct node sends."""


class TermBound:
    """How large a term may be that a peer tells. Terms are stored: one that is too large stays for ever.

    The bound rises with time, because a node may have been away for long, or join a very old cluster. So
    nobody is shut out for good: a node that lags behind ten million elections waits two and a half hours.
    Whoever wants to use the terms up (2^53 of them) has to go on for a quarter of a million years.
    """

    def __init__(self, term: int, now_s: float) -> None:
        """`term` is what this node has stored when it starts."""
        self._base = term + TERMS_AT_ONCE
        self._started_s = now_s

    def term_max(self, now_s: float) -> int:
        """Return the largest term that may be told now."""
        return min(self._base + int((now_s - self._started_s) * TERMS_PER_S), INDEX_MAX)


def check(message: Message, term_max: int) -> None:
    """Look at what a peer says, before anything is made of it. Raises Implausible."""
    if message.term > term_max:
        raise Implausible(
            f"term {message.term}, and no election can have led beyond {term_max}: it is stored nowhere here."
            " The bound rises by 1,000 each second"
        )
    match message:
        case AppendEntries():
            _check_append(message)
        case Acknowledgement():
            if not 0 < message.next_index <= INDEX_MAX:
                raise Implausible(f"an acknowledgement up to {message.next_index}")
        case VoteRequest() | PreVoteRequest():
            if message.last_log_index > INDEX_MAX or message.last_log_term > message.term:
                place = (message.last_log_index, message.last_log_term)
                raise Implausible(f"a log that ends at {place} in term {message.term}")
        case _:
            pass


def _check_append(message: AppendEntries) -> None:
    if message.commit_index > INDEX_MAX:
        raise Implausible(f"commit index {message.commit_index}")
    if isinstance(message.chunk, Chunk):
        _check_chunk(message.chunk, message.term)
    entries, index, term = message.entries, message.previous_index, message.previous_term
    if entries is UNSET or index is UNSET or term is UNSET:
        return
    if index + len(entries) > INDEX_MAX or term > message.term:
        raise Implausible(f"{len(entries)} entries behind {(index, term)} in term {message.term}")
    for entry in entries:
        _check_entry(entry, index + 1, term, message.term)
        _, index, term = entry


def _check_entry(entry: LogEntry, due_index: int, term_min: int, term_max: int) -> None:
    """Refuse a gap, a repetition, a term that falls or is its leader's future, and what nobody could use."""
    command, index, term = entry
    if index != due_index:
        raise Implausible(f"entry {index} where {due_index} is due")
    if not term_min <= term <= term_max:
        raise Implausible(f"entry {index} of term {term}, between terms {term_min} and {term_max}")
    if not command or len(command) > ENTRY_BYTES_MAX:
        raise Implausible(f"entry {index} of {len(command)} bytes")
    members = Engine.members_in(command)
    if members is None:
        return
    try:
        for member in decode(members).nodes.values():
            Address.parse(member.peer)
    except (MembersUnreadable, ValueError) as error:
        # It would count from here on, on every node: nobody could go on.
        raise Implausible(f"entry {index}: {error}") from None


def _check_chunk(chunk: Chunk, term: int) -> None:
    snapshot = chunk.id
    has_place = 0 <= snapshot.last_index <= INDEX_MAX and 0 <= snapshot.last_term <= term
    has_size = 0 <= snapshot.size_bytes <= SNAPSHOT_BYTES_MAX
    if not has_place or not has_size or chunk.offset + len(chunk.data) > snapshot.size_bytes:
        raise Implausible(f"{len(chunk.data)} bytes at {chunk.offset} of the snapshot {snapshot!r}")
