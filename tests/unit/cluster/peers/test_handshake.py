"""The handshake's messages: what proves the secret, and that nothing recorded, sent back or changed does."""

import msgspec
import pytest

from cluster.peers import handshake
from cluster.peers.handshake import (
    Challenge,
    FirstParticulars,
    FirstProof,
    HandshakeState,
    Hello,
    Objection,
    Particulars,
    Proof,
    Refusal,
)

SECRET = b"0123456789abcdef"
PARTICULARS = Particulars("disk", "http://a", 3, rules=2)
OLD_NONCES = (b"1" * 32, b"2" * 32)
"""As release 0.1.0 makes them."""
NONCES = tuple(nonce[:24] + handshake.NONCE_MARK + b"\x02" for nonce in OLD_NONCES)
EXCHANGE = HandshakeState("a", "b", *NONCES)
NEW_EXCHANGE = HandshakeState("a", "b", *(nonce[:-1] + b"\x03" for nonce in NONCES))
OLD_EXCHANGE = HandshakeState("a", "b", *OLD_NONCES)
EXCHANGES = pytest.mark.parametrize(
    "exchange", [NEW_EXCHANGE, EXCHANGE, OLD_EXCHANGE], ids=["protocol 3", "protocol 2", "protocol 1"]
)


@EXCHANGES
@pytest.mark.parametrize("role", [b"dialer", b"acceptor"])
def test_who_knows_the_secret_is_proven(exchange: HandshakeState, role: bytes) -> None:
    """A proof made with the secret for this exchange and role holds, and vouches for the particulars."""
    theirs = exchange.proven(SECRET, role, exchange.prove(SECRET, role, PARTICULARS))
    assert theirs is not None
    assert (theirs.disk_id, theirs.http, theirs.members_version) == ("disk", "http://a", 3)
    assert theirs.rules == min(2, exchange.protocol), (
        "release 0.1.0 does not say what rules it knows: the first"
    )


@EXCHANGES
def test_another_secret_proves_nothing(exchange: HandshakeState) -> None:
    """Not even one that only begins alike."""
    for wrong in (b"another secret!!", SECRET + b"x", SECRET[:-1]):
        assert exchange.proven(SECRET, b"dialer", exchange.prove(wrong, b"dialer", PARTICULARS)) is None


@pytest.mark.parametrize(
    "other",
    [
        HandshakeState("a", "b", handshake.new_nonce(), NONCES[1]),
        HandshakeState("a", "b", NONCES[0], handshake.new_nonce()),
        HandshakeState("c", "b", *NONCES),
        HandshakeState("a", "c", *NONCES),
        HandshakeState("b", "a", NONCES[1], NONCES[0]),
        HandshakeState("ab", "", *NONCES),
        OLD_EXCHANGE,
    ],
)
def test_a_recorded_proof_is_worth_nothing_elsewhere(other: HandshakeState) -> None:
    """Other nonces, other nodes, or the same two the other way round: each needs a proof of its own."""
    recorded = EXCHANGE.prove(SECRET, b"dialer", PARTICULARS)
    assert other.proven(SECRET, b"dialer", recorded) is None


def forged(objection: Objection, mac: bytes) -> Refusal:
    """Return a refusal that somebody made."""
    return Refusal(msgspec.Raw(msgspec.msgpack.encode(objection)), mac)


@EXCHANGES
def test_a_proof_cannot_be_sent_back(exchange: HandshakeState) -> None:
    """The dialer's proof is not the acceptor's, and neither is a refusal."""
    proof = exchange.prove(SECRET, b"dialer", PARTICULARS)
    assert exchange.proven(SECRET, b"acceptor", proof) is None
    assert not exchange.is_refused(SECRET, forged(Objection(""), proof.mac))
    refusal = exchange.refuse(SECRET, Objection("reason"))
    assert exchange.proven(SECRET, b"acceptor", Proof(b"", refusal.mac)) is None


@pytest.mark.parametrize(
    "changed", [Particulars("other", "http://a"), Particulars("disk", "http://b"), Particulars("disk", "", 9)]
)
def test_the_proof_vouches_for_the_particulars(changed: Particulars) -> None:
    """Nobody in between can change the disk id, the address or a version."""
    mac = EXCHANGE.prove(SECRET, b"dialer", PARTICULARS).mac
    assert EXCHANGE.proven(SECRET, b"dialer", Proof(msgspec.msgpack.encode(changed), mac)) is None
    first = FirstParticulars(changed.disk_id, changed.http, changed.members_version)
    mac = OLD_EXCHANGE.prove(SECRET, b"dialer", PARTICULARS).mac
    assert OLD_EXCHANGE.proven(SECRET, b"dialer", FirstProof(first, mac)) is None


