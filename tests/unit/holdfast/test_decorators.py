"""Functions under a lock, and functions that run once in a period, against a cluster in memory."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast
from holdfast.testing import Flaky, MemoryCluster, NullClient

HOUR_S = 3600


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    """Give a cluster in memory."""
    with MemoryCluster() as cluster:
        yield cluster


@pytest.fixture
def threads(cluster: MemoryCluster) -> Iterator[holdfast.SyncClient]:
    """Give its client for threads."""
    with cluster.sync_client(owner="decorated") as client:
        yield client


def test_a_call_runs_under_the_lock_of_its_arguments(threads: holdfast.SyncClient) -> None:
    """Fields are positional, named and default arguments; the lock is free afterwards."""

    @holdfast.locked("report/{user_id}/{kind}", client=threads)
    def report(user_id: int, kind: str = "day") -> str:
        """Make a report."""
        (info,) = (info for info in threads.list("report/") if info.state == "held")
        return f"{info.name} {user_id} {kind}"

    assert report(7) == "report/7/day 7 day"
    assert report(kind="a/b", user_id=8) == "report/8/a%2Fb 8 a/b"
    assert report.__doc__ == "Make a report."
    assert all(info.state == "free" for info in threads.list("report/"))


async def test_a_task_runs_under_its_lock(cluster: MemoryCluster) -> None:
    """An `async def` is awaited under the lock, and its errors come out of it."""
    async with cluster.client() as client:

        @holdfast.locked("order/{order.id}", client=client)
        async def ship(order: Any) -> str:
            raise KeyError((await client.inspect(f"order/{order.id}")).state)

        class Order:
            id = 5

        with pytest.raises(KeyError, match="held"):
            await ship(Order())
        assert (await client.inspect("order/5")).state == "free"


@pytest.mark.parametrize(("if_busy", "wait"), [("raise", None), ("wait", 5), ("raise", 5)])
def test_a_held_lock_raises(
    cluster: MemoryCluster, threads: holdfast.SyncClient, if_busy: Any, wait: float | None
) -> None:
    """At once, or when the wait is over; the function did not run."""
    cluster.when_waiting = lambda: cluster.advance(5)
    ran: list[int] = []
    threads.acquire("a", ttl=HOUR_S, renew=False)
    with pytest.raises(holdfast.LockTimeout):
        holdfast.locked("a", if_busy=if_busy, wait=wait, client=threads)(lambda: ran.append(1))()
    assert ran == []


async def test_a_held_lock_skips(cluster: MemoryCluster) -> None:
    """The call returns None without running; a LockHeld of the function itself is its own."""
    async with cluster.client() as client:

        @holdfast.locked("a", if_busy="skip", client=client)
        async def work() -> str:
            await client.acquire("b", wait=0, renew=False)
            return "done"

        held = await client.acquire("a", ttl=HOUR_S, wait=0, renew=False)
        assert await work() is None
        await held.release()
        assert await work() == "done"
        with pytest.raises(holdfast.LockHeld):
            await work()


async def test_a_task_that_loses_its_lock_is_cancelled(cluster: MemoryCluster) -> None:
    """The call raises LeaseLost."""
    began = asyncio.Event()
    async with cluster.client() as client:

        @holdfast.locked("a", ttl=30, client=client)
        async def work() -> None:
            began.set()
            await asyncio.Event().wait()

        working = asyncio.create_task(work())
        await began.wait()
        cluster.advance(31)
        with pytest.raises(holdfast.LeaseLost):
            await working


def test_calls_of_several_threads_exclude_each_other(threads: holdfast.SyncClient) -> None:
    """One function can be called by many threads: never two at a time."""
    inside, most = [0], [0]

    @holdfast.locked("a", client=threads)
    def work() -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        threads.inspect("a")
        inside[0] -= 1

    running = [threading.Thread(target=work) for _ in range(5)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(30)
    assert (inside, most) == ([0], [1])


def test_a_call_that_would_wait_for_itself_is_refused(threads: holdfast.SyncClient) -> None:
    """Locks are not reentrant; with other arguments it is another lock."""

    @holdfast.locked("step/{n}", client=threads)
    def step(n: int, then: int) -> int:
        return n if then < 0 else step(then, -1)

    assert step(1, 2) == 2
    with pytest.raises(RuntimeError, match="would wait for itself"):
        step(1, 1)
    assert step(1, 2) == 2


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("a/{user}", "needs 'user'"),
        ("a/{}", "needs ''"),
        ("a/{0}", "needs '0'"),
        ("a/{n", "expected"),
        ("", "empty"),
    ],
)
def test_a_name_that_does_not_fit_is_refused_at_once(name: str, error: str) -> None:
    """When the function is decorated, not when it is called at night."""

    def work(n: int, *args: int, **user: int) -> None:
        raise AssertionError(n, args, user)

    with pytest.raises(ValueError, match=error):
        holdfast.locked(name)(work)


def test_what_cannot_be_decorated_is_refused(cluster: MemoryCluster, threads: holdfast.SyncClient) -> None:
    """Generators, classes, wrong clients and wrong options."""

    def generator() -> Iterator[int]:
        yield 1

    async def task() -> None:
        """Do nothing."""

    for wrong in (generator, type("A", (), {}), 5, staticmethod(generator)):
        with pytest.raises(TypeError, match="locked"):
            holdfast.locked("a")(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"holdfast\.Client"):
        holdfast.locked("a", client=threads)(task)
    with pytest.raises(TypeError, match=r"holdfast\.SyncClient"):
        holdfast.locked("a", client=cluster.client())(lambda: None)
    with pytest.raises(TypeError, match=r"holdfast\.SyncClient"):
        holdfast.locked("a", client=cluster.client)(lambda: None)()
    with pytest.raises(ValueError, match="if_busy"):
        holdfast.locked("a", if_busy="maybe")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="ttl"):
        holdfast.locked("a", ttl=-1)
    for every in ("24", "soon", "25h", 0, -1):
        with pytest.raises(ValueError, match="every"):
            holdfast.once("a", every=every)


def test_what_would_run_later_is_refused(threads: holdfast.SyncClient) -> None:
    """A `def` that gives something to await or to iterate over would run after its lock is released."""

    async def task() -> None:
        raise AssertionError

    def steps() -> Iterator[int]:
        yield 1

    for later in (lambda: task(), lambda: steps()):  # noqa: PLW0108 - a def, not what it calls
        with pytest.raises(TypeError, match="without the lock"):
            holdfast.locked("a", client=threads)(later)()
    assert threads.inspect("a").state == "free"


def test_wrong_arguments_are_those_of_the_function(threads: holdfast.SyncClient) -> None:
    """A call that does not fit takes no lock, and an empty part makes no name."""

    @holdfast.locked("a/{n}", client=threads)
    def work(n: object) -> object:
        return n

    with pytest.raises(TypeError, match="missing"):
        work()  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="empty"):
        work("")
    assert work("..") == ".."


async def test_a_client_may_come_late_or_grant_everything(threads: holdfast.SyncClient) -> None:
    """What returns a client is asked at each call; a stand-in of tests is a client."""
    asked: list[int] = []

    def late() -> holdfast.SyncClient:
        asked.append(1)
        return threads

    assert await asyncio.to_thread(holdfast.locked("a", client=late)(lambda: 5)) == 5
    assert asked == [1]

    async def work() -> int:
        return 6

    everybody: Any = NullClient()
    assert holdfast.locked("a", client=everybody)(lambda: 5)() == 5
    assert await holdfast.once("a", every=5, client=everybody)(work)() == 6


def test_without_a_client_there_is_one_for_the_process_and_each_loop() -> None:
    """It is made with the first call, from HOLDFAST_NODES, and not when a module is imported."""
    script = """
