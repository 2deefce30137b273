"""This node among its peers: who it is, whom it lets in, and where their frames go.

Peers remember each other's data directory (its disk id) for ever. A node that comes back with another one may
have voted and acknowledged what it no longer knows, so it is refused. In a new cluster nobody takes part
before it has met every other node once: only then is each disk remembered by somebody who will outlive it. A
node that joins later brings its disk id into the member list before it counts.
"""

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from cluster.commands.clock_watch import ClockSaid, ClockWatch
from cluster.commands.outbox import Forwarded, node_of
from cluster.consensus import messages
from cluster.consensus.member_changes import Change, Verdict
from cluster.consensus.member_list import Members
from cluster.consensus.messages import Message
from cluster.errors import NodeFailed
from cluster.peers.handshake import PROTOCOL_OLDEST, PROTOCOL_SEALED, Objection, Particulars
from cluster.peers.link import FrameKind
from cluster.storage.data_directory import DataDir
from lockstate.versions import RULES_NEWEST

logger = logging.getLogger(__name__)


RULES_SEALED: Final = 3
"""The first rules that only releases know which seal their links."""


class Ping(msgspec.Struct, frozen=True, array_like=True):
    """What nodes tell each other once a second: their revision and role.

    Fields come at the end, with a default: releases before them do not send or know them.
    """

    revision: int
    state: str
    log_room: int = 0
    """What the node may still put into its log (compaction.LogRoom)."""
    clock: ClockSaid | None = None


_DECODERS: Final[dict[int, msgspec.msgpack.Decoder[Any]]] = {
    FrameKind.FORWARD: msgspec.msgpack.Decoder(Forwarded),
    FrameKind.TRANSFER: msgspec.msgpack.Decoder(str),
    FrameKind.PING: msgspec.msgpack.Decoder(Ping),
    FrameKind.REFUSED: msgspec.msgpack.Decoder(Objection),
    FrameKind.CHANGE: msgspec.msgpack.Decoder(Change),
    FrameKind.CHANGED: msgspec.msgpack.Decoder(Verdict),
}
"""What is in a frame, by its kind. Raft's messages have a decoder of their own."""


class PeeringHost(Protocol):
    """What peering asks of the node it speaks for."""

    def role(self) -> str:
        """Return leader, candidate or follower."""

    def revision(self) -> int:
        """Return how many entries this node has applied."""

    def rules(self) -> int:
        """Return the version of the rules that this node's state follows."""

    def log_room(self) -> int:
        """Return what this node may still put into its log."""

    def peer_up(self, peer_id: str) -> None:
        """Record that a peer can be reached."""

    def peer_down(self, peer_id: str) -> None:
        """Record that a peer cannot be reached."""

    def refused(self, peer_id: str, objection: Objection) -> None:
        """Stop: a peer, proven to be one, does not let this node in."""

    def broke(self, error: BaseException) -> None:
        """Stop: the disk failed."""


class Handlers(msgspec.Struct, frozen=True, kw_only=True):
    """Who takes what peers send; each gets the peer's id and the decoded content."""

    raft: Callable[[str, Message], None]
    forwarded: Callable[[Forwarded], None]
    """Commands that a peer forwards to the leader of a term."""
    transfer_asked: Callable[[str], object]
    """An operator of the peer asks that leadership goes to the node with this id."""
    change_asked: Callable[[str, Change], None]
    """An operator of the peer asks for a change of the members."""
    change_decided: Callable[[Verdict], None]
    """The leader answers a change that this node asked for."""


