"""The Redis face over real sockets: who is let in, what is refused, what becomes of lost answers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import pytest

from cluster.errors import ClusterError, NoLeader, OutcomeUnknown
from holdfast import token_lines
from http_api.server.authentication import Authentication, KnownPrincipals
from http_api.server.connection_limits import ConnectionPlaces, PlaceLimits
from http_api.server.request_rates import RequestRates
from lockapi.gateway import Gateway
from lockstate.machine import LockMachine
from lockstate.words.commands import Acquire, Command, MayWait
from lockstate.words.ids import HoldId
from redis_api.commands import basic, data_handlers, quick, scanning, table
from redis_api.connection import Commands
from redis_api.keys.data_table import DATA
from redis_api.protocol import missing
from redis_api.protocol.resp import COMMAND_BYTES_MAX
from redis_api.server import RedisServer
from redis_api.shared import left_grants
from redis_api.shared.client import Face
from tests.support.local_node import LocalAnswer, LocalNode
from tests.support.redis_words import sent
from tests.unit.http_api.serving import token_line, until

T = TypeVar("T")
VALUE = b"0123456789abcdef"
TOKEN = "t" * 40
OTHER_TOKEN = "u" * 40
WEB = "w" * 40


class SlowNode(LocalNode):
    """A node whose grants a test can hold back, before they are made or behind that."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()
        self.answers.set()
        self.lost: ClusterError | None = None

    async def submit(self, command: Command, timeout_s: float, principal: str = "") -> LocalAnswer:
        """Apply a command, and answer when the test lets it."""
        answer = await super().submit(command, timeout_s, principal)
        if isinstance(command, Acquire):
            await self._hold_back()
        return answer

    async def acquire(
        self, command: MayWait, timeout_s: float, principal: str = "", poll_s: float | None = None
    ) -> LocalAnswer:
        """Apply a request and wait for its end, and answer when the test lets it; undo it if cancelled."""
        answer = await super().acquire(command, timeout_s, principal, poll_s)
        try:
            await self._hold_back()
        except asyncio.CancelledError:
            self._leave(command, principal, answer)
            raise
        return answer

    async def _hold_back(self) -> None:
        await self.answers.wait()
        if self.lost is not None:
            raise self.lost

    def begin(
        self, command: Command, timeout_s: float, principal: str = "", lane: str = ""
    ) -> asyncio.Future[LocalAnswer]:
        """Apply a command at once, and answer when the test lets it."""
        begun = super().begin(command, timeout_s, principal, lane)
        if not isinstance(command, Acquire) or (self.answers.is_set() and self.lost is None):
            return begun

        async def answer() -> LocalAnswer:
            await self.answers.wait()
            if self.lost is not None:
                raise self.lost
            return begun.result()

        return asyncio.ensure_future(answer())

    async def read(self, query: Callable[[LockMachine], T], timeout_s: float) -> T:
        """Look at the state, and answer when the test lets it."""
        found = await super().read(query, timeout_s)
        await self.answers.wait()
        return found


class Connected:
    """A client with a socket of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def read(self) -> Any:
        """Return the next reply as a Python value; an error as its text."""
        line = (await self.reader.readline()).rstrip(b"\r\n").decode()
        kind, text = line[:1], line[1:]
        if kind == "*":
            return None if text == "-1" else [await self.read() for _ in range(int(text))]
        if kind == "$":
            if text == "-1":
                return None
            return (await self.reader.readexactly(int(text) + 2))[:-2]
        return int(text) if kind == ":" else line

    async def ask(self, *words: bytes | str | int) -> Any:
        """Send a command and return its reply."""
        self.send(*words)
        return await self.read()

    def send(self, *words: bytes | str | int) -> None:
        """Send a command."""
        self.writer.write(sent([word if isinstance(word, bytes) else str(word).encode() for word in words]))

    async def is_over(self) -> bool:
        """Return whether the node closes the connection without another word."""
        return await self.reader.read() == b""


class Served:
    """A node that serves clients of Redis."""

    def __init__(self, tokens: bytes = b"", rates: RequestRates | None = None, count_max: int = 100) -> None:
        self.node = SlowNode()
        self.authentication = Authentication(Gateway(self.node))
        if tokens:
            lines = token_lines.parse(tokens)
            self.authentication.principals = KnownPrincipals(self.authentication.gateway, lines)
        self.room = ConnectionPlaces(PlaceLimits(count_max=count_max))
        self.starting = ""
        self.face = Face(
            self.authentication,
            rates or RequestRates(),
            5.0,
            self.authentication.gateway,
            "1",
            lambda: self.starting,
        )
        self.redis = RedisServer(self.face, self.room, Commands(table.answer, quick.begin, quick.finish))
        self.port = 0

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Connected]:
        """Connect."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield Connected(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    @property
    def holders(self) -> list[int]:
        """Return the tokens of all holds."""
        return [hold.token for hold in self.node.machine.state.holds.values()]


