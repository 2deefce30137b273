"""Addresses change, nodes stay: with their directories, ids and votes."""

import asyncio
from pathlib import Path

import pytest

from scripts.lib import cluster_file, ports
from scripts.local_cluster import LocalCluster
from tests.process.nodes import http_to, node_ids, until, wait_whole

pytestmark = pytest.mark.process


def change_peer_addresses(cluster: LocalCluster, *moved: str) -> dict[str, str]:
    """Give nodes that do not run other peer addresses, in the configuration of all; return all addresses."""
    document = cluster_file.read(cluster.directory)
    for node, (_, port) in zip(
        [node for node in document["nodes"] if node["id"] in moved],
        ports.of_cluster(ports.find_base(len(moved)), len(moved)),
        strict=True,
    ):
        node["peer"] = f"{ports.HOST}:{port}"
    cluster_file.write(cluster.directory / cluster_file.FILE, document)
    return {node.id: node.peer for node in cluster.nodes()}


@pytest.mark.parametrize("moved", ["n1", "n3"])
async def test_a_node_moves_with_its_directory(tmp_path: Path, moved: str) -> None:
    """The others find it at its new address, though their configuration has the old one; it votes again."""
    with LocalCluster.up(tmp_path) as cluster:
        others = [node_id for node_id in node_ids(cluster) if node_id != moved]
        async with http_to(cluster) as http:
            kept = await http.acquire(moved, "kept", ttl_ms=600_000)
            await asyncio.to_thread(cluster.kill, moved)
            peer = change_peer_addresses(cluster, moved)[moved]
            body = {"id": moved, "peer": peer}
            got = await http.call(others[0], "PATCH", "/v1/cluster/members", {**body, "reason": "by hand"})
            assert got.status == 200
            assert body.items() <= next(item for item in got.body["members"] if item["id"] == moved).items()
            await asyncio.to_thread(cluster.start, moved)
            await asyncio.to_thread(wait_whole, cluster)
            assert await http.token(moved, "kept") == kept.body["token"]
            await asyncio.to_thread(cluster.kill, others[0])
            assert (await http.acquire(moved, "its-vote-counts")).status == 200


async def test_all_addresses_change_at_once(tmp_path: Path) -> None:
    """Who finds nobody where the list says looks where the configuration does; then the list follows."""
    with LocalCluster.up(tmp_path) as cluster:
        async with http_to(cluster) as http:
            kept = await http.acquire("n1", "kept", ttl_ms=600_000)
            for node_id in node_ids(cluster):
                await asyncio.to_thread(cluster.kill, node_id)
            peers = change_peer_addresses(cluster, *node_ids(cluster))
            for node_id in node_ids(cluster):
                await asyncio.to_thread(cluster.start, node_id)
            await asyncio.to_thread(wait_whole, cluster)
            assert await http.token("n2", "kept") == kept.body["token"]
            for node_id, peer in peers.items():

                async def is_moved(node_id: str = node_id, peer: str = peer) -> bool:
                    body = {"id": node_id, "peer": peer}
                    asked = {**body, "reason": "by hand"}
                    got = await http.call("n1", "PATCH", "/v1/cluster/members", asked)
                    return (
                        got.status == 200
                        and body.items()
                        <= {
                            key: value
                            for item in got.body["members"]
                            if item["id"] == node_id
                            for key, value in item.items()
                        }.items()
                    )

                await until(is_moved, f"{node_id} is at {peer}")
            view = (await http.call("n3", "GET", "/v1/cluster")).body
            assert {node["id"]: node["peer"] for node in view["nodes"]} == peers
