"""The guards: each as a table of small cases, and `admit_append` against the rules of the Raft paper.

The library behind the guards is modelled in a few lines (`Follower`), so the properties here do not depend on
its version; tests/hazards shows the same with the library itself.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.consensus import guards
from cluster.consensus.guards import Admission, Message

Entry = tuple[bytes, int, int]


def entries_of(terms: list[int], first: int = 1) -> list[Entry]:
    """Return entries with these terms; equal index and term mean equal content."""
    return [(b"%d:%d" % (index, term), index, term) for index, term in enumerate(terms, first)]


@dataclass
class Log:
    """A guards.LogView over a list of entries."""

    entries: list[Entry] = field(default_factory=list)
    committed: int = 1

    @property
    def last_index(self) -> int:
        """The index of the newest entry."""
        return self.entries[-1][1]

    def term_at(self, index: int) -> int | None:
        """The term at an index, None outside the log."""
        position = index - self.entries[0][1]
        return self.entries[position][2] if 0 <= position < len(self.entries) else None


def append(previous: int, previous_term: int, terms: list[int], commit: int, term: int = 9) -> Message:
    """Return an `append_entries` with entries of these terms behind `previous`."""
    return {
        "type": "append_entries",
        "term": term,
        "commit_index": commit,
        "prevLogIdx": previous,
        "prevLogTerm": previous_term,
        "entries": entries_of(terms, previous + 1),
    }


def acknowledged(admission: Admission) -> int | None:
    """Return up to where we acknowledge by ourselves."""
    reply = admission.reply
    return reply["next_node_idx"] - 1 if reply is not None and reply.get("success") else None


# -- admit_append -------------------------------------------------------------------------------------------

LOG = Log(entries_of([0, 1, 1, 3, 3, 3]), committed=3)


def test_an_older_term_is_not_heard() -> None:
    """A deposed leader reaches neither the log nor the timer, and is told the newer term."""
    admission = guards.admit_append(append(6, 3, [3], 6, term=4), LOG, 5)
    assert admission == Admission(None, {"type": "newer_term", "term": 5})


def test_a_split_entry_is_not_taken() -> None:
    """H6: parts of a pickled entry are dropped; none of ours is ever that large."""
    message = append(6, 3, [], 6) | {"transmission": "start", "data": b""}
    assert guards.admit_append(message, LOG, 9) == Admission(None)


@pytest.mark.parametrize("serialized", [None, [b"part", True, False, 9, 9]])
def test_a_message_that_says_nothing_about_the_log_commits_nothing(serialized: object) -> None:
    """H1: a part of a snapshot, or the message in its place, leaves the commit index where it is."""
    message = {"type": "append_entries", "term": 9, "commit_index": 6, "serialized": serialized}
    admission = guards.admit_append(message, LOG, 9)
    assert admission.message == message | {"commit_index": LOG.committed}
    assert acknowledged(admission) is None
    assert admission.reply is not None, "a leader that hears nothing during a long snapshot steps down"


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
def test_what_is_known_already_becomes_a_heartbeat(message: Message, verified: int) -> None:
    """H2: a repeated or late message cuts nothing.

    It is acknowledged and committed up to what it verified.
    """
    admission = guards.admit_append(message, LOG, 9)
    assert admission.message == {
        "type": "append_entries",
        "term": 9,
        "commit_index": min(message["commit_index"], verified),
    }
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
    message: Message, previous: int, previous_term: int, new: list[int]
) -> None:
    """H2: the library appends behind the last entry that agrees, and commits no further."""
    admission = guards.admit_append(message, LOG, 9)
    assert admission == Admission(append(previous, previous_term, new, min(6, previous + len(new))))


@pytest.mark.parametrize("message", [append(7, 3, [9], 6), append(6, 9, [9], 6), append(9, 9, [], 9)])
def test_a_gap_is_left_to_the_library(message: Message) -> None:
    """Without the entry before it, the library asks for earlier ones; we say nothing."""
    assert guards.admit_append(message, LOG, 9) == Admission(message)


def test_a_message_that_begins_before_the_log_is_understood() -> None:
    """What compaction took away was committed, so it agrees; what follows is taken."""
    log = Log(entries_of([3, 3], first=5), committed=6)
    admission = guards.admit_append(append(2, 1, [1, 3, 3, 3, 9], 7), log, 9)
    assert admission == Admission(append(6, 3, [9], 7))


# -- admit_append against the paper -------------------------------------------------------------------------


@dataclass
class Specified:
    """A follower by figure 2 of the Raft paper, AppendEntries RPC, receiver implementation."""

    entries: list[Entry] = field(default_factory=lambda: entries_of([0]))
    committed: int = 1
    term: int = 0

    def receive(self, message: Message) -> None:
        """Take an append_entries."""
        if message["term"] < self.term:
            return
        self.term = message["term"]
        previous = message["prevLogIdx"]
        if previous > len(self.entries) or self.entries[previous - 1][2] != message["prevLogTerm"]:
            return
        for entry in message["entries"]:
            position = entry[1] - 1
            if position < len(self.entries) and self.entries[position][2] != entry[2]:
                del self.entries[position:]
            if position >= len(self.entries):
                self.entries.append(entry)
        last_new = previous + len(message["entries"])
        self.committed = max(self.committed, min(message["commit_index"], last_new))


class Follower(Log):
    """The library's handling of append_entries behind the guard.

    `acknowledged` is what it has told its leader.
    """

    def __init__(self) -> None:
        super().__init__(entries_of([0]))
        self.term = 0
        self.acknowledged = 1

    def receive(self, message: Message) -> None:
        """Take an append_entries through the guard."""
        if message["term"] > self.term:
            self.acknowledged = 1
        admission = guards.admit_append(message, self, self.term)
        if admission.message is not None:
            self._library(admission.message)
        self.acknowledged = max(self.acknowledged, acknowledged(admission) or 1)

    def _library(self, message: Message) -> None:
        """Cut behind prevLogIdx, append, commit up to the end of the log: as __onMessageReceived does."""
        self.term = message["term"]
        if "prevLogIdx" in message:
            previous = message["prevLogIdx"]
            if self.term_at(previous) != message["prevLogTerm"]:
                return
            del self.entries[previous:]
            self.entries += message["entries"]
            self.acknowledged = max(self.acknowledged, previous + len(message["entries"]))
        if message["commit_index"] > self.committed:
            self.committed = min(message["commit_index"], self.last_index)


@dataclass(frozen=True)
class Leadership:
    """One leader's log at its end, and how much was committed before and at its end."""

    term: int
    log: list[Entry]
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
def deliveries(draw: st.DrawFn) -> list[tuple[Leadership, Message]]:
    """Draw messages of such a history as they may arrive: late, twice, in any order."""
    leaderships = draw(histories())
    messages = []
    for leadership in leaderships[1:]:
        for _ in range(draw(st.integers(0, 6))):
            previous = draw(st.integers(1, len(leadership.log)))
            end = draw(st.integers(previous, len(leadership.log)))
            message = {
                "type": "append_entries",
                "term": leadership.term,
                "commit_index": draw(st.integers(1, leadership.committed)),
                "prevLogIdx": previous,
                "prevLogTerm": leadership.log[previous - 1][2],
                "entries": leadership.log[previous:end],
            }
            messages.append((leadership, message))
    shuffled = draw(st.permutations(messages))
    # Mostly by term: a follower hears nothing of older ones any more.
    return sorted(shuffled, key=lambda delivery: delivery[1]["term"]) if draw(st.booleans()) else shuffled


