"""This node among its peers: what it tells them, whom it lets in, and where their frames go.

What it knows of them is in peer_table, who may be let in is in entry_check, and how a cluster begins in
first_start.
"""

import logging
import secrets
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from cluster.commands.clock_watch import ClockWatch
from cluster.commands.forwarded import Forwarded, fault_in
from cluster.config import Address
from cluster.consensus import messages
from cluster.consensus.divergence import Divergence
from cluster.consensus.founding import News
from cluster.consensus.member_changes import Change, Verdict
from cluster.consensus.member_list import Members
from cluster.consensus.messages import AppendEntries, Message, NewerTerm
from cluster.consensus.replica import Replica
from cluster.errors import IdentityRefused, NodeFailed, PeerFault
from cluster.peers import objections
from cluster.peers.channels import Channels, Published
from cluster.peers.duplicates import Runs
from cluster.peers.entry_check import check, is_displacing
from cluster.peers.first_start import FirstStart
from cluster.peers.handshake import LogPosition, Objection, Particulars, PeerProgress
from cluster.peers.link import FrameKind
from cluster.peers.objections import Kind
from cluster.peers.objections_met import ObjectionsMet
from cluster.peers.peer_table import PeerRecord, PeerTable, Ping, Standing, View
from cluster.peers.shut_out import ShutOut
from cluster.storage.data_directory import DataDir
from lockstate.machine import LockMachine
from lockstate.words.versions import rules_newest

logger = logging.getLogger(__name__)


