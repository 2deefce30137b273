"""Raft over PySyncObj: the only file that imports the library.

The library (pinned exactly) does elections, replication, commit and compaction. We drive it by hand in one
thread (`autoTick=False`) and stand at each of its seams: every message goes through `guards`, the log is our
journal, snapshots are ours, and a tick ends with our own "poller". Where no seam reaches, a private method is
overridden by its mangled name, with the reason; `REQUIRED_NAMES` lists what must exist in the pinned version.

One thread. Whatever raises here has broken a promise or the disk: the node must stop, it must not retry.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

import pysyncobj.syncobj as library
from pysyncobj import SyncObjConf
from pysyncobj.node import Node as LibraryNode
from pysyncobj.transport import Transport as LibraryTransport

from cluster import guards
from cluster.guards import Message
from cluster.journal import Journal
from cluster.snapshot_transfer import SnapshotTransfer
from cluster.snapshots import SnapshotStore

logger = logging.getLogger(__name__)

SPLIT_BYTES: Final = 4 << 20
"""Entries of this size would be cut into pickles (H6). Ours stay below a quarter of it."""
RETAINED_DIVISOR: Final = 4
"""After compaction, compact_entries / 4 older entries stay: a node that was away briefly needs no snapshot."""
LOG_BYTES_MAX: Final = 128 << 20
"""Memory the log may take before it is compacted whatever its count."""
COMPACT_SECONDS: Final = 600
"""A log that changed is compacted this often, so that a quiet node restarts quickly too."""
PRE_VOTE_PAUSE_S: Final = 0.05
"""One to three of these pass between pre-votes, and after a broken connection to the leader."""

_SERIALIZER_STATES: Final = {
    "idle": library.SERIALIZER_STATE.NOT_SERIALIZING,
    "running": library.SERIALIZER_STATE.SERIALIZING,
    "done": library.SERIALIZER_STATE.SUCCESS,
    "failed": library.SERIALIZER_STATE.FAILED,
}

_REGULAR: Final = b"\x00"
"""The library's mark of a command; everything else in the log is its own."""

REQUIRED_NAMES: Final = (
    "_SyncObj__doApplyCommand",
    "_SyncObj__loadDumpFile",
    "_SyncObj__sendAppendEntries",
    "_SyncObj__deleteEntriesTo",
    "_checkCommandsToApply",
    "transferLeadership",
    "forceLogCompaction",
)
REQUIRED_ATTRIBUTES: Final = (
    "_SyncObj__raftState",
    "_SyncObj__raftCurrentTerm",
    "_SyncObj__raftLeader",
    "_SyncObj__raftCommitIndex",
    "_SyncObj__raftLastApplied",
    "_SyncObj__raftElectionDeadline",
    "_SyncObj__raftMatchIndex",
    "_SyncObj__raftLog",
    "_SyncObj__serializer",
    "_SyncObj__needLoadDumpFile",
    "_SyncObj__transferInProgress",
)


class Host(Protocol):
    """What the replica asks of the node it works for. All calls come from the loop's thread."""

    def send(self, peer_id: str, message: Message) -> None:
        """Send a Raft message to a connected peer; it may get lost."""

    def link_has_room(self, peer_id: str) -> bool:
        """Whether bulk data may be sent to the peer now."""

    def next_entry(self) -> bytes | None:
        """Return the next entry to propose, stamped now, or None. Called on the leader only."""

    def apply(self, entry: bytes) -> None:
        """Apply one committed entry. Must not raise for anything the entry says."""

    def encode_state(self) -> bytes:
        """Return the state machine as bytes; called in a forked child."""

    def restore_state(self, state: bytes) -> None:
        """Replace the state machine. Raises when the bytes are no state."""

    def leadership_changed(self) -> None:
        """Take note that leader, term or own role changed."""

    def tick_ended(self) -> None:
        """Take note that a tick has ended: sync, then let out what waits for the sync."""


class RaftConfig(Protocol):
    """What the replica needs of the node's configuration."""

    @property
    def node_id(self) -> str: ...  # noqa: D102
    @property
    def heartbeat_ms(self) -> int: ...  # noqa: D102
    @property
    def election_ms_min(self) -> int: ...  # noqa: D102
    @property
    def election_ms_max(self) -> int: ...  # noqa: D102
    @property
    def compact_entries(self) -> int: ...  # noqa: D102