@contextlib.asynccontextmanager
async def serving(*args: Any, **options: Any) -> AsyncIterator[Served]:
    """Serve until the end of the block."""
    served = Served(*args, **options)
    listener = await asyncio.get_running_loop().create_server(served.redis.make, "127.0.0.1", 0)
    served.port = listener.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        listener.close()
        await served.redis.stop(1.0)


async def test_a_lock_is_taken_compared_and_given_back() -> None:
    """A key is a hold with a value, a lease and a token; its name stands among the locks of the node."""
    async with serving() as served, served.client() as client:
        assert await client.ask("SET", "a/b", VALUE, "NX", "PX", 30_000) == "+OK"
        (holder,) = served.node.machine.lock("redis/0/a/b").holders
        assert (holder.value, holder.owner) == (VALUE.decode(), "redis@127.0.0.1")
        assert await client.ask("SET", "a/b", "other", "NX", "EX", 30) is None
        assert await client.ask("SET", "a", "parent", "NX", "PX", 30_000) == "+OK"
        assert await client.ask("GET", "a/b") == VALUE
        assert await client.ask("MGET", "a/b", "none", "a") == [VALUE, None, b"parent"]
        assert await client.ask("EXISTS", "a", "a", "none") == 2
        assert await client.ask("HF.TOKEN", "a/b") == holder.token
        assert await client.ask("HF.TOKEN", "a/b", "other") is None
        assert 29_000 < await client.ask("PTTL", "a/b") <= 30_000
        assert await client.ask("PEXPIRE", "a/b", 5_000) == 1
        assert 4_000 < await client.ask("PTTL", "a/b") <= 5_000
        assert await client.ask("PEXPIRE", "a/b", 9_000, "LT") == 0
        assert await client.ask("DEL", "a/b", "none", "a") == 2
        assert served.holders == []


EXTEND = """
    local token = redis.call('get', KEYS[1])
    if not token or token ~= ARGV[1] then return 0 end
    local left = redis.call('pttl', KEYS[1])
    if not left then left = 0 end
    if left < 0 then return 0 end
    local ttl = ARGV[2]
    if ARGV[3] == "0" then ttl = ARGV[2] + left end
    redis.call('pexpire', KEYS[1], ttl)
    return 1
"""


async def test_each_extension_counts() -> None:
    """Those of several connections at one time add up, as each was told."""
    async with serving() as served, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(served.client()) for _ in range(5)]
        assert await clients[0].ask("SET", "k", VALUE, "NX", "PX", 10_000) == "+OK"
        served.node.answers.clear()
        for client in clients:
            client.send("EVAL", EXTEND, 1, "k", VALUE, 10_000, 0)
        await until(lambda: served.face.commands["EVAL"] == len(clients))
        served.node.answers.set()
        assert [await client.read() for client in clients] == [1] * 5
        assert 50_000 < await clients[0].ask("PTTL", "k") <= 60_000
        assert await clients[0].ask("EVAL", EXTEND, 1, "k", VALUE, 7_000, 1) == 1
        assert await clients[0].ask("PTTL", "k") <= 7_000
        assert await clients[0].ask("EVAL", EXTEND, 1, "k", "other", 7_000, 0) == 0
        refused = await clients[0].ask("EVAL", EXTEND, 1, "k", VALUE, 2**62, 0)
        assert refused.startswith("-ERR ttl-out-of-range: ")


