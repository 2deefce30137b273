"""Clients of Redis are served as those of HTTP are: over TLS where there is TLS, in the same room."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

from http_api import redis_face
from http_api.app import build_server
from http_api.server.authentication import Authentication
from http_api.server.request_rates import RequestRates
from http_api.tls_watch import TlsWatch
from lockapi.gateway import Gateway
from tests.support.certificates import Certificates
from tests.support.local_node import LocalNode
from tests.unit.redis_api.test_server import Connected


@contextlib.asynccontextmanager
async def serving(tls: TlsWatch) -> AsyncIterator[int]:
    """Serve clients of Redis over TLS; yield the port."""
    gateway, rates = Gateway(LocalNode()), RequestRates()
    authentication = Authentication(gateway)
    server = build_server(LocalNode(), 5_000, tls=tls.door, authentication=authentication, rates=rates)
    redis, make = redis_face.build(5_000, server, gateway, authentication, rates, starting=str)
    listener = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        await redis.stop(1.0)


async def test_a_node_with_tls_speaks_it_with_clients_of_redis(tmp_path: Path) -> None:
    """A client without it is told so, in words of its own protocol."""
    certificates = Certificates(tmp_path)
    async with serving(TlsWatch(certificates.files(wants_clients=False))) as port:
        trust = ssl.create_default_context(cafile=str(certificates.ca))
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        client = Connected(reader, writer)
        assert await client.ask("SET", "k", "v", "NX", "PX", 30_000) == "+OK"
        for number in range(100):
            client.send("ECHO", number)
        assert [await client.read() for _ in range(100)] == [b"%d" % number for number in range(100)]
        writer.close()
        for begin in (b"*1\r\n$4\r\nPING\r\n", b"PING\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(begin)
            assert await reader.readline() == b"-ERR this port speaks only TLS\r\n"
            writer.close()


async def test_clients_of_redis_may_come_without_tls_while_others_may(tmp_path: Path) -> None:
    """On the way to TLS, both kinds of clients are served with and without it."""
    watch = TlsWatch(Certificates(tmp_path).files(wants_clients=False), takes_plain=True)
    async with serving(watch) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await Connected(reader, writer).ask("PING") == "+PONG"
        writer.close()
