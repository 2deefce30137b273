"""What this node knows of its peers: one record for each, and the member lists that say which of them count.

Peers remember each other's data directory (its disk id) for ever. A node that comes back with another one may
have voted and acknowledged what it no longer knows, so it is refused. In a new cluster nobody takes part
before the founding is complete (first_start): only then does every node have the disks of all. A node that
joins later brings its disk id into the member list before it counts; until then, its peers remember it.
"""

import enum
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping

import msgspec

from cluster.commands.clock_watch import ClockSaid
from cluster.consensus.digest_reports import DigestReport
from cluster.consensus.member_list import Members
from cluster.peers.handshake import LogPosition, Particulars
from cluster.storage.data_directory import DataDir

logger = logging.getLogger(__name__)


class Ping(msgspec.Struct, frozen=True, array_like=True):
    """What nodes tell each other once a second: their revision and role.

    Later fields come at the end, with a default.
    """

    revision: int
    state: str
    log_room: int = 0
    """What the node may still put into its log (compaction.LogSpace)."""
    clock: ClockSaid | None = None
    cluster_id: str = ""
    """Id of the sender's cluster; empty until it has one."""
    report: DigestReport | None = None
    state_bytes_max: int = 0
    """How much memory for the state the node can bear; 0 if it does not say."""
    sync_ms: int = 0
    """How long its syncs take."""
    is_writing: bool = False
    """Whether it writes a snapshot."""
    term: int = 0
    """The term in its journal."""
    committed: int = 0
    """Up to where its disk holds what is committed."""


class Standing(enum.Enum):
    """What is taken from a peer that was let in."""

    MEMBER = "member"
    """Everything."""
    LEADER_ONLY = "leader-only"
    """The log, and nothing that is counted. Its id has another disk in the list that counts here, but it
    belongs to this cluster and knows a newer list: it was removed and added again without our knowing."""
    FOREIGN = "foreign"
    """Nothing: since it was let in, it turned out to belong to another cluster."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What this node knows of itself and of who belongs to its cluster."""

    disk_id: str
    cluster_id: str
    """Empty if this node has none yet."""
    committed: Members
    latest: Members
    """The list that counts: the newest in the log. Without nodes, if this node has yet to get one."""
    remembered: Mapping[str, str]
    """The disks of the peers that this node has met, by node id."""
    rules: int
    """The version of the rules that this node's state follows."""
    heard: Mapping[str, tuple[int, int]] = {}
    """How far disks are known to have come (a LogPosition each), by disk id."""
    acknowledged: LogPosition = LogPosition(0, 0)
    """What the peer in question has acknowledged to this node as leader of that term; entry 0 if nothing."""

    def disks(self, peer_id: str) -> frozenset[str]:
        """Return the disks that a member may come with; empty if none is known."""
        listed = {members.disk_id(peer_id) for members in (self.latest, self.committed)} - {""}
        if listed:
            return frozenset(listed)
        return frozenset({self.remembered[peer_id]} if peer_id in self.remembered else ())

    def standing(self, peer_id: str, disk_id: str, clusters_said: set[str]) -> Standing:
        """Return what is taken now from a peer that was let in with this disk.

        `clusters_said` are the ids of the clusters to which it has said that it belongs.
        """
        if self.cluster_id and clusters_said - {self.cluster_id}:
            return Standing.FOREIGN
        disks = self.disks(peer_id)
        is_other_disk = disks and self.latest.nodes and disk_id not in disks
        return Standing.LEADER_ONLY if is_other_disk else Standing.MEMBER


class PeerRecord(msgspec.Struct):
    """One peer."""

    particulars: Particulars | None = None
    """What it said of itself when it was last let in; None before that, and after its disk was removed."""
    is_up: bool = False
    """Whether it is connected."""
    ping: Ping | None = None
    """The last one of the present connection."""
    standing: Standing = Standing.MEMBER
    """What is taken from it, since it was last judged."""

    @property
    def http(self) -> str:
        """Where clients reach it; empty while that is not known."""
        return self.particulars.http if self.particulars is not None else ""

    @property
    def disk_id(self) -> str:
        """The disk that it came with; empty while that is not known."""
        return self.particulars.disk_id if self.particulars is not None else ""

    @property
    def clusters_said(self) -> set[str]:
        """The cluster ids that it has said: when it was let in, and in its last ping."""
        return {said.cluster_id for said in (self.particulars, self.ping) if said is not None} - {""}


