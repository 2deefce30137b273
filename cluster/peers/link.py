"""One connection between two nodes: handshake, frames in both directions, silence detection.

A frame is a length (4 bytes, big-endian) and a MessagePack array: `[kind, group, body]`; during the handshake
it is a message of `handshake`. Frames written during one run of the event loop leave together, in sealed
records (`sealing`). Whatever is wrong with what comes ends this connection, is counted and logged (`cuts`),
and nothing else.
"""

import asyncio
import enum
import logging
import struct
from typing import Any, Final, Protocol, cast

import msgspec
from msgspec.structs import replace

from cluster.errors import NodeFailed, PeerContradicts, PeerFault
from cluster.peers import handshake
from cluster.peers.certificate_names import Shown
from cluster.peers.cuts import Cut, Cuts
from cluster.peers.handshake import (
    Challenge,
    HandshakeState,
    Hello,
    Objection,
    Particulars,
    PeerProgress,
    Proof,
    Refusal,
)
from cluster.peers.sealing import Opener, SealBroken, Sealer
from cluster.peers.secret_use import SecretsSaid, SecretUse
from lockstate.words.versions import GROUP

HANDSHAKE_FRAME_BYTES_MAX: Final = 2048
"""Bytes of one frame that a stranger may make us read."""
FRAME_BYTES_MAX: Final = 64 << 20
"""Bytes of one frame, above the largest message of Raft (a few MiB of entries); a longer one is damage."""
HANDSHAKE_S: Final = 3.0
"""Seconds that a connection has for its handshake."""
BACKLOG_BYTES_MAX: Final = 64 << 20
"""Bytes that may wait for a peer: one that does not read loses its connection before we lose our memory."""
ROOM_BYTES: Final = 2 << 20
"""Bytes: bulk data is added to a connection while less than this waits in it."""

TLS_FIRST_BYTE: Final = 0x16
"""What a dialer with TLS says first: a record of a handshake. A frame would be longer than any."""

_LENGTH: Final = struct.Struct(">I")
_LENGTH_BYTES: Final = _LENGTH.size
_length: Final = _LENGTH.pack
_length_in: Final = _LENGTH.unpack_from
_encode: Final = msgspec.msgpack.Encoder().encode
_objection_decoder = msgspec.msgpack.Decoder(Objection)
_secrets_decoder = msgspec.msgpack.Decoder(SecretsSaid)
_frame_decoder = msgspec.msgpack.Decoder(tuple[int, int, msgspec.Raw])

logger = logging.getLogger(__name__)


@enum.unique
class FrameKind(enum.IntEnum):
    """What a frame carries."""

    RAFT = 1
    FORWARD = 2
    TRANSFER = 3
    PING = 4
    REFUSED = 5
    CHANGE = 6
    CHANGED = 7
    FOUNDING = 8
    SECRETS = 9
    PUBLISHED = 10


_OF_THE_LINK: Final = frozenset({int(FrameKind.REFUSED), int(FrameKind.SECRETS)})
"""The kinds of frames that say something of the link. All others are the node's."""


class LinkRegistry(Protocol):
    """What a link asks of all links of its node."""

    node_id: str
    secrets: SecretUse
    cuts: Cuts

    def particulars(self, peer_id: str) -> Particulars:
        """Return what this node tells a peer about itself."""

    def certificate_fault(self, shown: Shown | None, peer_id: str) -> tuple[Cut, str] | None:
        """Return why what was shown is not the certificate of a peer, None if it may be; None: no TLS."""

    def is_peer(self, node_id: str) -> bool:
        """Whether `node_id` is another node of this cluster."""

    def progress(self, peer_id: str) -> PeerProgress:
        """Return how far a peer is known to have come."""

    def objection(self, peer_id: str, theirs: Particulars, progress: PeerProgress) -> Objection | None:
        """Return why a peer that knows the secret is not let in, None if it is.

        `progress` is how far it was known to have come before it was asked.
        """

    def begun(self, link: "Link") -> None:
        """Record a connection. Of one that never comes about, neither beginning nor end is told."""

    def opened(self, link: "Link") -> None:
        """Record that a link is authenticated and usable."""

    def closed(self, link: "Link") -> None:
        """Record that a link is gone, whether it was ever usable or not."""

    def received(self, link: "Link", kind: int, body: msgspec.Raw) -> None:
        """Take a frame. Raises msgspec.DecodeError when it makes no sense."""

    def secrets_said(self, link: "Link", exchange: HandshakeState, said: SecretsSaid) -> None:
        """Take what a peer says of the secrets that it accepts."""

    def refused(self, peer_id: str, objection: Objection, *, dialed: str) -> None:
        """Record that a peer, proven to be one, does not let this node in.

        `dialed` is where this node had dialed it; empty if the peer dialed.
        """


