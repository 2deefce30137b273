"""Pure functions over Raft messages: what we let in, what we let out, and why. Our safety argument's heart.

The library's own handling of these messages breaks promises (its hazards are described with each guard).
Every message between nodes passes here, in both directions, before the library or the wire sees it. Nothing
here has state or effects: a guard takes a message and what is known of the log, and returns what to do.

Messages are the library's dictionaries. Log positions are Raft indices.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

Message = dict[str, Any]

PROMISES: Final = frozenset({"next_node_idx", "response_vote", "request_vote"})
"""Messages that claim something is on this node's disk (entries, a vote). They leave after the sync."""

_INBOUND: Final = frozenset(
    {"append_entries", "next_node_idx", "request_vote", "response_vote", "timeout_now"}
)
"""What the library may hear from peers. Its own forwarding (`apply_command`, pickled) is not used."""


class LogView(Protocol):
    """What a guard may know of a node's log and role."""

    @property
    def last_index(self) -> int:
        """Return the index of the newest entry."""

    @property
    def committed(self) -> int:
        """Return the highest index this node knows to be committed or contained in its snapshot."""

    def term_at(self, index: int) -> int | None:
        """Return the term of the entry at `index`, or None if the log does not hold it (any more)."""


class Admission(NamedTuple):
    """What becomes of a message: `message` goes to the library, `reply` goes back to the sender."""

    message: Message | None
    reply: Message | None = None


class GuardViolationError(AssertionError):
    """A peer asks for what no correct node asks for: committed entries would change. This node must stop."""


_FIELDS: Final = {
    "append_entries": ("term", "commit_index"),
    "next_node_idx": ("term", "next_node_idx", "reset", "success"),
    "request_vote": ("term", "last_log_index", "last_log_term"),
    "response_vote": ("term",),
    "timeout_now": ("term",),
    "pre_vote": ("term", "last_log_index", "last_log_term"),
    "pre_vote_granted": ("term",),
    "newer_term": ("term",),
}
"""What each message must have, as numbers, before anything looks at it."""


def is_well_formed(message: Mapping[str, Any]) -> bool:
    """Whether a message has what its type needs. One of an unknown type has: it is dropped later."""
    needed = _FIELDS.get(message.get("type", ""), ())
    if not all(isinstance(message.get(field), int) for field in needed):
        return False
    if message.get("type") != "append_entries" or "prevLogIdx" not in message:
        return True
    has_place = isinstance(message["prevLogIdx"], int) and isinstance(message.get("prevLogTerm"), int)
    entries = message.get("entries")
    return has_place and isinstance(entries, list) and all(_is_entry(entry) for entry in entries)


def _is_entry(entry: Any) -> bool:
    """Whether this is a command with its index and term."""
    return isinstance(entry, (list, tuple)) and [type(part) for part in entry] == [bytes, int, int]


def is_known(message: Mapping[str, Any]) -> bool:
    """Whether this is a Raft message that the library may see at all (H10, H13)."""
    return message.get("type") in _INBOUND


def admit_append(message: Message, log: LogView, current_term: int) -> Admission:
    """Let an `append_entries` change the log only at a real conflict, and commit only what it verified.

    Before: the library cuts its log behind `prevLogIdx` whenever anything is there (H2), and takes the
    leader's commit index up to the end of its own log even when the message said nothing about that log (H1).

    After: entries that the log already has are skipped. If nothing is new, the library sees a bare heartbeat
    and the acknowledgement is ours, up to the last position that this message verified. Else it sees an
    append directly behind the last matching entry. `commit_index` never exceeds the last verified position
    (Raft section 5.3: "index of last new entry"). A log that does not reach or match `prevLogIdx` is left to
    the library, which asks for earlier entries without touching log or commit index.
    """
    if message["term"] < current_term:
        return Admission(None, tell_term(current_term))
    if "transmission" in message:
        return Admission(None)
    if "prevLogIdx" not in message:
        # A part of a snapshot: the library is silent about it, and a leader without answers steps down.
        sign_of_life = acknowledge(log.committed) | {"success": False}
        return Admission(
            message | {"commit_index": min(message["commit_index"], log.committed)}, sign_of_life
        )
    previous: int = message["prevLogIdx"]
    if not _matches(log, previous, message["prevLogTerm"]):
        return Admission(message)
    entries = message["entries"]
    matched = _count_matching(log, entries)
    last_verified = previous + len(entries)
    commit_index = min(message["commit_index"], last_verified)
    if matched == len(entries):
        heartbeat = {"type": "append_entries", "term": message["term"], "commit_index": commit_index}
        return Admission(heartbeat, acknowledge(last_verified))
    first_new = previous + matched + 1
    if first_new <= log.committed:
        raise GuardViolationError(
            f"a leader of term {message['term']} would change the committed entry {first_new}"
        )
    previous_term = entries[matched - 1][2] if matched else message["prevLogTerm"]
    return Admission(
        message
        | {
            "prevLogIdx": first_new - 1,
            "prevLogTerm": previous_term,
            "entries": entries[matched:],
            "commit_index": commit_index,
        }
    )


