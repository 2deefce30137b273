"""The fast lane at the edges of a connection: clients that leave, pipeline or do not read, and shutdown."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import pytest
from aiohttp.web_protocol import RequestHandler

from cluster.errors import Overloaded
from http_api.app import build_server
from http_api.server import call, connections
from http_api.server.connection_limits import PlaceLimits
from lockstate.words.commands.entries import Command
from lockstate.words.commands.holds import Acquire
from lockstate.words.ids import HoldId
from lockstate.words.modes import Mode
from lockstate.words.results import Granted, Result
from tests.support.local_node import LocalAnswer
from tests.unit.http_api.serving import Served, serving, until

TRACE_ID = "a1" * 16
TRACEPARENT = f"00-{TRACE_ID}-{'b2' * 8}-00"
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: n1\r\n\r\n"


def post(verb: str, body: str, lines: str = "") -> bytes:
    """Return a plain request."""
    head = f"POST /v1/locks/{verb} HTTP/1.1\r\nHost: n1\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
    return f"{head}{body}".encode()


def acquire(name: str, lines: str = "") -> bytes:
    """Return a plain acquire."""
    return post("acquire", f'{{"name":"{name}","ttl_ms":60000}}', lines)


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, sent: bytes) -> None:
        """Send bytes."""
        self.writer.write(sent)

    async def answer(self) -> tuple[int, bytes]:
        """Return status and whole bytes of the next answer."""
        async with asyncio.timeout(30):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
            return int(head.split(b" ")[1]), head + await self.reader.readexactly(length)


@contextlib.asynccontextmanager
async def connected(served: Served) -> AsyncIterator[Client]:
    """Open a connection for the length of a test."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


async def rounds() -> None:
    """Let everything happen that is due: client and server share the loop."""
    for _ in range(50):
        await asyncio.sleep(0)


def settle(served: Served, index: int, result: Result | Exception) -> Command:
    """Let a command of the lane have its outcome, and return it."""
    command, begun = served.node.begun[index]
    if isinstance(result, Exception):
        begun.set_exception(result)
    else:
        begun.set_result(LocalAnswer(result, 7))
    return command


def granted(name: str, hold_id: str = "h1") -> Granted:
    """Return the grant of a hold."""
    return Granted(HoldId(hold_id), 1, name, Mode.EXCLUSIVE, 60_000)


async def test_a_client_that_leaves_gives_back_what_it_asked_for() -> None:
    """Its command is abandoned, whether its outcome comes later or came already; it is not counted."""
    async with serving() as served:
        served.node.holds_outcomes = True
        async with connected(served) as client:
            client.send(acquire("a"))
            await until(lambda: served.node.begun)
        await until(lambda: served.node.abandoned)
        command = settle(served, 0, granted("a"))
        assert served.node.abandoned == [command]
        assert isinstance(command, Acquire)
        async with connected(served) as client:
            client.send(acquire("b"))
            await until(lambda: len(served.node.begun) == 2)
            client.writer.write_eof()
            await until(lambda: len(served.node.abandoned) == 2)
            settle(served, 1, Overloaded("never told"))
        metrics = await served.call("GET", "/metrics")
        assert b'route="/v1/locks/acquire"' not in metrics.body


async def test_an_outcome_that_meets_a_closing_connection_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection ends in the same run of the loop in which the outcome comes."""
    opened: list[RequestHandler] = []
    made = connections._Protocol.connection_made

    def keep(self: connections._Protocol, transport: asyncio.BaseTransport) -> None:
        opened.append(self)
        made(self, transport)

    monkeypatch.setattr(connections._Protocol, "connection_made", keep)
    async with serving() as served:
        served.node.holds_outcomes = True
        async with connected(served) as client:
            client.send(acquire("a"))
            await until(lambda: served.node.begun)
            command = settle(served, 0, granted("a"))
            assert opened[0].transport is not None
            opened[0].transport.abort()
            await until(lambda: served.node.abandoned)
            assert served.node.abandoned == [command]


async def test_pipelined_requests_are_answered_in_order() -> None:
    """What comes behind a call in the lane waits for its answer, in whatever pieces it comes."""
    async with serving() as served:
        served.node.holds_outcomes = True
        async with connected(served) as client:
            client.send(acquire("a"))
            await until(lambda: served.node.begun)
            for piece in (LIVEZ[:9], LIVEZ[9:], acquire("b")):
                client.send(piece)
                await rounds()
            assert len(served.node.begun) == 1
            settle(served, 0, granted("a"))
            assert b'"name":"a"' in (await client.answer())[1]
            assert (await client.answer())[1].endswith(b'{"ok":true}')
            assert (await client.answer())[0] == 200
            assert len(served.node.begun) == 1, "what was not a whole plain request left the lane for good"
        async with connected(served) as client:
            client.send(acquire("c"))
            await until(lambda: len(served.node.begun) == 2)
            client.send(acquire("d"))
            await rounds()
            settle(served, 1, granted("c"))
            assert b'"name":"c"' in (await client.answer())[1]
            await until(lambda: len(served.node.begun) == 3)
            settle(served, 2, granted("d"))
            assert b'"name":"d"' in (await client.answer())[1]


async def test_too_much_behind_a_call_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading stops until the answer, and nothing is lost."""
    monkeypatch.setattr(connections, "_HELD_BYTES_MAX", 200)
    async with serving() as served:
        served.node.holds_outcomes = True
        async with connected(served) as client:
            client.send(acquire("a"))
            await until(lambda: served.node.begun)
            for _ in range(20):
                client.send(LIVEZ)
                await asyncio.sleep(0)
            await rounds()
            settle(served, 0, granted("a"))
            assert (await client.answer())[0] == 200
            for _ in range(20):
                assert (await client.answer())[1].endswith(b'{"ok":true}')


