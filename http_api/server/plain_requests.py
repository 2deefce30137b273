"""Requests that are plain beyond doubt: one look tells what they ask and where they end.

Only about these does the fast lane decide anything itself, and only behind such requests does it know where
the next one begins: every other byte is for aiohttp's parser. So what passes here is far less than what HTTP
allows, and nothing passes that two parsers could read differently: one spelling of each line, a few known
headers and each of them once, a length in digits, no transfer coding, nothing that changes the connection.
"""

import re
from typing import Final, NamedTuple

from cluster.tracing import HEADER_PARENT, HEADER_STATE
from holdfast import wire
from holdfast.token_lines import TOKEN_CHARS_MAX, TOKEN_CHARS_MIN

_HEAD: Final = re.compile(
    rb"(GET|POST|PUT|PATCH|DELETE) (/[!-~]*) HTTP/1\.1\r\n((?:[A-Za-z-]+: [!-~]+(?: [!-~]+)*\r\n)+)\r\n"
)
_LINE: Final = re.compile(rb"([A-Za-z-]+): ([ -~]+)\r\n")
_LENGTH: Final = re.compile(r"0|[1-9][0-9]{0,5}")
_HEAD_BYTES_MAX: Final = 4096
"""Longer heads are for aiohttp, which allows each line twice as much."""
_END: Final = b"\r\n\r\n"

_HOST, _CONNECTION, _LENGTH_NAME, _TYPE = "host", "connection", "content-length", "content-type"
_TIMEOUT: Final = wire.HEADER_TIMEOUT_MS.lower()
_KNOWN: Final = frozenset(
    {
        _HOST, _CONNECTION, _LENGTH_NAME, _TYPE, _TIMEOUT,
        "accept", "accept-encoding", "accept-language", "cache-control", "pragma", "user-agent",
    }
)  # fmt: skip
"""Headers that this node reads, or that say nothing to it. The request id is taken out before."""

_ID_NAME: Final = wire.HEADER_REQUEST_ID.encode()
_ID_LINE: Final = re.compile(rb"\r\n%b: ([!-~]{1,%d})(?=\r\n)" % (_ID_NAME, wire.HEADER_REQUEST_ID_CHARS_MAX))


_TRACE: Final = b"\r\ntrace"
_PARENT_LINE: Final = re.compile(rb"\r\n%b: ([!-~]+)(?=\r\n)" % HEADER_PARENT.encode())
_STATE_LINE: Final = re.compile(rb"\r\n%b: ([!-~]+(?: [!-~]+)*)(?=\r\n)" % HEADER_STATE.encode())


_CREDENTIALS_NAME: Final = b"\r\nAuthorization"
_CREDENTIALS_LINE: Final = re.compile(
    rb"%b: Bearer ([!-~]{%d,%d})(?=\r\n)" % (_CREDENTIALS_NAME, TOKEN_CHARS_MIN, TOKEN_CHARS_MAX)
)


_PATH_ID: Final = re.compile(rb"POST %b/([0-9a-f]{32})(?=/)" % wire.SESSIONS.encode())
"""The beginning of the head of a call about one session, whose id a node has made."""


class Parts(NamedTuple):
    """What may be one request: its head, without the parts that stand beside it, and its body."""

    head: bytes
    path_id: str
    request_id: str
    token: bytes
    body: bytes
    traceparent: str
    tracestate: str


class PlainHead(NamedTuple):
    """What the head of a plain request says."""

    method: str
    target: str
    host: str
    length: int
    media_type: str | None
    timeout_ms: str | None


def split(data: bytes) -> Parts | None:
    """Return the parts of what may be one request, None if no head ends in it.

    What differs from one request to the next is cut out of the head: the id of a session in its path, and the
    lines with the request id and the trace. So heads of one client are the same bytes again and again. So is
    that with the token, which is kept nowhere but with its connection. Where an id was cut out there is an
    empty part of the path; one that was sent so has no `path_id`.
    """
    end = data.find(_END) + len(_END)
    if not len(_END) <= end <= _HEAD_BYTES_MAX:
        return None
    head, path_id, request_id, token = data[:end], "", "", b""
    found = _PATH_ID.match(head)
    if found is not None:
        head, path_id = head[: found.start(1)] + head[found.end() :], found[1].decode("ascii")
    start = head.find(_CREDENTIALS_NAME)
    if start >= 0:
        line = _CREDENTIALS_LINE.match(head, start)
        if line is None:
            return None
        head, token = head[:start] + head[line.end() :], line[1]
    if _ID_NAME in head:
        line = _ID_LINE.search(head)
        if line is None:
            return None
        head, request_id = head[: line.start()] + head[line.end() :], line[1].decode("ascii")
    traceparent = tracestate = ""
    if _TRACE in head:
        head, traceparent = _cut(head, _PARENT_LINE)
        head, tracestate = _cut(head, _STATE_LINE)
    return Parts(head, path_id, request_id, token, data[end:], traceparent, tracestate)


def _cut(head: bytes, line: re.Pattern[bytes]) -> tuple[bytes, str]:
    """Return a head without the first such line, and what that says. A second one is not plain."""
    found = line.search(head)
    if found is None:
        return head, ""
    return head[: found.start()] + head[found.end() :], found[1].decode("ascii")


def read_head(head: bytes) -> PlainHead | None:
    """Return what a head says that was split off, None if it is not plain."""
    parts = _HEAD.fullmatch(head)
    if parts is None:
        return None
    method, target = parts[1].decode("ascii"), parts[2].decode("ascii")
    headers: dict[str, str] = {}
    for name, value in _LINE.findall(parts[3]):
        key = name.decode("ascii").lower()
        if key not in _KNOWN or key in headers:
            return None
        headers[key] = value.decode("ascii")
    length = headers.get(_LENGTH_NAME, "0")
    is_kept = headers.get(_CONNECTION, "keep-alive").lower() == "keep-alive"
    if _HOST not in headers or not is_kept or not _LENGTH.fullmatch(length):
        return None
    if int(length) > wire.BODY_BYTES_MAX:
        return None
    return PlainHead(method, target, headers[_HOST], int(length), headers.get(_TYPE), headers.get(_TIMEOUT))
