"""Bytes from strangers at the gate beneath a link: it never breaks, and nothing of them gets through."""

import asyncio
import itertools
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.peers.cuts import Cut
from cluster.peers.link import Link, LinkRegistry
from cluster.peers.peer_tls import PeerTls, PeerTlsMode
from cluster.peers.tls_gate import PeerGate
from tests.support.certificates import Certificates
from tests.unit.cluster.peers.test_man_in_the_middle import Node
from tests.unit.cluster.peers.tls_nodes import client_hello, tls_of

HELLO = client_hello()


class Socket:
    """A transport that swallows what is written."""

    def __init__(self) -> None:
        self.is_over = False
        self.written = bytearray()

    def write(self, data: bytes) -> None:
        """Keep it."""
        self.written += data

    def write_eof(self) -> None:
        """Write nothing more."""

    def abort(self) -> None:
        """Be over."""
        self.is_over = True

    close = abort

    def is_closing(self) -> bool:
        """Whether it is over."""
        return self.is_over

    def get_extra_info(self, _: str) -> None:
        """Know nothing."""

    def get_write_buffer_size(self) -> int:
        """Return that nothing waits."""
        return 0

    def set_protocol(self, protocol: asyncio.Protocol) -> None:
        """Hand bytes to this one from now on."""
        self.protocol = protocol


class Registry(Node):
    """A node whose links may have TLS."""

    def certificate_fault(self, shown: Any, peer_id: str) -> None:
        """Never be asked: nobody gets so far."""
        raise AssertionError(f"{peer_id} has shown {shown}")


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> PeerTls:
    """Return the TLS of node b."""
    return tls_of(Certificates(tmp_path_factory.mktemp("tls")), "b")


async def _feed(tls: PeerTls, chunks: list[bytes], *, is_dialer: bool) -> tuple[Registry, Socket]:
    """Give a gate these bytes, as a socket does."""
    registry, socket = Registry("b"), Socket()
    link = Link(cast("LinkRegistry", registry), "a" if is_dialer else "")
    gate = PeerGate(link, tls)
    socket.set_protocol(gate)
    gate.connection_made(cast("asyncio.Transport", socket))
    for chunk in chunks:
        if not socket.is_over:
            socket.protocol.data_received(chunk)
    socket.protocol.connection_lost(None)
    return registry, socket


CHUNKS = st.lists(st.binary(min_size=1, max_size=200), max_size=5)
STARTS = st.sampled_from(
    [b"", b"\x16", b"\x16\x03\x01", b"\x00", HELLO, HELLO[:7], HELLO[:-1], HELLO + HELLO]
)


@given(start=STARTS, chunks=CHUNKS, is_dialer=st.booleans())
def test_no_bytes_break_a_gate(tls: PeerTls, start: bytes, chunks: list[bytes], *, is_dialer: bool) -> None:
    """They end the connection at most once, whichever side the gate is on, and say nothing to the link."""
    chunks = [start, *chunks] if start else chunks
    registry, socket = asyncio.run(_feed(tls, chunks, is_dialer=is_dialer))
    assert sum(registry.cuts.counts.values()) <= 1
    assert registry.cuts.counts.keys() <= {Cut.TLS, Cut.PLAIN}
    assert not registry.is_up
    assert registry.heard == []
    if is_dialer:
        assert socket.written[0] == 0x16, "a dialer speaks TLS from its first byte on"


@given(cuts=st.lists(st.integers(1, len(HELLO) - 1), max_size=6))
def test_a_hello_may_come_in_any_pieces(tls: PeerTls, cuts: list[int]) -> None:
    """It is answered when it is whole."""
    places = [0, *sorted(set(cuts)), len(HELLO)]
    pieces = [HELLO[begin:end] for begin, end in itertools.pairwise(places)]
    registry, socket = asyncio.run(_feed(tls, pieces, is_dialer=False))
    assert socket.written[0] == 0x16
    assert not registry.cuts.counts


@given(chunks=CHUNKS)
def test_without_tls_bytes_reach_a_link_unchanged(tls: PeerTls, chunks: list[bytes]) -> None:
    """While a cluster goes over: what begins like a frame is the link's, and costs what it costs there."""
    begun = PeerTls(PeerTlsMode.ACCEPT, tls.ready, "b")
    chunks = [b"\x00\x00\x00\x01\xc1", *chunks]
    registry, socket = asyncio.run(_feed(begun, chunks, is_dialer=False))
    assert registry.cuts.counts == {Cut.HANDSHAKE: 1}
    assert socket.written == b""
    assert socket.is_over
