"""Scripts that run on a node: one step each, with the caller's rights, alone and in transactions."""

import asyncio
import contextlib
import time
from typing import Final

import pytest

from http_api.server.request_rates import RequestRates
from redis_api.lua import sandbox
from redis_api.shared.script_pace import ScriptPace
from tests.unit.http_api.serving import token_line
from tests.unit.redis_api.test_server import TOKEN, VALUE, serving

pytest.importorskip("lupa.lua51", reason="needs lupa, the extra redis-lua of the node")

LIMIT: Final = """
local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
if count > tonumber(ARGV[1]) then return 0 end
return 1
"""
SWAP: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('GET', KEYS[2]) == ARGV[2] then
    redis.call('SET', KEYS[1], ARGV[2])
    redis.call('SET', KEYS[2], ARGV[1])
    return redis.status_reply('SWAPPED')
end
return redis.error_reply('CHANGED by somebody else')
"""
RELEASE: Final = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
)
ENDLESS: Final = "redis.call('SET', KEYS[1], 'changed') while true do end"


class TimedPace(ScriptPace):
    """Keeps what scripts have taken."""

    took_s = 0.0

    def took(self, seconds: float) -> None:
        """Count."""
        self.took_s += seconds
        super().took(seconds)


async def test_a_script_that_counts() -> None:
    """Each call counts once, whoever else calls at the same time."""
    async with serving() as served, served.client() as one, served.client() as two:
        assert await one.ask("EVAL", LIMIT, 1, "calls", 5, 60_000) == 1
        for _ in range(5):
            one.send("EVAL", LIMIT, 1, "calls", 5, 60_000)
            two.send("EVAL", LIMIT, 1, "calls", 5, 60_000)
        found = [await client.read() for client in (one, two) for _ in range(5)]
        assert (sum(found), len(found)) == (4, 10)
        assert await one.ask("GET", "calls") == b"11"
        assert 0 < await one.ask("PTTL", "calls") <= 60_000


async def test_a_script_about_two_keys() -> None:
    """It sees both, and changes both or none."""
    async with serving() as served, served.client() as client:
        await client.ask("MSET", "a", "1", "b", "2")
        assert await client.ask("EVAL", SWAP, 2, "a", "b", "1", "2") == "+SWAPPED"
        assert await client.ask("MGET", "a", "b") == [b"2", b"1"]
        assert await client.ask("EVAL", SWAP, 2, "a", "b", "1", "2") == "-CHANGED by somebody else"
        assert await client.ask("MGET", "a", "b") == [b"2", b"1"]


async def test_a_script_that_takes_and_gives_back_a_lock() -> None:
    """The lock is a hold, and a value that the client sent is proof that it is its own."""
    take = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0"
    give = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) return 'gone' end"
    async with serving() as served, served.client() as one, served.client() as two:
        assert await one.ask("EVAL", take, 1, "k", "mine", 30_000) == 1
        assert len(served.holders) == 1
        assert await two.ask("EVAL", take, 1, "k", "other", 30_000) == 0
        assert await two.ask("EVAL", give, 1, "k", "other") is None
        assert await two.ask("EVAL", give, 1, "k", "mine") == b"gone"
        assert served.holders == []


async def test_a_script_that_gives_a_lock_its_time_after_taking_it() -> None:
    """SETNX and EXPIRE of one lock or several, as sherlock and walrus do: takes with a lease."""
    one = """
        if redis.call('SETNX', KEYS[1], ARGV[1]) == 0 then return 0 end
        redis.call('EXPIRE', KEYS[1], ARGV[2])
        return 1
    """
    several = """
        local pairs_of = {}
        for _, key in ipairs(KEYS) do table.insert(pairs_of, key) table.insert(pairs_of, ARGV[1]) end
        if redis.call('MSETNX', unpack(pairs_of)) == 0 then return 0 end
        for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, ARGV[2]) end
        return 1
    """
    async with serving() as served, served.client() as client, served.client() as other:
        assert await client.ask("EVAL", one, 1, "a", VALUE, 30) == 1
        assert await other.ask("EVAL", several, 2, "b", "a", "another value", 30) == 0
        assert await other.ask("EVAL", several, 2, "b", "c", "another value", 30) == 1
        assert await client.ask("EVAL", one, 1, "c", VALUE, 30) == 0
        assert len(served.holders) == 3
        for key in "abc":
            assert 20_000 < await client.ask("PTTL", key) <= 30_000
            assert isinstance(await client.ask("HF.TOKEN", key), int)


async def test_scripts_are_known_by_their_hash() -> None:
    """SCRIPT LOAD compiles, EVALSHA runs, and what was flushed is loaded again."""
    async with serving() as served, served.client() as client:
        digest = await client.ask("SCRIPT", "LOAD", "return {KEYS[1], ARGV[1]}")
        assert await client.ask("EVALSHA", digest.upper(), 1, "k", "v") == [b"k", b"v"]
        assert await client.ask("EVALSHA_RO", digest, 1, "k", "v") == [b"k", b"v"]
        refused = await client.ask("SCRIPT", "LOAD", "return return")
        assert refused.startswith(
            "-ERR Error compiling script (new function): user_script:1: unexpected symbol"
        )
        await client.ask("SCRIPT", "FLUSH")
        assert await client.ask("SCRIPT", "EXISTS", digest) == [0]
        assert (await client.ask("EVALSHA", digest, 0)).startswith("-NOSCRIPT ")


async def test_programs_have_room_for_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that was loaded first gives way to others."""
    monkeypatch.setattr("redis_api.lua.scripts.SCRIPTS_BYTES_MAX", 100)
    async with serving() as served, served.client() as client:
        first = await client.ask("SCRIPT", "LOAD", f"return '{'a' * 50}'")
        second = await client.ask("SCRIPT", "LOAD", f"return '{'b' * 50}'")
        assert await client.ask("SCRIPT", "EXISTS", first, second) == [0, 1]


