"""Raft's messages on the wire: the names that every release speaks, and what is not a message at all."""

from typing import Any, get_args

import msgspec
import pytest

from cluster.consensus import messages
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

APPEND = {
    "type": "append_entries",
    "term": 9,
    "commit_index": 4,
    "entries": [[b"x", 6, 9]],
    "prevLogIdx": 5,
    "prevLogTerm": 3,
}
CHUNK = [b"part", 100, False, [42, 7, 5_000, b"digest"]]
HEARTBEAT = {"type": "append_entries", "term": 9, "commit_index": 4}

ON_THE_WIRE: list[tuple[dict[str, Any], Message]] = [
    (
        APPEND,
        AppendEntries(term=9, commit_index=4, entries=[(b"x", 6, 9)], previous_index=5, previous_term=3),
    ),
    (HEARTBEAT, AppendEntries(term=9, commit_index=4)),
    (HEARTBEAT | {"serialized": None}, AppendEntries(term=9, commit_index=4, chunk=None)),
    (
        HEARTBEAT | {"serialized": CHUNK},
        AppendEntries(
            term=9, commit_index=4, chunk=Chunk(b"part", 100, False, SnapshotId(42, 7, 5_000, b"digest"))
        ),
    ),
    (
        {"type": "next_node_idx", "next_node_idx": 7, "reset": True, "success": False, "term": 9},
        Acknowledgement(next_index=7, reset=True, success=False, term=9),
    ),
    (
        {"type": "request_vote", "term": 9, "last_log_index": 5, "last_log_term": 3, "transfer": True},
        VoteRequest(term=9, last_log_index=5, last_log_term=3, transfer=True),
    ),
    ({"type": "response_vote", "term": 9}, Vote(term=9)),
    ({"type": "timeout_now", "term": 9}, TakeOver(term=9)),
    (
        {"type": "pre_vote", "term": 9, "last_log_index": 5, "last_log_term": 3},
        PreVoteRequest(term=9, last_log_index=5, last_log_term=3),
    ),
    ({"type": "pre_vote_granted", "term": 9}, PreVoteGranted(term=9)),
    ({"type": "newer_term", "term": 9}, NewerTerm(term=9)),
    (
        {"type": "snapshot_position", "term": 9, "digest": b"digest", "offset": 100},
        SnapshotPosition(term=9, digest=b"digest", offset=100),
    ),
]


def decode(content: Any) -> Message | str:
    """Return what a peer's content is to us."""
    return messages.decode(msgspec.msgpack.encode(content))


@pytest.mark.parametrize(("content", "message"), ON_THE_WIRE)
def test_a_message_of_an_earlier_release_is_understood(content: dict[str, Any], message: Message) -> None:
    """The names on the wire are those that releases with dictionaries for messages used."""
    assert decode(content) == message


@pytest.mark.parametrize(("content", "message"), ON_THE_WIRE)
def test_an_earlier_release_understands_a_message(content: dict[str, Any], message: Message) -> None:
    """A message becomes exactly the dictionary that those releases expect, with nothing left out or added."""
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(message)) == content


def test_every_kind_of_message_is_in_the_table() -> None:
    """The two tests above know each kind that replicas say to each other."""
    assert {type(message) for _, message in ON_THE_WIRE} == set(get_args(Message))


def test_a_vote_request_without_a_reason_is_not_a_transfer() -> None:
    """A candidate that does not say why it stands was not asked to."""
    request = decode({"type": "request_vote", "term": 9, "last_log_index": 5, "last_log_term": 3})
    assert isinstance(request, VoteRequest)
    assert not request.transfer


@pytest.mark.parametrize("kind", ["apply_command", "apply_command_response", "anything"])
def test_other_messages_are_unknown(kind: str) -> None:
    """H10, H13: the library's own forwarding carries pickles; like a later release's it has only a name."""
    assert decode({"type": kind, "command": b"pickle", "term": "none"}) == kind


