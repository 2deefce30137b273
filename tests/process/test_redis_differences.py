"""Random programs of lock commands on a real Redis and on nodes: the same answers, or a listed difference."""

import random
from collections.abc import Iterator
from typing import Any, Final

import pytest
import redis

from tests.process.redis_nodes import RedisCluster
from tests.support import servers

pytestmark = pytest.mark.process

PROGRAMS_COUNT: Final = 60
STEPS_COUNT: Final = 40
KEYS: Final = ("a", "a/b", "", "../x", " é%", b"\xff\x00")
STRINGS: Final = ("s", "t")
"""Keys that nothing takes as locks, so their time may be taken away."""
VALUES: Final = ("v", "0123456789abcdef", "", b"\x00\xff%", "a b")
NOT_QUEUED: Final = ("SCAN", "KEYS", "SCRIPT")
"""Commands that a transaction may have in Redis, and not here."""
LONG_MS: Final = (20_000, 60_000, 3_600_000)
"""Times that do not pass while a program runs, and that a lease may have."""
SLACK_MS: Final = 5_000
"""Milliseconds by which times that are left may differ: the two are not asked at the same moment."""

DELETE: Final = (
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
)
EXPIRE: Final = (
    "local t = redis.call('get', KEYS[1]) if not t or t ~= ARGV[1] then return 0 end"
    " redis.call('pexpire', KEYS[1], ARGV[2]) return 1"
)
EXTEND: Final = (
    "local t = redis.call('get', KEYS[1]) if not t or t ~= ARGV[1] then return 0 end"
    " local e = redis.call('pttl', KEYS[1]) if not e then e = 0 end if e < 0 then return 0 end"
    " local n = ARGV[2] if ARGV[3] == '0' then n = ARGV[2] + e end"
    " redis.call('pexpire', KEYS[1], n) return 1"
)
LEFT: Final = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then local p = redis.call('pttl', KEYS[1])"
    " return (p > 0) and p or 0 else return 0 end"
)


