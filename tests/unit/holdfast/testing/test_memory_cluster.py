"""The cluster in memory: the real rules and the real clients, on a clock in the hand of the test."""

import asyncio
import contextlib
import gc
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

import holdfast
from holdfast.testing import MemoryCluster


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    """Give a cluster of its own to a test."""
    with MemoryCluster() as cluster:
        yield cluster


@contextlib.asynccontextmanager
async def two(cluster: MemoryCluster) -> AsyncIterator[tuple[holdfast.Client, holdfast.Client]]:
    """Two clients of one cluster."""
    async with cluster.client(owner="ann") as ann, cluster.client(owner="bob") as bob:
        yield ann, bob


async def until(condition: Callable[[], object]) -> None:
    """Let others run until `condition` holds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event to tell of it
            await asyncio.sleep(0.001)


async def test_the_rules_are_the_real_ones(cluster: MemoryCluster) -> None:
    """A held lock is refused with its holder, tokens rise, and kinds are told apart."""
    async with two(cluster) as (ann, bob):
        async with ann.lock("a") as hold:
            with pytest.raises(holdfast.LockTimeout) as refused:
                await bob.acquire("a", wait=0)
            assert refused.value.problem["holders"][0]["owner"] == "ann"  # type: ignore[index]
            with pytest.raises(holdfast.InvalidRequest):
                await bob.acquire("no//name")
        async with bob.lock("a") as later:
            assert later.token > hold.token
        assert (await ann.inspect("a")).state == "free"


async def test_a_lease_ends_when_the_clock_is_moved(cluster: MemoryCluster) -> None:
    """What nobody renews ends with its ttl, not before, and whoever waits gets it."""
    async with two(cluster) as (ann, bob):
        hold = await ann.acquire("a", ttl=30, renew=False)
        waiting = asyncio.create_task(bob.acquire("a", renew=False))
        await until(lambda: cluster.waiting)
        cluster.advance(29)
        assert (await ann.inspect("a")).holders[0].owner == "ann"
        assert hold.is_valid
        cluster.advance(2)
        assert (await waiting).is_valid
        assert hold.reason == "expired"
        with pytest.raises(holdfast.LeaseExpired):
            await hold.renew()


async def test_the_body_of_a_lock_is_cancelled_when_it_is_lost(cluster: MemoryCluster) -> None:
    """A jump over the whole lease is the loss that a frozen process sees."""
    has_begun, steps = asyncio.Event(), []

    async def work(client: holdfast.Client) -> None:
        async with client.lock("a", ttl=30):
            has_begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                steps.append("stopped")

    async with cluster.client() as client:
        working = asyncio.create_task(work(client))
        await has_begun.wait()
        cluster.advance(31)
        with pytest.raises(holdfast.LeaseLost) as lost:
            await working
    assert (steps, lost.value.reason) == (["stopped"], "expired")


async def test_steps_let_clients_renew(cluster: MemoryCluster) -> None:
    """Time that passes in steps is that of a healthy client: it keeps what it has for as long as it likes."""
    async with cluster.client() as client, client.lock("a", ttl=30) as hold:
        for _ in range(20):
            lease = hold.lease
            cluster.advance(11)
            await until(lambda lease=lease: hold.lease != lease)  # type: ignore[misc]  # of the default
        assert hold.is_valid
        assert cluster.now >= 220


async def test_max_hold_goes_by_the_clock(cluster: MemoryCluster) -> None:
    """A hold of a lock or of a session is given up when its user has allowed no more."""
    async with cluster.client() as client, client.session(ttl=3600) as session:
        own = await client.lock("a", ttl=3600, max_hold=60).acquire()
        of_session = await client.lock("b", session=session, max_hold=60).acquire()
        cluster.advance(61)
        await until(lambda: own.reason and of_session.reason)
        assert (own.reason, of_session.reason) == ("max-hold", "max-hold")


async def test_a_wait_ends_when_the_clock_is_moved(cluster: MemoryCluster) -> None:
    """Also far beyond its end, the answer is the one that the cluster gave."""
    async with two(cluster) as (ann, bob):
        for jump_s in (5, 3000):
            await ann.acquire("a", ttl=3600, renew=False)
            waiting = asyncio.create_task(bob.lock("a", wait=5).acquire())
            await until(lambda: cluster.waiting)
            cluster.advance(jump_s)
            with pytest.raises(holdfast.LockTimeout):
                await waiting
            await ann.admin.force_release("a", reason="the next one")


def test_threads_need_no_threads(cluster: MemoryCluster) -> None:
    """With `when_waiting` a wait of the thread that tests is over as soon as it has begun."""
    cluster.when_waiting = lambda: cluster.advance(5)
    with cluster.sync_client(owner="ann") as ann, cluster.sync_client() as bob:
        with ann.lock("a") as hold:
            with pytest.raises(holdfast.LockTimeout):
                bob.lock("a", wait=5).acquire()
            assert hold.is_valid
        forgotten = ann.acquire("a", ttl=2, renew=False)
        with bob.lock("a", wait=5) as taken:
            assert taken.token > forgotten.token
            assert (taken.is_valid, forgotten.is_valid) == (True, False)


async def test_tasks_and_threads_share_a_cluster(cluster: MemoryCluster) -> None:
    """Clients of several loops and threads see each other."""
    threaded = cluster.sync_client(owner="thread")
    hold = await asyncio.to_thread(threaded.acquire, "a")
    async with cluster.client() as client:
        assert (await client.inspect("a")).holders[0].owner == "thread"
        waiting = asyncio.create_task(client.acquire("a", wait=60, renew=False))
        await until(lambda: cluster.waiting)
        await asyncio.to_thread(hold.release)
        assert (await waiting).token > hold.token
    await asyncio.to_thread(threaded.close)


def test_a_client_outlives_its_loop(cluster: MemoryCluster) -> None:
    """One `asyncio.run` after the other uses the same client."""
    client = cluster.client()
    tokens = []
    for _ in range(2):

        async def use() -> int:
            async with client.lock("a") as hold:
                return hold.token

        tokens.append(asyncio.run(use()))
    assert tokens[0] < tokens[1]


async def test_watches_cells_and_elections_work(cluster: MemoryCluster) -> None:
    """Everything that the clients can do goes through the same API."""
    async with cluster.client() as client:
        async with client.watch("primary") as watch:
            await watch.begin()
            async with client.election("primary", value="here") as leadership:
                leader = await client.election("primary").leader()
                assert leader is not None
                assert leader.token == leadership.token
                assert (await anext(watch)).event == "elected"
        session = await client.session(ttl=15, renew=False).open()
        await client.cells.put("members/me", b"here", session=session)
        cluster.advance(16)
        assert await client.cells.get("members/me") is None
        assert (await client.cluster()).leader == "n1"


async def test_a_rate_limit_waits_by_the_clock(cluster: MemoryCluster) -> None:
    """A place in a later window is taken when the clock is there."""
    async with cluster.client() as client:
        limiter = client.rate_limiter("mail", limit=1, per=60)
        assert (await limiter.take()).allowed
        assert await limiter.try_take() is None
        later = asyncio.create_task(limiter.take(wait=120))
        await client.inspect("a")
        assert not later.done()
        cluster.advance(61)
        assert (await later).allowed


async def test_a_cancelled_wait_leaves_nothing(cluster: MemoryCluster) -> None:
    """Who does not wait any longer has no place in the queue, and gets nothing."""
    async with two(cluster) as (ann, bob), ann.lock("a"):
        waiting = asyncio.create_task(bob.acquire("a"))
        await until(lambda: cluster.waiting)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: not cluster.waiting)
        assert not (await ann.inspect("a")).queue


async def test_a_closed_cluster_is_unavailable() -> None:
    """Its clients are told so, also one that waits in a queue, though the clock stands still."""
    cluster = MemoryCluster()
    ann, bob = cluster.client(), cluster.client()
    await ann.acquire("a", ttl=3600, renew=False)
    waiting = asyncio.create_task(bob.acquire("a"))
    await until(lambda: cluster.waiting)
    cluster.close()
    cluster.close()
    with pytest.raises((holdfast.Unavailable, holdfast.OutcomeUnknown)):
        await waiting
    with pytest.raises(holdfast.Unavailable, match="closed"):
        await ann.acquire("b")
    with pytest.raises(ConnectionError, match="closed"):
        cluster.advance(1)
    await ann.close()
    await bob.close()


async def test_a_client_keeps_its_cluster() -> None:
    """`MemoryCluster().client()` is enough; when nobody has either any longer, the thread ends."""
    client = MemoryCluster().client()
    gc.collect()
    async with client.lock("a") as hold:
        assert hold.token == 1
    await client.close()
    del client, hold
    gc.collect()
    await until(lambda: all(thread.name != "holdfast-memory" for thread in threading.enumerate()))


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_the_clock_only_goes_forward(cluster: MemoryCluster, seconds: float) -> None:
    """What is not a length of time moves nothing."""
    before_s = cluster.now
    with pytest.raises(ValueError, match="seconds"):
        cluster.advance(seconds)
    assert cluster.now == before_s


def test_without_the_node_it_says_what_to_install() -> None:
    """Where only the client is installed, the package can be imported, and the cluster says what it lacks."""
    script = """
import sys
sys.modules["http_api"] = None
import holdfast.testing
try:
    holdfast.testing.MemoryCluster
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert f"(http_api missing): pip install holdfast-node=={holdfast.__version__}" in done.stdout


def test_what_does_not_exist_is_an_attribute_error() -> None:
    """A wrong name is told as such."""
    with pytest.raises(AttributeError, match="NoSuchThing"):
        holdfast.testing.NoSuchThing  # noqa: B018 - that is the test


async def test_a_watch_goes_on_while_the_clock_stands_still(cluster: MemoryCluster) -> None:
    """Events that come one after the other are told one after the other."""
    async with cluster.client() as client, client.watch("a") as watch:
        await watch.begin()
        async with asyncio.timeout(30):
            for _ in range(3):
                async with client.lock("a"):
                    assert (await anext(watch)).event == "granted"
                assert (await anext(watch)).event == "released"
