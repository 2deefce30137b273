"""Links over real sockets: who gets in, frames in order, what becomes of dead connections."""

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest

from cluster.config import Address
from cluster.config_secrets import Secrets
from cluster.consensus.messages import NewerTerm
from cluster.errors import NodeFailed, PeerContradicts, PeerFault, StartupError
from cluster.peers import handshake, strangers
from cluster.peers import link as link_module
from cluster.peers import links as transport_module
from cluster.peers.channels import Published
from cluster.peers.cuts import Cut
from cluster.peers.handshake import (
    Challenge,
    HandshakeState,
    Hello,
    LogPosition,
    Objection,
    Particulars,
    PeerProgress,
    Proof,
    Refusal,
)
from cluster.peers.link import FrameKind
from cluster.peers.links import PeerLinks
from cluster.peers.peer_tls import PeerTls
from cluster.peers.peering import Peering
from cluster.peers.sealing import RECORD_BYTES_MAX, Opener, Sealer

SECRET = b"the secret of this cluster"
DEADLINE_S = 20
NONCE = b"n" * handshake.NONCE_BYTES
LENGTH = struct.Struct(">I")


class Host:
    """A node that writes down what its links tell it."""

    def __init__(self, node_id: str) -> None:
        self.node_id = node_id
        self.log: list[tuple[Any, ...]] = []
        self.objections: dict[str, Objection] = {}
        self.faults: list[Exception] = []
        self.asked_count = 0
        self.known: list[PeerProgress] = []

    def particulars(self, peer_id: str) -> Particulars:
        """Return what this node tells about itself."""
        assert peer_id != self.node_id
        return Particulars(f"disk-{self.node_id}", f"http://{self.node_id}", rules=2)

    def progress(self, peer_id: str) -> PeerProgress:
        """Tell how often this was asked, as if that were an entry."""
        assert peer_id != self.node_id
        self.asked_count += 1
        return PeerProgress({}, LogPosition(0, self.asked_count))

    def objection(
        self, peer_id: str, theirs: Particulars, *, is_known: bool, progress: PeerProgress
    ) -> Objection | None:
        """Object if told so, or to strangers."""
        self.known.append(progress)
        assert theirs.disk_id == f"disk-{peer_id}"
        return self.objections.get(peer_id, None if is_known else Objection("a stranger"))

    def peer_up(self, peer_id: str) -> None:
        """Note."""
        self.log.append(("up", peer_id))

    def peer_down(self, peer_id: str, *, is_replaced: bool) -> None:
        """Note."""
        self.log.append(("replaced" if is_replaced else "down", peer_id))

    def frame(self, peer_id: str, kind: int, body: msgspec.Raw) -> None:
        """Note, pings excepted; find fault if told so."""
        if self.faults:
            raise self.faults.pop()
        if kind != FrameKind.PING:
            self.log.append((FrameKind(kind).name, peer_id, msgspec.msgpack.decode(body)))

    def refused(self, peer_id: str, objection: Objection, *, dialed: str) -> None:
        """Note."""
        self.log.append(("refused" if dialed else "refused-by-dialer", peer_id, objection.reason))

    def ping(self) -> Any:
        """Return nothing of interest."""
        return (0, "follower")

    def broke(self, error: BaseException) -> None:
        """Note."""
        self.log.append(("broke", type(error)))


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition; fail after the deadline."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - conditions of sockets and logs set no event
            await asyncio.sleep(0.002)


def anywhere(bound: Sequence[Address]) -> None:
    """Listen at any address."""
    assert bound, "a server listens somewhere"


