"""Raft's messages as values: decoded and checked once, where they come in; nobody behind looks at bytes.

The names on the wire are those that the library uses; ours stand in the code.
"""

from typing import Annotated, Final, NamedTuple, get_args

import msgspec

from cluster.storage.journal_format import LogEntry
from cluster.storage.snapshot_format import SnapshotId

Index = Annotated[int, msgspec.Meta(ge=0)]
"""A place in the log, or a term: never negative."""

UNSET: Final = msgspec.UNSET


class Chunk(NamedTuple):
    """A part of a snapshot. The library wants `is_last` in the third place."""

    data: bytes
    offset: Index
    is_last: bool
    id: SnapshotId

    @property
    def is_offer(self) -> bool:
        """Whether it asks how much the follower has."""
        return not self.data and not self.is_last


class _RaftMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of all messages; `type` stands first on the wire."""


class AppendEntries(
    _RaftMessage,
    frozen=True,
    kw_only=True,
    tag="append_entries",
    rename={"previous_index": "prevLogIdx", "previous_term": "prevLogTerm", "chunk": "serialized"},
):
    """The leader speaks: entries behind a place in the log, a part of a snapshot, or only its commit index.

    `previous_index` and `entries` come together or not at all; a message without them says nothing about the
    log. `chunk` is None while the leader has no part of its snapshot to send yet. `previous_digest` is that
    of the leader's log at `previous_index`, or where the snapshot of `chunk` ends (log_digest); it is left
    out where it is not known.
    """

    term: Index
    commit_index: Index
    entries: list[LogEntry] | msgspec.UnsetType = UNSET
    previous_index: Index | msgspec.UnsetType = UNSET
    previous_term: Index | msgspec.UnsetType = UNSET
    chunk: Chunk | msgspec.UnsetType | None = UNSET
    previous_digest: int | msgspec.UnsetType = UNSET


class Acknowledgement(
    _RaftMessage, frozen=True, kw_only=True, tag="next_node_idx", rename={"next_index": "next_node_idx"}
):
    """A follower's answer to AppendEntries: it has everything before `next_index` if `success`.

    `reset` asks the leader to begin again there. A promise: what it claims is on the follower's disk.

    `may_wait` is True if nobody at the follower waits for what is committed: it need not hear of that at
    once. It is left out otherwise.
    """

    next_index: Index
    reset: bool
    success: bool
    term: Index
    may_wait: bool | msgspec.UnsetType = UNSET


class VoteRequest(_RaftMessage, frozen=True, kw_only=True, tag="request_vote"):
    """A candidate asks for a vote; `transfer` if the leader asked it to stand. A promise: its own vote."""

    term: Index
    last_log_index: Index
    last_log_term: Index
    transfer: bool = False


class Vote(_RaftMessage, frozen=True, kw_only=True, tag="response_vote"):
    """A vote for the candidate of `term`. A promise: it is on the voter's disk."""

    term: Index


class TakeOver(_RaftMessage, frozen=True, kw_only=True, tag="timeout_now"):
    """The leader asks a follower that has the whole log to stand for election at once."""

    term: Index


class PreVoteRequest(_RaftMessage, frozen=True, kw_only=True, tag="pre_vote"):
    """A node asks whether it would get a vote in `term`, the one after its own."""

    term: Index
    last_log_index: Index
    last_log_term: Index


class PreVoteGranted(_RaftMessage, frozen=True, kw_only=True, tag="pre_vote_granted"):
    """The answer "yes" to a PreVoteRequest of `term`. It promises nothing."""

    term: Index


class NewerTerm(_RaftMessage, frozen=True, kw_only=True, tag="newer_term"):
    """Tells a sender that speaks in an older term of the newer one."""

    term: Index


class SnapshotPosition(_RaftMessage, frozen=True, kw_only=True, tag="snapshot_position"):
    """How much of the snapshot with this digest a follower has, told in this term."""

    term: Index
    digest: bytes
    offset: int


Guarded = AppendEntries | Acknowledgement | VoteRequest | Vote | TakeOver
"""The messages that the library handles, behind the guards."""
Message = Guarded | PreVoteRequest | PreVoteGranted | NewerTerm | SnapshotPosition
"""Everything that the replicas of one log say to each other."""


class _Tagged(msgspec.Struct):
    """The part of a message that every version can read."""

    type: str


_TAGS: Final = frozenset(str(kind.__struct_config__.tag) for kind in get_args(Message))
_decoder: Final = msgspec.msgpack.Decoder(Message)
_tag_decoder: Final = msgspec.msgpack.Decoder(_Tagged)


def decode(data: bytes | msgspec.Raw) -> Message | str:
    """Return the message in `data`, or the name of its type if only later releases know that.

    Raises msgspec.DecodeError for what is not a message, or not a whole one.
    """
    try:
        message: Message = _decoder.decode(data)
    except msgspec.ValidationError:
        name = _tag_decoder.decode(data).type
        if name in _TAGS:
            raise
        return name
    if type(message) is AppendEntries:
        has_place = message.previous_index is not UNSET
        if (message.entries is not UNSET) != has_place or (message.previous_term is not UNSET) != has_place:
            raise msgspec.ValidationError("entries and the place before them come together")
    return message
