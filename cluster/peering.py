"""This node among its peers: who it is, whom it lets in, and where their frames go.

Peers remember each other's data directory (its disk id) for ever. A node that comes back with another one may
have voted and acknowledged what it no longer knows, so it is refused. Nobody takes part before it has met
every other node once: only then is each disk remembered by somebody who will outlive it.
"""

import logging
from collections.abc import Collection
from typing import Any, Protocol

import msgspec

from cluster import guards
from cluster.datadir import DataDir
from cluster.guards import Message
from cluster.link import Kind
from cluster.outbox import node_of
from cluster.peer_auth import Particulars

logger = logging.getLogger(__name__)

_raft_decoder = msgspec.msgpack.Decoder(dict[str, Any])
_forward_decoder = msgspec.msgpack.Decoder(tuple[int, str, list[int], list[bytes]])
_text_decoder = msgspec.msgpack.Decoder(str)


class Ping(msgspec.Struct, frozen=True, array_like=True):
    """What nodes tell each other once a second: their revision and role."""

    revision: int
    state: str


_ping_decoder = msgspec.msgpack.Decoder(Ping)


class Host(Protocol):
    """What peering asks of the node."""

    def role(self) -> str:
        """Return leader, candidate or follower."""

    def revision(self) -> int:
        """Return how many entries this node has applied."""

    def peer_up(self, peer_id: str) -> None:
        """Take note that a peer can be reached."""

    def peer_down(self, peer_id: str) -> None:
        """Take note that a peer cannot be reached."""

    def raft_message(self, peer_id: str, message: Message) -> None:
        """Take a Raft message from a peer."""

    def forwarded(self, term: int, origin: str, seqs: list[int], commands: list[bytes]) -> None:
        """Take commands that a peer forwards to the leader of `term`."""

    def transfer_asked(self, to: str) -> None:
        """Hand leadership to `to`, as a peer asks on behalf of its operator."""

    def refused(self, peer_id: str, reason: str) -> None:
        """Stop: a peer, proven to be one, does not let this node in."""


class Peering:
    """Speaks for this node on its links (transport.Host)."""

    def __init__(self, datadir: DataDir, peer_ids: Collection[str], advertise_http: str, host: Host) -> None:
        self._datadir = datadir
        self._peer_ids = list(peer_ids)
        self._advertise_http = advertise_http
        self._host = host
        self.pings: dict[str, Ping] = {}
        self.http: dict[str, str] = {}
        self.is_established = datadir.is_established(self._peer_ids)

    def missing(self) -> list[str]:
        """Return the peers that this node has never met."""
        return sorted(set(self._peer_ids) - set(self._datadir.known))

    def particulars(self) -> Particulars:
        """Return what this node tells about itself."""
        return Particulars(self._datadir.disk_id, self._advertise_http)

    def objection(self, peer_id: str, theirs: Particulars) -> str | None:
        """Refuse a peer that comes with another disk than before; remember a new one, durably."""
        known = self._datadir.known.get(peer_id)
        self.http[peer_id] = theirs.http
        if known is None:
            self._datadir.remember(peer_id, theirs.disk_id)
            self.is_established = self._datadir.is_established(self._peer_ids)
            logger.info("event=peer-met peer=%s disk=%s", peer_id, theirs.disk_id[:8])
        elif known != theirs.disk_id:
            return (
                f"node {peer_id} is known here with another data directory (disk {known[:8]}, now"
                f" {theirs.disk_id[:8]}). A node that lost its disk may have voted and acknowledged what it"
                f" no longer knows, so it cannot come back as {peer_id}: restore its old data directory, or"
                " replace it by a node with a new id (see 'A node lost its disk' in docs/operating.md)"
            )
        return None

    def peer_up(self, peer_id: str) -> None:
        """Pass on that a peer can be reached."""
        self._host.peer_up(peer_id)

    def peer_down(self, peer_id: str) -> None:
        """Pass on that a peer cannot be reached."""
        self.pings.pop(peer_id, None)
        self._host.peer_down(peer_id)

    def refused(self, peer_id: str, reason: str) -> None:
        """Pass on that a peer does not let this node in."""
        self._host.refused(peer_id, reason)

    def ping(self) -> Ping:
        """Return what the peers shall know."""
        return Ping(self._host.revision(), self._host.role())

    def frame(self, peer_id: str, kind: int, body: msgspec.Raw) -> None:
        """Decode a frame and hand it on. Raises msgspec.DecodeError."""
        match kind:
            case Kind.RAFT:
                message = _raft_decoder.decode(body)
                if not guards.is_well_formed(message):
                    raise msgspec.ValidationError(f"no Raft message: {message.get('type')!r}")
                if self.is_established:
                    self._host.raft_message(peer_id, message)
            case Kind.FORWARD:
                term, origin, seqs, commands = _forward_decoder.decode(body)
                if node_of(origin) != peer_id or len(seqs) != len(commands):
                    raise msgspec.ValidationError("no batch of this peer's commands")
                self._host.forwarded(term, origin, seqs, commands)
            case Kind.PING:
                self.pings[peer_id] = _ping_decoder.decode(body)
            case Kind.TRANSFER:
                self._host.transfer_asked(_text_decoder.decode(body))
            case Kind.REFUSED:
                self._host.refused(peer_id, _text_decoder.decode(body))
            case _:
                logger.warning("event=frame-dropped peer=%s kind=%d", peer_id, kind)
