"""Waiting in a queue, sessions, and a leader that pauses."""

import asyncio
import time
from typing import Any

import aiohttp
import pytest

import holdfast
from holdfast import wire
from scripts.local_cluster import LocalCluster
from tests.process import history_checkers
from tests.process.load import Load
from tests.process.nodes import Got, Http, LogSince, bring_all_back, followers, http_to, node_ids, until, urls

pytestmark = pytest.mark.process

WAIT_MS = 30_000
WAIT_KEPT_MS = wire.WAIT_KEPT_MS
SESSION_TTL_MS = 3_000


async def queued(http: Http, node_id: str, name: str, count: int) -> None:
    """Wait until `count` wait for a lock."""

    async def is_so() -> bool:
        return await http.queue_length(node_id, name) == count

    await until(is_so, f"{count} in the queue of {name}")


async def test_leader_killed_while_waiting(cluster: LocalCluster) -> None:
    """A client that waits on a follower gets the lock although the leader is killed meanwhile."""
    name = "wait/leader-killed"
    waiting_on, other = followers(cluster)
    async with http_to(cluster) as http, holdfast.Client([cluster.node(waiting_on).http]) as client:
        held = await http.acquire(other, name)
        waiting = asyncio.create_task(client.acquire(name, ttl=60, wait=WAIT_MS / 1000, renew=False))
        await queued(http, other, name, 1)
        await asyncio.to_thread(cluster.kill, cluster.leader())
        assert (await http.release(other, held.body["hold_id"])).status == 200
        hold = await waiting
        assert hold.token > held.body["token"]
        assert await http.token(other, name) == hold.token


async def test_waiting_node_killed(cluster: LocalCluster) -> None:
    """A client whose node is killed while it waits keeps its place in the queue through another node."""
    name = "wait/node-killed"
    waiting_on, other = followers(cluster)
    nodes = [cluster.node(waiting_on).http, cluster.node(other).http]
    async with http_to(cluster) as http, holdfast.Client(nodes, owner="first") as client:
        client._transport.node = 0
        held = await http.acquire(other, name)
        waiting = asyncio.create_task(client.acquire(name, ttl=60, wait=WAIT_MS / 1000, renew=False))
        await queued(http, other, name, 1)
        second = asyncio.create_task(http.acquire(other, name, owner="second", wait_ms=WAIT_MS))
        await queued(http, other, name, 2)
        await asyncio.to_thread(cluster.kill, waiting_on)
        assert (await http.release(other, held.body["hold_id"])).status == 200
        hold = await waiting
        assert await http.token(other, name) == hold.token
        await hold.release()
        assert (await second).body["token"] > hold.token


async def test_waiting_client_leaves(cluster: LocalCluster) -> None:
    """A client that closes its connection while it waits is gone from the queue."""
    name = "wait/client-leaves"
    async with http_to(cluster) as http:
        held = await http.acquire("n1", name)
        waiting = asyncio.create_task(http.acquire("n2", name, wait_ms=WAIT_MS))
        await queued(http, "n3", name, 1)
        waiting.cancel()
        await queued(http, "n3", name, 0)
        assert (await http.release("n1", held.body["hold_id"])).status == 200
        assert await http.token("n3", name) is None


async def test_cut_connection_keeps_place(cluster: LocalCluster) -> None:
    """A request whose connection ended goes on in its place on another node, whatever the first forgets."""
    name = "wait/cut"
    wait: dict[str, Any] = {"owner": "first", "wait_ms": WAIT_MS, "request_id": "first-of-the-queue"}
    async with http_to(cluster) as http:
        held = await http.acquire("n1", name)
        cut = asyncio.create_task(http.acquire("n2", name, **wait))
        await queued(http, "n3", name, 1)
        later = asyncio.create_task(http.acquire("n1", name, owner="later", wait_ms=WAIT_MS))
        await queued(http, "n3", name, 2)
        cut.cancel()
        again = asyncio.create_task(http.acquire("n3", name, **wait))

        async def has_forgotten() -> bool:
            return await http.metric("n2", "holdfast_waiting_acquires") == 0

        await until(has_forgotten, "n2 has taken back its attempt")
        await queued(http, "n3", name, 2)
        assert (await http.release("n1", held.body["hold_id"])).status == 200
        granted = await again
        assert (granted.status, later.done()) == (200, False)
        assert (await http.release("n2", granted.body["hold_id"])).status == 200
        assert (await later).status == 200


