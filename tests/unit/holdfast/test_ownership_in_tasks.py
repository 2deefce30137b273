"""Whose a hold is: its object's, whatever tasks do. Each kind of block, entered and left each way.

For asyncio; test_ownership.py has the same for threads.
"""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import holdfast
from holdfast.testing import MemoryCluster

TTL_S = 30.0
DEADLINE_S = 10.0

KINDS: dict[str, Callable[[holdfast.Client], Any]] = {
    "lock": lambda client: client.lock("a", ttl=TTL_S, mode="shared"),
    "locks": lambda client: client.locks("a", "b", ttl=TTL_S, mode="shared"),
    "semaphore": lambda client: client.semaphore("a", 3, ttl=TTL_S),
    "together": lambda client: client.together(
        "a", permits=[holdfast.WantedPermits("gpu", limit=3)], ttl=TTL_S, mode="shared"
    ),
    "session": lambda client: client.session(ttl=TTL_S),
    "transaction": lambda client: client.transaction(ttl=TTL_S),
}
ALONE: dict[str, Callable[[holdfast.Client], Any]] = {
    "exclusive": lambda client: client.lock("a", ttl=TTL_S),
    "election": lambda client: client.election("a", ttl=TTL_S),
}


@contextlib.asynccontextmanager
async def a_client() -> AsyncIterator[tuple[MemoryCluster, holdfast.Client]]:
    """Give a cluster whose clock stands still, and a client of it."""
    with MemoryCluster() as cluster:
        async with cluster.client() as client:
            yield cluster, client


async def eventually(check: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(DEADLINE_S):
        while not check():  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.002)


async def live_on(cluster: MemoryCluster, *kept: Any) -> None:
    """Let two leases pass, in steps; each of these is renewed meanwhile."""
    for _ in range(8):
        cluster.advance(TTL_S / 4)
        for one in kept:
            await eventually(lambda one=one: one.remaining > TTL_S * 0.6)  # type: ignore[misc]


async def is_held(client: holdfast.Client) -> bool:
    """Whether anybody holds anything by the names of these tests."""
    locks = [info async for info in client.list() if info.holders]
    return bool(locks or (await client.get_semaphore("a")).holders or await client.election("a").leader())


async def in_task(work: Awaitable[Any]) -> Any:
    """Run something in a task of its own."""

    async def run() -> Any:
        return await work

    return await asyncio.create_task(run())


# -- each kind of block, each way -------------------------------------------------------------------------

Leave = Callable[[], Awaitable[object]]
Way = Callable[[Any], Awaitable[tuple[Any, Leave]]]
"""Enters a block; returns what it gave, and what leaves it."""


async def _generator(thing: Any) -> AsyncGenerator[Any]:
    async with thing as held:
        yield held


async def by_statement(thing: Any) -> tuple[Any, Leave]:
    """As a dependency or a fixture with a `yield` is run: each step in a task of its own."""
    block = contextlib.asynccontextmanager(_generator)(thing)
    return await in_task(block.__aenter__()), lambda: in_task(block.__aexit__(None, None, None))


async def by_stack(thing: Any) -> tuple[Any, Leave]:
    """Enter an exit stack in one task, and close it in another, as hooks of a server do."""
    stack = contextlib.AsyncExitStack()
    return await in_task(stack.enter_async_context(thing)), lambda: in_task(stack.aclose())


async def by_hand(thing: Any) -> tuple[Any, Leave]:
    """Call what an `async with` calls, from different tasks."""
    return await in_task(thing.__aenter__()), lambda: in_task(thing.__aexit__(None, None, None))


async def by_collection(thing: Any) -> tuple[Any, Leave]:
    """Leave a generator early, by letting go of it: its loop closes it then."""
    blocks = [_generator(thing)]
    held = await anext(blocks[0])

    async def leave() -> None:
        blocks.clear()
        gc.collect()
        await eventually(lambda: held.reason == "released")

    return held, leave


async def by_acquired(thing: Any) -> tuple[Any, Leave]:
    """Acquire in one task, and use the hold as the block of another."""
    held = await in_task(thing.acquire() if hasattr(thing, "acquire") else thing.open())

    async def leave() -> None:
        async with held:
            """Use it."""

    return held, lambda: in_task(leave())


async def by_context(thing: Any) -> tuple[Any, Leave]:
    """Use the acquire itself as the context, in different tasks."""
    acquiring = thing.acquire() if hasattr(thing, "acquire") else thing.open()
    return await in_task(acquiring.__aenter__()), lambda: in_task(acquiring.__aexit__(None, None, None))


