"""The Raft library, PySyncObj, behind typed names: the only file that imports it.

The library (pinned exactly) does elections, replication, commit and compaction. We drive it by hand in one
thread (`autoTick=False`) and stand at its seams: it sends through our transport, logs to our journal, and its
tick ends with our own "poller". Where no seam reaches, a private method is overridden by its mangled name,
with the reason; `REQUIRED_NAMES` and `REQUIRED_ATTRIBUTES` list what the pinned version must have. What we
add to its safety is in `replica` and `guards`.
"""

from collections.abc import Callable, Collection
from typing import Any, Final, Protocol

import pysyncobj.syncobj as library
from pysyncobj import SyncObjConf
from pysyncobj.node import Node as LibraryNode
from pysyncobj.transport import Transport as LibraryTransport

from cluster.consensus.guards import Message
from cluster.storage.journal import Journal

SPLIT_BYTES: Final = 4 << 20
"""Entries of this size would be cut into pickles (H6). Ours stay below a quarter of it."""
COMPACT_SECONDS: Final = 600
"""A log that changed is compacted this often, so that a quiet node restarts quickly too."""

SERIALIZER_STATES: Final[dict[str, int]] = {
    "idle": library.SERIALIZER_STATE.NOT_SERIALIZING,
    "running": library.SERIALIZER_STATE.SERIALIZING,
    "done": library.SERIALIZER_STATE.SUCCESS,
    "failed": library.SERIALIZER_STATE.FAILED,
}
"""Our words for the state of a snapshot being written, and the library's numbers."""

_REGULAR: Final = b"\x00"
"""The library's mark of a command."""
_MEMBERS: Final = b"\x10"
"""Our mark of a member list. The library, which has lower marks for entries of its own, does not know it."""