async def test_dead_client_leaves_after_the_grace(cluster: LocalCluster) -> None:
    """A request that nobody asks for again is gone from the queue after ten seconds, and not before five."""
    name = "wait/dead"
    async with http_to(cluster) as http:
        await http.acquire("n1", name)
        cut = asyncio.create_task(http.acquire("n2", name, wait_ms=60_000, request_id="nobody-asks-again"))
        await queued(http, "n3", name, 1)
        cut.cancel()
        began_s = time.monotonic()
        await queued(http, "n3", name, 0)
        assert WAIT_KEPT_MS / 2000 < time.monotonic() - began_s < 2 * WAIT_KEPT_MS / 1000


async def test_cancelled_wait_of_the_client_leaves_at_once(cluster: LocalCluster) -> None:
    """The Python client says that it does not wait any longer."""
    name = "wait/cancelled"
    async with http_to(cluster) as http, holdfast.Client(urls(cluster)) as client:
        await http.acquire("n1", name)
        waiting = asyncio.create_task(client.acquire(name, ttl=60, wait=None, renew=False))
        await queued(http, "n3", name, 1)
        waiting.cancel()
        began_s = time.monotonic()
        await queued(http, "n3", name, 0)
        assert time.monotonic() - began_s < WAIT_KEPT_MS / 2000


async def test_same_request_on_another_node(cluster: LocalCluster) -> None:
    """A waiting request that is repeated on another node takes no second place and gets the same hold."""
    name = "wait/same-request"
    request: dict[str, Any] = {
        "wait_ms": WAIT_MS,
        "owner": "patient",
        "request_id": "same-request-on-two-nodes",
    }
    async with http_to(cluster) as http:
        held = await http.acquire("n1", name)
        first = asyncio.create_task(http.acquire("n2", name, **request))
        await queued(http, "n1", name, 1)
        again = asyncio.create_task(http.acquire("n3", name, **request))

        async def waits_there_too() -> bool:
            return await http.metric("n3", "holdfast_waiting_acquires") == 1

        await until(waits_there_too, "the repetition waits on n3")
        assert await http.queue_length("n1", name) == 1
        behind = asyncio.create_task(http.acquire("n1", name, wait_ms=WAIT_MS))
        await queued(http, "n1", name, 2)
        assert (await http.release("n1", held.body["hold_id"])).status == 200
        granted = await first
        repeated = await again
        for field in ("hold_id", "token"):
            assert granted.body[field] == repeated.body[field]
        assert (await http.release("n1", granted.body["hold_id"])).status == 200
        assert (await behind).body["token"] > granted.body["token"]


async def test_attempts_that_come_late(cluster: LocalCluster) -> None:
    """What a client was granted at its second attempt stays its own, though the first one comes later.

    Both wait for a leader. Whichever node leads then brings its own ones into the log first, so of half of
    the names the first attempt comes behind the second; its node takes it back, for its client has left.
    """
    old = cluster.leader()
    one, other = followers(cluster)
    firsts = {f"late/{number}": one if number % 2 else other for number in range(8)}
    async with http_to(cluster) as http:
        held = {name: await http.acquire(old, name) for name in firsts}

        def ask(name: str, node_id: str) -> "asyncio.Task[Got]":
            request_id = f"the-request-for-{name}"
            return asyncio.create_task(http.acquire(node_id, name, wait_ms=WAIT_MS, request_id=request_id))

        cluster.pause(old)
        try:
            left = [ask(name, node_id) for name, node_id in firsts.items()]
            for node_id in (one, other):
                # Answered behind them on a node that has no leader yet.
                await http.lock(node_id, "late/none", is_stale=True)
            for task in left:
                task.cancel()
            waits = {name: ask(name, other if node_id == one else one) for name, node_id in firsts.items()}
            for name in firsts:
                await queued(http, one, name, 1)
        finally:
            cluster.resume(old)
        for name, holder in held.items():
            assert (await http.release(one, holder.body["hold_id"])).status == 200
            granted = await waits[name]
            assert granted.status == 200, granted
            for node_id in (one, other):
                # Behind whatever this node has taken back.
                assert (await http.acquire(node_id, f"{name}/{node_id}")).status == 200
            assert await http.token(one, name) == granted.body["token"]


