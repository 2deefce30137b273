"""The guards: each as a table of small cases, and `admit_append` against the rules of the Raft paper.

The library behind the guards is modelled in a few lines (`Follower`), so the properties here do not depend on
its version; tests/hazards shows the same with the library itself.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cluster.consensus import guards
from cluster.consensus.guards import Admission
from cluster.consensus.library_words import to_library
from cluster.consensus.log_digest import MEMBERS_MARK, Digest, LogDigests, difference
from cluster.consensus.messages import (
    UNSET,
    Acknowledgement,
    AppendEntries,
    Chunk,
    Message,
    NewerTerm,
    PreVoteRequest,
    Vote,
    VoteRequest,
)
from cluster.storage.journal_format import LogEntry
from cluster.storage.snapshot_format import SnapshotId


def entries_of(terms: list[int], first: int = 1) -> list[LogEntry]:
    """Return entries with these terms; equal index and term mean equal content."""
    return [(b"%d:%d" % (index, term), index, term) for index, term in enumerate(terms, first)]


@dataclass
class Log:
    """A guards.LogView over a list of entries."""

    entries: list[LogEntry] = field(default_factory=list)
    committed: int = 1

    @property
    def last_index(self) -> int:
        """The index of the newest entry."""
        return self.entries[-1][1]

    def term_at(self, index: int) -> int | None:
        """The term at an index, None outside the log."""
        position = index - self.entries[0][1]
        return self.entries[position][2] if 0 <= position < len(self.entries) else None

    def digest_at(self, index: int) -> Digest | None:
        """The digest at an index, None outside the log."""
        position = index - self.entries[0][1]
        digests = LogDigests(self.entries).values
        return digests[position] if 0 <= position < len(digests) else None


def append(previous: int, previous_term: int, terms: list[int], commit: int, term: int = 9) -> AppendEntries:
    """Return an AppendEntries with entries of these terms behind `previous`."""
    return AppendEntries(
        term=term,
        commit_index=commit,
        entries=entries_of(terms, previous + 1),
        previous_index=previous,
        previous_term=previous_term,
    )


def entries_in(message: AppendEntries) -> list[LogEntry]:
    """Return the entries of a message that has some, or an empty list of them."""
    assert message.entries is not UNSET
    return message.entries


def acknowledged(admission: Admission) -> int | None:
    """Return up to where we acknowledge by ourselves."""
    reply = admission.reply
    return reply.next_index - 1 if isinstance(reply, Acknowledgement) and reply.success else None


# -- admit_append -------------------------------------------------------------------------------------------

LOG = Log(entries_of([0, 1, 1, 3, 3, 3]), committed=3)


def test_an_older_term_is_not_heard() -> None:
    """A deposed leader reaches neither the log nor the timer, and is told the newer term."""
    admission = guards.admit_append(append(6, 3, [3], 6, term=4), LOG, 5)
    assert admission == Admission(None, NewerTerm(term=5))


@pytest.mark.parametrize("chunk", [None, Chunk(b"part", 9, False, SnapshotId(9, 9, 100, b"digest"))])
def test_a_message_that_says_nothing_about_the_log_commits_nothing(chunk: Chunk | None) -> None:
    """H1: a part of a snapshot, or the message in its place, leaves the commit index where it is."""
    message = AppendEntries(term=9, commit_index=6, chunk=chunk)
    admission = guards.admit_append(message, LOG, 9)
    assert admission.message == replace(message, commit_index=LOG.committed)
    assert acknowledged(admission) is None
    assert admission.reply is not None, "a leader that hears nothing during a long snapshot steps down"


def test_the_acknowledgement_of_a_new_term_carries_it() -> None:
    """H3: the library learns the term from the very message, so what we answer names the leader's term."""
    for message in (append(6, 3, [], 6, term=9), AppendEntries(term=9, commit_index=6, chunk=None)):
        reply = guards.admit_append(message, LOG, 4).reply
        assert isinstance(reply, Acknowledgement)
        assert reply.term == 9


