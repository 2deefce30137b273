"""A client outside its event loop and its process: it goes on with fresh connections, holds do not."""

import asyncio
import gc
import multiprocessing
import os
import threading
import traceback
from collections.abc import Callable, Iterator

import pytest

import holdfast
from holdfast.client.acquiring import Lock
from holdfast.transport import http
from tests.unit.holdfast.scripted import ScriptedNode, answer, granted, released

FREE = answer(name="a/b", state="free", holders=[], queue=[])
DEADLINE_S = 30


def _use(client: holdfast.Client, loop_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask a node twice within an event loop of its own."""

    async def asked() -> None:
        async with ScriptedNode(FREE) as node:
            monkeypatch.setattr(client._transport, "nodes", (node.url,))
            for _ in range(2):
                assert (await client.get_lock(loop_name)).state == "free"
            assert len(node.seen) == 2

    asyncio.run(asked())


@pytest.mark.filterwarnings("error")
def test_a_client_works_in_one_loop_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is made once can be used in several `asyncio.run`, and leaves no connection open."""
    client = holdfast.Client(["http://127.0.0.1:1"])
    for name in ("first", "second", "third"):
        _use(client, name, monkeypatch)
    asyncio.run(client.close())
    gc.collect()


def test_connections_of_a_loop_are_kept_and_closed() -> None:
    """In one loop all requests share a session; closing closes it, and using it opens a new one."""

    async def main() -> None:
        connections = http.Connections()
        session = await connections.session()
        assert await connections.session() is session
        await connections.close()
        assert session.closed
        assert await connections.session() is not session
        await connections.close()

    asyncio.run(main())


async def exit_code(check: Callable[[], None]) -> int | None:
    """Run a check in a fork of this process and return its exit code; the loop runs meanwhile."""

    def child() -> None:
        try:
            check()
        except BaseException:  # noqa: BLE001 - whatever it is, the parent must see it as a failure
            traceback.print_exc()
            os._exit(1)
        # Not os._exit: what is collected at the end of a process must not touch the parent's connections.

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    try:
        await asyncio.wait_for(asyncio.to_thread(process.join), DEADLINE_S)
    finally:
        process.kill()
    return process.exitcode


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
async def test_a_forked_child_does_not_hold_the_lock() -> None:
    """The child's copy of a hold is not valid and cannot be renewed or released; the parent's goes on."""
    async with ScriptedNode(granted(), released) as node, holdfast.Client([node.url]) as client:
        hold = await client.acquire("a/b", ttl=30, wait=0, renew=False)

        def check() -> None:
            assert (hold.is_valid, hold.remaining, hold.reason) == (False, 0, "forked")
            for refused in (hold.renew(), hold.release()):
                with pytest.raises(holdfast.LeaseLost) as caught:
                    asyncio.run(refused)
                assert caught.value.reason == "forked"
            with pytest.raises(holdfast.LeaseLost) as caught:
                hold.ensure_valid()
            assert caught.value.reason == "forked"

        assert await exit_code(check) == 0
        hold.ensure_valid()
        await hold.release()
        assert [request.path for request in node.seen] == ["/v1/locks/acquire", "/v1/locks/release"]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
async def test_a_forked_child_has_connections_of_its_own() -> None:
    """Parent and child go on with the same client, and neither takes the other's answers or connections."""
    async with ScriptedNode(FREE) as node, holdfast.Client([node.url]) as client:
        await client.get_lock("parent")
        parents = id(await client._transport.connections.session())

        def check() -> None:
            async def ask() -> None:
                assert id(await client._transport.connections.session()) != parents
                assert (await client.get_lock("child")).state == "free"

            asyncio.run(ask())
            gc.collect()

        assert await exit_code(check) == 0
        gc.collect()
        session = await client._transport.connections.session()
        assert id(session) == parents
        async with asyncio.timeout(DEADLINE_S):
            assert (await client.get_lock("parent")).state == "free"
        assert len(node.seen) == 3


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
async def test_a_child_acquires_though_another_thread_made_a_lock_at_the_fork() -> None:
    """What that thread was doing never ends in the child: nothing there may wait for it."""
    going_on, is_made = threading.Event(), threading.Event()

    class Names(tuple[str, ...]):
        """Names that take long to look through."""

        __slots__ = ()

        def __iter__(self) -> Iterator[str]:
            is_made.set()
            going_on.wait(DEADLINE_S)
            return super().__iter__()

    client = holdfast.Client("127.0.0.1:1")
    terms = client.lock("a").terms

    def make() -> None:
        lock = Lock(client._transport, Names("a"), terms, mode="shared", scope="node")
        assert lock.keys == (("lock", "a"),)

    def check() -> None:
        assert client.lock("b").keys == (("lock", "b"),)

    making = asyncio.create_task(asyncio.to_thread(make))
    await asyncio.to_thread(is_made.wait)
    try:
        assert await exit_code(check) == 0
    finally:
        going_on.set()
    await making