def free_address() -> Address:
    """Return an address of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return Address("127.0.0.1", probe.getsockname()[1])


@asynccontextmanager
async def node(
    node_id: str, addresses: dict[str, Address], secret: bytes = SECRET, tls: PeerTls | None = None
) -> AsyncIterator[tuple[PeerLinks, Host]]:
    """Run the links of a node."""
    host = Host(node_id)
    peers = {peer_id: address for peer_id, address in addresses.items() if peer_id != node_id}
    links = PeerLinks(node_id, Secrets(secret), peers, tls=tls)
    links.host = cast("Peering", host)
    await links.start(addresses[node_id], anywhere)
    try:
        yield links, host
    finally:
        await links.stop()
        await until(lambda: not links._all)


@asynccontextmanager
async def acceptor() -> AsyncIterator[tuple[PeerLinks, Host, Address]]:
    """Run node b, which waits to be dialed by a."""
    addresses = {"a": free_address(), "b": free_address()}
    async with node("b", addresses) as (links, host):
        yield links, host, addresses["b"]


A = Particulars("disk-a", "http://a", rules=2)


class Raw:
    """A connection made by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._sealer: Sealer | None = None
        self._opener: Opener | None = None
        self._opened = b""

    def sealed(self, data: bytes) -> bytes:
        """Return bytes as they travel: in records, once the handshake is over."""
        return data if self._sealer is None else self._sealer.seal(data)

    def send(self, frame: bytes) -> None:
        """Send one frame."""
        self.writer.write(self.sealed(LENGTH.pack(len(frame)) + frame))

    def say(self, body: object, kind: FrameKind = FrameKind.RAFT) -> None:
        """Send a frame of the only group."""
        self.send(msgspec.msgpack.encode((kind, 0, body)))

    async def receive(self) -> bytes:
        """Return the next frame; what is said of secrets is left out."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                (length,) = LENGTH.unpack(await self._read(LENGTH.size))
                frame = await self._read(length)
                if self._opener is None or frame[1] != FrameKind.SECRETS:
                    return frame

    async def _read(self, length: int) -> bytes:
        """Return so many bytes of the stream that is in the records."""
        if self._opener is None:
            return await self.reader.readexactly(length)
        while len(self._opened) < length:
            self._opened += b"".join(self._opener.open(await self.reader.read(1 << 16)))
        read, self._opened = self._opened[:length], self._opened[length:]
        return read

    async def rest(self) -> bytes:
        """Return what comes until the other side hangs up."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await self.reader.read(-1)
        except ConnectionResetError:
            return b""

    async def hello(self, to: str = "b", node_id: str = "a") -> HandshakeState:
        """Say hello and take the challenge."""
        self.send(handshake.encode(Hello(handshake.PROTOCOL, node_id, to, NONCE)))
        challenge = handshake.decode(await self.receive())
        assert isinstance(challenge, Challenge)
        return HandshakeState(node_id, to, NONCE, challenge.nonce)

    async def get_in(self, ours: Particulars = A) -> Particulars:
        """Make the whole handshake as node a; return what node b tells of itself."""
        exchange = await self.hello()
        own = exchange.prove(SECRET, b"dialer", ours)
        self.send(handshake.encode(own))
        proof = handshake.decode(await self.receive())
        assert isinstance(proof, Proof)
        theirs = exchange.proven(SECRET, b"acceptor", proof)
        assert theirs is not None
        keys = exchange.keys(SECRET, own.content, proof.content)
        self._sealer, self._opener = Sealer(keys.dialer), Opener(keys.acceptor)
        return theirs


