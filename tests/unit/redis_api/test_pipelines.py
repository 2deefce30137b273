"""Commands that a client sends without waiting: begun together, in order, and each followed by itself."""

import asyncio

import pytest

from cluster.errors import OutcomeUnknown
from http_api.server.authentication import KnownPrincipals
from redis_api import connection
from redis_api.commands import holds
from redis_api.shared import left_grants
from redis_api.shared.client import Client
from redis_api.shared.left_grants import Attempt
from tests.support.redis_words import sent
from tests.unit.http_api.serving import token_line, until
from tests.unit.redis_api.test_server import TOKEN, VALUE, Connected, serving

RELEASE = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
OTHER = b"fedcba9876543210"


class Unread(asyncio.Transport):
    """A connection of which nobody reads what is written."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Forget it."""
        del data

    def is_closing(self) -> bool:
        """Whether it is over: never."""
        return False

    def close(self) -> None:
        """Do nothing."""


def take(client: Connected, key: str, value: bytes = VALUE) -> None:
    """Ask for a lock."""
    client.send("SET", key, value, "NX", "PX", 30_000)


async def test_a_pipeline_has_the_effects_of_one_command_after_the_other() -> None:
    """On one key as well, and with commands among them that are carried out alone."""
    async with serving() as served, served.client() as client:
        take(client, "k")
        take(client, "k", OTHER)
        client.send("EVAL", RELEASE, 1, "k", OTHER)
        client.send("EVAL", RELEASE, 1, "k", VALUE)
        take(client, "k", OTHER)
        client.send("GET", "k")
        client.send("SELECT", 1)
        take(client, "k")
        client.send("EVALSHA", "0" * 40, 1, "k", VALUE)
        client.send("GET", "k")
        answers = [await client.read() for _ in range(10)]
        assert answers[:8] == ["+OK", None, 0, 1, "+OK", OTHER, "+OK", "+OK"]
        assert answers[8].startswith("-NOSCRIPT ")
        assert answers[9] == VALUE


async def test_what_is_one_step_is_begun_before_others_are_answered() -> None:
    """Anything else waits for the answers to all before it."""
    async with serving() as served, served.client() as client:
        served.node.answers.clear()
        for key in "abc":
            take(client, key)
        client.send("GET", "a")
        take(client, "d")
        await until(lambda: len(served.holders) == 3)
        assert "GET" not in served.face.commands
        served.node.answers.set()
        assert [await client.read() for _ in range(5)] == ["+OK", "+OK", "+OK", VALUE, "+OK"]


async def test_what_comes_together_is_begun_in_one_turn() -> None:
    """So all of it can share an entry of the log."""
    async with serving() as served:
        client = served.redis.make()
        client.connection_made(Unread())
        takes = [sent([b"SET", b"k%d" % number, VALUE, b"NX", b"PX", b"30000"]) for number in range(200)]
        client.data_received(b"".join(takes))
        assert len(served.holders) == 200
        client.connection_lost(None)
        await client.drain()


async def test_so_much_is_under_way_at_a_time() -> None:
    """What is more is begun when the first ones are answered; others have their turn meanwhile."""
    async with serving() as served, served.client() as client, served.client() as other:
        served.node.answers.clear()
        for number in range(connection.WINDOW_COUNT + 10):
            take(client, f"k{number}")
        await until(lambda: len(served.holders) == connection.WINDOW_COUNT)
        take(other, "other")
        await until(lambda: len(served.holders) == connection.WINDOW_COUNT + 1)
        served.node.answers.set()
        assert [await client.read() for _ in range(connection.WINDOW_COUNT + 10)] == ["+OK"] * (
            connection.WINDOW_COUNT + 10
        )


async def test_an_unknown_outcome_is_answered_by_nothing_and_nothing_behind_it() -> None:
    """What was before it has its answer; what those behind it took is given back."""
    async with serving() as served, served.client() as client:
        assert await client.ask("SET", "first", VALUE, "NX", "PX", 30_000) == "+OK"
        client.send("EVAL", RELEASE, 1, "first", VALUE)
        served.node.lost = OutcomeUnknown("no outcome")
        take(client, "lost")
        take(client, "also-lost")
        assert await client.read() == 1
        assert await client.is_over()
        await until(lambda: not served.holders)


