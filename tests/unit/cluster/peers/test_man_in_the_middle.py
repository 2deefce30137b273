"""Somebody between two nodes who does not know the secret: at any byte of a link, whatever they do.

Both ends are real links; what one writes passes through the hands of `Man` before the other reads it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.config_secrets import Secrets
from cluster.peers.certificate_names import Shown
from cluster.peers.cuts import Cut, Cuts
from cluster.peers.handshake import HandshakeState, LogPosition, Objection, Particulars, PeerProgress
from cluster.peers.link import FrameKind, Link
from cluster.peers.secret_use import SecretsSaid, SecretUse

SECRET: Final = b"the secret of this cluster"
NEWER_TERM: Final = msgspec.msgpack.encode((FrameKind.RAFT, 0, {"type": "newer_term", "term": 2**64 - 1}))
"""What made all nodes of a cluster stop, after each restart again: a term that is stored."""


class Node:
    """What a link asks of its node; it writes down what it hears."""

    def __init__(self, node_id: str) -> None:
        self.node_id = node_id
        self.secrets = SecretUse(Secrets(SECRET))
        self.cuts = Cuts(asyncio.get_running_loop().time)
        self.heard: list[tuple[int, Any]] = []
        self.is_up = False
        self.refusals: list[str] = []

    def particulars(self, peer_id: str) -> Particulars:
        """Return what this node tells about itself."""
        assert peer_id != self.node_id
        return Particulars(f"disk-{self.node_id}", "http://x", rules=3)

    def certificate_fault(self, shown: Shown | None, peer_id: str) -> None:
        """Find none: there is no TLS here."""
        assert shown is None
        assert peer_id

    def is_peer(self, node_id: str) -> bool:
        """Whether it is one of the others."""
        return node_id != self.node_id

    def progress(self, peer_id: str) -> PeerProgress:
        """Know nothing of it."""
        assert peer_id != self.node_id
        return PeerProgress({}, LogPosition(0, 0))

    def objection(self, peer_id: str, theirs: Particulars, progress: PeerProgress) -> Objection | None:
        """Let everybody in who is who they say they are."""
        assert progress == PeerProgress({}, LogPosition(0, 0))
        assert (theirs.disk_id, theirs.http) == (f"disk-{peer_id}", "http://x")
        return None

    def begun(self, _: Link) -> None:
        """Do nothing."""

    def opened(self, _: Link) -> None:
        """Note."""
        self.is_up = True

    def closed(self, _: Link) -> None:
        """Do nothing."""

    def received(self, _: Link, kind: int, body: msgspec.Raw) -> None:
        """Note."""
        self.heard.append((kind, msgspec.msgpack.decode(body)))

    def secrets_said(self, link: Link, exchange: HandshakeState, said: SecretsSaid) -> None:
        """Note."""
        assert link.secret == SECRET
        self.heard.append((FrameKind.SECRETS, said == self.secrets.saying(exchange, link.peer_id)))

    def refused(self, _: str, objection: Objection, *, dialed: str) -> None:
        """Note."""
        del dialed
        self.refusals.append(objection.reason)


@dataclass
class Man:
    """Does one thing at one place of one direction. `other` stands in the other direction."""

    at: int = -1
    do: Callable[["Man"], bytes] = lambda _: b""
    drops: int = 0
    """How many bytes behind that place do not get through."""
    passed: bytes = b""
    """Everything that was sent."""
    other: "Man | None" = None

    def pass_on(self, data: bytes) -> bytes:
        """Return what gets through of these bytes."""
        out = bytearray()
        for number, byte in enumerate(data, len(self.passed)):
            if number == self.at:
                out += self.do(self)
            self.passed += bytes((byte,))
            if not self.at <= number < self.at + self.drops:
                out.append(byte)
        return bytes(out)


@dataclass
class Wire:
    """The transport of one end: what it writes waits until the test carries it over."""

    man: Man
    written: bytearray = field(default_factory=bytearray)
    is_gone: bool = False

    def write(self, data: bytes) -> None:
        """Keep what gets through."""
        self.written += self.man.pass_on(data)

    def get_write_buffer_size(self) -> int:
        """Return that nothing waits."""
        return 0

    def get_extra_info(self, name: str) -> str:
        """Return an address."""
        return name

    def abort(self) -> None:
        """Be gone."""
        self.is_gone = True

    close = abort


class Pair:
    """Node a dials node b through two men, one for each direction."""

    def __init__(
        self, to_b: Man | None = None, to_a: Man | None = None, nodes: tuple[Node, Node] | None = None
    ) -> None:
        self.a, self.b = nodes or (Node("a"), Node("b"))
        self.men = (to_b or Man(), to_a or Man())
        self.men[0].other, self.men[1].other = self.men[1], self.men[0]
        self.wires = [Wire(man) for man in self.men]
        self.links = [Link(self.a, dials="b"), Link(self.b)]
        for link, wire in zip(reversed(self.links), reversed(self.wires), strict=True):
            link.connection_made(cast("asyncio.Transport", wire))
        self.carry()

    def carry(self, piece_bytes: int = 1 << 20) -> None:
        """Carry what was written to the other end, until nothing is written any more."""
        while any(wire.written for wire in self.wires):
            for wire, link in zip(self.wires, reversed(self.links), strict=True):
                data = bytes(wire.written)
                wire.written.clear()
                for start in range(0, len(data), piece_bytes):
                    if not self.wires[self.links.index(link)].is_gone:
                        link.data_received(data[start : start + piece_bytes])

    def say(self, sender: int, frames: list[tuple[FrameKind, Any]]) -> None:
        """Send frames, two at a time."""
        for number, (kind, body) in enumerate(frames):
            self.links[sender].send(kind, body)
            if number % 2:
                self.links[sender].flush()
        self.links[sender].flush()

    def end(self) -> None:
        """Let go."""
        for link in self.links:
            link.connection_lost(None)


HANDED_ON = [kind for kind in FrameKind if kind not in (FrameKind.REFUSED, FrameKind.SECRETS)]
"""What a link does not read itself."""
FRAMES = st.lists(
    st.tuples(st.sampled_from(HANDED_ON), st.integers(0, 9) | st.binary(max_size=60)), min_size=1, max_size=8
)
INSERTED = st.one_of(
    st.binary(min_size=1, max_size=80),
    st.just(len(NEWER_TERM).to_bytes(4, "big") + NEWER_TERM),
    st.just((len(NEWER_TERM) + 4).to_bytes(4, "big") + bytes(16) + bytes(3) + b"\x25" + NEWER_TERM),
)
Attack = tuple[Callable[["Man"], bytes], int]
ATTACKS = st.one_of(
    st.builds(lambda data: (lambda _: data, 0), INSERTED),
    st.builds(lambda count: (lambda _: b"", count), st.integers(1, 300)),
    st.builds(lambda count: (lambda man: man.passed[-count:], 0), st.integers(1, 300)),
    st.builds(lambda count: (lambda man: man.other.passed[-count:], 0), st.integers(1, 300)),
    st.builds(lambda data: (lambda _: data, len(data)), INSERTED),
)
"""Bytes put in, taken out, repeated, sent back to where they came from, replaced."""


@given(st.tuples(FRAMES, FRAMES), st.sampled_from([0, 1]), st.integers(0, 900), ATTACKS, st.integers(1, 400))
def test_nobody_in_between_is_ever_heard(
    said: tuple[list[Any], list[Any]], side: int, at: int, attack: Attack, piece_bytes: int
) -> None:
    """At any byte of a link, its handshake included: each side hears the beginning of what the other said."""

    async def run() -> None:
        do, drops = attack
        man = Man(at, do, drops)
        pair = Pair(man if side == 0 else None, man if side == 1 else None)
        if pair.a.is_up:
            pair.say(0, said[0])
        if pair.b.is_up:
            pair.say(1, said[1])
        pair.carry(piece_bytes)
        for node, frames in ((pair.a, said[1]), (pair.b, said[0])):
            assert node.heard == [tuple(frame) for frame in frames][: len(node.heard)]
            assert node.refusals == []
        if at >= len(man.passed):
            assert (len(pair.a.heard), len(pair.b.heard)) == (len(said[1]), len(said[0]))
        pair.end()

    asyncio.run(run())


@given(FRAMES, st.integers(0, 8 * 900))
def test_no_bit_can_be_changed(frames: list[Any], bit: int) -> None:
    """What is behind a changed bit is not heard, and if it is in a whole record, the link ends as forged."""

    async def run() -> None:
        class Flipper(Man):
            def pass_on(self, data: bytes) -> bytes:
                start = len(self.passed)
                self.passed += data
                if not start <= bit // 8 < start + len(data):
                    return data
                changed = bytearray(data)
                changed[bit // 8 - start] ^= 1 << bit % 8
                return bytes(changed)

        pair = Pair(Flipper())
        handshake_bytes = len(pair.men[0].passed)
        was_up = pair.b.is_up
        if pair.a.is_up:
            pair.say(0, frames)
            pair.carry()
        assert pair.b.heard == [tuple(frame) for frame in frames][: len(pair.b.heard)]
        if was_up and handshake_bytes <= bit // 8 < len(pair.men[0].passed):
            assert len(pair.b.heard) < len(frames)
        pair.end()

    asyncio.run(run())


async def test_an_injected_frame_ends_the_link_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    """37 bytes behind the handshake stopped a whole cluster for good; now they cost a connection."""
    pair = Pair()
    assert pair.a.is_up
    assert pair.b.is_up
    pair.links[1].heard_s = long_ago_s = -1.0
    pair.links[1].data_received(len(NEWER_TERM).to_bytes(4, "big") + NEWER_TERM)
    assert pair.links[1].heard_s == long_ago_s, "they come from nobody"
    pair.say(0, [(FrameKind.PING, "behind it")])
    pair.carry()
    assert pair.b.heard == []
    assert pair.wires[1].is_gone
    assert pair.b.cuts.counts == {Cut.FORGED: 1}
    assert "event=peer-rejected peer=a" in caplog.text
    assert "cut=forged" in caplog.text
    pair.end()


async def test_recorded_links_open_nothing() -> None:
    """Every byte of a link that was recorded, sent again to the same node on a new connection."""
    pair = Pair()
    pair.say(0, [(FrameKind.CHANGE, "remove n3")])
    pair.carry()
    assert pair.b.heard == [(FrameKind.CHANGE, "remove n3")]
    wire, again = Wire(Man()), Link(pair.b)
    again.connection_made(cast("asyncio.Transport", wire))
    again.data_received(pair.men[0].passed)
    assert wire.is_gone
    assert len(pair.b.heard) == 1
    assert pair.b.cuts.counts == {Cut.SECRET: 1}
    pair.end()
    again.connection_lost(None)
