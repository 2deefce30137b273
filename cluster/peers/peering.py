"""This node among its peers: who it is, whom it lets in, and where their frames go.

Peers remember each other's data directory (its disk id) for ever. A node that comes back with another one may
have voted and acknowledged what it no longer knows, so it is refused. In a new cluster nobody takes part
before the founding is complete (first_start): only then does every node have the disks of all. A node that
joins later brings its disk id into the member list before it counts; until then, its peers remember it.
"""

import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from cluster.commands.clock_watch import ClockSaid, ClockWatch
from cluster.commands.forwarded import Forwarded, fault_in
from cluster.config import Address
from cluster.consensus import messages
from cluster.consensus.digest_reports import DigestReport
from cluster.consensus.divergence import Divergence
from cluster.consensus.founding import News
from cluster.consensus.member_changes import Change, Verdict
from cluster.consensus.member_list import Members
from cluster.consensus.messages import AppendEntries, Message, NewerTerm
from cluster.consensus.replica import Replica
from cluster.errors import IdentityRefused, NodeFailed, PeerFault
from cluster.peers import first_start, objections
from cluster.peers.duplicates import Runs
from cluster.peers.entry_check import Standing, View, check, is_displacing
from cluster.peers.first_start import FirstStart
from cluster.peers.handshake import Objection, Particulars
from cluster.peers.link import FrameKind
from cluster.peers.objections_met import ObjectionsMet
from cluster.storage.data_directory import DataDir
from lockstate.machine import LockMachine
from lockstate.words.versions import rules_newest

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
    """Of the cluster it belongs to by now; empty while it has none."""
    report: DigestReport | None = None
    state_bytes_max: int = 0
    """How much memory for the state the node can bear; 0 if it does not say."""
    sync_ms: int = 0
    """How long its syncs take."""
    is_writing: bool = False
    """Whether it writes a snapshot."""


RUN_ID_BYTES: Final = 8
"""Random bytes of a run id."""
_OF_A_LEADER: Final = (AppendEntries, NewerTerm)
"""What is taken from a peer with another disk than the one that counts: nothing that is counted."""
_RAFT: Final = int(FrameKind.RAFT)
"""The kind of most frames: to look it up in its enumeration takes longer than to compare it."""
_DECODERS: Final[dict[int, msgspec.msgpack.Decoder[Any]]] = {
    FrameKind.FORWARD: msgspec.msgpack.Decoder(Forwarded),
    FrameKind.TRANSFER: msgspec.msgpack.Decoder(str),
    FrameKind.PING: msgspec.msgpack.Decoder(Ping),
    FrameKind.CHANGE: msgspec.msgpack.Decoder(Change),
    FrameKind.CHANGED: msgspec.msgpack.Decoder(Verdict),
    FrameKind.FOUNDING: msgspec.msgpack.Decoder(News),
}
"""What is in a frame, by its kind. Raft's messages have a decoder of their own."""


class Handlers(msgspec.Struct, frozen=True, kw_only=True):
    """Who takes what peers send, with the peer's id and the decoded content, and what becomes of peers."""

    raft: Callable[[str, Message], None]
    forwarded: Callable[[Forwarded], None]
    """Commands that a peer forwards to the leader of a term."""
    transfer_asked: Callable[[str], object]
    """An operator of the peer asks that leadership goes to the node with this id."""
    change_asked: Callable[[str, Change], None]
    """An operator of the peer asks for a change of the members."""
    change_decided: Callable[[Verdict], None]
    """The leader answers a change that this node asked for."""
    peer_up: Callable[[str], None]
    """A peer can be reached."""
    peer_down: "Callable[..., None]"
    """The connection with a peer has ended; `is_replaced` if there is another one already."""
    refused: "Callable[..., None]"
    """A peer, proven to be one, does not let this node in (Objection, `is_dialed`)."""
    let_in: Callable[[str], None]
    """A peer lets this node in."""
    broke: Callable[[BaseException], None]
    """The disk failed: the node must stop."""