def tell_term(term: int) -> Message:
    """Return what a sender in an older term must hear.

    Raft answers every message with its term (section 5.1). The library keeps silent, and with PreVote a node
    in a newer term would then neither follow nor be followed, for ever.
    """
    return {"type": "newer_term", "term": term}


def acknowledge(last_verified: int) -> Message:
    """Return the acknowledgement of everything up to `last_verified`."""
    return {"type": "next_node_idx", "next_node_idx": last_verified + 1, "reset": False, "success": True}


def snapshot_is_news(log: LogView, index: int, term: int) -> bool:
    """Whether a snapshot up to `index` says anything that the log does not hold already.

    A leader that was misled by a late `reset` offers a snapshot to a follower that is ahead of it; installing
    it would throw acknowledged entries away. What is committed here or in the log with the same term is equal
    to the snapshot's history (Raft section 5.3, log matching) and needs no installing.
    """
    return not _matches(log, index, term)


def admit_acknowledgement(message: Message, log: LogView, current_term: int) -> Message | None:
    """Let a `next_node_idx` in only if it belongs to this term and to this log (H3).

    Before: it carries no term, so one that was under way since an earlier term of the same leader raises the
    match index for entries that the follower has replaced since. After: the sender's term travels with it
    (`stamp_outbound`), and any other term, or a position that this log never had, is dropped.
    """
    if message.get("term") != current_term or message["next_node_idx"] > log.last_index + 1:
        return None
    return message


def without_rewind(message: Message) -> Message:
    """Return a `next_node_idx` that asks for nothing again: only a sign of life is left of it.

    A follower that misses something answers each message that is under way with `reset`, and the library
    sends everything once more for each. One rewind is enough for a while: a position that the follower has
    acknowledged since, or that was just rewound to, is old news (H2 describes what it did besides).
    """
    return message | {"reset": False}


def admit_vote(voter: str, message: Message, current_term: int, voters: set[str]) -> Message | None:
    """Let a `response_vote` in once per voter and term (H3).

    Before: votes are counted by message, so a repeated one counts twice. After: by voter. `voters` are those
    already counted in the current term; the caller adds `voter` when it is let in.
    """
    return message if message["term"] == current_term and voter not in voters else None


def admit_vote_request(message: Message, *, leader_is_alive: bool) -> Message | None:
    """Let a `request_vote` in unless a living leader would be deposed for nothing (H11).

    Ongaro's dissertation, section 4.2.3. A transfer of leadership is what the leader itself asked for.
    """
    return None if leader_is_alive and not message.get("transfer") else message


def grants_pre_vote(message: Message, log: LogView, current_term: int, *, leader_is_alive: bool) -> bool:
    """Whether this node would vote for the sender of a `pre_vote` if it started a real election now (H11).

    PreVote (dissertation, section 9.6): a candidate asks first and raises its term only when a majority has
    lost its leader too and its log is good enough. Answering promises nothing and changes nothing.
    """
    if leader_is_alive or message["term"] <= current_term:
        return False
    mine = (log.term_at(log.last_index) or 0, log.last_index)
    return (message["last_log_term"], message["last_log_index"]) >= mine


def stamp_outbound(message: Message, current_term: int, *, is_transfer: bool) -> Message:
    """Add what the receiver's guards need: the term of an acknowledgement, the reason of an election."""
    if message["type"] == "next_node_idx":
        return message | {"term": current_term}
    if message["type"] == "request_vote":
        return message | {"transfer": is_transfer}
    return message


def _matches(log: LogView, index: int, term: int) -> bool:
    """Whether the log is known to hold the leader's entry at `index`: committed, or there with its term.

    Raises GuardViolationError when another entry is committed here: no correct cluster has two histories.
    """
    known_term = log.term_at(index)
    if index > log.committed:
        return known_term == term
    if known_term not in (None, term):
        raise GuardViolationError(
            f"entry {index} is committed here in term {known_term}, and a leader says in term {term}"
        )
    return True


def _count_matching(log: LogView, entries: list[tuple[bytes, int, int]]) -> int:
    """Return how many of `entries`, from the first on, the log already holds."""
    for count, (_, index, term) in enumerate(entries):
        if not _matches(log, index, term):
            return count
    return len(entries)
