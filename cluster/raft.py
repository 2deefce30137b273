"""The Raft library, PySyncObj, behind typed names: the only file that imports it.

The library (pinned exactly) does elections, replication, commit and compaction. We drive it by hand in one
thread (`autoTick=False`) and stand at its seams: it sends through our transport, logs to our journal, and its
tick ends with our own "poller". Where no seam reaches, a private method is overridden by its mangled name,
with the reason; `REQUIRED_NAMES` and `REQUIRED_ATTRIBUTES` list what the pinned version must have. What we
add to its safety is in `replica` and `guards`.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

import pysyncobj.syncobj as library
from pysyncobj import SyncObjConf
from pysyncobj.node import Node as LibraryNode
from pysyncobj.transport import Transport as LibraryTransport

from cluster.guards import Message
from cluster.journal import Journal

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
"""The library's mark of a command; everything else in the log is its own."""

REQUIRED_NAMES: Final = (
    "_SyncObj__applyLogEntries",
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

    def apply(self, entry: bytes) -> None:
        """Apply one committed entry."""

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

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:  # noqa: N802
        """Apply one entry. Overridden: the library unpickles it and retries for ever what raises (H8)."""
        if command[:1] == _REGULAR:
            self.owner.apply(command[1:])

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
    or 1.
    """

    def __init__(
        self,
        config: RaftConfig,
        peer_ids: Iterable[str],
        journal: Journal,
        owner: Owner,
        *,
        retained: int,
        applied_index: int,
    ) -> None:
        self._journal = journal
        self._peers = {peer_id: LibraryNode(peer_id) for peer_id in peer_ids}
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
            nodes = (LibraryNode(config.node_id), list(self._peers.values()))
            self._engine = _Engine(owner, nodes, conf, self._transport)
        finally:
            for name, value in originals.items():
                setattr(library, name, value)
        self._set("needLoadDumpFile", value=False)
        self.note_installed(applied_index)
        if not self._peers:
            self.election_deadline_s = 0.0

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
        index: int = self._get("raftMatchIndex").get(self._peers[peer_id], 0)
        return index

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
        self._transport.receive(self._peers[peer_id], message)

    def adopt_term(self, peer_id: str, term: int) -> None:
        """Move to the newer term that a peer told; a leader steps down.

        The library does that for a vote request; this one, with an empty log, cannot get the vote.
        """
        request = {"type": "request_vote", "term": term, "last_log_term": -1, "last_log_index": -1}
        self._transport.receive(self._peers[peer_id], request)

    def connected(self, peer_id: str) -> None:
        """Take note that a peer can be reached."""
        self._transport.connected(self._peers[peer_id])

    def disconnected(self, peer_id: str) -> None:
        """Take note that a peer cannot be reached."""
        self._transport.disconnected(self._peers[peer_id])

    def append(self, entry: bytes) -> None:
        """Put an entry at the end of the leader's log and send it. Only in Owner.propose."""
        self._journal.add(_REGULAR + entry, self._journal.last_index + 1, self.term)
        self._engine._SyncObj__sendAppendEntries()  # noqa: SLF001

    def pause_sending(self, peer_id: str) -> None:
        """Treat a peer as caught up for now: the library would send it nothing in a loop.

        The next heartbeat makes the peer ask for what it lacks.
        """
        self._get("raftNextIndex")[self._peers[peer_id]] = self._journal.last_index + 1

    def force_compaction(self) -> None:
        """Write a snapshot in the next tick whatever the length of the log."""
        self._engine.forceLogCompaction()

    def transfer(self, peer_id: str) -> None:
        """Ask a peer that has the whole log to stand for election at once."""
        self._engine.transferLeadership(self._peers[peer_id])

    def note_installed(self, index: int) -> None:
        """Take note that state and log begin at a snapshot up to `index`."""
        self._set("raftLastApplied", index)
        self._set("raftCommitIndex", max(self._journal.getRaftCommitIndex(), index))

    def _get(self, name: str) -> Any:
        return getattr(self._engine, "_SyncObj__" + name)

    def _set(self, name: str, value: object) -> None:
        setattr(self._engine, "_SyncObj__" + name, value)
