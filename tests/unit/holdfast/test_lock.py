"""The lock as a context manager: renewed, released, and loud when lost."""

import asyncio
import contextlib
import time

import pytest
from aiohttp import web

import holdfast
from holdfast.values.clock import now_s
from tests.unit.holdfast.scripted import (
    ScriptedNode,
    Step,
    answer,
    granted,
    problem,
    released,
    renewed,
    reset,
    silence,
)

DEADLINE_S = 10


async def _count(node: ScriptedNode, path: str, count: int) -> None:
    """Wait until the node has been asked for a path this often."""
    async with asyncio.timeout(DEADLINE_S):
        while sum(request.path == path for request in node.seen) < count:  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.005)


async def test_the_body_runs_under_renewals_and_a_release() -> None:
    """While the body runs the lease is renewed; after it the hold is released."""
    script = (granted(expires_in_ms=150), renewed(expires_in_ms=150), renewed(expires_in_ms=30_000), released)
    async with ScriptedNode(*script) as node, holdfast.Client([node.url]) as client:
        async with client.lock("a/b", ttl=0.15) as hold:
            await _count(node, "/v1/locks/renew", 2)
            assert hold.is_valid
        assert [request.path.rsplit("/", 1)[1] for request in node.seen] == [
            "acquire",
            "renew",
            "renew",
            "release",
        ]


async def test_a_lock_waits_unless_told_otherwise() -> None:
    """Without more words, `async with` waits for as long as it takes, for a lease of 30 s; 0 tries once."""
    script = (granted(), released, problem("lock-held"))
    async with ScriptedNode(*script) as node, holdfast.Client(node.url) as client:
        async with client.lock("a/b"):
            pass
        with pytest.raises(holdfast.LockHeld):
            await client.lock("a/b", wait=0).__aenter__()
        first, _, second = (request.fields for request in node.seen)
        assert (first["ttl_ms"], first["wait_ms"]) == (30_000, 24 * 3600 * 1000)
        assert "wait_ms" not in second


async def test_waiting_for_ever_does_not_mean_for_a_cluster_that_is_down() -> None:
    """Without a node that answers, a lock gives up after the client's timeout, and nothing was changed."""
    async with ScriptedNode(problem("no-leader")) as node, holdfast.Client(node.url, timeout=0.3) as client:
        with pytest.raises(holdfast.Unavailable):
            async with asyncio.timeout(DEADLINE_S):
                await client.lock("a/b").__aenter__()


async def test_a_refused_renewal_cancels_the_body() -> None:
    """When the cluster says that the lease is over the body is cancelled and LeaseLost comes out."""
    script = (granted(expires_in_ms=2_000), problem("lease-expired"))
    was_cancelled = False
    async with ScriptedNode(*script) as node, holdfast.Client([node.url]) as client:
        with pytest.raises(holdfast.LeaseLost) as caught:  # noqa: PT012 - a block is what is tested
            async with asyncio.timeout(DEADLINE_S), client.lock("a/b", ttl=2):
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    was_cancelled = True
                    raise
        assert was_cancelled
        assert isinstance(caught.value.__cause__, holdfast.LeaseExpired)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0


@pytest.mark.parametrize("failure", [silence, reset, problem("no-leader"), problem("outcome-unknown")])
async def test_an_unreachable_cluster_ends_the_lease_in_time(failure: Step) -> None:
    """Without any answer the body is cancelled before the lease is over by the cluster's clock."""
    ttl_ms = 400
    async with (
        ScriptedNode(granted(expires_in_ms=ttl_ms), failure) as node,
        holdfast.Client([node.url]) as client,
    ):
        ended_s = 0.0
        began_s = time.monotonic()
        with pytest.raises(holdfast.LeaseLost):  # noqa: PT012 - a block is what is tested
            async with asyncio.timeout(DEADLINE_S), client.lock("a/b", ttl=ttl_ms / 1000) as hold:
                try:
                    await asyncio.Event().wait()
                finally:
                    ended_s = time.monotonic()
        assert ended_s - began_s >= ttl_ms / 1000 / 3
        assert not node.seen[-1].path.endswith("release")
        assert hold.token == 7


async def test_a_body_that_swallows_the_cancellation_still_hears_of_the_loss() -> None:
    """LeaseLost comes out even if the body ends as if nothing had happened."""
    script = (granted(expires_in_ms=2_000), problem("lease-expired"))
    async with ScriptedNode(*script) as node, holdfast.Client([node.url]) as client:
        with pytest.raises(holdfast.LeaseLost):  # noqa: PT012 - a block is what is tested
            async with asyncio.timeout(DEADLINE_S), client.lock("a/b", ttl=2):
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0


