"""Whatever bytes a client sends cost its own connection, and nothing else: no memory, no time."""

import asyncio
import contextlib
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redis_api.connection import HELD_BYTES_MAX
from tests.unit.redis_api.test_server import Served, serving

READ_BYTES_MAX = 256 * 1024
"""Bytes that the event loop reads at a time."""
WAIT_S = 20.0

COMMANDS = st.sampled_from(
    [
        b"MULTI\r\n",
        b"EXEC\r\n",
        b"DISCARD\r\n",
        b"RESET\r\n",
        b"QUIT\r\n",
        b"HELLO 3\r\n",
        b"HELLO\r\n",
        b"SUBSCRIBE c\r\n",
        b"PSUBSCRIBE \xff*\r\n",
        b"UNSUBSCRIBE\r\n",
        b"AUTH a b c\r\n",
        b"CLIENT SETNAME \xff\r\n",
        b"SET k v\r\n",
        b"SET k v NX PX 60000\r\n",
        b"SET \xff\xfe \x80 EX 9999999999999999999\r\n",
        b"GET k\r\n",
        b"DEL k\r\n",
        b"INCR \xc3\r\n",
        b"BLPOP q 0.01\r\n",
        b"BLPOP q 1e999\r\n",
        b"HF.ACQUIRE k v 60000 10\r\n",
        b"CL.THROTTLE k 9 9 9 99999999999999999999\r\n",
        b"EVAL \xff 0\r\n",
        b"EVAL return 0 k\r\n",
        b"SCAN -1\r\n",
        b"KEYS [\r\n",
        b"KEYS ****************a\r\n",
        b"COMMAND DOCS \xff\r\n",
        b"SENTINEL \xff\r\n",
        b"CONFIG GET [^\r\n",
        b"LRANGE l -9223372036854775808 9223372036854775807\r\n",
        b"EXPIREAT k -9223372036854775808\r\n",
        b"PUBLISH c \x00\r\n",
        b"WATCH k\r\n",
        b"SELECT 15\r\n",
        b"\xff \xfe\r\n",
        b"SCRIPT LOAD \x1bLua\r\n",
    ]
)
LONG = b"<70000 bytes>"
"""Stands for so many bytes, which nobody wants to read in a report."""
PARTS = st.sampled_from(
    [
        b"*1\r\n",
        b"*3\r\n",
        b"*1024\r\n",
        b"*1025\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"$3\r\nSET\r\n",
        b"$0\r\n\r\n",
        b"$1\r\nk\r\n",
        b"$65536\r\n",
        b"$65537\r\n",
        b"$-1\r\n",
        b"$3\r\n",
        b"\r\n",
        b"\n",
        b"+OK\r\n",
        b"%2\r\n",
        LONG,
        b"\0" * 300,
        b"\xff" * 300,
        b"POST / HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"'\r\n",
    ]
)
SENT = st.lists(COMMANDS | PARTS | st.binary(max_size=60), max_size=30)


async def _is_taken(sent: list[bytes], chunk_bytes: int) -> None:
    async with serving() as served:
        data = b"".join(sent).replace(LONG, b"x" * 70_000)
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        for at in range(0, len(data), chunk_bytes):
            writer.write(data[at : at + chunk_bytes])
            await asyncio.sleep(0)
            assert _held_bytes(served) <= HELD_BYTES_MAX + READ_BYTES_MAX
        with contextlib.suppress(OSError):  # it may be closed already
            writer.write_eof()
        async with asyncio.timeout(WAIT_S):
            try:
                while await reader.read(65536):
                    pass
            except ConnectionError:
                pass  # it was closed with bytes unread
        writer.close()
        async with served.client() as another, asyncio.timeout(WAIT_S):
            assert await another.ask("ECHO", "still here") == b"still here"
        async with asyncio.timeout(WAIT_S):
            while served.face.clients_count:  # noqa: ASYNC110 - nothing tells of the end of a connection
                await asyncio.sleep(0)


def _held_bytes(served: Served) -> int:
    return sum([one._parser.held_bytes for one in served.redis._connections])


@settings(deadline=None, max_examples=25)
@given(SENT, st.sampled_from([7, 1000, 65536]))
def test_any_bytes_cost_their_connection_only(sent: list[bytes], chunk_bytes: int) -> None:
    """It is answered or closed in time, holds no more than its bound, and the log tells of no exception."""
    logs: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = logs.append  # type: ignore[method-assign,assignment]
    logging.getLogger().addHandler(handler)
    try:
        asyncio.run(_is_taken(sent, chunk_bytes))
    finally:
        logging.getLogger().removeHandler(handler)
    assert [one.getMessage() for one in logs if one.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("begin", [b"*1024\r\n", b"*2\r\n$65000\r\n", b"x", b"\n", b"*0\r\n"])
async def test_bytes_without_end_are_bounded(begin: bytes) -> None:
    """Sixteen megabytes that never become a command are not kept; others are answered meanwhile."""
    async with serving() as served, served.client() as another:
        _, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(begin)
        try:
            for _ in range(256):
                writer.write(begin * (65536 // len(begin)))
                await writer.drain()
                assert _held_bytes(served) <= HELD_BYTES_MAX + READ_BYTES_MAX
                assert await another.ask("PING") == "+PONG"
        except ConnectionError:
            pass  # it is not RESP, and the connection was closed
        writer.close()
