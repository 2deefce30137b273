"""What happens around every call: deadline, problems, request id, access log, counts. One wrapper for all."""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from aiohttp import web

from cluster import tracing
from cluster.tracing import Tracer
from holdfast import wire
from http_api.server import answer_bytes
from http_api.server.access_log import AccessLog, log_failure
from http_api.server.authentication import Authentication
from http_api.server.call import Call, Reply
from http_api.server.callers import Callers
from http_api.server.connection_limits import ConnectionRefusal
from http_api.server.heads import check_head
from http_api.server.request_rates import RequestRates, caller_of
from http_api.server.routes import Route, Router
from http_api.server.start_gate import StartGate
from lockapi import problems
from lockapi.gateway import Gateway
from lockapi.problems import ProblemError

_PROBES: Final = frozenset({wire.LIVEZ, wire.READYZ, wire.METRICS})
"""What is answered even when clients have all connections that they may have."""
_RETRY_MS: Final = 1_000
"""After which a client may try again that got no connection of its own."""
_NO_ROOM: Final = {
    ConnectionRefusal.FULL: "this node has as many connections as its limit of open files allows:"
    " ask another one",
    ConnectionRefusal.ADDRESS: "your address has reached its bound on connections:"
    " close some, or ask another node",
    ConnectionRefusal.PRINCIPAL: "you have reached the bound of a principal on connections:"
    " close some, or ask another node",
}


class Front:
    """Answers calls. Whatever happens, there is an answer, and it says what happened."""

    def __init__(
        self,
        authentication: Authentication,
        router: Router,
        access_log: AccessLog,
        request_timeout_ms: int,
        callers: Callers,
        *,
        rates: RequestRates,
        gate: StartGate,
        tracer: Tracer | None = None,
    ) -> None:
        """Answer `callers` that `authentication` knows, in `request_timeout_ms` unless a call says else.

        Of each of them only so many calls are taken in a second as `rates` allow; probes always are. Nothing
        reaches the node before the `gate` is open. With a `tracer` calls are recorded.
        """
        self._authentication = authentication
        self._node = authentication.gateway.node
        self._router = router
        self._log = access_log
        self._callers = callers
        self._rates = rates
        self._gate = gate
        self._timeout_s = request_timeout_ms / 1000
        self._tracer = tracer

    @property
    def handler(self) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
        """Return what answers calls."""
        return self.handle if self._tracer is None else partial(self._handle_traced, self._tracer)

    async def _handle_traced(self, tracer: Tracer, call: web.BaseRequest) -> web.StreamResponse:
        """Answer one call, and record it if it is to be. Probes, which come all day, never are.

        What lasts, a stream or a watch, is recorded up to its first bytes: what is asked on it later is not a
        part of that.
        """
        assert isinstance(call, Call)
        if call.raw_path not in _PROBES:
            call.span = tracer.of_call(*call.trace_headers)
        span = call.span
        if span is None:
            return await self.handle(call)
        token = tracing.current.set(span)
        try:
            return await self.handle(call)
        finally:
            tracing.current.reset(token)
            tracer.end(span, "" if tracing.STATUS in span.attributes else "client-gone")

    async def handle(self, call: web.BaseRequest) -> web.StreamResponse:
        """Answer one call. Cancelled when the client goes away."""
        assert isinstance(call, Call)
        started_s = time.monotonic()  # the loop's own clock may count in whole milliseconds
        principal = ""
        method = path = "-"  # logs and counts take the route's: the call's may hold a session id
        try:
            self._callers.check(call)
            check_head(call)
            route = self._router.resolve(call)
            method, path = route.method, route.path
            _check_room(call, path)
            call.read_timeout(self._timeout_s)
            gateway = self._admit(route, call)
            _check_room(call, path)  # a principal has a share of it
            principal = gateway.principal.name
            if path not in _PROBES:
                self._rates.take(caller_of(gateway, call.place), route.need)
            call.rates = self._rates
            route.need.check(gateway.rights)
            reply = self._gate.answer(path, call) or await route.handler(gateway, call)
        except Exception as exc:  # noqa: BLE001 - a call is answered, whatever happens
            reply = problem_reply(call, exc)
            self._authentication.trace.note(
                exc, call.transport, principal=principal, method=method, route=path, request_id=call.id
            )
            if call.span is not None:
                call.span.failed(problems.of_exception(exc).code)
        is_last = self._node.is_shutting_down or self._gate.is_closed or call.place.refused
        if is_last or not call.content.is_eof():
            reply.force_close()
        self._log.answered(
            method,
            path,
            reply.status,
            call.id,
            started_s,
            principal=principal,
            asked=call.raw_path,
            transport=call.transport,
            call=call,
        )
        if call.span is not None:
            call.span.answered(method, path, reply.status, call.id)
        return reply

    def _admit(self, route: Route, call: Call) -> Gateway:
        """Return the gateway of the caller. Raises Unauthenticated, but never for what is open to all."""
        if route.need.is_open:
            return self._authentication.gateway
        call.admit_again = partial(self._authentication.of_call, call)
        return self._authentication.of_call(call)


def problem_reply(call: Call, exc: Exception) -> Reply:
    """Return the problem document for `exc`; an unforeseen one is logged."""
    content = answer_bytes.of_problem(exc, call.id)
    if content.is_internal and call.transport is not None:
        log_failure(exc, call.id, call)
    reply = Reply(content.body, content.status, content.media_type, content.lines)
    if content.ends_connection:
        reply.force_close()
    return reply


def _check_room(call: Call, path: str) -> None:
    """Refuse all but probes on a connection that is for probes only. Raises ProblemError."""
    refused = call.place.refused
    if refused and path not in _PROBES:
        raise ProblemError("overloaded", _NO_ROOM[refused], retry_after_ms=_RETRY_MS)
