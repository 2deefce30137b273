"""The same bytes to a server with the fast lane and to one without: same answers, logs, counts and state."""

import asyncio
import itertools
import logging
import re
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from http_api.server import call_ids
from http_api.server.fast_lane import LaneCall
from tests.unit.http_api.serving import Served, serving, token_line

HOLD = "f" * 32
"""Stands for the id of the newest hold in what is sent."""
SESSION = "e" * 32
"""Stands for the id of the newest session in what is sent."""
QUIET_ROUNDS = 25
"""Runs of the loop without a byte after which nothing more comes: client and server share it."""

BODIES = st.sampled_from(
    [
        '{"name":"a","ttl_ms":60000}',
        '{"name":"b/c","ttl_ms":60000,"owner":"me"}',
        '{"name":"a","ttl_ms":60000,"mode":"shared","request_id":"one"}',
        '{"name":"é","ttl_ms":60000,"request_id":"é 1"}',
        '{"locks":[{"name":"x"},{"name":"y"}],"ttl_ms":60000}',
        '{"name":"a","ttl_ms":60000,"wait_ms":0}',
        '{"name":"a","ttl_ms":60000,"wait_ms":-1}',
        '{"name":"a","ttl_ms":60000,"scope":"subtree"}',
        f'{{"hold_id":"{HOLD}"}}',
        f'{{"hold_id":"{HOLD}","ttl_ms":90000}}',
        f'{{"hold_id":"{HOLD}","names":["x"]}}',
        '{"hold_id":"nobody"}',
        '{"hold_id":7}',
        '{"name":"a","name":"b","ttl_ms":60000}',
        '{"name":"a","ttl_ms":"long"}',
        '{"name":"","ttl_ms":60000}',
        '{"name":"a"}',
        '{"name":"a","ttl_ms":60000,"else":1}',
        '{"name":"\\u0061","ttl_ms":60000}',
        '{"ttl_ms":60000}',
        '{"ttl_ms":60000,"labels":{"owner":"me"}}',
        '{"ttl_ms":7}',
        '{"request_id":"of-a-keepalive-16"}',
        '{"request_id":"short"}',
        "{}",
        "{",
        "[]",
        "",
        " " * 65_000 + "{}",
        '{"name":"' + "n" * 70_000 + '"}',
    ]
)
TARGETS = st.sampled_from(
    ["/v1/locks/acquire"] * 6
    + ["/v1/locks/release"] * 3
    + ["/v1/locks/renew"] * 3
    + ["/v1/sessions"] * 2
    + [f"/v1/sessions/{SESSION}/keepalive"] * 4
    + ["/v1/sessions//keepalive", f"/v1/sessions/{SESSION[1:]}/keepalive", f"/v1/sessions/{SESSION}/"]
    + [f"/v1/sessions/{SESSION}/keepalive?a=1", f"/v1/sessions/{SESSION.upper()}/keepalive"]
    + [f"/v1/sessions/{SESSION}/keepalive/", "/v1/sessions/{session_id}/keepalive"]
    + ["/v1/locks/convert", "/v1/locks/acquire?a=1", "/v1/locks/a", "/livez", "/nowhere", "http://x/livez"]
)
LINES = st.sampled_from(
    [
        "User-Agent: tests/1 (x)", "Accept: */*", "ACCEPT-encoding: gzip, deflate", "Connection: keep-alive",
        "connection: Keep-Alive", "Connection: close", "Content-Type: application/json",
        "Content-Type: text/plain", "Content-Type: application/json; charset=utf-8",
        "content-type:application/json",
        "Holdfast-Request-Id: mine-1", "holdfast-request-id: mine-2", "Holdfast-Request-Id: a b",
        "Holdfast-Timeout-Ms: 700", "Holdfast-Timeout-Ms: 7", "Origin: https://evil.example",
        "Sec-Fetch-Site: cross-site", "Expect: 100-continue", "Expect: miracles", "Content-Encoding: gzip",
        f"traceparent: 00-{'a1' * 16}-{'b2' * 8}-01", "traceparent: nonsense", "Traceparent: 00-x",
        "tracestate: a=1, b=2", "traceparent:", "tracestate: ", "traceparent:  x", "tracestates: a=1",
        "Transfer-Encoding: chunked", "Content-Length: 3", "Content-Length : 27", "Host: evil.example",
        "Host: n2", "X-Own: 1", " folded", "Upgrade: websocket", "No colon", "Accept: \x00", "Pragma: é",
    ]
)  # fmt: skip