@asynccontextmanager
async def raw(address: Address) -> AsyncIterator[Raw]:
    """Connect by hand."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        yield Raw(reader, writer)
    finally:
        writer.transport.abort()


# -- between nodes ------------------------------------------------------------------------------------------


async def test_two_nodes_find_each_other_and_talk() -> None:
    """Whoever starts first: the one with the smaller id dials until it gets through; frames come in order."""
    addresses = {"a": free_address(), "b": free_address()}
    async with node("a", addresses) as (a_links, a_host):
        assert not a_links.send("b", FrameKind.RAFT, {"type": "lost"})
        async with node("b", addresses) as (b_links, b_host):
            await until(lambda: a_links.is_up("b") and b_links.is_up("a"))
            for number in range(100):
                assert a_links.send("b", FrameKind.RAFT, number)
                assert b_links.send("a", FrameKind.FORWARD, number)
            await until(lambda: len(a_host.log) == len(b_host.log) == 101)
            assert b_host.log == [("up", "a"), *[("RAFT", "a", number) for number in range(100)]]
            assert a_host.log == [("up", "b"), *[("FORWARD", "b", number) for number in range(100)]]
            assert a_links.up() == {"b"}
        await until(lambda: a_host.log[-1] == ("down", "b"))
        async with node("b", addresses):
            await until(lambda: a_links.is_up("b"))


async def test_messages_of_clients_go_to_peers_that_keep_up() -> None:
    """One that has much to take in already misses them: it costs no more memory."""
    addresses = {"a": free_address(), "b": free_address()}
    async with node("a", addresses) as (a_links, _), node("b", addresses) as (b_links, b_host):
        await until(lambda: a_links.is_up("b") and b_links.is_up("a"))
        a_links.publish(Published("redis/0/a", b"1"))
        a_links.send("b", FrameKind.RAFT, b"x" * 3_000_000)
        a_links.publish(Published("redis/0/a", b"missed"))
        a_links.send("b", FrameKind.RAFT, "last")
        a_links.send_now(())
        await until(lambda: b_host.log[-1] == ("RAFT", "a", "last"))
        assert [said for kind, _, said in b_host.log[1:] if kind == "PUBLISHED"] == [["redis/0/a", b"1"]]


async def test_raft_messages_take_along_what_waits() -> None:
    """Nothing of it waits for the end of this run of the loop; who is not connected misses them."""
    addresses = {"a": free_address(), "b": free_address()}
    async with node("a", addresses) as (a_links, _), node("b", addresses) as (b_links, b_host):
        await until(lambda: a_links.is_up("b") and b_links.is_up("a"))
        link = a_links._open["b"]
        a_links.send("b", FrameKind.FORWARD, 1)
        waiting_bytes = link.backlog_bytes
        a_links.send_now([("b", NewerTerm(term=2)), ("c", NewerTerm(term=3)), ("b", NewerTerm(term=4))])
        assert (waiting_bytes > 0, link.backlog_bytes) == (True, 0)
        await until(lambda: len(b_host.log) == 4)
        assert [(kind, said if kind == "FORWARD" else said["term"]) for kind, _, said in b_host.log[1:]] == [
            ("FORWARD", 1),
            ("RAFT", 2),
            ("RAFT", 4),
        ]


async def test_large_frames_come_whole() -> None:
    """A frame of many segments, ahead of a small one, arrives unchanged."""
    addresses = {"a": free_address(), "b": free_address()}
    async with node("a", addresses) as (a_links, _), node("b", addresses) as (_, b_host):
        await until(lambda: a_links.is_up("b"))
        a_links.send("b", FrameKind.RAFT, b"x" * 5_000_000)
        a_links.send("b", FrameKind.RAFT, "small")
        a_links.send_now(())
        await until(lambda: len(b_host.log) == 3)
        assert b_host.log[1:] == [("RAFT", "a", b"x" * 5_000_000), ("RAFT", "a", "small")]


async def test_nodes_with_different_secrets_stay_apart(caplog: pytest.LogCaptureFixture) -> None:
    """Neither lets the other in, and both logs say why."""
    caplog.set_level(logging.INFO)
    addresses = {"a": free_address(), "b": free_address()}
    async with node("a", addresses) as (a_links, a_host), node("b", addresses, b"another one") as (_, b_host):
        await until(lambda: "does not know the cluster secret" in caplog.text)
        await until(lambda: "event=link-refused peer=b" in caplog.text)
        assert not a_links.is_up("b")
        assert a_host.log == b_host.log == []


async def test_a_peer_is_judged_by_what_was_known_before_it_was_asked() -> None:
    """Both sides ask for a proof once, and hand on what was known then."""
    addresses = {"a": free_address(), "b": free_address()}
    async with node("b", addresses) as (_, b_host), node("a", addresses) as (_, a_host):
        await until(lambda: ("up", "b") in a_host.log and ("up", "a") in b_host.log)
        for host in (a_host, b_host):
            assert [known.acknowledged.entry for known in host.known] == [host.asked_count] == [1]


async def test_a_refused_dialer_is_told_why() -> None:
    """The acceptor's objection reaches the dialer, signed; no link opens."""
    addresses = {"a": free_address(), "b": free_address()}
    async with node("b", addresses) as (b_links, b_host):
        b_host.objections["a"] = Objection("another disk")
        async with node("a", addresses) as (a_links, a_host):
            await until(lambda: a_host.log)
            assert a_host.log[0] == ("refused", "b", "another disk")
            assert not a_links.is_up("b")
            assert not b_links.is_up("a")
            assert b_host.log == []


