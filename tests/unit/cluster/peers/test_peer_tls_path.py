"""Somebody on the path between two nodes with TLS, and strangers at the port: what they see, do and cost."""

import asyncio
import contextlib
import subprocess
from pathlib import Path

import pytest

from cluster.config import Address
from cluster.peers import handshake_budget, strangers, tls_gate
from cluster.peers import link as link_module
from cluster.peers.cuts import Cut
from cluster.peers.link import FrameKind
from cluster.peers.peer_tls import PeerTlsMode
from tests.support.certificates import Certificates
from tests.support.tap import tapped
from tests.unit.cluster.peers.test_links import node, raw, until
from tests.unit.cluster.peers.tls_nodes import REQUIRE, client_hello, tls_of, two, unchecked

ACCEPT = PeerTlsMode.ACCEPT


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """Make an authority."""
    return Certificates(tmp_path)


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
    hello = client_hello()
    addresses = two()
    async with node("b", addresses, tls=tls_of(certificates, "b")) as (links, _), raw(addresses["b"]) as peer:
        peer.writer.write(hello[: 5 + size_bytes] + b"\xff" * (len(hello) - size_bytes))
        await peer.rest()
        await until(lambda: links.cuts.counts[Cut.TLS])
        await until(lambda: not links._all)


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
    hello = client_hello()
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
                stranger.writer.write(client_hello())
                if number < 3:
                    assert (await stranger.reader.readexactly(1)) == b"\x16"
                else:
                    assert await stranger.rest() == b""
        assert links.cuts.counts == {Cut.CROWD: 5}
        assert "too many TLS handshakes" in caplog.text
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
    hello = client_hello()
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
