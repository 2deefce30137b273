"""Bodies that nobody asked for, that are compressed, or that are not what they say."""

import asyncio
import gzip
import logging
import socket
import zlib

import pytest

from holdfast import wire
from http_api.server import call
from tests.unit.http_api.serving import serving

ACQUIRE = b'{"name":"a","ttl_ms":60000}'


def request(head: str, body: bytes) -> bytes:
    """Return a request with a body, on a connection that may be kept."""
    return f"{head} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n".encode() + b"%s\r\n" + body


def bomb(megabytes: int) -> bytes:
    """Return so many spaces, compressed a thousandfold."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(b" " * (1 << 20)) for _ in range(megabytes)) + packer.flush()


@pytest.mark.parametrize("path", ["GET /livez", "POST /v1/locks/acquire", "GET /nowhere"])
@pytest.mark.parametrize("encoding", [b"gzip", b"deflate", b"br", b"x, gzip", b"GZIP"])
async def test_encoded_bodies_are_refused_unread(path: str, encoding: bytes) -> None:
    """Whatever the path, they are refused by the head, and nothing happens."""
    async with serving() as served:
        body = gzip.compress(ACQUIRE, mtime=0)  # a time may have the byte %
        got = await served.raw(
            request(path, body) % (b"Content-Encoding: %s\r\nConnection: close\r\n" % encoding)
        )
        assert got.startswith(b"HTTP/1.1 415 ")
        assert b'"code":"unsupported-encoding","outcome":"not-applied"' in got
        assert not served.node.machine.lock("a").holders


async def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that would be a thousand times as long is never handed to a decompressor."""

    def unpack(*_: object, **__: object) -> object:
        raise AssertionError("something is unpacked")

    monkeypatch.setattr("aiohttp.http_parser.DeflateBuffer", unpack)
    monkeypatch.setattr("aiohttp._http_parser.DeflateBuffer", unpack, raising=False)
    async with serving() as served:
        lines = b"Content-Encoding: gzip\r\nConnection: close\r\n"
        assert (await served.raw(request("GET /livez", bomb(20)) % lines)).startswith(b"HTTP/1.1 415 ")


async def test_identity_is_not_an_encoding() -> None:
    """The word for no encoding is allowed."""
    async with serving() as served:
        got = await served.raw(
            request("POST /v1/locks/acquire", ACQUIRE)
            % b"Content-Encoding: Identity\r\nConnection: close\r\n"
        )
        assert got.startswith(b"HTTP/1.1 200 ")


async def test_a_body_that_nobody_asked_for_ends_its_connection() -> None:
    """The answer comes before it, and what has not come by then is not waited for."""
    async with serving() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n{")
        async with asyncio.timeout(30):
            got = await reader.read()
        assert got.startswith(b"HTTP/1.1 200 ")
        assert b"\r\nConnection: close\r\n" in got
        writer.close()


async def test_a_body_that_came_with_its_head_is_dropped() -> None:
    """A client that sends `{}` with a read may go on."""
    async with serving() as served:
        got = await served.raw(
            request("GET /livez", b"{}") % b"" * 2 + request("GET /livez", b"") % b"Connection: close\r\n"
        )
        assert got.count(b"HTTP/1.1 200 ") == 3


@pytest.mark.parametrize("size", [wire.BODY_BYTES_MAX + 1, call._DROPPED_BYTES_MAX - 1024])
async def test_a_client_that_only_writes_sees_why_it_is_refused(size: int) -> None:
    """Many write all before they read: they get their answer as long as the body is not absurd."""

    def ask(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), 30) as connection:
            connection.sendall(request("POST /v1/locks/acquire", b"x" * size) % b"")
            return b"".join(iter(lambda: connection.recv(65536), b""))

    async with serving() as served:
        got = await asyncio.to_thread(ask, served.port)
        assert got.startswith(b"HTTP/1.1 413 ")
        assert b'"code":"payload-too-large"' in got


@pytest.mark.parametrize(
    "sent",
    [
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\nnot a chunk\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello",
        b"Transfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"Transfer-Encoding: gzip\r\n\r\nhello",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello",
        b"Content-Encoding: gzip\r\nContent-Length: 9\r\n\r\nnot gzip!",
        b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nnot a chunk\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"Content-Length: -5\r\n\r\nhello",
        b"Content-Length: 5\r\n\r\nhello\x00\xff\x16\x03\x01garbage\r\n\r\n",
        b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
        b"Expect: the-moon\r\nContent-Length: 500\r\n\r\nhello",
        b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x00garbage\r\n\r\n",
    ],
)
@pytest.mark.parametrize("path", [b"GET /livez", b"POST /v1/locks/acquire"])
async def test_garbage_is_answered_and_not_logged_as_ours(
    sent: bytes, path: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Bodies that cannot be read get an answer, and there is no traceback in the log."""
    caplog.set_level(logging.DEBUG)
    async with serving() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(path + b" HTTP/1.1\r\nHost: x\r\nHoldfast-Timeout-Ms: 50\r\n" + sent)
        async with asyncio.timeout(30):
            assert (await reader.readline()).split(b" ")[1][:1] in {b"1", b"2", b"4"}
        writer.close()
        assert (await served.call("GET", wire.LIVEZ)).status == 200
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]


@pytest.mark.parametrize("expected", [b"200-ok", b"100-continue, 200-ok"])
async def test_only_one_thing_may_be_expected(expected: bytes) -> None:
    """A client that waits for something else learns that nobody does it; the body is not waited for."""
    async with serving() as served:
        got = await served.raw(
            request("POST /v1/locks/acquire", b"") % (b"Expect: %s\r\nX-Y: 1\r\n" % expected)
        )
        assert got.startswith(b"HTTP/1.1 417 ")
        assert b"\r\nConnection: close\r\n" in got