async def test_a_refused_acceptor_is_told_why() -> None:
    """The dialer's objection is the only frame of a link that never opens on its side."""
    addresses = {"a": free_address(), "b": free_address()}
    async with node("b", addresses) as (_, b_host), node("a", addresses) as (a_links, a_host):
        a_host.objections["b"] = Objection("another disk")
        for link in list(a_links._all):
            link.close("again")
        await until(lambda: ("refused-by-dialer", "a", "another disk") in b_host.log)
        await until(lambda: b_host.log[-1] == ("down", "a"))
        assert not a_links.is_up("b")


@pytest.mark.parametrize("dialer", ["a", "c"])
async def test_a_peer_is_looked_for_where_the_configuration_says_too(dialer: str) -> None:
    """A wrong address in the list only takes time, whichever side dials; one told later ends no link."""
    b, wrong = free_address(), free_address()
    host = Host(dialer)
    links = PeerLinks(dialer, Secrets(SECRET), {"b": wrong}, configured={"b": b})
    links.host = cast("Peering", host)
    async with node("b", {"b": b}) as (b_links, b_host):
        b_links.set_peers({dialer: wrong})
        await links.start(free_address(), anywhere)
        await until(lambda: links.is_up("b"))
        links.set_peers({"b": free_address()})
        links.send("b", FrameKind.RAFT, "still here")
        await until(lambda: ("RAFT", dialer, "still here") in b_host.log)
        assert links.is_up("b")
        assert ("down", "b") not in host.log
        await links.stop()