def step_of(rng: random.Random) -> tuple[Any, ...]:
    """Return a command that both understand in the same way."""
    key, value, ms = rng.choice(KEYS), rng.choice(VALUES), rng.choice(LONG_MS)
    second = rng.choice(KEYS)
    only = rng.choice([(), (), ("NX",), ("XX",), ("GT",), ("LT",), ("GT", "LT"), ("NX", "GT"), ("no",)])
    number = rng.choice([0, 1, -1, 3, -5, 2**62, "x", ""])
    steps: list[tuple[Any, ...]] = [
        *strings_steps(rng, key, value, ms),
        *lists_steps(rng, key, second, value),
        ("MULTI",),
        ("EXEC",),
        ("EXEC",),
        ("EXEC",),
        ("DISCARD",),
        ("WATCH", key, second),
        ("UNWATCH",),
        ("INCR", key),
        ("DECR", key),
        ("INCRBY", key, number),
        ("DECRBY", key, number),
        ("PERSIST", rng.choice(STRINGS)),
        ("SCAN", 0, "COUNT", 1000, "MATCH", "*"),
        ("SCAN", "x"),
        ("SCAN", 0, "COUNT", 0),
        ("KEYS", rng.choice(["*", "a*", "[a-c]", "?", "", "\\a", "[^a]", "*b", "a/?", "[", "[^]"])),
        ("SET", key, value, "NX", "PX", ms),
        ("SET", key, value, "EX", ms // 1000, "NX"),
        ("SET", key, value, "NX", "PX", ms, "GET"),
        ("SET", key, value, "nx", "px", rng.choice(["x", "0", "-1", ""])),
        ("SET", key, value, "NX", "PX"),
        ("GET", key),
        ("MGET", key, second, key),
        ("EXISTS", key, second, key),
        ("TYPE", key),
        ("DEL", key, second),
        ("UNLINK", key),
        ("PTTL", key),
        ("TTL", key),
        ("PEXPIRETIME", key),
        ("EXPIRETIME", key),
        ("PEXPIRE", key, ms, *only),
        ("EXPIRE", key, ms // 1000, *only),
        ("PEXPIRE", key, rng.choice([0, -1])),
        ("EVAL", DELETE, 1, key, value),
        ("EVAL", EXPIRE, 1, key, value, ms),
        ("EVAL", EXPIRE, 1, key, value, 0),
        ("EVAL", EXTEND, 1, key, value, ms, rng.choice("01")),
        ("EVAL", LEFT, 1, key, value),
        ("EVALSHA", "0" * 40, 0),
        ("EVAL", DELETE, 3, key, value),
        ("EVAL", DELETE, -1, key, value),
        ("EVAL", DELETE, "x", key, value),
        ("GET",),
        ("SELECT", rng.choice([0, 1, 16, "x"])),
        ("ECHO", value),
        ("PING",),
        ("SCRIPT", "EXISTS", "0" * 40),
    ]
    return rng.choice(steps)


def strings_steps(rng: random.Random, key: Any, value: Any, ms: int) -> list[tuple[Any, ...]]:
    """Return commands about strings. A key that is a lock is only written where all may force."""
    key = rng.choice((key, *STRINGS))
    options = rng.sample([("XX",), ("GET",), ("KEEPTTL",), ("PX", ms), ("EX", 30)], rng.randint(0, 2))
    return [
        ("SET", key, value, *[word for option in options for word in option]),
        ("SET", key, value, *[word for option in options for word in option]),
        ("SET", key, rng.choice(["1", "41", "-7", str(2**63 - 1)])),
        ("SET", key, value, "NX", "XX"),
        ("SETEX", key, rng.choice([30, 0, -1, "x"]), value),
        ("PSETEX", key, rng.choice([ms, 0]), value),
        ("GETSET", key, value),
        ("GETDEL", key),
        ("GETEX", key, *rng.choice([(), ("PX", ms), ("EX",), ("EX", 0), ("no", 1)])),
        ("GETEX", rng.choice(STRINGS), "PERSIST"),
        ("APPEND", key, value),
        ("STRLEN", key),
        ("MSET", key, value, "a", "1"),
        ("MSET", key, value, "a"),
    ]


def lists_steps(rng: random.Random, key: Any, second: Any, value: Any) -> list[tuple[Any, ...]]:
    """Return commands about lists."""
    count = rng.choice([0, 1, 2, 5, -1, "x"])
    return [
        ("LPUSH", key, value, "b"),
        ("RPUSH", key, value),
        ("RPUSH", key),
        ("LPOP", key),
        ("LPOP", key, count),
        ("RPOP", key),
        ("RPOP", key, count),
        ("LLEN", key),
        ("LRANGE", key, rng.choice([0, 1, -2, -9]), rng.choice([0, 1, -1, 9, "x"])),
        ("BLPOP", key, second, "0.001"),
        ("BRPOP", key, rng.choice(["-1", "x", "0.001"])),
    ]


def answer(client: redis.Redis, words: tuple[Any, ...]) -> Any:
    """Return what a server answers, an error as its words."""
    connection: Any = client.connection
    connection.send_command(*words)
    try:
        return connection.read_response(disable_decoding=True)
    except redis.RedisError as error:
        return f"{type(error).__name__}: {error}"


def are_alike(words: tuple[Any, ...], ours: Any, theirs: Any) -> bool:
    """Whether two answers are the same, or times that are as good as that, or keys in another order."""
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        if words[0] == "KEYS":
            return sorted(ours) == sorted(theirs)
        if words[0] == "SCAN":
            return bool(ours[0] == theirs[0] and sorted(ours[1]) == sorted(theirs[1]))
        if words[0] == "EXEC":
            return all(are_alike(("TTL",), *pair) for pair in zip(ours, theirs, strict=True))
    if not isinstance(ours, bytes | int | None) and not isinstance(theirs, bytes | int | None):
        return str(ours) == str(theirs).partition(" script: ")[0]
    is_time = words[0] in ("PTTL", "TTL", "PEXPIRETIME", "EXPIRETIME") or LEFT in words
    if is_time and isinstance(ours, int) and isinstance(theirs, int) and min(ours, theirs) > 0:
        return abs(ours - theirs) <= SLACK_MS
    return bool(ours == theirs)


def begin_anew(client: redis.Redis) -> None:
    """Let no key be there, and nothing be begun, in database 0."""
    for words in (("DISCARD",), ("UNWATCH",)):
        answer(client, words)
    for database in (1, 0):
        answer(client, ("SELECT", database))
        answer(client, ("DEL", *KEYS, *STRINGS))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[redis.Redis, redis.Redis]]:
    """Return a connection to one of three nodes, and one to Redis."""
    with (
        servers.redis_server() as server,
        RedisCluster.of(tmp_path_factory.mktemp("redis-differences")) as nodes,
        nodes.client("n2", single_connection_client=True, protocol=2) as ours,
        redis.Redis.from_url(server.url, single_connection_client=True, protocol=2) as theirs,
    ):
        yield ours, theirs


def test_random_programs_are_answered_alike(both: tuple[redis.Redis, redis.Redis]) -> None:
    """Each step of each program, on keys that are free at its begin."""
    answers: dict[str, int] = {}
    for seed in range(PROGRAMS_COUNT):
        rng = random.Random(seed)
        for client in both:
            begin_anew(client)
        done, is_queuing = [], False
        for _ in range(STEPS_COUNT):
            words = step_of(rng)
            while is_queuing and words[0] in NOT_QUEUED:
                words = step_of(rng)
            done.append(words)
            is_queuing = words[0] == "MULTI" or (is_queuing and words[0] not in ("EXEC", "DISCARD"))
            ours, theirs = (answer(client, words) for client in both)
            assert are_alike(words, ours, theirs), f"seed {seed}: {done}\nours: {ours!r}\nRedis: {theirs!r}"
            answers[words[0]] = answers.get(words[0], 0) + 1
    print("answered alike:", sum(answers.values()), dict(sorted(answers.items())))
    assert sum(answers.values()) == PROGRAMS_COUNT * STEPS_COUNT


@pytest.mark.parametrize(
    ("words", "ours", "theirs"),
    [
        (("SET", "d", "v", "NX", "PX", 2), "ResponseError: ttl-out-of-range", b"OK"),
        (("SET", "d", "v", "NX", "EX", 90_000), "ResponseError: ttl-out-of-range", b"OK"),
        (("SETEX", "d", 90_000, "v"), "ResponseError: ttl-out-of-range", b"OK"),
        (("SET", "d", "v" * 4_097), "ResponseError: 4097 bytes for one key; at most 4096 are allowed", b"OK"),
        (("RPUSH", "d", *["v" * 99] * 50), "ResponseError: 5", 50),
        (("SET", "d", "v", "IFEQ", "w"), None, "ResponseError: syntax error"),
        (("DELEX", "d", "IFEQ", "w"), 0, "ResponseError: unknown command 'DELEX'"),
        (("HF.TOKEN", "d"), None, "ResponseError: unknown command 'HF.TOKEN'"),
    ],
)
def test_the_differences_are_these(
    both: tuple[redis.Redis, redis.Redis], words: tuple[Any, ...], ours: Any, theirs: Any
) -> None:
    """What docs/faces.md lists is so: here a refusal that says why, there an answer."""
    for client, expected in zip(both, (ours, theirs), strict=True):
        begin_anew(client)
        answer(client, ("DEL", "d"))
        found = answer(client, words)
        if isinstance(expected, str):
            assert str(found).startswith(expected)
        else:
            assert found == expected
    answer(both[1], ("DEL", "d"))


def test_a_transaction_has_bounds(both: tuple[redis.Redis, redis.Redis]) -> None:
    """It changes at most 64 keys in one step, and nothing at all if it has more."""
    for client in both:
        begin_anew(client)
        answer(client, ("MULTI",))
        for number in range(65):
            assert answer(client, ("SET", f"many-{number}", "v")) == b"QUEUED"
    ours, theirs = (answer(client, ("EXEC",)) for client in both)
    assert theirs == [b"OK"] * 65
    assert str(ours).startswith(
        "ResponseError: 65 things to compare and 65 to change in one step; at most 64"
    )
    assert answer(both[0], ("EXISTS", "many-0", "many-64")) == 0
    answer(both[1], ("DEL", *[f"many-{number}" for number in range(65)]))


def test_a_lease_stays_one(both: tuple[redis.Redis, redis.Redis]) -> None:
    """PERSIST takes the time away from a string, and is refused for a lock."""
    for client in both:
        answer(client, ("SET", "p", "v", "NX", "PX", 60_000))
    ours, theirs = (answer(client, ("PERSIST", "p")) for client in both)
    assert theirs == 1
    assert str(ours).startswith("ResponseError: PERSIST is not supported by Holdfast")
