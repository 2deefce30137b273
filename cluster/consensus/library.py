"""The Raft library, PySyncObj, with our methods at its seams: the only file that imports it.

The library (pinned exactly) keeps the role, the term and the vote, and takes in the messages of others, but
for those that come with every entry (`take`). What is done in every tick, and what a leader sends, is ours,
too, in `_onTick` and `__sendAppendEntries`: after the Raft paper (sections 5.2, 5.3 and 5.4.2) and the
dissertation (section 6.2), and without what we do not use.
Where a private method is overridden, the reason stands there. `REQUIRED_NAMES`, `REQUIRED_ATTRIBUTES` and
`ONLY_IN_THE_TICK` list what the pinned version must be like.

Nothing is acted on in here: what is to be sent or applied is collected in the owner (`engine.Engine`).
"""

import functools
import time
from collections.abc import Callable, Collection
from typing import Any, Final, Protocol

from pysyncobj import SyncObjConf, syncobj
from pysyncobj.node import Node as LibraryNode
from pysyncobj.transport import Transport as LibraryTransport

from cluster.consensus.commit_rule import majority_index
from cluster.consensus.library_words import EngineJournal, from_library, to_library
from cluster.consensus.messages import UNSET, Acknowledgement, AppendEntries, Chunk, Message, VoteRequest
from cluster.storage.journal_format import LogEntry

SPLIT_BYTES: Final = 4 << 20
"""The bytes of entries from which on a message is full. One entry stays below a quarter of it."""
NEWS_S: Final = 0.002
"""How long, in seconds, the news of a commit may be kept from a follower that has no client waiting for it.

Usually the next entry brings it sooner. With one client on a stream this takes a quarter less of the nodes'
processor time than a message to each follower at once (3.0 ms a cycle in the place of 3.7 to 4.4).
"""
TIDY_S: Final = 1.0
"""Seconds from one call of the journal's `tidy` to the next."""

REQUIRED_NAMES: Final = (
    "_SyncObj__generateRaftTimeout",
    "_SyncObj__getCurrentLogIndex",
    "_SyncObj__loadDumpFile",
    "_SyncObj__onBecomeLeader",
    "_SyncObj__onMessageReceived",
    "_SyncObj__onNodeConnected",
    "_SyncObj__onNodeDisconnected",
    "_SyncObj__sendAppendEntries",
    "_SyncObj__setCurrentTerm",
    "_onTick",
    "transferLeadership",
)
REQUIRED_ATTRIBUTES: Final = (
    "_SyncObj__connectedNodes",
    "_SyncObj__lastResponseTime",
    "_SyncObj__otherNodes",
    "_SyncObj__raftCommitIndex",
    "_SyncObj__raftCurrentTerm",
    "_SyncObj__raftElectionDeadline",
    "_SyncObj__raftLastApplied",
    "_SyncObj__raftLeader",
    "_SyncObj__raftMatchIndex",
    "_SyncObj__raftNextIndex",
    "_SyncObj__raftState",
    "_SyncObj__readonlyNodes",
    "_SyncObj__selfNode",
    "_SyncObj__serializer",
    "_SyncObj__transferInProgress",
    "_SyncObj__votesCount",
)
ONLY_IN_THE_TICK: Final = (
    "__applyLogEntries",
    "__connectedToAnyone",
    "__tryLogCompaction",
    "_checkCommandsToApply",
)
"""What the library does in its own tick alone, and never with ours."""

_NEVER: Final = float("inf")

_FOLLOWER: Final = syncobj._RAFT_STATE.FOLLOWER
_LEADER: Final = syncobj._RAFT_STATE.LEADER
_CANDIDATE: Final = syncobj._RAFT_STATE.CANDIDATE

# The library's clock, without the Python function that the library puts around it.
syncobj.monotonicTime = functools.partial(time.clock_gettime, time.CLOCK_MONOTONIC_RAW)


