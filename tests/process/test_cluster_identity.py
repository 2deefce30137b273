"""Which nodes are let into a cluster: those with the disk that the others know, and with their secret."""

import asyncio
from pathlib import Path

import pytest

from scripts.local_cluster import LocalCluster
from tests.process.nodes import (
    LogSince,
    bring_all_back,
    exit_code,
    http_to,
    node_command,
    running,
    spare_data,
    until,
)

pytestmark = pytest.mark.process


# The smaller id dials: a refusal takes another way to n1, which dials all others, than to n3, whom all dial.
@pytest.mark.parametrize("node_id", ["n1", "n3"])
async def test_lost_disk(cluster: LocalCluster, node_id: str) -> None:
    """A node that comes back without its data is refused and says what to do; with its data it is let in."""
    said = LogSince(cluster, node_id)
    with spare_data(cluster, node_id) as data_dir:
        for file in data_dir.iterdir():
            file.unlink()
        cluster.start(node_id)
        assert await asyncio.to_thread(exit_code, cluster, node_id) == 4
        (line, *_) = said.lines("event=node-failed")
        assert "restore its old data directory, or replace it by a node with a new id" in line
        said = LogSince(cluster, node_id)
        cluster.start(node_id)
        assert await asyncio.to_thread(exit_code, cluster, node_id) == 4
        assert said.lines("does not take part again", "known here with another data directory")
        assert not said.lines("event=not-let-in"), "it asks nobody any more"
        async with http_to(cluster) as http:
            granted = await http.acquire("n2", f"without-{node_id}")
            assert granted.status == 200
    bring_all_back(cluster)
    async with http_to(cluster) as http:
        assert await http.token(node_id, f"without-{node_id}") == granted.body["token"]


@pytest.mark.parametrize("node_id", ["n1", "n3"])
async def test_wrong_secret(cluster: LocalCluster, tmp_path: Path, node_id: str) -> None:
    """A node with another secret is not let in; both sides say so, and the others go on."""
    cluster.kill(node_id)
    wrong = tmp_path / "secret"
    wrong.write_text("not the secret of this cluster")
    log = tmp_path / "log"
    said = LogSince(cluster, "n2")
    with running(node_command(cluster, node_id, secret_file=str(wrong)), log):
        await until(lambda: said.lines(f"peer={node_id}", "secret"), "a line in the log of n2")
        await until(lambda: "secret" in log.read_text(), "a line in its own log")
        async with http_to(cluster) as http:
            assert (await http.call(node_id, "GET", "/readyz")).status == 503
            assert (await http.acquire("n2", f"wrong-secret-{node_id}")).status == 200
            view = (await http.call("n2", "GET", "/v1/cluster")).body
            states = {node["id"]: node["state"] for node in view["nodes"]}
            assert states[node_id] == "unreachable"
            assert sorted(states.values()) == ["follower", "leader", "unreachable"]
