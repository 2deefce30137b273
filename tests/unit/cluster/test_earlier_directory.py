"""Directories of an earlier release in which no log says who the members are: what was met counts."""

from pathlib import Path

import pytest

from cluster.config import load
from cluster.errors import ConfigError
from cluster.node import Node
from cluster.storage.data_directory import DataDir
from cluster.storage.journal import Journal
from tests.unit.cluster.peers.test_links import free_address

SECRET = "0123456789abcdef0123456789abcdef"
NEVER_VOTED, VOTED = 0, 1
"""Terms."""


def make_directory(path: Path, *met: str, term: int) -> None:
    """Make what release 0.1.0 leaves behind: it has met these peers, and got no entry."""
    datadir = DataDir.open(path, "n1")
    journal = Journal.open(path)
    if term:
        journal.set_vote(term, "n2")
    journal.sync()
    journal.close()
    for peer_id in met:
        datadir.remember(peer_id, f"disk of {peer_id}")
    datadir.close()


def node_with(path: Path, peers: str) -> Node:
    """Return a node on the directory, with these ids in its `peers`."""
    secret = path.parent / "secret"
    secret.write_text(SECRET)
    told = ",".join(f"{node_id}=127.0.0.1:{9000 + int(node_id[1:])}" for node_id in peers.split())
    argv = ["--node-id", "n1", "--data-dir", str(path), "--http", "127.0.0.1:0"]
    argv += ["--peer", str(free_address()), "--peers", told, "--secret-file", str(secret)]
    return Node(load(argv, {}))


@pytest.mark.parametrize("term", [NEVER_VOTED, VOTED])
@pytest.mark.parametrize("peers", ["n1", "n1 n2", ""])
async def test_who_was_met_must_be_named(tmp_path: Path, peers: str, term: int) -> None:
    """A node that has met n2 and n3 does not begin a cluster without them, whether it has voted or not.

    It would lead alone, beside its cluster.
    """
    make_directory(tmp_path / "n1", "n2", "n3", term=term)
    with pytest.raises(ConfigError, match=r"peers: .*n3"):
        await node_with(tmp_path / "n1", peers).start()


@pytest.mark.parametrize("term", [NEVER_VOTED, VOTED])
@pytest.mark.parametrize("met", [(), ("n2",), ("n2", "n3")])
async def test_founders_that_were_not_met_may_be_named(
    tmp_path: Path, met: tuple[str, ...], term: int
) -> None:
    """In its first start a node has met some of the others: it goes on with all of them."""
    make_directory(tmp_path / "n1", *met, term=term)
    node = node_with(tmp_path / "n1", "n1 n2 n3")
    await node.start()
    await node.stop()