async def test_an_address_that_is_taken_is_a_clear_error() -> None:
    """The node does not start, and says which address it wanted."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = Address("127.0.0.1", taken.getsockname()[1])
        links = PeerLinks("a", Secrets(SECRET), {})
        links.host = cast("Peering", Host("a"))
        with pytest.raises(StartupError, match=str(address)):
            await links.start(address, anywhere)
        await links.stop()


async def test_nobody_is_let_in_before_the_address_is_allowed() -> None:
    """The answer is given on what was bound, of which a name may be several; who is refused never listens."""
    bound: list[Address] = []

    def refuse(addresses: Sequence[Address]) -> None:
        bound.extend(addresses)
        for address in addresses:
            with socket.socket() as client, pytest.raises(ConnectionRefusedError):
                client.connect(address)
        raise StartupError("not here")

    host = Host("a")
    links = PeerLinks("a", Secrets(SECRET), {"b": free_address()})
    links.host = cast("Peering", host)
    with pytest.raises(StartupError, match="not here"):
        await links.start(Address("localhost", 0), refuse)
    assert {address.host for address in bound} <= {"127.0.0.1", "::1"}
    assert bound
    assert all(address.port for address in bound)
    await links.stop()
    assert host.log == []


@pytest.mark.parametrize("broken", ["_watch", "_keep_dialing"])
async def test_a_node_whose_links_are_not_kept_any_more_stops(
    monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """Memory that runs out where peers are dialed or pinged is told; an ordinary stop is not."""

    async def run_out(*_: object) -> None:
        raise MemoryError

    addresses = {"a": free_address(), "b": free_address()}
    async with node("a", addresses) as (_, host):
        pass
    assert host.log == []
    monkeypatch.setattr(PeerLinks, broken, run_out)
    async with node("a", addresses) as (_, host):
        await until(lambda: host.log == [("broke", MemoryError)])


# -- protocol -----------------------------------------------------------------------------------------------


async def test_every_frame_names_the_group() -> None:
    """Each side tells what rules it knows, and frames carry a group."""
    async with acceptor() as (_, host, address), raw(address) as peer:
        assert await peer.get_in() == Particulars("disk-b", "http://b", rules=2)
        assert (await peer.receive())[:3] == bytes((0x93, FrameKind.PING, 0))
        peer.say("hello")
        await until(lambda: ("RAFT", "a", "hello") in host.log)


async def test_a_node_of_another_link_protocol_is_hung_up_on(caplog: pytest.LogCaptureFixture) -> None:
    """The log says which protocols the two speak, and what to do."""
    async with acceptor() as (links, _, address), raw(address) as peer:
        peer.send(handshake.encode(Hello(handshake.PROTOCOL + 1, "a", "b", NONCE)))
        assert await peer.rest() == b""
        assert "speaks link protocol 2, and this node 1: run one release on both" in caplog.text
        assert not links.up()


@pytest.mark.parametrize("frame", [(FrameKind.RAFT, 1, "other"), (FrameKind.RAFT, "none")])
async def test_a_frame_of_another_group_ends_the_link(
    frame: tuple[object, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """What is meant for another Raft group, or does not say for which, is not taken."""
    async with acceptor() as (links, host, address), raw(address) as peer:
        await peer.get_in()
        peer.send(msgspec.msgpack.encode(frame))
        await until(lambda: ("down", "a") in host.log)
        assert host.log == [("up", "a"), ("down", "a")]
        assert "unreadable frame" in caplog.text
        assert not links.is_up("a")


async def test_a_node_of_another_group_is_refused() -> None:
    """A node of another Raft group is told so, and no link opens."""
    async with acceptor() as (links, _, address), raw(address) as peer:
        exchange = await peer.hello()
        theirs = Particulars("disk-a", "http://a", rules=2, group=7)
        peer.send(handshake.encode(exchange.prove(SECRET, b"dialer", theirs)))
        refusal = handshake.decode(await peer.receive())
        assert isinstance(refusal, Refusal)
        assert exchange.is_refused(SECRET, refusal)
        assert refusal.objection.reason == "node a belongs to Raft group 7, and this node to 0"
        assert not links.up()


@pytest.mark.parametrize(
    ("fault", "cut"),
    [
        (PeerFault("entry 9 where 8 is due"), Cut.IMPLAUSIBLE),
        (PeerContradicts("entry 8 is committed here in term 1"), Cut.CONTRADICTION),
        (msgspec.ValidationError("of no type"), Cut.UNREADABLE),
        (NodeFailed("the disk"), Cut.BROKEN),
    ],
)
async def test_what_a_peer_says_wrongly_costs_its_connection(
    fault: Exception, cut: Cut, caplog: pytest.LogCaptureFixture
) -> None:
    """It is counted by kind and logged with the reason; the peer may come again."""
    async with acceptor() as (links, host, address):
        host.faults.append(fault)
        async with raw(address) as peer:
            await peer.get_in()
            peer.say("wrong")
            await until(lambda: host.log == [("up", "a"), ("down", "a")])
        assert links.cuts.counts == {cut: 1}
        assert "event=peer-rejected peer=a address=('127.0.0.1'" in caplog.text
        assert str(fault) in caplog.text
        async with raw(address) as peer:
            await peer.get_in()
            await until(lambda: host.log[-1] == ("up", "a"))


async def test_a_length_that_somebody_wrote_into_a_link_makes_it_silent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A record that never becomes whole is not a sign of life, however many bytes of it come."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(transport_module, "PING_S", 0.05)
    monkeypatch.setattr(transport_module, "SILENCE_S_MAX", 0.3)
    async with acceptor() as (_, host, address), raw(address) as peer:
        await peer.get_in()
        peer.writer.write(LENGTH.pack(RECORD_BYTES_MAX))
        with contextlib.suppress(ConnectionResetError):
            # A byte for each ping that comes.
            while await peer.reader.read(4096):
                peer.writer.write(b"x")
        await until(lambda: ("down", "a") in host.log)
        assert "reason='silent for" in caplog.text


# -- strangers ----------------------------------------------------------------------------------------------

NESTED = b"\x81\xa4more" + b"\x91" * 1500 + b"\xc0"
"""A message with a field that lies so deep that no decoder gets there, and short enough for a handshake."""


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        LENGTH.pack(2**32 - 1),
        LENGTH.pack(link_module.HANDSHAKE_FRAME_BYTES_MAX + 1),
        LENGTH.pack(0),
        LENGTH.pack(3) + b"abc",
        LENGTH.pack(1) + b"\xc1",
        LENGTH.pack(len(NESTED)) + NESTED,
    ],
)
async def test_garbage_is_hung_up_on(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever does not speak the protocol gets not one byte, and a line in the log."""
    async with acceptor() as (links, host, address), raw(address) as stranger:
        stranger.writer.write(sent)
        assert await stranger.rest() == b""
        await until(lambda: not links._all)
        assert host.log == []
        assert "event=peer-rejected peer=stranger address=('127.0.0.1'" in caplog.text