class Conversation(NamedTuple):
    """What is sent: turns of chunks. Each turn is answered as far as it is before the next begins."""

    turns: list[list[bytes]]


ALL, ONE, STRANGER = "all-".ljust(40, "x"), "one-".ljust(40, "x"), "stranger-".ljust(40, "x")
TOKENS = (
    token_line("all", ALL, "read,acquire,force,admin,metrics")
    + token_line("one", ONE, "acquire@a read,acquire@b none@b/d acquire@x")
    + token_line("none", "n" * 40, "none")
)


def bearer_line(token: str) -> str:
    """Return the line of a head with this token."""
    return f"Authorization: Bearer {token}"


CREDENTIALS = st.sampled_from(
    [bearer_line(ONE)] * 8
    + [bearer_line(ALL)] * 3
    + [
        bearer_line(STRANGER),
        bearer_line("n" * 40),
        "authorization: bearer " + ONE,
        "Authorization: Basic abc",
    ]
    + [bearer_line(ONE) + " ", f"{bearer_line(ONE)}\r\n{bearer_line(ALL)}", "Authorization:", "X-Own: 2"]
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Return bytes that look like a request, and often are one."""
    body = draw(BODIES).encode()
    lines = [f"Host: {draw(st.sampled_from(['n1'] * 9 + ['evil.example']))}"]
    lines += draw(
        st.one_of(st.just([]), st.just(["Content-Type: application/json"]), st.lists(LINES, max_size=3))
    )
    lines.insert(draw(st.integers(0, len(lines))), draw(CREDENTIALS))
    off = draw(st.sampled_from([0] * 12 + [-1, 1]))
    lines.insert(draw(st.integers(0, len(lines))), f"Content-Length: {max(len(body) + off, 0)}")
    method = draw(st.sampled_from(["POST"] * 8 + ["GET", "DELETE", "HEAD", "post"]))
    end = draw(st.sampled_from(["\r\n"] * 20 + ["\n"]))
    version = draw(st.sampled_from(["HTTP/1.1"] * 20 + ["HTTP/1.0", "HTTP/2.0"]))
    return end.join([f"{method} {draw(TARGETS)} {version}", *lines, "", ""]).encode() + body


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    """Return requests, alone or one behind the other, whole or in pieces, now and then with a wrong byte."""
    turns = []
    for _ in range(draw(st.integers(1, 4))):
        sent = b"".join(draw(st.lists(requests(), min_size=1, max_size=draw(st.sampled_from([1, 1, 1, 3])))))
        if draw(st.sampled_from([False] * 5 + [True])):
            at = draw(st.integers(0, min(len(sent) - 1, 400)))
            sent = sent[:at] + draw(st.binary(max_size=2)) + sent[at + draw(st.integers(0, 2)) :]
        cuts = draw(st.sampled_from([0, 0, 0, 1, 3]))
        places = sorted({draw(st.integers(1, max(len(sent), 1))) for _ in range(cuts)} | {0, len(sent)})
        turns.append([sent[start:end] for start, end in itertools.pairwise(places)])
    return Conversation(turns)


class Told(logging.Handler):
    """Keeps log lines without what the clock puts into them."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.lines.append(f"{record.levelname} {record.getMessage()}".partition(" duration_ms=")[0])


async def hold(served: Served, said: Conversation) -> tuple[bytes, bool]:
    """Have a conversation; return all that came back, and whether the server ended it."""
    received = bytearray()
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    for turn in said.turns:
        newest = {
            placeholder: re.findall(rb'"%b":"([0-9a-f]{32})"' % field, received)
            for placeholder, field in ((HOLD, b"hold_id"), (SESSION, b"session_id"))
        }
        for chunk in turn:
            if writer.transport.is_closing():
                break
            for placeholder, found in newest.items():
                if found:
                    chunk = chunk.replace(placeholder.encode(), found[-1])  # noqa: PLW2901 - the same, filled in
            writer.write(chunk)
            await _settle(reader, received)
    is_ended = reader.at_eof() or reader.exception() is not None
    writer.close()
    return bytes(received), is_ended


async def _settle(reader: asyncio.StreamReader, received: bytearray) -> None:
    """Take what comes until nothing does any more."""
    quiet = 0
    while quiet < QUIET_ROUNDS and reader.exception() is None:
        await asyncio.sleep(0)
        arrived = bytes(reader._buffer)  # type: ignore[attr-defined]  # what has come, without waiting for more
        reader._buffer.clear()  # type: ignore[attr-defined]
        received += arrived
        quiet = 0 if arrived else quiet + 1


def plain(text: str) -> str:
    """Replace what differs from run to run by something as long: secrets, names made of them, dates."""
    names: dict[str, str] = {}
    text = re.sub(r"\b[0-9a-f]{32}\b", lambda found: names.setdefault(found[0], f"{len(names):032d}"), text)
    return re.sub(r"\bhold-[0-9a-f]{8}\b", "hold-........", re.sub(r"Date: [^\r]*", "Date: ...", text))


async def outcome(
    said: Conversation, *, has_lane: bool, tokens: bytes | None = None
) -> tuple[str, bool, list[str], str, str]:
    """Return all that can be seen of a conversation with a fresh server."""
    call_ids._numbers = itertools.count(1)  # type: ignore[misc]  # so that both servers give the same ids
    told, log = Told(), logging.getLogger("http_api.access")
    log.addHandler(told)
    log.setLevel(logging.DEBUG)
    try:
        async with serving(fast_lane=has_lane, tokens=tokens) as served:
            served.node.fixed_ms = 1_000
            received, is_ended = await hold(served, said)
            text = received.decode("utf-8", "backslashreplace")
            asked = f"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{bearer_line(ALL)}\r\n\r\n"
            counts = (await served.raw(asked.encode())).decode()
            lines = [
                line
                for line in counts.splitlines()
                if line.startswith(("holdfast_http_requests", "holdfast_http_unauth"))
            ]
            held = f"{served.node.machine.revision} {served.node.machine.counts()} {served.node.timeouts_s}"
            return plain(text), is_ended, [plain(line) for line in told.lines], "\n".join(lines), held
    finally:
        log.removeHandler(told)
        log.setLevel(logging.NOTSET)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(conversations())
def test_both_lanes_say_the_same(said: Conversation) -> None:
    """Byte by byte, whatever is sent and in whatever pieces; and they log, count and change the same."""
    _compare(said, None)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(conversations())
def test_both_lanes_let_the_same_in(said: Conversation) -> None:
    """So they do where callers have to be known, and may not do everything."""
    _compare(said, TOKENS)


def _compare(said: Conversation, tokens: bytes | None) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lockapi.problems.secrets.randbelow", lambda _: 0)
        with_lane = asyncio.run(outcome(said, has_lane=True, tokens=tokens))
        assert with_lane == asyncio.run(outcome(said, has_lane=False, tokens=tokens))


def test_the_lane_is_used_for_what_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """What clients do all day takes it, with a refusal of each kind, and answers are those of aiohttp."""
    monkeypatch.setattr("lockapi.problems.secrets.randbelow", lambda _: 0)
    begun: list[LaneCall] = []
    begin = LaneCall.begin

    def seen(call: LaneCall) -> None:
        begun.append(call)
        begin(call)

    monkeypatch.setattr(LaneCall, "begin", seen)

    def post(verb: str, body: str) -> list[bytes]:
        head = f"POST /v1/{verb} HTTP/1.1\r\nHost: n1\r\nContent-Length: {len(body)}\r\n\r\n"
        return [f"{head}{body}".encode()]

    acquire, mine = '{"name":"a","ttl_ms":60000}', f'{{"hold_id":"{HOLD}"}}'
    kept, nobodys = f"sessions/{SESSION}/keepalive", f"sessions/{'d' * 32}/keepalive"
    named = '{"request_id":"of-a-keepalive-16"}'
    said = Conversation(
        [
            post("locks/acquire", acquire), post("locks/acquire", acquire), post("locks/renew", mine),
            post("locks/release", mine), post("locks/release", mine),
            post("sessions", '{"ttl_ms":60000}'), post(kept, "{}"), post(kept, named), post(nobodys, named),
            post(kept, '{"ttl_ms":90000}'), post(kept, '{"ttl_ms":7}'), post("sessions//keepalive", "{}"),
        ]
    )  # fmt: skip
    with_lane = asyncio.run(outcome(said, has_lane=True))
    assert len(begun) == 9, "all but the session's beginning, a wrong ttl and an empty id"
    statuses = ["200", "409", "200", "200", "410", "201", "200", "200", "410", "200", "400", "404"]
    assert re.findall(r"HTTP/1.1 (\d+)", with_lane[0]) == statuses
    assert with_lane == asyncio.run(outcome(said, has_lane=False))
    assert len(begun) == 9