class SnapshotChunks(Protocol):
    """What is asked of the snapshots of this node (snapshot_transfer)."""

    def next_chunk(self, peer_id: str) -> Chunk | None:
        """Return the next part for a peer, None when there is nothing to send or no room for it now."""

    def take_chunk(self, chunk: Chunk) -> bool:
        """Take a part; True when a snapshot is whole, checked, in place, and tells something new."""

    def stop_sending_to(self, peer_id: str) -> None:
        """Interrupt the transfer to a peer."""


class LibraryOwner(Protocol):
    """What the library asks of the engine that drives it. `observe` tells it what the library knows."""

    journal: EngineJournal
    sent: list[tuple[str, Message]]
    may_stand: bool
    has_proposal: bool
    in_flight_max: int
    term: int
    is_leader: bool
    is_candidate: bool
    leader_id: str | None
    commit_index: int
    applied_index: int
    is_takeover_asked: bool

    def may_wait(self) -> bool:
        """Whether nobody here waits for what is committed."""

    def hand_out(self, entries: list[LogEntry]) -> bool:
        """Collect entries that are committed; tell whether all of them are commands."""

    def collect_bulk(self, peer_id: str, message: Message, size_bytes: int) -> None:
        """Collect a message with bulk data."""

    def has_room(self, peer_id: str) -> bool:
        """Whether bulk data may be sent to the peer, besides what was collected for it."""

    def compact(self, applied_index: int, now_s: float) -> None:
        """Begin a snapshot if one is due, or go on with it."""

    def install_received(self) -> None:
        """Let the log begin behind the snapshot that was received."""


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


class _Peer(str, LibraryNode):  # type: ignore[misc]
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


class _Peers(dict[str, _Peer]):
    """The library's names of nodes, made when they are asked for."""

    def __missing__(self, node_id: str) -> _Peer:
        peer = self[node_id] = _Peer(node_id)
        return peer


class _Transport(LibraryTransport):  # type: ignore[misc]
    """The library's way out, for what it answers. Connections are the host's."""

    ready = True

    def __init__(self, owner: LibraryOwner) -> None:
        super().__init__(None, None, [])
        self._owner = owner
        self.library: Library

    def send(self, node: LibraryNode, message: dict[str, Any]) -> bool:
        """Collect a message."""
        self._owner.sent.append((node.id, from_library(message, self.library._SyncObj__raftCurrentTerm)))
        return True

    def destroy(self) -> None:
        """Do nothing: connections are the host's."""


class _Serializer:
    """Stands where the library has its own serializer (H9, H15), with the library's name for its work."""

    def __init__(self, library: "Library", snapshots: SnapshotChunks) -> None:
        self._library = library
        self._snapshots = snapshots

    def setTransmissionData(self, chunk: Chunk | None) -> bool:  # noqa: N802 - the library's name
        """Take one part."""
        self._library.observe()
        return chunk is not None and self._snapshots.take_chunk(chunk)