class Peering:
    """Speaks for this node on its links."""

    def __init__(
        self,
        datadir: DataDir,
        node_id: str,
        advertise_http: str,
        replica: Replica,
        *,
        machine: Callable[[], LockMachine],
        sync_ms: Callable[[], int],
        state_bytes_max: int,
        is_alive: Callable[[str], bool],
        clocks: ClockWatch | None = None,
        divergence: Divergence | None = None,
    ) -> None:
        """`is_alive` tells whether a peer is connected and has been heard of just now.

        `sync_ms` returns how long syncs take here, `state_bytes_max` is how much memory for the state this
        node can bear, `clocks` measures the peers' clocks, `divergence` compares this node with them.
        """
        self._datadir = datadir
        self._node_id = node_id
        self._advertise_http = advertise_http
        self._replica = replica
        self._machine = machine
        self._sync_ms = sync_ms
        self._state_bytes_max = state_bytes_max
        self.is_alive = is_alive
        self.clocks = clocks
        self.divergence = divergence
        self._configured: dict[str, Address] = {}
        self.handlers: Handlers
        """Set before the first connection."""
        self.first_start: FirstStart | None = None
        """The founding of this node's cluster. Set before the first connection."""
        self._committed = Members()
        self._met: dict[str, Particulars] = {}
        self._up: set[str] = set()
        self.pings: dict[str, Ping] = {}
        self.http: dict[str, str] = {}
        self._latest = Members()
        self._limited: set[str] = set()
        self._foreign: set[str] = set()
        self._run_id: Final = secrets.token_hex(RUN_ID_BYTES)
        self.runs = Runs()
        self.objections_met = ObjectionsMet()
        self.is_established = False
        self.rules_newest = rules_newest()
        """The newest rules that this node tells others it knows."""

    def set_members(self, committed: Members, latest: Members | None = None) -> frozenset[str]:
        """Record the committed list and the one that counts, unless both are the same.

        The disks of nodes that were removed are forgotten: the ids may come back with others. Returns whose
        present disk was removed.
        """
        if committed.cluster_id and self.first_start is not None:
            self.first_start.belongs_to(committed.cluster_id)
        self._committed = committed
        self._latest = latest or committed
        self.is_established = self.is_established or not self._is_founding
        for node_id in committed.removed.values():
            if node_id not in self._latest.nodes:
                self.objections_met.gone(node_id)
        gone = frozenset(
            node_id for node_id, theirs in self._met.items() if theirs.disk_id in committed.removed
        )
        for disk_id, node_id in committed.removed.items():
            met = self._met.get(node_id)
            if self.is_gone(node_id) or self._datadir.known.get(node_id) == disk_id:
                self._datadir.forget(node_id)
            if self.is_gone(node_id) or (met is not None and met.disk_id == disk_id):
                self._met.pop(node_id, None)
        for node_id in self._met:
            self._judge(node_id)
            if node_id in committed.nodes and node_id not in self._limited:
                self._remember(node_id)
        self.runs.keep(self._met.keys() | committed.nodes.keys())
        return gone

    def found(
        self, configured: Mapping[str, Address], means: first_start.FoundingMeans, *, joins: bool
    ) -> None:
        """Take part in the founding by the `configured` nodes, unless this node `joins` a cluster."""
        self._configured = dict(configured)
        founders = {node_id: str(address) for node_id, address in configured.items()}
        self.first_start = FirstStart(self._datadir, founders, means, joins=joins)

    def addresses(self) -> dict[str, Address]:
        """Return where the others listen. Who is being removed is linked until that is committed."""
        listed = self._committed.nodes | self._latest.nodes
        peers = {node_id: Address.parse(member.peer) for node_id, member in listed.items()}
        peers = peers or dict(self._configured)
        peers.pop(self._node_id, None)
        return peers

    def role(self) -> str:
        """Return leader, candidate, follower; starting while the cluster is not founded; joining."""
        if not self.is_established:
            return "starting"
        if self._node_id not in self._replica.membership.voters:
            return "joining"
        role = self._replica.role
        if role.is_leader:
            return "leader"
        return "candidate" if role.is_candidate else "follower"

    @property
    def _is_founding(self) -> bool:
        """Whether this node waits for its founding, and takes part in nothing else before."""
        return self.first_start is not None and self.first_start.is_waiting

    def missing(self) -> list[str]:
        """Return the peers that this node waits for before it takes part."""
        return self.first_start.missing() if self.first_start is not None and self._is_founding else []

    def founding_waits(self) -> list[str]:
        """Return what keeps the founding from going on although the peers are there."""
        return self.first_start.waits_for() if self.first_start is not None else []

    def disk_ids(self) -> dict[str, str]:
        """Return the disk ids of this node and of those it has met."""
        met = {peer_id: theirs.disk_id for peer_id, theirs in self._met.items()}
        return self._datadir.known | met | {self._node_id: self._datadir.disk_id}

    def particulars(self, peer_id: str) -> Particulars:
        """Return what this node tells a peer about itself."""
        return Particulars(
            self._datadir.disk_id,
            self._advertise_http,
            self._committed.version,
            self.rules_newest,
            self._datadir.identity.group,
            self.cluster_id,
            self._latest.disk_id(peer_id) or self._committed.disk_id(peer_id),
            self._run_id,
        )

    def rules_known(self, node_id: str) -> int:
        """Return the newest rules that a connected node, or this one, knows; 0 if it is not connected."""
        if node_id == self._node_id:
            return self.rules_newest
        theirs = self._met.get(node_id) if node_id in self._up else None
        return theirs.rules if theirs is not None else 0

    def is_gone(self, peer_id: str) -> bool:
        """Whether a connected peer was removed. One that knows a newer list than this node was not."""
        return not self._is_ahead(peer_id) and peer_id not in self._committed.nodes

    def _is_ahead(self, peer_id: str) -> bool:
        """Whether a connected peer knows a newer list than this node."""
        theirs = self._met.get(peer_id)
        return theirs is not None and theirs.members_version > self._committed.version

    def broke(self, error: BaseException) -> None:
        """Stop the node: its links are not kept any more."""
        self.handlers.broke(error)

    def objection(self, peer_id: str, theirs: Particulars, *, is_known: bool) -> Objection | None:
        """Return why a peer that knows the secret is not let in (entry_check), None if it is.

        The disk of a new member is remembered, durably.
        """
        began_alone = self.first_start is not None and self.first_start.began_alone
        if is_displacing(self._view(), theirs, began_alone=began_alone):
            self._give_way(peer_id, theirs)
        if self.first_start is not None:
            objection = self.first_start.objection(peer_id, theirs, is_known=is_known)
            if objection is not None:
                return self._objected(peer_id, objection, is_known=is_known)
        standing = check(self._view(), peer_id, theirs, is_known=is_known)
        if isinstance(standing, Objection):
            return self._objected(peer_id, standing, is_known=is_known)
        if self._speaks_already(peer_id, theirs):
            self.runs.refused(peer_id, theirs.run_id)
            return self._objected(peer_id, objections.duplicate(peer_id), is_known=is_known)
        self.http[peer_id] = theirs.http
        self._met[peer_id] = theirs
        self._judge(peer_id)
        self.runs.connected(peer_id, theirs.run_id)
        if is_known and standing is Standing.MEMBER and not self._is_founding:
            try:
                self._remember(peer_id)
            except Exception as error:
                raise self._broke(error) from error
        return None

    def _objected(self, peer_id: str, objection: Objection, *, is_known: bool) -> Objection:
        """Record an objection to a peer, for the operator, unless it is one of any number of strangers."""
        if is_known:
            self.objections_met.met(peer_id, objection, is_ours=True)
        return objection

    def _give_way(self, peer_id: str, theirs: Particulars) -> None:
        """Stop for good: clients of another cluster would take this one for theirs."""
        reason = (
            f"{self._node_id} is a member of the cluster {theirs.cluster_id[:8]}, which {peer_id} belongs to,"
            " with another data directory: this one was empty when the node was started, and `peers` did not"
            " name the others, so it began a cluster of its own. Restore the lost directory, or replace the"
            " node (see 'A node lost its disk' in docs/operating.md)"
        )
        self.remember_refusal(reason)
        self.handlers.broke(IdentityRefused(reason))

    def _speaks_already(self, peer_id: str, theirs: Particulars) -> bool:
        """Whether another process is connected in the name of this peer."""
        present = self._met.get(peer_id) if peer_id in self._up else None
        return present is not None and present.run_id != theirs.run_id and self.is_alive(peer_id)

    def _broke(self, error: Exception) -> NodeFailed:
        """Stop this node: its data directory could not be written, for whatever reason."""
        failure = NodeFailed(f"the data directory cannot be written: {error!r}")
        self.handlers.broke(failure)
        return failure

    def remember_refusal(self, reason: str) -> None:
        """Make this directory never take part again, as far as the disk can still be written."""
        try:
            self._datadir.remember_refusal(reason)
        except Exception:
            # The node stops all the same; it will be refused again.
            logger.exception("event=refusal-not-stored")

    def _view(self) -> View:
        """Return what this node knows of who belongs to its cluster."""
        return View(
            disk_id=self._datadir.disk_id,
            cluster_id=self.cluster_id,
            committed=self._committed,
            latest=self._latest,
            remembered=self._datadir.known,
            rules=self._machine().rules,
        )

    @property
    def cluster_id(self) -> str:
        """The id of the cluster that this node belongs to, empty while that is not certain."""
        return self._datadir.cluster.cluster_id or self._committed.cluster_id

    def _judge(self, peer_id: str) -> None:
        """Find out whether a connected peer comes with the disk that counts here, and is of this cluster."""
        disks = self._view().disks(peer_id)
        self._limited.discard(peer_id)
        if disks and self._latest.nodes and self._met[peer_id].disk_id not in disks:
            self._limited.add(peer_id)
        self._foreign.discard(peer_id)
        if self.cluster_id and self._clusters_said(peer_id) - {self.cluster_id}:
            self._foreign.add(peer_id)

    def belongs(self, peer_id: str) -> bool:
        """Whether a connected peer says now that it belongs to the cluster of this node, or neither has one.

        A node that is to count must: it has adopted this cluster, with nothing in its log before.
        """
        return self._clusters_said(peer_id) == {self.cluster_id} - {""}

    def _clusters_said(self, peer_id: str) -> set[str]:
        """Return the cluster ids that a connected peer has said: when it connected, and in its last ping."""
        ping, theirs = self.pings.get(peer_id), self._met.get(peer_id)
        return {ping.cluster_id if ping else "", theirs.cluster_id if theirs else ""} - {""}

    def _remember(self, peer_id: str) -> None:
        """Remember the disk of a connected peer, durably.

        Not that of a node that has yet to adopt this cluster: it may be a stranger at a wrong address.
        """
        disk_id, is_of_ours = self._met[peer_id].disk_id, self._met[peer_id].cluster_id == self.cluster_id
        if peer_id not in self._datadir.known and (is_of_ours or not self.cluster_id):
            self._datadir.remember(peer_id, disk_id)
            logger.info("event=peer-met peer=%s disk=%s", peer_id, disk_id[:8])

    def _compare(self, peer_id: str, report: DigestReport | None) -> None:
        """Compare this node with what a peer says of itself, if that counts here."""
        if self.divergence is None:
            return
        if peer_id in self._limited | self._foreign:
            self.divergence.lost(peer_id)
        elif report is not None:
            self.divergence.heard(peer_id, report)

    def peer_up(self, peer_id: str) -> None:
        """Pass on that a peer can be reached."""
        self._up.add(peer_id)
        self.handlers.peer_up(peer_id)
        theirs = self._met.get(peer_id)
        if self.first_start is not None and theirs is not None:
            self.first_start.peer_up(peer_id, theirs.disk_id)

    def peer_down(self, peer_id: str, *, is_replaced: bool) -> None:
        """Pass on that the connection with a peer has ended. Who comes next may be another run of it."""
        self._up.discard(peer_id)
        self.pings.pop(peer_id, None)
        if self.clocks is not None:
            self.clocks.lost(peer_id)
        if self.divergence is not None:
            self.divergence.lost(peer_id)
        if self.first_start is not None:
            self.first_start.peer_down(peer_id)
        self.handlers.peer_down(peer_id, is_replaced=is_replaced)

    def refused(self, peer_id: str, objection: Objection, *, is_dialed: bool) -> None:
        """Pass on that a peer does not let this node in."""
        self.objections_met.met(peer_id, objection, is_ours=False)
        self.handlers.refused(peer_id, objection, is_dialed=is_dialed)

    def ping(self) -> Ping:
        """Return what the peers shall know."""
        return Ping(
            self._machine().revision,
            self.role(),
            int(self._replica.engine.log_room),
            self.clocks.said() if self.clocks is not None else None,
            self.cluster_id,
            self.divergence.report() if self.divergence is not None else None,
            self._state_bytes_max,
            self._sync_ms(),
            self._replica.is_writing_snapshot,
        )

    def do_others_write(self) -> bool:
        """Whether any peer has said that it writes a snapshot."""
        return any(ping.is_writing for ping in self.pings.values())

    def frame(self, peer_id: str, kind: int, body: msgspec.Raw) -> None:
        """Decode a frame and hand it on. Raises msgspec.DecodeError, PeerFault."""
        handlers = self.handlers
        if peer_id in self._foreign:
            raise msgspec.ValidationError(f"node {peer_id} belongs to another cluster")
        if peer_id in self._limited and kind not in (FrameKind.RAFT, FrameKind.PING):
            return
        if kind == _RAFT:
            message = messages.decode(body)
            if isinstance(message, str):
                logger.warning("event=message-dropped peer=%s type=%r reason=unknown", peer_id, message)
                return
            # Nearly always this node knows its cluster, and nobody is let in for less than all.
            is_settled = not self._limited and self._datadir.cluster.cluster_id
            if self.is_established and (is_settled or self._may_say(peer_id, message)):
                handlers.raft(peer_id, message)
            return
        decoder = _DECODERS.get(kind)
        if decoder is None:
            logger.warning("event=frame-dropped peer=%s kind=%d", peer_id, kind)
        elif kind == FrameKind.FORWARD:
            batch = decoder.decode(body)
            fault = fault_in(batch, peer_id)
            if fault:
                raise PeerFault(fault)
            handlers.forwarded(batch)
        else:
            self._rare(peer_id, decoder.decode(body), handlers)

    def _may_say(self, peer_id: str, message: Message) -> bool:
        """Whether a Raft message may be taken from this peer.

        The first leader that speaks to a joining node decides which cluster it belongs to from now on. That
        is durable before anything is acknowledged.
        """
        if peer_id in self._limited and not isinstance(message, _OF_A_LEADER):
            return False
        if self.cluster_id:
            return True
        if not isinstance(message, AppendEntries):
            # Of a cluster that is not its own yet, a joining node takes not even a term.
            return not (self._is_blank and self._clusters_said(peer_id))
        said = self._clusters_said(peer_id)
        if self._is_blank and len(said) == 1:
            (adopted,) = said
            try:
                self._datadir.store_cluster(replace(self._datadir.cluster, cluster_id=adopted))
            except Exception as error:
                raise self._broke(error) from error
            logger.info("event=cluster-adopted cluster=%s leader=%s", adopted, peer_id)
            for met in self._met:
                self._judge(met)
        return True

    @property
    def _is_blank(self) -> bool:
        """Whether this node is to join and belongs to no cluster yet."""
        return not (self.cluster_id or self._latest.nodes) and self._replica.is_log_empty

    def _rare(self, peer_id: str, content: Ping | Change | Verdict | News | str, handlers: Handlers) -> None:
        """Hand on what is not part of a request."""
        match content:
            case Ping():
                self._pinged(peer_id, content)
            case Change():
                handlers.change_asked(peer_id, content)
            case Verdict():
                handlers.change_decided(content)
            case News() if self.first_start is not None:
                self.first_start.heard(peer_id, content)
            case str():
                handlers.transfer_asked(content)

    def _pinged(self, peer_id: str, ping: Ping) -> None:
        """Take what a peer tells once a second. Of one that is not let in for all, nothing is compared."""
        self.pings[peer_id] = ping
        if self.clocks is not None and ping.clock is not None:
            self.clocks.heard(peer_id, ping.clock)
        if peer_id in self._met:
            self._judge(peer_id)
        self.objections_met.gone(peer_id)
        self.handlers.let_in(peer_id)
        self._compare(peer_id, ping.report)
