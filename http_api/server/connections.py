"""The HTTP server: accepts connections, parses requests, and hands each to the front (`middleware.py`).

It is aiohttp's low-level server: the Application layer would cost as much time per request as all the rest of
this package.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import StreamWriter, WebSocketReader
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from holdfast import wire
from http_api.server.call import UNDRAINED_BYTES_MAX, Call, until_read
from http_api.server.connection_limits import ConnectionPlaces, Place
from http_api.server.fast_lane import FastLane, LaneCall
from http_api.server.masked_frames import MaskedFrames
from http_api.server.middleware import Front, problem_reply
from http_api.server.peer_address import address_of
from http_api.server.refusals import CallRefused
from http_api.server.tls_gate import TlsDoor, TlsGate

_LOOK_S: Final = 1.0
"""Seconds between two looks for connections that have been quiet for too long."""
_LATE_S: Final = 1.0
"""Seconds by which a look that comes late ends nothing: what clients have sent meanwhile is read first."""
_NO_KEEPALIVE_S: Final = 10 * 24 * 3600.0
"""aiohttp's own time for idle connections, which must not come before that of the room."""


_HELD_BYTES_MAX: Final = 64 * 1024
"""Bytes behind a call in the fast lane that are kept until its answer; then reading stops until it."""
_SEEN_OF_AIOHTTP: Final = frozenset({"_waiter", "_close"})
"""What the fast lane looks at in aiohttp's connection. Where it is missing there is no lane."""


class _Protocol(RequestHandler):
    """A connection. Bytes that are not HTTP are answered with a problem, and logs do not quote them.

    Its owner and parser is aiohttp. As long as all that came were plain requests, and aiohttp is waiting for
    the next one, the fast lane may take that: aiohttp never hears of it. The first byte that is anything else
    leaves the connection to aiohttp for good, because nothing here knows then where a request begins.
    """

    place_taken: Place | None = None
    """What this connection has already, if it began with a TLS handshake."""
    _lane_call: LaneCall | None = None
    _lane_idle: "asyncio.Future[None] | None" = None
    _reading: "asyncio.Task[None] | None" = None
    _held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; for a probe only, if the journal could run out of descriptors with one more."""
        server = cast("HttpServer", self._manager)
        super().connection_made(transport)
        if self.place_taken is None:
            self.place = server.room.come(self, address_of(transport))
        else:
            self.place = self.place_taken
            self.place.connection = self
        self._lane = server.lane if self.place.refused is None else None
        server.watch()

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request."""
        if self._lane_call is not None:
            self._hold(data)
            return
        lane = self._lane
        if lane is not None and data:
            asked = lane.read(data)
            if asked is None:
                self._lane = None
            elif self._is_waiting():
                self._lane_call = lane.take(asked, self)
                if self._lane_call is not None:
                    self.place.begin()
                    self._lane_call.begin()
                    return
        self.place.heard()
        super().data_received(data)

    def set_parser(self, parser: WebSocketReader, data_received_cb: Callable[[], None] | None = None) -> None:
        """Begin a WebSocket.

        aiohttp took the upgrade for declined, because it is the reply that accepts it (`Reply.prepare`), and
        not the handler. Who pauses reading would wake its parser of requests then, which fails.
        """
        self._upgraded = True
        super().set_parser(cast("WebSocketReader", MaskedFrames(parser)), data_received_cb)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End."""
        self.place.gone()
        if self._lane_call is not None:
            self._lane_call.leave()
            self._lane_ended()
        if self._reading is not None:
            self._reading.cancel()
        super().connection_lost(exc)

    async def shutdown(self, timeout: float | None = 15.0) -> None:  # noqa: ASYNC109 - aiohttp's
        """Let the call in the lane have its answer first, as aiohttp does with its own."""
        if self._lane_call is not None:
            self._lane_idle = asyncio.get_running_loop().create_future()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._lane_idle
        await super().shutdown(timeout)

    # -- the fast lane --------------------------------------------------------------------------------------

    def _is_waiting(self) -> bool:
        """Whether aiohttp waits for the next request, and the client has read all answers."""
        waiter, transport = self._waiter, self.transport
        return (
            waiter is not None
            and not waiter.done()
            and transport is not None
            and not transport.get_write_buffer_size()
        )

    def _hold(self, data: bytes) -> None:
        """Keep what comes behind a call in the lane: answers have the order of the requests."""
        self._held += data
        if len(self._held) > _HELD_BYTES_MAX and self.transport is not None:
            self.transport.pause_reading()

    @property
    def is_open(self) -> bool:
        """Whether an answer can still be sent."""
        return self.transport is not None and not self.transport.is_closing()

    def lane_answered(self, answer: bytes, *, is_kept: bool) -> None:
        """Send the answer of the call that the lane has; without `is_kept` the connection ends behind it."""
        transport = self.transport
        assert transport is not None, "a call asks before it answers"
        transport.write(answer)
        if not is_kept or self._close:
            self.place.rest()
            self._held = b""
            self._lane_ended()
            self.force_close()
        elif transport.get_write_buffer_size() > UNDRAINED_BYTES_MAX:
            self._reading = asyncio.get_running_loop().create_task(self._until_read())
        else:
            self._lane_rests()

    async def _until_read(self) -> None:
        """Wait until the client has read most of an answer, or end the connection."""
        with contextlib.suppress(ConnectionError):
            await until_read(StreamWriter(self, asyncio.get_running_loop()), self.place)
            self._reading = None
            self._lane_rests()

    def _lane_rests(self) -> None:
        """Begin to wait for the next request, or go on with what has come already."""
        self._lane_ended()
        transport = self.transport
        if transport is None:
            return
        self.keep_alive(True)  # the room knows how long a connection may rest; aiohttp did not see the call
        self.place.rest()
        held, self._held = self._held, b""
        if len(held) > _HELD_BYTES_MAX:
            transport.resume_reading()
        if held:
            self.data_received(held)

    def _lane_ended(self) -> None:
        self._lane_call = None
        if self._lane_idle is not None and not self._lane_idle.done():
            self._lane_idle.set_result(None)

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


class HttpServer(web.Server):
    """A server of such connections, as many as `room` has place for."""

    room: ConnectionPlaces
    lane: FastLane | None
    tls: TlsDoor | None
    _look_handle: asyncio.TimerHandle | None = None

    def use_lane(self, lane: FastLane | None) -> None:
        """Let connections that come from now on use `lane`."""
        self.lane = lane if set(RequestHandler.__slots__) >= _SEEN_OF_AIOHTTP else None

    def __call__(self) -> RequestHandler:
        """Make the protocol of a new connection; with TLS, what comes before it."""
        if self.tls is not None:
            self.watch()
            # aiohttp hands it to the loop, which takes any protocol.
            return cast("RequestHandler", TlsGate(self.tls, self.room, self._admit))
        return self.without_tls()

    def _admit(self, place: Place) -> asyncio.Protocol:
        """Make the protocol of a client whose handshake is complete."""
        protocol = self.without_tls()
        protocol.place_taken = place
        return protocol

    def without_tls(self) -> "_Protocol":
        """Make the protocol of a connection that has no handshake, or has it behind it."""
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


def make_server(
    front: Front, room: ConnectionPlaces, lane: FastLane | None, tls: TlsDoor | None = None
) -> HttpServer:
    """Return a server whose calls `front` answers, or `lane` before it, with `room` for connections.

    With `tls` it speaks nothing else. Needs a running loop.
    """
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

    server = HttpServer(front.handler, request_factory=make_call, handler_cancellation=True)
    server.room = room
    server.tls = tls
    server.use_lane(lane)
    return server
