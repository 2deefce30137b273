"""Channels over real sockets: who is told what, in which form, with which rights, and within which bounds."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from holdfast import token_lines
from http_api.server.authentication import KnownPrincipals
from http_api.server.request_rates import RequestRates
from redis_api.commands import channels
from redis_api.shared import client, listeners
from tests.unit.http_api.serving import token_line, until
from tests.unit.redis_api.test_server import OTHER_TOKEN, TOKEN, Connected, Served, serving


@contextlib.asynccontextmanager
async def two(*args: bytes) -> AsyncIterator[tuple[Served, Connected, Connected]]:
    """Serve a client that listens and one that speaks."""
    async with serving(*args) as served, served.client() as listener, served.client() as speaker:
        yield served, listener, speaker


async def test_who_listens_is_told() -> None:
    """By channel and by pattern, and no more once it has said so."""
    async with two() as (_, listener, speaker):
        assert await listener.ask("SUBSCRIBE", "a", "b") == [b"subscribe", b"a", 1]
        assert await listener.read() == [b"subscribe", b"b", 2]
        assert await listener.ask("PSUBSCRIBE", "a*") == [b"psubscribe", b"a*", 3]
        assert await speaker.ask("PUBLISH", "a", b"\x00unlocked") == 2
        assert await listener.read() == [b"message", b"a", b"\x00unlocked"]
        assert await listener.read() == [b"pmessage", b"a*", b"a", b"\x00unlocked"]
        assert await listener.ask("UNSUBSCRIBE", "a") == [b"unsubscribe", b"a", 2]
        assert await listener.ask("PUNSUBSCRIBE") == [b"punsubscribe", b"a*", 1]
        assert await speaker.ask("PUBLISH", "a", "again") == 0
        assert await listener.ask("UNSUBSCRIBE") == [b"unsubscribe", b"b", 0]
        assert await listener.ask("UNSUBSCRIBE") == [b"unsubscribe", None, 0]
        assert await listener.ask("PUNSUBSCRIBE", "none") == [b"punsubscribe", b"none", 0]
        assert await listener.ask("GET", "k") is None, "the connection is as it was"


async def test_version_2_has_room_for_nothing_else() -> None:
    """While it listens; version 3 has pushes, and every command."""
    async with two() as (_, listener, speaker):
        assert await listener.ask("SUBSCRIBE", "a") == [b"subscribe", b"a", 1]
        assert (await listener.ask("GET", "k")).startswith("-ERR Can't execute 'get': only (P|S)SUBSCRIBE")
        assert await listener.ask("PING") == [b"pong", b""]
        assert await listener.ask("PING", "x") == [b"pong", b"x"]
        assert await listener.ask("RESET") == "+RESET"
        assert await speaker.ask("PUBLISH", "a", "m") == 0
        listener.send("HELLO", 3)
        await listener.reader.readuntil(b"modules\r\n*0\r\n")
        listener.send("SUBSCRIBE", "a")
        expected = b">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"
        assert await listener.reader.readexactly(len(expected)) == expected
        assert await listener.ask("PING") == "+PONG"
        assert await speaker.ask("PUBLISH", "a", "m") == 1
        expected = b">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nm\r\n"
        assert await listener.reader.readexactly(len(expected)) == expected


async def test_channels_belong_to_a_database() -> None:
    """As keys do."""
    async with two() as (_, listener, speaker):
        await listener.ask("SELECT", 3)
        await listener.ask("SUBSCRIBE", "a")
        await listener.ask("PSUBSCRIBE", "*")
        assert await speaker.ask("PUBLISH", "a", "m") == 0
        assert await speaker.ask("SELECT", 3) == "+OK"
        assert await speaker.ask("PUBLISH", "a", "m") == 2
        assert await speaker.ask("PUBSUB", "CHANNELS") == [b"a"]
        assert await speaker.ask("PUBSUB", "CHANNELS", "b*") == []
        assert await speaker.ask("PUBSUB", "NUMSUB", "a", "b") == [b"a", 1, b"b", 0]
        assert await speaker.ask("PUBSUB", "NUMPAT") == 1
        refused = await speaker.ask("PUBSUB", "CHANNELS", "a" * 513)
        assert refused == "-ERR a pattern has at most 512 bytes"
        assert (await speaker.ask("PUBSUB", "SHARDCHANNELS")).startswith("-ERR PUBSUB SHARDCHANNELS is not")
        assert (await speaker.ask("PUBSUB", "NUMPAT", "x")).startswith("-ERR wrong number of arguments for")


@pytest.mark.parametrize(
    ("words", "count"), [(("PUBSUB", "CHANNELS", "c*"), 3), (("PSUBSCRIBE", "a*", "b*", "a*"), 2)]
)
async def test_each_page_of_channels_and_each_pattern_is_a_request(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], count: int
) -> None:
    """All channels of the node are looked at, and all patterns are read."""
    monkeypatch.setattr(channels, "LIST_LIMIT_MAX", 2)
    async with (
        serving(rates=RequestRates(10, now_s=lambda: 0.0)) as served,
        served.client() as listener,
        served.client() as client,
        served.client() as other,
    ):
        await listener.ask("SUBSCRIBE", "c1", "c2", "c3", "c4", "d5")
        await client.ask(*words)
        for _ in range(10 - 1 - count):
            assert await other.ask("EXISTS", "k") == 0
        assert (await other.ask("EXISTS", "k")).startswith("-TRYAGAIN too-many-requests: ")


async def test_too_many_channels_for_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many there are does not matter, only how many match."""
    monkeypatch.setattr(channels, "LIST_LIMIT_MAX", 2)
    monkeypatch.setattr(channels, "KEYS_COUNT_MAX", 1)
    async with two() as (_, listener, speaker):
        await listener.ask("SUBSCRIBE", "c1", "c2", "c3", "c4", "d5")
        assert await speaker.ask("PUBSUB", "CHANNELS", "d*") == [b"d5"]
        refused = await speaker.ask("PUBSUB", "CHANNELS", "c*")
        assert refused == "-ERR more than 1 channels match: give a pattern for fewer"