@pytest.mark.parametrize(
    "hello",
    [
        Hello(99, "a", "b", NONCE),
        Hello(0, "a", "b", NONCE),
        Hello(handshake.PROTOCOL, "b", "b", NONCE),
        Hello(handshake.PROTOCOL, "a", "c", NONCE),
        Hello(handshake.PROTOCOL, "a", "b", b"short"),
        Challenge(NONCE),
        Proof(b"", b"mac"),
    ],
)
async def test_a_hello_that_makes_no_sense_gets_no_challenge(
    hello: handshake.Handshake, caplog: pytest.LogCaptureFixture
) -> None:
    """Another version, ourselves, somebody else's port, a message out of order."""
    async with acceptor() as (_, host, address), raw(address) as stranger:
        stranger.send(handshake.encode(hello))
        assert await stranger.rest() == b""
        assert host.log == []
        assert "event=peer-rejected" in caplog.text


async def test_an_unknown_node_that_knows_the_secret_is_told_why_it_stays_out() -> None:
    """Whether a node joined or was removed meanwhile is looked up when it has proven itself, not before."""
    addresses = {"a": free_address(), "b": free_address()}
    async with node("b", {"b": addresses["b"]}), node("a", addresses) as (_, host):
        await until(lambda: ("refused", "b", "a stranger") in host.log)


async def test_the_larger_id_dials_whoever_does_not_dial_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that its peer does not know, and so does not dial, goes there itself and hears the reason."""
    monkeypatch.setattr(transport_module, "PING_S", 0.02)
    addresses = {"a": free_address(), "b": free_address()}
    async with node("a", {"a": addresses["a"]}), node("b", addresses) as (_, host):
        await until(lambda: ("refused", "a", "a stranger") in host.log)


async def test_a_wrong_proof_gets_a_challenge_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    """A stranger that knows the names but not the secret learns one random nonce."""
    async with acceptor() as (_, host, address), raw(address) as stranger:
        exchange = await stranger.hello()
        particulars = Particulars("disk-a", "http://a")
        stranger.send(handshake.encode(exchange.prove(b"a guess", b"dialer", particulars)))
        assert await stranger.rest() == b""
        assert host.log == []
        assert "does not know the cluster secret" in caplog.text


async def test_a_replayed_handshake_is_refused() -> None:
    """The bytes of a good handshake, sent again, open nothing: the acceptor's nonce is another one."""
    async with acceptor() as (_, host, address):
        async with raw(address) as first:
            exchange = await first.hello()
            proof = handshake.encode(exchange.prove(SECRET, b"dialer", Particulars("disk-a", "http://a")))
            first.send(proof)
            await until(lambda: host.log == [("up", "a")])
        await until(lambda: host.log == [("up", "a"), ("down", "a")])
        async with raw(address) as second:
            await second.hello()
            second.send(proof)
            assert await second.rest() == b""
        assert len(host.log) == 2


