"""The library's dictionaries and our messages: nothing is lost between them, and what it lacks is added."""

from pathlib import Path
from typing import Any

import pytest

from cluster.consensus.library_words import EngineJournal, from_library, to_library
from cluster.consensus.messages import (
    Acknowledgement,
    AppendEntries,
    Chunk,
    Message,
    NewerTerm,
    PreVoteGranted,
    PreVoteRequest,
    SnapshotPosition,
    TakeOver,
    Vote,
    VoteRequest,
)
from cluster.storage.snapshot_format import SnapshotId

TERM = 9
CHUNK = Chunk(b"part", 100, False, SnapshotId(42, 7, 5_000, b"digest"))
ENTRIES = {
    "type": "append_entries",
    "term": TERM,
    "commit_index": 4,
    "entries": [(b"x", 6, 9)],
    "prevLogIdx": 5,
    "prevLogTerm": 3,
}
TAKEN: list[tuple[dict[str, Any], Message]] = [
    (
        ENTRIES,
        AppendEntries(term=TERM, commit_index=4, entries=[(b"x", 6, 9)], previous_index=5, previous_term=3),
    ),
    (
        {"type": "append_entries", "term": TERM, "commit_index": 4, "serialized": CHUNK},
        AppendEntries(term=TERM, commit_index=4, chunk=CHUNK),
    ),
    (
        {"type": "append_entries", "term": TERM, "commit_index": 4, "serialized": None},
        AppendEntries(term=TERM, commit_index=4, chunk=None),
    ),
    (
        {"type": "request_vote", "term": TERM, "last_log_index": 5, "last_log_term": 3},
        VoteRequest(term=TERM, last_log_index=5, last_log_term=3),
    ),
]
"""What the library takes in, and our own methods make."""
ANSWERS: list[tuple[dict[str, Any], Message]] = [
    (
        {"type": "next_node_idx", "next_node_idx": 7, "reset": True, "success": False},
        Acknowledgement(next_index=7, reset=True, success=False, term=TERM),
    ),
    ({"type": "response_vote", "term": TERM}, Vote(term=TERM)),
    ({"type": "timeout_now", "term": TERM}, TakeOver(term=TERM)),
]


@pytest.mark.parametrize(("theirs", "ours"), ANSWERS)
def test_what_the_library_sends_is_one_of_our_messages(theirs: dict[str, Any], ours: Message) -> None:
    """Each kind has one translation; the present term is added where the library says none."""
    assert from_library(theirs, TERM) == ours


@pytest.mark.parametrize(("theirs", "ours"), [*TAKEN, *ANSWERS])
def test_the_library_gets_its_own_words_back(theirs: dict[str, Any], ours: Message) -> None:
    """What a peer's library said is what this one hears, without what was added for the way."""
    assert to_library(ours) == theirs


def test_an_acknowledgement_carries_the_present_term() -> None:
    """H3: the library says none, and an old acknowledgement would count for what was replaced since."""
    said = {"type": "next_node_idx", "next_node_idx": 7, "reset": False, "success": True}
    for term in (5, 6):
        message = from_library(said, term)
        assert isinstance(message, Acknowledgement)
        assert message.term == term


def test_a_bare_heartbeat_says_nothing_about_the_log() -> None:
    """What a guard has made of a repeated message has neither entries nor a part of a snapshot."""
    heartbeat = AppendEntries(term=TERM, commit_index=4)
    assert to_library(heartbeat) == {"type": "append_entries", "term": TERM, "commit_index": 4}


@pytest.mark.parametrize("kind", ["apply_command", "apply_command_response", "append_entries"])
def test_what_we_do_not_use_of_the_library_never_leaves(kind: str) -> None:
    """H6, H10, H13: it may carry pickles, and nothing of ours makes the library send it."""
    with pytest.raises(AssertionError, match=kind):
        from_library({"type": kind}, TERM)


@pytest.mark.parametrize(
    "message",
    [
        PreVoteRequest(term=TERM, last_log_index=5, last_log_term=3),
        PreVoteGranted(term=TERM),
        NewerTerm(term=TERM),
        SnapshotPosition(term=TERM, digest=b"digest", offset=100),
    ],
)
def test_the_library_never_hears_what_it_does_not_know(message: Message) -> None:
    """Our own messages end in the replica; one that went further would be a mistake of ours."""
    with pytest.raises(AssertionError, match=type(message).__name__):
        to_library(message)


def test_the_journal_answers_to_the_librarys_names(tmp_path: Path) -> None:
    """Each name that the library calls does what our own name says."""
    journal = EngineJournal.open(tmp_path)
    for index in range(1, 6):
        journal.add(b"%d" % index, index, 1)
    journal.deleteEntriesFrom(4)
    journal.remove_before(1)
    assert (journal.first_index, journal.last_index) == (2, 4)
    journal.setCurrentTerm(3, "n2")
    assert (journal.getCurrentTerm(), journal.getVotedForNodeId()) == (3, "n2")
    assert (journal.term, journal.voted_for) == (3, "n2")
    journal.setRaftCommitIndex(4)
    journal.onOneSecondTimer()
    journal.sync()
    assert journal.getRaftCommitIndex() == journal.commit_hint == 4
    journal._destroy()
    again = EngineJournal.open(tmp_path)
    assert (again.first_index, again.last_index, again.getVotedForNodeId()) == (2, 4, "n2")
    again.close()