async def test_databases_are_apart() -> None:
    """SELECT chooses another prefix."""
    async with serving() as served, served.client() as client:
        assert await client.ask("SET", "k", VALUE, "NX", "PX", 30_000) == "+OK"
        assert await client.ask("SELECT", 3) == "+OK"
        assert await client.ask("GET", "k") is None
        assert await client.ask("SELECT", 16) == "-ERR DB index is out of range"


async def test_only_the_holder_changes_its_lease() -> None:
    """EXPIRE on another connection is refused, and DEL there is a force, which the audit has."""
    async with serving() as served, served.client() as holder, served.client() as other:
        assert await holder.ask("SET", "k", VALUE, "NX", "PX", 30_000) == "+OK"
        assert (await other.ask("PEXPIRE", "k", 1_000)).startswith("-NOPERM this lock was not taken on")
        assert await other.ask("DEL", "k") == 1
        assert await holder.ask("PEXPIRE", "k", 1_000) == 0
        kinds = [event.kind.value for event in served.node.machine.audit("redis/0/k")]
        assert "forced" in kinds


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["SET", "k", "v", "NX", "EX", "90000"], "-ERR ttl-out-of-range: "),
        (["SET", "k", "v", "NX", "PX", "0"], "-ERR invalid expire time"),
        (["SET", "k", "v", "NX", "PX"], "-ERR syntax error"),
        (["SET", "k", "v", "NX", "PX", "x"], "-ERR value is not an integer"),
        (["SET", "k", "v", "PX", "1000", "KEEPTTL"], "-ERR syntax error"),
        (["SETEX", "k", "90000", "v"], "-ERR ttl-out-of-range: 90000000; must be 50 to 86400000 ms"),
        (["SET", "k", "v" * 4_097], "-ERR 4097 bytes for one key; at most 4096 are allowed"),
        (["SETNX", "k", "v"], "-ERR invalid-request: no_deadline: true: "),
        (["SET", "k" * 600, "v", "NX", "PX", "1000"], "-ERR name-too-long: "),
        (["GET"], "-ERR wrong number of arguments for 'get' command"),
        (
            ["SSUBSCRIBE", "k"],
            "-ERR unknown command 'SSUBSCRIBE': Holdfast is a lock service, and it has no ",
        ),
        (["EXEC", "x"], "-ERR wrong number of arguments for 'exec' command"),
        (["EXEC"], "-ERR EXEC without MULTI"),
        (["DISCARD"], "-ERR DISCARD without MULTI"),
        (["NOSUCH"], "-ERR unknown command 'NOSUCH': Holdfast is a lock service; see docs/faces.md"),
        (["hset", "k"], "-ERR unknown command 'HSET': Holdfast is a lock service, and it has no hashes: "),
        (["CLIENT", "KILL"], "-ERR CLIENT KILL is not supported by Holdfast"),
        (["EVAL", "return '", "0"], "-ERR "),
        (["EVAL_RO", "return 1", "-1"], "-ERR Number of keys can't be negative"),
        (["EVALSHA", "0" * 40, "0"], "-NOSCRIPT "),
        (["AUTH", "t"], "-ERR AUTH <password> called without any password configured"),
        (["HELLO", "4"], "-NOPROTO "),
    ],
)
async def test_what_is_not_supported_says_so(words: list[str], error: str) -> None:
    """Each refusal says what is wrong, and the connection goes on."""
    async with serving() as served, served.client() as client:
        assert (await client.ask(*words)).startswith(error)
        assert await client.ask("PING") == "+PONG"