@pytest.mark.parametrize(
    ("message", "verified"),
    [
        (append(6, 3, [], 9), 6),
        (append(4, 3, [], 9), 4),
        (append(3, 1, [3, 3], 9), 5),
        (append(1, 0, [1, 1], 9), 3),
        (append(3, 1, [3, 3, 3], 4), 6),
    ],
)
def test_what_is_known_already_becomes_a_heartbeat(message: AppendEntries, verified: int) -> None:
    """H2: a repeated or late message cuts nothing.

    It is acknowledged and committed up to what it verified.
    """
    admission = guards.admit_append(message, LOG, 9)
    assert admission.message == AppendEntries(term=9, commit_index=min(message.commit_index, verified))
    assert acknowledged(admission) == verified


@pytest.mark.parametrize(
    ("message", "previous", "previous_term", "new"),
    [
        (append(6, 3, [9], 6), 6, 3, [9]),
        (append(4, 3, [3, 3, 9], 6), 6, 3, [9]),
        (append(5, 3, [9, 9], 6), 5, 3, [9, 9]),
        (append(3, 1, [3, 9], 6), 4, 3, [9]),
        (append(3, 1, [9], 6), 3, 1, [9]),
        (append(1, 0, [1, 1, 9], 6), 3, 1, [9]),
    ],
)
def test_only_what_is_new_or_in_conflict_reaches_the_library(
    message: AppendEntries, previous: int, previous_term: int, new: list[int]
) -> None:
    """H2: the library appends behind the last entry that agrees, and commits no further."""
    admission = guards.admit_append(message, LOG, 9)
    assert admission == Admission(append(previous, previous_term, new, min(6, previous + len(new))))


def test_a_snapshot_beside_entries_does_not_reach_the_library() -> None:
    """No leader sends both. Who does brings its entries, and nothing that takes the place of the state."""
    chunk = Chunk(b"part", 0, True, SnapshotId(9, 9, 100, b"digest"))
    message = replace(append(6, 3, [9], 6), chunk=chunk, previous_digest=7)
    admitted = guards.admit_append(message, LOG, 9).message
    assert admitted is not None
    assert to_library(admitted) == to_library(append(6, 3, [9], 6))


@pytest.mark.parametrize("message", [append(7, 3, [9], 6), append(6, 9, [9], 6), append(9, 9, [], 9)])
def test_a_gap_is_left_to_the_library(message: AppendEntries) -> None:
    """Without the entry before it, the library asks for earlier ones; we say nothing."""
    assert guards.admit_append(message, LOG, 9) == Admission(message)


def test_a_message_that_begins_before_the_log_is_understood() -> None:
    """What compaction took away was committed, so it agrees; what follows is taken."""
    log = Log(entries_of([3, 3], first=5), committed=6)
    admission = guards.admit_append(append(2, 1, [1, 3, 3, 3, 9], 7), log, 9)
    assert admission == Admission(append(6, 3, [9], 7))


# -- only_adds ----------------------------------------------------------------------------------------------

NEXT = replace(append(6, 3, [9, 9], 8), previous_digest=LOG.digest_at(6))


def test_commands_right_behind_the_log_only_add() -> None:
    """They may be committed up to the last of them."""
    assert guards.only_adds(NEXT, LOG, 9)


@pytest.mark.parametrize(
    "message",
    [
        replace(NEXT, entries=[]),
        AppendEntries(term=9, commit_index=6),
        replace(append(5, 3, [3, 9], 6), previous_digest=LOG.digest_at(5)),
        replace(append(7, 3, [9], 6), previous_digest=LOG.digest_at(6)),
        replace(NEXT, previous_term=2),
        replace(NEXT, term=10),
        replace(NEXT, term=8),
        replace(NEXT, previous_digest=7),
        replace(NEXT, previous_digest=UNSET),
        replace(NEXT, commit_index=9),
        replace(NEXT, entries=[(b"command", 7, 9), (MEMBERS_MARK + b"list", 8, 9)]),
    ],
    ids=[
        *("heartbeat", "no place", "here in part", "gap", "other term before", "newer term", "older term"),
        *("other history", "unknown history", "commits more", "member list"),
    ],
)
def test_all_else_does_more_than_add(message: AppendEntries) -> None:
    """It is looked at from all sides."""
    assert not guards.only_adds(message, LOG, 9)