RUN_ID_BYTES: Final = 8
"""Random bytes of a run id."""
_OF_A_LEADER: Final = (AppendEntries, NewerTerm)
"""What is taken from a peer with another disk than the one that counts: nothing that is counted."""
_RAFT: Final = int(FrameKind.RAFT)
"""The kind of most frames: to look it up in its enumeration takes longer than to compare it."""
_MEMBER: Final = Standing.MEMBER
"""The standing of nearly every peer, likewise."""
_DECODERS: Final[dict[int, msgspec.msgpack.Decoder[Any]]] = {
    FrameKind.FORWARD: msgspec.msgpack.Decoder(Forwarded),
    FrameKind.TRANSFER: msgspec.msgpack.Decoder(str),
    FrameKind.PING: msgspec.msgpack.Decoder(Ping),
    FrameKind.CHANGE: msgspec.msgpack.Decoder(Change),
    FrameKind.CHANGED: msgspec.msgpack.Decoder(Verdict),
    FrameKind.FOUNDING: msgspec.msgpack.Decoder(News),
    FrameKind.PUBLISHED: msgspec.msgpack.Decoder(Published),
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
        founding: FirstStart,
        advertise_http: str,
        replica: Replica,
        *,
        machine: Callable[[], LockMachine],
        sync_ms: Callable[[], int],
        state_bytes_max: int,
        is_alive: Callable[[str], bool],
        dialed: Callable[[str], str],
        clocks: ClockWatch,
        divergence: Divergence,
        version: str = "",
        channels: Channels | None = None,
    ) -> None:
        """`is_alive` tells whether a peer is connected and has been heard of just now.

        `dialed` returns where this node has dialed a connected peer, empty if the peer dialed. `sync_ms`
        returns how long syncs take here, `state_bytes_max` is how much memory for the state this node can
        bear, `clocks` measures the peers' clocks, `divergence` compares this node with them,
        `version` is what it runs, `channels` are told what peers pass on of them.
        """
        self._datadir = datadir
        self._node_id: Final = datadir.identity.node_id
        self._advertise_http = advertise_http
        self._replica = replica
        self._machine = machine
        self._sync_ms = sync_ms
        self._state_bytes_max = state_bytes_max
        self._is_alive = is_alive
        self._dialed = dialed
        self._clocks = clocks
        self._divergence = divergence
        self._version = version
        self.channels = channels or Channels()
        self._run_id: Final = secrets.token_hex(RUN_ID_BYTES)
        self.handlers: Handlers
        """Set before the first connection."""
        self.founding = founding
        self.table = PeerTable(datadir, lambda: machine().rules)
        self.runs = Runs()
        self.shut_out = ShutOut(lambda: replica.membership.voters)
        self.older_copies_count = 0
        """How often a peer came with a data directory that had come further before."""
        self.objections_met = ObjectionsMet()
        self.is_established = False
        """Whether the cluster of this node is founded: it takes part in nothing else before."""
        self.rules_newest = rules_newest()
        """The newest rules that this node tells others it knows."""

    def set_members(self, committed: Members, latest: Members) -> frozenset[str]:
        """Record the committed list and the one that counts. Returns whose present disk was removed."""
        if committed.cluster_id:
            self.founding.belongs_to(committed.cluster_id)
        self.is_established = self.is_established or not self.founding.is_waiting
        for node_id in committed.removed.values():
            if node_id not in latest.nodes:
                self.objections_met.gone(node_id)
        gone = self.table.set_members(committed, latest)
        self.runs.keep(self.table.met().keys() | committed.nodes.keys())
        return gone

    def addresses(self) -> dict[str, Address]:
        """Return where the others listen. Who is being removed is linked until that is committed."""
        listed = self.table.committed.nodes | self.table.latest.nodes
        found = {node_id: member.peer for node_id, member in listed.items()} or self.founding.founders
        return {node_id: Address.parse(peer) for node_id, peer in found.items() if node_id != self._node_id}

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
    def hears_raft(self) -> bool:
        """Whether Raft's messages are taken: the cluster is founded, and nobody has shut this node out.

        One that is shut out goes on ticking, hears no vote and no acknowledgement, and so commits nothing.
        """
        shut_out = self.shut_out
        return self.is_established and not (shut_out.words and shut_out.reason)

    def particulars(self, peer_id: str) -> Particulars:
        """Return what this node tells a peer about itself."""
        table = self.table
        return Particulars(
            self._datadir.disk_id,
            self._advertise_http,
            table.committed.version,
            self.rules_newest,
            self._datadir.identity.group,
            table.cluster_id,
            table.latest.disk_id(peer_id) or table.committed.disk_id(peer_id),
            self._run_id,
            term=self._replica.log.synced_term,
            last_index=self._replica.log.last_index,
            version=self._version,
        )

    def rules_known(self, node_id: str) -> int:
        """Return the newest rules that a connected node, or this one, knows; 0 if it is not connected."""
        if node_id == self._node_id:
            return self.rules_newest
        peer = self.table.records[node_id]
        return peer.particulars.rules if peer.is_up and peer.particulars is not None else 0

    def broke(self, error: BaseException) -> None:
        """Stop the node: its links are not kept any more."""
        self.handlers.broke(error)

    def progress(self, peer_id: str) -> PeerProgress:
        """Return how far this peer is known to have come. Anybody may ask under any id."""
        replica = self._replica
        is_led = replica.role.is_leader and peer_id in self.table.latest.nodes
        entry = replica.engine.match_index(peer_id) if is_led else 0
        return PeerProgress(dict(replica.log.heard), LogPosition(replica.role.term, entry))

    def objection(
        self, peer_id: str, theirs: Particulars, *, is_known: bool, progress: PeerProgress | None = None
    ) -> Objection | None:
        """Return why a peer that knows the secret is not let in (entry_check), None if it is.

        `progress` is what was known when it was asked; None: now. It may have come further since it answered,
        as is heard on the connection that is in use. The disk of a new member is remembered, durably.
        """
        table, founding = self.table, self.founding
        if is_displacing(table.view(), theirs, began_alone=founding.began_alone):
            self._give_way(peer_id, theirs)
        verdict = founding.objection(peer_id, theirs, is_known=is_known) or check(
            self._view(progress or self.progress(peer_id)), peer_id, theirs, is_known=is_known
        )
        if isinstance(verdict, Standing) and self._speaks_already(peer_id, theirs):
            self.runs.refused(peer_id, theirs.run_id)
            verdict = objections.duplicate(peer_id)
        if isinstance(verdict, Objection):
            # For the operator. There may be any number of strangers.
            is_new = not is_known or self.objections_met.met(peer_id, verdict, is_ours=True)
            if verdict.kind == Kind.OLDER_COPY:
                self.older_copies_count += 1
                if is_new:
                    logger.critical("event=older-copy peer=%s reason=%r", peer_id, verdict.reason)
            return replace(verdict, run_id=self._run_id)
        table.let_in(peer_id, theirs)
        self.runs.connected(peer_id, theirs.run_id)
        if is_known and verdict is Standing.MEMBER and not founding.is_waiting:
            self._on_disk(table.remember, peer_id)
        return None

    def _view(self, progress: PeerProgress) -> View:
        """Return what this node knows of who belongs to its cluster, and of one peer's progress."""
        return replace(self.table.view(), heard=progress.heard, acknowledged=progress.acknowledged)

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
        peer = self.table.records[peer_id]
        is_other = peer.particulars is not None and peer.particulars.run_id != theirs.run_id
        return is_other and peer.is_up and self._is_alive(peer_id)

    def _on_disk(self, write: Callable[..., None], *content: object) -> None:
        """Write to the data directory. Whatever goes wrong with that stops this node, as NodeFailed."""
        try:
            write(*content)
        except Exception as error:
            failure = NodeFailed(f"the data directory cannot be written: {error!r}")
            self.handlers.broke(failure)
            raise failure from error

    def remember_refusal(self, reason: str) -> None:
        """Make this directory never take part again, as far as the disk can still be written."""
        try:
            self._datadir.remember_refusal(reason)
        except Exception:
            # The node stops all the same; it will be refused again.
            logger.exception("event=refusal-not-stored")

    def peer_up(self, peer_id: str) -> None:
        """Pass on that a peer can be reached."""
        peer = self.table.records[peer_id]
        peer.is_up = True
        self.handlers.peer_up(peer_id)
        if peer.particulars is not None:
            self.founding.peer_up(peer_id, peer.particulars.disk_id)

    def peer_down(self, peer_id: str, *, is_replaced: bool) -> None:
        """Pass on that the connection with a peer has ended. Who comes next may be another run of it."""
        peer = self.table.records[peer_id]
        peer.is_up, peer.ping = False, None
        self._clocks.lost(peer_id)
        self._divergence.lost(peer_id)
        self.founding.peer_down(peer_id)
        self.handlers.peer_down(peer_id, is_replaced=is_replaced)

    def refused(self, peer_id: str, objection: Objection, *, dialed: str) -> None:
        """Pass on that a peer does not let this node in; `dialed` as above."""
        self.objections_met.met(peer_id, objection, is_ours=False)
        self.shut_out.said(peer_id, dialed, objection)
        self.handlers.refused(peer_id, objection, is_dialed=bool(dialed))

    def ping(self) -> Ping:
        """Return what the peers shall know."""
        return Ping(
            self._machine().revision,
            self.role(),
            int(self._replica.engine.log_room),
            self._clocks.said(),
            self.table.cluster_id,
            self._divergence.report(),
            self._state_bytes_max,
            self._sync_ms(),
            self._replica.is_writing_snapshot,
            self._replica.log.synced_term,
            min(self._replica.log.committed, self._replica.log.synced_index),
        )

    def do_others_write(self) -> bool:
        """Whether any peer has said that it writes a snapshot."""
        return any(ping.is_writing for ping in self.table.pings().values())

    def frame(self, peer_id: str, kind: int, body: msgspec.Raw) -> None:
        """Decode a frame and hand it on. Raises msgspec.DecodeError, PeerFault."""
        handlers, peer = self.handlers, self.table.records[peer_id]
        is_member = peer.standing is _MEMBER
        if not is_member:
            if peer.standing is Standing.FOREIGN:
                raise msgspec.ValidationError(f"node {peer_id} belongs to another cluster")
            if kind not in (FrameKind.RAFT, FrameKind.PING):
                return
        if kind == _RAFT:
            message = messages.decode(body)
            if isinstance(message, str):
                logger.warning("event=message-dropped peer=%s type=%r reason=unknown", peer_id, message)
                return
            # Nearly always this node knows its cluster, and everything is taken from the peer.
            is_settled = is_member and self._datadir.cluster.cluster_id
            if self.hears_raft and (is_settled or self._may_say(peer_id, peer, message)):
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

    def _may_say(self, peer_id: str, peer: PeerRecord, message: Message) -> bool:
        """Whether a Raft message may be taken from this peer.

        The first leader that speaks to a joining node decides which cluster it belongs to from now on. That
        is durable before anything is acknowledged.
        """
        if peer.standing is Standing.LEADER_ONLY and not isinstance(message, _OF_A_LEADER):
            return False
        if self.table.cluster_id or self.table.latest.nodes or not self._replica.is_log_empty:
            # It joins no cluster, or has done so.
            return True
        said = peer.clusters_said
        if not isinstance(message, AppendEntries):
            # Of a cluster that is not its own yet, a joining node takes not even a term.
            return not said
        if len(said) == 1:
            (adopted,) = said
            self._on_disk(self._datadir.store_cluster, replace(self._datadir.cluster, cluster_id=adopted))
            logger.info("event=cluster-adopted cluster=%s leader=%s", adopted, peer_id)
            self.table.judge_all()
        return True

    def _rare(
        self, peer_id: str, content: Ping | Change | Verdict | News | Published | str, handlers: Handlers
    ) -> None:
        """Hand on what is not part of a request."""
        match content:
            case Ping():
                self._pinged(peer_id, content)
            case Change():
                handlers.change_asked(peer_id, content)
            case Verdict():
                handlers.change_decided(content)
            case News():
                self.founding.heard(peer_id, content)
            case Published():
                self.channels.heard(content)
            case str():
                handlers.transfer_asked(content)

    def _pinged(self, peer_id: str, ping: Ping) -> None:
        """Handle a ping. Digests are compared only if everything is taken from the peer."""
        peer = self.table.records[peer_id]
        peer.ping = ping
        if ping.clock is not None:
            self._clocks.heard(peer_id, ping.clock)
        self.table.judge(peer_id)
        if peer.standing is Standing.MEMBER and peer.disk_id:
            self._replica.log.hear(peer.disk_id, ping.term, ping.committed)
        self.objections_met.gone(peer_id)
        run_id = peer.particulars.run_id if peer.particulars is not None else ""
        self.shut_out.let_in(peer_id, self._dialed(peer_id), run_id)
        self.handlers.let_in(peer_id)
        if peer.standing is not Standing.MEMBER:
            self._divergence.lost(peer_id)
        elif ping.report is not None:
            self._divergence.heard(peer_id, ping.report)