class Link(asyncio.Protocol):
    """One connection. `dials` names the peer it dials; the accepting side learns it from the hello."""

    def __init__(self, links: LinkRegistry, dials: str = "", address: str = "") -> None:
        self._links = links
        self.address = address
        """Where this node has dialed the peer; empty if the peer dialed."""
        self.is_dialer = bool(dials)
        self.peer_id = dials
        self.theirs: Particulars | None = None
        self.is_open = False
        self.is_used = False
        """Whether both sides let each other in, as far as this one knows."""
        self.sealer: Sealer | None = None
        self._opener: Opener | None = None
        self.ended = asyncio.Event()
        self.settled = asyncio.Event()
        """Set when this link is the one of its peer, or has ended without that."""
        self.heard_s = 0.0
        """When anything came that is proven to be the peer's."""
        self.bytes_s = 0.0
        """When any bytes came, whoever sent them: a sign that the connection is not stalled, and no more."""
        self.shown: Shown | None = None
        """What both sides have shown each other; None without TLS."""
        self._loop = asyncio.get_running_loop()
        self._raw: asyncio.Transport | None = None
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._nonce = handshake.new_nonce()
        self.secret = b""
        """The one that this link is proven with."""
        self._exchange: HandshakeState | None = None
        self._proof: Proof | None = None
        self._progress: PeerProgress
        """How far the peer was known to have come before it was asked for its proof."""
        self._timeout: asyncio.TimerHandle | None = None

    # -- asyncio.Protocol -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, without TLS."""
        # uvloop's transports are not subclasses of asyncio's.
        raw = cast("asyncio.Transport", transport)
        self.connected(raw)
        self.speak(raw, None)

    def connected(self, raw: asyncio.Transport) -> None:
        """Have so much time, and a place among those that have proven nothing. Nothing is said yet."""
        self._raw = self._transport = raw
        self._links.begun(self)
        self._timeout = self._loop.call_later(HANDSHAKE_S, self.give_up, Cut.SLOW, "handshake took too long")

    def speak(self, transport: asyncio.Transport, shown: Shown | None) -> None:
        """Begin the handshake, over `transport`; with TLS the sides have shown each other `shown`."""
        self._transport, self.shown = transport, shown
        if self.is_dialer:
            fault = self._links.certificate_fault(shown, self.peer_id)
            if fault is not None:
                self.give_up(*fault)
                return
            hello = Hello(handshake.PROTOCOL, self._links.node_id, self.peer_id, self._nonce)
            self._send_handshake(hello)

    def data_received(self, data: bytes) -> None:
        """Take bytes; handle every whole frame in them."""
        self.bytes_s = self._loop.time()
        if self._opener is None:
            self.heard_s = self.bytes_s
            self._take(data)
        else:
            self._open_records(self._opener, data)

    def _open_records(self, opener: Opener, data: bytes) -> None:
        """Take sealed bytes. Only what is proven is a sign of life."""
        try:
            for content in opener.open(data):
                self.heard_s = self.bytes_s
                # Mostly a record is one whole frame.
                size_bytes = len(content) - _LENGTH_BYTES
                if size_bytes >= 0 and not self._buffer and _length_in(content)[0] == size_bytes:
                    self._frame(content[_LENGTH_BYTES:])
                else:
                    self._take(content)
                if self._transport is None:
                    return
        except SealBroken as error:
            self.give_up(Cut.FORGED, f"{error}: somebody in between changes or adds bytes")

    def _take(self, data: bytes) -> None:
        """Handle every whole frame; what a peer may make us keep depends on whether it is proven."""
        buffer = self._buffer
        buffer += data
        start = 0
        while self._transport is not None and len(buffer) - start >= _LENGTH_BYTES:
            (length,) = _length_in(buffer, start)
            if length > (FRAME_BYTES_MAX if self.is_open else HANDSHAKE_FRAME_BYTES_MAX):
                cut = Cut.UNREADABLE if self.is_open else Cut.HANDSHAKE
                if not self.is_open and buffer[start] == TLS_FIRST_BYTE:
                    self.give_up(Cut.TLS, "it speaks TLS, and this node does not (--peer-tls)")
                else:
                    self.give_up(cut, f"frame of {length} bytes")
                return
            end = start + _LENGTH_BYTES + length
            if len(buffer) < end:
                break
            frame = bytes(memoryview(buffer)[start + _LENGTH_BYTES : end])
            start = end
            was_sealed = self._opener is not None
            self._frame(frame)
            if self._opener is not None and not was_sealed:
                # The handshake has ended with this frame: what is behind it is sealed.
                sealed = bytes(memoryview(buffer)[start:])
                buffer.clear()
                self._open_records(self._opener, sealed)
                return
        del buffer[:start]

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection, whoever ended it."""
        del exc
        if self._timeout is not None:
            self._timeout.cancel()
        if self.is_dialer and not self.is_open and self._transport is not None:
            logger.warning(
                "event=link-refused peer=%s reason=%r",
                self.peer_id,
                "it hung up during the handshake: its log says why, most often another cluster secret,"
                " another --peer-tls, or a certificate that names another node or cluster",
            )
        self._transport = None
        self.ended.set()
        self.settled.set()
        self._links.closed(self)

    # -- sending --------------------------------------------------------------------------------------------

    def send(self, kind: FrameKind, body: Any, *, is_flush_next: bool = False) -> None:
        """Send a frame with what else is written during this run of the loop, or until the caller flushes."""
        if self._transport is None:
            return
        frame = _encode((kind, GROUP, body))
        if not self._outgoing and not is_flush_next:
            self._loop.call_soon(self.flush)
        self._outgoing += (_length(len(frame)), frame)
        self._outgoing_bytes += len(frame)

    @property
    def host(self) -> str:
        """Return the address of the other end, without its port; empty if that is not known."""
        address = self._transport.get_extra_info("peername") if self._transport is not None else None
        return str(address[0]) if isinstance(address, tuple) and address else ""

    @property
    def backlog_bytes(self) -> int:
        """Return how much waits to be taken by the network."""
        transport = self._transport
        return self._outgoing_bytes + (transport.get_write_buffer_size() if transport is not None else 0)

    @property
    def room_bytes(self) -> int:
        """Return how much bulk data may be added; not more than 0 if none may."""
        transport = self._transport
        if transport is None:
            return 0
        return ROOM_BYTES - self._outgoing_bytes - transport.get_write_buffer_size()

    def close(self, reason: str) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            logger.info("event=link-closed peer=%s reason=%r", self.peer_id, reason)
            self._transport.abort()

    def make_room(self) -> None:
        """End a handshake that has not come far: others wait."""
        self.give_up(Cut.CROWD, "too many unauthenticated connections, and this is one of the oldest")
        if self._raw is not None:
            # Also one that was refused already, and could read why.
            self._raw.abort()

    def finish(self) -> None:
        """Send what waits, then close."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def flush(self) -> None:
        """Hand what waits to the network."""
        transport, outgoing = self._transport, self._outgoing
        if transport is None or not outgoing:
            return
        data = b"".join(outgoing)
        transport.write(data if self.sealer is None else self.sealer.seal(data))
        outgoing.clear()
        self._outgoing_bytes = 0
        if transport.get_write_buffer_size() > BACKLOG_BYTES_MAX:
            self.close(f"{self.backlog_bytes} bytes wait: the peer does not read")

    # -- handshake ------------------------------------------------------------------------------------------

    def _frame(self, frame: bytes) -> None:
        """Take a frame; one of another group, or that cannot be read, ends the link."""
        try:
            if self.is_open:
                kind, group, body = _frame_decoder.decode(frame)
                if group != GROUP:
                    raise msgspec.ValidationError(f"a frame of Raft group {group}")
                if kind in _OF_THE_LINK:
                    self._link_frame(kind, body)
                else:
                    self._links.received(self, kind, body)
            else:
                self._handshake(handshake.decode(frame))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            cut = Cut.UNREADABLE if self.is_open else Cut.HANDSHAKE
            self.give_up(cut, f"unreadable frame: {error}")
        except PeerContradicts as error:
            self.give_up(Cut.CONTRADICTION, str(error))
        except PeerFault as error:
            self.give_up(Cut.IMPLAUSIBLE, str(error))
        except NodeFailed as error:
            self.give_up(Cut.BROKEN, f"this node broke: {error}")

    def _link_frame(self, kind: int, body: msgspec.Raw) -> None:
        """Take a frame that is about this link itself. Raises msgspec.DecodeError."""
        assert self._exchange is not None, "a frame before the proofs"
        if kind == FrameKind.SECRETS:
            self._links.secrets_said(self, self._exchange, _secrets_decoder.decode(body))
        else:
            self._links.refused(self.peer_id, _objection_decoder.decode(body), dialed=self.address)

    def _handshake(self, message: handshake.Handshake) -> None:
        match message:
            case Hello() if not self.is_dialer and self._exchange is None:
                self._on_hello(message)
            case Challenge() if self.is_dialer and self._exchange is None:
                self._on_challenge(message)
            case Proof() if self._exchange is not None:
                self._on_proof(message, self._exchange)
            case Refusal() if self.is_dialer and self._exchange is not None:
                if self._exchange.is_refused(self.secret, message):
                    self._links.refused(self.peer_id, message.objection, dialed=self.address)
                self.give_up(Cut.REFUSED, "refused by the peer")
            case _:
                self.give_up(Cut.HANDSHAKE, "handshake out of order")

    def _on_hello(self, hello: Hello) -> None:
        if hello.protocol != handshake.PROTOCOL:
            speaks = f"speaks link protocol {hello.protocol}, and this node {handshake.PROTOCOL}"
            self.give_up(Cut.HANDSHAKE, f"{speaks}: run one release on both (see 'Upgrading')")
        elif hello.to != self._links.node_id or not self._links.is_peer(hello.node_id):
            wants = f"{hello.node_id!r} wants {hello.to!r}: not in the configuration of this node"
            self.give_up(Cut.HANDSHAKE, wants)
        elif len(hello.nonce) != handshake.NONCE_BYTES:
            self.give_up(Cut.HANDSHAKE, "nonce of the wrong length")
        else:
            self.peer_id = hello.node_id
            fault = self._links.certificate_fault(self.shown, hello.node_id)
            if fault is not None:
                self.give_up(*fault)
                return
            self._exchange = HandshakeState(hello.node_id, self._links.node_id, hello.nonce, self._nonce)
            self._progress = self._links.progress(self.peer_id)
            self._send_handshake(Challenge(self._nonce))

    def _on_challenge(self, challenge: Challenge) -> None:
        self._exchange = HandshakeState(self._links.node_id, self.peer_id, self._nonce, challenge.nonce)
        self.secret = self._links.secrets.to_dial(self.peer_id)
        self._progress = self._links.progress(self.peer_id)
        self._prove(self._exchange, b"dialer")

    def _prove(self, exchange: HandshakeState, role: bytes) -> None:
        """Send our proof. It vouches for the certificate, too, that this side has shown."""
        ours = self._links.particulars(self.peer_id)
        if self.shown is not None:
            ours = replace(ours, certificate=self.shown.ours)
        self._proof = exchange.prove(self.secret, role, ours)
        self._send_handshake(self._proof)

    def _on_proof(self, proof: Proof, exchange: HandshakeState) -> None:
        theirs = self._proven(proof, exchange)
        if theirs is None:
            reason = "does not know the cluster secret: check the secret on both nodes"
            self.give_up(Cut.SECRET, reason)
            return
        if theirs.certificate != (self.shown.theirs if self.shown is not None else ""):
            reason = "the certificate that came is not the one that it showed: somebody in between ends TLS"
            self.give_up(Cut.RELAYED, reason)
            return
        objection = self._links.objection(self.peer_id, theirs, self._progress)
        if not self.is_dialer:
            if objection is not None:
                self._send_handshake(exchange.refuse(self.secret, objection))
                self.finish()
                return
            self._prove(exchange, b"acceptor")
        self._open(theirs, exchange, proof)
        if objection is not None:
            self.send(FrameKind.REFUSED, objection)
            self.finish()
            return
        self._links.opened(self)

    def _proven(self, proof: Proof, exchange: HandshakeState) -> Particulars | None:
        """Return what a peer vouches for; from here on this link knows by which secret."""
        if self.is_dialer:
            return exchange.proven(self.secret, b"acceptor", proof)
        for secret in self._links.secrets.secrets.accepted:
            theirs = exchange.proven(secret, b"dialer", proof)
            if theirs is not None:
                self.secret = secret
                return theirs
        return None

    def tell_secrets(self) -> None:
        """Tell the peer which secrets this node accepts."""
        assert self._exchange is not None, "open without a handshake"
        self.send(FrameKind.SECRETS, self._links.secrets.saying(self._exchange, self._links.node_id))

    def _open(self, theirs: Particulars, exchange: HandshakeState, proof: Proof) -> None:
        """Be open: both proofs are known. Seal what is sent, and believe only what is sealed."""
        self.theirs = theirs
        ours = self._proof
        assert ours is not None, "open without a proof of ours"
        proofs = (ours.content, proof.content) if self.is_dialer else (proof.content, ours.content)
        keys = exchange.keys(self.secret, *proofs)
        self.sealer = Sealer(keys.dialer if self.is_dialer else keys.acceptor)
        self._opener = Opener(keys.acceptor if self.is_dialer else keys.dialer)
        self.is_open = True
        if self._timeout is not None:
            self._timeout.cancel()

    def _send_handshake(self, message: handshake.Handshake) -> None:
        assert self._transport is not None
        frame = handshake.encode(message)
        self._transport.write(_length(len(frame)) + frame)

    def give_up(self, cut: Cut, reason: str, *, at_once: bool = True) -> None:
        """End this connection for good; if not `at_once`, whoever owns its socket closes that."""
        transport = self._transport
        if transport is not None:
            self._links.cuts.record(cut, self.peer_id, transport.get_extra_info("peername"), reason)
            if at_once:
                transport.abort()
            self._transport = None
