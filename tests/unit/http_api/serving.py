"""A real server on a free port, and clients with real sockets."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

import aiohttp
from aiohttp import web

from holdfast import token_lines, wire
from http_api.app import build_server
from http_api.server.authentication import Authentication, KnownPrincipals
from http_api.server.callers import Callers
from http_api.server.connection_limits import PlaceLimits
from http_api.server.request_rates import RequestRates
from http_api.server.start_gate import StartGate
from http_api.server.tls_gate import TlsDoor
from lockapi.allowed_names import allowed
from lockapi.gateway import Gateway
from tests.support import http_contract
from tests.support.local_node import LocalNode

REQUEST_TIMEOUT_MS = 5_000
ROOM = PlaceLimits(count_max=1000)


class Got(NamedTuple):
    """An answer, read to its end."""

    status: int
    body: Any
    headers: Any


def check_problem(got: Got, status: int, code: str, outcome: str = "not-applied") -> None:
    """Check the form of a problem document."""
    assert (got.status, got.body["code"], got.body["outcome"]) == (status, code, outcome)
    assert got.headers["Content-Type"] == wire.PROBLEM_JSON
    assert tuple(got.body)[: len(http_contract.PROBLEM_FIELDS)] == http_contract.PROBLEM_FIELDS
    assert set(got.body) <= {*http_contract.PROBLEM_FIELDS, *http_contract.PROBLEM_EXTRA_FIELDS}
    assert got.body["status"] == status
    assert got.body["type"] == wire.PROBLEM_TYPE_PREFIX + code
    assert got.body["request_id"] == got.headers[wire.HEADER_REQUEST_ID]
    assert got.body["title"]
    assert got.body["detail"]


def principals_of(authentication: Authentication, tokens: bytes) -> KnownPrincipals:
    """Return the principals of the lines of a tokens file."""
    return KnownPrincipals(authentication.gateway, token_lines.parse(tokens))


def token_line(name: str, token: str, rights: str) -> bytes:
    """Return a line of a tokens file."""
    digest = token_lines.digest(token.encode()).hex()
    return f"{name} sha256:{digest} {rights}\n".encode()


def bearer(token: str) -> dict[str, str]:
    """Return the header of a call with this token."""
    return {wire.HEADER_AUTHORIZATION: f"{wire.BEARER} {token}"}


class Served:
    """A node and its server."""

    def __init__(
        self,
        node: LocalNode,
        runner: web.ServerRunner,
        session: aiohttp.ClientSession,
        trust: ssl.SSLContext | None = None,
        authentication: Authentication | None = None,
    ) -> None:
        self.authentication = authentication or Authentication(Gateway(node))
        self.node, self.runner, self._session, self.trust = node, runner, session, trust
        self.port: int = runner.addresses[0][1]

    async def call(self, method: str, path: str, body: Any = None, **options: Any) -> Got:
        """Send JSON, or `data=` as it is; return the answer, parsed when it is JSON."""
        if body is not None:
            options["json"] = body
        scheme = "http" if self.trust is None else "https"
        async with self._session.request(
            method, f"{scheme}://127.0.0.1:{self.port}{path}", ssl=self.trust or True, **options
        ) as response:
            raw = await response.read()
            is_json = "json" in response.headers["Content-Type"]
            return Got(response.status, json.loads(raw) if is_json and raw else raw, response.headers)

    def know(self, tokens: bytes) -> None:
        """Exchange the principals, as a node does that has read its tokens file."""
        self.authentication.principals = principals_of(self.authentication, tokens)

    async def acquire(self, name: str, **fields: Any) -> Got:
        """Acquire a lock with a lease of its own, unless told otherwise."""
        owned = {} if "session_id" in fields else {"ttl_ms": 60_000}
        return await self.call("POST", "/v1/locks/acquire", {"name": name, **owned, **fields})

    async def post(self, path: str, **fields: Any) -> Got:
        """Send a write."""
        return await self.call("POST", path, fields)

    async def session(self, **fields: Any) -> str:
        """Open a session and return its id."""
        got = await self.post(wire.SESSIONS, **{"ttl_ms": 60_000, **fields})
        assert got.status == 201
        return str(got.body["session_id"])

    def draw(self, newest: int) -> None:
        """Let this be the newest token that was granted."""
        self.node.machine.state.next_token = newest + 1

    async def raw(self, sent: bytes) -> bytes:
        """Send bytes on a connection of their own and return all that comes back."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.trust)
        try:
            writer.write(sent)
            return await asyncio.wait_for(reader.read(), 10)
        finally:
            writer.close()


async def until(condition: Callable[[], object]) -> None:
    """Wait until `condition` holds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event to tell of it
            await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def serving(
    room_limits: PlaceLimits = ROOM,
    callers: Callers | None = None,
    *,
    fast_lane: bool = True,
    tls: TlsDoor | None = None,
    trust: ssl.SSLContext | None = None,
    tokens: bytes | None = None,
    allow_priority: Sequence[str] = (),
    allow_no_deadline: Sequence[str] = ("batch",),
    rates: RequestRates | None = None,
    gate: StartGate | None = None,
) -> AsyncIterator[Served]:
    """Run a server for the length of a test; with `tls` its clients use `trust`.

    `tokens` are the lines of a tokens file.
    """
    node = LocalNode()
    authentication = Authentication(Gateway(node, allowed=allowed(allow_priority, allow_no_deadline)))
    if tokens is not None:
        authentication.principals = principals_of(authentication, tokens)
    server = build_server(
        node,
        REQUEST_TIMEOUT_MS,
        room_limits,
        callers,
        fast_lane=fast_lane,
        tls=tls,
        authentication=authentication,
        rates=rates,
        gate=gate,
    )
    runner = web.ServerRunner(server, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with aiohttp.ClientSession() as session:
            yield Served(node, runner, session, trust, authentication)
    finally:
        await runner.cleanup()
        node.close()
