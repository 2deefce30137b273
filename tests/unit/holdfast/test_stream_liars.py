"""A stream to something that lies or has gone mad: only grants are taken for grants, and no call hangs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
import pytest
from aiohttp import WSMsgType, web

import holdfast
from holdfast import wire
from holdfast.stream.waits import LINKED_COUNT
from holdfast.wire.results import StreamRefused
from holdfast.wire.stream import MSGPACK, Bye
from tests.support.both_clients import take
from tests.unit.holdfast.conftest import a_node
from tests.unit.http_api.serving import Served, until

DEADLINE_S = 30

Says = Callable[[Sequence[Any]], Sequence[Any] | None]
"""What is answered to a message, if anything."""

_WELCOME = [1, "5e55", 0, 1024, 262_144, "n1", "", 12, 0, 0]


@contextlib.asynccontextmanager
async def lied_to(says: Says, timeout_s: float = 2.0) -> AsyncIterator[tuple[Served, holdfast.Client]]:
    """Give a node, and a client whose stream alone is to somebody else."""

    async def talk(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=(MSGPACK,))
        await socket.prepare(request)
        async for received in socket:
            assert received.type is WSMsgType.BINARY
            message = msgspec.msgpack.decode(received.data)
            said = None if message[0] == Bye.__struct_config__.tag else says(message)
            if said is None:
                break
            await socket.send_bytes(msgspec.msgpack.encode(said))
        return socket

    app = web.Application()
    app.router.add_get(wire.STREAM, talk)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    liar = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with a_node() as (served, url), holdfast.Client(url, timeout=timeout_s) as client:
            connections = client._transport.connections
            honest = connections.socket
            connections.socket = lambda at, *rest: honest(at.replace(url, liar), *rest)  # type: ignore[method-assign]
            yield served, client
    finally:
        await runner.cleanup()


def answering(*results: Any) -> Says:
    """Welcome whoever comes, and give the same results to all that is asked."""
    return lambda message: _WELCOME if message[0] == 1 else [2, message[1], 13, results]


UNREADABLE: dict[str, Sequence[Any]] = {
    "a kind of the future": [99, "0" * 32, 1, "a", "exclusive", 30_000, "me", "node", [], 0, 0],
    "a renewal": [6, 7, 30_000, 0, 0, 30_000],
    "a hold without a token": [4, "0" * 32, "x", "a", "exclusive", 30_000, "me", "node", [], 0, 0],
    "a lease of words": [4, "0" * 32, 1, "a", "exclusive", "30 s", "me", "node", [], 0, 0],
    "less than a grant": [4, "0" * 32],
}


@pytest.mark.parametrize("what", UNREADABLE)
async def test_what_is_no_grant_is_not_taken_for_one(what: str) -> None:
    """Nobody knows what it means, and so what was done."""
    async with lied_to(answering(UNREADABLE[what])) as (_, client):
        await take(client, "stream")
        with pytest.raises(holdfast.OutcomeUnknown):
            await client.lock("a").acquire()
        with pytest.raises(holdfast.OutcomeUnknown):
            await client.release("0" * 32)


@pytest.mark.parametrize("namespace", ["", "jobs"])
async def test_who_has_used_up_a_quota_is_refused(namespace: str) -> None:
    """It is asked for again over HTTP, where here is no quota."""
    facts = {"limit": 1, "used": 1}
    used_up = StreamRefused("quota-exceeded", "too many", facts=facts, namespace=namespace, quota="holds")
    async with lied_to(answering(used_up)) as (served, client):
        await take(client, "stream")
        hold = await client.lock("a").acquire()
        assert [each.token for each in served.node.machine.state.holds.values()] == [hold.token]


NONSENSE: dict[str, Says] = {
    "no results": lambda message: [2, message[1], 13, [None]],
    "empty results": lambda message: [2, message[1], 13, [[]]],
    "numbers": lambda message: [2, message[1], 13, [7]],
    "text": lambda message: [2, message[1], 13, "x"],
    "an empty message": lambda _: [],
    "half a message": lambda _: [2],
    "names for numbers": lambda _: [2, "one", 13, []],
    "results of others": lambda message: [2, message[1] + 7, 13, [[10]]],
    "the end of something": lambda _: [4, [], {}, None, -1, "not-applied"],
}


@pytest.mark.parametrize("what", NONSENSE)
async def test_nonsense_ends_the_stream_and_no_call(what: str) -> None:
    """Nobody knows what became of it, within its time; then calls go on over HTTP."""
    says = NONSENSE[what]
    async with lied_to(lambda message: _WELCOME if message[0] == 1 else says(message)) as (served, client):
        await take(client, "stream")
        async with asyncio.timeout(20):
            hold = None
            while hold is None:
                with contextlib.suppress(holdfast.OutcomeUnknown):
                    hold = await client.lock("a").acquire()
        assert [each.token for each in served.node.machine.state.holds.values()] == [hold.token]


WELCOMES: dict[str, Sequence[Any]] = {
    "another session": [1, "0ther", 0, 1024, 262_144, "n1", "", 12, 0, 0],
    "fewer numbers than were answered": [1, "5e55", 0, 1024, 262_144, "n1", "", 12, 0, 0],
    "numbers that nobody gave": [1, "5e55", 9, 1024, 262_144, "n1", "", 12, 0, 0],
    "no room": [1, "5e55", 1, 0, 262_144, "n1", "", 12, 0, 0],
    "no bytes": [1, "5e55", 1, 1024, 0, "n1", "", 12, 0, 0],
    "words": [1, "5e55", "one", "many", None, "n1", "", 12, 0, 0],
}


@pytest.mark.parametrize("what", WELCOMES)
async def test_a_strange_welcome_is_not_gone_along_with(what: str) -> None:
    """Nothing is sent again under the numbers of somebody who does not know ours."""
    commands: list[Sequence[Any]] = []
    welcomes = iter([_WELCOME, WELCOMES[what], WELCOMES[what]])

    def says(message: Sequence[Any]) -> Sequence[Any] | None:
        if message[0] == 1:
            return next(welcomes, None)
        commands.append(message)
        if len(commands) > 1:
            return None  # the answer to the second is lost
        return [2, 1, 13, [[7, []]]]

    async with lied_to(says) as (served, client):
        await take(client, "stream")
        await client.release("0" * 32)
        async with asyncio.timeout(10):
            hold = await client.semaphore("gpu", limit=2).acquire()
        assert len(commands) == 2
        assert [each.token for each in served.node.machine.state.holds.values()] == [hold.token]


@pytest.mark.parametrize("said", [["hello"], [], [1, "x"], b"\x91" * 10_000], ids=lambda said: repr(said)[:9])
async def test_nonsense_ends_the_connection_of_the_waits_and_no_wait(said: Any) -> None:
    """It is not asked for again and again: the waits go over HTTP."""
    count = LINKED_COUNT + 1
    said_count = 0

    def says(_: Sequence[Any]) -> Any:
        nonlocal said_count
        said_count += 1
        return msgspec.Raw(said) if isinstance(said, bytes) else said

    async with lied_to(says, timeout_s=10.0) as (served, client), asyncio.timeout(DEADLINE_S):
        holds = [await client.lock(str(number)).acquire() for number in range(count)]
        waits = [asyncio.create_task(client.lock(str(number)).acquire()) for number in range(count)]
        await until(lambda: len(served.node.machine.state.tickets) == count)
        for hold in holds:
            await hold.release()
        for hold in await asyncio.gather(*waits):
            await hold.release()
    assert said_count <= 2, "one for the commands, one for the waits"


async def test_nodes_that_are_gone_are_not_asked_without_a_pause() -> None:
    """The stream was of use, and then nobody is there: its call costs some attempts, not thousands."""
    async with a_node() as (_, url), lied_to(lambda m: _WELCOME if m[0] == 1 else None) as (_, client):
        del url
        await take(client, "stream")
        transport = client._transport
        assert transport.streams is not None
        link = transport.streams._link
        assert link is not None
        transport.nodes = (*transport.nodes, "http://127.0.0.1:1", "http://127.0.0.1:1")
        link._has_answered = True
        asked: list[str] = []
        connect = transport.connections.socket

        async def gone(url: str, *rest: Any) -> Any:
            asked.append(url)
            return await connect("http://127.0.0.1:1/", *rest)

        transport.connections.socket = gone  # type: ignore[method-assign, assignment]
        with pytest.raises(holdfast.OutcomeUnknown):
            await client.lock("a").acquire()
        assert 2 < len(asked) < 60