def test_a_log_whose_history_is_not_known_is_looked_at() -> None:
    """It may be another one than the leader's."""
    log = Log(entries_of([3, 3], first=5), committed=6)
    assert log.digest_at(6) is None
    assert not guards.only_adds(append(6, 3, [9], 6), log, 9)


# -- admit_append against the paper -------------------------------------------------------------------------


@dataclass
class Specified:
    """A follower by figure 2 of the Raft paper, AppendEntries RPC, receiver implementation."""

    entries: list[LogEntry] = field(default_factory=lambda: entries_of([0]))
    committed: int = 1
    term: int = 0

    def receive(self, message: AppendEntries) -> None:
        """Take a message of a leader."""
        if message.term < self.term:
            return
        self.term = message.term
        previous, entries = message.previous_index, entries_in(message)
        assert previous is not UNSET
        if previous > len(self.entries) or self.entries[previous - 1][2] != message.previous_term:
            return
        for entry in entries:
            position = entry[1] - 1
            if position < len(self.entries) and self.entries[position][2] != entry[2]:
                del self.entries[position:]
            if position >= len(self.entries):
                self.entries.append(entry)
        last_new = previous + len(entries)
        self.committed = max(self.committed, min(message.commit_index, last_new))


class Follower(Log):
    """The library's handling of AppendEntries behind the guard.

    `acknowledged` is what it has told its leader.
    """

    def __init__(self) -> None:
        super().__init__(entries_of([0]))
        self.term = 0
        self.acknowledged = 1

    def receive(self, message: AppendEntries) -> None:
        """Take a message of a leader through the guard."""
        if message.term > self.term:
            self.acknowledged = 1
        admission = guards.admit_append(message, self, self.term)
        if isinstance(admission.message, AppendEntries):
            self._library(admission.message)
        self.acknowledged = max(self.acknowledged, acknowledged(admission) or 1)

    def _library(self, message: AppendEntries) -> None:
        """Cut behind the previous entry, append, commit up to the end of the log, as the library does."""
        self.term = message.term
        if message.previous_index is not UNSET:
            previous = message.previous_index
            if self.term_at(previous) != message.previous_term:
                return
            del self.entries[previous:]
            self.entries += entries_in(message)
            self.acknowledged = max(self.acknowledged, self.last_index)
        if message.commit_index > self.committed:
            self.committed = min(message.commit_index, self.last_index)


@dataclass(frozen=True)
class Leadership:
    """One leader's log at its end, and how much was committed before and at its end."""

    term: int
    log: list[LogEntry]
    committed: int


@st.composite
def histories(draw: st.DrawFn) -> list[Leadership]:
    """Draw what leaders may have done: each has all that was committed, and adds entries of its own term."""
    leaderships = [Leadership(0, entries_of([0]), 1)]
    for _ in range(draw(st.integers(1, 5))):
        before = leaderships[-1]
        ancestor = draw(st.sampled_from([past for past in leaderships if agrees(past, before)]))
        kept = draw(st.integers(before.committed, len(ancestor.log)))
        term = before.term + draw(st.integers(1, 2))
        own = draw(st.integers(1, 4))
        log = ancestor.log[:kept] + entries_of([term] * own, kept + 1)
        # A leader commits only up to an entry of its own term.
        committed = draw(st.one_of(st.just(before.committed), st.integers(kept + 1, len(log))))
        leaderships.append(Leadership(term, log, committed))
    return leaderships


def agrees(past: Leadership, before: Leadership) -> bool:
    """Whether a node with a past leader's log can still be elected: it has everything committed."""
    return past.log[: before.committed] == before.log[: before.committed]


