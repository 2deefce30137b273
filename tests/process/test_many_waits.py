"""Many waits of one client on real nodes: what they cost, in which order they are served, and who is lost."""

import asyncio
import random
import time

import pytest

import holdfast
from scripts.local_cluster import LocalCluster
from tests.process.nodes import bring_all_back, http_to, node_ids, until, urls

pytestmark = pytest.mark.process

WAITS_COUNT = 1_000
CONNECTIONS_MAX = 10


async def _queue_length(client: holdfast.Client, name: str) -> int:
    return len((await client.inspect(name)).queue)


async def _total(cluster: LocalCluster, metric: str) -> float:
    async with http_to(cluster) as http:
        return sum([await http.metric(node_id, metric) or 0 for node_id in node_ids(cluster)])


async def test_many_waits_cost_few_connections(cluster: LocalCluster) -> None:
    """A thousand tasks are served as they asked, though the node that they wait at is killed."""
    name, order = f"many/{time.monotonic_ns()}", list[int]()
    before = await _total(cluster, "holdfast_http_connections")
    async with (
        holdfast.Client(urls(cluster), owner="holder", timeout=30) as holder,
        holdfast.Client(urls(cluster), owner="waiters", timeout=30) as client,
    ):
        hold = await holder.lock(name, ttl=120).acquire()

        async def work(number: int) -> None:
            async with client.lock(name, ttl=60):
                order.append(number)

        tasks = [asyncio.create_task(work(number)) for number in range(WAITS_COUNT)]

        async def all_wait() -> bool:
            return await _queue_length(holder, name) == WAITS_COUNT

        await until(all_wait, "all wait")
        assert await _total(cluster, "holdfast_http_connections") - before <= CONNECTIONS_MAX
        link = client._transport.waits._link
        assert link is not None
        await asyncio.to_thread(cluster.kill, node_ids(cluster)[link.node])
        await asyncio.sleep(0)
        assert not any(task.done() for task in tasks)
        await hold.release()
        async with asyncio.timeout(120):
            await asyncio.gather(*tasks)
        assert order == list(range(WAITS_COUNT))
    await asyncio.to_thread(bring_all_back, cluster)


async def test_some_of_many_waits_give_up(cluster: LocalCluster) -> None:
    """Those that are cancelled leave the queue at once, and all others are served in order."""
    name, order = f"many/{time.monotonic_ns()}", list[int]()
    async with (
        holdfast.Client(urls(cluster), owner="holder") as holder,
        holdfast.Client(urls(cluster), owner="waiters") as client,
    ):
        hold = await holder.lock(name, ttl=120).acquire()

        async def work(number: int) -> None:
            async with client.lock(name, ttl=60):
                order.append(number)

        tasks = [asyncio.create_task(work(number)) for number in range(200)]

        async def all_wait() -> bool:
            return await _queue_length(holder, name) == len(tasks)

        await until(all_wait, "all wait")
        given_up = set(random.Random(5).sample(range(200), 100))
        for number in given_up:
            tasks[number].cancel()
        await asyncio.wait([tasks[number] for number in given_up])
        assert await _queue_length(holder, name) == 100
        await hold.release()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert order == sorted(set(range(200)) - given_up)
