"""One replica for tests: with a real journal and snapshot store, and a clock that the test moves.

The test is everybody else: it hands in what peers say, and looks at the `Ready` that comes back.
"""

from collections.abc import Collection, Generator, Iterable
from pathlib import Path
from typing import cast

import msgspec

from cluster.consensus.library_words import EngineJournal
from cluster.consensus.member_list import MemberRecord, Members
from cluster.consensus.messages import (
    UNSET,
    Acknowledgement,
    AppendEntries,
    Message,
    PreVoteGranted,
    Vote,
    VoteRequest,
)
from cluster.consensus.ready import Ready
from cluster.consensus.replica import Replica
from cluster.storage.forked_child import Child
from cluster.storage.journal_format import LogEntry
from cluster.storage.snapshot_store import SnapshotStore
from tests.support.replica_parts import InlineChild, LibraryClock, ReplicaConfig, UnsyncedFiles

COMMAND = b"\x00"
"""The mark of a command in the log, in front of the entry."""
MEMBERS = b"\x10"
"""The mark of a member list in the log."""
THREE = ("n1", "n2", "n3")


def members_of(voters: Collection[str], learners: Collection[str] = ()) -> Members:
    """Return the list of these nodes."""
    nodes = {node_id: MemberRecord(f"{node_id}:1", is_voter=True) for node_id in voters}
    return Members(nodes | {node_id: MemberRecord(f"{node_id}:1", is_voter=False) for node_id in learners})


FOUR = members_of(THREE, learners=["n4"])
"""Three voters, and one that is catching up."""


def decode_state(state: bytearray) -> Generator[None, None, object]:
    """Decode a state in two steps."""
    yield
    return "decoded", bytes(state)


