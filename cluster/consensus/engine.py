"""The Raft library, PySyncObj, behind typed words: the only file that imports it.

The library (pinned exactly) does elections, replication, commit and compaction. We drive it by hand in one
thread (`autoTick=False`) and stand at its seams: it sends through our transport, logs to our journal, asks
our serializer for snapshots. Its words end here and in `library_words`: the rest of the product speaks ours.
Where no seam reaches, a private method is overridden by its mangled name, with the reason; `REQUIRED_NAMES`
and `REQUIRED_ATTRIBUTES` list what the pinned version must have. What we add to its safety is in `replica`
and `guards`.

Nothing is acted on in here. What the library says during one call is collected in `sent`, `committed` and
`snapshot_due`, for the replica to take.
"""

from collections.abc import Callable, Collection
from typing import Any, Final, Protocol

import pysyncobj.syncobj as library
from pysyncobj import SyncObjConf
from pysyncobj.node import Node as LibraryNode
from pysyncobj.transport import Transport as LibraryTransport

from cluster.consensus import compaction, pinned_log
from cluster.consensus.commit_rule import majority_index
from cluster.consensus.compaction import Compaction, LogRoom
from cluster.consensus.library_words import EngineJournal, from_library, to_library
from cluster.consensus.log_digest import MEMBERS_MARK
from cluster.consensus.messages import UNSET, AppendEntries, Chunk, Message
from cluster.storage.journal_format import LogEntry
from cluster.storage.snapshot_format import Snapshot

SPLIT_BYTES: Final = 4 << 20
"""The size, in bytes, from which on the library would cut an entry into pickles (H6). Ours stay below a
quarter of it."""
IN_FLIGHT_MAX: Final = 1
"""Entries proposed and not yet committed. Few means large batches: what arrives meanwhile shares the next."""
RETAINED_DIVISOR: Final = 4
"""The part of `compact_entries` and of LOG_BYTES_MAX that stays behind a compaction: one in so many.

Who was away briefly needs no snapshot. More bytes than that would ask for the next compaction at once."""

FOUNDED_INDEX: Final = 2
"""Where the list of the founding stands in the log of a cluster: behind the library's first entry."""
FOUNDED_TERM: Final = 0
"""Its term: before the first election."""

_COMMAND: Final = b"\x00"
"""The library's mark of a command."""
_MEMBERS: Final = MEMBERS_MARK
"""Our mark of a member list. The library, which has lower marks for entries of its own, does not know it."""

REQUIRED_NAMES: Final = (
    "_SyncObj__applyLogEntries",
    "_SyncObj__connectedToAnyone",
    "_SyncObj__getCurrentLogIndex",
    "_SyncObj__loadDumpFile",
    "_SyncObj__onBecomeLeader",
    "_SyncObj__sendAppendEntries",
    "_SyncObj__tryLogCompaction",
    "_checkCommandsToApply",
    "doTick",
    "transferLeadership",
)
REQUIRED_ATTRIBUTES: Final = (
    "_SyncObj__raftState",
    "_SyncObj__raftCurrentTerm",
    "_SyncObj__raftLeader",
    "_SyncObj__raftCommitIndex",
    "_SyncObj__raftLastApplied",
    "_SyncObj__raftElectionDeadline",
    "_SyncObj__raftMatchIndex",
    "_SyncObj__raftNextIndex",
    "_SyncObj__serializer",
    "_SyncObj__needLoadDumpFile",
    "_SyncObj__transferInProgress",
    "_SyncObj__otherNodes",
    "_SyncObj__readonlyNodes",
    "_SyncObj__lastResponseTime",
)

_LEADER: Final = library._RAFT_STATE.LEADER
_CANDIDATE: Final = library._RAFT_STATE.CANDIDATE


class RaftConfig(Protocol):
    """What Raft needs of the node's configuration."""

    @property
    def node_id(self) -> str:
        """This node's name."""

    @property
    def heartbeat_ms(self) -> int:
        """How often a leader is heard of."""

    @property
    def election_ms_min(self) -> int:
        """How long followers are patient, at least."""

    @property
    def election_ms_max(self) -> int:
        """How long followers are patient, at most."""

    @property
    def compact_entries(self) -> int:
        """How many entries the log takes before it is compacted."""