async def test_commands_are_described_by_their_table() -> None:
    """COMMAND has a row for each, by which clients find keys."""
    async with serving() as served, served.client() as client:
        rows = await client.ask("COMMAND")
        assert len(rows) == await client.ask("COMMAND", "COUNT") == len(table.COMMANDS)
        assert [b"set", -3, [b"write", b"fast"], 1, 1, 1, [], [], [], []] in rows
        docs = await client.ask("COMMAND", "DOCS", "get", "nothing")
        assert docs[0] == b"get"


async def test_answers_have_the_order_of_the_commands() -> None:
    """Many commands may be sent at once."""
    async with serving() as served, served.client() as client:
        for number in range(500):
            client.send("ECHO", number)
        assert [await client.read() for _ in range(500)] == [b"%d" % number for number in range(500)]


async def test_others_have_their_turn() -> None:
    """Commands that are over at once do not keep the node to one connection, however many there are."""
    async with serving() as served, served.client() as client, served.client() as other:
        assert await other.ask("PING") == "+PONG"
        client.writer.write(b"PING\n" * 8_000)
        assert await other.ask("PING") == "+PONG"
        assert served.face.commands["PING"] < 4_000
        assert [await client.read() for _ in range(8_000)] == ["+PONG"] * 8_000


async def test_what_is_no_command_ends_the_connection() -> None:
    """With an error, and after the answers to what came before."""
    async with serving() as served, served.client() as client:
        client.send("PING")
        client.writer.write(b"*1\r\n$%d\r\n" % (COMMAND_BYTES_MAX + 1))
        assert await client.read() == "+PONG"
        assert (await client.read()).startswith("-ERR Protocol error: ")
        assert await client.is_over()


async def test_callers_have_to_say_who_they_are() -> None:
    """By a token, with or without the name of its principal; rights are those of the names."""
    tokens = token_line("billing", TOKEN, "acquire@redis/0/billing read@redis/0")
    tokens += token_line("ops", OTHER_TOKEN, "force,acquire,read")
    async with serving(tokens) as served, served.client() as client, served.client() as ops:
        assert (await client.ask("GET", "k")).startswith("-NOAUTH ")
        assert (await client.ask("HELLO", 2)).startswith("-NOAUTH ")
        assert (await client.ask("AUTH", "x" * 40)).startswith("-WRONGPASS ")
        assert (await client.ask("AUTH", "ops", TOKEN)).startswith("-WRONGPASS ")
        assert (await client.ask("GET", "k")).startswith("-NOAUTH ")
        assert await client.ask("AUTH", "billing", TOKEN) == "+OK"
        assert await client.ask("SET", "billing/a", VALUE, "NX", "PX", 30_000) == "+OK"
        assert (await client.ask("SET", "other", VALUE, "NX", "PX", 30_000)).startswith("-NOPERM forbidden")
        assert await ops.ask("AUTH", OTHER_TOKEN) == "+OK"
        assert await ops.ask("SET", "billing/b", VALUE, "NX", "PX", 30_000) == "+OK"
        assert (await client.ask("PEXPIRE", "none", 1_000)).startswith("-NOPERM forbidden: this needs the")
        refused = await client.ask("DEL", "billing/b")
        assert refused.startswith("-NOPERM forbidden: this needs the right force for 'redis/0/billing/b'")
        script = (
            "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
        )
        assert await client.ask("EVAL", script, 1, "billing/b", VALUE) == 0, "it belongs to another principal"
        assert await client.ask("EVAL", script, 1, "billing/a", VALUE) == 1
        assert await ops.ask("DEL", "billing/b") == 1
        assert {each.route for each in served.authentication.trace.newest(10).refusals} >= {
            "AUTH",
            "SET",
            "DEL",
        }


async def test_a_caller_has_a_rate_and_a_node_has_room() -> None:
    """Requests are counted as those over HTTP; a connection too many is told so and closed."""
    async with serving(rates=RequestRates(1), count_max=1) as served:
        async with served.client() as client:
            assert await client.ask("GET", "k") is None
            assert (await client.ask("GET", "k")).startswith("-TRYAGAIN too-many-requests: ")
        held = [asyncio.open_connection("127.0.0.1", served.port) for _ in range(60)]
        pairs = await asyncio.gather(*held)
        said = await asyncio.gather(*[asyncio.wait_for(pairs[-1][0].readline(), 5)])
        assert said == [b"-ERR max number of clients reached\r\n"]
        for _, writer in pairs:
            writer.close()