READ_ONLY: Final = "-ERR Write commands are not allowed from read-only scripts."
NOT_ALLOWED: Final = "-ERR This Redis command is not allowed from script"


@pytest.mark.parametrize(
    ("source", "reply"),
    [
        ("#!lua flags=no-writes,allow-stale\nreturn redis.call('GET', 'k') or 'none'", b"none"),
        ("#!lua\nreturn redis.call('SET', 'k', 'v')", "+OK"),
        ("#!lua flags=no-writes\nlocal r = redis.call('SET', 'k', 'v')", READ_ONLY),
        ("#!lua flags=sideways\nreturn 1", "-ERR Unexpected flag in script shebang: sideways"),
        ("#!lua name=x\nreturn 1", "-ERR Unknown lua shebang option: name=x"),
        ("#!js\nreturn 1", "-ERR Unexpected engine in script shebang: #!js"),
        ("#!lua", "-ERR Invalid script shebang"),
        ("#!lua\nlocal r = x", "-ERR user_script:2: Script attempted to access nonexistent"),
        ("local r = redis.call('BLPOP', 'l', 0)", NOT_ALLOWED),
        ("local r = redis.call('SELECT', 1)", NOT_ALLOWED),
        ("local r = redis.call('EVAL', '', 0)", NOT_ALLOWED),
        ("local r = redis.call('GET')", "-ERR Wrong number of args calling Redis command from script"),
        ("local r = redis.call('ZADD', 'z', 1, 'a')", "-ERR unknown command 'ZADD': Holdfast is a"),
        ("return redis.call('PING')", "+PONG"),
        ("return #redis.call('TIME')[1]", 10),
        ("return redis.call('LPUSH', 'l', 'a', 'b') .. redis.call('RPOP', 'l')", b"2a"),
    ],
)
async def test_what_scripts_may_do(source: str, reply: object) -> None:
    """What a script may not do is said as Redis says it."""
    async with serving() as served, served.client() as client:
        found = await client.ask("EVAL", source, 0)
        assert found == reply or (isinstance(found, str) and found.startswith(str(reply)))