def test_what_a_later_release_adds_is_skipped() -> None:
    """A field that this release does not know changes nothing."""
    assert decode(HEARTBEAT | {"group": 3}) == AppendEntries(term=9, commit_index=4)


@pytest.mark.parametrize(
    "content",
    [
        {"type": "append_entries", "commit_index": 1},
        {"type": "append_entries", "term": "1", "commit_index": 1},
        APPEND | {"entries": [[b"", 2]]},
        APPEND | {"entries": [["text", 2, 1]]},
        APPEND | {"entries": None},
        APPEND | {"prevLogTerm": None},
        APPEND | {"prevLogIdx": None},
        {"type": "next_node_idx", "term": 1, "next_node_idx": 2},
        {"type": "next_node_idx", "next_node_idx": 2, "reset": False, "success": True},
        {"type": "request_vote", "term": 1, "last_log_index": 1},
        {"type": "response_vote"},
        {"type": "timeout_now"},
        {"type": "pre_vote", "term": 1},
        {"type": "pre_vote_granted"},
        {"type": "newer_term"},
        {"type": "snapshot_position"},
        {"type": "snapshot_position", "term": 7, "digest": b"d"},
        {"type": "snapshot_position", "term": 7, "digest": 1, "offset": 1},
        {"type": None},
        {},
        [],
        "append_entries",
    ],
)
def test_a_message_without_its_fields_is_refused(content: object) -> None:
    """What lacks a field that its type needs ends here, before anything looks at it."""
    with pytest.raises(msgspec.DecodeError):
        decode(content)


@pytest.mark.parametrize(
    "content",
    [
        HEARTBEAT | {"term": -1},
        HEARTBEAT | {"commit_index": -1},
        APPEND | {"prevLogIdx": -1},
        {"type": "next_node_idx", "term": 1, "next_node_idx": -1, "reset": False, "success": True},
        {"type": "response_vote", "term": -1},
    ],
)
def test_no_term_or_place_is_negative(content: dict[str, Any]) -> None:
    """A negative number would count from the end of the log."""
    with pytest.raises(msgspec.ValidationError):
        decode(content)


@pytest.mark.parametrize("missing", ["entries", "prevLogIdx", "prevLogTerm"])
def test_entries_and_their_place_come_together(missing: str) -> None:
    """A message with only a part of them is refused: it would say something else about the log."""
    content = {name: value for name, value in APPEND.items() if name != missing}
    with pytest.raises(msgspec.ValidationError):
        decode(content)


def test_a_part_of_an_entry_is_refused() -> None:
    """H6: the library cuts a huge entry into pickled parts, which have a place and no entries."""
    content = {name: value for name, value in APPEND.items() if name != "entries"}
    with pytest.raises(msgspec.ValidationError):
        decode(content | {"transmission": "start", "data": b"pickle"})


@pytest.mark.parametrize(
    "chunk",
    [
        [],
        [b"part", True, False, 9, 9],
        [b"x", -1, False, [42, 7, 100, b"d"]],
        [b"x", 0, False, [42, 7, 100]],
        ["text", 0, False, [42, 7, 100, b"d"]],
    ],
)
def test_a_malformed_chunk_is_refused(chunk: list[Any]) -> None:
    """What is not a chunk never reaches the snapshots."""
    with pytest.raises(msgspec.ValidationError):
        decode(HEARTBEAT | {"serialized": chunk})


def test_an_offer_asks_and_brings_nothing() -> None:
    """A chunk without data is an offer, but for the last one, which says that all was sent."""
    snapshot_id = SnapshotId(42, 7, 5_000, b"digest")
    assert Chunk(b"", 0, False, snapshot_id).is_offer
    assert not Chunk(b"", 5_000, True, snapshot_id).is_offer
    assert not Chunk(b"part", 0, False, snapshot_id).is_offer
