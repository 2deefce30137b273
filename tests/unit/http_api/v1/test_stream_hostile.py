"""GET /v1/stream of a real node, and clients that mean it harm, or are set up wrongly."""

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from http_api.v1 import open_streams, stream, stream_out
from lockapi.node import NodeState
from tests.support.stream_client import GRANTED, PUT_CELL, QUEUED, RELEASE, Closed, Stream, acquire
from tests.unit.http_api.serving import until
from tests.unit.http_api.v1.streaming import Streamed, streamed

_AGAIN_COUNT = 50
_PINGS_COUNT = 200_000
"""More than all buffers on the way of their answers hold."""
_WHOLE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Protocol": "holdfast.v1.json",
}


def _followed(served: Streamed) -> int:
    return sum(map(len, served.node.parts.waiters._futures.values()))


async def test_a_wait_that_is_asked_for_again_and_again_is_followed_once(tmp_path: Path) -> None:
    """Else one client makes its node keep as much as it likes, and is told the end as often."""
    async with streamed(tmp_path) as served, served.stream() as holder, served.stream() as waiter:
        held = await holder.acquire("a")
        assert (await waiter.acquire("a", 60_000))[0] == QUEUED
        for _ in range(_AGAIN_COUNT):
            waiter.ask(acquire("a", 60_000), first=1)
            assert (await waiter.answer(1))[0] == QUEUED
        await until(lambda: _followed(served) == 1)
        await holder.call(RELEASE, held[1])
        end = await waiter.receive()
        assert (end[:2], end[3][0]) == ([3, 1], GRANTED)
        waiter.send([4])
        assert await waiter.receive() == [9]


async def test_a_wait_that_was_asked_for_again_is_left_as_a_whole(tmp_path: Path) -> None:
    """Nothing is kept for a client that has gone."""
    async with streamed(tmp_path) as served, served.stream() as holder, served.stream() as waiter:
        await holder.acquire("a")
        for _ in range(3):
            waiter.ask(acquire("a", 60_000), first=1)
            assert (await waiter.answer(1))[0] == QUEUED
        await waiter.drop()
        await until(lambda: not _followed(served))


@pytest.mark.parametrize(
    "wrong",
    [
        {"Connection": ""},
        {"Connection": "keep-alive"},
        {"Sec-WebSocket-Version": "99"},
        {"Sec-WebSocket-Version": ""},
        {"Sec-WebSocket-Key": ""},
        {"Sec-WebSocket-Key": "short"},
        {"Sec-WebSocket-Key": "\u00e9" * 24},
    ],
)
async def test_a_wrong_handshake_is_a_problem(
    tmp_path: Path, wrong: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """A proxy takes headers away: the answer says so to the one who has set it up."""
    lines = [f"{name}: {text}" for name, text in {**_WHOLE, **wrong}.items() if text]
    async with streamed(tmp_path) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write("\r\n".join(["GET /v1/stream HTTP/1.1", "Host: n1", *lines, "", ""]).encode("latin-1"))
        head = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in head
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def _told_of_end(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Return what is set when the node has ended a stream."""
    ended = asyncio.Event()
    prepare = stream._Stream.prepare

    async def prepare_and_tell(self: stream._Stream, request: web.BaseRequest) -> Any:
        try:
            return await prepare(self, request)
        finally:
            ended.set()

    monkeypatch.setattr(stream._Stream, "prepare", prepare_and_tell)
    return ended


async def _flood(client: Stream) -> None:
    """Ask for more signs of life than can be answered to somebody who reads none of the answers."""
    client.stop_reading()
    pings = (bytes((0x89, 0x80 | 125)) + bytes(4) + b"x" * 125) * 100
    with contextlib.suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(1.0):
            for _ in range(_PINGS_COUNT // 100):
                client._writer.write(pings)
                await client.drain()


async def test_who_pings_and_reads_nothing_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not read the answers to its pings: the node does not wait for that for ever."""
    ended = _told_of_end(monkeypatch)
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.5)
    monkeypatch.setattr(stream_out, "UNREAD_S", 0.2)
    async with streamed(tmp_path) as served, served.stream() as client:
        await _flood(client)
        async with asyncio.timeout(30.0):
            await ended.wait()


async def test_a_ping_of_the_websocket_is_answered(tmp_path: Path) -> None:
    """With what it brought, also before the hello."""
    async with streamed(tmp_path) as served:
        client = served.stream()
        await client.connect()
        client.send_frame(9, b"there?")
        assert await client.receive_frame() == (10, b"there?")
        await client.greet()
        client.send_frame(10, b"unasked")
        client.send_frame(9, b"")
        assert await client.receive_frame() == (10, b"")
        client.send([5])
        with pytest.raises(Closed):
            await client.receive()
        await client.drop()


async def test_long_answers_are_made_as_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short message may ask for much: the node keeps no more of that than the client takes."""
    unread: list[int] = []
    write = stream_out.Out._write

    def write_and_look(self: stream_out.Out, frame: bytes) -> None:
        write(self, frame)
        if self._transport is not None:
            unread.append(self._transport.get_write_buffer_size())

    monkeypatch.setattr(stream_out.Out, "_write", write_and_look)
    monkeypatch.setattr(stream_out, "PIECE_COUNT", 2)
    read, count = [42, [], [[3, b"c"]] * 64], 15
    async with streamed(tmp_path) as served, served.stream() as client:
        await client.call(PUT_CELL, b"c", b"x" * 4096)
        first = client.ask(*[read] * count)
        client.ask([PUT_CELL, b"d", b"y"])
        for number in range(first, first + count):
            result = await client.answer(number)
            assert (result[0], len(result[3])) == (43, 64)
        assert (await client.answer(first + count))[0] == 40
    assert max(unread) <= 3 * 64 * 5_000


async def test_long_answers_that_nobody_reads_end_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the client says nothing more."""
    ended = _told_of_end(monkeypatch)
    monkeypatch.setattr(stream_out, "UNREAD_S", 0.2)
    async with streamed(tmp_path) as served, served.stream() as client:
        await client.call(PUT_CELL, b"c", b"x" * 4096)
        client.ask(*[[42, [], [[3, b"c"]] * 64]] * (4 * stream_out.PIECE_COUNT))
        client.stop_reading()
        async with asyncio.timeout(5.0):
            await ended.wait()


async def test_all_streams_are_told_of_another_leader_by_one_timer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands that only stay connected cost a node next to nothing; without any there is no timer."""
    url, looked = "http://n1", list[open_streams.OpenStreams]()

    def now(self: open_streams.OpenStreams, _node: NodeState) -> str:
        looked.append(self)
        return url

    monkeypatch.setattr(open_streams, "LOOK_S", 0.02)
    monkeypatch.setattr(open_streams.OpenStreams, "leader_url", now)
    async with streamed(tmp_path) as served:
        async with served.stream() as one, served.stream() as other:
            assert one.welcome[6] == other.welcome[6] == "http://n1"
            url = ""
            await until(lambda: looked[0]._heard == "")
            url = "http://n2"
            assert await one.receive() == await other.receive() == [5, "http://n2"]
            assert len(looked[0]._streams) == 2
        await until(lambda: looked[0]._timer is None)
        assert not looked[0]._streams