async def test_a_request_in_aiohttp_comes_first() -> None:
    """While aiohttp answers, the lane takes nothing; between plain requests it does again."""
    async with serving() as served:
        hold = (await served.acquire("a")).body["hold_id"]
        begun = len(served.node.begun)
        async with connected(served) as client:
            client.send(post("acquire", '{"name":"a","ttl_ms":60000,"wait_ms":60000}'))
            await until(lambda: served.node.machine.lock("a").queue)
            client.send(acquire("b"))
            await rounds()
            assert not served.node.machine.lock("b").holders
            await served.post("/v1/locks/release", hold_id=hold)
            assert b'"name":"a"' in (await client.answer())[1]
            assert b'"name":"b"' in (await client.answer())[1]
            assert len(served.node.begun) == begun + 1, "only the release of the other client"
            client.send(acquire("c"))
            assert b'"name":"c"' in (await client.answer())[1]
            assert len(served.node.begun) == begun + 2


@pytest.mark.parametrize(
    "first",
    [
        LIVEZ + b"GET / HTTP/1.1\r\nX-Rest: ",
        b"POST /v1/locks/acquire HTTP/1.1\r\nHost: n1\r\nContent-Length: 200\r\n\r\n{",
        b"POST /livez HTTP/1.1\r\nHost: n1\r\nTransfer-Encoding: chunked\r\n\r\n100\r\n",
        b"POST /livez HTTP/1.1\r\nHost: n1\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /livez HTTP/1.1\r\nHost: n1\r\nContent-Length: 0\r\nContent-Length: 500\r\n\r\n",
        b"POST /livez HTTP/1.1\r\nHost: n1\r\nContent-Length : 500\r\n\r\n",
        b"POST /livez HTTP/1.1\r\nHost: n1\r\nContent-Length: 0\r\n\tX: 1\r\n\r\n",
        b"POST /livez HTTP/1.1\nHost: n1\nContent-Length: 500\n\n",
        b"\r\n",
    ],
)
async def test_nothing_is_smuggled_into_the_lane(first: bytes) -> None:
    """Where a request may begin in the middle of another, the lane takes nothing; aiohttp says what it is."""
    received = []
    for has_lane in (True, False):
        async with serving(fast_lane=has_lane) as served:
            async with connected(served) as client:
                client.send(first)
                await rounds()
                client.send(acquire("smuggled"))
                await rounds()
                assert not served.node.begun
                got = bytes(client.reader._buffer)  # type: ignore[attr-defined]  # all that has come
            received.append((got.split(b" ")[1:2], bool(served.node.machine.lock("smuggled").holders)))
    assert received[0] == received[1]


async def test_shutdown_lets_a_call_in_the_lane_end() -> None:
    """Its answer says that the connection closes, and what came behind it is not begun."""
    async with contextlib.AsyncExitStack() as stack:
        served = await stack.enter_async_context(serving())
        served.node.holds_outcomes = True
        client = await stack.enter_async_context(connected(served))
        client.send(acquire("a"))
        await until(lambda: served.node.begun)
        client.send(acquire("b"))
        await rounds()
        served.node.begin_shutdown()
        asyncio.get_running_loop().call_later(0.05, settle, served, 0, granted("a"))
        closing = asyncio.ensure_future(served.runner.cleanup())
        status, got = await client.answer()
        assert (status, b"Connection: close\r\n" in got) == (200, True)
        assert await client.reader.read() == b""
        await closing
        assert (len(served.node.begun), served.node.abandoned) == (1, [])