import asyncio, os, holdfast
from holdfast.decorators import defaults as _defaults

@holdfast.locked("a")
def work(): ...

@holdfast.locked("a")
async def task(): ...

assert _defaults._defaults._sync is None
os.environ["HOLDFAST_NODES"] = "http://127.0.0.1:0x"
for call in (work, lambda: asyncio.run(task())):
    try:
        call()
    except ValueError as error:
        print(error)
os.environ["HOLDFAST_NODES"] = "http://127.0.0.1:1"

async def two():
    return _defaults.client() is _defaults.client(), id(_defaults.client())

(same, first), (again, _) = asyncio.run(two()), asyncio.run(two())
print(same, again, len(_defaults._defaults._by_loop), _defaults.sync_client() is _defaults.sync_client())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    *refused, last = done.stdout.splitlines()
    assert [("0x" in line) for line in refused] == [True, True]
    assert last == "True True 1 True"


def call_once(client: holdfast.SyncClient, body: Callable[[], object], **options: Any) -> object:
    """Call a function of its own, which only shares its name with others."""
    return holdfast.once("nightly", every="24h", client=client, **options)(body)()


def test_once_runs_once_in_its_period(cluster: MemoryCluster, threads: holdfast.SyncClient) -> None:
    """Whoever calls it again is skipped until the period is over, also when the first client is gone."""
    with cluster.sync_client() as other:
        assert call_once(other, lambda: 1) == 1
        assert call_once(other, lambda: 2) is None
    assert call_once(threads, lambda: 3) is None
    cluster.advance(24 * HOUR_S - 1)
    assert call_once(threads, lambda: 4) is None
    cluster.advance(1)
    assert call_once(threads, lambda: 5) == 5


