"""Both clients, asyncio and threads, against real nodes whose leader is killed."""

import asyncio
import contextlib

import pytest

import holdfast
from scripts.local_cluster import LocalCluster
from tests.process.history_checkers import BROKEN
from tests.process.nodes import DEADLINE_S, bring_all_back, node_ids, slow, urls
from tests.support.both_clients import KINDS, WAYS, client_of, is_streaming

pytestmark = pytest.mark.process

CYCLES = 8
WORKERS = 8


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_held_outlives_the_leader(cluster: LocalCluster, kind: str, way: str) -> None:
    """A lock, permits, a session and an election go on over a kill; a watch tells each event once."""
    prefix = f"both-{way}/{kind}"
    async with (
        client_of(kind, urls(cluster), way=way, owner="first") as first,
        client_of(kind, urls(cluster), way=way, owner="second") as second,
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
                assert inside == [worker], f"{BROKEN} {inside} at a time"
                inside.remove(worker)

    async def disturb() -> None:
        for _ in range(2):
            await asyncio.to_thread(cluster.kill, cluster.leader())
            await asyncio.to_thread(bring_all_back, cluster)

    async with contextlib.AsyncExitStack() as stack:
        workers = [
            (f"{kind}-{way}", await stack.enter_async_context(client_of(kind, urls(cluster), way=way)))
            for kind in KINDS
            for way in WAYS
        ]
        async with asyncio.TaskGroup() as group:
            for worker, client in workers:
                group.create_task(work(worker, client))
            group.create_task(disturb())
    assert len(tokens) == CYCLES * len(workers)
    assert tokens == sorted(set(tokens)), f"{BROKEN} tokens do not rise"


@pytest.mark.parametrize(
    ("kind", "fault"),
    [("threads", "kill"), ("asyncio", "pause"), slow("asyncio", "kill"), slow("threads", "pause")],
)
async def test_a_busy_client_does_all_once_while_each_node_fails(
    cluster: LocalCluster, kind: str, fault: str
) -> None:
    """Locks are acquired, renewed and released over a stream under kill -9 or SIGSTOP of each node in turn.

    No call fails, every acquire is one grant in the audit, nothing stays held, and the stream comes back.
    """
    is_over = asyncio.Event()
    cycles = dict.fromkeys([f"{fault}-{kind}/{index}" for index in range(WORKERS)], 0)

    async def work(client: holdfast.Client, name: str) -> None:
        last = 0
        while not is_over.is_set():
            async with client.lock(name, ttl=60) as hold:
                assert hold.token > last, f"{BROKEN} token {hold.token} came after {last}"
                last = hold.token
                await hold.renew()
            cycles[name] += 1
            await asyncio.sleep(0.02)

    async def disturb(client: holdfast.Client) -> None:
        for node_id in node_ids(cluster):
            before = sum(cycles.values())
            await asyncio.to_thread(getattr(cluster, fault), node_id)
            async with asyncio.timeout(DEADLINE_S):
                enough = before + 5 * WORKERS
                while sum(cycles.values()) < enough or not is_streaming(client):  # noqa: ASYNC110 - others do it
                    await asyncio.sleep(0.01)
            await asyncio.to_thread(bring_all_back, cluster)
        is_over.set()

    async with client_of(kind, urls(cluster), way="stream") as client, asyncio.TaskGroup() as group:
        for name in cycles:
            group.create_task(work(client, name))
        group.create_task(disturb(client))
    async with holdfast.Client(urls(cluster)) as reader:
        for name, count in cycles.items():
            events = [event.event for event in await reader.audit(name, limit=1000)]
            assert (events.count("granted"), events.count("released")) == (count, count)
            assert (await reader.inspect(name)).state == "free"