class Peering:
    """Speaks for this node on its links (links.LinksHost)."""

    def __init__(self, datadir: DataDir, node_id: str, advertise_http: str, host: PeeringHost) -> None:
        self._datadir = datadir
        self._node_id = node_id
        self._advertise_http = advertise_http
        self._host = host
        self.handlers: Handlers | None = None
        """Set before the first connection."""
        self.clocks: ClockWatch | None = None
        """Who measures the peers' clocks. Set before the first connection."""
        self._committed = Members()
        self._wanted: frozenset[str] = frozenset()
        self._met: dict[str, Particulars] = {}
        self._up: set[str] = set()
        self.pings: dict[str, Ping] = {}
        self.http: dict[str, str] = {}
        self.is_established = False
        self.rules_newest = RULES_NEWEST
        """The newest rules that this node tells others it knows."""

    def set_members(self, committed: Members, *, is_first: bool) -> frozenset[str]:
        """Record the committed list; `is_first` if the cluster began with the one that counts.

        The disks of nodes that were removed are forgotten: the ids may come back with others. Returns whose
        present disk was removed.
        """
        self._committed = committed
        self._wanted = frozenset(committed.nodes) - {self._node_id} if is_first else frozenset()
        self._check_established()
        gone = frozenset(
            node_id for node_id, theirs in self._met.items() if theirs.disk_id in committed.removed
        )
        for disk_id, node_id in committed.removed.items():
            met = self._met.get(node_id)
            if self.is_gone(node_id) or self._datadir.known.get(node_id) == disk_id:
                self._datadir.forget(node_id)
            if self.is_gone(node_id) or (met is not None and met.disk_id == disk_id):
                self._met.pop(node_id, None)
        for node_id in self._met.keys() & committed.nodes.keys():
            self._remember(node_id)
        return gone

    def missing(self) -> list[str]:
        """Return the peers that must have been met before this node takes part."""
        return sorted(self._wanted - set(self._datadir.known))

    def disk_ids(self) -> dict[str, str]:
        """Return the disk ids of this node and of those it has met."""
        met = {peer_id: theirs.disk_id for peer_id, theirs in self._met.items()}
        return self._datadir.known | met | {self._node_id: self._datadir.disk_id}

    def _check_established(self) -> None:
        """Once established, always: a later list has its disk ids in it."""
        self.is_established = self.is_established or not self.missing()

    def protocol_min(self) -> int:
        """Return the oldest protocol that a link may have: once all members can seal their links, all do."""
        return PROTOCOL_SEALED if self._host.rules() >= RULES_SEALED else PROTOCOL_OLDEST

    def particulars(self) -> Particulars:
        """Return what this node tells about itself."""
        return Particulars(
            self._datadir.disk_id,
            self._advertise_http,
            self._committed.version,
            self.rules_newest,
            self._datadir.identity.group,
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
        self._host.broke(error)

    def objection(self, peer_id: str, theirs: Particulars, *, is_known: bool) -> Objection | None:
        """Refuse a peer that was removed, has another disk than before, or does not know the active rules.

        The disk of a new one is remembered, durably.

        A peer with a newer list than ours is let in: it may have joined since, perhaps in the place of the
        one that this node knows. One that lost its disk has no list at all.
        """
        if theirs.members_version <= self._committed.version:
            objection = self._objection(peer_id, theirs.disk_id, is_known=is_known)
            if objection is not None:
                return objection
        active = self._host.rules()
        if theirs.rules < active:
            return Objection(
                f"node {peer_id} knows rules {theirs.rules} and the cluster follows rules {active}: upgrade"
                f" {peer_id} to the release of the others (see 'Upgrading' in docs/operating.md)"
            )
        self.http[peer_id] = theirs.http
        self._met[peer_id] = theirs
        if is_known:
            try:
                self._remember(peer_id)
            except Exception as error:
                failure = NodeFailed(f"the data directory cannot be written: {error!r}")
                self._host.broke(failure)
                raise failure from error
        return None

    def _remember(self, peer_id: str) -> None:
        """Remember the disk of a connected peer, durably."""
        disk_id = self._met[peer_id].disk_id
        if peer_id not in self._datadir.known:
            self._datadir.remember(peer_id, disk_id)
            self._check_established()
            logger.info("event=peer-met peer=%s disk=%s", peer_id, disk_id[:8])

    def _objection(self, peer_id: str, disk_id: str, *, is_known: bool) -> Objection | None:
        """Return what is wrong with a peer that knows no newer list than this node."""
        removed = self._committed.removed
        if disk_id in removed or (not is_known and peer_id in removed.values()):
            return self.removal(peer_id, is_final=disk_id in removed)
        if not is_known:
            return Objection(
                f"node {peer_id} is not a member of this cluster: add it with `holdfast cluster add`, and"
                " start it with an empty data directory and --join"
            )
        known = self._committed.disk_id(peer_id) or self._datadir.known.get(peer_id, disk_id)
        if known != disk_id:
            return Objection(
                f"node {peer_id} is known here with another data directory (disk {known[:8]}, now"
                f" {disk_id[:8]}). A node that lost its disk may have voted and acknowledged what it"
                f" no longer knows, so it cannot come back as {peer_id}: restore its old data directory, or"
                " replace it by a node with a new id, with `holdfast cluster replace` (see 'A node lost its"
                " disk' in docs/operating.md)"
            )
        return None

    @staticmethod
    def removal(peer_id: str, *, is_final: bool = True) -> Objection:
        """Return what a removed node is told."""
        return Objection(
            f"node {peer_id} was removed from this cluster. To have it back, add it again and start it with"
            " an empty data directory and --join (see 'Changing the members' in docs/operating.md)",
            is_final,
        )

    def peer_up(self, peer_id: str) -> None:
        """Pass on that a peer can be reached."""
        self._up.add(peer_id)
        self._host.peer_up(peer_id)

    def peer_down(self, peer_id: str) -> None:
        """Pass on that a peer cannot be reached."""
        self._up.discard(peer_id)
        self.pings.pop(peer_id, None)
        if self.clocks is not None:
            self.clocks.lost(peer_id)
        self._host.peer_down(peer_id)

    def refused(self, peer_id: str, objection: Objection) -> None:
        """Pass on that a peer does not let this node in."""
        self._host.refused(peer_id, objection)

    def ping(self) -> Ping:
        """Return what the peers shall know."""
        return Ping(
            self._host.revision(),
            self._host.role(),
            int(self._host.log_room()),
            self.clocks.said() if self.clocks is not None else None,
        )

    def frame(self, peer_id: str, kind: int, body: msgspec.Raw) -> None:
        """Decode a frame and hand it on. Raises msgspec.DecodeError."""
        handlers = self.handlers
        assert handlers is not None, "a frame before the node was put together"
        if kind == FrameKind.RAFT:
            # Whoever has a newer list and lets this node in knows its disk: the list has all of them.
            self.is_established = self.is_established or self._is_ahead(peer_id)
            message = messages.decode(body)
            if isinstance(message, str):
                logger.warning("event=message-dropped peer=%s type=%r reason=unknown", peer_id, message)
            elif self.is_established:
                handlers.raft(peer_id, message)
            return
        decoder = _DECODERS.get(kind)
        if decoder is None:
            logger.warning("event=frame-dropped peer=%s kind=%d", peer_id, kind)
        elif kind == FrameKind.FORWARD:
            batch = decoder.decode(body)
            if node_of(batch.origin) != peer_id or len(batch.seqs) != len(batch.commands):
                raise msgspec.ValidationError("not a batch of this peer's commands")
            handlers.forwarded(batch)
        else:
            self._rare(peer_id, decoder.decode(body), handlers)

    def _rare(
        self, peer_id: str, content: Ping | Change | Verdict | Objection | str, handlers: Handlers
    ) -> None:
        """Hand on what is not part of a request."""
        match content:
            case Ping():
                self.pings[peer_id] = content
                if self.clocks is not None and content.clock is not None:
                    self.clocks.heard(peer_id, content.clock)
            case Change():
                handlers.change_asked(peer_id, content)
            case Verdict():
                handlers.change_decided(content)
            case Objection():
                self._host.refused(peer_id, content)
            case str():
                handlers.transfer_asked(content)