@pytest.mark.parametrize(
    ("command", "words", "count"),
    [
        ("DEL", ["a", "b", "c"], 3),
        ("MGET", ["a", "b", "c"], 3),
        ("BLPOP", ["a", "b", "c", 0.01], 3),
        ("MSET", ["a", 1, "b", 1, "c", 1], 3),
        ("MSETNX", ["a", 1, "b", 1, "c", 1], 3),
        ("RPUSH", ["a", 1, 2, 3], 1),
        ("DBSIZE", [], 1),
        ("KEYS", ["*"], 1),
        ("COMMAND", [], 1),
        ("CLIENT", ["LIST"], 1),
        ("CONFIG", ["GET", "*"], 1),
        ("INFO", [], 1),
        ("WAIT", [0, 0], 1),
        ("PING", [], 0),
        ("CLIENT", ["SETNAME", "n"], 0),
        ("SENTINEL", ["MASTERS"], 0),
    ],
)
async def test_each_key_is_a_request(command: str, words: list[str | int], count: int) -> None:
    """A command of many keys counts as much as many commands."""
    rates = RequestRates(10, now_s=lambda: 0.0)
    async with serving(rates=rates) as served, served.client() as client:
        await client.ask(command, *words)
        for _ in range(10 - count):
            assert await client.ask("GET", "other") is None
        assert (await client.ask("GET", "other")).startswith("-TRYAGAIN too-many-requests: ")


