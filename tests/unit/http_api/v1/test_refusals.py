"""What is refused: status, code, outcome, and the name of the field."""

import asyncio
from typing import Any

import pytest

from cluster import errors
from holdfast import wire
from lockstate.words import limits
from tests.unit.http_api.serving import check_problem, serving

ACQUIRE = wire.LOCK_ACQUIRE
GOOD = {"name": "a", "ttl_ms": 1000}
SEVERAL = {"ttl_ms": 1000, "locks": [{"name": "a"}, {"name": "b"}]}
PERMITS = {**GOOD, "limit": 3}
RATE = {"name": "a", "limit": 10, "window_ms": 1000}
CAMPAIGN = {"name": "a", "session_id": "s", "value": "http://a"}
LONG = "x" * 5000

WRONG_BODIES: list[tuple[str, dict[str, Any], str]] = [
    (ACQUIRE, {}, "name or locks"),
    (ACQUIRE, {"name": "a"}, "session_id or ttl_ms"),
    (ACQUIRE, {**GOOD, "session_id": "s"}, "session_id and ttl_ms"),
    (ACQUIRE, {"name": "a", "session_id": ""}, "session_id"),
    (ACQUIRE, {"name": "a", "session_id": "x" * 65}, "session_id"),
    (ACQUIRE, {"name": "a", "session_id": None}, "session_id"),
    (ACQUIRE, {**GOOD, "name": 5}, "name"),
    (ACQUIRE, {**GOOD, "name": ""}, "name"),
    (ACQUIRE, {**GOOD, "name": "a//b"}, "name"),
    (ACQUIRE, {**GOOD, "name": "/a"}, "name"),
    (ACQUIRE, {**GOOD, "name": "a\nb"}, "name"),
    (ACQUIRE, {**GOOD, "ttl_ms": "1000"}, "ttl_ms"),
    (ACQUIRE, {**GOOD, "ttl_ms": 1000.5}, "ttl_ms"),
    (ACQUIRE, {**GOOD, "ttl_ms": True}, "ttl_ms"),
    (ACQUIRE, {**GOOD, "mode": "intent"}, "mode"),
    (ACQUIRE, {**GOOD, "mode": None}, "mode"),
    (ACQUIRE, {**GOOD, "mode": 1}, "mode"),
    (ACQUIRE, {**GOOD, "scope": "tree"}, "scope"),
    (ACQUIRE, {**SEVERAL, "name": "a"}, "name and locks"),
    (ACQUIRE, {**SEVERAL, "mode": "shared"}, "mode and locks"),
    (ACQUIRE, {**SEVERAL, "scope": "node"}, "scope and locks"),
    (ACQUIRE, {**SEVERAL, "session_id": "s"}, "session_id and ttl_ms"),
    (ACQUIRE, {"locks": [{"name": "a"}]}, "session_id or ttl_ms"),
    (ACQUIRE, {**SEVERAL, "locks": []}, "locks"),
    (ACQUIRE, {**SEVERAL, "locks": "a"}, "locks"),
    (ACQUIRE, {**SEVERAL, "locks": ["a"]}, "locks[0]"),
    (ACQUIRE, {**SEVERAL, "locks": [{"name": "a"}, {}]}, "locks[1].name"),
    (ACQUIRE, {**SEVERAL, "locks": [{"name": "a"}, {"name": "b//"}]}, "locks[1].name"),
    (ACQUIRE, {**SEVERAL, "locks": [{"name": "a", "mode": "x"}]}, "locks[0].mode"),
    (ACQUIRE, {**SEVERAL, "locks": [{"name": "a", "scope": 1}]}, "locks[0].scope"),
    (ACQUIRE, {**SEVERAL, "locks": [{"name": "a", "ttl_ms": 1}]}, "locks[0].ttl_ms"),
    (ACQUIRE, {**SEVERAL, "locks": [{"name": "a"}, {"name": "a", "mode": "shared"}]}, "locks"),
    (ACQUIRE, {**SEVERAL, "locks": [{"name": "a", "scope": "subtree"}, {"name": "a/b/c"}]}, "locks"),
    (ACQUIRE, {**GOOD, "wait_ms": -1}, "wait_ms"),
    (ACQUIRE, {**GOOD, "wait_ms": limits.WAIT_MS_MAX + 1}, "wait_ms"),
    (ACQUIRE, {**GOOD, "lock_delay_ms": 10**30}, "lock_delay_ms"),
    (ACQUIRE, {**GOOD, "owner": LONG}, "owner"),
    (ACQUIRE, {**GOOD, "owner": "a\x00"}, "owner"),
    (ACQUIRE, {**GOOD, "note": LONG}, "note"),
    (ACQUIRE, {**GOOD, "request_id": ""}, "request_id"),
    (ACQUIRE, {**GOOD, "request_id": LONG}, "request_id"),
    (ACQUIRE, {**GOOD, "request_id": "1"}, "request_id"),
    (ACQUIRE, {**GOOD, "colour": "red"}, "colour"),
    (wire.LOCK_RENEW, {}, "hold_id or value"),
    (wire.LOCK_RENEW, {"hold_id": ["x"]}, "hold_id"),
    (wire.LOCK_RENEW, {"hold_id": "x", "name": "a"}, "name and hold_id"),
    (wire.LOCK_RENEW, {"hold_id": "x", "value": "a"}, "value and hold_id"),
    (wire.LOCK_RENEW, {"value": "v"}, "name"),
    (wire.LOCK_RENEW, {"name": "a", "value": ""}, "value"),
    (wire.LOCK_RENEW, {"name": "a"}, "hold_id or value"),
    (wire.LOCK_RELEASE, {"name": "a", "value": LONG}, "value"),
    (wire.LOCK_RELEASE, {"name": "a", "value": "v", "names": ["a"]}, "names"),
    (wire.LOCK_RELEASE, {"name": "/", "value": "v"}, "name"),
    (wire.SEMAPHORE_RELEASE, {"name": "a", "value": 1}, "value"),
    (ACQUIRE, {**GOOD, "value": ""}, "value"),
    (ACQUIRE, {**GOOD, "value": LONG}, "value"),
    (ACQUIRE, {**GOOD, "value": "a\nb"}, "value"),
    (ACQUIRE, {**GOOD, "value_secret": True}, "value_secret"),
    (wire.SEMAPHORE_ACQUIRE, {**PERMITS, "value_secret": True}, "value_secret"),
    (wire.LOCK_RELEASE, {"hold_id": ""}, "hold_id"),
    (wire.LOCK_RELEASE, {"hold_id": "x", "token": 1}, "token"),
    (wire.LOCK_RELEASE, {"hold_id": "x", "names": []}, "names"),
    (wire.LOCK_RELEASE, {"hold_id": "x", "names": "a"}, "names"),
    (wire.LOCK_RELEASE, {"hold_id": "x", "names": ["a", 1]}, "names[1]"),
    (wire.LOCK_RELEASE, {"hold_id": "x", "names": ["a", "/"]}, "names[1]"),
    (wire.LOCK_RELEASE, {"hold_id": "x", "names": ["a", "b", "a"]}, "names"),
    (wire.LOCK_CONVERT, {"hold_id": "x"}, "mode"),
    (wire.LOCK_ADD, {"hold_id": "x"}, "locks"),
    (wire.LOCK_ADD, {"locks": [{"name": "b"}]}, "hold_id"),
    (wire.LOCK_ADD, {"hold_id": "x", "locks": [{"mode": "shared"}]}, "locks[0].name"),
    (wire.LOCK_ADD, {"hold_id": "x", "locks": [{"name": "b"}], "wait_ms": -1}, "wait_ms"),
    (wire.LOCK_CONVERT, {"mode": "shared"}, "hold_id"),
    (wire.LOCK_CONVERT, {"hold_id": "", "mode": "shared"}, "hold_id"),
    (wire.LOCK_CONVERT, {"hold_id": "x", "mode": "none"}, "mode"),
    (wire.LOCK_CONVERT, {"hold_id": "x", "mode": "shared", "scope": "node"}, "scope"),
    (wire.LOCK_FORCE_RELEASE, {"name": "a"}, "reason"),
    (wire.LOCK_FORCE_RELEASE, {"name": "a", "reason": ""}, "reason"),
    (wire.LOCK_FORCE_RELEASE, {"name": "a", "reason": LONG}, "reason"),
    (wire.LOCK_FORCE_RELEASE, {"name": "a", "reason": "x", "lock_delay_ms": -1}, "lock_delay_ms"),
    (wire.LOCK_FORCE_RELEASE, {"name": "a", "reason": "x", "token": 0}, "token"),
    (wire.SEMAPHORE_FORCE_RELEASE, {"name": "a", "reason": ""}, "reason"),
    (wire.SEMAPHORE_FORCE_RELEASE, {"name": "a", "reason": "x", "token": "1"}, "token"),
    (wire.SEMAPHORE_FORCE_RELEASE, {"name": "a", "reason": "x", "token": 2**53}, "token"),
    (wire.ELECTION_DEPOSE, {"name": "a"}, "reason"),
    (wire.ELECTION_DEPOSE, {"name": "", "reason": "x"}, "name"),
    (wire.ELECTION_DEPOSE, {"name": "a", "reason": "x", "lock_delay_ms": 1}, "lock_delay_ms"),
    (wire.SEMAPHORE_ACQUIRE, {**GOOD, "strict": True}, "limit"),
    (wire.SEMAPHORE_ACQUIRE, {**PERMITS, "name": ""}, "name"),
    (wire.SEMAPHORE_ACQUIRE, {**PERMITS, "limit": "3"}, "limit"),
    (wire.SEMAPHORE_ACQUIRE, {**PERMITS, "session_id": "s"}, "session_id and ttl_ms"),
    (wire.SEMAPHORE_ACQUIRE, {"name": "a", "limit": 3}, "session_id or ttl_ms"),
    (wire.SEMAPHORE_ACQUIRE, {**PERMITS, "mode": "shared"}, "mode"),
    (wire.SEMAPHORE_RENEW, {}, "hold_id or value"),
    (wire.SEMAPHORE_RELEASE, {"hold_id": "x", "names": ["a"]}, "names"),
    (wire.SEMAPHORE_RESIZE, {"name": "a"}, "limit"),
    (wire.SEMAPHORE_RESIZE, {"name": "/", "limit": 1, "reason": "r"}, "name"),
    (wire.RATE_TAKE, {"name": "a", "limit": 0}, "limit"),
    (wire.RATE_TAKE, {"name": "a", "window_ms": 0}, "window_ms"),
    (wire.RATE_TAKE, {"name": "a", "cost": 0}, "cost"),
    (wire.RATE_TAKE, {**RATE, "name": ""}, "name"),
    (wire.RATE_TAKE, {**RATE, "algorithm": "leaky-bucket"}, "algorithm"),
    (wire.RATE_TAKE, {**RATE, "ttl_ms": 1000}, "ttl_ms"),
    (wire.FENCE_CHECK, {"name": "a"}, "token"),
    (wire.FENCE_CHECK, {"name": "", "token": 1}, "name"),
    (wire.FENCE_CHECK, {"name": "a", "token": 1, "request_id": "r"}, "request_id"),
    (wire.FENCE_ADVANCE, {"name": "a"}, "token"),
    (wire.FENCE_ADVANCE, {"name": "a//b", "token": 1}, "name"),
    (wire.FENCE_ADVANCE, {"resource": "a", "token": 1}, "resource"),
    (wire.ELECTION_CAMPAIGN, {"name": "a", "value": ""}, "session_id"),
    (wire.ELECTION_CAMPAIGN, {"name": "a", "session_id": "s"}, "value"),
    (wire.ELECTION_CAMPAIGN, {**CAMPAIGN, "name": "."}, "name"),
    (wire.ELECTION_CAMPAIGN, {**CAMPAIGN, "session_id": ""}, "session_id"),
    (wire.ELECTION_CAMPAIGN, {**CAMPAIGN, "value": "a\nb"}, "value"),
    (wire.ELECTION_CAMPAIGN, {**CAMPAIGN, "ttl_ms": 1000}, "ttl_ms"),
    (wire.ELECTION_PROCLAIM, {"hold_id": "x"}, "value"),
    (wire.ELECTION_PROCLAIM, {"hold_id": "", "value": ""}, "hold_id"),
    (wire.ELECTION_RESIGN, {"hold_id": "x", "value": "bye"}, "value"),
    (wire.SESSIONS, {}, "ttl_ms"),
    (wire.SESSIONS, {"ttl_ms": 1000, "labels": {"a": 1}}, "labels"),
    (wire.SESSIONS, {"ttl_ms": 1000, "labels": {"": "x"}}, "labels"),
    (wire.SESSIONS, {"ttl_ms": 1000, "labels": {str(n): "" for n in range(17)}}, "labels"),
    ("/v1/sessions/s/keepalive", {"ttl_ms": "5"}, "ttl_ms"),
    (wire.CLUSTER_TRANSFER_LEADERSHIP, {"to": "n9", "reason": "r"}, "to"),
    (wire.CLUSTER_TRANSFER_LEADERSHIP, {"to": 1}, "to"),
]

