"""The handshake's messages: what proves the secret, and that nothing recorded, sent back or changed does."""

import msgspec
import pytest

from cluster.peers import handshake
from cluster.peers.handshake import Challenge, Exchange, Hello, Objection, Particulars, Proof, Refusal

SECRET = b"0123456789abcdef"
PARTICULARS = Particulars("disk", "http://a")
EXCHANGE = Exchange("a", "b", b"1" * 32, b"2" * 32)


@pytest.mark.parametrize("role", [b"dialer", b"acceptor"])
def test_who_knows_the_secret_is_proven(role: bytes) -> None:
    """A proof made with the secret for this exchange and role holds."""
    proof = EXCHANGE.prove(SECRET, role, PARTICULARS)
    assert EXCHANGE.is_proven(SECRET, role, proof)
    assert proof.particulars == PARTICULARS


def test_another_secret_proves_nothing() -> None:
    """Not even one that only begins alike."""
    for wrong in (b"another secret!!", SECRET + b"x", SECRET[:-1]):
        assert not EXCHANGE.is_proven(SECRET, b"dialer", EXCHANGE.prove(wrong, b"dialer", PARTICULARS))


@pytest.mark.parametrize(
    "other",
    [
        Exchange("a", "b", b"3" * 32, b"2" * 32),
        Exchange("a", "b", b"1" * 32, b"3" * 32),
        Exchange("c", "b", b"1" * 32, b"2" * 32),
        Exchange("a", "c", b"1" * 32, b"2" * 32),
        Exchange("b", "a", b"2" * 32, b"1" * 32),
        Exchange("ab", "", b"1" * 32, b"2" * 32),
    ],
)
def test_a_recorded_proof_is_worth_nothing_elsewhere(other: Exchange) -> None:
    """Other nonces, other nodes, or the same two the other way round: each needs a proof of its own."""
    recorded = EXCHANGE.prove(SECRET, b"dialer", PARTICULARS)
    assert not other.is_proven(SECRET, b"dialer", recorded)


def test_a_proof_cannot_be_sent_back() -> None:
    """The dialer's proof is not the acceptor's, and neither is a refusal."""
    proof = EXCHANGE.prove(SECRET, b"dialer", PARTICULARS)
    assert not EXCHANGE.is_proven(SECRET, b"acceptor", proof)
    assert not EXCHANGE.is_refused(SECRET, Refusal(Objection(""), proof.mac))
    refusal = EXCHANGE.refuse(SECRET, Objection("reason"))
    assert not EXCHANGE.is_proven(SECRET, b"acceptor", Proof(PARTICULARS, refusal.mac))


@pytest.mark.parametrize("changed", [Particulars("other", "http://a"), Particulars("disk", "http://b")])
def test_the_proof_vouches_for_the_particulars(changed: Particulars) -> None:
    """Nobody in between can change the disk id or the address."""
    proof = EXCHANGE.prove(SECRET, b"dialer", PARTICULARS)
    assert not EXCHANGE.is_proven(SECRET, b"dialer", Proof(changed, proof.mac))


def test_a_refusal_cannot_be_forged() -> None:
    """Only who knows the secret can make a node stop, and only for the reason that it gave."""
    refusal = EXCHANGE.refuse(SECRET, Objection("another disk"))
    assert EXCHANGE.is_refused(SECRET, refusal)
    assert not EXCHANGE.is_refused(SECRET, Refusal(Objection("another reason"), refusal.mac))
    assert not EXCHANGE.is_refused(SECRET, Refusal(Objection("another disk", is_final=True), refusal.mac))
    assert not EXCHANGE.is_refused(SECRET, EXCHANGE.refuse(b"wrong", Objection("another disk")))
    assert not EXCHANGE.is_refused(SECRET, Refusal(Objection("another disk"), b""))


@pytest.mark.parametrize(
    "message",
    [
        Hello(1, "a", "b", b"n" * 32),
        Challenge(b"n" * 32),
        Proof(PARTICULARS, b"mac"),
        Refusal(Objection("reason"), b"mac"),
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
