"""What happens around every call: ids, logs, deadlines, connections, shutdown."""

import asyncio
import contextlib
import logging

import pytest

from holdfast import wire
from http_api.server import call, connection_limits
from http_api.server.connection_limits import LOCAL_COUNT_MAX, SPARE_COUNT_MAX, PlaceLimits
from tests.unit.http_api.serving import REQUEST_TIMEOUT_MS, bearer, serving, token_line, until

ACCESS = "http_api.access"


async def test_the_request_id_of_the_header_is_echoed() -> None:
    """The id in the header names the call in answer and problem."""
    async with serving() as served:
        headers = {wire.HEADER_REQUEST_ID: "my-id.7"}
        assert (await served.call("GET", wire.LIVEZ, headers=headers)).headers[
            wire.HEADER_REQUEST_ID
        ] == "my-id.7"
        got = await served.call("GET", "/nowhere", headers=headers)
        assert got.body["request_id"] == "my-id.7"
        assert got.body["instance"] == "urn:holdfast:request:my-id.7"


async def test_a_call_without_an_id_gets_one() -> None:
    """Ids that are missing, too long or unprintable are replaced, each call by another."""
    async with serving() as served:
        made = set()
        for header in ({}, {}, {wire.HEADER_REQUEST_ID: "x" * 65}, {wire.HEADER_REQUEST_ID: "a b"}):
            made.add((await served.call("GET", wire.LIVEZ, headers=header)).headers[wire.HEADER_REQUEST_ID])
        assert len(made) == 4
        assert all(0 < len(call_id) <= 64 for call_id in made)


async def test_the_request_id_of_the_body_names_the_call() -> None:
    """Without a header the command's own id is used, encoded where a header cannot carry it."""
    async with serving() as served:
        got = await served.acquire("a", request_id="é 1 of a long name")
        assert got.headers[wire.HEADER_REQUEST_ID] == "%C3%A9%201%20of%20a%20long%20name"
        got = await served.acquire("b", request_id="plain/1-of-a-long-name")
        assert got.headers[wire.HEADER_REQUEST_ID] == "plain/1-of-a-long-name"
        got = await served.acquire("a", request_id="é 2 of a long name")
        assert got.body["request_id"] == "é 2 of a long name"


async def test_logs_carry_the_request_id_and_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    """Successes are logged at debug, refusals at info, both by id and route, never by session id."""
    caplog.set_level(logging.DEBUG, ACCESS)
    async with serving() as served:
        await served.call("GET", wire.LIVEZ, headers={wire.HEADER_REQUEST_ID: "fine"})
        await served.call("GET", "/v1/sessions/s3cret", headers={wire.HEADER_REQUEST_ID: "gone"})
        await served.call("GET", "/v1/sessions/s3cret/x", headers={wire.HEADER_REQUEST_ID: "lost"})
    records = [record for record in caplog.records if record.name == ACCESS]
    assert [record.levelno for record in records] == [logging.DEBUG, logging.INFO, logging.INFO]
    fine, gone, lost = (record.getMessage() for record in records)
    assert fine.startswith("event=request request_id=fine method=GET route=/livez status=200 duration_ms=")
    assert "request_id=gone method=GET route=/v1/sessions/{session_id} status=410" in gone
    assert "request_id=lost method=- route=- status=404" in lost
    assert " path='/v1/sessions/{session_id}' address=127.0.0.1 duration_ms=" in gone
    assert " path='/v1/sessions/...' address=127.0.0.1 duration_ms=" in lost
    assert "s3cret" not in caplog.text


async def test_polling_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Refusals because a lock is held, and probes of a node that is not ready, are logged at debug."""
    caplog.set_level(logging.DEBUG, ACCESS)
    async with serving() as served:
        await served.acquire("a")
        assert (await served.acquire("a")).status == 409
        served.node.begin_shutdown()
        assert (await served.call("GET", wire.READYZ)).status == 503
    assert {record.levelno for record in caplog.records if record.name == ACCESS} == {logging.DEBUG}


async def test_strangers_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Ten refusals of one call with one status are logged a minute; others have lines of their own."""
    caplog.set_level(logging.INFO, ACCESS)
    async with serving() as served:
        for _ in range(30):
            await served.call("GET", "/nowhere")
        await served.call("GET", "/v1/sessions/gone")
    lines = [record.getMessage() for record in caplog.records if record.name == ACCESS]
    assert [sum(f"status={status}" in line for line in lines) for status in (404, 410)] == [10, 1]


