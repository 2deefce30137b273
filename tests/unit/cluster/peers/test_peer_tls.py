"""Links with TLS over real sockets: who gets in, and how a cluster goes over to it."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.peers import peer_certificate
from cluster.peers.cuts import Cut
from cluster.peers.link import FrameKind
from cluster.peers.peer_certificate import PeerFiles
from cluster.peers.peer_tls import PeerTls, PeerTlsMode
from tests.support.certificates import Certificates, Pair
from tests.unit.cluster.peers.test_links import node, raw, until
from tests.unit.cluster.peers.tls_nodes import REQUIRE, tls_of, two, unchecked

ACCEPT, DIAL = PeerTlsMode.ACCEPT, PeerTlsMode.DIAL


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """Make an authority."""
    return Certificates(tmp_path)


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


@pytest.mark.parametrize("lost", ["a", "b"])
async def test_a_revoked_certificate_ends_the_link(
    certificates: Certificates, caplog: pytest.LogCaptureFixture, lost: str
) -> None:
    """At once, whoever has dialed; then nobody with it gets in, and the node does with a new one."""
    addresses = two()
    kept = "b" if lost == "a" else "a"
    tls = {node_id: tls_of(certificates, node_id) for node_id in "ab"}
    old = Pair(certificates.directory / f"{lost}-peer.pem", certificates.directory / f"{lost}-peer-key.pem")
    async with (
        node("a", addresses, tls=tls["a"]) as (a_links, a_host),
        node("b", addresses, tls=tls["b"]) as (b_links, b_host),
    ):
        links = b_links if kept == "b" else a_links
        host = b_host if kept == "b" else a_host
        await until(lambda: a_links.is_up("b") and b_links.is_up("a"))
        tls[kept].revoked = links.end_revoked
        tls[kept].ready = tls[kept].ready._replace(revoked=frozenset({old.serial}))
        tls[kept].revoked()
        await until(lambda: host.log == [("up", lost), ("down", lost)])
        await until(lambda: links.cuts.counts[Cut.CERTIFICATE_REVOKED] > 1)  # it has come back with it
        assert host.log == [("up", lost), ("down", lost)]
        assert f"number {old.serial:X}, is revoked (--peer-revoked)" in caplog.text
        tls[lost].ready = tls_of(certificates, lost).ready
        await until(lambda: a_links.is_up("b") and b_links.is_up("a"))
        tls[kept].revoked()
        assert host.log == [("up", lost), ("down", lost), ("up", lost)], "the new one is not meant"
