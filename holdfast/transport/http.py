"""The connections of a client: one pool for the event loop that runs, and none that another process has.

It is imported when the first request is sent: the import of aiohttp takes longer than that of all the rest.
"""

import asyncio
import os
import socket
import ssl
import sys
import warnings
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import aiohttp
from aiohttp.abc import ResolveResult
from yarl import URL

from holdfast import wire
from holdfast._version import __version__
from holdfast.operations.exchange import Attempt
from holdfast.operations.node_urls import request_url, socket_path
from holdfast.operations.sending import NoAnswer, NoStream, NoTrust, Sending
from holdfast.transport.access import Access
from holdfast.transport.tls import Trust, verdict_of
from holdfast.values.process import after_fork

CONNECT_S_MAX = 2.0
"""Seconds that a connection may take: a node that is slower is as good as down."""


TLS_REQUIRED = "tls-required"
"""The code with which a port that speaks only TLS answers a request without it."""

CLOSE_S_MAX = 1.0
"""Seconds that a node has to say goodbye on a WebSocket."""


class _Pool(NamedTuple):
    """A session, and what closes it."""

    opened: AsyncGenerator[aiohttp.ClientSession]
    http: aiohttp.ClientSession


class Connections:
    """Sends attempts over the HTTP session of the running loop, which it makes when it is missing.

    A client may live longer than its loop, as with one `asyncio.run` after the other: connections belong to
    one loop and end with it. After a fork the child begins without any.
    """

    def __init__(
        self,
        new_connector: "Callable[[], Connector] | None" = None,
        *,
        trust: Trust | None = None,
        access: Access | None = None,
    ) -> None:
        """Connect to where URLs lead, unless `new_connector` makes another pool for each loop.

        `trust` judges the nodes whose URLs are https://; `access` says who calls.
        """
        self._access = access
        self._trust = trust
        self._new_connector = new_connector or Connector
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pools: dict[str, _Pool] = {}
        """By the path of the Unix socket that it leads to; "" for the one that connects over TCP."""
        _all.add(self)

    async def send(self, url: str, attempt: Attempt, sending: Sending) -> tuple[int, bytes]:
        """Make one attempt at a node; return status and body of the answer. Raises NoAnswer."""
        http = await self.session(url)
        try:
            async with (
                asyncio.timeout(attempt.give_up_s),
                http.request(
                    attempt.method,
                    _as_written(url, attempt.path),
                    data=attempt.body or None,
                    headers=self._headers({**attempt.headers, **trace_headers()}),
                    allow_redirects=False,
                    ssl=self._ssl(),
                    trace_request_ctx=sending,
                ) as response,
            ):
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _no_answer(url, error, "no answer in time") from error
        if _is_of_tls_port(response.status) and TLS_REQUIRED.encode() in body:
            raise _tls_required(url)
        return response.status, body

    async def stream(
        self, url: str, path: str, headers: dict[str, str], silence_s: float
    ) -> AsyncGenerator[tuple[int, bytes]]:
        """Ask a node for a stream; yield its status, with what came of the body, again and again.

        Raises NoAnswer when it breaks, also when nothing comes for `silence_s`; returns at its end.
        """
        http = await self.session(url)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S_MAX, sock_read=silence_s)
        try:
            async with http.get(
                request_url(url, path),
                headers=self._headers(headers),
                timeout=timeout,
                allow_redirects=False,
                ssl=self._ssl(),
            ) as response:
                if _is_of_tls_port(response.status) and TLS_REQUIRED.encode() in await response.read():
                    raise _tls_required(url)
                yield response.status, b""
                async for chunk in response.content.iter_any():
                    yield response.status, chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _no_answer(url, error, "the stream fell silent") from error

    async def socket(
        self, url: str, path: str, headers: dict[str, str], protocol: str
    ) -> aiohttp.ClientWebSocketResponse:
        """Connect a WebSocket to a node. Raises NoAnswer, and NoStream when something else answers there."""
        http = await self.session(url)
        try:
            return await http.ws_connect(
                request_url(url, path),
                protocols=(protocol,),
                headers=self._headers(headers),
                ssl=self._ssl(),
                timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S_MAX),
            )
        except aiohttp.WSServerHandshakeError as error:
            if _is_of_tls_port(error.status):
                raise _tls_required(url) from error
            raise NoStream(f"{url}: {error.message} ({error.status})") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _no_answer(url, error, "no connection") from error

    def _headers(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return the headers of a request with those that say which client this is, and who calls."""
        ours = {"User-Agent": f"holdfast-python/{__version__}", **headers}
        return ours if self._access is None else {**ours, **self._access.headers()}

    def _ssl(self) -> ssl.SSLContext | bool:
        """Return what connections to https:// nodes are made with."""
        return True if self._trust is None else self._trust.context()

    async def session(self, url: str = "") -> aiohttp.ClientSession:
        """Return the session of the running loop that leads to a node of this URL."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # Letting go of the generators of another loop makes that loop close them.
            self._loop, self._pools = loop, {}
        path = socket_path(url)
        pool = self._pools.get(path)
        if pool is None or pool.http.closed:
            opened = _open(_SocketConnector(path) if path else self._new_connector())
            pool = self._pools[path] = _Pool(opened, await anext(opened))
        return pool.http

    async def close(self) -> None:
        """Close the connections of the running loop; those of another one end with it."""
        pools, self._pools = self._pools, {}
        if pools and self._loop is asyncio.get_running_loop():
            for pool in pools.values():
                await pool.opened.aclose()

    def forget(self) -> None:
        """Leave all connections to the parent, in a process that was just forked."""
        for pool in self._pools.values():
            if pool.http.connector is not None:
                pool.http.detach()
            _of_parents.append(pool.opened)
        self._pools = {}


def trace_headers() -> dict[str, str]:
    """Return what makes a request part of the caller's trace, if OpenTelemetry knows of one.

    That is never imported here: a program in which nobody else has done so has no trace. What goes on in the
    background, such as renewals, does not belong to a span that has ended.
    """
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return {}
    span = api.get_current_span()
    context = span.get_span_context()
    if not context.is_valid or getattr(span, "end_time", None) is not None:
        return {}
    ids = f"{context.trace_id:032x}-{context.span_id:016x}"
    headers = {"traceparent": f"00-{ids}-{context.trace_flags:02x}"}
    if context.trace_state:
        headers["tracestate"] = context.trace_state.to_header()
    return headers


def _no_answer(url: str, error: Exception, otherwise: str) -> NoAnswer:
    """Return what an error means for the request."""
    is_connected = not isinstance(error, aiohttp.ClientConnectorError)
    verdict = verdict_of(error, is_connected=is_connected)
    if verdict is None:
        return NoAnswer(f"{url}: {_spoken(error) or otherwise}")
    return NoTrust(f"{url}: {verdict}", was_sent=is_connected)


def _spoken(error: Exception) -> str:
    """Return why there was no answer, in words for people."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "no such host"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return f"no connection: {os.strerror(number) if number else error.os_error}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the connection was closed without an answer"
    return str(error)


def _is_of_tls_port(status: int) -> bool:
    """Whether the status is that of a TLS port's answer to plain HTTP."""
    return status == wire.PROBLEMS[TLS_REQUIRED].status


def _tls_required(url: str) -> NoTrust:
    """Return that nothing was done, and nothing will be done over plain HTTP at this port."""
    return NoTrust(f"{url}: this port speaks only TLS; use https://", was_sent=True)


def _as_written(url: str, path: str) -> URL:
    """Return the URL of a path of which nothing is decoded: an encoded letter tells names from actions."""
    return URL(str(URL(request_url(url, ""))).rstrip("/") + path, encoded=True)


async def _open(connector: aiohttp.BaseConnector) -> AsyncGenerator[aiohttp.ClientSession]:
    """Open a session. It is closed with the generator, which a loop does at its end if nobody did before."""
    tracing = aiohttp.TraceConfig()
    tracing.on_request_headers_sent.append(_note_sent)
    tracing.on_request_redirect.append(_refuse_redirect)
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S_MAX),
        trace_configs=[tracing],
    )
    try:
        yield session
    finally:
        await session.close()