async def test_a_body_that_blocks_the_loop_beyond_the_lease_is_told() -> None:
    """Work that kept the event loop busy for longer than the lease ends in LeaseLost."""
    async with ScriptedNode(granted(expires_in_ms=60)) as node, holdfast.Client([node.url]) as client:
        with pytest.raises(holdfast.LeaseLost):  # noqa: PT012 - a block is what is tested
            async with client.lock("a/b", ttl=0.06) as hold:
                while hold.is_valid:
                    """Compute without a pause."""
        assert "/v1/locks/release" not in [request.path for request in node.seen]


async def test_a_hold_that_was_gone_at_the_release_is_a_loss() -> None:
    """A lock forced away just before the end makes the work suspect, so the caller hears of it."""
    script = (granted(), problem("lease-expired"))
    async with ScriptedNode(*script) as node, holdfast.Client([node.url]) as client:
        with pytest.raises(holdfast.LeaseLost):
            async with client.lock("a/b", ttl=30):
                await asyncio.sleep(0)


async def test_an_unreachable_cluster_at_the_release_is_not_a_failure() -> None:
    """Work that ended in time is good; the hold expires by itself."""
    script = (granted(expires_in_ms=30_000), problem("no-leader"))
    async with ScriptedNode(*script) as node, holdfast.Client([node.url], timeout=0.2) as client:
        lock = client.lock("a/b", ttl=30)
        async with lock as hold:
            hold.own_lease = type(hold.lease)(hold.lease.asked_at_s, 300)
        assert node.seen[-1].path == "/v1/locks/release"


async def test_the_bodys_own_error_comes_out_and_the_lock_is_released() -> None:
    """An exception of the body passes unchanged."""
    async with ScriptedNode(granted(), released) as node, holdfast.Client([node.url]) as client:
        with pytest.raises(ZeroDivisionError):
            async with client.lock("a/b", ttl=30):
                raise ZeroDivisionError
        assert node.seen[-1].path == "/v1/locks/release"


async def test_a_cancellation_from_outside_stays_one() -> None:
    """A task that somebody else cancels ends cancelled, not with LeaseLost, and releases the lock."""
    async with ScriptedNode(granted(), released) as node, holdfast.Client([node.url]) as client:
        entered = asyncio.Event()

        async def body() -> None:
            async with client.lock("a/b", ttl=30):
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(body())
        async with asyncio.timeout(DEADLINE_S):
            await entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert node.seen[-1].path == "/v1/locks/release"


async def test_a_lost_hold_is_not_valid() -> None:
    """After the cluster ended the lease, the hold says so, though its time is not over by our own clock."""
    script = (granted(expires_in_ms=3_000), problem("lease-expired"))
    async with ScriptedNode(*script) as node, holdfast.Client([node.url]) as client:
        with pytest.raises(holdfast.LeaseLost) as caught:
            async with asyncio.timeout(DEADLINE_S), client.lock("a/b", ttl=3) as hold:
                await asyncio.Event().wait()
        assert hold.lease.remaining_s(now_s()) > 0
        _check_over(hold, "lease-expired")
        assert caught.value.reason == "lease-expired"


async def test_a_hold_is_not_valid_after_its_body() -> None:
    """A reference to a hold that outlives the body does not pass for the lock."""
    async with ScriptedNode(granted(), released) as node, holdfast.Client([node.url]) as client:
        async with client.lock("a/b", ttl=30) as hold:
            hold.ensure_valid()
        _check_over(hold, "released")


async def test_a_hold_that_could_not_be_released_is_not_valid_either() -> None:
    """Once its release was asked for a hold is over for us, whatever the answer."""
    script = (granted(expires_in_ms=30_000), problem("no-leader"))
    async with ScriptedNode(*script) as node, holdfast.Client([node.url], timeout=0.2) as client:
        hold = await client.acquire("a/b", ttl=30, wait=0, renew=False)
        with pytest.raises(holdfast.Unavailable):
            await hold.release()
        _check_over(hold, "released")


async def test_a_refused_renewal_ends_a_hold_for_good() -> None:
    """A hold that the cluster does not know any longer stays over, also when a late answer renews it."""
    script = (granted(), problem("lease-expired"), renewed())
    async with ScriptedNode(*script) as node, holdfast.Client([node.url]) as client:
        hold = await client.acquire("a/b", ttl=30, wait=0, renew=False)
        with pytest.raises(holdfast.LeaseExpired):
            await hold.renew()
        _check_over(hold, "lease-expired")
        await hold.renew()
        _check_over(hold, "lease-expired")