class Snapshots(Protocol):
    """What the library asks of the snapshots of this node, in our words (snapshot_transfer)."""

    def poll(self) -> tuple[str, int]:
        """Return how the writing child is doing, and up to which index the state is written when "done"."""

    def next_chunk(self, peer_id: str) -> Chunk | None:
        """Return the next part for a peer, None when there is nothing to send or no room for it now."""

    def first_needed(self, goal: int) -> int | None:
        """Return from which entry on followers need the log that have not all up to `goal` yet."""

    def take_chunk(self, chunk: Chunk) -> bool:
        """Take a part; True when a snapshot is whole, checked, in place, and tells something new."""

    def stop_sending_to(self, peer_id: str) -> None:
        """Interrupt the transfer to a peer."""

    def take_received(self) -> Snapshot:
        """Return the snapshot that `take_chunk` has just put in place."""


class _LibraryPeer(str, LibraryNode):  # type: ignore[misc]
    """A node as the library names it, which looks nodes up in sets and tables: a string does that fastest."""

    __slots__ = ()

    id = ""
    __hash__ = str.__hash__
    __eq__ = str.__eq__
    __ne__ = str.__ne__

    def __init__(self, node_id: str) -> None:
        LibraryNode.__init__(self, node_id)
        # The library's class refuses to set it.
        object.__setattr__(self, "id", node_id)


class _Transport(LibraryTransport):  # type: ignore[misc]
    """The library's way out. Nodes are named by their ids; connections are the host's."""

    ready = True

    def __init__(self, engine: "Engine") -> None:
        super().__init__(None, None, [])
        self._engine = engine

    def send(self, node: LibraryNode, message: dict[str, Any]) -> bool:
        """Collect a message."""
        engine = self._engine
        collected = from_library(
            message,
            engine.library._SyncObj__raftCurrentTerm,
            engine.stands_for_transfer,
            engine.journal.digest_at,
        )
        if collected is not None:
            engine.collect(node.id, collected)
        return True

    def receive(self, node: LibraryNode, message: dict[str, Any]) -> None:
        """Hand a message in."""
        self._onMessageReceived(node, message)

    def connected(self, node: LibraryNode) -> None:
        """Tell the library that a peer can be reached."""
        self._onNodeConnected(node)

    def disconnected(self, node: LibraryNode) -> None:
        """Tell the library that a peer cannot be reached."""
        self._onNodeDisconnected(node)

    def destroy(self) -> None:
        """Do nothing: connections are the host's."""


def _bulk_bytes(message: AppendEntries) -> int:
    """Return how many bytes of the log or of a snapshot are in a message."""
    if message.entries is not UNSET:
        return sum([len(command) for command, _, _ in message.entries])
    return len(message.chunk.data) if isinstance(message.chunk, Chunk) else 0


class _Poller:
    """Stands where the library waits for sockets."""

    def poll(self, _: float) -> None:
        """Do nothing: the tick is over."""


class _Serializer:
    """Stands where the library has its own serializer (H9, H15), with the library's names."""

    def __init__(self, engine: "Engine", snapshots: Snapshots) -> None:
        self._engine = engine
        self._snapshots = snapshots

    def getTransmissionData(self, node: LibraryNode) -> Chunk | None:  # noqa: N802 - the library's name
        """Return the next part for a peer."""
        return self._snapshots.next_chunk(node.id)

    def setTransmissionData(self, chunk: Chunk | None) -> bool:  # noqa: N802 - the library's name
        """Take one part."""
        self._engine.observe()
        return chunk is not None and self._snapshots.take_chunk(chunk)

    def cancelTransmisstion(self, node: LibraryNode) -> None:  # noqa: N802 - the library's name, spelt so
        """Forget a transfer: the peer is gone."""
        self._snapshots.stop_sending_to(node.id)


