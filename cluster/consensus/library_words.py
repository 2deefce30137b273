"""The library's words for what we call otherwise: its messages, both ways, and its names for the journal.

The library takes in every message; of those that leave, it makes only the answers. What a leader or a
candidate sends is made in `library`.
"""

from pathlib import Path
from typing import Any, Final

from cluster.consensus.log_digest import Digest, LogDigests
from cluster.consensus.messages import (
    UNSET,
    Acknowledgement,
    AppendEntries,
    Message,
    TakeOver,
    Vote,
    VoteRequest,
)
from cluster.errors import DataDirError
from cluster.storage.files import Files
from cluster.storage.journal import Journal
from cluster.storage.journal_format import LogEntry
from cluster.storage.replay import ReplayedLog
from cluster.storage.segment_writer import Sizes


class EngineJournal(Journal):
    """The journal with what the rules of Raft ask about a log, and the names that the library calls it by."""

    def __init__(self, directory: Path, view: ReplayedLog, files: Files, sizes: Sizes) -> None:
        """Use `EngineJournal.open`."""
        super().__init__(directory, view, files, sizes)
        self._digests = LogDigests(self.entries)
        self._digest_values: Final = self._digests.values
        self.committed = 0
        """The highest index known to be committed, by a message or a snapshot; set by the engine."""

    def term_at(self, index: int) -> int | None:
        """Return the term of the entry at `index`, None if it is not in the log."""
        position = index - self.first_index
        return self.entries[position][2] if 0 <= position < len(self.entries) else None

    def digest_at(self, index: int) -> Digest | None:
        """Return the digest of the log at `index`; None if it is not known, or the entry not here."""
        position = index - self.first_index
        return self._digest_values[position] if 0 <= position < len(self._digest_values) else None

    def continue_digests(self, last: LogEntry, digest: Digest) -> None:
        """Take the digest where a snapshot ends. Raises DataDirError if the log has another one."""
        _, index, term = last
        position = index - self.first_index
        if not self._digests.learn(position, digest, self.entries[position + 1 :]):
            raise DataDirError(
                f"{self._directory}: snapshot and journal have different histories up to entry {index}"
                f" of term {term} (digest {digest:016x} in the snapshot, {self.digest_at(index):016x} in the"
                " journal): files of two disks were mixed. Restore the whole directory"
                " from a copy made after the node's last stop (an older one is unsafe), or"
                " replace this node with a new one"
            )

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append one entry."""
        super().add(command, idx, term)
        self._digests.append(command, idx, term)

    def clear(self) -> None:
        """Forget all entries."""
        super().clear()
        self._digests.remove_from(0)

    def remove_from(self, position: int) -> None:
        """Remove the entries at `position` and behind it."""
        super().remove_from(position)
        self._digests.remove_from(position)

    def remove_before(self, position: int) -> None:
        """Remove the entries before `position`."""
        super().remove_before(position)
        self._digests.remove_before(position)

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


def from_library(message: dict[str, Any], term: int) -> Message:
    """Return what the library answers as one of our messages.

    It says less than is needed: `term` is the present one, which an acknowledgement must carry (H3).
    """
    match message["type"]:
        case "next_node_idx":
            return Acknowledgement(
                next_index=message["next_node_idx"],
                reset=message["reset"],
                success=message["success"],
                term=term,
            )
        case "response_vote":
            return Vote(term=message["term"])
        case "timeout_now":
            return TakeOver(term=message["term"])
        case other:
            raise AssertionError(f"the library sends {other!r}")


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
