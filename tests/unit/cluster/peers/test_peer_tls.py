"""Links with TLS over real sockets: who gets in, and what somebody in between sees and can do."""

import asyncio
import contextlib
import logging
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.config import Address
from cluster.peers import handshake_budget, peer_certificate, strangers, tls_gate
from cluster.peers import link as link_module
from cluster.peers.cuts import Cut
from cluster.peers.link import FrameKind
from cluster.peers.peer_certificate import PeerFiles
from cluster.peers.peer_tls import PeerTls, PeerTlsMode
from cluster.tls import files as tls_files
from tests.support.certificates import Certificates, Pair
from tests.support.tap import tapped
from tests.unit.cluster.peers.test_links import free_address, node, raw, until

ACCEPT, DIAL, REQUIRE = PeerTlsMode.ACCEPT, PeerTlsMode.DIAL, PeerTlsMode.REQUIRE


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """Make an authority."""
    return Certificates(tmp_path)


def tls_of(certificates: Certificates, node_id: str, mode: PeerTlsMode = REQUIRE) -> PeerTls:
    """Return the TLS of a node whose certificate is in order."""
    return PeerTls(mode, peer_certificate.load(certificates.peer_files(node_id), node_id), node_id)


def unchecked(certificates: Certificates, pair: Pair | None, node_id: str) -> PeerTls:
    """Return the TLS of a node that shows what it should not show; it trusts whom it should."""
    server, client = tls_files.new_context(is_server=True), tls_files.new_context(is_server=False)
    for context in (server, client):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificates.ca)
        if pair is not None:
            context.load_cert_chain(*pair)
    own = peer_certificate.load(certificates.peer_files(node_id), node_id)
    return PeerTls(REQUIRE, own._replace(server=server, client=client), node_id)


def two() -> dict[str, Address]:
    """Return addresses for node a, which dials, and node b."""
    return {"a": free_address(), "b": free_address()}


# -- between nodes ------------------------------------------------------------------------------------------


async def test_two_nodes_talk(certificates: Certificates) -> None:
    """Small frames and large ones come whole and in order, both ways, and TLS is what carries them."""
    addresses = two()
    async with (
        node("a", addresses, tls=tls_of(certificates, "a")) as (a_links, a_host),
        node("b", addresses, tls=tls_of(certificates, "b")) as (b_links, b_host),
    ):
        await until(lambda: a_links.is_up("b") and b_links.is_up("a"))
        for links, peer_id in ((a_links, "b"), (b_links, "a")):
            for number in range(100):
                links.send(peer_id, FrameKind.RAFT, number)
            links.send(peer_id, FrameKind.RAFT, b"x" * 5_000_000)
            links.send(peer_id, FrameKind.RAFT, "small")
        await until(lambda: len(a_host.log) == len(b_host.log) == 103)
        expected = [*range(100), b"x" * 5_000_000, "small"]
        assert a_host.log == [("up", "b"), *(("RAFT", "b", content) for content in expected)]
        assert b_host.log == [("up", "a"), *(("RAFT", "a", content) for content in expected)]
        assert (a_links.plain_count(), b_links.plain_count()) == (0, 0)
        assert all(link._transport.get_extra_info("ssl_object") for link in a_links._all if link._transport)
        assert (a_links.tls and a_links.tls.opened) == {"tls": 1, "plain": 0}


async def test_a_restarted_peer_is_dialed_again(certificates: Certificates) -> None:
    """The end of a connection with TLS is noticed at once, on the side that stays."""
    addresses = two()
    async with node("a", addresses, tls=tls_of(certificates, "a")) as (a_links, a_host):
        for _ in range(2):
            async with node("b", addresses, tls=tls_of(certificates, "b")):
                await until(lambda: a_links.is_up("b"))
            await until(lambda: a_host.log[-1] == ("down", "b"))