async def test_silence_during_the_handshake_is_hung_up_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A stranger who says nothing, or stops half way, does not stay."""
    monkeypatch.setattr(link_module, "HANDSHAKE_S", 0.05)
    async with acceptor() as (_, _, address):
        async with raw(address) as silent:
            assert await silent.rest() == b""
        async with raw(address) as slow:
            await slow.hello()
            assert await slow.rest() == b""
    assert caplog.text.count("handshake took too long") == 2


# -- a peer by hand -----------------------------------------------------------------------------------------


async def test_frames_may_come_in_any_pieces() -> None:
    """Byte by byte, or several in one segment: the frames are the same."""
    async with acceptor() as (_, host, address), raw(address) as peer:
        await peer.get_in()
        frames = [msgspec.msgpack.encode((FrameKind.RAFT, 0, {"number": number})) for number in range(3)]
        content = b"".join(LENGTH.pack(len(frame)) + frame for frame in frames)
        data = peer.sealed(content)
        for position in range(len(data)):
            peer.writer.write(data[position : position + 1])
            await peer.writer.drain()
            await asyncio.sleep(0)
        peer.writer.write(peer.sealed(content))
        await until(lambda: len(host.log) == 7)
        assert host.log[1:] == [("RAFT", "a", {"number": number}) for number in (0, 1, 2)] * 2


@pytest.mark.parametrize("sent", [LENGTH.pack(link_module.FRAME_BYTES_MAX + 1), LENGTH.pack(1) + b"\xc1"])
async def test_a_peer_that_sends_nonsense_loses_its_link(sent: bytes) -> None:
    """A frame that is too long or no frame ends the connection, not the node."""
    async with acceptor() as (_, host, address), raw(address) as peer:
        await peer.get_in()
        peer.writer.write(peer.sealed(sent))
        await peer.rest()
        await until(lambda: host.log == [("up", "a"), ("down", "a")])


async def test_a_new_connection_takes_the_place_of_the_old_one() -> None:
    """The node sees down before up, the old connection is closed, and its last frames count for nothing."""
    async with acceptor() as (links, host, address), raw(address) as old, raw(address) as new:
        await old.get_in()
        await new.get_in()
        await until(lambda: len(host.log) == 3)
        old.say("old")
        new.say("new")
        await old.rest()
        await until(lambda: len(host.log) == 4)
        assert host.log == [("up", "a"), ("replaced", "a"), ("up", "a"), ("RAFT", "a", "new")]
        assert links.is_up("a")


async def test_a_silent_peer_is_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A peer that is silent for too long is down, though its connection stands and got pings."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(transport_module, "PING_S", 0.05)
    monkeypatch.setattr(transport_module, "SILENCE_S_MAX", 2.0)
    async with acceptor() as (_, host, address), raw(address) as peer:
        await peer.get_in()
        pings = [msgspec.msgpack.decode(await peer.receive()) for _ in range(3)]
        assert pings == [[int(FrameKind.PING), 0, [0, "follower"]]] * 3
        await until(lambda: host.log == [("up", "a"), ("down", "a")])
        assert "reason='silent for" in caplog.text


async def test_a_peer_that_does_not_read_is_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Our memory is bounded: bulk data stops at one bound, and at the next the connection ends."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(link_module, "ROOM_BYTES", 1_000_000)
    monkeypatch.setattr(link_module, "BACKLOG_BYTES_MAX", 4_000_000)
    async with acceptor() as (links, host, address), raw(address) as peer:
        await peer.get_in()
        await until(lambda: links.room_bytes("a") > 0)
        had_no_room = False
        while links.send("a", FrameKind.RAFT, b"x" * 250_000):
            links.send_now(())
            had_no_room = had_no_room or links.room_bytes("a") <= 0
            await asyncio.sleep(0)
        assert had_no_room
        assert links.room_bytes("a") <= 0, "of a peer that is gone, too"
        assert host.log == [("up", "a"), ("down", "a")]
        assert "the peer does not read" in caplog.text


@asynccontextmanager
async def silent(address: Address, hosts: list[str]) -> AsyncIterator[list[Raw]]:
    """Connect from each of these addresses of loopback, and say nothing."""
    made = []
    for host in hosts:
        reader, writer = await asyncio.open_connection(address.host, address.port, local_addr=(host, 0))
        made.append(Raw(reader, writer))
    try:
        yield made
    finally:
        for connection in made:
            connection.writer.transport.abort()


@pytest.mark.parametrize(
    "hosts",
    [
        [f"127.0.0.{2 + number % 40}" for number in range(3 * strangers.ALL_MAX)],
        ["127.0.0.1"] * 3 * strangers.ALL_MAX,
        ["127.0.0.9"] * 3 * strangers.ALL_MAX,
    ],
    ids=["many machines", "the peer's own machine", "one machine"],
)
async def test_strangers_keep_no_peer_out(hosts: list[str]) -> None:
    """However many sit there in silence, wherever they come from: a peer gets in, and there is a bound."""
    async with acceptor() as (links, host, address), silent(address, hosts):
        await until(lambda: links.cuts.counts[Cut.CROWD] >= len(hosts) - strangers.ALL_MAX)
        assert len(links._all) <= strangers.ALL_MAX
        async with raw(address) as peer:
            await peer.get_in()
            await until(lambda: ("up", "a") in host.log)
            assert len(links._all) <= strangers.ALL_MAX + 1


async def test_of_strangers_the_oldest_goes() -> None:
    """Who comes last has the time that a handshake takes; who sits there longest makes room."""
    count = strangers.PER_ADDRESS_MAX
    async with acceptor() as (links, _, address), silent(address, ["127.0.0.9"] * count) as there:
        await until(lambda: len(links._all) == count)
        async with silent(address, ["127.0.0.9", "127.0.0.8"]):
            assert await there[0].rest() == b""
            await until(lambda: len(links._all) == count + 1)
            assert links.cuts.counts == {Cut.CROWD: 1}
            await there[1].hello()


async def test_a_stranger_who_claims_to_be_a_peer_disturbs_no_link() -> None:
    """A hello in the name of a connected peer, without proof, makes nobody give that peer's link up."""
    addresses = {"a": free_address(), "b": free_address()}
    async with node("a", addresses) as (a_links, a_host), node("b", addresses) as (_, b_host):
        await until(lambda: a_links.is_up("b"))
        strangers_gone = a_links._all.copy()
        for _ in range(3):
            async with raw(addresses["a"]) as connection:
                await connection.hello(to="a", node_id="b")
            await until(lambda: a_links._all == strangers_gone)
        for number in range(20):
            a_links.send("b", FrameKind.RAFT, number)
            await until(lambda: len(b_host.log) > number + 1)  # noqa: B023 - called before the next round
            await asyncio.sleep(transport_module.RETRY_S_MIN / 4)
        assert a_host.log == [("up", "b")]
        assert b_host.log == [("up", "a"), *[("RAFT", "a", number) for number in range(20)]]


