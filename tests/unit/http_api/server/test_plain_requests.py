"""What counts as a plain request: nothing that two parsers could read differently."""

import pytest

from http_api.server import plain_requests
from http_api.server.plain_requests import PlainHead

FIRST = b"POST /v1/locks/acquire HTTP/1.1\r\n"
PLAIN = FIRST + b"Host: n1:7700\r\nContent-Length: 2\r\n\r\n"


def read(head: bytes) -> PlainHead | None:
    """Return what is made of a whole head."""
    parts = plain_requests.split(head)
    return plain_requests.read_head(parts.head) if parts is not None else None


def test_a_plain_head_says_what_is_asked() -> None:
    """Method, target, name of the node and length; the others only if they are there."""
    assert read(PLAIN) == PlainHead("POST", "/v1/locks/acquire", "n1:7700", 2, None, None)
    lines = b"content-type: application/json\r\nHOLDFAST-TIMEOUT-MS: 500\r\nConnection: Keep-Alive\r\n\r\n"
    assert read(PLAIN[:-2] + lines) == PlainHead(
        "POST", "/v1/locks/acquire", "n1:7700", 2, "application/json", "500"
    )


def test_the_request_id_is_cut_out() -> None:
    """What differs from one request to the next does not make another head."""
    line = b"Holdfast-Request-Id: abc-1\r\n"
    for head in (PLAIN[:-2] + line + b"\r\n", FIRST + line + PLAIN[len(FIRST) :]):
        assert plain_requests.split(head + b"{}") == (PLAIN, "", "abc-1", b"", b"{}", "", "")
    for wrong in (line * 2, b"Holdfast-Request-Id: a b\r\n", b"Holdfast-Request-Id: %s\r\n" % (b"x" * 65)):
        assert read(PLAIN[:-2] + wrong + b"\r\n") is None


def test_the_trace_is_cut_out() -> None:
    """As the standard spells it, and once; any other spelling is for aiohttp, which judges it."""
    parent, state = b"traceparent: 00-a-b-01\r\n", b"tracestate: a=1, b=2\r\n"
    assert plain_requests.split(PLAIN[:-2] + parent + state + b"\r\n") == (
        PLAIN, "", "", b"", b"", "00-a-b-01", "a=1, b=2",
    )  # fmt: skip
    for wrong in (parent * 2, state * 2, parent.title(), b"traceparent: a b\r\n", b"tracestate:\r\n"):
        assert read(PLAIN[:-2] + wrong + b"\r\n") is None


def test_the_id_of_a_session_is_cut_out_of_the_path() -> None:
    """Only one that a node can have made, whole, and where sessions have it; what is left is a plain head."""
    rest = PLAIN[len(FIRST) :]
    one = "0123456789abcdef" * 2
    head = f"POST /v1/sessions/{one}/keepalive HTTP/1.1\r\n".encode() + rest
    empty = b"POST /v1/sessions//keepalive HTTP/1.1\r\n" + rest
    assert plain_requests.split(head + b"{}") == (empty, one, "", b"", b"{}", "", "")
    assert read(head) == PlainHead("POST", "/v1/sessions//keepalive", "n1:7700", 2, None, None)
    assert plain_requests.split(empty + b"{}") == (empty, "", "", b"", b"{}", "", ""), "nobody's id"
    for old, new in (
        (one, one.upper()), (one, one[1:]), (one, one + "0"), (one, "%30" + one[3:]), ("POST", "DELETE"),
        ("sessions", "locks"), ("/keepalive", ""), (f"{one}/", f"{one}?"),
    ):  # fmt: skip
        other = head.replace(old.encode(), new.encode(), 1)
        assert plain_requests.split(other) == (other, "", "", b"", b"", "", "")


@pytest.mark.parametrize(
    "head",
    [
        b"",
        PLAIN[:-1],
        b"\r\n" + PLAIN,
        PLAIN.replace(b"\r\n", b"\n"),
        PLAIN.replace(b"7700\r\n", b"7700\n"),
        PLAIN.replace(b"Host: n1:7700\r\n", b""),
        PLAIN.replace(b"HTTP/1.1", b"HTTP/1.0"),
        PLAIN.replace(b"POST ", b"POST  "),
        PLAIN.replace(b"POST", b"post"),
        PLAIN.replace(b"POST", b"CONNECT"),
        PLAIN.replace(b"/v1", b"http://n1/v1"),
        PLAIN.replace(b"acquire", b"acq\xc3\xa9"),
        PLAIN.replace(b"Length:", b"Length :"),
        PLAIN.replace(b"Length: 2", b"Length:2"),
        PLAIN.replace(b"Length: 2", b"Length: 2 "),
        PLAIN.replace(b"Length: 2", b"Length:\t2"),
        PLAIN.replace(b"Length: 2", b"Length: "),
        PLAIN.replace(b"Length: 2", b"Length: 02"),
        PLAIN.replace(b"Length: 2", b"Length: +2"),
        PLAIN.replace(b"Length: 2", b"Length: 0x2"),
        PLAIN.replace(b"Length: 2", b"Length: 2, 2"),
        PLAIN.replace(b"Length: 2", b"Length: -2"),
        PLAIN.replace(b"Length: 2", b"Length: 65537"),
        PLAIN.replace(b"Length: 2", b"Length: 2\r\nContent-Length: 2"),
        PLAIN.replace(b"Length: 2", b"Length: 2\r\ncontent-length: 3"),
        PLAIN.replace(b"Length: 2", b"Length: 2\r\nTransfer-Encoding: chunked"),
        PLAIN.replace(b"Length: 2", b"Length: 2\r\n folded: 1"),
        PLAIN.replace(b"Length: 2", b"Length: 2\r\nX-Own: 1"),
        PLAIN.replace(b"Length: 2", b"Length: 2\r\nExpect: 100-continue"),
        PLAIN.replace(b"Length: 2", b"Length: 2\r\nContent-Encoding: gzip"),
        PLAIN.replace(b"Length: 2", b"Length: 2\r\nOrigin: https://a.example"),
        PLAIN.replace(b"Length: 2", b"Length: 2\r\nUpgrade: websocket"),
        PLAIN.replace(b"Length: 2", b"Length: 2\r\nConnection: close"),
        PLAIN.replace(b"Length: 2", b"Length: 2\r\nConnection: keep-alive, upgrade"),
        PLAIN.replace(b"Host: n1:7700", b"Host: n1:7700\r\nHost: n2"),
        PLAIN.replace(b"Host: n1:7700", b"Host: n\x00"),
        PLAIN.replace(b"Host: n1:7700", b"Host: n1:7700\r\nUser-Agent: " + b"x" * 4096),
    ],
)
def test_what_is_in_doubt_is_not_plain(head: bytes) -> None:
    """Every one of them is for aiohttp, whatever it makes of it."""
    assert read(head) is None
