"""Random commands of the Redis face that a Redis understands in the same way."""

import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from lab.fuzz import redis_lua

Words = tuple[Any, ...]

KEYS: Final = ("a", "a/b", "", "../x", " é%", b"\xff\x00")
STRINGS: Final = ("s", "t")
"""Keys that nothing takes as locks, so their time may be taken away."""
CHANNELS: Final = ("c", "c/d", "d")
VALUES: Final = ("v", "0123456789abcdef", "", b"\x00\xff%", "a b", "41")
LONG_MS: Final = (20_000, 60_000, 3_600_000)
"""Times that do not pass while a program runs, and that a lease may have."""
SHORT_MS: Final = 60
"""A time that passes in a pause."""
NOT_QUEUED: Final = (
    "SCAN",
    "KEYS",
    "DBSIZE",
    "FLUSHDB",
    "FLUSHALL",
    "SCRIPT",
    "CLIENT",
    "SELECT",
    "HELLO",
    "AUTH",
    "CONFIG",
    "WAIT",
    "INFO",
    "TIME",
    "ROLE",
    "COMMAND",
    "PUBLISH",
    "HF.ACQUIRE",
    "SENTINEL",
    "RESET",
)
"""Commands that a transaction may have in Redis, and not here."""

_CHANNELS_SHARE: Final = 0.15
_PAUSES_SHARE: Final = 0.15
_SWITCHES_SHARE: Final = 0.4
_OWN_SHARE: Final = 0.8

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


class Step(NamedTuple):
    """A command on one of the connections. Time passes behind one that gives a key a short time."""

    connection: int
    words: Words
    is_behind: bool = False
    """Whether it is sent before the answer to the one before it is there."""

    @property
    def pauses(self) -> bool:
        """Whether time passes behind it."""
        return SHORT_MS in self.words


def program_of(rng: random.Random, count: int) -> list[Step]:
    """Return a program of two connections; each keeps to keys of its own for most of what it takes."""
    if rng.random() < _CHANNELS_SHARE:
        return [Step(rng.randrange(2), channel_words(rng)) for _ in range(count)]
    steps: list[Step] = []
    is_queuing = [False, False]
    has_pauses = rng.random() < _PAUSES_SHARE
    pipelined = rng.choice((0.0, 0.5, 0.9))
    while len(steps) < count:
        here = rng.randrange(2) if rng.random() < _SWITCHES_SHARE else (steps[-1].connection if steps else 0)
        own = KEYS[3 * here : 3 * here + 3] if rng.random() < _OWN_SHARE else KEYS
        words = words_of(rng, own)
        if SHORT_MS in words and (is_queuing[here] or not has_pauses):
            continue
        if is_queuing[here] and words[0] in NOT_QUEUED:
            continue
        steps.append(Step(here, words, rng.random() < pipelined))
        if words[0] in ("MULTI", "EXEC", "DISCARD", "RESET"):
            is_queuing[here] = words[0] == "MULTI"
    return steps


def words_of(rng: random.Random, keys: Sequence[Any] = KEYS) -> Words:
    """Return a command."""
    key, value, ms = rng.choice(keys), rng.choice(VALUES), rng.choice(LONG_MS)
    second = rng.choice(keys)
    families = (
        lock_words,
        lock_words,
        string_words,
        string_words,
        list_words,
        script_words,
        time_words,
        transaction_words,
        transaction_words,
        connection_words,
    )
    return rng.choice(rng.choice(families)(rng, key, second, value, ms))


