"""Functions that run only while their process leads, against a cluster in memory."""

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

import holdfast
from holdfast.decorators import leader as _leader
from holdfast.testing import Flaky, MemoryCluster, NullClient


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    """Give a cluster in memory."""
    with MemoryCluster() as cluster:
        yield cluster


async def until(condition: Callable[[], object]) -> None:
    """Let others run until `condition` holds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event to tell of it
            await asyncio.sleep(0.001)


async def test_it_runs_while_it_leads(cluster: MemoryCluster) -> None:
    """Others wait until it has ended; the call returns what the function does."""
    async with cluster.client() as first, cluster.client() as second:
        began, finish = asyncio.Event(), asyncio.Event()

        @holdfast.leader("scheduler/{zone}", value="n1", client=first)
        async def schedule(zone: str) -> str:
            began.set()
            leader = await first.election(f"scheduler/{zone}").leader()
            assert leader is not None
            await finish.wait()
            return leader.value

        @holdfast.leader("scheduler/a", client=second)
        async def wait_for_turn() -> bool:
            return finish.is_set()

        leading = asyncio.create_task(schedule("a"))
        await began.wait()
        following = asyncio.create_task(wait_for_turn())
        await until(lambda: cluster.waiting)
        finish.set()
        assert await leading == "n1"
        assert await following


async def test_it_is_cancelled_and_runs_anew(cluster: MemoryCluster) -> None:
    """When leadership is lost the body is stopped; it begins again once it is elected again."""
    ended: list[str] = []
    began = asyncio.Event()
    async with cluster.client() as client:

        @holdfast.leader("scheduler", ttl=15, client=client)
        async def schedule() -> str:
            began.set()
            if ended:
                return "led twice"
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append("stopped")
                raise
            return "not stopped"

        leading = asyncio.create_task(schedule())
        await began.wait()
        cluster.advance(16)
        assert await leading == "led twice"
        assert ended == ["stopped"]


async def test_a_thread_hears_of_the_loss_by_a_flag(cluster: MemoryCluster) -> None:
    """`lost` is set, the function returns, and runs anew when it leads again."""
    began = threading.Event()
    terms: list[bool] = []

    client = cluster.sync_client()

    @holdfast.leader("scheduler", ttl=15, client=client)
    def schedule(name: str, lost: threading.Event) -> str:
        terms.append(lost.is_set())
        if len(terms) == 1:
            began.set()
            assert lost.wait(20)
        return name

    leading = asyncio.create_task(asyncio.to_thread(schedule, "s"))
    await asyncio.to_thread(began.wait, 20)
    cluster.advance(16)
    assert await leading == "s"
    assert terms == [False, False]
    await asyncio.to_thread(client.close)


async def test_its_errors_are_its_own(cluster: MemoryCluster) -> None:
    """What the function raises ends the call, also the loss of another lock; the election is free."""
    async with cluster.client() as client:
        for error in (KeyError("x"), holdfast.LeaseLost("another", "expired"), holdfast.Unavailable("x")):

            @holdfast.leader("scheduler", client=client)
            async def fail(error: Exception = error) -> None:
                raise error

            with pytest.raises(type(error)):
                await fail()
            assert await client.election("scheduler").leader() is None


async def test_a_cancelled_call_resigns(cluster: MemoryCluster) -> None:
    """Whether it leads or campaigns, nothing is left of it."""
    began = asyncio.Event()
    async with cluster.client() as client:

        @holdfast.leader("scheduler", client=client)
        async def schedule() -> None:
            began.set()
            await asyncio.Event().wait()

        leading = asyncio.create_task(schedule())
        await began.wait()
        following = asyncio.create_task(schedule())
        await until(lambda: cluster.waiting)
        for task in (following, leading):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await client.election("scheduler").leader() is None


async def test_it_goes_on_campaigning_without_a_cluster(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While the cluster does not answer it says so in the log, and does not give up."""
    monkeypatch.setattr(_leader, "RETRY_S", 0.0)
    flaky = Flaky(cluster)
    flaky.refuse("*", "no-leader", times=None)
    async with flaky.client(timeout=0.1) as client:

        async def schedule() -> str:
            return "led"

        leading = asyncio.create_task(holdfast.leader("scheduler", client=client)(schedule)())
        await until(lambda: caplog.text.count("not elected, campaigns again") >= 2)
        flaky.heal()
        assert await leading == "led"


async def test_what_can_never_lead_is_refused(cluster: MemoryCluster) -> None:
    """When it is decorated, or with the first answer of the cluster."""
    with pytest.raises(TypeError, match="lost"):
        holdfast.leader("scheduler")(lambda: None)
    with pytest.raises(ValueError, match="ttl"):
        holdfast.leader("scheduler", ttl=-1)
    with pytest.raises(ValueError, match="needs 'zone'"):
        holdfast.leader("scheduler/{zone}")(lambda lost: lost)
    async with cluster.client() as client:

        async def schedule() -> None:
            raise AssertionError

        with pytest.raises(holdfast.InvalidRequest):
            await holdfast.leader("no//name", client=client)(schedule)()


def test_a_stand_in_always_leads() -> None:
    """Tests of the function itself need no cluster."""

    def schedule(lost: threading.Event) -> bool:
        return lost.is_set()

    assert holdfast.leader("scheduler", client=NullClient)(schedule)() is False
