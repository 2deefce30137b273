"""The handshake's messages: what proves the secret, and that nothing recorded, sent back or changed does."""

import msgspec
import pytest

from cluster.peers import handshake
from cluster.peers.handshake import Challenge, HandshakeState, Hello, Objection, Particulars, Proof, Refusal
from cluster.peers.sealing import Opener, SealBroken, Sealer

SECRET = b"0123456789abcdef"
PARTICULARS = Particulars("disk", "http://a", 3, rules=2)
NONCES = (b"1" * 32, b"2" * 32)
EXCHANGE = HandshakeState("a", "b", *NONCES)


@pytest.mark.parametrize("role", [b"dialer", b"acceptor"])
def test_who_knows_the_secret_is_proven(role: bytes) -> None:
    """A proof made with the secret for this exchange and role holds, and vouches for the particulars."""
    theirs = EXCHANGE.proven(SECRET, role, EXCHANGE.prove(SECRET, role, PARTICULARS))
    assert theirs == PARTICULARS


def test_another_secret_proves_nothing() -> None:
    """Not even one that only begins alike."""
    for wrong in (b"another secret!!", SECRET + b"x", SECRET[:-1]):
        assert EXCHANGE.proven(SECRET, b"dialer", EXCHANGE.prove(wrong, b"dialer", PARTICULARS)) is None


@pytest.mark.parametrize(
    "other",
    [
        HandshakeState("a", "b", handshake.new_nonce(), NONCES[1]),
        HandshakeState("a", "b", NONCES[0], handshake.new_nonce()),
        HandshakeState("c", "b", *NONCES),
        HandshakeState("a", "c", *NONCES),
        HandshakeState("b", "a", NONCES[1], NONCES[0]),
        HandshakeState("ab", "", *NONCES),
    ],
)
def test_a_recorded_proof_is_worth_nothing_elsewhere(other: HandshakeState) -> None:
    """Other nonces, other nodes, or the same two the other way round: each needs a proof of its own."""
    recorded = EXCHANGE.prove(SECRET, b"dialer", PARTICULARS)
    assert other.proven(SECRET, b"dialer", recorded) is None


def forged(objection: Objection, mac: bytes) -> Refusal:
    """Return a refusal that somebody made."""
    return Refusal(msgspec.Raw(msgspec.msgpack.encode(objection)), mac)


def test_a_proof_cannot_be_sent_back() -> None:
    """The dialer's proof is not the acceptor's, and neither is a refusal."""
    proof = EXCHANGE.prove(SECRET, b"dialer", PARTICULARS)
    assert EXCHANGE.proven(SECRET, b"acceptor", proof) is None
    assert not EXCHANGE.is_refused(SECRET, forged(Objection(""), proof.mac))
    refusal = EXCHANGE.refuse(SECRET, Objection("reason"))
    assert EXCHANGE.proven(SECRET, b"acceptor", Proof(b"", refusal.mac)) is None


@pytest.mark.parametrize(
    "changed", [Particulars("other", "http://a"), Particulars("disk", "http://b"), Particulars("disk", "", 9)]
)
def test_the_proof_vouches_for_the_particulars(changed: Particulars) -> None:
    """Nobody in between can change the disk id, the address or a version."""
    mac = EXCHANGE.prove(SECRET, b"dialer", PARTICULARS).mac
    assert EXCHANGE.proven(SECRET, b"dialer", Proof(msgspec.msgpack.encode(changed), mac)) is None


def test_particulars_of_a_later_release_are_signed_and_skipped() -> None:
    """A later release may tell more about itself: the proof signs bytes, whatever they say besides."""
    content = msgspec.msgpack.encode({"disk_id": "disk", "http": "", "rules": 9, "colour": "red"})
    proof = Proof(content, EXCHANGE._mac(SECRET, b"dialer", content))
    assert EXCHANGE.proven(SECRET, b"dialer", proof) == Particulars("disk", "", rules=9)


def test_every_nonce_is_another_one() -> None:
    """Nothing of an exchange can be used in another one."""
    nonces = {handshake.new_nonce() for _ in range(100)}
    assert len(nonces) == 100
    assert {len(nonce) for nonce in nonces} == {handshake.NONCE_BYTES}


def test_a_refusal_cannot_be_forged() -> None:
    """Only a peer that knows the secret can make a node stop, and only for the reason that it gave."""
    objection = Objection("another disk", kind="other-disk")
    refusal = EXCHANGE.refuse(SECRET, objection)
    assert refusal.objection == objection
    assert EXCHANGE.is_refused(SECRET, refusal)
    assert not EXCHANGE.is_refused(SECRET, forged(Objection("another reason"), refusal.mac))
    assert not EXCHANGE.is_refused(SECRET, forged(Objection("another disk", is_final=True), refusal.mac))
    assert not EXCHANGE.is_refused(SECRET, EXCHANGE.refuse(b"wrong", Objection("another disk")))
    assert not EXCHANGE.is_refused(SECRET, forged(Objection("another disk"), b""))


@pytest.mark.parametrize(
    "message",
    [
        Hello(1, "a", "b", b"n" * 32),
        Challenge(b"n" * 32),
        Proof(b"content", b"mac"),
        forged(Objection("reason"), b"mac"),
    ],
)
def test_messages_travel_as_bytes(message: handshake.Handshake) -> None:
    """What is encoded comes back."""
    assert handshake.decode(handshake.encode(message)) == message


@pytest.mark.parametrize("data", [b"", b"\xc0", b"GET / HTTP/1.1\r\n", b"\x81\xa4type\xa5other", b"\x80"])
def test_other_bytes_are_no_message(data: bytes) -> None:
    """They raise what the link expects."""
    with pytest.raises(msgspec.DecodeError):
        handshake.decode(data)


def test_each_direction_of_a_link_has_a_key_of_its_own() -> None:
    """What a node has sent is not taken by that node when somebody sends it back."""
    keys = EXCHANGE.keys(SECRET, b"proof of the dialer", b"proof of the acceptor")
    for sends, hears in ((keys.dialer, keys.acceptor), (keys.acceptor, keys.dialer)):
        record = Sealer(sends).seal(b"said")
        with pytest.raises(SealBroken):
            list(Opener(hears).open(record))
        assert b"".join(Opener(sends).open(record)) == b"said"


@pytest.mark.parametrize(
    "proofs", [(b"one", b"else"), (b"else", b"two"), (b"two", b"one")], ids=["one", "other", "swapped"]
)
def test_the_keys_follow_from_all_that_was_said(proofs: tuple[bytes, bytes]) -> None:
    """Two sides that understood each other differently have nothing to say."""
    keys = EXCHANGE.keys(SECRET, b"one", b"two")
    assert not {*keys} & {*EXCHANGE.keys(SECRET, *proofs)}
    assert not {*keys} & {*EXCHANGE.keys(b"another secret of sixteen", b"one", b"two")}
