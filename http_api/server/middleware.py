"""What happens around every call: deadline, problems, request id, access log, counts. One wrapper for all."""

import logging
import time

from aiohttp import web

from api import answers, problems
from api.node import ServingNode
from api.problems import ProblemError
from holdfast import wire
from http_api.server.call import Call, Reply
from http_api.server.metrics import RequestCounts
from http_api.server.routes import Router

logger = logging.getLogger("http_api.access")

_STATUS_REFUSED = 400
_STATUS_HELD = 409
"""What who polls a lock is told all day: no news for who reads the log. Nor is a probe of /readyz."""


class Front:
    """Answers calls; whatever happens, there is an answer, and it says what happened."""

    def __init__(
        self, node: ServingNode, router: Router, counts: RequestCounts, request_timeout_ms: int
    ) -> None:
        """Answer from `node`, within `request_timeout_ms` unless the call says otherwise."""
        self._node = node
        self._router = router
        self._counts = counts
        self._timeout_s = request_timeout_ms / 1000

    async def handle(self, call: web.BaseRequest) -> web.StreamResponse:
        """Answer one call. Cancelled when the client goes away."""
        assert isinstance(call, Call)
        started_s = time.monotonic()  # the loop's own clock may count in whole milliseconds
        method = path = "-"  # logs and counts take the route's: the call's may hold a session id
        try:
            route = self._router.resolve(call)
            method, path = route.method, route.path
            call.read_timeout(self._timeout_s)
            reply = await route.handler(self._node, call)
        except Exception as exc:  # noqa: BLE001 - a call is answered, whatever happens
            reply = problem_reply(call, exc)
        if self._node.is_shutting_down:
            reply.force_close()
        self._counts.add(method, path, reply.status)
        is_news = reply.status >= _STATUS_REFUSED and reply.status != _STATUS_HELD and path != wire.READYZ
        level = logging.INFO if is_news else logging.DEBUG
        if logger.isEnabledFor(level):
            duration_ms = (time.monotonic() - started_s) * 1000
            logger.log(
                level,
                "event=request request_id=%s method=%s route=%s status=%d duration_ms=%.1f",
                *(call.id_text, method, path, reply.status, duration_ms),
            )
        return reply


def problem_reply(call: Call, exc: Exception) -> Reply:
    """Return the problem document for `exc`; what nobody foresaw is logged."""
    problem = problems.of_exception(exc)
    if problem.code == "internal" and call.transport is not None:
        logger.error("event=internal-error request_id=%s", call.id, exc_info=exc)
    document = problems.document(problem, call.id)
    reply = Reply(answers.encode(document), document.status, wire.PROBLEM_JSON, _header_lines(problem))
    if problem.ends_connection:
        reply.force_close()
    return reply


def _header_lines(problem: ProblemError) -> str:
    """Return the header lines that go with the problem."""
    lines = f"Allow: {problem.allow}\r\n" if problem.allow else ""
    if problem.retry_after_ms:
        lines += f"{wire.HEADER_RETRY_AFTER}: {-(-problem.retry_after_ms // 1000)}\r\n"
    return lines
