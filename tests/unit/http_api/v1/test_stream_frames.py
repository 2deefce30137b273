"""GET /v1/stream as bytes: messages cut and joined anywhere, control frames, and what is no WebSocket."""

import asyncio
import contextlib
import random
import struct
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from aiohttp.web_protocol import RequestHandler

from http_api.v1 import stream, stream_out
from tests.support.stream_client import GRANTED, PUT_CELL, Closed, Stream, acquire, frame
from tests.unit.http_api.serving import until
from tests.unit.http_api.v1.streaming import TIMEOUT_S, Streamed, streamed

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
PROTOCOL_ERROR, INVALID_TEXT, TOO_BIG = 1002, 1007, 1009
"""Codes of the WebSocket itself (RFC 6455, section 7.4.1)."""
RESERVED: Final = 0x40
"""A bit of the first byte that no extension has given a meaning."""
KEPT_BYTES_MIN, KEPT_BYTES_MAX = 100_000, 1_500_000
"""Bytes of messages that a node keeps, and no more, while it does not take them."""
TOO_LONG: Final = stream.MESSAGE_BYTES_MAX
"""Bytes that are one more than aiohttp takes."""
READ: Final = [42, [], [[3, b"c"]]]
"""A transaction that reads the cell of `put`."""
NEVER: Final = 1 << 40
"""A number that no command has: who waits for its answer reads all that comes before the end."""


def put(number: int, value: bytes = b"v") -> list[Any]:
    """Return a message with one command. Its result counts how many of them were applied."""
    return [2, number, [], 0, [[PUT_CELL, b"c", value]]]


def encoded(message: Any) -> bytes:
    """Return what is in the frame of a message."""
    return msgspec.msgpack.encode(message)


async def check_puts(client: Stream, numbers: range) -> None:
    """Check that each of these commands was carried out once, in order, and nothing else."""
    versions = [(await client.answer(number))[3] for number in numbers]
    assert versions == list(range(numbers.start, numbers.stop))


async def ended(client: Stream) -> Closed:
    """Return how the node closes a stream; all its messages before that are read."""
    with pytest.raises(Closed) as closed:
        await client.answer(NEVER)
    return closed.value


# -- where messages begin and end ---------------------------------------------------------------------------


async def test_several_messages_in_one_piece(tmp_path: Path) -> None:
    """They are taken one after the other."""
    async with streamed(tmp_path) as served, served.stream() as client:
        for first in (1, 101):
            numbers = range(first, first + 100)
            client.send_bytes(b"".join(client.framed(put(number)) for number in numbers))
            await check_puts(client, numbers)


async def test_a_message_cut_anywhere(tmp_path: Path) -> None:
    """The rest may come later: in the middle of the head, the mask or the content."""
    async with streamed(tmp_path) as served, served.stream() as client:
        for number, value in enumerate((b"v", b"v" * 200), 1):
            for byte in client.framed(put(number, value)):
                client.send_bytes(bytes((byte,)))
                await client.drain()
                await asyncio.sleep(0)
        await check_puts(client, range(1, 3))


@pytest.mark.parametrize("seed", range(5))
async def test_any_way_of_cutting_and_joining(tmp_path: Path, seed: int) -> None:
    """Fragments, control frames between them, and pieces of any length: all is taken once, in order."""
    chance = random.Random(seed)
    sent = bytearray()
    pings = 0
    for number in range(1, 201):
        content = encoded(put(number, b"v" * chance.choice((1, 10, 300))))
        cuts = sorted(chance.sample(range(len(content)), chance.choice((0, 0, 0, 1, 3))))
        parts = [content[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(content)], strict=True)]
        for place, part in enumerate(parts):
            sent += frame(0 if place else BINARY, part, is_final=place == len(parts) - 1)
            if chance.random() < 0.1:
                pings += 1
                sent += frame(PING, b"%d" % pings)
    async with streamed(tmp_path) as served, served.stream() as client:
        while sent:
            size = chance.choice((1, 2, 7, 50, 1000, 5000))
            client.send_bytes(bytes(sent[:size]))
            del sent[:size]
            if chance.random() < 0.3:
                await asyncio.sleep(0)
        await check_puts(client, range(1, 201))
        assert client.pongs == [b"%d" % number for number in range(1, pings + 1)]


async def test_messages_behind_the_hello_wait_for_the_welcome(tmp_path: Path) -> None:
    """They may even be cut by it."""
    async with streamed(tmp_path) as served:
        client = served.stream()
        await client.connect()
        sent = b"".join(client.framed(put(number)) for number in range(1, 101))
        client.send_bytes(client.framed([1, 1, "", 60_000, {}]) + sent[:-3])
        assert (await client.receive())[0] == 1
        client.send_bytes(sent[-3:])
        await check_puts(client, range(1, 101))
        await client.drop()


