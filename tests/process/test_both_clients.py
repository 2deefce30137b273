"""Both clients, asyncio and threads, against real nodes whose leader is killed."""

import asyncio
import contextlib

import pytest

import holdfast
from scripts.local_cluster import LocalCluster
from tests.process.nodes import bring_all_back, urls
from tests.support.both_clients import KINDS, client_of

pytestmark = pytest.mark.process

CYCLES = 8


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_held_outlives_the_leader(cluster: LocalCluster, kind: str) -> None:
    """A lock, permits, a session and an election go on over a kill; a watch tells each event once."""
    prefix = f"both/{kind}"
    async with (
        client_of(kind, urls(cluster), owner="first") as first,
        client_of(kind, urls(cluster), owner="second") as second,
        second.watch(f"{prefix}/lock") as watch,
    ):
        await watch.begin()
        async with (
            first.lock((*prefix.split("/"), "lock")) as lock,
            first.semaphore(f"{prefix}/permits", limit=2, permits=2) as permits,
            first.session() as session,
            first.election(f"{prefix}/election", value="a", session=session) as leadership,
            first.transaction() as transaction,
        ):
            await transaction.acquire(f"{prefix}/source")
            await asyncio.to_thread(cluster.kill, cluster.leader())
            await lock.renew()
            await permits.renew()
            await session.keepalive()
            await leadership.proclaim("b")
            await transaction.acquire(f"{prefix}/target")
            await transaction.write(holdfast.CellPut(f"{prefix}/moved", "1"))
            assert await second.lock(lock.name).try_acquire() is None
            leader = await second.election(f"{prefix}/election").leader()
            assert leader is not None
            assert (leader.value, leader.token) == ("b", leadership.token)
        async with second.lock(lock.name) as later:
            assert later.token > lock.token
        events = [await anext(watch) for _ in range(4)]
        assert [(event.event, event.token) for event in events] == [
            ("granted", lock.token),
            ("released", lock.token),
            ("granted", later.token),
            ("released", later.token),
        ]


async def test_tasks_and_threads_exclude_each_other_under_kills(cluster: LocalCluster) -> None:
    """Workers of both kinds take turns while leaders die: one at a time, and tokens rise."""
    inside: list[str] = []
    tokens: list[int] = []

    async def work(worker: str, client: holdfast.Client) -> None:
        for _ in range(CYCLES):
            async with client.lock("both/turns") as hold:
                inside.append(worker)
                tokens.append(hold.token)
                await asyncio.sleep(0)
                assert inside == [worker]
                inside.remove(worker)

    async def disturb() -> None:
        for _ in range(2):
            await asyncio.to_thread(cluster.kill, cluster.leader())
            await asyncio.to_thread(bring_all_back, cluster)

    async with contextlib.AsyncExitStack() as stack:
        workers = [
            (f"{kind}-{index}", await stack.enter_async_context(client_of(kind, urls(cluster))))
            for kind in KINDS
            for index in range(2)
        ]
        async with asyncio.TaskGroup() as group:
            for worker, client in workers:
                group.create_task(work(worker, client))
            group.create_task(disturb())
    assert len(tokens) == CYCLES * len(workers)
    assert tokens == sorted(set(tokens))