@given(deliveries())
def test_the_log_is_what_the_paper_says(messages: list[tuple[Leadership, Message]]) -> None:
    """After every message, log and commit index are those of figure 2."""
    specified, follower = Specified(), Follower()
    for _, message in messages:
        specified.receive(message)
        follower.receive(message)
        assert (follower.entries, follower.committed) == (specified.entries, specified.committed)


@given(deliveries())
def test_what_was_acknowledged_stays(messages: list[tuple[Leadership, Message]]) -> None:
    """H2: what a leader was told to be here stays here, and is the leader's, while its term lasts."""
    follower = Follower()
    for leadership, message in messages:
        follower.receive(message)
        if message["term"] == follower.term:
            told = follower.acknowledged
            assert follower.entries[:told] == leadership.log[:told]


@given(deliveries())
def test_only_what_is_committed_somewhere_is_committed_here(
    messages: list[tuple[Leadership, Message]],
) -> None:
    """H1: the commit index covers only what a leader had committed, and what it covers never changes."""
    follower = Follower()
    committed: list[Entry] = []
    for leadership, message in messages:
        follower.receive(message)
        if message["term"] == follower.term:
            assert follower.entries[: follower.committed] == leadership.log[: follower.committed]
        now = follower.entries[: follower.committed]
        assert now[: len(committed)] == committed
        committed = now