async def test_eval_ro_changes_nothing() -> None:
    """Neither by a script that is known nor by one that is not."""
    known = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
    async with serving() as served, served.client() as client:
        await client.ask("SET", "k", "v")
        for source in (known, "local r = redis.call('DEL', KEYS[1])"):
            assert (await client.ask("EVAL_RO", source, 1, "k", "v")).startswith(READ_ONLY)
        assert await client.ask("EVAL_RO", "return redis.call('GET', KEYS[1])", 1, "k") == b"v"


async def test_a_script_that_takes_too_long_changes_nothing() -> None:
    """Neither alone nor in a transaction, all of which is refused."""
    async with serving() as served, served.client() as client:
        refused = await client.ask("EVAL", ENDLESS, 1, "k")
        assert refused.startswith("-BUSY the script took more than 50 ms")
        assert await client.ask("GET", "k") is None
        await client.ask("MULTI")
        for words in (("SET", "k", "before"), ("EVAL", ENDLESS, 1, "k"), ("EVAL", LIMIT, 1, "n", 5, 60_000)):
            assert await client.ask(*words) == "+QUEUED"
        assert (await client.ask("EXEC")).startswith("-BUSY the script took more than 50 ms")
        assert await client.ask("MGET", "k", "n") == [None, None]


async def test_the_scripts_of_a_transaction_share_their_time() -> None:
    """A thousand of them, each of which may run, do not keep a node from all else for a thousand times."""
    half = "for i = 1, 300000 do end redis.call('SET', KEYS[1], 'changed') return 1"
    async with serving() as served, served.client() as client:
        assert await client.ask("EVAL", half, 1, "k") == 1
        await client.ask("DEL", "k")
        await client.ask("MULTI")
        for _ in range(200):
            client.send("EVAL", half, 1, "k")
        for _ in range(200):
            assert await client.read() == "+QUEUED"
        began_s = time.process_time()
        assert (await client.ask("EXEC")).startswith("-BUSY ")
        assert time.process_time() - began_s < 10 * sandbox.SECONDS_MAX
        assert await client.ask("GET", "k") is None


async def test_a_script_has_the_rights_of_its_caller() -> None:
    """For each key that it names, also one that is not among KEYS."""
    tokens = token_line("billing", TOKEN, "acquire,read@redis/0/billing")
    async with serving(tokens) as served, served.client() as client:
        await client.ask("AUTH", TOKEN)
        assert await client.ask("EVAL", "return redis.call('SET', 'billing/a', '1')", 0) == "+OK"
        refused = await client.ask("EVAL", "return redis.call('GET', 'other/a')", 1, "billing/a")
        assert refused.startswith("-NOPERM forbidden: ")
        kept = "return {redis.pcall('SET', 'other/a', 1).err:sub(1, 6), redis.call('GET', 'billing/a')}"
        assert await client.ask("EVAL", kept, 0) == [b"NOPERM", b"1"]