WRONG_BYTES: list[tuple[bytes, str]] = [
    (b"", "name or locks"),
    (b"{", "body"),
    (b"null", "body"),
    (b"[]", "body"),
    (b'"a"', "body"),
    (b'{"name":"a","ttl_ms":1000} x', "body"),
    (b'{"name":"a","ttl_ms":NaN}', "body"),
    (b'{"name":"a","ttl_ms":Infinity}', "body"),
    (b'{"name":"\xff","ttl_ms":1000}', "body"),
    (b'{"name":"\\ud800","ttl_ms":1000}', "body"),
    (b'{"name":"\\udc00 ","ttl_ms":1000}', ""),
    (b"{'name':'a'}", "body"),
    (b'{"name":"a","name":"b","ttl_ms":1000}', "name"),
    (b'{"name":"a","n\\u0061me":"b","ttl_ms":1000}', "name"),
    (b'{"name" : "a", "ttl_ms":1000, "ttl_ms"\n:1000}', "ttl_ms"),
    (b'{"name":"a","ttl_ms":' + b"[" * 20_000 + b"]" * 20_000 + b"}", ""),
    (b"[" * 60_000, "body"),
]

WRONG_QUERIES = [
    ("/v1/locks/a?consistency=eventual", "consistency"),
    ("/v1/locks/a?consistency=", "consistency"),
    ("/v1/locks/a?colour=red", "colour"),
    ("/v1/locks/a?consistency=stale&consistency=stale", "consistency"),
    ("/v1/locks?limit=0", "limit"),
    ("/v1/locks?limit=1001", "limit"),
    ("/v1/locks?limit=x", "limit"),
    ("/v1/locks?limit=-1", "limit"),
    ("/v1/locks?prefix=" + LONG, "prefix"),
    ("/v1/locks?after=%00", "after"),
    ("/v1/locks?after=%ff", "query"),
    ("/v1/locks/a%ff", "path"),
    ("/v1/locks/", "name"),
    ("/v1/locks/a//b", "name"),
    ("/v1/cluster?x=1", "x"),
    ("/v1/semaphores/", "name"),
    ("/v1/semaphores/a?consistency=no", "consistency"),
    ("/v1/elections/a/", "name"),
    ("/v1/elections/a?limit=1", "limit"),
    ("/v1/audit?name=", "name"),
    ("/v1/audit?name=a//b", "name"),
    ("/v1/audit?limit=0", "limit"),
    ("/v1/audit?limit=1001", "limit"),
    ("/v1/sessions/s/audit?name=a", "name"),
    ("/v1/sessions/s/audit?limit=1e3", "limit"),
    ("/v1/sessions/" + "x" * 65, "session_id"),
]