class PeerTable:
    """The peers of one node, by id, those included that are not connected. One thread."""

    def __init__(self, datadir: DataDir, rules: Callable[[], int]) -> None:
        """Remember the disks of peers in `datadir`; `rules` returns the active version of the rules."""
        self._datadir = datadir
        self._rules = rules
        self.committed = Members()
        self.latest = Members()
        """The list that counts: the newest in the log."""
        self.records: defaultdict[str, PeerRecord] = defaultdict(PeerRecord)

    @property
    def cluster_id(self) -> str:
        """The id of the cluster that this node belongs to, empty while that is not certain."""
        return self._datadir.cluster.cluster_id or self.committed.cluster_id

    def pings(self) -> dict[str, Ping]:
        """Return the last pings of the connected peers."""
        return {peer_id: peer.ping for peer_id, peer in self.records.items() if peer.ping is not None}

    def met(self) -> dict[str, Particulars]:
        """Return what peers said of themselves when they were last let in."""
        records = self.records.items()
        return {peer_id: peer.particulars for peer_id, peer in records if peer.particulars is not None}

    def view(self) -> View:
        """Return what this node knows of who belongs to its cluster."""
        return View(
            disk_id=self._datadir.disk_id,
            cluster_id=self.cluster_id,
            committed=self.committed,
            latest=self.latest,
            remembered=self._datadir.known,
            rules=self._rules(),
        )

    def disk_ids(self) -> dict[str, str]:
        """Return the disk ids of this node and of those it has met."""
        met = {peer_id: theirs.disk_id for peer_id, theirs in self.met().items()}
        return self._datadir.known | met | {self._datadir.identity.node_id: self._datadir.disk_id}

    def belongs(self, peer_id: str) -> bool:
        """Whether a connected peer says now that it belongs to the cluster of this node, or neither has one.

        A node that is to count must: it has adopted this cluster, with nothing in its log before.
        """
        return self.records[peer_id].clusters_said == {self.cluster_id} - {""}

    def is_gone(self, peer_id: str) -> bool:
        """Whether a peer was removed. One that knows a newer list than this node was not."""
        theirs = self.records[peer_id].particulars
        is_ahead = theirs is not None and theirs.members_version > self.committed.version
        return not is_ahead and peer_id not in self.committed.nodes

    def set_members(self, committed: Members, latest: Members) -> frozenset[str]:
        """Record the committed list and the one that counts.

        The disks of nodes that were removed are forgotten: the ids may come back with others. Returns whose
        present disk was removed.
        """
        self.committed, self.latest = committed, latest
        removed = committed.removed
        gone = frozenset(peer_id for peer_id, theirs in self.met().items() if theirs.disk_id in removed)
        for disk_id, node_id in removed.items():
            peer = self.records[node_id]
            if self.is_gone(node_id) or self._datadir.known.get(node_id) == disk_id:
                self._datadir.forget(node_id)
            if self.is_gone(node_id) or peer.disk_id == disk_id:
                peer.particulars = None
        self.judge_all()
        for peer_id in self.met():
            if peer_id in committed.nodes and self.records[peer_id].standing is Standing.MEMBER:
                self.remember(peer_id)
        return gone

    def let_in(self, peer_id: str, theirs: Particulars) -> None:
        """Record what a peer says of itself that is let in."""
        self.records[peer_id].particulars = theirs
        self.judge(peer_id)

    def judge(self, peer_id: str) -> None:
        """Find out what is to be taken from a peer that was let in: lists, cluster ids or disks changed."""
        peer = self.records[peer_id]
        if peer.particulars is not None:
            peer.standing = self.view().standing(peer_id, peer.particulars.disk_id, peer.clusters_said)

    def judge_all(self) -> None:
        """Judge all peers."""
        for peer_id in self.records:
            self.judge(peer_id)

    def remember(self, peer_id: str) -> None:
        """Remember the disk of a peer that was let in, durably.

        Not that of a node that has yet to adopt this cluster: it may be a stranger at a wrong address.
        """
        theirs = self.records[peer_id].particulars
        assert theirs is not None
        if peer_id not in self._datadir.known and self.cluster_id in (theirs.cluster_id, ""):
            self._datadir.remember(peer_id, theirs.disk_id)
            logger.info("event=peer-met peer=%s disk=%s", peer_id, theirs.disk_id[:8])