async def test_a_dead_peer_takes_no_room_of_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dialing a peer in vain leaves nothing behind, however often: whoever dials us is still let in."""
    monkeypatch.setattr(transport_module, "RETRY_S_MIN", 0.001)
    monkeypatch.setattr(transport_module, "RETRY_S_MAX", 0.001)
    addresses = {"a": free_address(), "b": free_address(), "c": free_address()}
    dials = []
    loop = asyncio.get_running_loop()
    connect = loop.create_connection

    async def counted(factory: Callable[[], Any], *place: Any) -> Any:
        dials.append(factory())
        return await connect(factory, *place)

    monkeypatch.setattr(loop, "create_connection", counted)
    async with node("b", addresses) as (links, host):
        await until(lambda: len(dials) > 2 * strangers.ALL_MAX)
        assert not links._all
        async with raw(addresses["b"]) as peer:
            await peer.get_in()
            await until(lambda: ("up", "a") in host.log)


@pytest.mark.parametrize("host_name", ["a..b", "x" * 64, "a\0b"])
@pytest.mark.parametrize("node_id", ["n1", "n3"])
async def test_an_address_that_cannot_be_is_not_reached(
    monkeypatch: pytest.MonkeyPatch, node_id: str, host_name: str
) -> None:
    """It may be in the log for ever: no node stops because of it, whichever of the two is to dial."""
    monkeypatch.setattr(transport_module, "PING_S", 0.01)
    monkeypatch.setattr(transport_module, "RETRY_S_MIN", 0.001)
    addresses = {node_id: free_address(), "n2": Address(host_name, 7800)}
    async with node(node_id, addresses) as (links, host):
        attempts = 0
        connect = links._connect

        async def counted(peer_id: str, address: Address) -> Any:
            nonlocal attempts
            attempts += 1
            return await connect(peer_id, address)

        monkeypatch.setattr(links, "_connect", counted)
        await until(lambda: attempts >= 3)
        assert host.log == []
