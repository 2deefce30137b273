"""The library's words for what we call otherwise: its messages, both ways, and its names for the journal."""

from typing import Any

from cluster.consensus.messages import (
    UNSET,
    Acknowledgement,
    AppendEntries,
    Message,
    TakeOver,
    Vote,
    VoteRequest,
)
from cluster.storage.journal import Journal


class EngineJournal(Journal):
    """The journal with the names that the library calls it by."""

    def deleteEntriesFrom(self, position: int) -> None:  # noqa: N802 - the library's name
        """Remove the entries at `position` and behind it."""
        self.remove_from(position)

    def setCurrentTerm(self, term: int, voted_for: str | None) -> None:  # noqa: N802 - the library's name
        """Set term and vote."""
        self.set_vote(term, voted_for)

    def getCurrentTerm(self) -> int:  # noqa: N802 - the library's name
        """Return the current term."""
        return self.term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802 - the library's name
        """Return whom this node voted for."""
        return self.voted_for

    def setRaftCommitIndex(self, index: int) -> None:  # noqa: N802 - the library's name
        """Record that the log is committed up to `index`."""
        self.record_commit(index)

    def getRaftCommitIndex(self) -> int:  # noqa: N802 - the library's name
        """Return the last durable commit hint."""
        return self.commit_hint

    def onOneSecondTimer(self) -> None:  # noqa: N802 - the library's name
        """Do what is to be done once a second."""
        self.tidy()

    def _destroy(self) -> None:
        """Close."""
        self.close()


def from_library(message: dict[str, Any], term: int, is_transfer: bool) -> Message | None:  # noqa: FBT001
    """Return what the library sends as one of our messages, None for what must not be sent.

    It says less than is needed: `term` is the present one, which an acknowledgement must carry (H3), and
    `is_transfer` tells whether a candidate stands because the leader asked it to.
    """
    match message["type"]:
        case "append_entries":
            return _append_entries(message)
        case "next_node_idx":
            return Acknowledgement(
                next_index=message["next_node_idx"],
                reset=message["reset"],
                success=message["success"],
                term=term,
            )
        case "request_vote":
            return VoteRequest(
                term=message["term"],
                last_log_index=message["last_log_index"],
                last_log_term=message["last_log_term"],
                transfer=is_transfer,
            )
        case "response_vote":
            return Vote(term=message["term"])
        case "timeout_now":
            return TakeOver(term=message["term"])
        case other:
            raise AssertionError(f"the library sends {other!r}")


def _append_entries(message: dict[str, Any]) -> AppendEntries | None:
    """Return the leader's message; None for one that names no place although it brings entries.

    The library sends that to a peer that it believes to be behind the end of its own log.
    """
    term, commit_index = message["term"], message["commit_index"]
    if "prevLogIdx" not in message:
        return AppendEntries(term=term, commit_index=commit_index, chunk=message["serialized"])
    assert "transmission" not in message, "an entry was cut into pickles: SPLIT_BYTES is too small"
    previous_index = message["prevLogIdx"]
    if previous_index is None:
        return None
    return AppendEntries(
        term=term,
        commit_index=commit_index,
        entries=message["entries"],
        previous_index=previous_index,
        previous_term=message["prevLogTerm"],
    )


def to_library(message: Message) -> dict[str, Any]:
    """Return one of our messages in the library's words."""
    match message:
        case AppendEntries():
            translated: dict[str, Any] = {
                "type": "append_entries",
                "term": message.term,
                "commit_index": message.commit_index,
            }
            if message.entries is not UNSET:
                translated["entries"] = message.entries
                translated["prevLogIdx"], translated["prevLogTerm"] = (
                    message.previous_index,
                    message.previous_term,
                )
            elif message.chunk is not UNSET:
                translated["serialized"] = message.chunk
            return translated
        case Acknowledgement():
            return {
                "type": "next_node_idx",
                "next_node_idx": message.next_index,
                "reset": message.reset,
                "success": message.success,
            }
        case VoteRequest():
            return {
                "type": "request_vote",
                "term": message.term,
                "last_log_index": message.last_log_index,
                "last_log_term": message.last_log_term,
            }
        case Vote():
            return {"type": "response_vote", "term": message.term}
        case TakeOver():
            return {"type": "timeout_now", "term": message.term}
        case _:
            raise AssertionError(f"the library does not know {type(message).__name__}")