# -- control frames -----------------------------------------------------------------------------------------


async def test_a_ping_of_the_websocket_has_a_pong(tmp_path: Path) -> None:
    """With what was in it, whatever comes around it; a pong that nobody asked for has no answer."""
    async with streamed(tmp_path) as served, served.stream() as client:
        for number in range(1, 10):
            messages = [client.framed(put(each)) for each in range(3 * number - 2, 3 * number + 1)]
            controls = frame(PING, b"%d" % number) + frame(PONG, b"unasked")
            client.send_bytes(messages[0] + controls + messages[1])
            client.send_bytes(messages[2])
            await check_puts(client, range(3 * number - 2, 3 * number + 1))
        client.send_frame(PING, b"last")
        client.send([4])
        await until_pong(client, b"last")
        assert client.pongs[:-1] == [b"%d" % number for number in range(1, 10)]


async def until_pong(client: Stream, content: bytes) -> None:
    """Read until this pong has come."""
    async with asyncio.timeout(TIMEOUT_S):
        while content not in client.pongs:
            assert await client.receive() == [9]
            client.send([4])


async def test_a_client_that_closes_is_told_goodbye(tmp_path: Path) -> None:
    """What it sent before counts, what it sends behind does not; its session lives on."""
    async with streamed(tmp_path) as served, served.stream() as client:
        client.send(put(1))
        await check_puts(client, range(1, 2))
        goodbye = frame(CLOSE, struct.pack("!H", 1000) + b"done")
        client.send_bytes(client.framed(put(2)) + goodbye + client.framed(put(3)))
        assert (await ended(client)).code == 1000
        with pytest.raises(asyncio.IncompleteReadError):
            await client.receive()
        async with served.again(client) as again:
            assert again.last == 2


@pytest.mark.parametrize(
    ("form", "wrong", "code"),
    [
        ("msgpack", frame(BINARY, bytes(TOO_LONG)), TOO_BIG),
        ("msgpack", frame(BINARY, bytes(1), is_final=False) + frame(0, bytes(TOO_LONG)), TOO_BIG),
        ("json", frame(TEXT, b'["\xff"]'), INVALID_TEXT),
        ("msgpack", frame(BINARY, b"\x91\x04", is_masked=False), PROTOCOL_ERROR),
        ("json", frame(TEXT, b" " * 200 + b"[4]", is_masked=False), PROTOCOL_ERROR),
        ("msgpack", frame(PING, b"", is_masked=False), PROTOCOL_ERROR),
        ("msgpack", frame(BINARY | RESERVED, b""), PROTOCOL_ERROR),
        ("msgpack", frame(3, b""), PROTOCOL_ERROR),
        ("msgpack", frame(0, b""), PROTOCOL_ERROR),
        ("msgpack", frame(BINARY, b"\x91", is_final=False) + frame(BINARY, b"\x04"), PROTOCOL_ERROR),
        ("msgpack", frame(PING, b"", is_final=False), PROTOCOL_ERROR),
        ("msgpack", frame(PING, bytes(126)), PROTOCOL_ERROR),
        ("msgpack", frame(CLOSE, b"\x00"), PROTOCOL_ERROR),
    ],
    ids=[
        "long", "long in parts", "no utf-8", "no mask", "longer without", "ping without", "reserved bit",
        "reserved opcode", "no beginning",
        "no end", "ping in parts", "long ping", "half a code",
    ],
)  # fmt: skip
async def test_what_is_no_message_of_a_websocket(tmp_path: Path, form: str, wrong: bytes, code: int) -> None:
    """The client is told by a code of the WebSocket; what came before counts, what comes behind does not."""
    async with streamed(tmp_path) as served, served.stream(form) as client:
        assert (await client.acquire("a"))[0] == GRANTED
        before, behind = (client.framed([2, number, [], 0, [acquire("b")]]) for number in (2, 3))
        client.send_bytes(before + wrong + behind)
        assert (await ended(client)).code == code
        await until(lambda: served.node.machine.lock("b").state == "held")
        view = served.node.machine.stream(client.session_id)  # type: ignore[arg-type]
        assert view is not None
        assert view.last == 2