class Site:
    """A replica with its disk. All peers are connected unless `connected` says otherwise."""

    def __init__(
        self,
        directory: Path,
        clock: LibraryClock,
        node_id: str = "n2",
        *,
        members: Members | None = None,
        connected: Collection[str] | None = None,
        compact_entries: int = 20_000,
    ) -> None:
        directory.mkdir(exist_ok=True)
        self.clock = clock
        self.directory = directory
        self.room_bytes = 1_000_000
        self.members = members or members_of(THREE)
        self.journal = EngineJournal.open(directory, files=UnsyncedFiles())
        self.store = SnapshotStore(directory, UnsyncedFiles(), cast("Child", InlineChild()))
        self.replica = Replica(
            ReplicaConfig(node_id, compact_entries=compact_entries),
            self.members,
            self.journal,
            self.store,
            room_bytes=lambda _: self.room_bytes,
            decode_state=decode_state,
        )
        self.journal.sync()
        for peer_id in sorted(self.members.nodes.keys() - {node_id} if connected is None else connected):
            self.replica.peer_up(peer_id)

    def close(self) -> None:
        """End this run; another Site may begin on the directory."""
        self.replica.close()
        self.store.close()
        self.journal.close()

    @property
    def last(self) -> LogEntry:
        """The newest entry of the log."""
        return self.journal[-1]

    # -- as a follower

    def append(
        self, terms: Iterable[int] = (), *, term: int = 1, commit: int = 1, contents: Iterable[bytes] = ()
    ) -> AppendEntries:
        """Return what the leader of `term` says: entries behind the end of this log, a command in each.

        Their contents are those given, or made of index and term.
        """
        _, last_index, last_term = self.last
        entries = [
            (COMMAND + b"%d:%d" % (index, entry_term), index, entry_term)
            for index, entry_term in enumerate(terms, last_index + 1)
        ] + [(content, index, term) for index, content in enumerate(contents, last_index + 1)]
        return AppendEntries(
            term=term,
            commit_index=commit,
            entries=entries,
            previous_index=last_index,
            previous_term=last_term,
        )

    def follow(self, leader_id: str = "n1", *, term: int = 1) -> None:
        """Hear a leader for the first time, and sync."""
        self.replica.receive(leader_id, self.append(term=term))
        self.journal.sync()

    def vote_request(self, term: int, *, transfer: bool = False) -> VoteRequest:
        """Return the request of a candidate whose log is as good as this node's."""
        _, index, last_term = self.last
        return VoteRequest(term=term, last_log_index=index, last_log_term=last_term, transfer=transfer)

    # -- as a leader

    def lead(self) -> Ready:
        """Win an election with everybody's votes, and sync; return what the last vote led to."""
        replica, others = self.replica, sorted(self.members.voters - {self.node_id})
        self.clock.now_s += 2
        replica.tick(has_entry=False)
        for peer_id in others:
            replica.receive(peer_id, PreVoteGranted(term=replica.engine.term + 1))
        replica.tick(has_entry=False)
        self.journal.sync()
        ready = Ready()
        for peer_id in others:
            extend(ready, replica.receive(peer_id, Vote(term=replica.engine.term)))
        self.journal.sync()
        assert replica.role.is_leader
        return ready

    @property
    def node_id(self) -> str:
        """This node."""
        return self.replica._node_id

    def acknowledge(self, *peer_ids: str, up_to: int | None = None) -> Ready:
        """Let peers acknowledge the whole log, or all up to an index; this node has synced by then."""
        self.journal.sync()
        ready = Ready()
        next_index = (self.journal.last_index if up_to is None else up_to) + 1
        term = self.replica.role.term
        for peer_id in peer_ids:
            acknowledgement = Acknowledgement(next_index=next_index, reset=False, success=True, term=term)
            extend(ready, self.replica.receive(peer_id, acknowledgement))
        return ready

    def propose(self, *entries: bytes) -> Ready:
        """Tick and propose, as the loop does."""
        ready = self.replica.tick(has_entry=bool(entries))
        extend(ready, self.replica.propose(iter(entries)))
        return ready

    def commit(self, *entries: bytes) -> list[tuple[int, bytes]]:
        """Propose entries one by one and let everybody acknowledge each; return what is handed out."""
        committed: list[tuple[int, bytes]] = []
        for entry in entries or (None,):
            ready = self.propose(*([] if entry is None else [entry]))
            extend(ready, self.acknowledge(*sorted(self.members.nodes.keys() - {self.node_id})))
            extend(ready, self.replica.tick(has_entry=False))
            committed += ready.committed
        return committed


def extend(ready: Ready, later: Ready) -> None:
    """Add to `ready` what a later call led to: tests that need no order look at everything at once."""
    ready.restored = later.restored if later.restored is not None else ready.restored
    ready.is_role_changed |= later.is_role_changed
    ready.messages += later.messages
    ready.committed += later.committed
    ready.are_members_changed |= later.are_members_changed
    ready.snapshot = later.snapshot or ready.snapshot
    ready.promises += later.promises
    ready.needs_sync |= later.needs_sync
    ready.wants_tick |= later.wants_tick


def kinds(sent: list[tuple[str, Message]]) -> list[tuple[str, type[Message]]]:
    """Return to whom what kind of message goes."""
    return [(peer_id, type(message)) for peer_id, message in sent]


def entries_for(peer_id: str, sent: list[tuple[str, Message]]) -> list[LogEntry]:
    """Return the entries that are sent to a peer."""
    return [
        entry
        for to, message in sent
        if to == peer_id and isinstance(message, AppendEntries) and message.entries is not UNSET
        for entry in message.entries
    ]


def is_empty(ready: Ready) -> bool:
    """Whether nothing is to be done."""
    return msgspec.structs.asdict(ready) == msgspec.structs.asdict(Ready())


def acknowledged(index: int, term: int = 1) -> Acknowledgement:
    """Return the acknowledgement of everything up to an index."""
    return Acknowledgement(next_index=index + 1, reset=False, success=True, term=term)
