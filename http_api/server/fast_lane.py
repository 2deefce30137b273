"""The fast lane: the calls that clients make all day, carried out without aiohttp's task, request and reply.

A chunk of bytes that is exactly one plain request (`plain_requests.py`) for a `direct` route, and has nothing
to wait for, becomes its command at once, and its answer is one write. Whatever is refused before there is a
command, and whatever is in doubt, is left to aiohttp with its bytes unchanged: so every refusal of a request
is explained in one place, and the two ways cannot drift apart. They share what decides and what answers:
decoders, gateway, problems, access log.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from cluster import tracing
from cluster.tracing import Span, Tracer
from holdfast import wire
from http_api.server import answer_bytes, call_ids, plain_requests
from http_api.server.access_log import AccessLog, log_failure
from http_api.server.answer_bytes import Content
from http_api.server.authentication import Authentication
from http_api.server.call import timeout_s_of
from http_api.server.callers import Callers
from http_api.server.connection_limits import Place
from http_api.server.plain_requests import PlainHead
from http_api.server.refusals import CallRefused
from http_api.server.request_rates import RequestRates, caller_of
from http_api.server.routes import Route, Router
from lockapi import problems
from lockapi.gateway import Gateway
from lockapi.node import Begun

_HEADS_MAX: Final = 512
"""Heads that are remembered, so that those of busy clients are read once."""


class LaneConnection(Protocol):
    """A connection, as the fast lane sees it."""

    @property
    def is_open(self) -> bool:
        """Whether an answer can still be sent."""
        ...

    @property
    def place(self) -> Place:
        """Return what is known of it."""
        ...

    @property
    def transport(self) -> asyncio.Transport | None:
        """Return its transport, None when it is gone."""
        ...

    def lane_answered(self, answer: bytes, *, is_kept: bool) -> None:
        """Send the answer of the call that the lane has; without `is_kept` the connection ends behind it."""
        ...


class Fit(NamedTuple):
    """What was made of a plain head: how long its body is, and the route, if the lane may take it."""

    length: int
    route: Route | None
    timeout_s: float


class PlainRequest(NamedTuple):
    """One whole plain request."""

    fit: Fit
    path_id: str
    request_id: str
    token: bytes
    body: bytes
    traceparent: str
    tracestate: str


class FastLane:
    """Reads plain requests and carries out those that it may. One for all connections of a server."""

    def __init__(
        self,
        authentication: Authentication,
        router: Router,
        access_log: AccessLog,
        request_timeout_ms: int,
        callers: Callers,
        *,
        rates: RequestRates,
        decode: Callable[[bytes, type[Any]], Any],
        tracer: Tracer | None = None,
    ) -> None:
        """Answer `callers` as the front does, within `rates`; `decode` reads a body, or raises.

        With a `tracer` calls are recorded.
        """
        self._authentication = authentication
        self.trace = authentication.trace
        self.node = authentication.gateway.node
        self.access_log = access_log
        self._router = router
        self._timeout_s = request_timeout_ms / 1000
        self._callers = callers
        self._rates = rates
        self._decode = decode
        self.tracer = tracer
        self._fits: dict[bytes, Fit] = {}

    def read(self, data: bytes) -> PlainRequest | None:
        """Return the plain request that `data` is as a whole, None if it is anything else."""
        parts = plain_requests.split(data)
        if parts is None:
            return None
        head, path_id, request_id, token, body, traceparent, tracestate = parts
        fit = self._fits.get(head)
        if fit is None:
            plain = plain_requests.read_head(head)
            if plain is None:
                return None
            if len(self._fits) >= _HEADS_MAX:
                self._fits.clear()
            fit = self._fits[head] = self._fit(plain)
        if len(body) != fit.length:
            return None
        return PlainRequest(fit, path_id, request_id, token, body, traceparent, tracestate)

    def _fit(self, plain: PlainHead) -> Fit:
        """Return what is to be done with requests that have this head."""
        route, timeout_s = self._router.direct(plain.method, plain.target), self._timeout_s
        if plain.media_type not in (None, wire.JSON):
            route = None
        try:
            self._callers.check_host(plain.host)
            if plain.timeout_ms is not None:
                timeout_s = timeout_s_of(plain.timeout_ms)
        except CallRefused:
            route = None  # the front says why
        return Fit(plain.length, route, timeout_s)

    def take(self, asked: PlainRequest, connection: LaneConnection) -> "LaneCall | None":
        """Return the call that was asked for, to be begun; None if it is not for the lane."""
        route = asked.fit.route
        if route is None or route.takes is None or route.direct is None or not asked.body:
            return None
        if route.has_part is not bool(asked.path_id):
            return None
        if self.node.is_shutting_down:
            return None
        started_s = time.monotonic()
        try:
            gateway = self._authentication.caller(asked.token, connection.place, connection.transport)
            if connection.place.refused is not None:
                return None
            route.need.check(gateway.rights)
            request = self._decode(asked.body, route.takes)
            make = route.direct.command
            command = make(request, asked.path_id) if route.has_part else make(request)
        except Exception:  # noqa: BLE001 - whatever is wrong with it, the front finds it as well, and says it
            return None
        if getattr(command, "wait_ms", 0):
            return None
        if not self._rates.has_taken(caller_of(gateway, connection.place)):
            return None
        call_id = asked.request_id or (call_ids.of_command(request.request_id) if request.request_id else "")
        return LaneCall(
            self, gateway, connection, asked, command=command, call_id=call_id, started_s=started_s
        )


class LaneCall:
    """One call on its way through the lane."""

    __slots__ = (
        "_begun",
        "_call_id",
        "_command",
        "_connection",
        "_gateway",
        "_lane",
        "_route",
        "_span",
        "_started_s",
        "_timeout_s",
        "_traceparent",
    )

    def __init__(
        self,
        lane: FastLane,
        gateway: Gateway,
        connection: LaneConnection,
        asked: PlainRequest,
        *,
        command: Any,
        call_id: str,
        started_s: float,
    ) -> None:
        fit = asked.fit
        assert fit.route is not None, "the lane takes no others"
        self._gateway = gateway
        self._lane, self._route, self._command = lane, fit.route, command
        self._connection: LaneConnection | None = connection
        self._call_id = call_id
        self._timeout_s, self._started_s = fit.timeout_s, started_s
        self._begun: Begun | None = None
        self._traceparent = asked.traceparent
        self._span: Span | None = None
        if lane.tracer is not None:
            self._span = lane.tracer.of_call(asked.traceparent, asked.tracestate)

    @property
    def trace_id(self) -> str:
        """Return the id of the trace of which it is a part, "" if there is none."""
        return tracing.trace_id_of(self._span, self._traceparent)

    def begin(self) -> None:
        """Hand the command over, or answer at once why not."""
        token = None if self._span is None else tracing.current.set(self._span)
        try:
            self._begun = self._gateway.begin(self._command, self._timeout_s)
        except Exception as exc:  # noqa: BLE001 - a call is answered, whatever happens
            assert self._connection is not None, "it has just been read"
            self._lane.trace.note(
                exc,
                self._connection.transport,
                principal=self._gateway.principal.name,
                method=self._route.method,
                route=self._route.path,
                request_id=self._named(),
            )
            self._answer(self._problem(exc))
        else:
            self._begun.add_done_callback(self._on_outcome)
        finally:
            if token is not None:
                tracing.current.reset(token)

    def leave(self) -> None:
        """Let the client go: it hears of no outcome. What it would have been granted is given back."""
        if self._connection is not None and self._begun is not None:
            self._connection = None
            self._gateway.abandon(self._command, self._begun)
            self._end_span("client-gone")

    def _on_outcome(self, begun: Begun) -> None:
        """Answer. The outcome has to be taken even if the client left; its connection tells of that."""
        direct = self._route.direct
        assert direct is not None, "the lane takes no others"
        try:
            outcome = self._gateway.outcome(self._command, begun, direct.gives)
            content = Content(direct.encoded(outcome))
        except Exception as exc:  # noqa: BLE001 - as above
            if self._connection is None:
                return
            content = self._problem(exc)
        if self._connection is not None and self._connection.is_open:
            self._answer(content)

    def _problem(self, exc: Exception) -> Content:
        content = answer_bytes.of_problem(exc, self._named())
        if content.is_internal:
            log_failure(exc, self._call_id, self)
        if self._span is not None:
            self._span.failed(problems.of_exception(exc).code)
        return content

    def _end_span(self, error: str = "") -> None:
        if self._span is not None and self._lane.tracer is not None:
            self._lane.tracer.end(self._span, error)

    def _named(self) -> str:
        """Return the id of this call. One that brought none gets its number when it is needed."""
        if not self._call_id:
            self._call_id = call_ids.new()
        return self._call_id

    def _answer(self, content: Content) -> None:
        connection, lane, route = self._connection, self._lane, self._route
        assert connection is not None, "a call is answered once"
        self._connection = None
        call_id, is_kept = self._named(), not lane.node.is_shutting_down
        principal = self._gateway.principal.name
        lane.access_log.answered(
            route.method,
            route.path,
            content.status,
            call_id,
            self._started_s,
            principal=principal,
            transport=connection.transport,
            call=self,
        )
        if self._span is not None:
            self._span.answered(route.method, route.path, content.status, call_id)
            self._end_span()
        lines = content.lines + answer_bytes.length_lines(content.body, is_kept=is_kept)
        head = answer_bytes.head(content.status, content.media_type, lines, call_id)
        connection.lane_answered(head + content.body, is_kept=is_kept)