async def test_session_outlives_leader(cluster: LocalCluster) -> None:
    """A session that is kept alive outlives the leader, with what it holds; left alone, it ends in time."""
    name = "session/leader-killed"
    loop = asyncio.get_running_loop()
    async with http_to(cluster) as http, holdfast.Client(urls(cluster)) as client:
        session = await client.session(ttl=SESSION_TTL_MS / 1000, renew=False).open()
        hold = await client.acquire(name, session=session, wait=0, renew=False)
        await asyncio.to_thread(cluster.kill, cluster.leader())
        kept_s = loop.time()
        await session.keepalive()
        survivor = next(node_id for node_id in node_ids(cluster) if cluster.is_alive(node_id))
        assert await http.token(survivor, name) == hold.token

        async def is_free() -> bool:
            return await http.token(survivor, name) is None

        await until(is_free, "the session's lock is free")
        assert loop.time() - kept_s >= SESSION_TTL_MS / 1000
        keepalive = wire.SESSION_KEEPALIVE.format(session_id=session.session_id)
        gone = await http.call(survivor, "POST", keepalive)
        assert (gone.status, gone.code) == (410, "session-expired")


async def test_leader_paused(cluster: LocalCluster) -> None:
    """While the leader is paused another one serves; awake again it steps down; nothing is lost or stale."""
    old = cluster.leader()
    other = followers(cluster)[0]
    said = LogSince(cluster, old)
    async with http_to(cluster) as http:
        kept = await http.acquire(old, "paused/kept")
        fenced = await http.acquire(old, "paused/fenced", ttl_ms=1_000)
        async with Load(urls(cluster), prefix="paused", keep_every=4) as load:
            cluster.pause(old)
            try:
                # The paused process takes these when it wakes up, and believes then that it still leads.
                read = asyncio.create_task(http.lock(old, "paused/fenced"))
                write = asyncio.create_task(
                    http.acquire(old, "paused/kept", request_id="the-request-of-the-woken")
                )
                newer = await http.acquire(other, "paused/fenced", wait_ms=WAIT_MS)
                assert newer.body["token"] > fenced.body["token"]
                leads = (await http.call(other, "GET", wire.CLUSTER)).body["leader"]
                assert leads not in (None, old)
                await load.grants(100)
            finally:
                cluster.resume(old)
            seen = await read
            refused = await write
            assert seen.status == 200
            assert seen.body["holders"][0]["token"] == newer.body["token"]
            assert (refused.status, refused.code) == (409, "lock-held")
            late = await http.release(old, fenced.body["hold_id"])
            assert (late.status, late.code) == (410, "lease-expired")
            await load.grants(50)
        (line, *_) = said.lines("event=leadership", "is_leader=False")
        assert "leader=" in line
        assert not history_checkers.violations(load.history)
        assert not history_checkers.errors(load.history)
        await asyncio.to_thread(bring_all_back, cluster)
        assert await http.token(old, "paused/kept") == kept.body["token"]
        held = history_checkers.still_held(load.history).values()
        assert not history_checkers.lost_grants(held, await http.tokens(old, "paused/kept/"))


async def until_queue_is(http: Http, node_id: str, name: str, *owners: str) -> None:
    """Wait until exactly these wait for a lock, in this order."""

    async def is_so() -> bool:
        got = await http.lock(node_id, name)
        return got.status == 200 and [waiter["owner"] for waiter in got.body["queue"]] == list(owners)

    await until(is_so, f"{owners} in the queue of {name}")


async def line_up(http: Http, other: str, name: str, waits: dict[str, str]) -> dict[str, "asyncio.Task[Got]"]:
    """Let owners wait on nodes, one behind the other; `other` is asked about the queue."""
    tasks: dict[str, asyncio.Task[Got]] = {}
    for owner, node_id in waits.items():
        request = http.acquire(
            node_id, name, owner=owner, wait_ms=10 * WAIT_MS, request_id=f"the-request-for-{name}"
        )
        tasks[owner] = asyncio.create_task(request)
        await until_queue_is(http, other, name, *tasks)
    return tasks


async def connection_is_lost(task: "asyncio.Task[Got]") -> None:
    """Wait until a client has seen its node die."""
    with pytest.raises(aiohttp.ClientError):
        await task