async def test_what_looks_at_much_counts_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page of keys, or of connections, is a request; it is answered, and the next one waits for it."""
    monkeypatch.setattr(scanning, "LIST_LIMIT_MAX", 2)
    monkeypatch.setattr(basic, "LIST_LIMIT_MAX", 2)
    keys = [word for number in range(5) for word in (f"k{number}", number)]
    for words, count in ((("KEYS", "*"), 3), (("DBSIZE",), 3), (("CLIENT", "LIST"), 2), (("FLUSHALL",), 18)):
        async with (
            serving(rates=RequestRates(30, now_s=lambda: 0.0)) as served,
            served.client() as client,
            served.client() as second,
            served.client() as third,
        ):
            assert [await second.ask("PING"), await third.ask("PING")] == ["+PONG", "+PONG"]
            assert await client.ask("MSET", *keys) == "+OK"
            await client.ask(*words)
            for _ in range(30 - 5 - count):
                assert await client.ask("EXISTS", "k0") in (0, 1)
            assert (await client.ask("EXISTS", "k0")).startswith("-TRYAGAIN too-many-requests: ")


async def test_a_transaction_of_nothing_is_a_request() -> None:
    """It asks the cluster as well; one with commands about keys counts as these do."""
    async with serving(rates=RequestRates(4, now_s=lambda: 0.0)) as served, served.client() as client:
        for words in (("PING",), ("SET", "k", "v"), ("EXISTS", "k")):
            assert await client.ask("MULTI") == "+OK"
            assert await client.ask(*words) == "+QUEUED"
            assert len(await client.ask("EXEC")) == 1
        assert [await client.ask("MULTI"), await client.ask("EXEC")] == ["+OK", []]
        assert await client.ask("MULTI") == "+OK"
        assert (await client.ask("EXEC")).startswith("-TRYAGAIN too-many-requests: ")


async def test_each_command_is_counted_once() -> None:
    """Also one that looked as if it could be begun at once, and one that is refused."""
    rates = RequestRates(10, now_s=lambda: 0.0)
    async with serving(rates=rates) as served, served.client() as client:
        assert await client.ask("SET", "k", "a string") == "+OK"
        for _ in range(4):
            assert await client.ask("SET", "k", VALUE, "NX", "PX", 30_000) is None
            assert (await client.ask("SET", "k" * 600, VALUE, "NX", "PX", 1)).startswith("-ERR ")
        assert await client.ask("GET", "k") == b"a string"
        assert (await client.ask("GET", "k")).startswith("-TRYAGAIN too-many-requests: ")


async def test_every_missing_command_says_what_to_do() -> None:
    """No command that is here is listed as missing, except for those that scripts lack."""
    here = {name.decode() for name in table.COMMANDS if missing.reason_of(name.decode())}
    assert {missing.reason_of(name) for name in here} == {"a script cannot call it"}
    assert here.isdisjoint(name.decode() for name in DATA), "what scripts can call"
    assert missing.reason_of("SWAPDB").endswith("its keys have names, which stay")


async def test_a_client_sees_the_connections_of_its_principal() -> None:
    """Those of this node, in the order in which they came; a connection that has ended is none."""
    tokens = token_line("billing", TOKEN, "read") + token_line("ops", OTHER_TOKEN, "read")
    async with serving(tokens) as served, served.client() as one, served.client() as ops:
        await ops.ask("AUTH", OTHER_TOKEN)
        await ops.ask("CLIENT", "SETNAME", "eve")
        await one.ask("AUTH", TOKEN)
        await one.ask("CLIENT", "SETNAME", "first")
        async with served.client() as two:
            await two.ask("AUTH", TOKEN)
            await two.ask("CLIENT", "SETNAME", "second")
            lines = (await one.ask("CLIENT", "LIST")).decode().splitlines()
            assert [line.split()[2] for line in lines] == ["name=first", "name=second"]
            await two.ask("SUBSCRIBE", "channel")
            listed = (await one.ask("CLIENT", "LIST")).decode().splitlines()
            assert [" sub=1 psub=0 " in line for line in listed] == [False, True]
            assert all(line.endswith(" user=billing") for line in lines)
        await until(lambda: served.face.clients_count == 2)
        assert (await one.ask("CLIENT", "LIST")).count(b"\n") == 1
        about = (await one.ask("INFO")).decode().splitlines()
        assert {"arch_bits:64", "cluster_enabled:0"} <= set(about), "what clients look for"
        figures = (await one.ask("INFO", "stats")).decode()
        assert "total_connections_received:3\r\n" in figures
        assert f"total_commands_processed:{served.face.commands.total()}\r\n" in figures


async def test_a_node_that_starts_says_so() -> None:
    """Connections may be set up, and what they ask for is to be tried again."""
    async with serving() as served, served.client() as client:
        served.starting = "50 % of the state is read"
        assert await client.ask("CLIENT", "SETINFO", "LIB-NAME", "redis-py") == "+OK"
        assert (await client.ask("GET", "k")).startswith("-LOADING Holdfast is loading: 50 %")


async def test_a_refused_exec_ends_its_transaction() -> None:
    """Else what comes behind it would be queued for ever, and QUEUED be taken for a lock."""
    async with serving() as served, served.client() as client:
        served.starting = "50 % of the state is read"
        assert await client.ask("MULTI") == "+OK"
        assert (await client.ask("SET", "k", VALUE, "NX", "PX", 30_000)).startswith("-LOADING ")
        assert (await client.ask("EXEC")).startswith("-LOADING ")
        served.starting = ""
        assert await client.ask("SET", "k", VALUE, "NX", "PX", 30_000) == "+OK"


async def test_a_transaction_lacks_no_command_of_a_caller_who_was_out() -> None:
    """A command that was refused because of who asked is one that EXEC would do without."""
    async with serving(token_line("billing", TOKEN, "acquire,read")) as served, served.client() as client:
        assert await client.ask("AUTH", TOKEN) == "+OK"
        assert await client.ask("MULTI") == "+OK"
        known, served.authentication.principals = (
            served.authentication.principals,
            KnownPrincipals(served.authentication.gateway, ()),
        )
        assert (await client.ask("SET", "first", "v")).startswith("-NOAUTH ")
        served.authentication.principals = known
        assert await client.ask("SET", "second", "v") == "+QUEUED"
        assert (await client.ask("EXEC")).startswith("-EXECABORT ")
        assert await client.ask("GET", "second") is None


async def test_no_leader_is_tried_again_and_an_unknown_outcome_ends_the_connection() -> None:
    """What was surely not applied is LOADING; else there is no answer that could be wrong."""
    async with serving() as served, served.client() as client:
        served.node.failure = NoLeader("no leader")
        assert await client.ask("SET", "k", VALUE, "NX", "PX", 30_000) == "-LOADING no-leader: no leader"
        served.node.failure = None
        served.node.lost = OutcomeUnknown("no outcome")
        client.send("SET", "k", VALUE, "NX", "PX", 30_000)
        assert await client.is_over()
        await until(lambda: not served.holders)


async def test_a_lost_answer_is_given_to_whoever_asks_again() -> None:
    """The same value on another connection gets the same hold, with a lease from then on."""
    async with serving() as served:
        async with leaving(served, VALUE):
            pass
        (token,) = served.holders
        async with served.client() as client:
            asked = asyncio.ensure_future(client.ask("SET", "k", VALUE, "NX", "PX", 60_000))
            served.node.answers.set()
            assert await asked == "+OK"
            assert served.holders == [token]
            assert await client.ask("PTTL", "k") > 50_000
            assert served.face.left.adopted_count == 1
            async with served.client() as another:
                assert await another.ask("SET", "k", VALUE, "NX", "PX", 60_000) is None, "it was answered now"


async def test_a_repetition_that_is_lost_as_well_leaves_the_lock_to_the_next_one() -> None:
    """It need not have heard what became of the first attempt: whoever asks third waits for the same."""
    async with serving() as served:
        async with leaving(served, VALUE):
            pass
        async with served.client() as second:
            second.send("SET", "k", VALUE, "NX", "PX", 60_000)
            await until(lambda: served.face.commands["SET"] == 2)
        await until(lambda: served.face.clients_count == 0)
        (token,) = served.holders
        async with served.client() as third:
            asked = asyncio.ensure_future(third.ask("SET", "k", VALUE, "NX", "PX", 60_000))
            await until(lambda: served.face.commands["SET"] == 3)
            served.node.answers.set()
            assert await asked == "+OK"
            assert served.holders == [token]


async def test_what_was_left_is_given_back_although_another_attempt_has_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second attempt waits for what the first one left, finds nothing, and makes an attempt of its own.

    Meanwhile a third one took the lock and left: only that one's own end can give it back.
    """
    monkeypatch.setattr(left_grants, "ADOPTION_S", 0.0)
    given: list[str] = []
    grants = left_grants.LeftGrants()
    key = left_grants.Key("", "redis/0/k", VALUE.decode(), is_endless=False)

    def attempt(name: str) -> left_grants.Attempt:
        async def give_back() -> None:
            given.append(name)

        return grants.begin(key, VALUE, HoldId(name), give_back)

    third = attempt("third")
    third.settle(is_granted=True)
    third.leave()
    second = attempt("second")
    second.settle(is_granted=False)
    second.answered()
    await until(lambda: given == ["third"])