async def test_a_node_without_lua_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts of lock clients work all the same."""
    monkeypatch.setattr(sandbox, "is_installed", lambda: False)
    async with serving() as served, served.client() as client:
        refused = await client.ask("EVAL", "return 1", 0)
        assert refused.startswith("-ERR unknown script: this node runs no Lua")
        assert "pip install 'holdfast-node[redis-lua]'" in refused
        known = (
            "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
        )
        await client.ask("SET", "k", "v", "NX", "PX", 30_000)
        assert await client.ask("EVAL", known, 1, "k", "v") == 1


async def test_others_are_served_between_two_scripts() -> None:
    """A client whose scripts all take too long does not keep others out for longer than one of them."""
    async with serving() as served, served.client() as bad, served.client() as good:
        for _ in range(5):
            bad.send("EVAL", ENDLESS, 1, "k")
        asked = asyncio.ensure_future(good.ask("PING"))
        assert (await bad.read()).startswith("-BUSY ")
        assert await asked == "+PONG"
        assert not bad.reader.at_eof()


async def test_scripts_have_a_part_of_the_time_of_a_node() -> None:
    """Many clients with slow ones wait for each other; what runs no script does not."""
    async with serving() as served, served.client() as client:
        served.face.request_timeout_s = 0.1
        assert await client.ask("EVAL", "return 1", 0) == 1
        served.face.pace.took(60.0)
        for command in ("EVAL", "EVAL_RO"):
            said = await client.ask(command, "return 1", 0)
            assert said.startswith("-BUSY this node runs scripts all the time")
        assert await client.ask("MULTI") == "+OK"
        assert await client.ask("EVAL", "return 1", 0) == "+QUEUED"
        assert (await client.ask("EXEC")).startswith("-BUSY ")
        assert await client.ask("MULTI") == "+OK"
        assert await client.ask("SET", "k", "v") == "+QUEUED"
        assert await client.ask("EXEC") == ["+OK"]


async def test_scripts_are_compiled_in_that_time() -> None:
    """What is new waits, and those of known lock clients do not; what a load took counts."""
    async with serving() as served, served.client() as client:
        served.face.request_timeout_s = 0.1
        served.face.pace.took(60.0)
        for words in (("SCRIPT", "LOAD", "return 1"), ("EVAL", "return 1", 1, "k", VALUE)):
            assert (await client.ask(*words)).startswith("-BUSY this node runs scripts all the time")
        assert await client.ask("EVAL", RELEASE, 1, "k", VALUE) == 0
        assert len(await client.ask("SCRIPT", "LOAD", RELEASE)) == 40
    async with serving() as served, served.client() as client:
        served.face.pace = pace = TimedPace()
        await client.ask("SCRIPT", "LOAD", "return 1")
        assert pace.took_s > 0


async def test_a_transaction_compiles_in_the_time_of_its_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a text that is not Lua takes time to read."""
    monkeypatch.setattr(sandbox, "SECONDS_MAX", 0.002)
    async with serving() as served, served.client() as client:
        assert await client.ask("MULTI") == "+OK"
        for number in range(100):
            assert await client.ask("EVAL", f"no script {number}", 0) == "+QUEUED"
        assert (await client.ask("EXEC")).startswith("-BUSY the script took more than")


async def test_a_loaded_script_is_a_request() -> None:
    """As are a look at what is known, and to forget it."""
    for words in (("LOAD", "return 1"), ("EXISTS", "0" * 40), ("FLUSH",)):
        async with serving(rates=RequestRates(1, now_s=lambda: 0.0)) as served, served.client() as client:
            assert not str(await client.ask("SCRIPT", *words)).startswith("-")
            assert (await client.ask("SCRIPT", *words)).startswith("-TRYAGAIN too-many-requests: ")


async def test_slow_scripts_of_many_clients_come_one_by_one() -> None:
    """Behind each the node rests for as long, so it does all else in time."""
    async with serving() as served, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(served.client()) for _ in range(4)]
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        for client in clients:
            client.send("EVAL", ENDLESS, 1, "k")
        said = await asyncio.gather(*[client.read() for client in clients])
        assert all(reply.startswith("-BUSY the script took more than 50 ms") for reply in said)
        assert time.monotonic() - began_s > 1.2 * (time.process_time() - began_cpu_s)


async def test_scripts_are_answered_as_random_programs_found() -> None:
    """No list is false, an error of one word has a code, and a first line says what a script may."""
    async with serving() as served, served.client() as client:
        assert await client.ask("EVAL", "return type(redis.call('LPOP', KEYS[1], 2))", 1, "l") == b"boolean"
        assert await client.ask("EVAL", "return redis.error_reply('word')", 0) == "-ERR word"
        assert await client.ask("EVAL", "return redis.error_reply('-WORD more')", 0) == "-WORD more"
        refused = await client.ask("EVAL_RO", "#!lua\nreturn 1", 0)
        assert refused == "-ERR Can not execute a script with write flag using *_ro command."
        assert await client.ask("EVAL_RO", "#!lua flags=no-writes\nreturn 1", 0) == 1
        assert await client.ask("EVAL_RO", "return 1", 0) == 1