async def test_waits_of_killed_node_end(cluster: LocalCluster) -> None:
    """A killed node's clients lose their places, but for one that soon repeats its request elsewhere."""
    name = "wait/abandoned"
    leader = cluster.leader()
    dying, other = followers(cluster)
    said = LogSince(cluster, leader)
    async with http_to(cluster) as http:
        held = await http.acquire(leader, name)
        waits = await line_up(http, other, name, {"lost": dying, "moved": dying, "behind": other})
        await asyncio.to_thread(cluster.kill, dying)
        await connection_is_lost(waits["moved"])
        moved = asyncio.create_task(
            http.acquire(
                other, name, owner="moved", wait_ms=10 * WAIT_MS, request_id=f"the-request-for-{name}"
            )
        )
        await until_queue_is(http, other, name, "moved", "behind")
        await connection_is_lost(waits["lost"])
        told = ("event=waits-abandoned", f"node={dying}", "ended=1 left=0")
        await until(lambda: said.lines(*told), "the leader tells of it")
        assert (await http.release(leader, held.body["hold_id"])).status == 200
        granted = await moved
        assert await http.token(other, name) == granted.body["token"] == held.body["token"] + 1
        assert (await http.release(leader, granted.body["hold_id"])).status == 200
        assert (await waits["behind"]).body["token"] == granted.body["token"] + 1


async def test_waits_of_restarted_node_end(cluster: LocalCluster) -> None:
    """What waited on a node's earlier process loses its place though the node is back; later waits do not."""
    name = "wait/started-anew"
    leader = cluster.leader()
    dying, other = followers(cluster)
    async with http_to(cluster) as http:
        held = await http.acquire(leader, name)
        lost = await line_up(http, other, name, {"lost": dying})
        await asyncio.to_thread(cluster.kill, dying)
        await asyncio.to_thread(bring_all_back, cluster)
        await connection_is_lost(lost["lost"])
        later = asyncio.create_task(http.acquire(dying, name, owner="later", wait_ms=10 * WAIT_MS))
        await until_queue_is(http, other, name, "later")
        assert (await http.release(leader, held.body["hold_id"])).status == 200
        assert (await later).body["token"] == held.body["token"] + 1


async def test_waits_of_killed_leader_end(cluster: LocalCluster) -> None:
    """The next leader ends the waits of the one that died, and keeps those of nodes that come to it."""
    name = "wait/leader-died"
    leader = cluster.leader()
    one, other = followers(cluster)
    async with http_to(cluster) as http:
        held = await http.acquire(one, name)
        waits = await line_up(http, other, name, {"lost": leader, "one": one, "other": other})
        await asyncio.to_thread(cluster.kill, leader)
        await connection_is_lost(waits["lost"])
        # The other node has nothing to forward meanwhile: that it is connected has to be enough.
        leads = await asyncio.to_thread(cluster.leader)
        await until_queue_is(http, leads, name, "one", "other")
        assert (await http.release(other, held.body["hold_id"])).status == 200
        granted = await waits["one"]
        assert (await http.release(other, granted.body["hold_id"])).status == 200
        assert (await waits["other"]).body["token"] == granted.body["token"] + 1


async def test_waits_of_silent_node_end(cluster: LocalCluster) -> None:
    """A client whose node falls silent is told, as soon as the node is back, that it waits no more."""
    name = "wait/silent"
    leader = cluster.leader()
    silent, other = followers(cluster)
    async with http_to(cluster) as http:
        held = await http.acquire(leader, name)
        waits = await line_up(http, other, name, {"lost": silent, "behind": other})
        cluster.pause(silent)
        try:
            await until_queue_is(http, other, name, "behind")
        finally:
            cluster.resume(silent)
        refused = await waits["lost"]
        assert (refused.status, refused.code) == (409, "lock-held")
        anew = asyncio.create_task(
            http.acquire(
                silent, name, owner="lost", wait_ms=10 * WAIT_MS, request_id=f"the-request-for-{name}"
            )
        )
        await until_queue_is(http, other, name, "behind", "lost")
        for waiting in (waits["behind"], anew):
            assert (await http.release(other, held.body["hold_id"])).status == 200
            held = await waiting
            assert held.status == 200
