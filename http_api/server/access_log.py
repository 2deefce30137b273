"""What is recorded of every answer, whichever way the call took: a count, and a line if it is news."""

import logging
import time
from typing import Final

from holdfast import wire
from http_api.server import call_ids
from http_api.server.log_budget import LogBudget
from http_api.server.metrics import RequestCounts

logger = logging.getLogger("http_api.access")

_STATUS_REFUSED: Final = 400
"""The lowest status of an answer that says no."""
_STATUS_HELD: Final = 409
"""The status that clients that poll a lock get all day: not worth a log line. Nor is a probe of /readyz."""
_LINES_A_MINUTE: Final = 10
"""Lines above debug for refusals of one call with one status: strangers must not fill the log."""


class AccessLog:
    """Counts answers by route and status, and logs them."""

    def __init__(self, counts: RequestCounts) -> None:
        """Count in `counts`."""
        self._counts = counts
        self._lines = LogBudget(_LINES_A_MINUTE)

    def answered(
        self, method: str, path: str, status: int, call_id: str, started_s: float, *, principal: str = ""
    ) -> None:
        """Record an answer to `principal`, if its name is known.

        Takes method and path of the route: those of clients may hold a session id.
        """
        self._counts.add(method, path, status)
        is_news = status >= _STATUS_REFUSED and status != _STATUS_HELD and path != wire.READYZ
        has_line = is_news and self._lines.take(f"{method} {path} {status}")
        level = logging.INFO if has_line else logging.DEBUG
        if logger.isEnabledFor(level):
            duration_ms = (time.monotonic() - started_s) * 1000
            logger.log(
                level,
                "event=request request_id=%s method=%s route=%s status=%d%s duration_ms=%.1f",
                *(call_ids.as_header(call_id), method, path, status),
                *(f" principal={principal}" if principal else "", duration_ms),
            )


def log_failure(exc: Exception, call_id: str) -> None:
    """Log what nobody foresaw, with its traceback: the client gets only the id."""
    logger.error("event=internal-error request_id=%s", call_id, exc_info=exc)
