"""Pure functions over Raft messages: what we let in, and why. The heart of our safety argument.

The library's own handling of these messages breaks promises (its hazards are described with each guard).
Every message from another node passes here before the library sees it. Nothing here has state or effects: a
guard takes a message and what is known of the log, and returns what to do. Log positions are Raft indexes.
"""

from typing import Protocol

import msgspec

from cluster.consensus.log_digest import MEMBERS_MARK, Difference, DigestView
from cluster.consensus.messages import (
    UNSET,
    Acknowledgement,
    AppendEntries,
    Message,
    NewerTerm,
    PreVoteRequest,
    Vote,
    VoteRequest,
)
from cluster.errors import PeerContradicts
from cluster.storage.journal_format import LogEntry

PROMISES: frozenset[type[Message]] = frozenset({Acknowledgement, Vote, VoteRequest})
"""The messages that claim something is on this node's disk (entries, a vote). They leave after the sync."""


class LogView(DigestView, Protocol):
    """What a guard may know of a node's log."""

    @property
    def last_index(self) -> int:
        """Return the index of the newest entry."""

    @property
    def committed(self) -> int:
        """Return the highest index this node knows to be committed or contained in its snapshot."""


class Admission(msgspec.Struct, frozen=True):
    """What becomes of a message: `message` goes to the library, `reply` goes back to the sender.

    With a `difference` neither is there: the sender has another history. With `is_send_due` it lacks entries
    that are to be sent at once. With `only_adds` the log gets commands at its end, and nothing else.
    """

    message: Message | None
    reply: Message | None = None
    difference: Difference | None = None
    is_send_due: bool = False
    only_adds: bool = False


class GuardViolationError(PeerContradicts):
    """A peer asks for what no correct node asks for: committed entries would change. Nothing does."""


def only_adds(message: AppendEntries, log: LogView, current_term: int) -> bool:
    """Whether this does nothing but add commands to a log whose whole history is known to be the leader's.

    Nearly all messages do. `admit_append` lets them through as they are, and there is no difference between
    the histories: the digests at the end of the log are equal.
    """
    entries, index = message.entries, log.last_index
    if (
        entries is UNSET
        or not entries
        or message.previous_index != index
        or message.term != current_term
        or message.previous_term != log.term_at(index)
        or message.previous_digest != log.digest_at(index)
        or message.commit_index > index + len(entries)
    ):
        return False
    for command, _, _ in entries:  # noqa: SIM110 - in every message, and a generator takes longer
        if command[:1] == MEMBERS_MARK:
            return False
    return True


def admit_append(message: AppendEntries, log: LogView, current_term: int) -> Admission:
    """Let an AppendEntries change the log only at a real conflict, and commit only what it verified.

    Before: the library cuts its log behind `previous_index` whenever anything is there (H2), and takes the
    leader's commit index up to the end of its own log even when the message said nothing about that log (H1).

    After: entries that the log already has are skipped. If nothing is new, the library sees a bare heartbeat
    and the acknowledgement is ours, up to the last position that this message verified. Else it sees an
    append directly behind the last matching entry. `commit_index` never exceeds the last verified position
    (Raft section 5.3: "index of last new entry"). A log that does not reach or match `previous_index` is left
    to the library, which asks for earlier entries without touching log or commit index.
    """
    term, entries = message.term, message.entries
    if term < current_term:
        return Admission(None, NewerTerm(term=current_term))
    previous_index, previous_term = message.previous_index, message.previous_term
    if entries is UNSET or previous_index is UNSET or previous_term is UNSET:
        # A part of a snapshot: the library is silent about it, and a leader without answers steps down.
        commit_index = min(message.commit_index, log.committed)
        sign_of_life = acknowledge(log.committed, current_term=term, success=False)
        return Admission(msgspec.structs.replace(message, commit_index=commit_index), sign_of_life)
    if not _matches(log, previous_index, previous_term):
        return Admission(message)
    matched = _count_matching(log, entries)
    last_verified = previous_index + len(entries)
    commit_index = min(message.commit_index, last_verified)
    if matched == len(entries):
        heartbeat = AppendEntries(term=term, commit_index=commit_index)
        return Admission(heartbeat, acknowledge(last_verified, current_term=term))
    first_new = previous_index + matched + 1
    if first_new <= log.committed:
        raise GuardViolationError(f"a leader of term {term} would change the committed entry {first_new}")
    if not matched and commit_index == message.commit_index:
        return Admission(message)  # as nearly always: it is what the library is to see
    return Admission(
        AppendEntries(
            term=term,
            commit_index=commit_index,
            entries=entries[matched:] if matched else entries,
            previous_index=first_new - 1,
            previous_term=entries[matched - 1][2] if matched else previous_term,
        )
    )


