"""Nodes with TLS for tests of links: those whose certificate is in order, and those that show another one."""

import contextlib
import ssl

from cluster.config import Address
from cluster.peers import peer_certificate
from cluster.peers.peer_tls import PeerTls, PeerTlsMode
from cluster.tls import files as tls_files
from tests.support.certificates import Certificates, Pair
from tests.unit.cluster.peers.test_links import free_address

REQUIRE = PeerTlsMode.REQUIRE


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


def client_hello() -> bytes:
    """Return the first words of somebody that speaks TLS."""
    outgoing = ssl.MemoryBIO()
    context = tls_files.new_context(is_server=False)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    stranger = context.wrap_bio(ssl.MemoryBIO(), outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        stranger.do_handshake()
    return outgoing.read()