FAILURES: list[tuple[Exception, int, str, str]] = [
    (errors.NoLeader("no leader"), 503, "no-leader", "not-applied"),
    (errors.Overloaded("full"), 429, "overloaded", "not-applied"),
    (errors.ShuttingDown("bye"), 503, "shutting-down", "not-applied"),
    (errors.TransferFailed("no"), 503, "transfer-failed", "not-applied"),
    (errors.OutcomeUnknown("who knows"), 504, "outcome-unknown", "unknown"),
    (RuntimeError("a bug"), 500, "internal", "unknown"),
    (ConnectionResetError("a bug, too"), 500, "internal", "unknown"),
]


@pytest.mark.parametrize(("path", "body", "field"), WRONG_BODIES)
async def test_wrong_bodies(path: str, body: dict[str, Any], field: str) -> None:
    """A wrong field is refused by its name, and nothing is applied."""
    async with serving() as served:
        got = await served.call("POST", path, body)
        check_problem(got, 400, "invalid-request")
        assert got.body["detail"].startswith(f"{field}:")
        assert served.node.machine.revision == 0


@pytest.mark.parametrize(("sent", "field"), WRONG_BYTES)
async def test_wrong_bytes(sent: bytes, field: str) -> None:
    """A body that is not a JSON object, or has a field twice, is refused."""
    async with serving() as served:
        got = await served.call("POST", ACQUIRE, data=sent, headers={"Content-Type": wire.JSON})
        check_problem(got, 400, "invalid-request")
        assert got.body["detail"].startswith(field)
        assert served.node.machine.revision == 0


