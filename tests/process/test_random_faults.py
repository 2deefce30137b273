"""One fault after the other, in an order that a seed decides: what must hold always holds then, too."""

import asyncio
import contextlib
import random

import pytest

from scripts.local_cluster import LocalCluster
from tests.process import history_checkers
from tests.process.load import Load
from tests.process.nodes import bring_all_back, http_to, node_ids, until, urls

pytestmark = pytest.mark.process

SEED = 20
SHORT_TTL_MS = 500
FAULT_NAMES = ("kill", "kill the leader", "kill two", "kill all", "stop", "pause", "pause the leader")


async def do(fault: str, cluster: LocalCluster, choices: random.Random, load: Load) -> None:
    """Do one thing to the cluster; what it ends or holds is repaired by the caller."""
    nodes = choices.sample(node_ids(cluster), 3)
    if "leader" in fault:
        nodes = [await asyncio.to_thread(cluster.leader)]
    match fault:
        case "stop":
            await asyncio.to_thread(cluster.terminate, nodes[0])
        case "kill two" | "kill all":
            for node_id in nodes[: 2 if fault == "kill two" else 3]:
                await asyncio.to_thread(cluster.kill, node_id)
        case "pause" | "pause the leader":
            cluster.pause(nodes[0])
            await load.grants(100)
        case _:
            await asyncio.to_thread(cluster.kill, nodes[0])
            await load.grants(50)


async def test_random_faults(compacting: LocalCluster) -> None:
    """Whatever is killed or paused: one holder at a time, rising tokens, nothing lost, one state."""
    cluster = compacting
    choices = random.Random(SEED)
    async with contextlib.AsyncExitStack() as stack:
        http = await stack.enter_async_context(http_to(cluster))
        async with (
            Load(urls(cluster), prefix="faults/long", clients=4, keep_every=20) as long,
            Load(
                urls(cluster), prefix="faults/short", clients=4, forget_every=3, ttl_ms=SHORT_TTL_MS
            ) as short,
        ):
            for fault in choices.sample(FAULT_NAMES, len(FAULT_NAMES)):
                print("fault:", fault)
                await do(fault, cluster, choices, long)
                await asyncio.to_thread(bring_all_back, cluster)
                await long.grants(50)
        assert not history_checkers.violations(long.history)
        assert not history_checkers.errors(long.history)
        # Short leases do end before their holders hear of them, in a pause: an error then, never a grant.
        assert not history_checkers.violations(short.history)
        held = history_checkers.still_held(long.history).values()
        for node_id in node_ids(cluster):
            assert not history_checkers.lost_grants(held, await http.tokens(node_id, "faults/long/kept/"))

        async def are_equal() -> bool:
            states = [await http.tokens(node_id, "", is_stale=True) for node_id in node_ids(cluster)]
            return states[0] == states[1] == states[2]

        await until(are_equal, "one state on all nodes")
