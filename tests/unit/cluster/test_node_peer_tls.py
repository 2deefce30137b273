"""A node and its TLS files for peers: read before anything else, and again while it runs."""

from pathlib import Path

import pytest

from cluster.config import NodeConfig, load
from cluster.errors import ConfigError
from cluster.node import Node
from tests.support.certificates import Certificates
from tests.unit.cluster.peers.test_links import free_address, until


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """Make an authority."""
    return Certificates(tmp_path / "tls")


def config(certificates: Certificates, node_id: str, *more: str) -> NodeConfig:
    """Return a cluster of one that others may join, with the certificate of a node."""
    files = certificates.peer_files(node_id)
    words = ["--http", "127.0.0.1:0", "--peers", f"n1={free_address()}", "--secret", "x" * 32]
    words += ["--data-dir", str(certificates.directory / "data"), "--peer-cert", str(files.cert)]
    return load([*words, "--peer-key", str(files.key), "--peer-ca", str(files.ca), *more], {})


async def test_the_certificate_of_another_node_is_refused_before_anything_is_written(
    certificates: Certificates,
) -> None:
    """The message names both; the data directory is not made."""
    with pytest.raises(ConfigError, match="names holdfast://prod/n2, and this is node n1"):
        await Node(config(certificates, "n2")).start()
    assert not (certificates.directory / "data").exists()


async def test_files_are_read_again(certificates: Certificates) -> None:
    """When the node is told to, as SIGHUP does; metrics show the new end, and that TLS is required."""
    node = Node(config(certificates, "n1"))
    await node.start()
    try:
        watch = node.peer_tls_watch
        assert watch is not None
        assert node.parts.links.tls is watch.tls
        ready = watch.tls.ready
        certificates.peer("n1", days=60)
        watch.read_now()
        await until(lambda: watch.tls.ready is not ready)
        shown = {(name, *labels.values()): value for name, _, _, labels, value in node.metrics.samples()}
        assert shown["holdfast_peer_tls_certificate_end_seconds", "peer"] == watch.ends_at_s["peer"]
        assert shown["holdfast_peer_tls_mode", "require"] == 1
        assert shown["holdfast_peer_tls_files_refused",] == 0
        assert shown["holdfast_peer_links_plain",] == 0
    finally:
        await node.stop()


async def test_off_has_no_tls(certificates: Certificates) -> None:
    """Whatever the files are."""
    node = Node(config(certificates, "n2", "--peer-tls", "off"))
    await node.start()
    try:
        assert node.peer_tls_watch is None
        assert node.parts.links.tls is None
        assert not any("peer_tls" in name for name, *_ in node.metrics.samples())
    finally:
        await node.stop()


async def test_a_certificate_with_the_id_of_another_cluster_is_refused(certificates: Certificates) -> None:
    """As soon as the node belongs to one."""
    first = Node(config(certificates, "n1"))
    await first.start()
    await until(lambda: first.parts.peering.table.cluster_id)
    cluster_id = first.parts.peering.table.cluster_id
    await first.stop()
    again = config(certificates, "n1")
    certificates.peer("n1", "f" * 32)
    with pytest.raises(ConfigError, match=f"and this node belongs to cluster {cluster_id}"):
        await Node(again).start()
    certificates.peer("n1", cluster_id)
    last = Node(again)
    await last.start()
    await last.stop()