@st.composite
def deliveries(draw: st.DrawFn) -> list[tuple[Leadership, AppendEntries]]:
    """Draw messages of such a history as they may arrive: late, twice, in any order."""
    leaderships = draw(histories())
    messages = []
    for leadership in leaderships[1:]:
        for _ in range(draw(st.integers(0, 6))):
            previous = draw(st.integers(1, len(leadership.log)))
            end = draw(st.integers(previous, len(leadership.log)))
            message = AppendEntries(
                term=leadership.term,
                commit_index=draw(st.integers(1, leadership.committed)),
                entries=leadership.log[previous:end],
                previous_index=previous,
                previous_term=leadership.log[previous - 1][2],
            )
            messages.append((leadership, message))
    shuffled = draw(st.permutations(messages))
    # Mostly by term: a follower hears nothing of older ones any more.
    return sorted(shuffled, key=lambda delivery: delivery[1].term) if draw(st.booleans()) else shuffled


@given(deliveries())
def test_the_log_is_what_the_paper_says(messages: list[tuple[Leadership, AppendEntries]]) -> None:
    """After every message, log and commit index are those of figure 2."""
    specified, follower = Specified(), Follower()
    for _, message in messages:
        specified.receive(message)
        follower.receive(message)
        assert (follower.entries, follower.committed) == (specified.entries, specified.committed)


@given(deliveries())
def test_what_only_adds_is_let_through_as_it_is(messages: list[tuple[Leadership, AppendEntries]]) -> None:
    """The guard and the comparison of histories need not be asked: they have no objection."""
    follower = Follower()
    for leadership, message in messages:
        assert message.previous_index is not UNSET
        digest = Log(leadership.log).digest_at(message.previous_index)
        told = replace(message, previous_digest=UNSET if digest is None else digest)
        if guards.only_adds(told, follower, follower.term):
            assert guards.admit_append(told, follower, follower.term) == Admission(told)
            assert difference(told, follower) is None
        follower.receive(told)


@given(deliveries())
def test_what_was_acknowledged_stays(messages: list[tuple[Leadership, AppendEntries]]) -> None:
    """H2: what a leader was told to be here stays here, and is the leader's, while its term lasts."""
    follower = Follower()
    for leadership, message in messages:
        follower.receive(message)
        if message.term == follower.term:
            told = follower.acknowledged
            assert follower.entries[:told] == leadership.log[:told]


@given(deliveries())
def test_only_what_is_committed_somewhere_is_committed_here(
    messages: list[tuple[Leadership, AppendEntries]],
) -> None:
    """H1: the commit index covers only what a leader had committed, and what it covers never changes."""
    follower = Follower()
    committed: list[LogEntry] = []
    for leadership, message in messages:
        follower.receive(message)
        if message.term == follower.term:
            assert follower.entries[: follower.committed] == leadership.log[: follower.committed]
        now = follower.entries[: follower.committed]
        assert now[: len(committed)] == committed
        committed = now


# -- acknowledgements, votes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("term", "next_index", "is_admitted"),
    [(5, 7, True), (5, 2, True), (4, 7, False), (6, 7, False), (5, 8, False)],
)
def test_an_acknowledgement_counts_only_in_its_term_and_log(
    term: int, next_index: int, *, is_admitted: bool
) -> None:
    """H3: one of another term, or beyond our log, is dropped."""
    message = Acknowledgement(next_index=next_index, reset=False, success=True, term=term)
    admitted = guards.admit_acknowledgement(message, LOG, 5)
    assert admitted == (message if is_admitted else None)


@pytest.mark.parametrize(
    ("term", "voters", "is_admitted"),
    [(5, set(), True), (5, {"c"}, True), (5, {"b"}, False), (4, set(), False), (6, set(), False)],
)
def test_a_voter_counts_once_per_term(term: int, voters: set[str], *, is_admitted: bool) -> None:
    """H3: a vote that comes twice, or from another term, is one vote or none."""
    message = Vote(term=term)
    assert guards.admit_vote("b", message, 5, voters) == (message if is_admitted else None)


