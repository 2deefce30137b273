"""A real node behind its server, and clients of its streams."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from aiohttp import web

from cluster.config import load
from cluster.node import Node
from http_api.app import build_server
from http_api.server.authentication import Authentication
from http_api.server.tls_gate import TlsDoor
from lockapi.allowed_names import allowed
from lockapi.gateway import Gateway
from tests.support.stream_client import Stream
from tests.unit.http_api.serving import principals_of, until

TIMEOUT_S: Final = 20.0
"""Seconds that a test may take."""


class Streamed:
    """A node behind its server."""

    def __init__(
        self, node: Node, port: int, authentication: Authentication, trust: ssl.SSLContext | None = None
    ) -> None:
        self.node, self.port, self.authentication, self._trust = node, port, authentication, trust

    def stream(self, form: str = "msgpack", token: str = "") -> Stream:
        """Return a client that is not connected yet."""
        return Stream(self.port, form, token, trust=self._trust)

    def again(self, before: Stream) -> Stream:
        """Return another connection of a client's session."""
        again = Stream(self.port, trust=self._trust)
        again.session_id, again.next = before.session_id, before.next
        return again


@contextlib.asynccontextmanager
async def streamed(
    tmp_path: Path, tokens: bytes = b"", *, tls: TlsDoor | None = None, trust: ssl.SSLContext | None = None
) -> AsyncIterator[Streamed]:
    """Run a cluster of one node, by the newest rules; `tokens` are the lines of its tokens file.

    With `tls` its clients use `trust`.
    """
    node = Node(load([f"--data-dir={tmp_path / 'data'}", "--node-id=n1", "--http=127.0.0.1:0"], {}))
    await node.start()
    authentication = Authentication(Gateway(node, allowed=allowed(no_deadline=["batch"])))
    if tokens:
        authentication.principals = principals_of(authentication, tokens)
    server = build_server(node, 5_000, tls=tls, authentication=authentication)
    runner = web.ServerRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await until(lambda: node.parts.replica.may_propose)
            yield Streamed(node, runner.addresses[0][1], authentication, trust)
    finally:
        node.begin_shutdown()
        await runner.cleanup()
        await node.stop()
