"""How two nodes prove to each other that they know the cluster secret. Pure: messages in, messages out.

    dialer   -> hello      node id, whom it wants to reach, a nonce
    acceptor -> challenge  a nonce of its own
    dialer   -> proof      HMAC over both nonces and ids, and its particulars
    acceptor -> proof      likewise the other way round; or a refusal, signed too

Each side proves that it knows the secret without showing it, and no recorded exchange can be replayed: both
nonces are fresh. A stranger learns one random nonce. Everything behind the handshake is sealed with keys that
follow from it (sealing.py). Nothing is encrypted here; TLS may be beneath (tls_gate.py).

A hello says which link protocol the dialer speaks, and a node that speaks another one does not answer it. A
proof signs bytes, and fields that are not known are skipped: a later release can add particulars.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from cluster.peers.hkdf import hkdf
from cluster.peers.sealing import KEY_BYTES
from lockstate.words.versions import GROUP, RULES_FIRST

PROTOCOL: Final = 1
"""The number of the link protocol, which a hello says and every proof signs."""
NONCE_BYTES: Final = 32
"""Random bytes of a nonce."""


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """Says who dials whom, and which link protocol the dialer speaks."""

    protocol: int
    node_id: str
    to: str
    nonce: bytes


class Challenge(msgspec.Struct, frozen=True, tag="challenge"):
    """Asks the dialer to prove itself."""

    nonce: bytes


class Particulars(msgspec.Struct, frozen=True):
    """What the peers tell each other about themselves: their disk, and where clients reach them.

    `members_version` is that of the newest member list that the node knows to be committed, `rules` the
    newest rules that it knows (lockstate/words/versions.py), `group` its Raft group. `cluster_id` is empty
    while it has none. `your_disk_id` is the disk that its member list has for the node that it speaks with,
    empty if none: who can say it knows a list of that node's cluster. `run_id` is another one in each
    process. `certificate` is the digest of what the node has shown on this connection, empty without TLS:
    so somebody in between who speaks TLS with both sides is noticed, however good the certificates are.
    `term` and `last_index` are what its journal ends with: a disk that had come further is an older copy.
    `version` is what it runs, for people.
    """

    disk_id: str
    http: str
    members_version: int = 0
    rules: int = RULES_FIRST
    group: int = GROUP
    cluster_id: str = ""
    your_disk_id: str = ""
    run_id: str = ""
    certificate: str = ""
    term: int = 0
    last_index: int = 0
    version: str = ""


class LogPosition(NamedTuple):
    """How far a data directory has come. On a disk that keeps what it has synced, neither becomes less."""

    term: int
    entry: int
    """The index of an entry that is in its log, or in its snapshot, for ever."""


class PeerProgress(NamedTuple):
    """How far a peer is known to have come."""

    heard: Mapping[str, tuple[int, int]]
    """What disks have told, by disk id: a LogPosition each."""
    acknowledged: LogPosition
    """What the peer has acknowledged to this node as leader of that term; entry 0 if nothing."""


class Proof(msgspec.Struct, frozen=True, tag="proof"):
    """Proves knowledge of the secret, and vouches for the encoded particulars."""

    content: bytes
    mac: bytes


class Objection(msgspec.Struct, frozen=True, array_like=True):
    """Why a peer that knows the secret is not let in.

    `is_final` if that stays true for ever: its disk was removed from the cluster. Everything else may be said
    by a node that is behind, or arrive late. `kind` is one of objections.Kind, or what a later release says.
    """

    reason: str
    is_final: bool = False
    kind: str = ""
    run_id: str = ""
    """That of the process which says so."""


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    """Tells a proven peer why it is not let in. Signed are the bytes of the objection, as they came."""

    content: msgspec.Raw = msgspec.field(name="objection")
    mac: bytes

    @property
    def objection(self) -> Objection:
        """Return the objection. Raises msgspec.DecodeError."""
        return _objection_decoder.decode(self.content)


Handshake = Hello | Challenge | Proof | Refusal
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Handshake] = msgspec.msgpack.Decoder(Handshake)
_objection_decoder = msgspec.msgpack.Decoder(Objection)
_particulars_decoder = msgspec.msgpack.Decoder(Particulars)


def encode(message: Handshake) -> bytes:
    """Return a handshake message as bytes."""
    return _encoder.encode(message)


def decode(data: bytes) -> Handshake:
    """Return the handshake message in `data`. Raises msgspec.DecodeError."""
    return _decoder.decode(data)


def new_nonce() -> bytes:
    """Return a fresh nonce."""
    return secrets.token_bytes(NONCE_BYTES)


class LinkKeys(NamedTuple):
    """The keys of one link: one for what the dialer sends, one for what the acceptor sends."""

    dialer: bytes
    acceptor: bytes


class HandshakeState(msgspec.Struct, frozen=True):
    """What both sides know after hello and challenge."""

    dialer: str
    acceptor: str
    dialer_nonce: bytes
    acceptor_nonce: bytes

    def _mac(self, secret: bytes, role: bytes, content: bytes) -> bytes:
        signed = _encoder.encode(
            (PROTOCOL, role, self.dialer, self.acceptor, self.dialer_nonce, self.acceptor_nonce, content)
        )
        return hmac.digest(secret, signed, hashlib.sha256)

    def _is_signed(self, secret: bytes, role: bytes, content: bytes, mac: bytes) -> bool:
        return hmac.compare_digest(mac, self._mac(secret, role, content))

    def prove(self, secret: bytes, role: bytes, particulars: Particulars) -> Proof:
        """Return our proof; `role` is b"dialer" or b"acceptor", so that one side's cannot be sent back."""
        content = _encoder.encode(particulars)
        return Proof(content, self._mac(secret, role, content))

    def proven(self, secret: bytes, role: bytes, proof: Proof) -> Particulars | None:
        """Return what the other side vouches for, None if it does not know the secret.

        Raises msgspec.DecodeError when it vouches for what makes no sense.
        """
        if not self._is_signed(secret, role, proof.content, proof.mac):
            return None
        return _particulars_decoder.decode(proof.content)

    def keys(self, secret: bytes, dialer_proof: bytes, acceptor_proof: bytes) -> "LinkKeys":
        """Return the keys of a link that both sides have proven for; the arguments are what the proofs say.

        Both nonces are fresh and every word of the handshake is in what the keys are made of, so no two links
        have the same, and two sides that understood the handshake differently have nothing to say.
        """
        said = (PROTOCOL, self.dialer, self.acceptor, dialer_proof, acceptor_proof)
        info = b"holdfast link keys" + _encoder.encode(said)
        made = hkdf(secret, salt=self.dialer_nonce + self.acceptor_nonce, info=info, length=2 * KEY_BYTES)
        return LinkKeys(made[:KEY_BYTES], made[KEY_BYTES:])

    def shows(self, secret: bytes, node_id: str) -> bytes:
        """Return what shows that the node with this id accepts a secret, to who knows that secret, too.

        It is worth nothing on another connection, and proves nothing: proofs have other words in them.
        """
        said = ("accepts", node_id, self.dialer_nonce, self.acceptor_nonce)
        return hmac.digest(secret, _encoder.encode(said), hashlib.sha256)

    def refuse(self, secret: bytes, objection: Objection) -> Refusal:
        """Return a signed refusal of the acceptor's."""
        content = _encoder.encode(objection)
        return Refusal(msgspec.Raw(content), self._mac(secret, b"refusal", content))

    def is_refused(self, secret: bytes, refusal: Refusal) -> bool:
        """Whether a refusal really comes from the acceptor."""
        return self._is_signed(secret, b"refusal", bytes(refusal.content), refusal.mac)