def is_only_news_of_a_commit(message: AppendEntries, log: LogView) -> bool:
    """Whether this says nothing but that more is committed: to acknowledge it would tell the leader nothing.

    A heartbeat says nothing new at all, and is answered: the leader counts who still hears it.
    """
    return message.entries == [] and message.commit_index > log.committed


def acknowledge(last_verified: int, *, current_term: int, success: bool = True) -> Acknowledgement:
    """Return the acknowledgement of everything up to `last_verified`.

    Raft answers every message with its term (section 5.1). The library says nothing to a sender in an older
    term, and with PreVote a node in a newer term would then neither follow nor be followed, for ever: hence
    NewerTerm, and a term in each acknowledgement.
    """
    return Acknowledgement(next_index=last_verified + 1, reset=False, success=success, term=current_term)


def snapshot_is_news(log: LogView, index: int, term: int) -> bool:
    """Whether a snapshot up to `index` says anything that the log does not hold already.

    A leader that was misled by a late `reset` offers a snapshot to a follower that is ahead of it; installing
    it would throw acknowledged entries away. What is committed here or in the log with the same term is equal
    to the snapshot's history (Raft section 5.3, log matching) and needs no installing.
    """
    return not _matches(log, index, term)


def admit_acknowledgement(
    message: Acknowledgement, log: LogView, current_term: int
) -> Acknowledgement | None:
    """Let an Acknowledgement in only if it belongs to this term and to this log (H3).

    Before: it carries no term, so one that was under way since an earlier term of the same leader raises the
    match index for entries that the follower has replaced since. After: the sender's term travels with it,
    and any other term, or a position that this log never had, is dropped.
    """
    if message.term != current_term or message.next_index > log.last_index + 1:
        return None
    return message


def without_rewind(message: Acknowledgement) -> Acknowledgement:
    """Return an Acknowledgement that asks for nothing again: only a sign of life is left of it.

    A follower that misses something answers each message that is under way with `reset`, and the library
    sends everything once more for each. One rewind is enough for a while: a position that the follower has
    acknowledged since, or that was just rewound to, is old news (H2 describes what it did besides).
    """
    return msgspec.structs.replace(message, reset=False)


def admit_vote(voter: str, message: Vote, current_term: int, voters: set[str]) -> Vote | None:
    """Let a Vote in once per voter and term (H3).

    Before: votes are counted by message, so a repeated one counts twice. After: by voter. `voters` are those
    already counted in the current term; the caller adds `voter` when it is let in.
    """
    return message if message.term == current_term and voter not in voters else None


def admit_vote_request(message: VoteRequest, *, leader_is_alive: bool) -> VoteRequest | None:
    """Let a VoteRequest in unless a living leader would be deposed for nothing (H11).

    Ongaro's dissertation, section 4.2.3. A transfer of leadership is what the leader itself asked for.
    """
    return None if leader_is_alive and not message.transfer else message


def grants_pre_vote(
    message: PreVoteRequest, log: LogView, current_term: int, *, leader_is_alive: bool
) -> bool:
    """Whether this node would vote for the sender if it started a real election now (H11).

    PreVote (dissertation, section 9.6): a candidate asks first and raises its term only when a majority has
    lost its leader too and its log is good enough. Answering promises nothing and changes nothing.
    """
    if leader_is_alive or message.term <= current_term:
        return False
    mine = (log.term_at(log.last_index) or 0, log.last_index)
    return (message.last_log_term, message.last_log_index) >= mine


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


def _count_matching(log: LogView, entries: list[LogEntry]) -> int:
    """Return how many of `entries`, from the first on, the log already holds."""
    for count, (_, index, term) in enumerate(entries):
        if not _matches(log, index, term):
            return count
    return len(entries)