async def test_shutdown_does_not_wait_for_ever() -> None:
    """A call without an outcome is abandoned, and its connection ends."""
    async with serving() as served:
        served.node.holds_outcomes = True
        async with connected(served) as client:
            client.send(acquire("a"))
            await until(lambda: served.node.begun)
            served.node.begin_shutdown()
            await served.runner.cleanup()
            assert await client.reader.read() == b""
            await until(lambda: served.node.abandoned)


async def test_a_node_that_shuts_down_begins_nothing_in_the_lane() -> None:
    """The front says so, and closes."""
    async with serving() as served:
        served.node.begin_shutdown()
        async with connected(served) as client:
            client.send(acquire("a"))
            status, got = await client.answer()
            assert (status, b"Connection: close" in got) == (503, True)
        assert not served.node.begun


async def test_what_fails_is_a_problem(caplog: pytest.LogCaptureFixture) -> None:
    """At once or later, foreseen or not: the answer has the id, and a bug is in the log as it was."""
    caplog.set_level(logging.INFO)
    async with serving() as served, connected(served) as client:
        served.node.failure = Overloaded("too much")
        client.send(acquire("a", f"Holdfast-Request-Id: mine\r\ntraceparent: {TRACEPARENT}\r\n"))
        status, got = await client.answer()
        assert f"trace_id={TRACE_ID}" in caplog.text, "the line of a refusal has the trace of its call"
        assert (status, b'"request_id":"mine"' in got, b"\r\nRetry-After: " in got) == (429, True, True)
        served.node.failure, served.node.holds_outcomes = None, True
        client.send(acquire("a"))
        await until(lambda: served.node.begun)
        settle(served, 0, RuntimeError("deep inside"))
        status, got = await client.answer()
        assert (status, b'"code":"internal","outcome":"unknown"' in got) == (500, True)
        (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
        assert record.exc_info is not None
        assert record.exc_info[1] is not None
        assert b"deep inside" not in got
        client.send(acquire("b"))
        await until(lambda: len(served.node.begun) == 2)
        settle(served, 1, granted("b"))
        assert (await client.answer())[0] == 200


async def test_a_client_that_does_not_read_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the client has not read keeps the connection busy, and ends it in time."""
    monkeypatch.setattr(call, "_UNREAD_S", 0.2)
    monkeypatch.setattr(connections, "UNDRAINED_BYTES_MAX", 1)
    async with serving() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1)
        assert isinstance(writer.transport, asyncio.Transport)
        writer.transport.pause_reading()
        served.node.holds_outcomes = True
        ended = b'_ended_total{reason="unread"} 1\n'
        async with asyncio.timeout(60):
            while ended not in (await served.call("GET", "/metrics")).body:
                if not writer.transport.is_closing():
                    writer.write(acquire("a"))
                for _, begun in served.node.begun:
                    if not begun.done():
                        begun.set_result(LocalAnswer(granted("x" * 2_000_000), 1))
        writer.close()
        assert not reader.at_eof()


async def test_a_large_answer_is_sent_whole() -> None:
    """The connection is busy until the client has read it, and then goes on."""
    async with serving() as served, connected(served) as client:
        served.node.holds_outcomes = True
        for index in range(2):
            client.send(acquire("a"))
            await until(lambda: len(served.node.begun) == index + 1)  # noqa: B023 - awaited at once
            settle(served, index, granted("x" * 3_000_000))
            assert len((await client.answer())[1]) > 3_000_000


async def test_the_lane_keeps_the_rooms_books() -> None:
    """A connection at rest ends in time; one whose call has no outcome yet is busy."""
    async with serving(PlaceLimits(head_s=0.2, idle_s=0.2)) as served:
        served.node.holds_outcomes = True
        async with connected(served) as busy, connected(served) as rests:
            busy.send(acquire("a"))
            await until(lambda: len(served.node.begun) == 1)
            rests.send(acquire("b"))
            await until(lambda: len(served.node.begun) == 2)
            settle(served, 1, granted("b"))
            assert (await rests.answer())[0] == 200
            async with asyncio.timeout(30):
                assert await rests.reader.read() == b""
            settle(served, 0, granted("a"))
            assert (await busy.answer())[0] == 200
        metrics = (await served.call("GET", "/metrics")).body
        assert b'_connections_ended_total{reason="head"} 0\n' in metrics


async def test_without_what_it_looks_at_there_is_no_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later aiohttp may keep its books in another way: then it does all the work."""
    async with serving() as served:
        assert build_server(served.node, 1_000).lane is not None
        assert build_server(served.node, 1_000, fast_lane=False).lane is None
        monkeypatch.setattr(connections, "_SEEN_OF_AIOHTTP", frozenset({"_gone"}))
        server = build_server(served.node, 1_000)
        assert server.lane is None