async def test_once_that_takes_longer_than_its_period_is_not_run_twice(cluster: MemoryCluster) -> None:
    """The lock is renewed while it runs, and kept for a period after the last renewal."""
    async with cluster.client() as client:
        runs: list[float] = []

        @holdfast.once("nightly", every="1h", client=client)
        async def nightly() -> bool:
            runs.append(cluster.now)
            for _ in range(6):
                cluster.advance(1500)
                async with asyncio.timeout(10):
                    while (await client.inspect("nightly")).holders[0].expires_in_ms < HOUR_S * 1000:
                        """Its renewal is on its way."""
            return await client.lock("nightly").try_acquire() is None

        assert await nightly() is True
        assert await nightly() is None
        cluster.advance(HOUR_S)
        await nightly()
        assert len(runs) == 2


@pytest.mark.parametrize("retry", [False, True])
async def test_once_that_raises_counts_unless_it_may_be_tried_again(
    cluster: MemoryCluster, threads: holdfast.SyncClient, *, retry: bool
) -> None:
    """At most once is at most once; with `retry` the next call of the period runs."""

    def fails() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await asyncio.to_thread(call_once, threads, fails, retry=retry)
    assert await asyncio.to_thread(call_once, threads, lambda: 1, retry=retry) == (1 if retry else None)
    cluster.advance(24 * HOUR_S)
    async with cluster.client() as client:

        async def fails_later() -> None:
            raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            await holdfast.once("nightly", every="24h", retry=retry, client=client)(fails_later)()
        state = (await client.inspect("nightly")).state
        assert state == ("free" if retry else "held")


async def test_once_does_not_run_when_the_cluster_does_not_answer(cluster: MemoryCluster) -> None:
    """Without a grant that is known there is no run."""
    flaky = Flaky(cluster)
    flaky.lose("acquire", applied=True, times=None)
    ran: list[int] = []
    async with flaky.client() as client:

        @holdfast.once("nightly", every="24h", client=client)
        async def nightly() -> str:
            ran.append(1)
            return "ran"

        with pytest.raises(holdfast.OutcomeUnknown):
            await nightly()
        flaky.heal()
        assert await nightly() is None
        cluster.advance(24 * HOUR_S)
        assert await nightly() == "ran"
    assert ran == [1]
