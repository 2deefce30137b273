"""The HTTP server: accepts connections, parses requests, and hands each to the front (`middleware.py`).

It is aiohttp's low-level server: the Application layer would cost as much time per request as all the rest of
this package.
"""

import asyncio
from typing import Final, cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from holdfast import wire
from http_api.server.call import Call
from http_api.server.connection_room import ConnectionRoom
from http_api.server.middleware import Front, problem_reply
from http_api.server.refusals import CallRefused

CONNECTIONS_COUNT_MAX: Final = 50_000
"""Connections of clients at once, if the process may have so many files open."""


class _Protocol(RequestHandler):
    """A connection. Bytes that are not HTTP are answered with a problem, and logs do not quote them."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; for a probe only, if the journal could run out of descriptors with one more."""
        self._room = cast("_Server", self._manager).room
        super().connection_made(transport)
        self.is_spare = self._room.come(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End."""
        self._room.gone(self, is_spare=self.is_spare)
        super().connection_lost(exc)

    def end(self) -> None:
        """Close this connection at once."""
        if self.transport is not None:
            self.transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 400,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - quotes what was sent, which may hold a secret
    ) -> web.StreamResponse:
        """Return the answer to what could not be parsed, and end the connection."""
        assert isinstance(request, Call)
        detail = f"this is not an HTTP request: {type(exc).__name__} ({status})"
        return problem_reply(request, CallRefused("invalid-request", detail, ends_connection=True))


class _Server(web.Server):
    """A server of such connections, as many as `room` has place for."""

    room: ConnectionRoom

    def __call__(self) -> RequestHandler:
        """Make the protocol of a new connection."""
        loop = asyncio.get_running_loop()
        return _Protocol(self, loop=loop, access_log=None)  # type: ignore[arg-type]  # None: ours logs


def make_server(front: Front, room: ConnectionRoom) -> web.Server:
    """Return a server whose calls `front` answers, with `room` for connections. Needs a running loop."""
    loop = asyncio.get_running_loop()

    def make_call(
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> Call:
        call = Call(message, payload, protocol, writer, task, loop, client_max_size=wire.BODY_BYTES_MAX)
        call.is_spare = cast("_Protocol", protocol).is_spare
        return call

    server = _Server(front.handle, request_factory=make_call, handler_cancellation=True)
    server.room = room
    return server
