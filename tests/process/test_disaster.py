"""A majority of the data directories is lost, or all: the procedures of docs/operating.md with real nodes."""

import asyncio
import shutil
import sys
import time
from pathlib import Path

import pytest

import holdfast
from holdfast import wire
from scripts.local_cluster import PROJECT, LocalCluster, node_environment
from tests.process.load import Load
from tests.process.nodes import (
    Http,
    LogSince,
    http_to,
    let_join,
    node_ids,
    revisions,
    running,
    until,
    urls,
)
from tests.process.nodes import node_command as argv_of

pytestmark = pytest.mark.process

TTL_MS = 600_000
DEADLINE_S = 60
RESTORE_S = 60.0
"""Seconds from the loss of everything to a cluster that serves, of three nodes on one machine."""
TOKENS_SKIPPED = 1 << 32


async def node_command(*words: str, stdin: str = "") -> tuple[int | None, str]:
    """Run a command of `holdfast-node`; return the exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "http_api", *words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=PROJECT,
        env=node_environment(),
    )
    async with asyncio.timeout(DEADLINE_S):
        said, _ = await process.communicate(stdin.encode())
    return process.returncode, said.decode()


async def restore(cluster: LocalCluster, node_id: str, saved: Path, *flags: str) -> str:
    """Restore a backup on a node, for a new cluster of all nodes at their addresses."""
    peers = ",".join(f"{node.id}={node.peer}" for node in cluster.nodes())
    code, said = await node_command(
        *("restore", str(saved), "--data-dir", str(cluster.data_dir(node_id)), "--node-id", node_id),
        *("--peers", peers, *flags),
    )
    assert code == 0, said
    return said


def lose(cluster: LocalCluster, *lost: str) -> None:
    """End nodes and destroy what they knew."""
    for node_id in lost:
        cluster.kill(node_id)
        shutil.rmtree(cluster.data_dir(node_id))


def join(cluster: LocalCluster, *joining: str) -> None:
    """Start nodes with --join, on the directories that they have."""
    for node_id in joining:
        let_join(cluster, node_id)
        cluster.start(node_id)


async def check_old_is_over(http: Http, old: dict[str, object]) -> None:
    """What the old cluster granted is gone, and its token is refused by a fence that has seen a new one."""
    assert (await http.release("n1", str(old["hold_id"]))).code == "lease-expired"
    renewed = await http.call("n1", "POST", wire.LOCK_RENEW, {"hold_id": old["hold_id"]})
    assert (renewed.status, renewed.code) == (410, "lease-expired")
    new = await http.acquire("n1", "kept", ttl_ms=TTL_MS)
    assert new.body["token"] >= TOKENS_SKIPPED
    advanced = {"name": "store", "token": new.body["token"]}
    assert (await http.call("n1", "POST", wire.FENCE_ADVANCE, advanced)).status == 200
    stale = await http.call("n1", "POST", wire.FENCE_ADVANCE, {"name": "store", "token": old["token"]})
    assert stale.code == "stale-token"
    audit = await http.call("n1", "GET", f"{wire.AUDIT}?limit=1000")
    assert [event["event"] for event in audit.body["events"]].count("restored") == 1


async def test_all_is_lost_and_restored(tmp_path: Path) -> None:
    """Saved under load, all directories deleted, restored on one node: the others join, within a minute."""
    saved = tmp_path / "saved"
    with LocalCluster.up(tmp_path / "cluster") as cluster:
        async with http_to(cluster) as http, asyncio.timeout(2 * DEADLINE_S):
            old = (await http.acquire("n1", "kept", ttl_ms=TTL_MS)).body
            await http.call("n1", "PUT", wire.CELL.format(key="app"), {"value": "42"})
            async with (
                Load(urls(cluster), prefix="busy", clients=4),
                holdfast.Client(urls(cluster)) as client,
            ):
                info = await client.admin.backup(saved)
            dead = tmp_path / "dead"
            cluster.kill("n2")
            shutil.copytree(cluster.data_dir("n2"), dead)
            lose(cluster, *node_ids(cluster))

            began_s = time.monotonic()
            said = await restore(cluster, "n1", saved)
            assert f"backup of cluster {info.cluster_id} at revision {info.revision}" in said
            cluster.start("n1")
            join(cluster, "n2", "n3")
            cluster.wait_ready()
            assert time.monotonic() - began_s < RESTORE_S
            await check_old_is_over(http, old)
            assert (await http.call("n3", "GET", wire.CELL.format(key="app"))).status == 200
            await check_dead_is_refused(cluster, http, "n2", dead)


async def check_dead_is_refused(cluster: LocalCluster, http: Http, node_id: str, dead: Path) -> None:
    """A node of the old cluster that comes back with its directory and its settings is let in by nobody."""
    cluster.kill(node_id)
    log, (first, *_) = dead.with_suffix(".log"), [one for one in node_ids(cluster) if one != node_id]
    said = LogSince(cluster, first)
    with running(argv_of(cluster, node_id, data_dir=str(dead)), log):
        await until(
            lambda: said.lines("event=not-let-in", f"peer={node_id}", "cluster"), "the old node is refused"
        )
        view = await http.call(node_id, "GET", wire.READYZ)
        assert view.status == 503
        refused = await http.acquire(node_id, "of-the-dead", timeout_ms=200)
        assert refused.status == 503
        assert (await http.acquire(first, "of-the-living")).status == 200
    cluster.start(node_id)
    cluster.wait_ready()


async def test_restored_twice_by_mistake(tmp_path: Path) -> None:
    """Of two restored nodes the third can join one alone, and only that one ever serves."""
    saved = tmp_path / "saved"
    with LocalCluster.up(tmp_path / "cluster") as cluster:
        async with http_to(cluster) as http, asyncio.timeout(2 * DEADLINE_S):
            async with holdfast.Client(urls(cluster)) as client:
                await client.admin.backup(saved)
            lose(cluster, *node_ids(cluster))
            for node_id in ("n1", "n2"):
                await restore(cluster, node_id, saved)
                cluster.start(node_id)
            await until(
                lambda: all(
                    {"forming", "refuses-peer"} <= {one["kind"] for one in (view or {}).get("obstacles", [])}
                    for view in map(cluster.view, ("n1", "n2"))
                ),
                "both say what they wait for, and that the other is of another cluster",
            )
            for node_id in ("n1", "n2"):
                assert (await http.acquire(node_id, "a", timeout_ms=200)).status == 503
            join(cluster, "n3")
            await until(lambda: _serving(cluster), "one of the two serves")
            (serving,) = _serving(cluster) - {"n3"}
            other = "n2" if serving == "n1" else "n1"
            assert (await http.acquire(serving, "a")).status == 200
            assert (await http.acquire(other, "a", timeout_ms=200)).status == 503
            # The mistake is undone: the node that nobody joined joins.
            lose(cluster, other)
            join(cluster, other)
            cluster.wait_ready()
            assert (await http.token(other, "a") or 0) >= TOKENS_SKIPPED


def _serving(cluster: LocalCluster) -> set[str]:
    """Return the nodes that are ready."""
    return {node_id for node_id in node_ids(cluster) if (cluster.view(node_id) or {}).get("ready")}


async def test_a_lost_majority_is_recovered(tmp_path: Path) -> None:
    """Two of three directories are lost: recover, start, join, and the third has all that it had."""
    with LocalCluster.up(tmp_path / "cluster") as cluster:
        async with http_to(cluster) as http, asyncio.timeout(2 * DEADLINE_S):
            old = (await http.acquire("n3", "kept", ttl_ms=TTL_MS)).body
            await http.call("n3", "PUT", wire.CELL.format(key="app"), {"value": "42"})
            # The entry is on the survivor's disk, or it would be lost with the others.
            await until(lambda: len(revisions(cluster)) == 1, "all nodes at one revision")
            left, old_id = cluster.data_dir("n3"), ""
            code, said = await node_command(
                "recover", "--data-dir", str(left), "--into", str(tmp_path / "new")
            )
            assert (code, "in use by another process" in said) == (3, True)
            dead = tmp_path / "dead"
            cluster.kill("n1")
            shutil.copytree(cluster.data_dir("n1"), dead)
            lose(cluster, "n1", "n2")
            await until(lambda: not _serving(cluster), "the survivor knows that it is alone")
            assert (await http.acquire("n3", "other", timeout_ms=200)).status == 503
            cluster.kill("n3")
            code, said = await node_command(
                "recover", "--data-dir", str(left), "--into", str(tmp_path / "new")
            )
            assert code == 2
            old_id = said.split("of cluster ")[1].split()[0]

            words = ("recover", "--data-dir", str(left), "--into", str(tmp_path / "new"))
            code, said = await node_command(*words, stdin=old_id + "\n")
            assert code == 0, said
            left.rename(tmp_path / "before")
            (tmp_path / "new").rename(left)
            cluster.start("n3")
            join(cluster, "n1")
            await until(lambda: _serving(cluster) == {"n1", "n3"}, "two of three serve")
            join(cluster, "n2")
            cluster.wait_ready()
            await check_old_is_over(http, old)
            assert (await http.call("n2", "GET", wire.CELL.format(key="app"))).status == 200
            await check_dead_is_refused(cluster, http, "n1", dead)


async def test_an_old_node_with_an_empty_directory_is_told_what_to_do(tmp_path: Path) -> None:
    """Started with its usual settings, and without --join, it waits and says so; then it joins."""
    saved = tmp_path / "saved"
    with LocalCluster.up(tmp_path / "cluster") as cluster:
        async with holdfast.Client(urls(cluster)) as client, asyncio.timeout(2 * DEADLINE_S):
            await client.admin.backup(saved)
            lose(cluster, *node_ids(cluster))
            await restore(cluster, "n1", saved, "--keep-holds")
            cluster.start("n1")
            said = LogSince(cluster, "n2")
            cluster.start("n2")
            await until(
                lambda: said.lines("event=founding-waits", "to join it, start n2 with --join"), "the advice"
            )
            cluster.kill("n2")
            join(cluster, "n2")
            await until(lambda: _serving(cluster) == {"n1", "n2"}, "two of three serve")
