"""The procedures of 'A node lost its disk' in docs/operating.md, step by step, with real nodes."""

import asyncio
import shutil
from pathlib import Path

import pytest

from scripts.local_cluster import LocalCluster
from tests.process import history_checkers
from tests.process.load import Load
from tests.process.nodes import (
    Got,
    Http,
    LogSince,
    exit_code,
    followers,
    forget_node,
    holdfast,
    http_to,
    let_join,
    make_node,
    node_command,
    node_ids,
    running,
    slow,
    until,
)

pytestmark = pytest.mark.process

NEW_ID = "n4"
TTL_MS = 600_000
COMPACT_ENTRIES = 100
DEADLINE_S = 60
DATA_DIR_REFUSED = 3
IDENTITY_REFUSED = 4


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
        return all(item.lines("event=snapshot-written") for item in said)

    await until(has_written, "a snapshot on each node")


async def check_it_counts(cluster: LocalCluster, http: Http, new: str, kept: Got, gone: str) -> None:
    """The new node is a whole member: with another one gone, all that there was is still there."""
    again = await http.acquire(new, "kept", ttl_ms=TTL_MS, owner="alice", request_id="the-first-request")
    assert (again.body["hold_id"], again.body["token"]) == (kept.body["hold_id"], kept.body["token"])
    await asyncio.to_thread(cluster.kill, gone)
    assert await http.token(new, "kept") == kept.body["token"]
    later = await http.acquire(new, "later")
    assert later.body["token"] > kept.body["token"]
    assert (await http.release(new, kept.body["hold_id"])).status == 200


@pytest.mark.parametrize("lost_leads", [True, False])
@pytest.mark.parametrize("is_compacted", [True, False])
async def test_replaced_by_a_new_id(tmp_path: Path, lost_leads: bool, is_compacted: bool) -> None:  # noqa: FBT001
    """`holdfast cluster replace` puts a new node in the place of a lost one: nothing is lost but its id."""
    arguments = ["--compact-entries", str(COMPACT_ENTRIES)]
    with LocalCluster.up(tmp_path, extra_args=arguments) as cluster:
        lost = cluster.leader() if lost_leads else followers(cluster)[0]
        remaining = [node_id for node_id in node_ids(cluster) if node_id != lost]
        async with http_to(cluster) as http:
            kept = await http.acquire(
                lost, "kept", ttl_ms=TTL_MS, owner="alice", request_id="the-first-request"
            )
            if is_compacted:
                await compact(cluster, http)
            lose(cluster, lost)

            said = LogSince(cluster, NEW_ID)
            peer = make_node(cluster, NEW_ID)
            cluster.start(NEW_ID)
            out = await holdfast(cluster, "cluster", "replace", "--reason", "by hand", lost, NEW_ID, peer)
            assert out.endswith(f"{lost} was removed; the members are {', '.join([*remaining, NEW_ID])}\n")
            forget_node(cluster, lost)
            assert bool(said.lines("event=snapshot-installed")) == is_compacted
            assert set(await http.members(NEW_ID)) == {*remaining, NEW_ID}
            await check_it_counts(cluster, http, NEW_ID, kept, gone=remaining[0])


@pytest.mark.parametrize(
    ("is_emptied", "lost"), [(True, "n1"), slow(True, "n3"), slow(False, "n1"), (False, "n3")]
)
async def test_replaced_under_its_own_id(tmp_path: Path, lost: str, is_emptied: bool) -> None:  # noqa: FBT001
    """Removed and added again, a node comes back with an empty directory; clients see no error meanwhile.

    Before it was removed it is refused, with the advice. What that start has left in the directory does not
    keep it from joining.
    """
    with LocalCluster.up(tmp_path) as cluster:
        remaining = [node_id for node_id in node_ids(cluster) if node_id != lost]
        alive = [cluster.node(node_id).http for node_id in remaining]
        async with http_to(cluster) as http:
            kept = await http.acquire(
                lost, "kept", ttl_ms=TTL_MS, owner="alice", request_id="the-first-request"
            )
            lose(cluster, lost)
            async with Load(alive, prefix="meanwhile") as load:
                said = LogSince(cluster, lost)
                cluster.start(lost)
                assert await asyncio.to_thread(exit_code, cluster, lost) == 4
                assert said.lines("event=node-failed", "holdfast cluster replace")

                await holdfast(cluster, "cluster", "remove", "--yes", "--reason", "by hand", lost)
                if is_emptied:
                    shutil.rmtree(cluster.data_dir(lost))
                let_join(cluster, lost)
                cluster.start(lost)
                out = await holdfast(
                    cluster,
                    "cluster",
                    "add",
                    "--reason",
                    "by hand",
                    lost,
                    cluster.node(lost).peer,
                    "--wait",
                    "30s",
                )
                assert out.endswith("votes\n")
                await load.grants(100)
            assert not history_checkers.violations(load.history)
            assert not history_checkers.errors(load.history)
            assert set(await http.members(lost)) == {"n1", "n2", "n3"}
            await check_it_counts(cluster, http, lost, kept, gone=remaining[0])


async def test_the_old_disk_stays_out(tmp_path: Path) -> None:
    """When the lost disk turns up again, it is not let in, though its node's id is a member again."""
    with LocalCluster.up(tmp_path) as cluster:
        cluster.kill("n3")
        old = cluster.data_dir("n3").rename(tmp_path / "old")
        await holdfast(cluster, "cluster", "remove", "--yes", "--reason", "by hand", "n3")
        let_join(cluster, "n3")
        cluster.start("n3")
        peer = cluster.node("n3").peer
        await holdfast(cluster, "cluster", "add", "--reason", "by hand", "n3", peer, "--wait", "30s")
        cluster.kill("n3")
        new = cluster.data_dir("n3").rename(tmp_path / "new")
        old.rename(cluster.data_dir("n3"))
        said = LogSince(cluster, "n3")
        cluster.start("n3")
        assert await asyncio.to_thread(exit_code, cluster, "n3") == DATA_DIR_REFUSED
        assert said.lines("of a founder of its cluster", "without --join")
        with running(node_command(cluster, "n3"), tmp_path / "again") as founder:
            assert await asyncio.to_thread(founder.wait, DEADLINE_S) == IDENTITY_REFUSED
        assert "n3 was removed from this cluster" in (tmp_path / "again").read_text()
        shutil.rmtree(cluster.data_dir("n3"))
        new.rename(cluster.data_dir("n3"))
        cluster.start("n3")
        await asyncio.to_thread(cluster.wait_ready)