@pytest.mark.parametrize("value", [VALUE, b"1"])
async def test_a_lost_answer_that_nobody_asks_for_is_given_back(
    monkeypatch: pytest.MonkeyPatch, value: bytes
) -> None:
    """No lock stays with a client that does not know of it. A short value proves nothing: at once."""
    monkeypatch.setattr(left_grants, "ADOPTION_S", 0.0 if value == VALUE else 3_600.0)
    async with serving() as served:
        async with leaving(served, value):
            pass
        served.node.answers.set()
        await until(lambda: not served.holders)
        assert served.face.left.given_back_count == 1


async def test_another_value_is_another_client() -> None:
    """It gets nothing as long as the hold is there."""
    async with serving() as served:
        async with leaving(served, VALUE):
            pass
        served.node.answers.set()
        async with served.client() as client:
            assert await client.ask("SET", "k", b"x" * 16, "NX", "PX", 60_000) is None
            assert await client.ask("SET", "k", VALUE, "NX", "PX", 60_000) == "+OK"


async def test_a_lease_is_not_given_for_a_lock_without_a_deadline() -> None:
    """Whoever asks without a time believes that the lock never ends, so it gets no lease that was left."""
    async with serving() as served:
        async with leaving(served, VALUE):
            pass
        served.node.answers.set()
        async with served.client() as client:
            assert (await client.ask("SET", "k", VALUE, "NX")).startswith("-ERR invalid-request: ")
            assert await client.ask("SET", "k", VALUE, "NX", "PX", 30_000) == "+OK"


