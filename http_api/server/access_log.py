"""What is recorded of every answer, whichever way the call took: a count, and a line if it is news."""

import asyncio
import logging
import re
import time
from typing import Final, Protocol

from holdfast import wire
from http_api.server import call_ids
from http_api.server.log_budget import LogBudget
from http_api.server.metrics import RequestCounts
from http_api.server.peer_address import address_of

logger = logging.getLogger("http_api.access")

_STATUS_REFUSED: Final = 400
"""The lowest status of an answer that says no."""
_STATUS_HELD: Final = 409
"""The status that clients that poll a lock get all day: not worth a log line. Nor is a probe of /readyz."""
_LINES_A_MINUTE: Final = 10
"""Lines above debug for refusals of one call with one status: strangers must not fill the log."""
_SECRET_PARTS: Final = ("{session_id}", "{ticket}")
"""Parts of paths that a line must not show."""
_LIKE_A_SECRET: Final = re.compile(r"(?<=/sessions/).*|(?<=/tickets/).*|[^/]{16,}")
"""What could be an id in a path that has no route."""
_PATH_CHARS_MAX: Final = 200
_LINE: Final = "event=request request_id=%s method=%s route=%s status=%d%s duration_ms=%.1f"
_FAILED: Final = "event=internal-error request_id=%s"
_TRACED: Final = " trace_id=%s"
"""What is behind a line about a call that is part of a trace."""


class Traced(Protocol):
    """A call that may be part of a trace."""

    @property
    def trace_id(self) -> str:
        """Return the id of the trace, "" if there is none."""
        ...


def line_of(line: str, call: Traced | None) -> tuple[str, tuple[str, ...]]:
    """Return a line about a call, with its trace at the end if it has one, and the values for that."""
    trace_id = "" if call is None else call.trace_id
    return (line + _TRACED, (trace_id,)) if trace_id else (line, ())


class AccessLog:
    """Counts answers by route and status, and logs them."""

    def __init__(self, counts: RequestCounts) -> None:
        """Count in `counts`."""
        self._counts = counts
        self._lines = LogBudget(_LINES_A_MINUTE)

    def answered(
        self,
        method: str,
        path: str,
        status: int,
        call_id: str,
        started_s: float,
        *,
        principal: str = "",
        asked: str = "",
        transport: asyncio.BaseTransport | None = None,
        call: Traced | None = None,
    ) -> None:
        """Record an answer to `principal`, if its name is known. A line tells of which trace the `call` is.

        `method` and `path` are those of the route. A refusal also shows what was `asked` for, the path as the
        client has written it, and from which address.
        """
        took_s = time.monotonic() - started_s
        self._counts.add(method, path, status, took_s)
        is_news = status >= _STATUS_REFUSED and status != _STATUS_HELD and path != wire.READYZ
        has_line = is_news and self._lines.take(f"{method} {path} {status}")
        level = logging.INFO if has_line else logging.DEBUG
        if logger.isEnabledFor(level):
            line, trace = line_of(_LINE, call)
            logger.log(
                level,
                line,
                *(call_ids.as_header(call_id), method, path, status),
                *(_who(principal, path, asked, transport, status), took_s * 1000),
                *trace,
            )


def _who(principal: str, route: str, asked: str, transport: asyncio.BaseTransport | None, status: int) -> str:
    """Return what a line says of the caller, and of a refusal of its path; nothing that is secret."""
    told = f" principal={principal}" if principal else ""
    if status < _STATUS_REFUSED:
        return told
    return f"{told} path={shown_path(route, asked)!r} address={address_of(transport) or '-'}"


def shown_path(route: str, asked: str) -> str:
    """Return a path as a client has written it, without the query, and without what may be a secret."""
    path = asked.partition("?")[0] or route
    if any(part in route for part in _SECRET_PARTS):
        return route
    if "{" not in route and path != route:
        path = _LIKE_A_SECRET.sub("...", path)
    return path[:_PATH_CHARS_MAX]


def log_failure(exc: Exception, call_id: str, call: Traced | None = None) -> None:
    """Log what nobody foresaw, with its traceback: the client gets only the id."""
    line, trace = line_of(_FAILED, call)
    logger.error(line, call_id, *trace, exc_info=exc)