async def test_an_unforeseen_error_ends_its_connection_and_no_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also one before the outcome is known: the node stops in time, and what was taken is given back."""

    def broken(client: Client, attempt: Attempt) -> bool:
        del client
        if attempt.key.name.endswith("broken"):
            raise RuntimeError("unforeseen")
        return False

    monkeypatch.setattr(holds, "gave_way", broken)
    monkeypatch.setattr(left_grants, "ADOPTION_S", 0.0)
    async with serving() as served, served.client() as client:
        served.node.answers.clear()
        take(client, "first")
        take(client, "broken")
        take(client, "behind")
        await until(lambda: len(served.holders) == 3)
        (ours,) = served.redis._connections
        served.node.answers.set()
        assert await client.read() == "+OK"
        assert await client.is_over()
        await asyncio.wait_for(ours.drain(), 5)
        await until(lambda: len(served.holders) == 1)
    assert [record.getMessage() for record in caplog.records] == ["event=redis-command-failed"]


async def test_each_lock_of_a_pipeline_is_found_by_who_asks_again() -> None:
    """The client left before any answer could be written, and comes back with the same values."""
    async with serving() as served:
        served.node.answers.clear()
        async with served.client() as client:
            take(client, "a")
            take(client, "b", OTHER)
            await until(lambda: len(served.holders) == 2)
        await until(lambda: served.face.clients_count == 0)
        tokens = served.holders
        async with served.client() as client:
            take(client, "a")
            take(client, "b", OTHER)
            served.node.answers.set()
            assert [await client.read() for _ in range(2)] == ["+OK", "+OK"]
        assert served.holders == tokens
        assert served.face.left.adopted_count == 2


async def test_what_is_no_command_is_refused_behind_the_answers() -> None:
    """Also to what was begun and is not over."""
    async with serving() as served, served.client() as client:
        served.node.answers.clear()
        take(client, "a")
        client.writer.write(b"*1\r\n:1\r\n")
        await until(lambda: len(served.holders) == 1)
        served.node.answers.set()
        assert await client.read() == "+OK"
        assert (await client.read()).startswith("-ERR Protocol error: ")
        assert await client.is_over()


async def test_nothing_behind_quit_is_carried_out() -> None:
    """It is the last command of a connection."""
    async with serving() as served, served.client() as client:
        take(client, "a")
        client.send("QUIT")
        take(client, "b")
        assert [await client.read() for _ in range(2)] == ["+OK", "+OK"]
        assert await client.is_over()
        assert len(served.holders) == 1


async def test_a_node_that_stops_answers_all_that_has_begun() -> None:
    """And begins nothing more."""
    async with serving() as served, served.client() as client:
        served.node.answers.clear()
        take(client, "a")
        take(client, "b", OTHER)
        await until(lambda: len(served.holders) == 2)
        stopping = asyncio.ensure_future(served.redis.stop(5.0))
        await asyncio.sleep(0)
        take(client, "c")
        served.node.answers.set()
        assert [await client.read() for _ in range(2)] == ["+OK", "+OK"]
        assert await client.is_over()
        await stopping
        assert len(served.holders) == 2


async def test_a_token_that_ends_ends_nothing_that_has_begun() -> None:
    """What was taken before is answered, and what comes behind it is refused."""
    async with serving(token_line("billing", TOKEN, "acquire,read")) as served, served.client() as client:
        assert await client.ask("AUTH", TOKEN) == "+OK"
        (known,) = served.face.clients
        served.node.answers.clear()
        take(client, "a")
        await until(lambda: len(served.holders) == 1)
        served.authentication.principals = KnownPrincipals(served.authentication.gateway, ())
        take(client, "b")
        client.send("PING")
        await until(lambda: not known.principal)
        served.node.answers.set()
        assert await asyncio.wait_for(client.read(), 5) == "+OK"
        assert [(await client.read()).split()[0] for _ in range(2)] == ["-NOAUTH", "-NOAUTH"]
        assert len(served.holders) == 1


@pytest.mark.parametrize(("turn_s", "count"), [(0.0, 1), (60.0, 4)])
async def test_a_dear_command_ends_the_turn(
    monkeypatch: pytest.MonkeyPatch, turn_s: float, count: int
) -> None:
    """Others wait for one of them, and not for a whole pipeline."""
    monkeypatch.setattr(connection, "TURN_S", turn_s)
    async with serving() as served:
        client = served.redis.make()
        client.connection_made(Unread())
        client.data_received(sent([b"PING"]) * 4)
        await asyncio.sleep(0)
        assert served.face.commands["PING"] == count
        await until(lambda: served.face.commands["PING"] == 4)
        client.connection_lost(None)
        await client.drain()