# -- acknowledgements, votes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("term", "next_index", "is_admitted"),
    [(5, 7, True), (5, 2, True), (4, 7, False), (6, 7, False), (None, 7, False), (5, 8, False)],
)
def test_an_acknowledgement_counts_only_in_its_term_and_log(
    term: int | None, next_index: int, *, is_admitted: bool
) -> None:
    """H3: without a term, of another term, or beyond our log: none of our business."""
    message: Message = {"type": "next_node_idx", "next_node_idx": next_index, "reset": False, "success": True}
    if term is not None:
        message["term"] = term
    admitted = guards.admit_acknowledgement(message, LOG, 5)
    assert admitted == (message if is_admitted else None)


@pytest.mark.parametrize(
    ("term", "voters", "is_admitted"),
    [(5, set(), True), (5, {"c"}, True), (5, {"b"}, False), (4, set(), False), (6, set(), False)],
)
def test_a_voter_counts_once_per_term(term: int, voters: set[str], *, is_admitted: bool) -> None:
    """H3: a vote that comes twice, or from another term, is one vote or none."""
    message: Message = {"type": "response_vote", "term": term}
    assert (guards.admit_vote("b", message, 5, voters) is not None) == is_admitted


@pytest.mark.parametrize(
    ("is_alive", "is_transfer", "is_admitted"),
    [(False, False, True), (True, False, False), (True, True, True), (False, True, True)],
)
def test_a_living_leader_is_not_voted_out(*, is_alive: bool, is_transfer: bool, is_admitted: bool) -> None:
    """H11: a request for votes is heard when there is no leader, or when the leader itself asked for it."""
    message: Message = {"type": "request_vote", "term": 9, "transfer": is_transfer}
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
    message: Message = {
        "type": "pre_vote",
        "term": 6,
        "last_log_term": last_term,
        "last_log_index": last_index,
    }
    assert guards.grants_pre_vote(message, LOG, 5, leader_is_alive=is_alive) == grants


def test_what_leaves_is_stamped() -> None:
    """Acknowledgements carry the term, requests for votes their reason; the rest goes as it is."""
    acknowledgement = guards.acknowledge(6)
    assert guards.stamp_outbound(acknowledgement, 5, is_transfer=False) == acknowledgement | {"term": 5}
    request: Message = {"type": "request_vote", "term": 6}
    assert guards.stamp_outbound(request, 6, is_transfer=True) == request | {"transfer": True}
    heartbeat: Message = {"type": "append_entries", "term": 6, "commit_index": 3}
    assert guards.stamp_outbound(heartbeat, 6, is_transfer=False) is heartbeat


@pytest.mark.parametrize("kind", ["apply_command", "apply_command_response", "anything", None])
def test_other_messages_are_unknown(kind: str | None) -> None:
    """H10, H13: the library's own forwarding carries pickles; it never gets one from a peer."""
    assert not guards.is_known({"type": kind})
    assert guards.is_known({"type": "append_entries"})


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


@pytest.mark.parametrize(
    "message",
    [
        {"type": "append_entries", "commit_index": 1},
        {"type": "append_entries", "term": "1", "commit_index": 1},
        append(1, 1, [1], 1) | {"entries": [[b"", 2]]},
        append(1, 1, [1], 1) | {"entries": None},
        append(1, 1, [1], 1) | {"prevLogTerm": None},
        {"type": "next_node_idx", "term": 1, "next_node_idx": 2},
        {"type": "pre_vote", "term": 1},
    ],
)
def test_a_message_without_its_fields_is_none(message: Message) -> None:
    """What lacks a number that its type needs is told apart before anything looks at it."""
    assert not guards.is_well_formed(message)
    assert guards.is_well_formed(append(1, 1, [1, 1], 1))
    assert guards.is_well_formed({"type": "append_entries", "term": 1, "commit_index": 1})
    assert guards.is_well_formed({"type": "anything"})