async def _note_sent(
    session: aiohttp.ClientSession,
    context: SimpleNamespace,
    parameters: aiohttp.TraceRequestHeadersSentParams,
) -> None:
    del session, parameters
    sending: Sending | None = context.trace_request_ctx
    if sending is None:
        return
    if sending.is_stopped and not sending.was_sent:
        raise asyncio.CancelledError  # the task is cancelled, and only did not hear of it yet
    sending.sent_count += 1


async def _refuse_redirect(
    session: aiohttp.ClientSession,
    context: SimpleNamespace,
    parameters: aiohttp.TraceRequestRedirectParams,
) -> None:
    """Follow nobody who points elsewhere: only WebSockets would, and with them the token."""
    del session, context
    parameters.response.close()
    raise NoStream(f"{parameters.url}: answered with a redirection")


class _OfItsProcess(aiohttp.BaseConnector):
    """A pool that a forked child does not close when it collects its copy.

    Closing would take the parent's sockets out of the epoll set that parent and child share.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        # No limit on connections: a waiting acquire occupies one, and must not keep a renewal waiting.
        super().__init__(*arguments, limit=0, **options)
        self._pid = os.getpid()

    def __del__(self, _warnings: Any = warnings) -> None:
        if self._pid == os.getpid():
            super().__del__(_warnings)


class Connector(_OfItsProcess, aiohttp.TCPConnector):
    """A pool of connections over TCP."""

    def __init__(self) -> None:
        super().__init__(resolver=_Resolver())


class _SocketConnector(_OfItsProcess, aiohttp.UnixConnector):
    """A pool of connections over one Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__(path)


class _Resolver(aiohttp.ThreadedResolver):
    """Looks names up in a thread; at the end of a process, where none can be begun any more, on the loop."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a host. Raises OSError."""
        try:
            return await super().resolve(host, port, family)
        except RuntimeError:
            here = cast("asyncio.AbstractEventLoop", _WithoutThreads())
            return await aiohttp.ThreadedResolver(here).resolve(host, port, family)


class _WithoutThreads:
    """The calls of an event loop that look names up, which block it."""

    async def getaddrinfo(self, host: str, port: int, **options: Any) -> Any:
        return socket.getaddrinfo(host, port, **options)

    async def getnameinfo(self, address: Any, flags: int = 0) -> tuple[str, str]:
        return socket.getnameinfo(address, flags)


_all: "weakref.WeakSet[Connections]" = weakref.WeakSet()
_of_parents: list[AsyncGenerator[aiohttp.ClientSession]] = []
"""Kept, so that a child does not ask the loop that it has a copy of to close them."""


def _forget_all() -> None:
    for connections in list(_all):
        connections.forget()


after_fork(_forget_all)