def test_a_proof_of_protocol_1_proves_nothing_in_protocol_2() -> None:
    """Not even with the right signature: what it has no room for would be taken as its default."""
    first = FirstParticulars("disk", "http://a", 3)
    proof = FirstProof(first, EXCHANGE._mac(SECRET, b"dialer", msgspec.msgpack.encode(first)))
    assert EXCHANGE.proven(SECRET, b"dialer", proof) is None


def test_particulars_of_a_later_release_are_signed_and_skipped() -> None:
    """A later release may tell more about itself: the proof signs bytes, whatever they say besides."""
    content = msgspec.msgpack.encode({"disk_id": "disk", "http": "", "rules": 9, "colour": "red"})
    proof = Proof(content, EXCHANGE._mac(SECRET, b"dialer", content))
    assert EXCHANGE.proven(SECRET, b"dialer", proof) == Particulars("disk", "", rules=9)


@pytest.mark.parametrize(
    ("last", "protocol"), [(b"\x00", 1), (b"\x01", 1), (b"\x02", 2), (b"\x03", 3), (b"\xff", 3)]
)
def test_the_newest_protocol_that_both_speak_is_spoken(last: bytes, protocol: int) -> None:
    """A nonce says what its maker speaks; a later release speaks ours with us."""
    ours = handshake.new_nonce()
    assert HandshakeState("a", "b", ours, NONCES[1][:-1] + last).protocol == protocol


@pytest.mark.parametrize(
    ("dialer", "acceptor"), [(NONCES[0], OLD_NONCES[1]), (OLD_NONCES[0], NONCES[1]), OLD_NONCES]
)
def test_nobody_in_between_can_make_two_nodes_speak_an_older_protocol(dialer: bytes, acceptor: bytes) -> None:
    """Whoever takes the mark out of a nonce on its way has no proof that the other side takes."""
    seen = HandshakeState("a", "b", dialer, acceptor)
    assert seen.protocol == 1
    assert EXCHANGE.proven(SECRET, b"dialer", seen.prove(SECRET, b"dialer", PARTICULARS)) is None
    assert seen.proven(SECRET, b"acceptor", EXCHANGE.prove(SECRET, b"acceptor", PARTICULARS)) is None
    one_side = HandshakeState("a", "b", NONCES[0], acceptor)
    if one_side != seen:
        assert one_side.proven(SECRET, b"dialer", seen.prove(SECRET, b"dialer", PARTICULARS)) is None


def test_every_nonce_is_another_one() -> None:
    """It is as long as release 0.1.0 demands and says what this release speaks."""
    nonces = {handshake.new_nonce() for _ in range(100)}
    assert len(nonces) == 100
    assert {len(nonce) for nonce in nonces} == {handshake.NONCE_BYTES}
    assert {handshake.protocol_of(nonce) for nonce in nonces} == {handshake.PROTOCOL_NEWEST}


@EXCHANGES
def test_a_refusal_cannot_be_forged(exchange: HandshakeState) -> None:
    """Only a peer that knows the secret can make a node stop, and only for the reason that it gave."""
    refusal = exchange.refuse(SECRET, Objection("another disk"))
    assert exchange.is_refused(SECRET, refusal)
    assert not exchange.is_refused(SECRET, forged(Objection("another reason"), refusal.mac))
    assert not exchange.is_refused(SECRET, forged(Objection("another disk", is_final=True), refusal.mac))
    assert not exchange.is_refused(SECRET, exchange.refuse(b"wrong", Objection("another disk")))
    assert not exchange.is_refused(SECRET, forged(Objection("another disk"), b""))


@EXCHANGES
def test_a_refusal_says_its_kind_where_it_is_known(exchange: HandshakeState) -> None:
    """From protocol 3 on; before that it is what release 0.1.0 signs, to the byte."""
    refusal = exchange.refuse(SECRET, Objection("gone", is_final=True, kind="removed"))
    assert exchange.is_refused(SECRET, refusal)
    if exchange.protocol >= handshake.PROTOCOL_SEALED:
        assert refusal.objection == Objection("gone", is_final=True, kind="removed")
        assert not exchange.is_refused(
            SECRET, forged(Objection("gone", is_final=True, kind="x"), refusal.mac)
        )
    else:
        assert bytes(refusal.content) == msgspec.msgpack.encode(("gone", True))


@pytest.mark.parametrize(
    "message",
    [
        Hello(1, "a", "b", b"n" * 32),
        Challenge(b"n" * 32),
        FirstProof(FirstParticulars("disk", "http://a"), b"mac"),
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
