"""Secrets of clients of Redis show up nowhere: not in logs, metrics, INFO, CLIENT INFO, errors."""

import logging

import pytest

from tests.unit.http_api.serving import token_line
from tests.unit.redis_api.test_server import serving

TOKEN = "canary-token-".ljust(40, "t")
WRONG = "canary-wrong-".ljust(40, "w")
VALUE = "canary-value-0123456789"
WORDS = (TOKEN, WRONG, VALUE, "canary")


async def test_no_secret_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Neither what stood in AUTH or HELLO, right or wrong, nor a value, wherever it stood in a command."""
    caplog.set_level(logging.DEBUG)
    lines = token_line("me", TOKEN, "read,acquire,force,admin")
    told: list[str] = []
    async with serving(lines) as served:
        async with served.client() as client:
            for words in (
                ("AUTH", WRONG),
                ("AUTH", "me", WRONG),
                ("AUTH", TOKEN, TOKEN),
                ("HELLO", 2, "AUTH", "me", WRONG),
                ("HELLO", 2, "AUTH", WRONG),
                ("GET", VALUE),
                ("HELLO", 2, "AUTH", "me", TOKEN),
                ("AUTH", TOKEN),
                ("CLIENT", "SETNAME", "me"),
                ("SET", "k", VALUE, "NX", "PX", 60_000),
                ("SET", "s", VALUE),
                ("SET", "s", VALUE, "PX", "x"),
                ("SET", "s", VALUE, VALUE),
                ("INCR", "s"),
                ("INCRBY", "s", VALUE),
                ("PSETEX", "s", 1, VALUE),
                ("LPUSH", "s", VALUE),
                ("RPUSH", "l", VALUE),
                ("DELEX", "s", "IFEQ", VALUE),
                ("PUBLISH", "c", VALUE),
                ("MULTI",),
                ("SET", "t", VALUE),
                ("GET", "t", VALUE),
                ("EXEC",),
                ("EVAL", "return redis.call('INCR', KEYS[1]) --" + VALUE, 1, "k", VALUE),
                ("ECHO",),
                ("CLIENT", "INFO"),
                ("CLIENT", "ID"),
                ("INFO", "everything"),
                ("ROLE",),
                ("CONFIG", "GET", "*"),
                ("COMMAND", "COUNT"),
                ("SENTINEL", "MASTERS"),
                ("PUBSUB", "CHANNELS"),
                ("PEXPIRE", "k", VALUE),
            ):
                told += [repr(await client.ask(*words))]
            client.writer.write(f"*2\r\n$4\r\nAUTH\r\n${len(TOKEN)}\r\n{TOKEN}!!broken\r\n".encode())
            told.append(repr(await client.read()))
            assert await client.is_over()
        for sample in served.redis.samples():
            told += [repr(sample)]
        told += [record.getMessage() + str(record.exc_info or "") for record in caplog.records]
    assert any("redis_commands_total" in one for one in told)
    assert any("user=me" in one for one in told)
    assert [(one, word) for one in told for word in WORDS if word in one] == []


async def test_a_token_is_forgotten_with_its_connection() -> None:
    """RESET forgets it: the caller is nobody from then on."""
    async with serving(token_line("me", TOKEN, "read")) as served, served.client() as client:
        assert await client.ask("AUTH", TOKEN) == "+OK"
        assert await client.ask("GET", "k") is None
        assert await client.ask("RESET") == "+RESET"
        assert (await client.ask("GET", "k")).startswith("-NOAUTH ")
