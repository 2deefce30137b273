"""Watching a cluster whose nodes die, restart and compact, and what a client that does not read costs it."""

import asyncio
import socket
import urllib.parse

import aiohttp
import pytest

from holdfast import wire
from scripts.local_cluster import LocalCluster
from tests.process import history_checkers
from tests.process.load import Load
from tests.process.nodes import DEADLINE_S, Http, bring_all_back, followers, http_to, until, urls
from tests.support.event_source import EventSource, Told

pytestmark = pytest.mark.process

LONG = "x" * 300


def url(cluster: LocalCluster, node_id: str) -> str:
    """Return where a node is watched."""
    return cluster.node(node_id).http + wire.WATCH


async def take_until(source: EventSource, name: str) -> list[Told]:
    """Read on until a lock is granted; return all events up to there."""
    while (told := await source.next()) is not None:
        if told.event == "granted" and told.data["name"] == name:
            return source.told
    raise AssertionError(f"the stream ended before {name} was granted")


async def mark(http: Http, node_id: str, name: str) -> None:
    """Make an event that ends a history."""
    assert (await http.acquire(node_id, name)).status == 200


def tokens(told: list[Told]) -> list[int]:
    """Return the tokens of grants, in order."""
    return [event.data["token"] for event in told if event.event == "granted"]


async def test_watched_node_killed(cluster: LocalCluster) -> None:
    """A watch that goes on at another node, when its leader is killed, tells everything once, in order."""
    first, (second, third) = cluster.leader(), followers(cluster)
    async with aiohttp.ClientSession() as session, http_to(cluster) as http:
        source = await EventSource.open(session, url(cluster, first))
        start = source.last_id
        async with Load(urls(cluster), prefix="watch/killed") as load:
            await source.take(50)
            await asyncio.to_thread(cluster.kill, first)
            while (await source.next()) is not None:
                """What was on its way still counts."""
            after = await EventSource.open(session, url(cluster, second), source.last_id)
            await load.grants(50)
        await mark(http, third, "watch/end/killed")
        told = source.told + await take_until(after, "watch/end/killed")
        whole = await EventSource.open(session, url(cluster, third), since=start)
        assert told == await take_until(whole, "watch/end/killed")
        assert len({event.id for event in told}) == len(told)
        assert tokens(told) == sorted(tokens(told))
        assert {grant.token for grant in history_checkers.grants(load.history)} <= set(tokens(told))
        assert not history_checkers.violations(load.history)
        await asyncio.to_thread(bring_all_back, cluster)
        restarted = await EventSource.open(session, url(cluster, first), since=start)
        assert told == await take_until(restarted, "watch/end/killed"), "the restarted node tells the same"


async def test_watched_node_stopped(cluster: LocalCluster) -> None:
    """A node that is stopped says so to its watchers; after its restart it goes on where they were."""
    node_id, other = followers(cluster)
    async with aiohttp.ClientSession() as session, http_to(cluster) as http:
        source = await EventSource.open(session, url(cluster, node_id), prefix="watch/stopped")
        await mark(http, other, "watch/stopped/before")
        await take_until(source, "watch/stopped/before")
        stopping = asyncio.create_task(asyncio.to_thread(cluster.terminate, node_id))
        cut = await source.next()
        assert cut is not None
        assert (cut.event, cut.data) == ("cut", {"reason": "shutting-down"})
        assert await source.next() is None
        await stopping
        await mark(http, other, "watch/stopped/meanwhile")
        await asyncio.to_thread(bring_all_back, cluster)
        await mark(http, other, "watch/stopped/after")
        again = await EventSource.open(session, url(cluster, node_id), source.last_id, prefix="watch/stopped")
        told = await take_until(again, "watch/stopped/after")
        assert [event.data["name"] for event in told] == ["watch/stopped/meanwhile", "watch/stopped/after"]


async def test_history_begins_with_the_snapshot(compacting: LocalCluster) -> None:
    """A node that restarts behind a snapshot says from where on it can be resumed, and tells all of that."""
    node_id, other = followers(compacting)
    async with aiohttp.ClientSession() as session, http_to(compacting) as http:
        async with Load(urls(compacting), prefix="watch/compacted") as load:
            await load.grants(300)
        await asyncio.to_thread(compacting.kill, node_id)
        await asyncio.to_thread(bring_all_back, compacting)
        query = urllib.parse.urlencode({"since": 0})
        gone = await http.call(node_id, "GET", f"{wire.WATCH}?{query}")
        assert (gone.status, gone.code) == (410, "compacted")
        oldest = str(gone.body["oldest"])
        await mark(http, other, "watch/end/compacted")
        here = await EventSource.open(session, url(compacting, node_id), since=oldest)
        there = await EventSource.open(session, url(compacting, other), since=oldest)
        assert await take_until(here, "watch/end/compacted") == await take_until(there, "watch/end/compacted")


async def test_slow_reader(cluster: LocalCluster) -> None:
    """A client that reads nothing is cut; clients of locks and other watchers of its node notice nothing."""
    node_id = cluster.leader()
    counted = 'holdfast_watch_cuts_total{reason="slow-reader"}'
    address = urllib.parse.urlsplit(cluster.node(node_id).http)
    loop = asyncio.get_running_loop()
    async with aiohttp.ClientSession() as session, http_to(cluster) as http:
        before = await http.metric(node_id, counted)
        quick = await EventSource.open(session, url(cluster, node_id))
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            await loop.sock_connect(client, (address.hostname, address.port))
            await loop.sock_sendall(client, f"GET {wire.WATCH} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
            async with Load(urls(cluster), prefix=f"watch/slow/{LONG}", clients=12) as load:
                reading = asyncio.create_task(take_until(quick, "watch/end/slow"))

                async def is_cut() -> bool:
                    return await http.metric(node_id, counted) == before + 1

                await until(is_cut, "the slow reader is cut", 4 * DEADLINE_S)
                await load.grants(100)
        await mark(http, node_id, "watch/end/slow")
        assert {grant.token for grant in history_checkers.grants(load.history)} <= set(tokens(await reading))
        assert not history_checkers.violations(load.history)
        assert not history_checkers.errors(load.history)