@pytest.mark.parametrize(
    ("end", "reason"),
    [(problem("session-expired"), "session-expired"), (answer(names=["a/b"], revision=2), "released")],
)
async def test_a_hold_ends_with_its_session(end: Step, reason: str) -> None:
    """What a session holds is over when the session is: expired, or closed by us."""
    opened = answer(session_id="s", ttl_ms=30_000, expires_in_ms=30_000, revision=1)
    async with ScriptedNode(opened, granted(), end) as node, holdfast.Client([node.url]) as client:
        session = await client.session(ttl=30, renew=False).open()
        hold = await client.acquire("a/b", session=session, wait=0, renew=False)
        hold.ensure_valid()
        if reason == "released":
            await session.close()
        else:
            with pytest.raises(holdfast.SessionExpired):
                await session.keepalive()
        assert (session.is_valid, session.reason) == (False, reason)
        _check_over(hold, reason)


async def test_a_body_may_release_early() -> None:
    """A body that gives its lock back before its end is neither cancelled nor told that it lost the lock."""
    script = (granted(expires_in_ms=150), released, problem("lease-expired"))
    async with ScriptedNode(*script) as node, holdfast.Client([node.url]) as client:
        async with asyncio.timeout(DEADLINE_S), client.lock("a/b", ttl=0.15) as hold:
            await hold.release()
            while hold.lease.remaining_s(now_s()):  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.005)
        assert [request.path for request in node.seen] == ["/v1/locks/acquire", "/v1/locks/release"]


def _check_over(hold: holdfast.Hold, reason: str) -> None:
    """Check that a hold says in every way that it cannot be relied on, and why."""
    assert (hold.is_valid, hold.remaining, hold.reason) == (False, 0, reason)
    with pytest.raises(holdfast.LeaseLost) as caught:
        hold.ensure_valid()
    assert caught.value.reason == reason


async def test_a_lock_is_reusable_but_not_twice_at_once() -> None:
    """One Lock may be entered again after it was left; within its own block it would wait for itself."""
    script = (granted(1), released, granted(2), released)
    async with ScriptedNode(*script) as node, holdfast.Client([node.url]) as client:
        lock = client.lock("a/b", ttl=30)
        async with lock as hold:
            assert hold.token == 1
            with pytest.raises(RuntimeError, match="would wait for itself"):
                await lock.__aenter__()
        async with lock as hold:
            assert hold.token == 2
        assert len(node.seen) == 4


async def test_a_refused_lock_can_be_tried_again() -> None:
    """A Lock whose acquire failed is free to be entered."""
    script = (problem("lock-held"), granted(), released)
    async with ScriptedNode(*script) as node, holdfast.Client([node.url]) as client:
        lock = client.lock("a/b", ttl=30)
        with pytest.raises(holdfast.LockHeld):
            await lock.__aenter__()
        async with lock as hold:
            assert hold.token == 7


async def test_a_loss_that_the_body_was_told_of_does_not_cancel_what_follows() -> None:
    """The body's own renewal finds the lease over, and the body ends: LeaseLost, and nothing comes after."""
    async with ScriptedNode(granted(), problem("lease-expired")) as node, holdfast.Client(node.url) as client:
        with pytest.raises(holdfast.LeaseLost):  # noqa: PT012 - a block is what is tested
            async with client.lock("a/b") as hold:
                with pytest.raises(holdfast.LeaseExpired):
                    await hold.renew()
        await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0


async def test_a_grant_for_a_session_that_was_closed_meanwhile_does_not_enter_the_block() -> None:
    """Whoever closes a session while a task acquires in it gets no block that runs without the lock."""
    closed = asyncio.Event()

    async def late(request: web.Request) -> web.StreamResponse:
        await closed.wait()
        return await granted()(request)

    opened = answer(session_id="s" * 32, ttl_ms=30_000, expires_in_ms=30_000, revision=1)
    script = (opened, late, answer(names=[], revision=2))
    async with ScriptedNode(*script) as node, holdfast.Client(node.url) as client:
        session = await client.session(ttl=30, renew=False).open()

        async def work() -> None:
            async with client.lock("a/b", session=session):
                raise AssertionError("entered")

        working = asyncio.create_task(work())
        await _count(node, "/v1/locks/acquire", 1)
        await session.close()
        closed.set()
        with pytest.raises(holdfast.LeaseLost):
            await working