class _Library(library.SyncObj):  # type: ignore[misc]
    """The library's object with our methods at its seams."""

    def __init__(
        self,
        engine: "Engine",
        nodes: tuple[LibraryNode, list[LibraryNode]],
        conf: SyncObjConf,
        transport: _Transport,
    ) -> None:
        self.engine = engine
        super().__init__(*nodes, conf, transport=transport)

    def _SyncObj__connectedToAnyone(self) -> bool:  # noqa: N802
        """Whether to start an election, which the library asks when its patience has ended.

        Overridden: the library needs one connected peer for that; we need the consent of a majority (H11).
        """
        return self.engine.may_stand

    def _SyncObj__applyLogEntries(self) -> bool:  # noqa: N802
        """Collect what is committed; tell whether the followers should hear of the commit at once.

        Overridden: the library unpickles entries, applies them in the middle of its tick, and retries for
        ever what raises (H8). When another entry is about to leave, the news of the commit travels with it.
        """
        engine = self.engine
        engine.is_counting = False
        applied = engine.applied_index
        commit_index: int = self._SyncObj__raftCommitIndex
        if commit_index <= applied:
            return False
        entries = engine.entries(applied + 1, commit_index)
        engine.committed += entries
        self._SyncObj__raftLastApplied = applied + len(entries)
        return not (
            engine.has_proposal
            and self._SyncObj__raftState == _LEADER
            and engine.journal.last_index - commit_index < engine.in_flight_max
        )

    def _SyncObj__getCurrentLogIndex(self) -> int:  # noqa: N802
        """Return the index of the newest entry. Overridden: the journal knows it without a look.

        Where a leader counts who has what, the log ends for it at what is committed: the library takes its
        own copy for durable, and that is only so up to where it was synced (see `Engine.commit`).
        """
        if self.engine.is_counting and self._SyncObj__raftState == _LEADER:
            commit_index: int = self._SyncObj__raftCommitIndex
            return commit_index
        return self.engine.journal.last_index

    def _SyncObj__onBecomeLeader(self) -> None:  # noqa: N802
        """Begin to lead, in the middle of a tick if nobody else votes: with the log as it is."""
        engine = self.engine
        engine.is_counting, is_counting = False, engine.is_counting
        super()._SyncObj__onBecomeLeader()
        engine.is_counting = is_counting

    def _checkCommandsToApply(self) -> None:  # noqa: N802
        """Do nothing. Overridden: the library takes one command at a time from a queue of its own (H14)."""

    def _SyncObj__tryLogCompaction(self) -> None:  # noqa: N802
        """Begin a snapshot if it is due, or go on with it.

        Overridden: the library tries again in the next tick after a failure, and goes by the length of the
        log, of which a tail stays.
        """
        self.engine.compact()

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:  # noqa: N802, N803, FBT001
        """Collect that a snapshot was received.

        Overridden: the library swallows every error and goes on empty (H9), and drops the log behind a
        snapshot when a crash came between writing the snapshot and compacting.
        """
        assert clearJournal, "a snapshot on this disk is loaded before the library starts"
        self.engine.install_received()


