"""How two nodes prove to each other that they know the cluster secret. Pure: messages in, messages out.

    dialer   -> hello      node id, whom it wants to reach, a nonce
    acceptor -> challenge  a nonce of its own
    dialer   -> proof      HMAC over both nonces and ids, and its particulars
    acceptor -> proof      likewise the other way round; or a refusal, signed too

Each side proves that it knows the secret without showing it, and no recorded exchange can be replayed: both
nonces are fresh. A stranger learns one random nonce. The link is authenticated when it opens, not encrypted.
"""

import hashlib
import hmac
from typing import Final

import msgspec

PROTOCOL: Final = 1
NONCE_BYTES: Final = 32


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """Says who dials whom."""

    protocol: int
    node_id: str
    to: str
    nonce: bytes


class Challenge(msgspec.Struct, frozen=True, tag="challenge"):
    """Asks the dialer to prove itself."""

    nonce: bytes


class Particulars(msgspec.Struct, frozen=True):
    """What the peers tell each other about themselves: their disk, and where clients reach them.

    `members_version` is that of the newest member list which the node knows to be committed.
    """

    disk_id: str
    http: str
    members_version: int = 0


class Proof(msgspec.Struct, frozen=True, tag="proof"):
    """Proves knowledge of the secret, and vouches for the particulars."""

    particulars: Particulars
    mac: bytes


class Objection(msgspec.Struct, frozen=True, array_like=True):
    """Why a peer that knows the secret is not let in.

    `is_final` if that stays true for ever: its disk was removed from the cluster. Everything else may be said
    by a node that is behind, or arrive late.
    """

    reason: str
    is_final: bool = False


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    """Tells a proven peer why it is not let in."""

    objection: Objection
    mac: bytes


Handshake = Hello | Challenge | Proof | Refusal
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Handshake] = msgspec.msgpack.Decoder(Handshake)


def encode(message: Handshake) -> bytes:
    """Return a handshake message as bytes."""
    return _encoder.encode(message)


def decode(data: bytes) -> Handshake:
    """Return the handshake message in `data`. Raises msgspec.DecodeError."""
    return _decoder.decode(data)


class Exchange(msgspec.Struct, frozen=True):
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

    def prove(self, secret: bytes, role: bytes, particulars: Particulars) -> Proof:
        """Return our proof; `role` is b"dialer" or b"acceptor", so that one side's cannot be sent back."""
        return Proof(particulars, self._mac(secret, role, _encoder.encode(particulars)))

    def is_proven(self, secret: bytes, role: bytes, proof: Proof) -> bool:
        """Whether the other side knows the secret."""
        return hmac.compare_digest(proof.mac, self._mac(secret, role, _encoder.encode(proof.particulars)))

    def refuse(self, secret: bytes, objection: Objection) -> Refusal:
        """Return a signed refusal of the acceptor's."""
        return Refusal(objection, self._mac(secret, b"refusal", _encoder.encode(objection)))

    def is_refused(self, secret: bytes, refusal: Refusal) -> bool:
        """Whether a refusal really comes from the acceptor."""
        content = _encoder.encode(refusal.objection)
        return hmac.compare_digest(refusal.mac, self._mac(secret, b"refusal", content))