WAYS: tuple[Way, ...] = (by_statement, by_stack, by_hand, by_collection, by_acquired, by_context)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [*KINDS, *ALONE])
async def test_a_block_ends_its_own_hold_wherever_it_is_left(kind: str, way: Way) -> None:
    """It is renewed while the block is open, though the task that entered it is gone; then it is free."""
    async with a_client() as (cluster, client):
        held, leave = await way((KINDS | ALONE)[kind](client))
        await live_on(cluster, held)
        assert held.state == "held"
        await leave()
        assert (held.reason, held.lost.is_set()) == ("released", False)
        async with asyncio.timeout(DEADLINE_S):  # the loop closes what was collected by itself
            while way is by_collection and await is_held(client):  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.002)
        assert not await is_held(client)


@pytest.mark.parametrize("way", [way for way in WAYS if way is not by_hand])
@pytest.mark.parametrize("kind", KINDS)
async def test_two_blocks_of_one_object_end_each_its_own(kind: str, way: Way) -> None:
    """The first that is left is the first that ends; the other one is not disturbed."""
    async with a_client() as (cluster, client):
        thing = KINDS[kind](client)
        first, leave_first = await way(thing)
        second, leave_second = await way(thing)
        await leave_first()
        assert (first.reason, second.reason) == ("released", "")
        await live_on(cluster, second)
        await leave_second()
        assert (second.reason, second.lost.is_set()) == ("released", False)


