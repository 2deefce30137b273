"""Scripts of clients of Redis on three nodes: answered as by a real Redis, or a listed difference."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest
import redis

from scripts.lib import ports
from tests.process.redis_nodes import RedisCluster
from tests.process.test_redis_differences import answer
from tests.support import servers

pytestmark = pytest.mark.process
pytest.importorskip("lupa.lua51", reason="needs lupa, the extra redis-lua of the node")

LIMIT: Final = """
local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
if count > tonumber(ARGV[1]) then return 0 end
return count
"""
SWAP: Final = """
local one, two = redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])
if one ~= ARGV[1] or two ~= ARGV[2] then return redis.error_reply('CHANGED by somebody else') end
redis.call('MSET', KEYS[1], two, KEYS[2], one)
return {one, two}
"""
BUCKET: Final = """
local now = redis.call('TIME')
local state = cjson.decode(redis.call('GET', KEYS[1]) or '{"tokens": 3, "at": 0}')
if state.tokens < 1 then return {0, state.tokens} end
state.tokens, state.at = state.tokens - 1, tonumber(now[1])
redis.call('SET', KEYS[1], cjson.encode(state), 'PX', 60000)
return {1, state.tokens}
"""
SEMAPHORE: Final = """
redis.call('zremrangebyscore', KEYS[1], '-inf', ARGV[1])
if redis.call('zcard', KEYS[1]) < tonumber(ARGV[2]) then redis.call('zadd', KEYS[1], ARGV[3], ARGV[4]) end
"""
SCRIPTS: Final[tuple[tuple[Any, ...], ...]] = (
    # the script, its keys, then its arguments
    ("return 1",),
    ("return {1, 2.9, 'x', true, false, {3, {4}}, nil, 5}",),
    ("return {ok = 'FINE'}",),
    ("return {err = 'MY fault'}",),
    ("return redis.error_reply('-MY fault')",),
    ("return redis.status_reply('FINE')",),
    ("return {redis.error_reply(), redis.status_reply(1)}",),
    ("return 1e300",),
    ("return -0.9",),
    ("return {double = 3.25}",),
    ("return {KEYS[1], KEYS[2], ARGV[1], #KEYS, #ARGV}", ("a", "b"), "c", "d"),
    ("return x",),
    ("x = 1",),
    ("KEYS = nil",),
    ("string.x = 1",),
    ("rawset(_G, 'x', 1)",),
    ("error('x')",),
    ("error({err = 'MY x'})",),
    ("error()",),
    ("foo bar",),
    ("return '",),
    ("local ok, why = pcall(error, 'x') return {tostring(ok), why}",),
    ("local ok, why = pcall(redis.call, 'GET') return {tostring(ok), type(why)}",),
    ("return {xpcall(error, function(e) return 'seen ' .. tostring(e) end)}",),
    ("local r = redis.pcall('GET') return r.err",),
    ("return redis.call('SET', KEYS[1], ARGV[1])", ("a",), "v"),
    ("return redis.call('SET', KEYS[1], 1.5)", ("a",)),
    ("return redis.call('GET', KEYS[1])", ("a",)),
    ("return redis.call('GET', KEYS[1])", ("none",)),
    ("return type(redis.call('GET', KEYS[1]))", ("none",)),
    ("redis.setresp(3) return type(redis.call('GET', KEYS[1]))", ("none",)),
    ("return redis.call('SET', KEYS[1], 'v').ok", ("a",)),
    ("return redis.call('MGET', KEYS[1], KEYS[2], KEYS[1])", ("a", "none")),
    ("return {redis.call('INCR', KEYS[1]), redis.call('INCRBY', KEYS[1], 10)}", ("n",)),
    ("redis.call('RPUSH', KEYS[1], 'a', 'b', 'c') return redis.call('LRANGE', KEYS[1], 0, -1)", ("l",)),
    ("local r = redis.call('GET', KEYS[1])", ("l",)),
    ("return {redis.call('EXISTS', KEYS[1], KEYS[2]), redis.call('DEL', KEYS[1])}", ("l", "none")),
    ("return redis.call('TYPE', KEYS[1])", ("n",)),
    ("return redis.call('GETDEL', KEYS[1])", ("n",)),
    ("redis.call('SET', KEYS[1], 'v', 'PX', 60000) return redis.call('PTTL', KEYS[1]) > 50000", ("t",)),
    ("redis.call('SET', KEYS[1], 'kept') error('late')", ("kept",)),
    ("return redis.call('GET', KEYS[1])", ("kept",)),
    ("local r = redis.call()",),
    ("local r = redis.call({})",),
    ("local r = redis.call('GET')",),
    ("local r = redis.call('MULTI')",),
    ("local r = redis.call('BLPOP', 'l', 0)",),
    ("return redis.sha1hex('x')",),
    ("local r = redis.sha1hex()",),
    ("return redis.log(redis.LOG_DEBUG, 'x')",),
    ("redis.log('x')",),
    ("return redis.replicate_commands()",),
    ("local r = redis.setresp(4)",),
    ("return cjson.encode({1, 'a/b', {x = {}}, cjson.null, true})",),
    ("return cjson.encode({[1] = 1, [3] = 3})",),
    ('return cjson.decode(\'{"a": [1, 2, {"b": "\\\\u00e9"}]}\').a[3].b',),
    ("local r = cjson.decode('[1,')",),
    ("local r = cjson.encode(tostring)",),
    ("return {cmsgpack.unpack(cmsgpack.pack(1, -1, 'x', 2^40, {1, 2, {a = 0.5}}, true, nil))}",),
    ("return cmsgpack.pack({1, 2, 'x'}, -5, 300, 70000, 1.5, 0.1)",),
    ("return {bit.band(255, 15), bit.tohex(255, -4), bit.bnot(0), bit.arshift(-8, 1), bit.rol(1, 33)}",),
    ("return string.format('%q %5.1f %d', 'a\"b', 2.25, 7) .. tostring(1e15) .. tostring(0.1)",),
    ("local t = {} for w in ('a,b,,c'):gmatch('[^,]*') do t[#t + 1] = w end return t",),
    ("return {('k:12'):match('^(%a+):(%d+)$')}",),
    ("local t = {3, 1, 2} table.sort(t, function(a, b) return a > b end) return table.concat(t, ',')",),
    ("return {unpack({1, 2, 3}, 2)}",),
    ("return tostring(tonumber('0x10')) .. tostring(tonumber('zz', 36)) .. tostring(tonumber('x'))",),
    (LIMIT, ("limit",), 2, 60_000),
    (LIMIT, ("limit",), 2, 60_000),
    (LIMIT, ("limit",), 2, 60_000),
    (SWAP, ("s1", "s2"), "1", "2"),
    ("return redis.call('MSET', KEYS[1], '1', KEYS[2], '2')", ("s1", "s2")),
    (SWAP, ("s1", "s2"), "1", "2"),
    (BUCKET, ("bucket",)),
    (BUCKET, ("bucket",)),
    (BUCKET, ("bucket",)),
    (BUCKET, ("bucket",)),
    ("#!lua flags=no-writes\nreturn redis.call('GET', KEYS[1])", ("a",)),
    ("#!lua flags=no-writes\nlocal r = redis.call('SET', KEYS[1], 'v')", ("a",)),
    ("#!lua flags=sideways\nreturn 1",),
    ("#!lux\nreturn 1",),
    ("#!lua",),
)
"""In this order, on keys that are free before the first one."""


def words_of(script: tuple[Any, ...], command: str = "EVAL") -> tuple[Any, ...]:
    """Return a script of the list as a command."""
    source, keys, *args = (*script, ()) if len(script) == 1 else script
    return (command, source, len(keys), *keys, *args)


def same(found: Any, expected: Any) -> bool:
    """Whether two answers are the same; an error is what it says."""
    return repr(found) == repr(expected) and str(found) == str(expected)


def test_scripts_are_answered_alike(nodes: RedisCluster) -> None:
    """Alone and in a transaction; errors down to the line of the script."""
    with (
        servers.redis_server() as server,
        nodes.client("n2", single_connection_client=True, protocol=2) as ours,
        redis.Redis.from_url(server.url, single_connection_client=True, protocol=2) as theirs,
    ):
        for script in SCRIPTS:
            words = words_of(script)
            found, expected = answer(ours, words), answer(theirs, words)
            assert same(found, expected), f"{words}\nours: {found!r}\nRedis: {expected!r}"
        for client in (ours, theirs):
            answer(client, ("SELECT", 1))
            answer(client, ("MULTI",))
            for script in SCRIPTS:
                answer(client, words_of(script))
        for script, found, expected in zip(
            SCRIPTS, answer(ours, ("EXEC",)), answer(theirs, ("EXEC",)), strict=True
        ):
            assert same(found, expected), script
    print("scripts answered alike, alone and in a transaction:", len(SCRIPTS))


@pytest.mark.parametrize(
    ("script", "ours", "theirs"),
    [
        ((SEMAPHORE, ("z",), 1, 2, 3, "me"), "unknown command 'ZREMRANGEBYSCORE'", None),
        (("return type(coroutine)",), "user_script:1: Script attempted to access nonexistent", b"table"),
        (("return type(struct)",), "user_script:1: Script attempted to access nonexistent", b"table"),
        (("return type(loadstring)",), "user_script:1: Script attempted to access nonexistent", b"function"),
        (("return cjson.encode_max_depth and 1",), None, 1),
        (("return getmetatable('') and 1",), None, 1),
        (("return #string.rep('x', 600000)",), "user_script:1: resulting string too large", 600_000),
        (("return (('a'):rep(300)):find('.-.-b')",), "user_script: pattern too complex", None),
        (("return redis.call('SELECT', 1)",), "This Redis command is not allowed from script", b"OK"),
        (("return redis.call('KEYS', '*')",), "unknown command 'KEYS'", []),
        (("for i = 1, 1e7 do local x = i end return 1",), "BUSY the script took more than 50 ms", 1),
    ],
)  # fmt: skip
def test_the_differences_are_these(
    nodes: RedisCluster, script: tuple[Any, ...], ours: Any, theirs: Any
) -> None:
    """What docs/faces.md lists is so."""
    with (
        servers.redis_server() as server,
        nodes.client("n2", single_connection_client=True, protocol=2) as one,
        redis.Redis.from_url(server.url, single_connection_client=True, protocol=2) as two,
    ):
        for client, expected in ((one, ours), (two, theirs)):
            found = answer(client, words_of(script))
            is_error = isinstance(expected, str)
            assert str(found).startswith(f"ResponseError: {expected}") if is_error else found == expected


def test_a_limit_is_kept_through_all_nodes(nodes: RedisCluster) -> None:
    """Sixty calls through three nodes at the same time: exactly ten are allowed, each with its number."""

    def ask(number: int) -> int:
        with nodes.client(f"n{number % 3 + 1}") as client:
            done = client.eval(LIMIT, 1, "calls", 10, 60_000)
            assert isinstance(done, int)
            return done

    with ThreadPoolExecutor(6) as pool:
        found = sorted(pool.map(ask, range(60)))
    assert found == [0] * 50 + list(range(1, 11))
    with nodes.client("n1") as client:
        assert client.get("calls") == b"60"


def test_the_reset_of_python_redis_lock(nodes: RedisCluster) -> None:
    """The lock is gone, and its list has the signal for one that waits. All at a time are not."""
    redis_lock = pytest.importorskip(
        "redis_lock", reason="needs python-redis-lock: scripts/test --all installs it"
    )
    with nodes.client("n1") as one, nodes.client("n2") as two:
        held = redis_lock.Lock(one, "reset", expire=20)
        assert held.acquire(blocking=False)
        held.reset()
        assert one.exists("lock:reset") == 0
        assert one.lpop("lock-signal:reset") == b"1"
        assert redis_lock.Lock(two, "reset", expire=20).acquire(blocking=False)
        with pytest.raises(redis.ResponseError, match="a script cannot call it"):
            redis_lock.reset_all(two)


def test_a_structure_of_pottery(nodes: RedisCluster) -> None:
    """Its next id is a script that no table knows: a number that never comes twice."""
    pottery = pytest.importorskip("pottery", reason="needs pottery: scripts/test --all installs it")
    with nodes.client("n2") as one, nodes.client("n3") as two:
        first = pottery.NextID(key="tickets", masters={one})
        second = pottery.NextID(key="tickets", masters={two})
        assert [next(first), next(second), next(first)] == [1, 2, 3]


def test_the_lock_of_sherlock(nodes: RedisCluster) -> None:
    """Taken, waited for, renewed, given back, and lost when its time is over."""
    sherlock = pytest.importorskip("sherlock", reason="needs sherlock: scripts/test --all installs it")
    with nodes.client("n1") as one, nodes.client("n2") as two, ThreadPoolExecutor(1) as pool:
        held = sherlock.RedisLock("sherlock", client=one, expire=20, timeout=60)
        other = sherlock.RedisLock("sherlock", client=two, expire=1, timeout=60, retry_interval=0.01)
        assert held.acquire()
        assert not other.acquire(blocking=False)
        assert held.renew()
        waiting = pool.submit(other.acquire)
        held.release()
        assert waiting.result()
        assert held.acquire()  # as soon as the second that the other one has is over
        assert not other.renew()
        with pytest.raises(sherlock.LockException, match="not acquired by this instance"):
            other.release()
        assert other.locked()


def test_the_lock_of_walrus(nodes: RedisCluster) -> None:
    """Taken, waited for until a release on another node says so, and given back."""
    walrus = pytest.importorskip("walrus", reason="needs walrus: scripts/test --all installs it")
    one, two = (walrus.Database(host=ports.HOST, port=nodes.port(node_id)) for node_id in ("n1", "n2"))
    with one, two, ThreadPoolExecutor(1) as pool:
        held, other = (client.lock("walrus", ttl=20_000) for client in (one, two))
        assert held.acquire(block=False)
        assert not other.acquire(block=False)
        waiting = pool.submit(other.acquire)
        while not two.info()["blocked_clients"]:
            assert not waiting.done()
        assert held.release()
        assert waiting.result()
        assert not held.release()
        assert other.release()


@pytest.mark.filterwarnings("ignore:distutils Version classes:DeprecationWarning")
@pytest.mark.parametrize("node_ids", [("n1",), ("n1", "n2", "n3")])
async def test_the_lock_of_aioredlock(nodes: RedisCluster, node_ids: tuple[str, ...]) -> None:
    """Its own scripts take, extend and release; a second node finds its value there, so it may have all."""
    aioredlock = pytest.importorskip(
        "aioredlock", reason="needs aioredlock, which pulls in an old aioredis: pip install aioredlock"
    )
    addresses = [f"redis://{ports.HOST}:{nodes.port(node_id)}/0" for node_id in node_ids]
    one = aioredlock.Aioredlock(addresses, retry_count=2)
    two = aioredlock.Aioredlock([f"redis://{ports.HOST}:{nodes.port('n2')}/0"], retry_count=2)
    try:
        lock = await one.lock("aio", lock_timeout=20)
        assert lock.valid
        with pytest.raises(aioredlock.LockError):
            await two.lock("aio", lock_timeout=20)
        await one.extend(lock, 30)
        with nodes.client("n3") as client:
            assert 25_000 < client.pttl("aio") <= 30_000
        assert await two.is_locked("aio")
        await one.unlock(lock)
        async with await two.lock("aio", lock_timeout=20) as other:
            assert other.valid
        assert not await one.is_locked("aio")
    finally:
        await one.destroy()
        await two.destroy()