async def test_the_secret_is_needed_besides(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """A certificate in order lets nobody in who does not know the secret."""
    addresses = two()
    async with (
        node("a", addresses, b"another secret", tls_of(certificates, "a")) as (a_links, _),
        node("b", addresses, tls=tls_of(certificates, "b")) as (b_links, b_host),
    ):
        await until(lambda: b_links.cuts.counts[Cut.SECRET])
        assert "does not know the cluster secret" in caplog.text
        assert not a_links.is_up("b")
        assert b_host.log == []


WRONG: dict[str, Callable[[Certificates, str], Pair | None]] = {
    "none": lambda _, __: None,
    "expired": lambda made, node_id: made.expired_peer(node_id),
    "other authority": lambda made, node_id: made.peer(node_id, by="another", name="other"),
    "another node's": lambda made, _: made.peer("c"),
    "another cluster's": lambda made, node_id: made.peer(node_id, "dev", name="dev"),
    "a node's for clients": lambda made, _: made.node(),
    "a client's": lambda made, _: made.client(),
}


_A_NODE, _A_CLUSTER = "holdfast://prod/c, and not node", "this cluster is called prod"
VERDICTS = [
    ("none", "a", Cut.CERTIFICATE_MISSING, "it shows no certificate"),
    *(
        (case, wrong, cut, words)
        for case, cut, words in (
            ("expired", Cut.CERTIFICATE_DATES, "certificate has expired"),
            ("other authority", Cut.CERTIFICATE_AUTHORITY, "unable to get local issuer"),
            ("another node's", Cut.CERTIFICATE_NODE, _A_NODE),
            ("another cluster's", Cut.CERTIFICATE_CLUSTER, _A_CLUSTER),
            ("a node's for clients", Cut.CERTIFICATE_NODE, "names no node"),
        )
        for wrong in "ab"
    ),
    ("a client's", "a", Cut.CERTIFICATE_NODE, "names no node"),
    ("a client's", "b", Cut.CERTIFICATE, "certificate purpose"),
]
TOLD_BY_TLS = {Cut.CERTIFICATE_MISSING, Cut.CERTIFICATE_DATES, Cut.CERTIFICATE_AUTHORITY, Cut.CERTIFICATE}


@pytest.mark.parametrize(("case", "wrong", "cut", "words"), VERDICTS)
async def test_a_wrong_certificate_lets_nobody_in(
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
    *,
    case: str,
    wrong: str,
    cut: Cut,
    words: str,
) -> None:
    """Neither node a, which dials, nor node b; the other side counts and tells what is wrong."""
    addresses = two()
    certificates.ca.write_bytes(certificates.old_ca.read_bytes())  # the expired one has an authority, too
    bad = unchecked(certificates, WRONG[case](certificates, wrong), wrong)
    tls = {node_id: tls_of(certificates, node_id) for node_id in "ab"} | {wrong: bad}
    async with (
        node("a", addresses, tls=tls["a"]) as (a_links, a_host),
        node("b", addresses, tls=tls["b"]) as (b_links, b_host),
    ):
        judge, refused = (b_links, a_links) if wrong == "a" else (a_links, b_links)
        await until(lambda: judge.cuts.counts[cut])
        await until(lambda: f"cut={cut} reason=" in caplog.text and words in caplog.text)
        assert not a_links.up() | b_links.up()
        assert a_host.log == b_host.log == []
        if cut in TOLD_BY_TLS:
            await until(lambda: refused.cuts.counts[Cut.CERTIFICATE_REFUSED])
            assert "it does not accept the certificate of this node" in caplog.text


async def test_the_cluster_id_may_stand_for_its_name(certificates: Certificates) -> None:
    """A node that knows its cluster takes certificates that have the id, and those that have its own name."""
    addresses, cluster_id = two(), "0" * 32
    a = PeerTls(REQUIRE, peer_certificate.load(certificates.peer_files("a"), "a"), "a")
    files = PeerFiles(*certificates.peer("b", cluster_id, "prod"), certificates.ca)
    b = PeerTls(REQUIRE, peer_certificate.load(files, "b", cluster_id), "b")
    only_id = PeerFiles(*certificates.peer("b", cluster_id), certificates.ca)
    for tls in (a, b):
        tls.cluster_id = lambda: cluster_id
    async with node("a", addresses, tls=a) as (a_links, _), node("b", addresses, tls=b) as (b_links, _):
        await until(lambda: a_links.is_up("b") and b_links.is_up("a"))
        # From now on it has the id only: node a takes it, and is not taken, by its name alone.
        b.ready = peer_certificate.load(only_id, "b", cluster_id)
        for link in list(a_links._all):
            link.close("again")
        await until(lambda: b_links.cuts.counts[Cut.CERTIFICATE_CLUSTER])
        a.ready = peer_certificate.load(
            PeerFiles(*certificates.peer("a", cluster_id), certificates.ca), "a", cluster_id
        )
        await until(lambda: a_links.is_up("b") and b_links.is_up("a"))


# -- from plain to TLS --------------------------------------------------------------------------------------


STEPS = (None, ACCEPT, DIAL, REQUIRE)
NEIGHBOURS = [(STEPS[i], STEPS[j]) for i in range(4) for j in range(4) if abs(i - j) <= 1]


@pytest.mark.parametrize(("first", "second"), NEIGHBOURS)
async def test_one_step_apart_nodes_find_each_other(
    certificates: Certificates, first: PeerTlsMode | None, second: PeerTlsMode | None
) -> None:
    """So a cluster goes on while its nodes take the next step one by one; what is plain is counted."""
    addresses = two()
    a = tls_of(certificates, "a", first) if first else None
    b = tls_of(certificates, "b", second) if second else None
    async with node("a", addresses, tls=a) as (a_links, _), node("b", addresses, tls=b) as (b_links, _):
        await until(lambda: a_links.is_up("b") and b_links.is_up("a"))
        is_plain = first in (None, ACCEPT)
        assert (a_links.plain_count(), b_links.plain_count()) == (is_plain, is_plain)
        counted = {"plain": int(is_plain), "tls": int(not is_plain)}
        assert all(tls is None or tls.opened == counted for tls in (a, b))


@pytest.mark.parametrize(("first", "cut"), [(None, Cut.PLAIN), (REQUIRE, Cut.TLS)])
async def test_with_and_without_tls_nodes_stay_apart(
    certificates: Certificates, first: PeerTlsMode | None, cut: Cut, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever side has it: the one that is dialed says what is missing."""
    addresses = two()
    a, b = (tls_of(certificates, name) if bool(first) == (name == "a") else None for name in "ab")
    async with node("a", addresses, tls=a) as (a_links, _), node("b", addresses, tls=b) as (b_links, _):
        await until(lambda: b_links.cuts.counts[cut])
        assert "--peer-tls)" in caplog.text
        assert not a_links.up() | b_links.up()


async def test_a_plain_dialer_gets_nothing(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """Where TLS is required it gets no byte, and a line says what is missing."""
    addresses = two()
    async with node("b", addresses, tls=tls_of(certificates, "b")) as (links, _), raw(addresses["b"]) as peer:
        peer.send(b"x" * 20)
        assert await peer.rest() == b""
        assert links.cuts.counts == {Cut.PLAIN: 1}
    assert "cut=plain reason='it speaks no TLS, and this node requires it (--peer-tls)'" in caplog.text


# -- somebody on the path, and strangers --------------------------------------------------------------------


async def test_nothing_can_be_read_on_the_way(certificates: Certificates) -> None:
    """With TLS; without, everything can."""
    for tls_a, tls_b, is_open in (
        (tls_of(certificates, "a"), tls_of(certificates, "b"), False),
        (None, None, True),
    ):
        addresses = two()
        async with (
            tapped(addresses["b"]) as (tap, where),
            node("a", {**addresses, "b": where}, tls=tls_a) as (a_links, _),
            node("b", addresses, tls=tls_b) as (_, b_host),
        ):
            await until(lambda links=a_links: links.is_up("b"))  # type: ignore[misc]
            a_links.send("b", FrameKind.RAFT, "jobs/payroll")
            await until(lambda host=b_host: ("RAFT", "a", "jobs/payroll") in host.log)  # type: ignore[misc]
            assert tap.connections
            assert (b"jobs/payroll" in tap.seen, b"disk-a" in tap.seen) == (is_open, is_open)


RECORD = b"\x17\x03\x03\x00\x20" + b"x" * 32


@pytest.mark.parametrize("to_dialer", [True, False])
@pytest.mark.parametrize(
    "added", [b"\x17\x03\x03\x00\x20" + b"x" * 32, b"\x00\x00\x00\x01x", b"\x15\x03\x03\x00\x02\x01\x00"]
)
async def test_bytes_that_somebody_adds_end_the_connection(
    certificates: Certificates, added: bytes, *, to_dialer: bool
) -> None:
    """A record, something else, or an alert without a seal: nothing of it arrives, and there is a new one."""
    addresses = two()
    async with (
        tapped(addresses["b"]) as (tap, where),
        node("a", {**addresses, "b": where}, tls=tls_of(certificates, "a")) as (a_links, a_host),
        node("b", addresses, tls=tls_of(certificates, "b")) as (b_links, b_host),
    ):
        await until(lambda: a_links.is_up("b") and b_links.is_up("a"))
        tap.inject(added, to_dialer=to_dialer)
        victim = a_links if to_dialer else b_links
        await until(lambda: victim.cuts.counts[Cut.FORGED])
        await until(lambda: a_host.log == [("up", "b"), ("down", "b"), ("up", "b")])
        await until(lambda: b_host.log == [("up", "a"), ("down", "a"), ("up", "a")])
        assert tap.connections == 2


@pytest.mark.parametrize("is_plain_behind", [True, False])
async def test_who_can_make_certificates_still_reads_nothing(
    certificates: Certificates, caplog: pytest.LogCaptureFixture, *, is_plain_behind: bool
) -> None:
    """Somebody in between who ends TLS on both sides, or on one, is noticed by what the proofs vouch for."""
    addresses = two()
    forged = {name: certificates.peer(name, name=f"forged-{name}") for name in "ab"}
    middle = {name: unchecked(certificates, pair, name).ready for name, pair in forged.items()}
    mode = ACCEPT if is_plain_behind else REQUIRE
    seen = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        context = None if is_plain_behind else middle["a"].client
        answers, there = await asyncio.open_connection(*addresses["b"], ssl=context)
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(_pass_on(reader, there, seen), _pass_on(answers, writer, seen))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=middle["b"].server)
    where = Address(*server.sockets[0].getsockname()[:2])
    async with (
        server,
        node("a", {**addresses, "b": where}, tls=tls_of(certificates, "a")) as (a_links, _),
        node("b", addresses, tls=tls_of(certificates, "b", mode)) as (b_links, b_host),
    ):
        await until(lambda: b_links.cuts.counts[Cut.RELAYED])
        assert "somebody in between ends TLS" in caplog.text
        assert not a_links.up() | b_links.up()
        assert b_host.log == []
        assert b"disk-a" in seen


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter, seen: bytearray) -> None:
    """Carry what comes, and keep it."""
    try:
        while data := await source.read(65_536):
            seen += data
            sink.write(data)
    finally:
        sink.close()


@pytest.mark.parametrize("size_bytes", [0, 1, 5, 200])
async def test_what_is_changed_in_a_handshake_ends_it(certificates: Certificates, size_bytes: int) -> None:
    """A hello that goes on with garbage costs a connection and a line."""
    hello = _client_hello()
    addresses = two()
    async with node("b", addresses, tls=tls_of(certificates, "b")) as (links, _), raw(addresses["b"]) as peer:
        peer.writer.write(hello[: 5 + size_bytes] + b"\xff" * (len(hello) - size_bytes))
        await peer.rest()
        await until(lambda: links.cuts.counts[Cut.TLS])
        await until(lambda: not links._all)


def _client_hello() -> bytes:
    """Return the first words of somebody that speaks TLS."""
    outgoing = ssl.MemoryBIO()
    context = tls_files.new_context(is_server=False)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    stranger = context.wrap_bio(ssl.MemoryBIO(), outgoing)
    with pytest.raises(ssl.SSLWantReadError):
        stranger.do_handshake()
    return outgoing.read()


async def test_garbage_costs_few_lines(certificates: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    """Each is counted; of one kind ten are told, then ten a minute."""
    addresses = two()
    async with node("b", addresses, tls=tls_of(certificates, "b")) as (links, _):
        for number in range(40):
            async with raw(addresses["b"]) as peer:
                peer.writer.write(b"GET / HTTP/1.1\r\n\r\n" if number % 2 else b"\x16\x03\x01\x00\x05hello")
                await peer.rest()
        await until(lambda: links.cuts.counts[Cut.TLS] == 40)
    assert 10 <= caplog.text.count("event=peer-rejected") <= 11


async def test_half_a_handshake_takes_little_room_for_a_short_time(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that began and went no further few are kept, and none for long; a member gets in meanwhile."""
    monkeypatch.setattr(link_module, "HANDSHAKE_S", 0.5)
    addresses = two()
    hello = _client_hello()
    async with node("b", addresses, tls=tls_of(certificates, "b")) as (links, _):
        connections = []
        for _ in range(5 * strangers.PER_ADDRESS_MAX):
            _, writer = await asyncio.open_connection(*addresses["b"])
            writer.write(hello)
            connections.append(writer)
        await until(lambda: links.cuts.counts[Cut.CROWD] == 4 * strangers.PER_ADDRESS_MAX)
        assert len(links._all) <= strangers.PER_ADDRESS_MAX
        async with node("a", addresses, tls=tls_of(certificates, "a")) as (a_links, _):
            await until(lambda: a_links.is_up("b"))
            await until(lambda: len(links._all) == 1)
        assert links.cuts.counts[Cut.SLOW] + links.cuts.counts[Cut.CROWD] == len(connections)
        for writer in connections:
            writer.transport.abort()


async def test_no_more_handshakes_are_made_than_a_node_can_bear(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Beyond that a connection ends before anything is computed for it; a member gets in a moment later."""
    monkeypatch.setattr(handshake_budget, "BURST_COUNT", 3.0)
    monkeypatch.setattr(handshake_budget, "PER_S", 0.0)
    addresses = two()
    async with node("b", addresses, tls=tls_of(certificates, "b")) as (links, _):
        for number in range(8):
            async with raw(addresses["b"]) as stranger:
                stranger.writer.write(_client_hello())
                if number < 3:
                    assert (await stranger.reader.readexactly(1)) == b"\x16"
                else:
                    assert await stranger.rest() == b""
        assert links.cuts.counts == {Cut.CROWD: 5}
        assert "more TLS handshakes are asked for" in caplog.text
        async with node("a", addresses, tls=tls_of(certificates, "a")) as (a_links, _):
            await until(lambda: links.cuts.counts[Cut.CROWD] > 5)
            assert not a_links.is_up("b")
            monkeypatch.setattr(handshake_budget, "PER_S", 1000.0)
            await until(lambda: a_links.is_up("b"))


async def test_one_that_was_refused_makes_room_too(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may read why for a moment, but not keep others out."""
    monkeypatch.setattr(tls_gate, "LINGER_S", 1000.0)
    monkeypatch.setattr(link_module, "HANDSHAKE_S", 1000.0)
    addresses = two()
    async with node("b", addresses, tls=tls_of(certificates, "b")) as (links, _):
        writers = []
        for _ in range(3 * strangers.PER_ADDRESS_MAX):
            _, writer = await asyncio.open_connection(*addresses["b"])
            writer.write(b"\x16\x03\x01\x00\x05hello")
            writers.append(writer)
        await until(lambda: links.cuts.counts[Cut.TLS] == len(writers))
        await until(lambda: len(links._all) == strangers.PER_ADDRESS_MAX)
        for writer in writers:
            writer.transport.abort()


async def test_a_slow_handshake_holds_nobody_up(certificates: Certificates) -> None:
    """While somebody says a byte now and then, frames between members take as long as ever."""
    addresses = two()
    hello = _client_hello()
    loop = asyncio.get_running_loop()
    async with (
        node("a", addresses, tls=tls_of(certificates, "a")) as (a_links, _),
        node("b", addresses, tls=tls_of(certificates, "b")) as (_, b_host),
        raw(addresses["b"]) as stranger,
    ):
        await until(lambda: a_links.is_up("b"))
        took_s = []
        for number in range(60):
            stranger.writer.write(hello[number : number + 1])
            began_s = loop.time()
            a_links.send("b", FrameKind.RAFT, number)
            await until(lambda number=number: ("RAFT", "a", number) in b_host.log)  # type: ignore[misc]
            took_s.append(loop.time() - began_s)
        assert sorted(took_s)[len(took_s) // 2] < 0.05


def test_openssl_is_told_and_shown_the_same(
    certificates: Certificates,
) -> None:
    """An outside witness: with a certificate it gets in as far as TLS goes, without one it does not."""
    asyncio.run(_ask_openssl(certificates))


async def _ask_openssl(certificates: Certificates) -> None:
    addresses = two()
    pair = certificates.peer("a")
    async with node("b", addresses, tls=tls_of(certificates, "b")) as (links, _):
        known = ["-cert", str(pair.cert), "-key", str(pair.key)]
        shown = await _s_client(addresses["b"], certificates, *known)
        assert "TLSv1.3" in shown
        assert "Verify return code: 0 (ok)" in shown
        assert not links.cuts.counts
        await _s_client(addresses["b"], certificates)
        assert links.cuts.counts == {Cut.CERTIFICATE_MISSING: 1}
        assert "alert protocol version" in await _s_client(addresses["b"], certificates, "-tls1_2", *known)


async def _s_client(address: Address, certificates: Certificates, *words: str) -> str:
    """Return what openssl says of a connection, which ends as soon as nothing more is said."""
    command = ["openssl", "s_client", "-connect", str(address), "-CAfile", str(certificates.ca), *words]
    done = await asyncio.to_thread(
        subprocess.run, command, input=b"Q\n", capture_output=True, check=False, timeout=20
    )
    return (done.stdout + done.stderr).decode()


async def test_new_files_are_for_new_connections(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """A link that is open goes on; the next one is made with what is in force then."""
    caplog.set_level(logging.INFO)
    addresses = two()
    a, b = tls_of(certificates, "a"), tls_of(certificates, "b")
    async with node("a", addresses, tls=a) as (a_links, a_host), node("b", addresses, tls=b) as (_, b_host):
        await until(lambda: a_links.is_up("b"))
        b.ready = unchecked(certificates, certificates.peer("c"), "b").ready
        a_links.send("b", FrameKind.RAFT, "still here")
        await until(lambda: ("RAFT", "a", "still here") in b_host.log)
        assert a_host.log == [("up", "b")]
        for link in list(a_links._all):
            link.close("again")
        await until(lambda: a_links.cuts.counts[Cut.CERTIFICATE_NODE])
        assert not a_links.is_up("b")
        b.ready = tls_of(certificates, "b").ready
        await until(lambda: a_links.is_up("b"))