class Library(syncobj.SyncObj):  # type: ignore[misc]
    """The library's object with our methods at its seams. One thread."""

    _snapshots: SnapshotChunks
    _SyncObj__connectedNodes: set[LibraryNode]
    _SyncObj__lastResponseTime: dict[LibraryNode, float]
    _SyncObj__otherNodes: set[LibraryNode]
    _SyncObj__raftCommitIndex: int
    _SyncObj__raftCurrentTerm: int
    _SyncObj__raftElectionDeadline: float
    _SyncObj__raftLastApplied: int
    _SyncObj__raftLeader: LibraryNode | None
    _SyncObj__raftMatchIndex: dict[LibraryNode, int]
    _SyncObj__raftNextIndex: dict[LibraryNode, int]
    _SyncObj__raftState: int
    _SyncObj__readonlyNodes: set[LibraryNode]
    _SyncObj__transferInProgress: bool

    def __init__(self, owner: LibraryOwner, config: RaftConfig) -> None:
        self._owner = owner
        self._journal = journal = owner.journal
        self.now_s: Final[Callable[[], float]] = syncobj.monotonicTime
        """The library's monotonic clock, in seconds."""
        self._peers = _Peers()
        self._receivers: list[_Peer] = []
        """Who gets the log, the voters among them and the learners, in the order of their ids."""
        self._heartbeat_s: Final = config.heartbeat_ms / 1000
        self._fallback_s: Final = config.election_ms_max / 1000
        self._next_heartbeat_s = self._next_tidy_s = 0.0
        self._may_wait: set[_Peer] = set()
        """For whom nobody waits, by what they said last."""
        self._told: dict[_Peer, int] = {}
        """Up to where each was told last that the log is committed."""
        self._news_due_s = _NEVER
        """When all have to hear of a commit, if any of them has not."""
        self.is_news_urgent = False
        """Whether somebody waits for the news of a commit at a follower that was to hear of it later."""
        transport = _Transport(owner)
        transport.library = self
        conf = SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=False,
            raftMinTimeout=config.election_ms_min / 1000,
            raftMaxTimeout=config.election_ms_max / 1000,
            connectionTimeout=config.election_ms_max / 1000,
            dynamicMembershipChange=False,
        )
        # The library looks these up by name while it is constructed.
        ours = {
            "createJournal": lambda _: journal,
            "createPoller": lambda _: None,
            "PIPE_NOTIFIER_ENABLED": False,
        }
        originals = {name: getattr(syncobj, name) for name in ours}
        try:
            for name, value in ours.items():
                setattr(syncobj, name, value)
            super().__init__(self._peers[config.node_id], [], conf, transport=transport)
        finally:
            for name, value in originals.items():
                setattr(syncobj, name, value)

    def use_snapshots(self, snapshots: SnapshotChunks) -> None:
        """Ask `snapshots` for parts to send, and hand them those that come. Called once."""
        self._snapshots = snapshots
        self._SyncObj__serializer = _Serializer(self, snapshots)

    def observe(self) -> None:
        """Tell the owner what the library knows now."""
        owner = self._owner
        leader = self._SyncObj__raftLeader
        state = self._SyncObj__raftState
        owner.term = self._SyncObj__raftCurrentTerm
        owner.is_leader = state == _LEADER
        owner.is_candidate = state == _CANDIDATE
        owner.leader_id = None if leader is None else leader.id
        owner.commit_index = commit_index = self._SyncObj__raftCommitIndex
        owner.applied_index = applied_index = self._SyncObj__raftLastApplied
        owner.is_takeover_asked = self._SyncObj__transferInProgress
        self._journal.committed = max(commit_index, applied_index)

    # -- the tick -------------------------------------------------------------------------------------------

    def _onTick(self, timeToWait: float = 0.0) -> None:  # noqa: ARG002, N802, N803
        """Stand for election, commit, collect what is committed, send, compact: as far as it is due.

        Overridden: the library polls sockets and queues that we do not have, counts the leader's own copy
        before it is on disk (H4), and applies in here what it unpickles (H8).
        """
        now_s = self.now_s()
        if now_s >= self._next_tidy_s:
            self._next_tidy_s = now_s + TIDY_S
            self._journal.tidy()
        if (
            self._SyncObj__raftState != _LEADER
            and self._SyncObj__raftElectionDeadline < now_s
            and self._owner.may_stand
        ):
            self._stand(now_s)
        if self._SyncObj__raftState == _LEADER:
            index = self.committable_index()
            if index > self._SyncObj__raftCommitIndex:
                self._SyncObj__raftCommitIndex = index
                self._journal.record_commit(index)
            self._step_down_if_unheard(now_s)
        has_news = self._hand_out()
        if self._SyncObj__raftState != _LEADER:
            self._news_are_told()
        elif self._is_sending_due(now_s):
            # Between this tick and the entry behind it, what is committed is applied: that may take a while.
            if has_news or not self._is_entry_next():
                self._SyncObj__sendAppendEntries()
        elif has_news and not self._is_entry_next():
            self._tell_who_waits(now_s)
        self._owner.compact(self._SyncObj__raftLastApplied, now_s)
        self.observe()

    tick = _onTick

    def _stand(self, now_s: float) -> None:
        """Begin an election with the own vote (section 5.2). It was agreed to (H11)."""
        is_asked_to = self._SyncObj__transferInProgress
        self._SyncObj__raftElectionDeadline = now_s + self._SyncObj__generateRaftTimeout()
        self._SyncObj__transferInProgress = False
        self._SyncObj__raftLeader = None
        self._SyncObj__raftState = _CANDIDATE
        term = self._SyncObj__raftCurrentTerm + 1
        self._SyncObj__setCurrentTerm(term, self._SyncObj__selfNode.id)
        self._SyncObj__votesCount = 1
        _, last_index, last_term = self._journal.entries[-1]
        request = VoteRequest(
            term=term, last_log_index=last_index, last_log_term=last_term, transfer=is_asked_to
        )
        voters = self._SyncObj__otherNodes
        self._owner.sent += [(peer.id, request) for peer in self._receivers if peer in voters]
        if not voters:
            self._SyncObj__onBecomeLeader()

    def committable_index(self) -> int:
        """Return up to where a majority has the log of this leader on disk; its commit index if no further.

        Only an entry of the present term is committed by being counted (section 5.4.2).
        """
        journal = self._journal
        commit_index = self._SyncObj__raftCommitIndex
        if journal.last_index == commit_index:
            return commit_index
        matched = map(self._SyncObj__raftMatchIndex.__getitem__, self._SyncObj__otherNodes)
        index = majority_index(journal.synced_index, matched)
        if index <= commit_index:
            return commit_index
        is_of_this_term = journal.entries[index - journal.first_index][2] == self._SyncObj__raftCurrentTerm
        return index if is_of_this_term else commit_index

    def _step_down_if_unheard(self, now_s: float) -> None:
        """Lead no more when no majority has answered for as long as followers are patient at most."""
        answered_s, count = self._SyncObj__lastResponseTime, 1
        voters = self._SyncObj__otherNodes
        for peer in voters:
            if answered_s[peer] > now_s - self._fallback_s:
                count += 1
        if 2 * count <= len(voters) + 1:
            self._SyncObj__raftState = _FOLLOWER
            self._SyncObj__raftLeader = None

    def news_due_in_s(self) -> float | None:
        """Return in how many seconds a tick has to come so that all hear of a commit; None if all have."""
        if self._news_due_s == _NEVER:
            return None
        return 0.0 if self.is_news_urgent else max(self._news_due_s - self.now_s(), 0.0)

    def _news_are_told(self) -> None:
        self._news_due_s, self.is_news_urgent = _NEVER, False

    def _tell_who_waits(self, now_s: float) -> None:
        """Tell of a commit at once where somebody waits for it; others hear of it soon, or with an entry."""
        for peer in self._receivers:
            if peer in self._may_wait:
                self._news_due_s = min(self._news_due_s, now_s + NEWS_S)
            else:
                self._send_all(peer, now_s)

    def _is_sending_due(self, now_s: float) -> bool:
        """Whether all have to hear of this leader: a heartbeat is due, or the news of a commit."""
        return now_s > self._next_heartbeat_s or now_s >= self._news_due_s or self.is_news_urgent

    def _is_entry_next(self) -> bool:
        """Whether this leader sends another entry right behind this tick: the news of a commit is in it."""
        owner = self._owner
        in_flight = self._journal.last_index - self._SyncObj__raftCommitIndex
        return owner.has_proposal and in_flight < owner.in_flight_max

    def _hand_out(self) -> bool:
        """Collect what is committed; tell whether there is anything.

        What changes the members is news for all.
        """
        owner, journal = self._owner, self._journal
        applied, commit_index = self._SyncObj__raftLastApplied, self._SyncObj__raftCommitIndex
        if commit_index <= applied:
            return False
        start = applied + 1 - journal.first_index
        assert start >= 0, "the log begins behind the state"
        entries = journal.entries[start : start + commit_index - applied]
        if not owner.hand_out(entries):
            self._may_wait.clear()
        self._SyncObj__raftLastApplied = applied + len(entries)
        return True

    # -- what a leader sends --------------------------------------------------------------------------------

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802
        """Send every connected peer what it lacks, or a heartbeat (section 5.3).

        Overridden: the library cuts long entries into pickles (H6), knows nothing of the room on a
        connection or of our digests, and has its own way to send a snapshot.
        """
        started_s = self.now_s()
        self._next_heartbeat_s = started_s + self._heartbeat_s
        self._news_are_told()
        for peer in self._receivers:
            self._send_all(peer, started_s)

    def _send_all(self, peer: _Peer, started_s: float) -> None:
        """Send a peer all that it lacks, for at most a heartbeat since `started_s`."""
        if peer not in self._SyncObj__connectedNodes:
            self._snapshots.stop_sending_to(peer.id)
            return
        while self._send_next(peer) and self.now_s() - started_s <= self._heartbeat_s:
            pass

    def _send_next(self, peer: _Peer) -> bool:
        """Send a peer one message; tell whether there is more for it at once."""
        journal, owner = self._journal, self._owner
        next_index = self._SyncObj__raftNextIndex[peer]
        if next_index <= journal.first_index:
            return self._send_chunk(peer)
        position = next_index - journal.first_index
        log = journal.entries
        if position > len(log):
            # It is taken to have more than this leader: there is no place to name.
            return False
        size_bytes, end = 0, position
        while end < len(log) and size_bytes < SPLIT_BYTES:
            size_bytes += len(log[end][0])
            end += 1
        if end > position and not owner.has_room(peer.id):
            # As if it got lost: the next heartbeat makes the peer ask for it. All at once would break the
            # connection.
            self._SyncObj__raftNextIndex[peer] = journal.last_index + 1
            return False
        digest = journal.digest_at(next_index - 1)
        commit_index = self._told[peer] = self._SyncObj__raftCommitIndex
        message = AppendEntries(
            term=self._SyncObj__raftCurrentTerm,
            commit_index=commit_index,
            entries=log[position:end],
            previous_index=next_index - 1,
            previous_term=log[position - 1][2],
            previous_digest=UNSET if digest is None else digest,
        )
        if end == position:
            owner.sent.append((peer.id, message))
            return False
        owner.collect_bulk(peer.id, message, size_bytes)
        self._SyncObj__raftNextIndex[peer] = journal.first_index + end
        return end < len(log)

    def _send_chunk(self, peer: _Peer) -> bool:
        """Send a peer the next part of the snapshot, its log being too far behind; whether there is more."""
        journal = self._journal
        chunk = self._snapshots.next_chunk(peer.id)
        digest = None if chunk is None else journal.digest_at(chunk.id.last_index)
        message = AppendEntries(
            term=self._SyncObj__raftCurrentTerm,
            commit_index=self._SyncObj__raftCommitIndex,
            chunk=chunk,
            previous_digest=UNSET if digest is None else digest,
        )
        self._owner.collect_bulk(peer.id, message, 0 if chunk is None else len(chunk.data))
        if chunk is not None and chunk.is_last:
            # The log begins with the last two entries of the snapshot.
            self._SyncObj__raftNextIndex[peer] = journal.entries[1][1] + 1
            return journal.entries[1][1] < journal.last_index
        return chunk is not None

    # -- seams ----------------------------------------------------------------------------------------------

    def _SyncObj__getCurrentLogIndex(self) -> int:  # noqa: N802
        """Return the index of the newest entry. Overridden: the journal knows it without a look."""
        return self._journal.last_index

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:  # noqa: N802, N803, FBT001
        """Collect that a snapshot was received.

        Overridden: the library swallows every error and goes on empty (H9), and drops the log behind a
        snapshot when a crash came between writing the snapshot and compacting.
        """
        assert clearJournal, "a snapshot on this disk is loaded before the library starts"
        self._owner.install_received()

    # -- what drives it -------------------------------------------------------------------------------------

    def take(self, peer_id: str, message: Message) -> None:
        """Take a message that the guards admitted.

        What comes with every entry is taken here, as the library would but without its detours: what the
        present leader adds to the end of this log, and acknowledgements. All else is left to the library.
        """
        peer = self._peers[peer_id]
        if type(message) is Acknowledgement:
            # Nothing changes of what `observe` tells.
            self._take_acknowledgement(peer, message)
            return
        if type(message) is AppendEntries and self._is_next(peer, message):
            self._take_next(peer, message)
        else:
            self._SyncObj__onMessageReceived(peer, to_library(message))
        self.observe()

    def _take_acknowledgement(self, peer: _Peer, message: Acknowledgement) -> None:
        """Record up to where a peer has the log of this leader, and that it answers."""
        if self._SyncObj__raftState != _LEADER:
            return
        next_index = message.next_index
        if message.reset:
            self._SyncObj__raftNextIndex[peer] = next_index
        if message.success and self._SyncObj__raftMatchIndex[peer] < next_index - 1:
            self._SyncObj__raftMatchIndex[peer] = next_index - 1
            self._SyncObj__raftNextIndex[peer] = next_index
        self._SyncObj__lastResponseTime[peer] = self.now_s()
        if message.may_wait is True:
            self._may_wait.add(peer)
            return
        self._may_wait.discard(peer)
        if self._told.get(peer, 0) < self._SyncObj__raftCommitIndex and self._news_due_s != _NEVER:
            self.is_news_urgent = True

    def _is_next(self, peer: _Peer, message: AppendEntries) -> bool:
        """Whether the leader that this node follows sends a heartbeat, or entries right behind its log."""
        if (
            message.term != self._SyncObj__raftCurrentTerm
            or self._SyncObj__raftState != _FOLLOWER
            or self._SyncObj__raftLeader != peer
            or self._SyncObj__transferInProgress
            or message.chunk is not UNSET
        ):
            return False
        last = self._journal.entries[-1]
        return message.entries is UNSET or (message.previous_index, message.previous_term) == last[1:]

    def _take_next(self, peer: _Peer, message: AppendEntries) -> None:
        """Append what a leader sends, answer if it is anything, and commit what it has committed."""
        journal = self._journal
        self._SyncObj__raftElectionDeadline = self.now_s() + self._SyncObj__generateRaftTimeout()
        if message.entries is not UNSET:
            for entry in message.entries:
                journal.add(*entry)
            acknowledgement = Acknowledgement(
                next_index=journal.last_index + 1,
                reset=False,
                success=True,
                term=message.term,
                may_wait=self._owner.may_wait() or UNSET,
            )
            self._owner.sent.append((peer.id, acknowledgement))
        index = min(max(self._SyncObj__raftCommitIndex, message.commit_index), journal.last_index)
        self._SyncObj__raftCommitIndex = index
        journal.record_commit(index)

    def adopt_term(self, peer_id: str, term: int) -> None:
        """Move to a newer term; a leader steps down.

        The library does that for a vote request; this one, with an empty log, cannot get the vote.
        """
        request = {"type": "request_vote", "term": term, "last_log_term": -1, "last_log_index": -1}
        self._SyncObj__onMessageReceived(self._peers[peer_id], request)
        self.observe()

    def connect(self, peer_id: str) -> None:
        """Record that a peer can be reached. A leader is heard of with the next tick.

        What was on its way when the connection before broke may be lost, an entry or its acknowledgement:
        until the next heartbeat nobody would find out.
        """
        self._SyncObj__onNodeConnected(self._peers[peer_id])
        self._next_heartbeat_s = 0.0

    def disconnect(self, peer_id: str) -> None:
        """Record that a peer cannot be reached."""
        self._SyncObj__onNodeDisconnected(self._peers[peer_id])

    def send_entries(self) -> None:
        """Send every peer what it lacks."""
        self._SyncObj__sendAppendEntries()

    def send_due(self) -> None:
        """Send every peer what it lacks if a tick left that to an entry which did not come after all."""
        if self._SyncObj__raftState == _LEADER and self._is_sending_due(self.now_s()):
            self._SyncObj__sendAppendEntries()

    def send_from(self, peer_id: str, index: int) -> None:
        """Send a peer the log from `index` on, the next time."""
        self._SyncObj__raftNextIndex[self._peers[peer_id]] = index

    def transfer(self, peer_id: str) -> None:
        """Ask a peer that has the whole log to stand for election at once."""
        self.transferLeadership(self._peers[peer_id])

    def forget_takeover(self) -> None:
        """Do not take over any more."""
        self._SyncObj__transferInProgress = self._owner.is_takeover_asked = False

    def begin_behind(self, applied_index: int, commit_index: int) -> None:
        """Record up to where the state has the log, and up to where that is committed."""
        self._SyncObj__raftLastApplied = applied_index
        self._SyncObj__raftCommitIndex = commit_index
        self.observe()

    def set_members(self, voters: Collection[str], learners: Collection[str], now_s: float) -> None:
        """Count `voters` (this node left out) for majorities; send the log to `learners` besides.

        The library keeps its own nodes in sets that it changes only by pickled entries of its own, several
        at a time; so these are set from outside. For learners it has "read-only" nodes, which get the log.
        """
        self._receivers = [self._peers[node_id] for node_id in sorted({*voters, *learners})]
        for nodes, node_ids in (
            (self._SyncObj__otherNodes, voters),
            (self._SyncObj__readonlyNodes, learners),
        ):
            nodes.clear()
            nodes.update(self._peers[node_id] for node_id in node_ids)
        next_index, match_index = self._SyncObj__raftNextIndex, self._SyncObj__raftMatchIndex
        answered_s = self._SyncObj__lastResponseTime
        present = set(self._receivers)
        for peer in (next_index.keys() | match_index.keys() | answered_s.keys()) - present:
            next_index.pop(peer, None)
            match_index.pop(peer, None)
            answered_s.pop(peer, None)
            self._told.pop(peer, None)
        self._may_wait &= present
        for peer in self._receivers:
            next_index.setdefault(peer, self._journal.last_index + 1)
            match_index.setdefault(peer, 0)
            answered_s.setdefault(peer, now_s)

    # -- what it knows --------------------------------------------------------------------------------------

    @property
    def election_deadline_s(self) -> float:
        """When this node stands for election if it hears of no leader."""
        return self._SyncObj__raftElectionDeadline

    @election_deadline_s.setter
    def election_deadline_s(self, deadline_s: float) -> None:
        self._SyncObj__raftElectionDeadline = deadline_s

    @property
    def voter_ids(self) -> list[str]:
        """The others that count for a majority."""
        return sorted(peer.id for peer in self._SyncObj__otherNodes)

    def match_index(self, peer_id: str) -> int:
        """Return up to where a peer is known to have the leader's log; 0 if that is not known."""
        return self._SyncObj__raftMatchIndex.get(self._peers[peer_id], 0)

    def answered_s(self, peer_id: str) -> float:
        """Return when a peer has answered this leader last; minus infinity if it is not a member."""
        return self._SyncObj__lastResponseTime.get(self._peers[peer_id], float("-inf"))


def random() -> float:
    """Return the library's kind of random number, 0 to 1."""
    number: float = syncobj.random.random()
    return number
