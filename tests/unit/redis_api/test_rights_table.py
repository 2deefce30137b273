"""Who may send which command: all of the table, principals of every kind, a key that is theirs or not."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from redis_api.commands.table import COMMANDS
from tests.unit.http_api.serving import token_line
from tests.unit.redis_api.test_server import VALUE, Connected, serving

PRINCIPALS = {
    "reader": "read@redis/0/mine",
    "worker": "acquire@redis/0/mine",
    "both": "read,acquire@redis/0/mine",
    "enforcer": "force@redis/0/mine",
    "monitor": "metrics",
    "operator": "admin",
    "shutout": "none",
    "all": "read,acquire,force,admin,metrics",
}
TOKENS = {name: f"token-of-{name}-".ljust(40, "x") for name in PRINCIPALS}
LINES = b"".join(token_line(name, TOKENS[name], rights) for name, rights in PRINCIPALS.items())
KNOWN = frozenset(PRINCIPALS)
READ, ACQUIRE, BOTH = {"reader", "both", "all"}, {"worker", "both", "all"}, {"both", "all"}
EVAL = "return redis.call('GET', KEYS[1])"


class Case(NamedTuple):
    """A command, with KEY where a key belongs, and who may send it with a key that is theirs."""

    words: tuple[Any, ...]
    here: frozenset[str]
    is_about_keys: bool = True
    before: tuple[tuple[Any, ...], ...] = ()
    """What the same connection says before."""


def _reads(*words: Any) -> Case:
    return Case(words, frozenset(READ))


def _writes(*words: Any) -> Case:
    return Case(words, frozenset(BOTH))


def _takes(*words: Any) -> Case:
    return Case(words, frozenset(ACQUIRE))


def _open(*words: Any) -> Case:
    """Return a command that tells nothing of keys: all callers may send it."""
    return Case(words, KNOWN, is_about_keys=False)


CASES: dict[str, Case] = {
    "MULTI": _open("MULTI"),
    "DISCARD": Case(("DISCARD",), KNOWN, False, (("MULTI",),)),
    "UNWATCH": _open("UNWATCH"),
    "CLIENT": _open("CLIENT", "INFO"),
    "SELECT": _open("SELECT", 1),
    "COMMAND": _open("COMMAND", "COUNT"),
    "PING": _open("PING"),
    "ECHO": _open("ECHO", "x"),
    "INFO": _open("INFO"),
    "ROLE": _open("ROLE"),
    "TIME": _open("TIME"),
    "CONFIG": _open("CONFIG", "GET", "save"),
    "WAIT": _open("WAIT", 0, 0),
    "SENTINEL": _open("SENTINEL", "MYID"),
    "SCRIPT": _open("SCRIPT", "EXISTS", "0" * 40),
    "PUBSUB": Case(("PUBSUB", "NUMSUB", "KEY"), frozenset(READ)),
    "UNSUBSCRIBE": _open("UNSUBSCRIBE"),
    "PUNSUBSCRIBE": _open("PUNSUBSCRIBE"),
    "PSUBSCRIBE": Case(("PSUBSCRIBE", "KEY*"), frozenset(READ), is_about_keys=False),
    "SUBSCRIBE": _reads("SUBSCRIBE", "KEY"),
    "PUBLISH": _takes("PUBLISH", "KEY", "x"),
    "SCAN": Case(("SCAN", 0), frozenset(READ), is_about_keys=False),
    "KEYS": Case(("KEYS", "*"), frozenset(READ), is_about_keys=False),
    "DBSIZE": Case(("DBSIZE",), frozenset(READ), is_about_keys=False),
    "FLUSHDB": Case(("FLUSHDB",), frozenset({"all"}), is_about_keys=False),
    "FLUSHALL": Case(("FLUSHALL",), frozenset({"all"}), is_about_keys=False),
    "DEL": _takes("DEL", "KEY"),
    "UNLINK": _takes("UNLINK", "KEY"),
    "DELEX": _writes("DELEX", "KEY"),
    "EXPIRE": _writes("EXPIRE", "KEY", 9),
    "PEXPIRE": _writes("PEXPIRE", "KEY", 9_000),
    "EXPIREAT": _writes("EXPIREAT", "KEY", 9),
    "PEXPIREAT": _writes("PEXPIREAT", "KEY", 9),
    "PERSIST": _writes("PERSIST", "KEY"),
    "SET": _writes("SET", "KEY", "v"),
    "SETNX": _takes("SET", "KEY", VALUE, "NX", "PX", 60_000),
    "SETEX": _writes("SETEX", "KEY", 9, "v"),
    "PSETEX": _writes("PSETEX", "KEY", 9_000, "v"),
    "GETSET": _writes("GETSET", "KEY", "v"),
    "GETDEL": _writes("GETDEL", "KEY"),
    "GETEX": _writes("GETEX", "KEY", "EX", 9),
    "MSET": _writes("MSET", "KEY", "v"),
    "MSETNX": Case(
        ("EXEC",), frozenset(BOTH), True, (("MULTI",), ("MSETNX", "KEY", "v"), ("PEXPIRE", "KEY", 60_000))
    ),
    "GETRANGE": _reads("GETRANGE", "KEY", 0, 1),
    "APPEND": _writes("APPEND", "KEY", "1"),
    "INCR": _writes("INCR", "KEY"),
    "DECR": _writes("DECR", "KEY"),
    "INCRBY": _writes("INCRBY", "KEY", 1),
    "DECRBY": _writes("DECRBY", "KEY", 1),
    "LPUSH": _writes("LPUSH", "KEY", "v"),
    "RPUSH": _writes("RPUSH", "KEY", "v"),
    "LPOP": _writes("LPOP", "KEY"),
    "RPOP": _writes("RPOP", "KEY"),
    "BLPOP": _writes("BLPOP", "KEY", "0.001"),
    "BRPOP": _writes("BRPOP", "KEY", "0.001"),
    "EXISTS": _reads("EXISTS", "KEY"),
    "TYPE": _reads("TYPE", "KEY"),
    "TTL": _reads("TTL", "KEY"),
    "PTTL": _reads("PTTL", "KEY"),
    "EXPIRETIME": _reads("EXPIRETIME", "KEY"),
    "PEXPIRETIME": _reads("PEXPIRETIME", "KEY"),
    "HF.TOKEN": _reads("HF.TOKEN", "KEY"),
    "GET": _reads("GET", "KEY"),
    "MGET": _reads("MGET", "KEY"),
    "STRLEN": _reads("STRLEN", "KEY"),
    "LTRIM": _writes("LTRIM", "KEY", 0, 1),
    "LINDEX": _reads("LINDEX", "KEY", 0),
    "LLEN": _reads("LLEN", "KEY"),
    "LRANGE": _reads("LRANGE", "KEY", 0, 1),
    "WATCH": _reads("WATCH", "KEY"),
    "EXEC": Case(("EXEC",), frozenset(BOTH), True, (("MULTI",), ("SET", "KEY", "v"))),
    "HF.ACQUIRE": _takes("HF.ACQUIRE", "KEY", VALUE, 60_000, 0),
    "CL.THROTTLE": _takes("CL.THROTTLE", "KEY", 1, 1, 1),
    "EVAL": _reads("EVAL", EVAL, 1, "KEY"),
    "EVAL_RO": _reads("EVAL_RO", EVAL, 1, "KEY"),
    "EVALSHA": Case(("EVALSHA", "HASH", 1, "KEY"), frozenset(READ), True, (("SCRIPT", "LOAD", EVAL),)),
    "EVALSHA_RO": Case(("EVALSHA_RO", "HASH", 1, "KEY"), frozenset(READ), True, (("SCRIPT", "LOAD", EVAL),)),
}
"""Every command but those by which a caller says who it is, or leaves."""
WITHOUT_CALLER = {"AUTH", "HELLO", "QUIT", "RESET"}


def test_every_command_has_a_case() -> None:
    """A new one fails here until a case says who may send it."""
    assert set(CASES) | WITHOUT_CALLER == {row.name for row in COMMANDS.values()}
    assert {row.name for row in COMMANDS.values() if row.is_open} == WITHOUT_CALLER


async def _refusal(client: Connected, case: Case, key: str) -> str:
    """Send a command; return the first word of its refusal if that is for want of a right, else nothing."""
    said: list[Any] = []
    for words in (*case.before, case.words):
        loaded = next((one.decode() for one in said if isinstance(one, bytes)), "")
        said.append(await client.ask(*[{"KEY": key, "HASH": loaded}.get(word, word) for word in words]))
    found = said[-1]
    last = found[0] if isinstance(found, list) and found else found
    text = last if isinstance(last, str) and last.startswith("-") else ""
    code = text.removeprefix("-").partition(" ")[0]
    assert code in {"", "NOPERM", "NOAUTH"} or "NX and XX" in text, (case, found)
    return code if code in {"NOPERM", "NOAUTH"} else ""


@pytest.mark.parametrize("name", CASES)
async def test_who_may_send_what(name: str) -> None:
    """By principal and key: NOAUTH for strangers, NOPERM without the right, neither for others."""
    if name.startswith("EVAL"):
        pytest.importorskip("lupa.lua51", reason="needs lupa, the extra redis-lua of the node")
    case = CASES[name]
    for principal in ("", *PRINCIPALS):
        for key, is_mine in (("mine", True), ("other", False)):
            async with serving(LINES) as served, served.client() as client:
                if principal:
                    assert await client.ask("AUTH", principal, TOKENS[principal]) == "+OK"
                is_allowed = principal in case.here and (
                    is_mine or not case.is_about_keys or principal == "all"
                )
                expected = "" if is_allowed else "NOPERM" if principal else "NOAUTH"
                assert await _refusal(client, case, key) == expected, (principal, key)
                if expected:
                    assert served.node.machine.state.holds == {}


@pytest.mark.parametrize("words", [("SCAN", 0, "COUNT", 1000), ("KEYS", "*")])
async def test_listings_leave_out_what_may_not_be_read(words: tuple[Any, ...]) -> None:
    """Each caller sees the keys that it may read, and no other one, by whichever pattern."""
    async with serving(LINES) as served:
        async with served.client() as client:
            await client.ask("AUTH", TOKENS["all"])
            assert await client.ask("MSET", "mine", "v", "mine/a", "v", "other", "v") == "+OK"
        for principal in sorted(READ):
            async with served.client() as client:
                await client.ask("AUTH", TOKENS[principal])
                found = await client.ask(*words)
                keys = found[1] if words[0] == "SCAN" else found
                theirs = [b"other"] if principal == "all" else []
                assert sorted(keys) == [b"mine", b"mine/a", *theirs], principal


async def test_a_pattern_is_told_what_may_be_read() -> None:
    """Whoever listens by a pattern hears nothing of a channel that it may not read."""
    async with serving(LINES) as served, served.client() as listener, served.client() as speaker:
        await listener.ask("AUTH", TOKENS["reader"])
        assert await listener.ask("PSUBSCRIBE", "*") == [b"psubscribe", b"*", 1]
        await speaker.ask("AUTH", TOKENS["all"])
        for channel in ("other", "mine"):
            await speaker.ask("PUBLISH", channel, "secret" if channel == "other" else "told")
        assert await listener.read() == [b"pmessage", b"*", b"mine", b"told"]


async def test_a_string_is_deleted_by_whoever_may_read_it() -> None:
    """DEL of a lock is a release, for which `acquire` is enough; that of a string needs `read`."""
    async with serving(LINES) as served, served.client() as owner, served.client() as worker:
        await owner.ask("AUTH", TOKENS["all"])
        await owner.ask("SET", "mine", "v")
        await worker.ask("AUTH", TOKENS["worker"])
        assert (await worker.ask("DEL", "mine")).startswith("-NOPERM forbidden: this needs the right read")
        assert await owner.ask("GET", "mine") == b"v"


FORCED: list[Callable[[Connected, str], Any]] = [
    lambda client, key: client.ask("DEL", key),
    lambda client, key: client.ask("SET", key, "v"),
    lambda client, key: client.ask("INCR", key),
    lambda client, key: client.ask("GETDEL", key),
    lambda client, key: client.ask("MSET", key, "v"),
]


@pytest.mark.parametrize("end", FORCED)
async def test_the_lock_of_somebody_else_needs_the_right_force(end: Callable[[Connected, str], Any]) -> None:
    """With all other rights it stays what it was."""
    async with serving(LINES) as served, served.client() as holder, served.client() as other:
        await holder.ask("AUTH", TOKENS["all"])
        assert await holder.ask("SET", "mine", "41", "NX", "PX", 60_000) == "+OK"
        await other.ask("AUTH", TOKENS["both"])
        assert (await end(other, "mine")).startswith("-NOPERM ")
        assert await holder.ask("GET", "mine") == b"41"
        assert len(served.holders) == 1
