"""The procedure of 'A node lost its disk' in docs/operating.md, step by step, with real nodes."""

import asyncio
import shutil
import signal
from pathlib import Path

import pytest

from scripts.lib import cluster_file
from scripts.local_cluster import LocalCluster
from tests.process.nodes import Http, LogSince, exit_code, followers, http_to, node_ids, process, until

pytestmark = pytest.mark.process

NEW_ID = "n4"
TTL_MS = 600_000
COMPACT_ENTRIES = 100


def lose(cluster: LocalCluster, node_id: str) -> None:
    """End a node and destroy what it knew."""
    cluster.kill(node_id)
    shutil.rmtree(cluster.data_dir(node_id))


async def compact(cluster: LocalCluster, http: Http) -> None:
    """Make the log go on until each node has written a snapshot of it."""
    said = [LogSince(cluster, node_id) for node_id in node_ids(cluster)]

    async def has_written() -> bool:
        # A linearizable read is an entry of its own.
        await http.lock("n1", "kept")
        return all(it.lines("event=snapshot-written") for it in said)

    await until(has_written, "a snapshot on each node")


def replace_in_configuration(cluster: LocalCluster, lost: str) -> None:
    """Put a new id in the place of a lost one, in the `peers` of every node."""
    document = cluster_file.read(cluster.directory)
    for node in document["nodes"]:
        if node["id"] == lost:
            node["id"], node["pid"] = NEW_ID, 0
    (cluster.directory / NEW_ID).mkdir()
    cluster_file.write(cluster.directory / cluster_file.FILE, document)


async def write_reaches_all(http: Http, remaining: list[str]) -> None:
    """Commit a write with the remaining nodes alone, and wait until each of them has applied it."""
    granted = await http.acquire(remaining[0], "after-the-loss")
    released = await http.release(remaining[0], granted.body["hold_id"])
    assert released.status == 200
    for node_id in remaining:

        async def has_it(node_id: str = node_id) -> bool:
            view = (await http.call(node_id, "GET", "/v1/cluster")).body
            return bool(view["revision"] >= released.body["revision"])

        await until(has_it, f"{node_id} has applied the write")


@pytest.mark.parametrize("lost_leads", [True, False])
@pytest.mark.parametrize("is_compacted", [True, False])
async def test_replaced(tmp_path: Path, lost_leads: bool, is_compacted: bool) -> None:  # noqa: FBT001
    """A node without its disk is replaced by a new id: holds, tokens and outcomes of requests are kept."""
    arguments = ["--compact-entries", str(COMPACT_ENTRIES)]
    with LocalCluster.up(tmp_path, extra_args=arguments) as cluster:
        lost = cluster.leader() if lost_leads else followers(cluster)[0]
        remaining = [node_id for node_id in node_ids(cluster) if node_id != lost]
        async with http_to(cluster) as http:
            kept = await http.acquire(lost, "kept", ttl_ms=TTL_MS, owner="alice", request_id="first")
            assert kept.status == 200
            if is_compacted:
                await compact(cluster, http)
            lose(cluster, lost)

            await write_reaches_all(http, remaining)
            for node_id in remaining:
                process(cluster, node_id).send_signal(signal.SIGTERM)
            for node_id in remaining:
                assert await asyncio.to_thread(exit_code, cluster, node_id) == 0
            replace_in_configuration(cluster, lost)
            new_said = LogSince(cluster, NEW_ID)
            for node_id in node_ids(cluster):
                cluster.start(node_id)
            await asyncio.to_thread(cluster.wait_ready)

            again = await http.acquire(NEW_ID, "kept", ttl_ms=TTL_MS, owner="alice", request_id="first")
            assert (again.body["hold_id"], again.body["token"]) == (kept.body["hold_id"], kept.body["token"])
            # The new node counts for a majority: with one of the others gone, it holds all that there is.
            await asyncio.to_thread(cluster.kill, remaining[0])
            assert await http.token(NEW_ID, "kept") == kept.body["token"]
            later = await http.acquire(NEW_ID, "later")
            assert later.body["token"] > kept.body["token"]
            assert bool(new_said.lines("event=snapshot-installed")) == is_compacted
            assert (await http.release(remaining[1], kept.body["hold_id"])).status == 200