def lock_words(rng: random.Random, key: Any, second: Any, value: Any, ms: int) -> list[Words]:
    """Return commands that take, look at and end locks, and all keys."""
    return [
        ("SET", key, value, "NX", "PX", ms),
        ("SET", key, value, "NX", "PX", ms),
        ("SET", key, value, "EX", ms // 1000, "NX"),
        ("SET", key, value, "NX", "PX", ms, "GET"),
        ("SET", key, value, "nx", "px", rng.choice(["x", "0", "-1", ""])),
        ("SET", key, value, "NX", "PX"),
        ("SET", key, value, "NX", "EXAT", 4_000_000_000_000_000_000),
        ("SET", key, value, "NX", "PX", SHORT_MS),
        ("SETNX", key, value),
        ("GET", key),
        ("MGET", key, second, key),
        ("EXISTS", key, second, key),
        ("TYPE", key),
        ("DEL", key, second),
        ("UNLINK", key),
        ("SCAN", 0, "COUNT", 1000, "MATCH", rng.choice(["*", "a*", "?"])),
        ("SCAN", 0, "COUNT", 1000, "TYPE", rng.choice(["string", "list", "hash"])),
        ("SCAN", "x"),
        ("SCAN", 0, "COUNT", 0),
        ("KEYS", rng.choice(["*", "a*", "[a-c]", "?", "", "\\a", "[^a]", "*b", "a/?", "[", "[^]"])),
    ]


def time_words(rng: random.Random, key: Any, second: Any, value: Any, ms: int) -> list[Words]:
    """Return commands about the time that a key has."""
    del second, value
    only = rng.choice([(), (), ("NX",), ("XX",), ("GT",), ("LT",), ("GT", "LT"), ("NX", "GT"), ("no",)])
    return [
        ("PTTL", key),
        ("TTL", key),
        ("PEXPIRETIME", key),
        ("EXPIRETIME", key),
        ("PEXPIRE", key, ms + 5_000, *only),
        ("EXPIRE", key, ms // 1000 - 5, *only),
        ("PEXPIRE", key, rng.choice([0, -1, "x", 2**63 - 1, -(2**63)])),
        ("EXPIRE", key, rng.choice([0, -5, "", 2**62, 2**63])),
        ("PEXPIREAT", key, rng.choice([1, 0, -1, "x"]), *only),
        ("EXPIREAT", key, rng.choice([1, 0, -1, "x"]), *only),
        ("PEXPIRE", rng.choice(STRINGS), SHORT_MS),
        ("PERSIST", rng.choice(STRINGS)),
    ]


def string_words(rng: random.Random, key: Any, second: Any, value: Any, ms: int) -> list[Words]:
    """Return commands about strings."""
    key = rng.choice((key, *STRINGS))
    options = rng.sample([("XX",), ("GET",), ("KEEPTTL",), ("PX", ms), ("EX", 30)], rng.randint(0, 2))
    number = rng.choice([0, 1, -1, 3, -5, 2**62, -(2**63), 2**63, "x", "", "+1", "01", " 1"])
    return [
        ("SET", key, value, *[word for option in options for word in option]),
        ("SET", key, value, *[word for option in options for word in option]),
        ("SET", key, rng.choice(["1", "41", "-7", str(2**63 - 1), str(-(2**63))])),
        ("SET", key, value, "NX", "XX"),
        ("SET", rng.choice(STRINGS), value, "PX", SHORT_MS),
        ("SETEX", key, rng.choice([30, 0, -1, "x"]), value),
        ("PSETEX", key, rng.choice([ms, 0]), value),
        ("GETSET", key, value),
        ("GETDEL", key),
        ("GETEX", key, *rng.choice([(), ("PX", ms), ("EX",), ("EX", 0), ("no", 1), ("EX", 30, "PERSIST")])),
        ("GETEX", rng.choice(STRINGS), "PERSIST"),
        ("APPEND", key, value),
        ("STRLEN", key),
        ("INCR", key),
        ("DECR", key),
        ("INCRBY", key, number),
        ("DECRBY", key, number),
        ("MSET", key, value, second, "1"),
        ("MSETNX", key, value, second, "1"),
        ("GETRANGE", key, rng.choice([0, 1, -2, -9]), rng.choice([0, 1, -1, 9, "x"])),
        ("MSET", key, value, second),
        ("MGET", key, second),
    ]


def list_words(rng: random.Random, key: Any, second: Any, value: Any, ms: int) -> list[Words]:
    """Return commands about lists."""
    del ms
    count = rng.choice([0, 1, 2, 5, -1, "x"])
    return [
        ("LPUSH", key, value, "b"),
        ("LPUSH", key, value, "b", "", "c"),
        ("RPUSH", key, value),
        ("RPUSH", key, value, "z"),
        ("RPUSH", key),
        ("LPOP", key),
        ("LPOP", key, count),
        ("LPOP", key, count, 1),
        ("RPOP", key),
        ("RPOP", key, count),
        ("LLEN", key),
        ("LINDEX", key, rng.choice([0, 1, -1, 9, "x"])),
        ("LTRIM", key, rng.choice([0, 1, -2, -9]), rng.choice([0, 1, -1, 9, "x"])),
        ("LRANGE", key, rng.choice([0, 1, -2, -9]), rng.choice([0, 1, -1, 9, "x"])),
        ("BLPOP", key, second, "0.001"),
        ("BRPOP", key, rng.choice(["-1", "x", "0.001", "1e-3"])),
    ]


def script_words(rng: random.Random, key: Any, second: Any, value: Any, ms: int) -> list[Words]:
    """Return scripts: those of lock clients, and any."""
    command, writes = rng.choice([("EVAL", True), ("EVAL", True), ("EVAL_RO", False)])
    return [
        ("EVAL", DELETE, 1, key, value),
        ("EVAL", EXPIRE, 1, key, value, ms),
        ("EVAL", EXPIRE, 1, key, value, 0),
        ("EVAL", EXTEND, 1, key, value, ms, rng.choice("01")),
        ("EVAL", LEFT, 1, key, value),
        ("EVALSHA", "0" * 40, 0),
        ("EVALSHA_RO", "0" * 40, 0),
        ("EVAL", DELETE, rng.choice([3, -1, "x"]), key, value),
        ("SCRIPT", "EXISTS", "0" * 40),
        ("SCRIPT", "LOAD", DELETE),
        *[(command, redis_lua.script(rng, writes=writes), 2, key, second, value) for _ in range(12)],
    ]


def transaction_words(rng: random.Random, key: Any, second: Any, value: Any, ms: int) -> list[Words]:
    """Return what begins and ends transactions."""
    del rng, value, ms
    return [("MULTI",), ("EXEC",), ("EXEC",), ("EXEC",), ("DISCARD",), ("WATCH", key, second), ("UNWATCH",)]


def connection_words(rng: random.Random, key: Any, second: Any, value: Any, ms: int) -> list[Words]:
    """Return commands about the connection and the server."""
    del second, ms
    return [
        ("GET",),
        ("SELECT", rng.choice([0, 0, 1, 16, -1, "x"])),
        ("ECHO", value),
        ("PING",),
        ("PING", value),
        ("HELLO", rng.choice([2, 3, 3, 4, "x"])),
        ("HELLO", 3, rng.choice(["SETNAME", "no"]), "me"),
        ("HELLO",),
        ("AUTH", "x"),
        ("RESET",),
        ("CLIENT", "SETNAME", rng.choice(["me", "a b", ""])),
        ("CLIENT", "GETNAME"),
        ("CLIENT", "ID"),
        ("CLIENT", "INFO"),
        ("CLIENT", "NO-EVICT", "ON"),
        ("INFO", "server"),
        ("TIME",),
        ("DBSIZE",),
        ("FLUSHDB", *rng.choice([(), (), ("ASYNC",), ("sync",), ("x",)])),
        ("FLUSHALL", *rng.choice([(), ("SYNC",), ("ASYNC", "ASYNC")])),
        ("ROLE",),
        ("COMMAND", "COUNT"),
        ("CONFIG", "GET", "appendonly"),
        ("WAIT", 0, 1),
        ("WAIT", "x", 1),
        ("COPY_" + "x", key),
    ]


def channel_words(rng: random.Random) -> Words:
    """Return a command about channels, or one that may be refused to who listens."""
    one, two = rng.choice(CHANNELS), rng.choice(CHANNELS)
    pattern = rng.choice(["c*", "?", "[cd]", "*"])
    return rng.choice(
        [
            ("SUBSCRIBE", one),
            ("SUBSCRIBE", one, two),
            ("PSUBSCRIBE", pattern),
            ("UNSUBSCRIBE", one),
            ("PUNSUBSCRIBE", pattern),
            ("PUBLISH", one, rng.choice(VALUES)),
            ("PUBLISH", one, rng.choice(VALUES)),
            ("PUBLISH", two, rng.choice(VALUES)),
            ("PUBSUB", "CHANNELS", *rng.choice([(), (pattern,)])),
            ("PUBSUB", "NUMSUB", one, two),
            ("PUBSUB", "NUMPAT"),
            ("PING",),
            ("GET", "a"),
            ("HELLO", rng.choice([2, 3])),
            ("RESET",),
            ("SUBSCRIBE",),
        ]
    )