# -- the end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "code"), [([5], 1000), ([7], stream.INVALID), ([1, 1, "", 60_000, {}], stream.INVALID),
                       ([2, 0, [], 0, []], stream.INVALID)],
    ids=["bye", "unknown", "second hello", "wrong number"],
)  # fmt: skip
async def test_nothing_behind_the_last_message_counts(tmp_path: Path, last: list[Any], code: int) -> None:
    """Neither what is in the same piece nor what comes while the stream ends."""
    async with streamed(tmp_path) as served, served.stream() as client:
        client.ask(acquire("a", ttl_ms=60_000))
        assert (await client.answer(1))[0] == GRANTED
        behind = client.framed([2, 3, [], 0, [acquire("c", ttl_ms=60_000)]])
        before = client.framed([2, 2, [], 0, [acquire("b", ttl_ms=60_000)]])
        client.send_bytes(before + client.framed(last) + behind)
        client.send_bytes(behind)
        assert (await ended(client)).code == code
        await until(lambda: served.node.machine.lock("b").state == "held")
        assert served.node.machine.lock("c").state == "free"


async def test_no_more_begins_than_the_window_has(tmp_path: Path) -> None:
    """Not even when all comes in one piece."""
    begun: list[asyncio.Future[Any]] = []

    def begin(*_: Any) -> asyncio.Future[Any]:
        begun.append(asyncio.get_running_loop().create_future())
        return begun[-1]

    async with streamed(tmp_path) as served, served.stream() as client:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(served.node.parts.requests, "begin", begin)
            client.send_bytes(b"".join(client.framed(put(number)) for number in range(1, 2001)))
            assert (await ended(client)).code == stream.FLOW_CONTROL
        assert len(begun) == 1024


async def test_a_mistake_of_the_node_ends_the_connection_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not hidden, the client does not wait for ever, and nothing more of it is taken."""
    begun: list[Any] = []

    def begin(*given: Any) -> Any:
        begun.append(given)
        raise ZeroDivisionError("a mistake")

    async with streamed(tmp_path) as served, served.stream() as client:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(served.node.parts.requests, "begin", begin)
            client.send_bytes(b"".join(client.framed(put(number)) for number in range(1, 11)))
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await client.answer(NEVER)
        assert len(begun) == 1
        assert "ZeroDivisionError: a mistake" in caplog.text
        async with served.again(client) as again:
            assert again.last == 0


# -- who is slow --------------------------------------------------------------------------------------------


async def test_who_reads_again_in_time_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came while the node took nothing was kept, in order, and only as much of it as has room."""
    monkeypatch.setattr(stream_out, "UNREAD_BYTES_MAX", 100_000)
    value = b"v" * 4096
    async with streamed(tmp_path) as served, served.stream() as client:
        client.send(put(1, value))
        await check_puts(client, range(1, 2))
        begun = counted(served, monkeypatch)
        client.stop_reading(256 * 1024)
        await fill(client, begun)
        taken = len(begun)
        heard = heard_sizes(monkeypatch)
        numbers = range(32, 932)
        for number in numbers[::15]:
            client.send([2, number, [], 0, [[PUT_CELL, b"c", value]] * 15])
        await until(lambda: sum(heard) > KEPT_BYTES_MIN)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await client.drain()
        assert sum(heard) < KEPT_BYTES_MAX
        assert len(begun) == taken
        client.read_on()
        versions = [(await client.answer(number))[3] for number in numbers]
        assert versions == list(range(2, 902))
        assert sum(heard) > 900 * len(value)
        assert len(begun) == taken + 1 + 60


async def fill(client: Stream, begun: list[Any]) -> None:
    """Ask the same again and again until the node takes nothing more, because nothing is read."""
    sent = 0
    with contextlib.suppress(TimeoutError):
        while True:
            client.send([2, 2, [], 0, [READ] * 30])
            sent += 1
            async with asyncio.timeout(0.5):
                while len(begun) < sent:  # noqa: ASYNC110 - nothing tells of it
                    await asyncio.sleep(0.001)


def heard_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list of the sizes of what nodes get from sockets from now on."""
    sizes: list[int] = []
    plain = RequestHandler.data_received

    def data_received(self: RequestHandler, data: bytes) -> None:
        sizes.append(len(data))
        plain(self, data)

    monkeypatch.setattr(RequestHandler, "data_received", data_received)
    return sizes


def counted(served: Streamed, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the list of what is begun from now on."""
    begun: list[Any] = []
    requests = served.node.parts.requests
    plain = requests.begin

    def begin(*given: Any) -> Any:
        begun.append(given)
        return plain(*given)

    monkeypatch.setattr(requests, "begin", begin)
    return begun


async def test_a_busy_client_is_not_asked_for_a_sign_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives one with all that it sends; one that falls silent is asked."""
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.3)
    loop = asyncio.get_running_loop()
    async with streamed(tmp_path) as served, served.stream() as client:
        until_s = loop.time() + 1
        while loop.time() < until_s:
            await client.acquire("a")
        assert client.pings == 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await client.receive()
        assert client.pings > 0
        assert (await client.acquire("b"))[0] == GRANTED