async def test_a_bug_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """The client gets only the id of an unexpected error, the log gets all of it."""
    async with serving() as served:
        served.node.failure = RuntimeError("deep inside")
        got = await served.acquire("a")
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert got.body["request_id"] in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[1] is served.node.failure


async def test_the_deadline_is_the_headers_or_the_configured() -> None:
    """Node calls get the time of the header, within its bounds, else that of the configuration."""
    async with serving() as served:
        await served.acquire("a")
        await served.call("GET", "/v1/locks/a", headers={wire.HEADER_TIMEOUT_MS: "50"})
        await served.call("GET", "/v1/locks/a", headers={wire.HEADER_TIMEOUT_MS: "60000"})
        assert served.node.timeouts_s == [REQUEST_TIMEOUT_MS / 1000, 0.05, 60.0]
        for wrong in ("49", "60001", "1e3", "-50", "", "1" * 30):
            got = await served.call("GET", "/v1/locks/a", headers={wire.HEADER_TIMEOUT_MS: wrong})
            assert (got.status, got.body["code"]) == (400, "invalid-request")
            assert got.body["detail"].startswith(wire.HEADER_TIMEOUT_MS)
        assert len(served.node.timeouts_s) == 3


async def test_one_connection_serves_many_calls() -> None:
    """Calls sent one behind the other are answered in order, until the client asks to close."""
    async with serving() as served:
        keep = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
        close = b"GET /v1/locks/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        got = await served.raw(keep * 3 + close)
        assert got.count(b"HTTP/1.1 200 OK\r\n") == 4
        assert got.count(b"Connection: close\r\n") == 1
        assert got.endswith(b'"queue":[]}')


