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

_LOOK_S: Final = 1.0
"""Seconds between two looks for connections that have been quiet for too long."""
_LATE_S: Final = 1.0
"""Seconds by which a look that comes late ends nothing: what clients have sent meanwhile is read first."""
_NO_KEEPALIVE_S: Final = 10 * 24 * 3600.0
"""aiohttp's own time for idle connections, which must not come before that of the room."""


class _Protocol(RequestHandler):
    """A connection. Bytes that are not HTTP are answered with a problem, and logs do not quote them."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; for a probe only, if the journal could run out of descriptors with one more."""
        server = cast("_Server", self._manager)
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self.place = server.room.come(self, str(peer[0]) if peer else "")
        server.watch()

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request."""
        self.place.heard()
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End."""
        self.place.gone()
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
    _look_handle: asyncio.TimerHandle | None = None

    def __call__(self) -> RequestHandler:
        """Make the protocol of a new connection."""
        loop = asyncio.get_running_loop()
        return _Protocol(
            self,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # ours logs
            keepalive_timeout=_NO_KEEPALIVE_S,
            auto_decompress=False,
            lingering_time=0,  # a body that nobody asked for is dropped in call.py, as far as it helps
        )

    def watch(self) -> None:
        """Look after connections, as long as there are any."""
        if self._look_handle is None:
            loop = asyncio.get_running_loop()
            self._look_handle = loop.call_later(_LOOK_S, self._look, loop.time() + _LOOK_S)

    def _look(self, due_s: float) -> None:
        self._look_handle = None
        if asyncio.get_running_loop().time() - due_s < _LATE_S:
            self.room.look()
        if not self.room.is_empty:
            self.watch()


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
        call.place = cast("_Protocol", protocol).place
        call.place.begin()
        return call

    server = _Server(front.handle, request_factory=make_call, handler_cancellation=True)
    server.room = room
    return server