async def test_what_another_node_passes_on_is_told() -> None:
    """A name that no client of Redis could give is none of ours."""
    async with two() as (served, listener, _):
        await listener.ask("SUBSCRIBE", "a")
        told = served.face.listeners.told
        for name in ("redis", "redis/x/a", "other/0/a", "redis/0/%41"):
            assert told(name, b"m") == 0
        assert told("redis/0/a", b"m") == 1
        assert await listener.read() == [b"message", b"a", b"m"]


async def test_rights_are_those_of_the_name() -> None:
    """To listen is to read, to speak needs the right to acquire; patterns tell what may be read."""
    tokens = token_line("billing", TOKEN, "acquire,read@redis/0/billing")
    tokens += token_line("ops", OTHER_TOKEN, "acquire,read")
    async with two(tokens) as (served, listener, speaker):
        assert await listener.ask("AUTH", TOKEN) == "+OK"
        assert await speaker.ask("AUTH", OTHER_TOKEN) == "+OK"
        assert (await listener.ask("SUBSCRIBE", "other")).startswith("-NOPERM ")
        assert (await listener.ask("PUBLISH", "other", "m")).startswith("-NOPERM ")
        await listener.ask("PSUBSCRIBE", "*")
        assert await speaker.ask("PUBLISH", "other", "m") == 0
        assert await speaker.ask("PUBLISH", "billing/a", "m") == 1
        assert await listener.read() == [b"pmessage", b"*", b"billing/a", b"m"]
        lines = token_lines.parse(token_line("ops", OTHER_TOKEN, "acquire,read"))
        served.authentication.principals = KnownPrincipals(served.authentication.gateway, lines)
        assert await speaker.ask("PUBLISH", "billing/a", "m") == 0
        assert await listener.is_over(), "its token counts no more"


@pytest.mark.parametrize("bound", ["UNREAD_BYTES_MAX", "UNREAD_OF_ALL_BYTES_MAX"])
async def test_there_are_bounds(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    """On what a connection listens to, on patterns of all, and on what one and all have not read."""
    monkeypatch.setattr(client, "UNREAD_BYTES_MAX", 1 << 40)
    monkeypatch.setattr(channels, "COUNT_MAX", 2)
    monkeypatch.setattr(listeners, "PATTERNS_COUNT_MAX", 1)
    monkeypatch.setattr(client, bound, 1_000_000)
    async with two() as (served, listener, speaker):
        assert (await listener.ask("SUBSCRIBE", "a", "b", "c")).startswith("-ERR a connection listens to at")
        assert (await listener.ask("PSUBSCRIBE", "a*", "b*")).startswith("-TRYAGAIN clients of this node")
        assert (await listener.ask("PSUBSCRIBE", "x" * 513)).startswith("-ERR a pattern has at most 512")
        assert await listener.ask("SUBSCRIBE", "a", "a") == [b"subscribe", b"a", 1]
        assert await listener.read() == [b"subscribe", b"a", 1]
        listener.reader._transport.pause_reading()  # type: ignore[attr-defined]
        message = b"m" * 60_000
        while await speaker.ask("PUBLISH", "a", message):
            pass
        await until(lambda: served.face.clients_count == 1)
        assert not served.face.listeners.of_names


async def test_a_client_that_listens_is_not_idle() -> None:
    """It keeps its place although it asks nothing; what it does not listen to any more it does not keep."""
    async with two() as (served, listener, _):
        await listener.ask("SUBSCRIBE", "a")
        assert served.room.idle.oldest() is None
        await listener.ask("UNSUBSCRIBE")
        await until(lambda: served.room.idle.oldest() is not None)