@pytest.mark.parametrize(("path", "field"), WRONG_QUERIES)
async def test_wrong_paths_and_queries(path: str, field: str) -> None:
    """Unknown, repeated and wrong query parameters, and wrong names in paths, are refused by name."""
    async with serving() as served:
        head = await served.raw(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        assert head.startswith(b"HTTP/1.1 400 ")
        assert f'"detail":"{field}:'.encode() in head


async def test_values_that_look_like_keys_are_not_repetitions() -> None:
    """Values that look like keys do not make a body wrong."""
    async with serving() as served:
        for note in ('"note":', 'x": "name": "name":', "\\u0041 \\", ":"):
            got = await served.acquire(f"a{served.node.machine.revision}", note=note, owner="name")
            assert got.status == 200


async def test_names_and_ttls_have_codes_of_their_own() -> None:
    """Too long a name and too short or long a ttl can be told apart by code."""
    async with serving() as served:
        for name in ("x" * 513, "ü" * 257):
            got = await served.acquire(name)
            check_problem(got, 400, "name-too-long")
        check_problem(await served.call("GET", f"/v1/locks/{'x' * 513}"), 400, "name-too-long")
        for ttl_ms in (0, -1, limits.TTL_MS_MIN - 1, limits.TTL_MS_MAX + 1, 10**30):
            check_problem(await served.acquire("a", ttl_ms=ttl_ms), 400, "ttl-out-of-range")
            check_problem(
                await served.call("POST", wire.SESSIONS, {"ttl_ms": ttl_ms}), 400, "ttl-out-of-range"
            )
            renew = {"hold_id": "x", "ttl_ms": ttl_ms}
            check_problem(await served.call("POST", wire.LOCK_RENEW, renew), 400, "ttl-out-of-range")


async def test_unknown_and_foreign_ids_are_gone() -> None:
    """A hold id that was never given, or a session id in its place, renews and releases nothing."""
    async with serving() as served:
        session = await served.call("POST", wire.SESSIONS, {"ttl_ms": 60_000})
        session_id = session.body["session_id"]
        await served.acquire("a", session_id=session_id)
        for hold_id in ("f" * 32, session_id, "ü"):
            for path in (wire.LOCK_RENEW, wire.LOCK_RELEASE):
                check_problem(await served.call("POST", path, {"hold_id": hold_id}), 410, "lease-expired")
        got = await served.call("POST", "/v1/sessions/nobody/keepalive")
        check_problem(got, 410, "session-expired")
        assert (await served.call("GET", "/v1/locks/a")).body["state"] == "held"


async def test_the_content_type_must_be_json() -> None:
    """No content type counts as JSON, with or without a charset, and curl's default; any other is refused."""
    async with serving() as served:
        body = b'{"name":"a","ttl_ms":60000}'
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        of_a_page = form | {"Origin": f"http://127.0.0.1:{served.port}"}
        for headers in (of_a_page, {"Content-Type": "text/plain"}, {"Content-Type": "text/xml"}):
            got = await served.call("POST", ACQUIRE, data=body, headers=headers)
            check_problem(got, 400, "invalid-request")
            assert got.body["detail"].startswith("Content-Type:")
        by_curl = b'{"name":"of-curl","ttl_ms":60000}'
        assert (await served.call("POST", ACQUIRE, data=by_curl, headers=form)).status == 200
        told = {"Content-Type": "Application/JSON; charset=utf-8"}
        assert (await served.call("POST", ACQUIRE, data=body, headers=told)).status == 200
        untold = b"POST /v1/locks/acquire HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        sent = untold + b"Content-Length: %d\r\n\r\n" % len(body) + body
        assert (await served.raw(sent)).startswith(b"HTTP/1.1 409 ")


async def test_large_bodies_are_refused_before_they_are_read() -> None:
    """A length above 64 KiB is refused from the head alone."""
    async with serving() as served:
        sent = b"POST /v1/locks/acquire HTTP/1.1\r\nHost: x\r\nContent-Length: 65537\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(sent)
        assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
        writer.close()
        data = b'{"name":"' + b"a" * 65_536 + b'"}'
        got = await served.call("POST", ACQUIRE, data=data, headers={"Content-Type": wire.JSON})
        check_problem(got, 413, "payload-too-large")


async def test_large_streams_are_refused() -> None:
    """A body of unknown length is cut at 64 KiB."""
    async with serving() as served:
        chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
        sent = b"POST /v1/locks/acquire HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 5
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(sent)
        assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
        writer.close()


async def test_a_body_of_64_kib_is_read() -> None:
    """The bound itself is allowed, also in pieces."""
    async with serving() as served:
        body = b'{"name":"a","ttl_ms":60000}'.ljust(wire.BODY_BYTES_MAX)
        head = b"POST /v1/locks/acquire HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        whole = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        assert (await served.raw(whole)).startswith(b"HTTP/1.1 200 ")
        pieces = head + b"Transfer-Encoding: chunked\r\n\r\n8000\r\n" + body[:0x8000] + b"\r\n"
        pieces += b"8000\r\n" + body[0x8000:] + b"\r\n0\r\n\r\n"
        assert (await served.raw(pieces)).startswith(b"HTTP/1.1 409 ")


async def test_a_body_that_never_comes_is_given_up() -> None:
    """A client that announces a body and sends none is answered after its own deadline."""
    async with serving() as served:
        sent = b"POST /v1/locks/acquire HTTP/1.1\r\nHost: x\r\n"
        sent += b"Holdfast-Timeout-Ms: 50\r\nContent-Length: 9\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(sent)
        assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")
        writer.close()


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", ACQUIRE, "POST"),
        ("GET", ACQUIRE, "POST"),
        ("PUT", wire.CELLS_TRANSACT, "POST"),
        ("DELETE", wire.SESSION_FORCE_CLOSE, "POST"),
        ("DELETE", "/v1/locks/a", "GET, HEAD"),
        ("PUT", wire.SESSIONS, "GET, HEAD, POST"),
        ("PATCH", "/v1/sessions/s", "DELETE, GET, HEAD"),
        ("POST", wire.LIVEZ, "GET, HEAD"),
    ],
)
async def test_wrong_methods(method: str, path: str, allow: str) -> None:
    """A known path says which methods it takes."""
    async with serving() as served:
        got = await served.call(method, path)
        check_problem(got, 405, "method-not-allowed")
        assert got.headers["Allow"] == allow