@contextlib.asynccontextmanager
async def leaving(served: Served, value: bytes) -> AsyncIterator[None]:
    """Let a client ask for a lock that is granted, and leave before the node can write the answer."""
    served.node.answers.clear()
    async with served.client() as client:
        client.send("SET", "k", value, "NX", "PX", 30_000)
        await until(lambda: bool(served.holders))
        yield
    await until(lambda: served.face.clients_count == 0)


async def test_a_node_that_stops_answers_what_has_begun() -> None:
    """And closes all connections, those that are quiet at once."""
    async with serving() as served, served.client() as quiet, served.client() as busy:
        assert await quiet.ask("PING") == "+PONG"
        served.node.answers.clear()
        busy.send("SET", "k", VALUE, "NX", "PX", 30_000)
        await until(lambda: bool(served.holders))
        stopping = asyncio.ensure_future(served.redis.stop(5.0))
        assert await quiet.is_over()
        served.node.answers.set()
        assert await busy.read() == "+OK"
        assert await busy.is_over()
        await stopping
        assert served.face.clients_count == 0


async def test_so_much_is_given_back_at_one_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While nothing can be given back, clients cannot pile that up: what is too much ends with its lease."""
    monkeypatch.setattr(left_grants, "COUNT_MAX", 2)
    may_go_on, given = asyncio.Event(), 0

    async def give_back() -> None:
        nonlocal given
        await may_go_on.wait()
        given += 1

    grants = left_grants.LeftGrants()
    for number in range(3):
        grants.run(give_back, f"redis/0/{number}")
    assert "event=redis-not-given-back name='redis/0/2'" in caplog.text
    may_go_on.set()
    await until(lambda: given == grants.given_back_count == 2)


async def test_what_one_caller_took_is_not_anothers_on_the_same_connection() -> None:
    """Who has the right force ends it by force, as on any connection; who has not is told so."""
    tokens = token_line("billing", TOKEN, "acquire,read")
    tokens += token_line("ops", OTHER_TOKEN, "force,acquire,read") + token_line("web", WEB, "acquire,read")
    async with serving(tokens) as served, served.client() as client:
        assert await client.ask("AUTH", TOKEN) == "+OK"
        assert await client.ask("SET", "k", VALUE, "NX", "PX", 30_000) == "+OK"
        assert await client.ask("AUTH", WEB) == "+OK"
        assert (await client.ask("DEL", "k")).startswith("-NOPERM forbidden: this needs the right force")
        assert (await client.ask("PEXPIRE", "k", 60_000)).startswith("-NOPERM ")
        assert await client.ask("AUTH", OTHER_TOKEN) == "+OK"
        assert await client.ask("DEL", "k") == 1
        assert not served.holders


async def test_who_is_out_goes_on_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of many steps ends at the first one behind the end of its token."""
    monkeypatch.setattr(data_handlers, "_DELETED_COUNT", 1)
    async with serving(token_line("ops", TOKEN, "force,acquire,read")) as served, served.client() as client:
        assert await client.ask("AUTH", TOKEN) == "+OK"
        for key in "abc":
            assert await client.ask("SET", key, "v") == "+OK"
        submit = served.node.submit

        async def last(*args: Any) -> LocalAnswer:
            served.authentication.principals = KnownPrincipals(served.authentication.gateway, ())
            return await submit(*args)

        monkeypatch.setattr(served.node, "submit", last)
        assert (await client.ask("FLUSHDB")).startswith("-NOAUTH ")
        assert len(served.node.machine.state.cells) == 2