@pytest.mark.parametrize("kind", KINDS)
async def test_blocks_that_cannot_be_told_apart_end_together(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Calls by hand do not say which of two entries ends: none is ended in use, and none is left over."""
    async with a_client() as (cluster, client):
        thing = KINDS[kind](client)
        first, leave_first = await by_hand(thing)
        second, leave_second = await by_hand(thing)
        await leave_first()
        await live_on(cluster, first, second)
        assert "cannot be told from others" in caplog.text
        await leave_second()
        assert (first.reason, second.reason) == ("released", "released")


@pytest.mark.parametrize("way", [by_statement, by_stack])
async def test_a_loss_is_told_where_the_block_is_left(way: Way) -> None:
    """Whatever task that is: LeaseLost, and no cancellation of a task that has nothing to do with it."""
    async with a_client() as (cluster, client):
        held, leave = await way(client.lock("a", ttl=TTL_S))
        cluster.advance(TTL_S)
        await eventually(held.lost.is_set)
        with pytest.raises(holdfast.LeaseLost):
            await leave()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        async with client.lock("a", ttl=TTL_S) as again:
            assert again.is_valid


HANDED_ON: dict[str, Callable[[Any], Any]] = {
    "create_task": asyncio.create_task,
    "gather": lambda work: _first(asyncio.gather(work)),
    "shield": asyncio.shield,
    "wait_for": lambda work: asyncio.wait_for(work, DEADLINE_S),
    "ensure_future": asyncio.ensure_future,
    "TaskGroup": lambda work: _in_group(work),  # noqa: PLW0108 - defined below
}


async def _first(results: Awaitable[Any]) -> Any:
    return (await results)[0]


async def _in_group(work: Any) -> Any:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
    return task.result()


@pytest.mark.parametrize("how", HANDED_ON)
@pytest.mark.parametrize("kind", [*KINDS, *ALONE])
async def test_what_another_task_acquired_lives_on(kind: str, how: str) -> None:
    """A hold does not end with the task that awaited `acquire`."""
    async with a_client() as (cluster, client):
        thing = (KINDS | ALONE)[kind](client)
        held = await HANDED_ON[how](thing.acquire() if hasattr(thing, "acquire") else thing.open())
        await live_on(cluster, held)
        async with held:
            assert held.is_valid
        assert not await is_held(client)


# -- what nobody refers to --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*KINDS, *ALONE])
async def test_what_is_collected_is_not_renewed_any_longer(kind: str) -> None:
    """It says so as ResourceWarning, and is free behind its lease, also after many renewals."""
    async with a_client() as (cluster, client):
        thing = (KINDS | ALONE)[kind](client)
        held = await (thing.acquire() if hasattr(thing, "acquire") else thing.open())
        await live_on(cluster, held)
        this = weakref.ref(held)
        del thing
        with pytest.warns(ResourceWarning, match=r"was never (released|closed)"):
            del held
        assert this() is None
        cluster.advance(TTL_S)
        assert not await is_held(client)


async def test_what_is_pushed_is_collected_as_well() -> None:
    """Who listens for its losses does not keep it."""
    async with a_client() as (_, client):
        held = await client.acquire("a", ttl=TTL_S, push=True, on_lost=print, max_hold=TTL_S * 9)
        await asyncio.sleep(0)
        this = weakref.ref(held)
        with pytest.warns(ResourceWarning, match="never released"):
            del held
        assert this() is None


async def test_a_session_keeps_nothing_alive_but_what_it_holds() -> None:
    """A hold of a session may be let go of: it lives with its session, and ends with that."""
    async with a_client() as (cluster, client):
        session = await client.session(ttl=TTL_S).open()
        await client.acquire("a", session=session)
        await live_on(cluster, session)
        assert (await client.inspect("a")).holders
        with pytest.raises(holdfast.AlreadyHeld):
            await client.acquire("a", session=session)
        assert await session.close() == ("a",)


async def test_acquire_is_short_for_a_lock_that_is_acquired() -> None:
    """It waits, is renewed, and may be awaited or be a context; what nobody awaits is said by Python."""
    async with a_client() as (cluster, client):
        async with client.acquire("a", ttl=TTL_S) as held:
            waiting = asyncio.create_task(client.acquire("a", ttl=TTL_S))
            await eventually(lambda: cluster.waiting == 1)
            await live_on(cluster, held)
        other = await waiting
        assert await client.lock("a").acquire(blocking=False) is None
        with pytest.raises(holdfast.LockTimeout):
            await client.acquire("a", wait=0)
        await other.release()
        with pytest.raises(holdfast.LeaseExpired):
            await other.release()


async def test_a_lost_hold_cancels_its_block_in_the_task_that_entered_it() -> None:
    """Also as `async with client.acquire(...)`."""
    async with a_client() as (cluster, client):
        with pytest.raises(holdfast.LeaseLost):  # noqa: PT012 - a block is what is tested
            async with asyncio.timeout(DEADLINE_S), client.acquire("a", ttl=TTL_S):
                cluster.advance(TTL_S)
                await asyncio.Event().wait()


# -- waits for oneself ------------------------------------------------------------------------------------


async def test_a_block_within_a_block_of_the_same_lock_is_refused() -> None:
    """It would wait for itself; another task waits for its turn."""
    async with a_client() as (cluster, client):
        async with client.lock("a"):
            with pytest.raises(RuntimeError, match="would wait for itself"):
                await client.acquire("a", wait=5)
            with pytest.raises(RuntimeError, match="would wait for itself"):
                async with client.transaction() as transaction:
                    await transaction.acquire("a")
            waiting = asyncio.create_task(client.acquire("a"))
            await eventually(lambda: cluster.waiting == 1)
        await (await waiting).release()


async def test_a_counted_lock_is_entered_as_often_as_its_block_likes() -> None:
    """As an RLock: the same hold, which ends with the last of as many releases, and cancels once."""

    async def walk(client: holdfast.Client, depth: int) -> int:
        async with client.lock("a", if_held="count", ttl=TTL_S) as hold:
            if depth:
                assert await walk(client, depth - 1) == hold.token
            assert hold.is_valid
            return hold.token

    async with a_client() as (cluster, client):
        assert await walk(client, 3) == 1
        assert not await is_held(client)
        async with client.lock("a", if_held="count") as hold:
            async with client.acquire("a", if_held="count") as again:
                assert again is hold
            assert hold.is_valid
        assert hold.reason == "released"
        with pytest.raises(holdfast.LeaseLost):  # noqa: PT012 - a block is what is tested
            async with (
                asyncio.timeout(DEADLINE_S),
                client.lock("a", if_held="count", ttl=TTL_S),
                client.lock("a", if_held="count"),
            ):
                cluster.advance(TTL_S)
                await asyncio.Event().wait()


async def test_a_session_counts_what_it_acquires_again() -> None:
    """The cluster does: the hold ends with the last release, whichever object that is of."""
    async with a_client() as (_, client), client.session() as session:
        one = await client.acquire("a", session=session, if_held="count")
        two = await client.acquire("a", session=session, if_held="count")
        assert one.token == two.token
        await one.release()
        assert (await client.inspect("a")).holders
        await two.release()
        assert not (await client.inspect("a")).holders


# -- words ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["lock", "locks", "acquire", "semaphore", "together", "election"])
def test_what_other_libraries_call_it_is_explained(call: str) -> None:
    """A port of a program fails with a sentence that says which word is which."""
    client = holdfast.Client("127.0.0.1:1")
    with pytest.raises(TypeError, match=r"has no argument 'timeout': .* wait=.* ttl="):
        getattr(client, call)("a", timeout=30)
    with pytest.raises(TypeError, match="did you mean wait="):
        getattr(client, call)("a", wiat=30)


@pytest.mark.parametrize(
    "name", [b"report", {"a", "b"}, 1.5, ["a"], None, ("a", b"b"), ("a", True), ("a", 1.0)]
)
def test_a_name_that_is_not_the_same_everywhere_is_refused(name: Any) -> None:
    """Bytes would be a tuple of numbers, and a set has another order in each process."""
    with pytest.raises(TypeError, match="name: "):
        holdfast.Client("127.0.0.1:1").lock(name)


async def test_any_wait_for_as_long_as_it_takes_is_a_word_for_it() -> None:
    """None and inf; what is less than nothing is a mistake."""
    async with a_client() as (_, client):
        for wait in (None, float("inf"), 5, 0):
            await (await client.acquire("a", wait=wait)).release()
        with pytest.raises(ValueError, match="wait: -1"):
            client.lock("a", wait=-1)