async def test_head_is_get_without_a_body() -> None:
    """HEAD answers with the length of the body that GET would have."""
    async with serving() as served:
        got = await served.raw(b"HEAD /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Content-Length: 11\r\n" in got
        assert got.endswith(b"\r\n\r\n")


async def test_http_1_0_is_answered_and_closed() -> None:
    """An old client gets its answer and the end of the connection."""
    async with serving() as served:
        got = await served.raw(b"GET /livez HTTP/1.0\r\n\r\n")
        assert b"Connection: close\r\n" in got
        assert got.endswith(b'{"ok":true}')


async def test_expect_100_continue_is_honoured() -> None:
    """A client that waits for permission to send its body gets it."""
    async with serving() as served:
        body = b'{"name":"a","ttl_ms":60000}'
        head = b"POST /v1/locks/acquire HTTP/1.1\r\nHost: x\r\n"
        head += b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(head % len(body))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.close()


async def test_answers_have_a_date() -> None:
    """Every answer says when it was made, as HTTP asks of a server with a clock."""
    async with serving() as served:
        assert (await served.call("GET", wire.LIVEZ)).headers["Date"].endswith(" GMT")


async def test_a_node_that_shuts_down_ends_waits_and_connections() -> None:
    """Waits end with shutting-down, which says not applied; connections close after their answer."""
    async with serving() as served:
        await served.acquire("a")
        waiting = asyncio.ensure_future(served.acquire("a", wait_ms=60_000))
        await until(lambda: served.node.machine.lock("a").queue)
        served.node.begin_shutdown()
        ended = await waiting
        assert (ended.status, ended.body["code"]) == (503, "shutting-down")
        assert ended.body["outcome"] == "not-applied"
        assert ended.headers["Connection"] == "close"
        assert (await served.call("GET", wire.READYZ)).body["code"] == "shutting-down"
        assert (await served.call("GET", wire.LIVEZ)).status == 200


async def test_bytes_that_are_not_http_get_a_problem(caplog: pytest.LogCaptureFixture) -> None:
    """Bytes that cannot be parsed are answered with 400, and the log does not quote them."""
    caplog.set_level(logging.DEBUG)
    async with serving() as served:
        for sent in (b"BREW /s3cret HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00s3cret\r\n\r\n"):
            got = await served.raw(sent)
            assert got.startswith(b"HTTP/1.1 400 ")
            assert b'"code":"invalid-request"' in got
    assert "s3cret" not in caplog.text
    assert "Traceback" not in caplog.text


async def test_there_is_room_for_so_many_connections(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When all are busy only probes are answered, with a line; later there is room again."""
    monkeypatch.setattr(connection_limits, "LOCAL_COUNT_MAX", 0)
    async with serving(PlaceLimits(count_max=3)) as served:
        await served.acquire("a")  # by a connection that is kept, and ends for the second one below
        waits = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(2)]
        for _, writer in waits:
            writer.write(_post("/v1/locks/acquire", b'{"name":"a","ttl_ms":60000,"wait_ms":60000}'))
        await until(lambda: len(served.node.machine.lock("a").queue) == 2)
        async with asyncio.timeout(30):
            while not (await served.raw(_get("/v1/cluster"))).startswith(b"HTTP/1.1 200 "):
                """The kept connection is left alone for a moment."""
        busy = await asyncio.open_connection("127.0.0.1", served.port)
        busy[1].write(_post("/v1/locks/acquire", b'{"name":"a","ttl_ms":60000,"wait_ms":60000}'))
        await until(lambda: len(served.node.machine.lock("a").queue) == 3)
        refused_before = caplog.text.count("event=connections-full")
        assert (await served.raw(_get("/livez"))).startswith(b"HTTP/1.1 200 ")
        refused = await served.raw(_get("/v1/locks/a"))
        assert refused.startswith(b"HTTP/1.1 429 ")
        assert b'"code":"overloaded","outcome":"not-applied"' in refused
        assert (refused_before, caplog.text.count("event=connections-full in_use=3 limit=3")) == (1, 1)
        metrics = await served.raw(_get("/metrics"))
        assert b"\nholdfast_http_connections 3\n" in metrics
        assert b'\nholdfast_http_connections_ended_total{reason="room"} 1\n' in metrics
        busy[1].close()
        async with asyncio.timeout(30):
            while b" 429 " in await served.raw(_get("/v1/locks/a")):
                """The node has not noticed the end of the other connection yet."""
        for _, writer in waits:
            writer.close()


async def test_one_principal_keeps_no_other_out() -> None:
    """With its share in use it is told so, in either lane; probes are answered, and so are all others."""
    worker, boss = "w" * 40, "b" * 40
    tokens = token_line("worker", worker, "acquire") + token_line("boss", boss, "read,acquire")
    async with serving(PlaceLimits(count_max=4), tokens=tokens) as served:
        body = {"name": "a", "ttl_ms": 60_000}
        assert (await served.call("POST", "/v1/locks/acquire", body, headers=bearer(boss))).status == 200
        busy = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(2)]
        for _, writer in busy:
            writer.write(_post("/v1/locks/acquire", b'{"name":"a","ttl_ms":60000,"wait_ms":60000}', worker))
        await until(lambda: len(served.node.machine.lock("a").queue) == 2)
        acquire = _post("/v1/locks/acquire", b'{"name":"b","ttl_ms":60000}', worker)
        for request in (acquire, _get("/v1/cluster", worker)):
            refused = await served.raw(request)
            assert refused.startswith(b"HTTP/1.1 429 ")
            assert b"the bound of a principal on connections" in refused
        assert served.node.machine.lock("b").state == "free"
        assert (await served.raw(_get("/livez", worker))).startswith(b"HTTP/1.1 200 ")
        assert (await served.raw(_get("/v1/locks/a", boss))).startswith(b"HTTP/1.1 200 ")
        for _, writer in busy:
            writer.close()


async def test_silent_connections_keep_nobody_out() -> None:
    """Where silent connections fill the room, somebody who asks has an answer, and they end for it."""
    async with serving(PlaceLimits(count_max=5)) as served:
        silent = [
            await asyncio.open_connection("127.0.0.1", served.port)
            for _ in range(5 + LOCAL_COUNT_MAX + SPARE_COUNT_MAX)
        ]
        for _, writer in silent[::2]:
            writer.write(b"POST /v1/locks/acquire HTTP/1.1\r\nHost: x\r\nX-a: b\r\n")
        async with asyncio.timeout(30):
            while not (await served.raw(_get("/v1/locks/a"))).startswith(b"HTTP/1.1 200 "):
                """They are left alone for a moment."""
        with contextlib.suppress(ConnectionError):
            assert await silent[0][0].read() == b""
        for _, writer in silent:
            writer.close()


async def test_a_head_that_does_not_end_ends_its_connection() -> None:
    """Silence, half a head, and one that comes byte by byte have the same time; the ends are counted."""
    async with serving(PlaceLimits(head_s=0.2)) as served:
        head = b"GET /livez HTTP/1.1\r\nHost: x\r\n"
        for sent in (b"", head):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(sent)
            async with asyncio.timeout(30):
                assert await reader.read() == b""
            writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(head + b"X-Slow: ")
        ended = asyncio.ensure_future(reader.read())
        async with asyncio.timeout(30):
            while not ended.done():
                writer.write(b"x")
                await asyncio.wait({ended}, timeout=0.05)
        with contextlib.suppress(ConnectionError):
            assert ended.result() == b""
        writer.close()
        metrics = await served.raw(_get("/metrics"))
        assert b'\nholdfast_http_connections_ended_total{reason="head"} 3\n' in metrics


async def test_a_connection_at_rest_ends_and_one_that_waits_does_not() -> None:
    """Whoever waits for a lock or watches is busy, however long that takes."""
    async with serving(PlaceLimits(head_s=0.2, idle_s=0.2)) as served:
        hold = (await served.acquire("a")).body["hold_id"]
        waits = await asyncio.open_connection("127.0.0.1", served.port)
        waits[1].write(_post("/v1/locks/acquire", b'{"name":"a","ttl_ms":60000,"wait_ms":60000}'))
        await until(lambda: served.node.machine.lock("a").queue)
        watches = await asyncio.open_connection("127.0.0.1", served.port)
        watches[1].write(_get("/v1/watch"))
        assert (await watches[0].readline()).startswith(b"HTTP/1.1 200 ")
        for _ in range(2):
            rests = await asyncio.open_connection("127.0.0.1", served.port)
            rests[1].write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            async with asyncio.timeout(30):
                assert (await rests[0].read()).startswith(b"HTTP/1.1 200 ")
            rests[1].close()
        await served.post(wire.LOCK_RELEASE, hold_id=hold)
        assert (await waits[0].readline()).startswith(b"HTTP/1.1 200 ")
        assert not watches[0].at_eof()
        metrics = await served.raw(_get("/metrics"))
        assert b'_connections_ended_total{reason="head"} 0\n' in metrics
        waits[1].close()
        watches[1].close()


async def test_a_client_that_does_not_read_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are not kept for somebody who asks and asks and reads none of them."""
    monkeypatch.setattr(call, "_UNREAD_S", 0.2)
    async with serving() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1)
        assert isinstance(writer.transport, asyncio.Transport)
        writer.transport.pause_reading()
        async with asyncio.timeout(60):
            while b'_ended_total{reason="unread"} 1\n' not in await served.raw(_get("/metrics")):
                if not writer.transport.is_closing():
                    writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 16)
        writer.close()
        assert not reader.at_eof()


def _get(path: str, token: str = "") -> bytes:
    """Return a request that does not keep its connection."""
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n{_proof(token)}Connection: close\r\n\r\n".encode()


def _post(path: str, body: bytes, token: str = "") -> bytes:
    """Return a write."""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\n{_proof(token)}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _proof(token: str) -> str:
    return f"Authorization: Bearer {token}\r\n" if token else ""
