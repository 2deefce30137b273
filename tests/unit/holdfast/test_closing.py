"""A closed client, and one for threads that is used where it blocks an event loop."""

import asyncio
import contextlib
import warnings

import pytest

import holdfast
from holdfast.client import portal as _portal
from tests.unit.holdfast.conftest import NewClient, a_node
from tests.unit.http_api.serving import until

LATE_S = 20.0


async def test_a_closed_client_raises(new_client: NewClient) -> None:
    """Whatever needs the cluster raises RuntimeError, and says why; closing again does nothing."""
    async with a_node() as (_, url), new_client(url) as client:
        hold, session = await client.acquire("a", wait=0, renew=False), await client.session().open()
        watch, lock = client.watch(), client.lock("b")
        await client.close()
        for call in (
            lambda: client.inspect("a"),
            lambda: client.acquire("b", wait=0, renew=False),
            lock.acquire,
            hold.renew,
            session.keepalive,
            watch.begin,
        ):
            with pytest.raises(RuntimeError, match="this client is closed"):
                await call()
        await client.close()


async def test_what_was_let_go_can_be_released_again(new_client: NewClient) -> None:
    """Closing releases what the client renews; to release that afterwards does nothing, in any way."""
    async with a_node() as (served, url), new_client(url) as client:
        hold, session = await client.lock("a").acquire(), await client.session().open()
        async with client.lock("b"):
            await client.close()
            assert not served.node.machine.state.holds
        await hold.release()
        await session.close()


async def test_closing_ends_what_waits() -> None:
    """A task that waits for a lock when its client is closed is told so, and leaves no place in the queue."""
    async with a_node() as (served, url), holdfast.Client(url) as other, holdfast.Client(url) as client:
        held = await other.acquire("a")
        waiting = asyncio.create_task(client.lock("a").acquire())
        await until(lambda: served.node.machine.lock("a").queue)
        await client.close()
        with pytest.raises(RuntimeError, match="this client is closed"):
            await asyncio.wait_for(waiting, LATE_S)
        await until(lambda: not served.node.machine.lock("a").queue)
        assert held.is_valid


async def test_a_client_that_was_not_used_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making and closing a SyncClient starts no thread."""
    monkeypatch.setattr(_portal, "_portal", portal := _portal._Portal())
    holdfast.SyncClient("127.0.0.1:1").close()
    assert not portal.is_running


async def test_blocking_a_loop_is_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of a SyncClient on a running loop's thread is warned of by its name, and once."""
    monkeypatch.setattr(_portal, "_warned", set())
    async with a_node() as (_, url):
        # A node that would have to answer on this very loop: what is sent to it never returns.
        client = holdfast.SyncClient("127.0.0.1:1", timeout=0.05)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore")  # what was left by others and is collected meanwhile
            warnings.simplefilter("always", RuntimeWarning)
            for _ in range(2):
                with contextlib.suppress(holdfast.Unavailable):
                    client.inspect("a")
                with contextlib.suppress(holdfast.Unavailable), client.lock("a"):
                    raise AssertionError
            client.close()
        in_thread = holdfast.SyncClient(url)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert (await asyncio.to_thread(in_thread.inspect, "a")).state == "free"
            await asyncio.to_thread(in_thread.close)
    tail = "blocks the event loop; use AsyncClient or asyncio.to_thread"
    calls = ("SyncClient.inspect", "SyncLock.__enter__", "SyncClient.close")
    told = [str(each.message) for each in caught]
    assert told == [f"{call} {tail}" for call in calls], told
    assert {(each.category, each.filename) for each in caught} == {(RuntimeWarning, __file__)}