REQUIRED_NAMES: Final = (
    "_SyncObj__applyLogEntries",
    "_SyncObj__connectedToAnyone",
    "_SyncObj__deleteEntriesTo",
    "_SyncObj__doApplyCommand",
    "_SyncObj__loadDumpFile",
    "_SyncObj__sendAppendEntries",
    "_checkCommandsToApply",
    "doTick",
    "forceLogCompaction",
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
        """How long followers are patient, at most; a leader without a majority steps down after it too."""

    @property
    def compact_entries(self) -> int:
        """How many entries make a snapshot worth writing."""


class Owner(Protocol):
    """What Raft asks of the replica that owns it."""

    def send(self, peer_id: str, message: Message) -> None:
        """Send a message of the library's."""

    def tick_ended(self) -> None:
        """Take note that a tick has ended."""

    def may_stand(self) -> bool:
        """Whether this node may start an election, now that its patience has ended."""

    def apply(self, entry: bytes) -> None:
        """Apply one committed entry."""

    def members_committed(self) -> None:
        """Take note that the member list in the next entry is committed."""

    def propose(self) -> None:
        """Append what there is to propose. Called in every tick."""

    def will_propose(self) -> bool:
        """Whether `propose` will append something in this tick."""

    def retained_from(self, index: int) -> int:
        """Return the first entry that stays when everything before `index` is in a snapshot."""

    def install_snapshot(self) -> None:
        """Install the snapshot that has just been received."""


class _Transport(LibraryTransport):  # type: ignore[misc]
    """The library's way out. Nodes are named by their ids; connections are the host's."""

    def __init__(self, send: Callable[[str, Message], None]) -> None:
        super().__init__(None, None, [])
        self._send = send

    @property
    def ready(self) -> bool:
        return True

    def send(self, node: LibraryNode, message: Message) -> bool:
        """Hand a message out."""
        self._send(node.id, message)
        return True

    def receive(self, node: LibraryNode, message: Message) -> None:
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


class _Poller:
    """Stands where the library waits for sockets: marks the end of a tick instead."""

    def __init__(self, tick_ended: Callable[[], None]) -> None:
        self._tick_ended = tick_ended

    def poll(self, _: float) -> None:
        """End the tick."""
        self._tick_ended()


class _Engine(library.SyncObj):  # type: ignore[misc]
    """The library's object with our methods at its seams."""

    def __init__(
        self,
        owner: Owner,
        nodes: tuple[LibraryNode, list[LibraryNode]],
        conf: SyncObjConf,
        transport: _Transport,
    ) -> None:
        self.owner = owner
        super().__init__(*nodes, conf, transport=transport)

    def _SyncObj__connectedToAnyone(self) -> bool:  # noqa: N802
        """Whether to start an election, which the library asks when its patience has ended.

        Overridden: the library needs one connected peer for that; we need the consent of a majority (H11).
        """
        return self.owner.may_stand()

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:  # noqa: N802
        """Apply one entry. Overridden: the library unpickles it and retries for ever what raises (H8)."""
        if command[:1] == _REGULAR:
            self.owner.apply(command[1:])
        elif command[:1] == _MEMBERS:
            self.owner.members_committed()

    def _checkCommandsToApply(self) -> None:  # noqa: N802
        """Propose. Overridden: the library takes one command at a time from a queue of its own (H14)."""
        self.owner.propose()

    def _SyncObj__applyLogEntries(self) -> bool:  # noqa: N802
        """Apply what is committed; tell whether the followers should hear of the commit at once.

        Overridden: when another entry is about to leave in this very tick, the news travels with it.
        """
        has_news = bool(super()._SyncObj__applyLogEntries())
        return has_news and not self.owner.will_propose()

    def _SyncObj__deleteEntriesTo(self, toIDx: int) -> None:  # noqa: N802, N803
        """Compact. Overridden: a tail of the log stays, so that who was away briefly needs no snapshot."""
        super()._SyncObj__deleteEntriesTo(self.owner.retained_from(toIDx))

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:  # noqa: N802, N803, FBT001
        """Install a snapshot.

        Overridden: the library swallows every error and goes on empty (H9), and drops the log behind a
        snapshot when a crash came between writing the snapshot and compacting.
        """
        assert clearJournal, "a snapshot on this disk is loaded before the library starts"
        self.owner.install_snapshot()


class Raft:
    """One node's Raft, driven by `receive` and `tick`. One thread.

    `journal` already begins where the newest snapshot ends; `applied_index` is that snapshot's last entry,
    or 1. `set_members` tells who counts, before anything else happens.
    """

    def __init__(
        self,
        config: RaftConfig,
        journal: Journal,
        owner: Owner,
        *,
        retained: int,
        applied_index: int,
    ) -> None:
        self._journal = journal
        self._nodes: dict[str, LibraryNode] = {}
        self._transport = _Transport(owner.send)
        conf = SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=False,
            appendEntriesPeriod=config.heartbeat_ms / 1000,
            raftMinTimeout=config.election_ms_min / 1000,
            raftMaxTimeout=config.election_ms_max / 1000,
            connectionTimeout=config.election_ms_max / 1000,
            leaderFallbackTimeout=config.election_ms_max / 1000,
            appendEntriesBatchSizeBytes=SPLIT_BYTES,
            logCompactionMinEntries=config.compact_entries + retained,
            logCompactionMinTime=COMPACT_SECONDS,
            dynamicMembershipChange=False,
        )
        # The library looks these up by name while it is constructed.
        ours = {
            "createJournal": lambda _: journal,
            "createPoller": lambda _: _Poller(owner.tick_ended),
            "PIPE_NOTIFIER_ENABLED": False,
        }
        originals = {name: getattr(library, name) for name in ours}
        try:
            for name, value in ours.items():
                setattr(library, name, value)
            self._engine = _Engine(owner, (self._node(config.node_id), []), conf, self._transport)
        finally:
            for name, value in originals.items():
                setattr(library, name, value)
        self._set("needLoadDumpFile", value=False)
        self.note_installed(applied_index)

    def set_members(self, voters: Collection[str], learners: Collection[str]) -> None:
        """Count `voters` (this node's id left out) for majorities; send the log to `learners` besides.

        The library keeps its own nodes in sets that it changes only by pickled entries of its own, several
        at a time; so these are set from outside. For learners it has "read-only" nodes, which get the log.
        """
        for name, node_ids in (("otherNodes", voters), ("readonlyNodes", learners)):
            nodes: set[LibraryNode] = self._get(name)
            nodes.clear()
            nodes.update(self._node(node_id) for node_id in node_ids)
        present = self._get("otherNodes") | self._get("readonlyNodes")
        for name, value in (
            ("raftNextIndex", self._journal.last_index + 1),
            ("raftMatchIndex", 0),
            ("lastResponseTime", self.now_s()),
        ):
            table: dict[LibraryNode, float] = self._get(name)
            for node in [node for node in table if node not in present]:
                del table[node]
            for node in present:
                table.setdefault(node, value)

    def _node(self, node_id: str) -> LibraryNode:
        """Return the library's name of a node."""
        return self._nodes.setdefault(node_id, LibraryNode(node_id))

    def use_serializer(self, serializer: object) -> None:
        """Put `serializer` where the library has its own (H9, H15)."""
        self._set("serializer", serializer)

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
    def commit_index(self) -> int:
        """Return the highest index this node knows to be committed by messages; see `applied_index` too."""
        index: int = self._get("raftCommitIndex")
        return index

    @property
    def applied_index(self) -> int:
        """Return the index of the last entry applied here, by itself or in a snapshot."""
        index: int = self._get("raftLastApplied")
        return index

    @property
    def is_transfer_pending(self) -> bool:
        """Whether the leader has asked this node to take over."""
        return bool(self._get("transferInProgress"))

    def forget_transfer(self) -> None:
        """Do not take over any more."""
        self._set("transferInProgress", value=False)

    @property
    def election_deadline_s(self) -> float:
        """Return when this node stands for election if it hears of no leader; on the clock of `now_s`."""
        deadline_s: float = self._get("raftElectionDeadline")
        return deadline_s

    @election_deadline_s.setter
    def election_deadline_s(self, deadline_s: float) -> None:
        self._set("raftElectionDeadline", deadline_s)

    def match_index(self, peer_id: str) -> int:
        """Return up to where a peer is known to have the leader's log; 0 if that is not known."""
        index: int = self._get("raftMatchIndex").get(self._node(peer_id), 0)
        return index

    def silence_s(self, peer_id: str) -> float:
        """Return how long this leader has heard no answer from a peer; infinite if it is no member."""
        answered_s: float = self._get("lastResponseTime").get(self._node(peer_id), float("-inf"))
        return self.now_s() - answered_s

    @staticmethod
    def members_in(command: bytes) -> bytes | None:
        """Return the encoded member list in an entry of the log, None if it is another entry."""
        return command[1:] if command[:1] == _MEMBERS else None

    def newest_entry(self) -> bytes | None:
        """Return the newest command in the log, committed or not; None if there is none."""
        for position in range(len(self._journal) - 1, -1, -1):
            command = self._journal[position][0]
            if command[:1] == _REGULAR:
                return command[1:]
        return None

    # -- what drives it -------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Commit, apply, send, propose, compact, stand for election; ends in Owner.tick_ended."""
        self._engine.doTick(0.0)

    def receive(self, peer_id: str, message: Message) -> None:
        """Take a message that the guards admitted."""
        self._transport.receive(self._node(peer_id), message)

    def adopt_term(self, peer_id: str, term: int) -> None:
        """Move to the newer term that a peer told; a leader steps down.

        The library does that for a vote request; this one, with an empty log, cannot get the vote.
        """
        request = {"type": "request_vote", "term": term, "last_log_term": -1, "last_log_index": -1}
        self._transport.receive(self._node(peer_id), request)

    def connected(self, peer_id: str) -> None:
        """Take note that a peer can be reached."""
        self._transport.connected(self._node(peer_id))

    def disconnected(self, peer_id: str) -> None:
        """Take note that a peer cannot be reached."""
        self._transport.disconnected(self._node(peer_id))

    def append(self, entry: bytes) -> None:
        """Put an entry at the end of the leader's log and send it. Only in Owner.propose."""
        self._journal.add(_REGULAR + entry, self._journal.last_index + 1, self.term)
        self.send_entries()

    def append_members(self, members: bytes) -> int:
        """Put a member list at the end of the leader's log, return its index. Send it by `send_entries`.

        Only in Owner.propose. It counts at once: `set_members` must come before anything is sent.
        """
        index = self._journal.last_index + 1
        self._journal.add(_MEMBERS + members, index, self.term)
        return index

    def send_entries(self) -> None:
        """Send every peer what it lacks. Only in Owner.propose."""
        self._engine._SyncObj__sendAppendEntries()  # noqa: SLF001

    def pause_sending(self, peer_id: str) -> None:
        """Treat a peer as caught up for now: the library would send it nothing in a loop.

        The next heartbeat makes the peer ask for what it lacks.
        """
        self._get("raftNextIndex")[self._node(peer_id)] = self._journal.last_index + 1

    def resume_sending(self, peer_id: str) -> None:
        """Send a peer what it lacks, with the next `send_entries`, although it has not asked for it."""
        self._get("raftNextIndex")[self._node(peer_id)] = self.match_index(peer_id) + 1

    def force_compaction(self) -> None:
        """Write a snapshot in the next tick whatever the length of the log."""
        self._engine.forceLogCompaction()

    def transfer(self, peer_id: str) -> None:
        """Ask a peer that has the whole log to stand for election at once."""
        self._engine.transferLeadership(self._node(peer_id))

    def note_installed(self, index: int) -> None:
        """Take note that state and log begin at a snapshot up to `index`."""
        self._set("raftLastApplied", index)
        self._set("raftCommitIndex", max(self._journal.getRaftCommitIndex(), index))

    def _get(self, name: str) -> Any:
        return getattr(self._engine, "_SyncObj__" + name)

    def _set(self, name: str, value: object) -> None:
        setattr(self._engine, "_SyncObj__" + name, value)
