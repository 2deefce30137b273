"""The connections of a client: one pool for the event loop that runs, and none that another process has."""

import asyncio
import os
import warnings
import weakref
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import aiohttp

CONNECT_S_MAX = 2.0
"""Seconds that a connection may take: a node that is slower is as good as down."""


class Connections:
    """Gives out the HTTP session of the running loop, and makes it when it is missing.

    A client may live longer than its loop, as with one `asyncio.run` after the other: connections belong to
    one loop and end with it. After a fork the child begins without any.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._http: aiohttp.ClientSession | None = None
        self._opened: AsyncGenerator[aiohttp.ClientSession] | None = None
        _all.add(self)

    async def session(self) -> aiohttp.ClientSession:
        """Return the session of the running loop."""
        loop = asyncio.get_running_loop()
        if self._http is None or self._loop is not loop or self._http.closed:
            self._loop = loop
            # Letting go of the generator of another loop makes that loop close it.
            self._opened = _open()
            self._http = await anext(self._opened)
        return self._http

    async def close(self) -> None:
        """Close the connections of the running loop; those of another one end with it."""
        opened, self._opened, self._http = self._opened, None, None
        if opened is not None and self._loop is asyncio.get_running_loop():
            await opened.aclose()

    def forget(self) -> None:
        """Leave all connections to the parent, in a process that was just forked."""
        if self._http is not None and self._http.connector is not None:
            self._http.detach()
        if self._opened is not None:
            _of_parents.append(self._opened)
        self._http = self._opened = None


async def _open() -> AsyncGenerator[aiohttp.ClientSession]:
    """Open a session. It is closed with the generator, which a loop does at its end if nobody did before."""
    tracing = aiohttp.TraceConfig()
    tracing.on_request_headers_sent.append(_note_sent)
    session = aiohttp.ClientSession(
        connector=_Connector(),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S_MAX),
        trace_configs=[tracing],
    )
    try:
        yield session
    finally:
        await session.close()


class Sending:
    """Whether a request has begun to go out: given as `trace_request_ctx`.

    An error does not say it. The library sends a DELETE again whose connection broke, and it is the second
    one that finds nobody there.
    """

    was_sent = False


async def _note_sent(
    session: aiohttp.ClientSession,
    context: SimpleNamespace,
    parameters: aiohttp.TraceRequestHeadersSentParams,
) -> None:
    del session, parameters
    context.trace_request_ctx.was_sent = True


class _Connector(aiohttp.TCPConnector):
    """A pool that a forked child does not close when it collects its copy.

    Closing would take the parent's sockets out of the epoll set that parent and child share.
    """

    def __init__(self) -> None:
        # No limit on connections: a waiting acquire occupies one, and must not keep a renewal waiting.
        super().__init__(limit=0)
        self._pid = os.getpid()

    def __del__(self, _warnings: Any = warnings) -> None:
        if self._pid == os.getpid():
            super().__del__(_warnings)


_all: "weakref.WeakSet[Connections]" = weakref.WeakSet()
_of_parents: list[AsyncGenerator[aiohttp.ClientSession]] = []
"""Kept, so that a child does not ask the loop that it has a copy of to close them."""


def _forget_all() -> None:
    for connections in list(_all):
        connections.forget()


os.register_at_fork(after_in_child=_forget_all)