async def test_a_name_that_is_an_action_too() -> None:
    """With one letter percent-encoded it is a name."""
    async with serving() as served:
        await served.acquire("release")
        check_problem(await served.call("GET", wire.LOCK_RELEASE), 405, "method-not-allowed")
        got = await served.raw(b"GET /v1/locks/%72elease HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b'"name":"release","state":"held"' in got


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nothing"),
        ("GET", "/v2/locks"),
        ("GET", "/v1/sessions/a/b"),
        ("GET", "/v1/semaphore"),
        ("GET", "/v1/rate-limit"),
        ("POST", "/v1/fence"),
        ("POST", "/v1/election"),
        ("GET", "/v1/audit/a"),
        ("GET", "/v1/stream/a"),
        ("POST", "/v1/cluster/members/n1"),
    ],
)
async def test_unknown_paths(method: str, path: str) -> None:
    """What is not there, or not there yet, is not found."""
    async with serving() as served:
        check_problem(await served.call(method, path), 404, "not-found")


@pytest.mark.parametrize(("failure", "status", "code", "outcome"), FAILURES)
async def test_failures_of_the_cluster(failure: Exception, status: int, code: str, outcome: str) -> None:
    """Each failure has its status and says whether the request may have had an effect."""
    async with serving() as served:
        served.node.failure = failure
        for method, path, body in (
            ("POST", ACQUIRE, GOOD),
            ("POST", wire.LOCK_RELEASE, {"hold_id": "x"}),
            ("GET", "/v1/locks/a", None),
            ("POST", wire.CLUSTER_TRANSFER_LEADERSHIP, {"reason": "r"}),
        ):
            got = await served.call(method, path, body)
            check_problem(got, status, code, outcome)
            assert got.body.get("retry_after_ms", 0) == getattr(failure, "retry_after_ms", 0)
            assert ("Retry-After" in got.headers) == ("retry_after_ms" in got.body)
            assert "a bug" not in got.body["detail"]
