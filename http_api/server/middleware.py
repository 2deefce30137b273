"""What happens around every call: deadline, problems, request id, access log, counts. One wrapper for all."""

import logging
import time
from typing import Final

from aiohttp import web

from api import answers, problems
from api.gateway import Gateway
from api.problems import ProblemError
from holdfast import wire
from http_api.server.call import Call, Reply
from http_api.server.callers import Callers
from http_api.server.connection_room import Refused
from http_api.server.heads import check_head
from http_api.server.log_budget import LogBudget
from http_api.server.metrics import RequestCounts
from http_api.server.refusals import CallRefused, header_lines
from http_api.server.routes import Router

logger = logging.getLogger("http_api.access")

_STATUS_REFUSED = 400
"""The lowest status of an answer that says no."""
_STATUS_HELD = 409
"""The status that clients that poll a lock get all day: not worth a log line. Nor is a probe of /readyz."""
_LINES_A_MINUTE: Final = 10
"""Lines above debug for refusals of one call with one status: strangers must not fill the log."""
_PROBES: Final = frozenset({wire.LIVEZ, wire.READYZ, wire.METRICS})
"""What is answered even when clients have all connections that they may have."""
_RETRY_MS: Final = 1_000
"""After which a client may try again that got no connection of its own."""
_NO_ROOM: Final = {
    Refused.FULL: "this node has as many connections as its limit of open files allows: ask another one",
    Refused.ADDRESS: "your address has as many connections as one may have: close some, or ask another node",
}


class Front:
    """Answers calls. Whatever happens, there is an answer, and it says what happened."""

    def __init__(
        self,
        gateway: Gateway,
        router: Router,
        counts: RequestCounts,
        request_timeout_ms: int,
        callers: Callers,
    ) -> None:
        """Answer `callers` through `gateway`, within `request_timeout_ms` unless a call says otherwise."""
        self._gateway = gateway
        self._node = gateway.node
        self._router = router
        self._counts = counts
        self._callers = callers
        self._lines = LogBudget(_LINES_A_MINUTE)
        self._timeout_s = request_timeout_ms / 1000

    async def handle(self, call: web.BaseRequest) -> web.StreamResponse:
        """Answer one call. Cancelled when the client goes away."""
        assert isinstance(call, Call)
        started_s = time.monotonic()  # the loop's own clock may count in whole milliseconds
        method = path = "-"  # logs and counts take the route's: the call's may hold a session id
        try:
            self._callers.check(call)
            check_head(call)
            route = self._router.resolve(call)
            method, path = route.method, route.path
            _check_room(call, path)
            call.read_timeout(self._timeout_s)
            reply = await route.handler(self._gateway, call)
        except Exception as exc:  # noqa: BLE001 - a call is answered, whatever happens
            reply = problem_reply(call, exc)
        if self._node.is_shutting_down or call.place.refused or not call.content.is_eof():
            reply.force_close()
        self._counts.add(method, path, reply.status)
        is_news = reply.status >= _STATUS_REFUSED and reply.status != _STATUS_HELD and path != wire.READYZ
        has_line = is_news and self._lines.take(f"{method} {path} {reply.status}")
        level = logging.INFO if has_line else logging.DEBUG
        if logger.isEnabledFor(level):
            duration_ms = (time.monotonic() - started_s) * 1000
            logger.log(
                level,
                "event=request request_id=%s method=%s route=%s status=%d duration_ms=%.1f",
                *(call.id_text, method, path, reply.status, duration_ms),
            )
        return reply


def _check_room(call: Call, path: str) -> None:
    """Refuse all but probes on a connection that is for probes only. Raises ProblemError."""
    refused = call.place.refused
    if refused and path not in _PROBES:
        raise ProblemError("overloaded", _NO_ROOM[refused], retry_after_ms=_RETRY_MS)


def problem_reply(call: Call, exc: Exception) -> Reply:
    """Return the problem document for `exc`; an unforeseen one is logged."""
    problem = problems.of_exception(exc)
    if problem.code == "internal" and call.transport is not None:
        logger.error("event=internal-error request_id=%s", call.id, exc_info=exc)
    document = problems.document(problem, call.id)
    reply = Reply(answers.encode(document), document.status, wire.PROBLEM_JSON, header_lines(problem))
    if isinstance(problem, CallRefused) and problem.ends_connection:
        reply.force_close()
    return reply
