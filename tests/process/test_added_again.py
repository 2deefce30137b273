"""A node is removed and added again with a new disk while another one is away, which then meets both."""

import asyncio
import shutil
from pathlib import Path

import pytest

from scripts.local_cluster import LocalCluster
from tests.process.nodes import LogSince, http_to, let_join, until, wait_whole

pytestmark = pytest.mark.process


async def test_who_was_away_hears_a_leader_whose_disk_it_does_not_know(tmp_path: Path) -> None:
    """It takes the log from it, and with the log the list that has the new disk; nobody stops."""
    with LocalCluster.up(tmp_path, nodes=5) as cluster:
        async with http_to(cluster) as http:
            for node_id in ("n1", "n5"):
                await asyncio.to_thread(cluster.kill, node_id)
            assert (await http.remove_member("n2", "n5")).status == 200
            shutil.rmtree(cluster.data_dir("n5"))
            let_join(cluster, "n5")
            await asyncio.to_thread(cluster.start, "n5")
            peer = cluster.node("n5").peer

            async def counts() -> bool:
                members = (await http.add_member("n2", "n5", peer)).body.get("members", [])
                return {"id": "n5", "peer": peer, "state": "voter"} in members

            await until(counts, "n5 counts again")

            async def leads() -> bool:
                # It can be elected once a majority has connected with it, and is asked again until then.
                got = await http.call(
                    "n2", "POST", "/v1/cluster/transfer-leadership", {"to": "n5", "reason": "by hand"}
                )
                return bool(got.body == {"leader": "n5"})

            await until(leads, "n5 leads")
            kept = await http.acquire("n3", "kept", ttl_ms=600_000)
            said, heard = LogSince(cluster, "n5"), LogSince(cluster, "n1")
            await asyncio.to_thread(cluster.start, "n1")
            await asyncio.to_thread(wait_whole, cluster)
            assert await http.token("n1", "kept") == kept.body["token"]
            assert (await http.call("n1", "GET", "/v1/cluster")).body["leader"] == "n5"
            assert not said.lines("event=node-failed")
            assert not heard.lines("event=node-failed")
            # Its vote and its acknowledgements count for n1, too.
            for node_id in ("n2", "n3"):
                await asyncio.to_thread(cluster.kill, node_id)
            assert (await http.acquire("n1", "later")).body["token"] > kept.body["token"]
