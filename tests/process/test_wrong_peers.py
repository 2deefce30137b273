"""A node that is started again with other `peers` than its log has: it takes no part, and harms nobody."""

import asyncio
from pathlib import Path

import pytest

from scripts.local_cluster import LocalCluster
from tests.process.nodes import (
    DEADLINE_S,
    bring_all_back,
    http_to,
    node_command,
    running,
    until,
)

pytestmark = pytest.mark.process

CONFIG_WRONG = 2
"""The exit code of a node whose configuration is wrong."""


def peers_of(cluster: LocalCluster, *more: str) -> str:
    """Return `peers` with all nodes of the cluster, and more."""
    return ",".join([*(f"{node.id}={node.peer}" for node in cluster.nodes()), *more])


def without(argv: list[str], flag: str) -> list[str]:
    """Return a command without a flag and its value."""
    at = argv.index(flag)
    return argv[:at] + argv[at + 2 :]


async def test_peers_that_contradict_the_log_are_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    """Neither alone, nor without a secret, nor as one of five does a node begin anything: it says why.

    The others go on, none of them stops, and with the right `peers`, or none, the node takes part again.
    """
    node_id, other = "n1", "n2"
    all_peers = peers_of(cluster)
    cluster.kill(node_id)
    own = f"{node_id}={cluster.node(node_id).peer}"
    five = peers_of(cluster, "n4=127.0.0.1:1", "n5=127.0.0.1:2")
    wrong = {
        "alone": (node_command(cluster, node_id, peers=own), [f"peers: '{own}'", f"'{all_peers}'"]),
        "as one of five": (
            node_command(cluster, node_id, peers=five),
            [f"peers: '{five}'", f"'{all_peers}'"],
        ),
        "from an empty environment": (
            without(node_command(cluster, node_id, peers=""), "--secret-file"),
            ["secret: none is given", f"'{all_peers}'"],
        ),
    }
    async with http_to(cluster) as http:
        await until(lambda: (cluster.view(other) or {}).get("ready"), "the others go on")
        granted = await http.acquire(other, "wrong-peers")
        assert granted.status == 200
        for what, (argv, said) in wrong.items():
            log = tmp_path / what
            with running(argv, log) as child:
                assert await asyncio.to_thread(child.wait, DEADLINE_S) == CONFIG_WRONG, log.read_text()
            assert all(words in log.read_text() for words in said), log.read_text()
        # Not given at all: what the log says counts, as long as the secret is there.
        log = tmp_path / "not given"
        argv = without(node_command(cluster, node_id, peers=""), "--peer")
        with running(argv, log):
            await until(lambda: (cluster.view(node_id) or {}).get("ready"), "it takes part without peers")
            assert await http.token(node_id, "wrong-peers") == granted.body["token"]
        await asyncio.to_thread(bring_all_back, cluster)
        assert await http.token(node_id, "wrong-peers") == granted.body["token"]
        assert (await http.acquire(node_id, "wrong-peers-after")).status == 200
