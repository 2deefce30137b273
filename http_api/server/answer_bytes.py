"""The bytes of an answer: what stands in it, and the head in front of that.

They are written by hand: aiohttp's own response builds a dictionary of headers for every answer, which takes
time from Raft on the same core.
"""

import email.utils
import http
import time
from typing import NamedTuple

from cluster.build import this_build
from holdfast import wire
from http_api.server import call_ids
from http_api.server.refusals import CallRefused, header_lines
from lockapi import answers, problems


class Content(NamedTuple):
    """What an answer says: status, body, and the header lines that only some answers have, each complete."""

    body: bytes
    status: int = 200
    media_type: str = wire.JSON
    lines: str = ""
    ends_connection: bool = False
    is_internal: bool = False
    """Whether it answers what nobody foresaw, which belongs into the log."""


def of_problem(exc: Exception, call_id: str) -> Content:
    """Return the problem document for `exc`."""
    problem = problems.of_exception(exc)
    document = problems.document(problem, call_id)
    ends_connection = isinstance(problem, CallRefused) and problem.ends_connection
    return Content(
        answers.encode(document),
        document.status,
        wire.PROBLEM_JSON,
        header_lines(problem),
        ends_connection,
        problem.code == "internal",
    )


def head(status: int, media_type: str, lines: str, call_id: str) -> bytes:
    """Return status line and headers, `lines` among them, up to the body."""
    text = f"{_first_lines(status, media_type)}{lines}{wire.HEADER_REQUEST_ID}: {call_ids.as_header(call_id)}"
    return f"{text}\r\n\r\n".encode("ascii")


def length_lines(body: bytes, *, is_kept: bool) -> str:
    """Return the lines that say how long the body is, and whether the connection ends behind it."""
    return f"{'' if is_kept else _CLOSE}Content-Length: {len(body)}\r\n"


_CLOSE = "Connection: close\r\n"


class _FirstLines:
    """Status lines together with the headers that change only once a second."""

    second: int = 0
    texts: dict[tuple[int, str], str] = {}


def _first_lines(status: int, media_type: str) -> str:
    second = int(time.time())
    if second != _FirstLines.second:
        _FirstLines.second, _FirstLines.texts = second, {}
    text = _FirstLines.texts.get((status, media_type))
    if text is None:
        text = _FirstLines.texts[status, media_type] = (
            f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\n"
            f"Date: {email.utils.formatdate(second, usegmt=True)}\r\n"
            f"Server: holdfast/{this_build().version}\r\n"
            f"Content-Type: {media_type}\r\n"
        )
    return text
