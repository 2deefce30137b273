"""Leases end when they should, in a healthy cluster that does nothing else."""

import asyncio
import statistics

import pytest

from scripts.local_cluster import LocalCluster
from tests.process.history_checkers import BROKEN
from tests.process.nodes import Http, http_to, node_ids

pytestmark = pytest.mark.process

TTL_MS = 200
LATE_MS_MAX = 50
ROUNDS = 9


async def free_after_ms(http: Http, holder_node: str, waiter_node: str, name: str) -> float:
    """Hold a lock, let its lease end; return when another has it, counted from before the first was asked."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    held = await http.acquire(holder_node, name, ttl_ms=TTL_MS)
    assert held.status == 200
    waited = await http.acquire(waiter_node, name, wait_ms=10_000)
    took_ms = (loop.time() - began_s) * 1000
    assert waited.status == 200
    assert waited.body["token"] > held.body["token"], f"{BROKEN} the second token is no higher"
    return took_ms


async def ends_after_ms(cluster: LocalCluster) -> list[float]:
    """Return after how many ms a lock with a lease of 200 ms was another's, over all pairs of nodes."""
    nodes = node_ids(cluster)
    async with http_to(cluster) as http:
        took_ms = [
            await free_after_ms(http, nodes[i % 3], nodes[i // 3 % 3], f"lease/{i}") for i in range(ROUNDS)
        ]
    print(f"a lease of {TTL_MS} ms was another's after, ms:", [round(item, 1) for item in sorted(took_ms)])
    return took_ms


async def test_no_lease_ends_early(cluster: LocalCluster) -> None:
    """A lock with a lease of 200 ms is never another's before."""
    took_ms = await ends_after_ms(cluster)
    assert min(took_ms) >= TTL_MS, f"{BROKEN} a lease ended early: {took_ms}"


@pytest.mark.timed
async def test_lease_ends_in_time(cluster: LocalCluster) -> None:
    """A lock with a lease of 200 ms is another's within 250 ms."""
    assert statistics.median(await ends_after_ms(cluster)) <= TTL_MS + LATE_MS_MAX
