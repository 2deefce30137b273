"""A node without a majority says so in time, serves what it may, and recovers when one comes back."""

import asyncio
from functools import partial

import pytest

from scripts.local_cluster import LocalCluster
from tests.process.nodes import LogSince, followers, http_to, node_ids, until

pytestmark = pytest.mark.process

TIMEOUT_MS = 500
PATIENT_MS = 30_000
GRACE_S = 0.5
"""For the machine, not for the node."""


def has_no_leader(cluster: LocalCluster, node_id: str) -> bool:
    """Whether a node says that nobody leads."""
    view = cluster.view(node_id)
    return view is not None and view["leader"] is None


@pytest.mark.parametrize("survivor_leads", [False, True])
async def test_survivor(cluster: LocalCluster, survivor_leads: bool) -> None:  # noqa: FBT001
    """One of three nodes refuses writes and linearizable reads in time, and serves stale reads."""
    survivor = cluster.leader() if survivor_leads else followers(cluster)[0]
    name = f"minority/{survivor_leads}"
    async with http_to(cluster) as http:
        granted = await http.acquire(survivor, name)
        assert granted.status == 200
        gone = [node_id for node_id in node_ids(cluster) if node_id != survivor]
        said = LogSince(cluster, survivor)
        for node_id in gone:
            cluster.kill(node_id)
        # A leader finds out by the silence of the others; what it took before has an unknown outcome.
        await until(lambda: has_no_leader(cluster, survivor), "the survivor knows that it is alone")

        # A client with more patience keeps nobody waiting, and is served when there is a majority again.
        patient = [
            asyncio.create_task(http.lock(survivor, name, timeout_ms=PATIENT_MS)),
            asyncio.create_task(http.acquire(survivor, f"{name}/patient", timeout_ms=PATIENT_MS)),
        ]
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        answers = await asyncio.gather(
            http.acquire(survivor, f"{name}/other", timeout_ms=TIMEOUT_MS),
            http.acquire(survivor, name, timeout_ms=TIMEOUT_MS, wait_ms=60_000),
            http.lock(survivor, name, timeout_ms=TIMEOUT_MS),
        )
        assert loop.time() - began_s < TIMEOUT_MS / 1000 + GRACE_S
        assert [(got.status, got.code, got.body["outcome"]) for got in answers] == [
            (503, "no-leader", "not-applied")
        ] * 3
        assert (await http.call(survivor, "GET", "/readyz")).status == 503

        again = await http.lock(survivor, name, timeout_ms=TIMEOUT_MS)
        assert (again.status, again.code) == (503, "no-leader")

        stale = await http.lock(survivor, name, is_stale=True)
        assert stale.status == 200
        assert stale.body["holders"][0]["token"] == granted.body["token"]
        assert stale.body["revision"] >= granted.body["revision"]
        assert 0 < stale.body["lag_ms"] < 60_000
        later = await http.lock(survivor, name, is_stale=True)
        assert later.body["lag_ms"] >= stale.body["lag_ms"]

        await until(lambda: said.lines("event=no-quorum", *gone, "2 of 3 nodes"), "the log says so")
        await until(lambda: said.lines("event=not-ready"), "the log says that it does not serve")
        assert not said.lines("event=quorum-again")
        cluster.start(gone[0])
        await until(lambda: not has_no_leader(cluster, survivor), "a leader of two nodes")
        await until(lambda: said.lines("event=quorum-again", gone[1]), "the log says that it is over")
        await until(lambda: said.lines("event=ready"), "the log says that it serves again")
        assert [(await task).status for task in patient] == [200, 200]
        assert await http.token(survivor, name) == granted.body["token"]
        assert (await http.release(survivor, granted.body["hold_id"])).status == 200
        assert (await http.acquire(survivor, name)).body["token"] > granted.body["token"]


@pytest.mark.parametrize("survivor_leads", [False, True])
async def test_waits_at_the_survivor(cluster: LocalCluster, survivor_leads: bool) -> None:  # noqa: FBT001
    """Who waits in a queue at a node without a majority is told so, and keeps its place by its request id."""
    survivor = cluster.leader() if survivor_leads else followers(cluster)[0]
    name = f"minority/wait/{survivor_leads}"
    async with http_to(cluster) as http:
        held = await http.acquire(survivor, name)
        wait = partial(http.acquire, survivor, name, wait_ms=60_000, request_id=f"the-request-for-{name}")
        waiting = asyncio.create_task(wait())
        while not await http.queue_length(survivor, name):
            pass
        gone = [node_id for node_id in node_ids(cluster) if node_id != survivor]
        for node_id in gone:
            cluster.kill(node_id)
        try:
            told = await waiting
        finally:
            for node_id in gone:
                cluster.start(node_id)
            await asyncio.to_thread(cluster.wait_ready)
        assert (told.status, told.code, told.body["outcome"]) == (504, "outcome-unknown", "unknown")
        again = asyncio.create_task(wait())
        while not await http.queue_length(survivor, name):
            pass
        assert (await http.release(survivor, held.body["hold_id"])).status == 200
        granted = await again
        assert granted.body["token"] > held.body["token"]
        assert (await http.release(survivor, granted.body["hold_id"])).status == 200


@pytest.mark.parametrize("survivor_leads", [False, True])
async def test_paused_majority(cluster: LocalCluster, survivor_leads: bool) -> None:  # noqa: FBT001
    """Nodes that are stopped with open connections, as by SIGSTOP, are as good as dead to the third one."""
    survivor = cluster.leader() if survivor_leads else followers(cluster)[0]
    name = f"paused/{survivor_leads}"
    async with http_to(cluster) as http:
        paused = [node_id for node_id in node_ids(cluster) if node_id != survivor]
        for node_id in paused:
            cluster.pause(node_id)
        await until(lambda: has_no_leader(cluster, survivor), "the survivor knows that it is alone")
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        got = await http.acquire(survivor, name, timeout_ms=TIMEOUT_MS)
        assert loop.time() - began_s < TIMEOUT_MS / 1000 + GRACE_S
        assert (got.status, got.code, got.body["outcome"]) == (503, "no-leader", "not-applied")
        for node_id in paused:
            cluster.resume(node_id)
        await until(lambda: not has_no_leader(cluster, survivor), "a leader of three nodes")
        assert (await http.acquire(survivor, name)).status == 200