class Engine:
    """One node's Raft, driven by `receive` and `tick`. One thread.

    `journal` already begins where the newest snapshot ends; `applied_index` is that snapshot's last entry,
    or 1. `set_members` tells who counts, before anything else happens.

    What it knows is in plain attributes, as of the end of the last call: `term`, `is_leader`, `is_candidate`,
    `leader_id`, `commit_index` (the highest index known to be committed by messages) and `applied_index` (the
    last entry handed out in `committed`, or contained in a snapshot).
    """

    def __init__(
        self,
        config: RaftConfig,
        journal: EngineJournal,
        room_bytes: Callable[[str], int],
        *,
        applied_index: int,
    ) -> None:
        """`room_bytes` tells how much bulk data may be added to the connection with a peer."""
        self.journal = journal
        self._room_bytes = room_bytes
        self._retained = config.compact_entries // RETAINED_DIVISOR
        self._compaction = Compaction(config.compact_entries, applied_index, self.now_s())
        self._nodes: dict[str, LibraryNode] = {}
        self.sent: list[tuple[str, Message]] = []
        self._sent_bytes: dict[str, int] = {}
        self.committed: list[LogEntry] = []
        self.snapshot_due: tuple[LogEntry, LogEntry] | None = None
        self.installed: Snapshot | None = None
        # What the library asks for in the middle of a tick, told before it.
        self.may_stand = False
        self.is_counting = False
        self.stands_for_transfer = False
        self.has_proposal = False
        self.in_flight_max = IN_FLIGHT_MAX
        self._transport = _Transport(self)
        conf = SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=False,
            appendEntriesPeriod=config.heartbeat_ms / 1000,
            raftMinTimeout=config.election_ms_min / 1000,
            raftMaxTimeout=config.election_ms_max / 1000,
            connectionTimeout=config.election_ms_max / 1000,
            leaderFallbackTimeout=config.election_ms_max / 1000,
            appendEntriesBatchSizeBytes=SPLIT_BYTES,
            dynamicMembershipChange=False,
        )
        # The library looks these up by name while it is constructed.
        ours = {
            "createJournal": lambda _: journal,
            "createPoller": lambda _: _Poller(),
            "PIPE_NOTIFIER_ENABLED": False,
        }
        originals = {name: getattr(library, name) for name in ours}
        try:
            for name, value in ours.items():
                setattr(library, name, value)
            self.library = _Library(self, (self._node(config.node_id), []), conf, self._transport)
        finally:
            for name, value in originals.items():
                setattr(library, name, value)
        self.library._SyncObj__needLoadDumpFile = False
        self._begin_behind(applied_index)

    def use_snapshots(self, snapshots: Snapshots) -> None:
        """Ask `snapshots` for what the library wants of its serializer. Called once, before anything else."""
        self._snapshots = snapshots
        self.library._SyncObj__serializer = _Serializer(self, snapshots)

    def observe(self) -> None:
        """Read what the library knows now."""
        raft = self.library
        leader = raft._SyncObj__raftLeader
        state = raft._SyncObj__raftState
        self.term: int = raft._SyncObj__raftCurrentTerm
        self.is_leader: bool = state == _LEADER
        self.is_candidate: bool = state == _CANDIDATE
        self.leader_id: str | None = None if leader is None else leader.id
        self.commit_index: int = raft._SyncObj__raftCommitIndex
        self.applied_index: int = raft._SyncObj__raftLastApplied

    def collect(self, peer_id: str, message: Message) -> None:
        """Collect what the library sends, but for entries that the connection has no room for.

        They are left out as if they got lost: the next heartbeat makes the peer ask for them. The library
        would send a long log at once, and the link would break.
        """
        if type(message) is AppendEntries:
            size_bytes = _bulk_bytes(message)
            if size_bytes:
                if message.entries and not self.has_room(peer_id):
                    return
                self._sent_bytes[peer_id] = self._sent_bytes.get(peer_id, 0) + size_bytes
        self.sent.append((peer_id, message))

    def has_room(self, peer_id: str) -> bool:
        """Whether bulk data may be sent to the peer, besides what was collected for it."""
        return self._room_bytes(peer_id) > self._sent_bytes.get(peer_id, 0)

    def take_sent(self) -> list[tuple[str, Message]]:
        """Return what is to be sent, and begin anew."""
        sent, self.sent = self.sent, []
        self._sent_bytes.clear()
        return sent

    # -- members --------------------------------------------------------------------------------------------

    def set_members(self, voters: Collection[str], learners: Collection[str]) -> None:
        """Count `voters` (this node's id left out) for majorities; send the log to `learners` besides.

        The library keeps its own nodes in sets that it changes only by pickled entries of its own, several
        at a time; so these are set from outside. For learners it has "read-only" nodes, which get the log.
        """
        raft = self.library
        present: set[LibraryNode] = set()
        for nodes, node_ids in (
            (raft._SyncObj__otherNodes, voters),
            (raft._SyncObj__readonlyNodes, learners),
        ):
            nodes.clear()
            nodes.update(self._node(node_id) for node_id in node_ids)
            present |= nodes
        for table, value in (
            (raft._SyncObj__raftNextIndex, self.journal.last_index + 1),
            (raft._SyncObj__raftMatchIndex, 0),
            (raft._SyncObj__lastResponseTime, self.now_s()),
        ):
            for node in [node for node in table if node not in present]:
                del table[node]
            for node in present:
                table.setdefault(node, value)

    def _node(self, node_id: str) -> LibraryNode:
        """Return the library's name of a node."""
        return self._nodes.get(node_id) or self._nodes.setdefault(node_id, _LibraryPeer(node_id))

    @staticmethod
    def members_in(command: bytes) -> bytes | None:
        """Return the encoded member list in an entry of the log, None if it is another entry."""
        return command[1:] if command[:1] == _MEMBERS else None

    @staticmethod
    def command_in(command: bytes) -> bytes | None:
        """Return the state machine's part of an entry of the log, None if it is another entry."""
        return command[1:] if command[:1] == _COMMAND else None

    # -- what it knows --------------------------------------------------------------------------------------

    @staticmethod
    def now_s() -> float:
        """Return the library's monotonic clock."""
        now_s: float = library.monotonicTime()
        return now_s

    @staticmethod
    def random() -> float:
        """Return the library's kind of random number, 0 to 1."""
        number: float = library.random.random()
        return number

    @property
    def has_work(self) -> bool:
        """Whether a tick would find something to commit, to apply, or to take over."""
        return (
            self.commit_index > self.applied_index
            or self.is_takeover_asked
            or (self.is_leader and self.committable_index > self.commit_index)
        )

    @property
    def committable_index(self) -> int:
        """Return up to where a majority has the log of this leader on disk; its commit index if no further.

        Only an entry of the present term is committed by being counted (Raft, section 5.4.2).
        """
        raft, journal = self.library, self.journal
        commit_index: int = raft._SyncObj__raftCommitIndex
        if journal.last_index == commit_index:
            return commit_index
        matched = raft._SyncObj__raftMatchIndex
        index = majority_index(journal.synced_index, [matched[node] for node in raft._SyncObj__otherNodes])
        if index <= commit_index or journal[index - journal.first_index][2] != self.term:
            return commit_index
        return index

    @property
    def is_takeover_asked(self) -> bool:
        """Whether the leader has asked this node to take over."""
        return bool(self.library._SyncObj__transferInProgress)

    def forget_takeover(self) -> None:
        """Do not take over any more."""
        self.library._SyncObj__transferInProgress = False

    @property
    def election_deadline_s(self) -> float:
        """Return when this node stands for election if it hears of no leader; on the clock of `now_s`."""
        deadline_s: float = self.library._SyncObj__raftElectionDeadline
        return deadline_s

    @election_deadline_s.setter
    def election_deadline_s(self, deadline_s: float) -> None:
        self.library._SyncObj__raftElectionDeadline = deadline_s

    def match_index(self, peer_id: str) -> int:
        """Return up to where a peer is known to have the leader's log; 0 if that is not known."""
        index: int = self.library._SyncObj__raftMatchIndex.get(self._node(peer_id), 0)
        return index

    def silence_s(self, peer_id: str) -> float:
        """Return how long this leader has heard no answer from a peer; infinite if it is not a member."""
        answered_s: float = self.library._SyncObj__lastResponseTime.get(self._node(peer_id), float("-inf"))
        return self.now_s() - answered_s

    def entries(self, first: int, last: int) -> list[LogEntry]:
        """Return the entries from `first` to `last`, both included, as far as the log holds them."""
        position = first - self.journal.first_index
        return self.journal[position : position + last - first + 1] if position >= 0 else []

    def newest_command(self) -> bytes | None:
        """Return the newest command in the log, committed or not; None if there is none."""
        for position in range(len(self.journal) - 1, -1, -1):
            command = self.command_in(self.journal[position][0])
            if command is not None:
                return command
        return None

    # -- what drives it -------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Commit, collect what is committed, send, compact, stand for election."""
        # The library forgets why it stands for election before it asks for votes.
        self.stands_for_transfer = self.is_takeover_asked
        if self.is_leader:
            self._commit()
        self.is_counting = True
        self.library.doTick(0.0)
        self.is_counting = self.stands_for_transfer = False
        self.observe()

    def _commit(self) -> None:
        """Commit what a majority has on disk, this leader's own copy counted as far as it was synced."""
        index = self.committable_index
        if index > self.commit_index:
            self.library._SyncObj__raftCommitIndex = index
            self.journal.record_commit(index)

    def receive(self, peer_id: str, message: Message) -> None:
        """Take a message that the guards admitted."""
        self._transport.receive(self._node(peer_id), to_library(message))
        self.observe()

    def adopt_term(self, peer_id: str, term: int) -> None:
        """Move to the newer term that a peer told; a leader steps down.

        The library does that for a vote request; this one, with an empty log, cannot get the vote.
        """
        request = {"type": "request_vote", "term": term, "last_log_term": -1, "last_log_index": -1}
        self._transport.receive(self._node(peer_id), request)
        self.observe()

    def connected(self, peer_id: str) -> None:
        """Record that a peer can be reached."""
        self._transport.connected(self._node(peer_id))

    def disconnected(self, peer_id: str) -> None:
        """Record that a peer cannot be reached."""
        self._transport.disconnected(self._node(peer_id))

    def append(self, entry: bytes) -> None:
        """Put a command at the end of the leader's log and send it."""
        self.journal.add(_COMMAND + entry, self.journal.last_index + 1, self.term)
        self.send_entries()

    def append_members(self, members: bytes) -> int:
        """Put a member list at the end of the leader's log, return its index. Send it by `send_entries`.

        It counts at once: `set_members` must come before anything is sent.
        """
        index = self.journal.last_index + 1
        self.journal.add(_MEMBERS + members, index, self.term)
        return index

    def begin_founded(self, members: bytes) -> None:
        """Put the list of the founding behind the first entry of an empty log.

        Every founder does that before it takes part: so the list is committed.
        """
        assert self.journal.last_index == FOUNDED_INDEX - 1, "a log that has begun already"
        self.journal.add(_MEMBERS + members, FOUNDED_INDEX, FOUNDED_TERM)
        self._begin_behind(self.applied_index)

    def _founded_index(self) -> int:
        """Return where the list of the founding stands if the log holds it, else 0.

        No leader appends anything in the term that it has.
        """
        founded = self.entries(FOUNDED_INDEX, FOUNDED_INDEX)
        is_founding = bool(founded) and founded[0][2] == FOUNDED_TERM
        return FOUNDED_INDEX if is_founding else 0

    def send_entries(self) -> None:
        """Send every peer what it lacks."""
        self.library._SyncObj__sendAppendEntries()

    def pause_sending(self, peer_id: str) -> None:
        """Treat a peer as caught up for now: the library would send it nothing in a loop.

        The next heartbeat makes the peer ask for what it lacks.
        """
        self.library._SyncObj__raftNextIndex[self._node(peer_id)] = self.journal.last_index + 1

    def resume_sending(self, peer_id: str) -> None:
        """Send a peer what it lacks, with the next `send_entries`, although it has not asked for it."""
        self.library._SyncObj__raftNextIndex[self._node(peer_id)] = self.match_index(peer_id) + 1

    def force_compaction(self) -> None:
        """Write a snapshot in the next tick whatever the length of the log."""
        self._compaction.force()

    def compact(self) -> None:
        """Collect that a snapshot is due; when one is written, drop the log before it, but for a tail.

        Called in the middle of a tick, when everything committed is collected.
        """
        outcome, index = self._snapshots.poll()
        now_s = self.now_s()
        if outcome == "done":
            self._compaction.has_snapshot(index, now_s)
            self.journal.remove_before(self.retained_from(index - 1) - self.journal.first_index)
        elif outcome == "failed":
            self._compaction.failed(now_s)
        elif outcome == "idle":
            applied: int = self.library._SyncObj__raftLastApplied
            if self._compaction.is_due(applied, self.journal.bytes_count, now_s):
                previous, last = self.entries(applied - 1, applied)
                self.snapshot_due = (last, previous)

    @property
    def snapshots_failing_s(self) -> float:
        """Return for how long snapshots have been failing; 0 if the last one did not."""
        return self._compaction.failing_s(self.now_s())

    @property
    def log_room(self) -> LogRoom:
        """Return what may still be put into the log."""
        return self._compaction.room(len(self.journal), self.journal.bytes_count)

    def retained_from(self, index: int) -> int:
        """Return the first entry that stays when everything up to behind `index` is in a snapshot.

        Who was away briefly needs no snapshot then, and who is getting an older one no second one.
        """
        journal = self.journal
        start = journal.tail_start(index, self._retained, compaction.LOG_BYTES_MAX // RETAINED_DIVISOR)
        needed = self._snapshots.first_needed(index + 1)
        if needed is None or needed >= start:
            return start
        return max(needed, journal.tail_start(index, pinned_log.ENTRIES_MAX, pinned_log.BYTES_MAX))

    def transfer(self, peer_id: str) -> None:
        """Ask a peer that has the whole log to stand for election at once."""
        self.library.transferLeadership(self._node(peer_id))

    def install_received(self) -> None:
        """Make the log begin behind the snapshot that has just been received, verified and put in place."""
        snapshot = self.installed = self._snapshots.take_received()
        self.journal.clear()
        self.journal.add(*snapshot.previous)
        self.journal.add(*snapshot.last)
        if snapshot.log_digest is not None:
            self.journal.continue_digests(snapshot.last, snapshot.log_digest)
        self._compaction.has_snapshot(snapshot.last[1], self.now_s())
        self._begin_behind(snapshot.last[1])

    def _begin_behind(self, index: int) -> None:
        """Record that state and log begin at a snapshot up to `index`."""
        self.library._SyncObj__raftLastApplied = index
        self.library._SyncObj__raftCommitIndex = max(self.journal.commit_hint, index, self._founded_index())
        self.observe()