class _Transport(LibraryTransport):  # type: ignore[misc]
    """The library's way out. Nodes are named by their ids; connections are the host's."""

    def __init__(self, send: Callable[[str, Message], None]) -> None:
        super().__init__(None, None, [])
        self._send = send

    @property
    def ready(self) -> bool:
        return True

    def send(self, node: LibraryNode, message: Message) -> bool:
        """Hand a message to the guards and the wire."""
        self._send(node.id, message)
        return True

    def receive(self, node: LibraryNode, message: Message) -> None:
        """Hand an admitted message to the library."""
        self._onMessageReceived(node, message)

    def connected(self, node: LibraryNode) -> None:
        """Tell the library that a peer can be reached."""
        self._onNodeConnected(node)

    def disconnected(self, node: LibraryNode) -> None:
        """Tell the library that a peer cannot be reached."""
        self._onNodeDisconnected(node)

    def destroy(self) -> None:
        """Do nothing: connections are the host's."""


class _Poller:
    """Stands where the library waits for sockets: marks the end of a tick instead."""

    def __init__(self, tick_ended: Callable[[], None]) -> None:
        self._tick_ended = tick_ended

    def subscribe(self, *_: object) -> None:
        """Do nothing: there are no sockets of the library's."""

    def unsubscribe(self, *_: object) -> None:
        """Do nothing, likewise."""

    def poll(self, _: float) -> None:
        """End the tick."""
        self._tick_ended()


class _Engine(library.SyncObj):  # type: ignore[misc]
    """The library's object with our methods at its seams."""

    def __init__(
        self, node_id: str, peer_ids: Iterable[str], conf: SyncObjConf, transport: _Transport
    ) -> None:
        self.apply_command: Callable[[bytes], None]
        self.propose: Callable[[], None]
        self.install_snapshot: Callable[[], None]
        super().__init__(
            LibraryNode(node_id), [LibraryNode(peer_id) for peer_id in peer_ids], conf, transport=transport
        )

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:  # noqa: N802
        """Apply one entry. Overridden because the library unpickles commands, and retries for ever what raises (H8)."""
        if command[:1] == _REGULAR:
            self.apply_command(command[1:])

    def _checkCommandsToApply(self) -> None:  # noqa: N802
        """Propose. Overridden because the library takes one command at a time from a queue of its own."""
        self.propose()

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:  # noqa: N802, N803, FBT001
        """Install a snapshot. Overridden because the library swallows every error and goes on empty (H9), and
        drops the log behind a snapshot when a crash came between writing the snapshot and compacting.
        """
        assert clearJournal, "our own start-up loads the snapshot of this disk"
        self.install_snapshot()