@pytest.mark.parametrize(
    ("is_alive", "is_transfer", "is_admitted"),
    [(False, False, True), (True, False, False), (True, True, True), (False, True, True)],
)
def test_a_living_leader_is_not_voted_out(*, is_alive: bool, is_transfer: bool, is_admitted: bool) -> None:
    """H11: a request for votes is heard when there is no leader, or when the leader itself asked for it."""
    message = VoteRequest(term=9, last_log_index=6, last_log_term=3, transfer=is_transfer)
    admitted = guards.admit_vote_request(message, leader_is_alive=is_alive)
    assert admitted == (message if is_admitted else None)


@pytest.mark.parametrize(
    ("last_term", "last_index", "is_alive", "grants"),
    [
        (3, 6, False, True),
        (3, 7, False, True),
        (4, 1, False, True),
        (3, 5, False, False),
        (2, 99, False, False),
        (4, 99, True, False),
    ],
)
def test_a_pre_vote_needs_a_good_log_and_no_leader(
    last_term: int, last_index: int, *, is_alive: bool, grants: bool
) -> None:
    """H11: the log must be as up to date as ours, and nobody must have heard of a leader lately."""
    message = PreVoteRequest(term=6, last_log_index=last_index, last_log_term=last_term)
    assert guards.grants_pre_vote(message, LOG, 5, leader_is_alive=is_alive) == grants


def test_a_pre_vote_is_for_a_term_to_come() -> None:
    """H11: a node in a newer term, or in that very one, would not vote in it any more."""
    for term in (4, 5):
        message = PreVoteRequest(term=term, last_log_index=6, last_log_term=3)
        assert not guards.grants_pre_vote(message, LOG, 5, leader_is_alive=False)


def test_without_rewind_only_a_sign_of_life_is_left() -> None:
    """The wish to begin again goes; who is answering, in which term, and where it is, stays."""
    message = Acknowledgement(next_index=4, reset=True, success=False, term=5)
    assert guards.without_rewind(message) == replace(message, reset=False)


@pytest.mark.parametrize(
    ("message", "is_only_news"),
    [
        (append(6, 3, [], commit=4), True),
        (append(6, 3, [], commit=3), False),
        (append(5, 3, [3], commit=4), False),
        (AppendEntries(term=9, commit_index=4, chunk=None), False),
    ],
)
def test_news_of_a_commit_is_told_from_a_heartbeat(message: AppendEntries, *, is_only_news: bool) -> None:
    """Only a message without entries that commits more than is known here is news of a commit."""
    assert guards.is_only_news_of_a_commit(message, LOG) == is_only_news


@pytest.mark.parametrize(
    ("message", "is_promise"),
    [
        (guards.acknowledge(6, current_term=5), True),
        (Vote(term=5), True),
        (VoteRequest(term=5, last_log_index=6, last_log_term=3), True),
        (append(6, 3, [], 6), False),
        (PreVoteRequest(term=6, last_log_index=6, last_log_term=3), False),
        (NewerTerm(term=5), False),
    ],
)
def test_acknowledgements_and_votes_are_promises(message: Message, *, is_promise: bool) -> None:
    """What claims that something is on this disk waits for the sync, the candidate's own vote included."""
    assert (type(message) in guards.PROMISES) == is_promise


@pytest.mark.parametrize(
    ("index", "term", "is_news"),
    [(3, 1, False), (1, LOG.term_at(1), False), (5, 3, False), (5, 4, True), (7, 3, True)],
)
def test_a_snapshot_that_says_nothing_new_is_declined(index: int, term: int, *, is_news: bool) -> None:
    """What is committed, or in the log with the same term, needs no snapshot.

    Installing one would lose the rest.
    """
    assert guards.snapshot_is_news(LOG, index, term) == is_news


@pytest.mark.parametrize("index", [1, 2, 3])
def test_two_committed_histories_stop_the_node(index: int) -> None:
    """A leader that has another term at a committed position is not believed: this node must stop."""
    log = Log(entries_of([0, 1, 1, 2]), committed=3)
    with pytest.raises(guards.GuardViolationError, match=f"entry {index} is committed here"):
        guards.admit_append(append(index, 7, [], commit=index), log, 2)
    with pytest.raises(guards.GuardViolationError, match=f"entry {index} is committed here"):
        guards.snapshot_is_news(log, index, 7)