class RaftReplica:
    """One node's part in Raft: proposes, replicates, commits, applies, in the order of the log.

    It is driven from outside: `receive` for each message, `tick` when one of them or a proposal asks for it
    (`wants_tick`) and at least every half heartbeat.
    """

    def __init__(
        self, config: RaftConfig, peer_ids: Iterable[str], journal: Journal, store: SnapshotStore, host: Host
    ) -> None:
        self._host = host
        self._journal = journal
        self._store = store
        self._node_id = config.node_id
        self._lead_lost_after_s = config.election_ms_min / 1000
        self._retained = config.compact_entries // RETAINED_DIVISOR
        self._peers = {peer_id: LibraryNode(peer_id) for peer_id in peer_ids}
        self._connected: set[str] = set()
        self._held: list[tuple[str, Message]] = []
        self._voters: set[str] = set()
        self._voters_term = 0
        self._pre_votes: set[str] = set()
        self._pre_vote_term = 0
        self._leader_heard_s = float("-inf")
        self._seen: tuple[object, ...] = ()
        self._is_transfer = False
        self.is_proposing = True
        self.in_flight_max = 1
        self.wants_tick = False
        self._recover_snapshot()
        self._transport = _Transport(self._send)
        self._engine = self._make_engine(config)

    def _recover_snapshot(self) -> None:
        """Restore the state of this disk and make the log begin where it ends, before the library sees either."""
        snapshot = self._store.load()
        self._snapshot_last = snapshot.last if snapshot is not None else None
        if snapshot is not None:
            self._host.restore_state(snapshot.state)
            self._journal.begin_at(snapshot.previous, snapshot.last)
        else:
            self._journal.begin_without_snapshot()

    def _make_engine(self, config: RaftConfig) -> _Engine:
        heartbeat_s = config.heartbeat_ms / 1000
        conf = SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=False,
            appendEntriesPeriod=heartbeat_s,
            raftMinTimeout=config.election_ms_min / 1000,
            raftMaxTimeout=config.election_ms_max / 1000,
            connectionTimeout=config.election_ms_max / 1000,
            leaderFallbackTimeout=config.election_ms_max / 1000,
            appendEntriesBatchSizeBytes=SPLIT_BYTES,
            logCompactionMinEntries=config.compact_entries + self._retained,
            logCompactionMinTime=COMPACT_SECONDS,
            dynamicMembershipChange=False,
        )
        # The library looks these up by name while it is constructed.
        names = {
            "createJournal": lambda _: self._journal,
            "createPoller": lambda _: _Poller(self._host.tick_ended),
            "PIPE_NOTIFIER_ENABLED": False,
        }
        originals = {name: getattr(library, name) for name in names}
        try:
            for name, ours in names.items():
                setattr(library, name, ours)
            engine = _Engine(config.node_id, self._peers, conf, self._transport)
        finally:
            for name, original in originals.items():
                setattr(library, name, original)
        self._transfer = SnapshotTransfer(
            self._store,
            self._host.encode_state,
            self._retained,
            self,
            _SERIALIZER_STATES,
            self._snapshot_last,
        )
        applied = self._snapshot_last[1] if self._snapshot_last is not None else 1
        engine.apply_command = self._host.apply
        engine.propose = self._propose
        engine.install_snapshot = self._install_snapshot
        engine._SyncObj__serializer = self._transfer  # noqa: SLF001 - the seam of H9 and H15
        engine._SyncObj__needLoadDumpFile = False  # noqa: SLF001 - done by _recover_snapshot
        engine._SyncObj__raftLastApplied = applied  # noqa: SLF001
        engine._SyncObj__raftCommitIndex = max(self._journal.getRaftCommitIndex(), applied)  # noqa: SLF001
        if not self._peers:
            engine._SyncObj__raftElectionDeadline = 0  # noqa: SLF001 - nobody to wait for
        return engine

    # -- what this node knows of the log (guards.LogView) and its role --------------------------------------

    def _get(self, name: str) -> Any:
        return getattr(self._engine, "_SyncObj__" + name)

    def _set(self, name: str, value: object) -> None:
        setattr(self._engine, "_SyncObj__" + name, value)

    @property
    def last_index(self) -> int:
        """Return the index of the newest entry of the log."""
        return self._journal.last_index

    @property
    def committed(self) -> int:
        """Return the highest index known to be committed."""
        return max(self._get("raftCommitIndex"), self._get("raftLastApplied"))

    @property
    def applied(self) -> int:
        """Return the index of the last entry applied here."""
        applied: int = self._get("raftLastApplied")
        return applied

    def term_at(self, index: int) -> int | None:
        """Return the term of the entry at `index`, None if it is not in the log."""
        position = index - self._journal.first_index
        return self._journal[position][2] if 0 <= position < len(self._journal) else None

    @property
    def term(self) -> int:
        """Return the current term."""
        term: int = self._get("raftCurrentTerm")
        return term

    @property
    def is_leader(self) -> bool:
        """Whether this node leads, as far as it knows."""
        return bool(self._get("raftState") == library._RAFT_STATE.LEADER)  # noqa: SLF001

    @property
    def is_candidate(self) -> bool:
        """Whether this node is standing for election."""
        return bool(self._get("raftState") == library._RAFT_STATE.CANDIDATE)  # noqa: SLF001

    @property
    def leader_id(self) -> str | None:
        """Return who leads, as far as this node knows."""
        leader = self._get("raftLeader")
        return None if leader is None else str(leader.id)

    @property
    def leader_silence_s(self) -> float:
        """Return how long nothing was heard from a leader; 0 on the leader, infinite if never."""
        return 0.0 if self.is_leader else library.monotonicTime() - self._leader_heard_s

    def newest_entry(self) -> bytes | None:
        """Return the newest command in the log, committed or not; None if there is none."""
        for position in range(len(self._journal) - 1, -1, -1):
            command = self._journal[position][0]
            if command[:1] == _REGULAR:
                return command[1:]
        return None

    # -- messages -------------------------------------------------------------------------------------------

    def peer_up(self, peer_id: str) -> None:
        """Take note that a peer can be reached."""
        self._connected.add(peer_id)
        self._transport.connected(self._peers[peer_id])

    def peer_down(self, peer_id: str) -> None:
        """Take note that a peer cannot be reached. If it led, look for another leader soon."""
        self._connected.discard(peer_id)
        self._held = [(to, message) for to, message in self._held if to != peer_id]
        self._transport.disconnected(self._peers[peer_id])
        self._transfer.cancelTransmisstion(self._peers[peer_id])
        if peer_id == self.leader_id:
            self._leader_heard_s = float("-inf")
            self._set("raftElectionDeadline", min(self._get("raftElectionDeadline"), self._soon_s()))

    def receive(self, peer_id: str, message: Message) -> None:
        """Take one message from an authenticated peer through the guards to the library.

        Raises GuardViolationError when a peer would rewrite committed history.
        """
        kind = message.get("type")
        if kind == "pre_vote":
            self._answer_pre_vote(peer_id, message)
        elif kind == "pre_vote_granted":
            self._count_pre_vote(peer_id, message)
        elif guards.is_known(message):
            admitted, reply = self._admit(peer_id, message)
            if admitted is not None:
                self._transport.receive(self._peers[peer_id], admitted)
            if reply is not None:
                self._send(peer_id, reply)
            if admitted is not None and kind == "append_entries":
                self._leader_heard_s = library.monotonicTime()
                self._pre_votes.clear()
        else:
            logger.warning("event=message-dropped peer=%s type=%r reason=unknown", peer_id, kind)
        self._after_message()

    def _admit(self, peer_id: str, message: Message) -> guards.Admission:
        """Choose the guard for a message."""
        term = self.term
        match message["type"]:
            case "append_entries":
                return guards.admit_append(message, self, term)
            case "next_node_idx":
                return guards.Admission(guards.admit_acknowledgement(message, self, term))
            case "request_vote":
                alive = self._leader_is_alive()
                return guards.Admission(guards.admit_vote_request(message, leader_is_alive=alive))
            case "response_vote":
                if self._voters_term != term:
                    self._voters_term, self._voters = term, set()
                admitted = guards.admit_vote(peer_id, message, term, self._voters)
                if admitted is not None:
                    self._voters.add(peer_id)
                return guards.Admission(admitted)
            case _:
                return guards.Admission(message)

    def _after_message(self) -> None:
        """Decide whether a tick is needed: something to sync, to apply or to commit."""
        journal = self._journal
        if journal.is_dirty or self._get("raftCommitIndex") > self._get("raftLastApplied"):
            self.wants_tick = True
        elif self.is_leader and self._get("raftCommitIndex") < journal.last_index:
            self.wants_tick = True
        elif self._get("transferInProgress"):
            self.wants_tick = True
        self._note_leadership()

    def _send(self, peer_id: str, message: Message) -> None:
        """Send, or hold until the sync what promises that something is on disk."""
        if peer_id not in self._connected:
            return
        message = guards.stamp_outbound(message, self.term, is_transfer=self._is_transfer)
        if message["type"] in guards.PROMISES and self._journal.is_dirty:
            self._held.append((peer_id, message))
        else:
            self._host.send(peer_id, message)

    def sync(self) -> None:
        """Make everything durable, then let out what was held for it. Raises JournalError."""
        self._journal.sync()
        held, self._held = self._held, []
        for peer_id, message in held:
            self._host.send(peer_id, message)

    @property
    def needs_sync(self) -> bool:
        """Whether something waits for the disk."""
        return self._journal.is_dirty or bool(self._held)

    # -- ticks ----------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Let the library commit, apply, send, propose and stand for election. Ends in Host.tick_ended."""
        self.wants_tick = False
        self._hold_back_election()
        if self._journal.bytes_count > LOG_BYTES_MAX:
            self._engine.forceLogCompaction()
        # The library forgets why it stands for election before it asks for votes.
        self._is_transfer = self._get("transferInProgress")
        self._engine.doTick(0.0)
        self._is_transfer = False
        self._note_leadership()

    def _propose(self) -> None:
        """Append the host's next entries to the log and send them, as long as few are under way.

        Few in flight means large batches: what arrives meanwhile shares the next entry.
        """
        if not (self.is_leader and self.is_proposing):
            return
        while self._journal.last_index - self._get("raftCommitIndex") < self.in_flight_max:
            entry = self._host.next_entry()
            if entry is None:
                return
            self._journal.add(_REGULAR + entry, self._journal.last_index + 1, self.term)
            self._engine._SyncObj__sendAppendEntries()  # noqa: SLF001
            if not self._peers:
                # Alone there is no acknowledgement to wait for: the next tick commits.
                self.wants_tick = True

    def _note_leadership(self) -> None:
        seen = (self.leader_id, self.term, self.is_leader)
        if seen != self._seen:
            self._seen = seen
            self._transfer.stop_sending()
            if not self.is_leader:
                self.is_proposing = True
            self._host.leadership_changed()

    # -- elections (H11) ------------------------------------------------------------------------------------

    def _leader_is_alive(self) -> bool:
        """Whether there is a leader that this node would not see deposed."""
        return self.is_leader or library.monotonicTime() - self._leader_heard_s < self._lead_lost_after_s

    def _hold_back_election(self) -> None:
        """Ask for pre-votes when the library is about to start an election that nobody has agreed to."""
        now_s = library.monotonicTime()
        if self.is_leader or not self._peers or self._get("raftElectionDeadline") >= now_s:
            return
        if self._get("transferInProgress") or self._pre_vote_is_won():
            return
        self._set("raftElectionDeadline", self._soon_s())
        self._pre_votes = set()
        self._pre_vote_term = self.term + 1
        request = {
            "type": "pre_vote",
            "term": self._pre_vote_term,
            "last_log_index": self.last_index,
            "last_log_term": self.term_at(self.last_index) or 0,
        }
        for peer_id in sorted(self._connected):
            self._host.send(peer_id, request)

    def _soon_s(self) -> float:
        """Return a moment shortly ahead, another one on every node. Asking for pre-votes disturbs nobody."""
        soon_s: float = library.monotonicTime() + PRE_VOTE_PAUSE_S * (1 + 2 * library.random.random())
        return soon_s

    def _pre_vote_is_won(self) -> bool:
        """Whether a majority, this node included, would vote for the next term."""
        cluster_size = len(self._peers) + 1
        return self._pre_vote_term == self.term + 1 and 2 * (len(self._pre_votes) + 1) > cluster_size

    def _answer_pre_vote(self, peer_id: str, message: Message) -> None:
        if guards.grants_pre_vote(message, self, self.term, leader_is_alive=self._leader_is_alive()):
            self._host.send(peer_id, {"type": "pre_vote_granted", "term": message["term"]})

    def _count_pre_vote(self, peer_id: str, message: Message) -> None:
        if message["term"] != self._pre_vote_term or self.is_leader or self._leader_is_alive():
            return
        self._pre_votes.add(peer_id)
        if self._pre_vote_is_won():
            self._set("raftElectionDeadline", 0)
            self.wants_tick = True

    # -- leadership transfer --------------------------------------------------------------------------------

    def most_caught_up(self) -> str | None:
        """Return the connected peer that has most of the leader's log, None if no peer is connected."""
        match_index = self._get("raftMatchIndex")
        return max(
            self._connected,
            key=lambda peer_id: (match_index.get(self._peers[peer_id], 0), peer_id),
            default=None,
        )

    def transfer(self, peer_id: str) -> bool:
        """Ask `peer_id` to take over at once; False if it does not have the whole log yet."""
        node = self._peers[peer_id]
        if not self.is_leader or self._get("raftMatchIndex").get(node, 0) != self.last_index:
            return False
        self._engine.transferLeadership(node)
        return True

    # -- snapshots ------------------------------------------------------------------------------------------

    def _install_snapshot(self) -> None:
        """Take over a snapshot that a leader sent and that has been verified: state, log and positions."""
        snapshot = self._transfer.take_received()
        self._host.restore_state(snapshot.state)
        self._journal.clear()
        self._journal.add(*snapshot.previous)
        self._journal.add(*snapshot.last)
        self._set("raftLastApplied", snapshot.last[1])
        self._set("raftCommitIndex", snapshot.last[1])
        logger.info("event=snapshot-installed index=%d term=%d", snapshot.last[1], snapshot.last[2])

    def decline_snapshot(self, index: int) -> None:
        """Tell the leader that everything up to `index` is here already."""
        leader_id = self.leader_id
        if leader_id is not None:
            self._send(leader_id, guards.acknowledge(index))

    def link_has_room(self, peer_id: str) -> bool:
        """Whether bulk data may be sent to the peer now."""
        return self._host.link_has_room(peer_id)

    def close(self) -> None:
        """Stop; the journal and the snapshot store stay the host's."""
        self._transfer.close()
