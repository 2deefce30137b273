"""Who calls: tokens, certificates, what a connection keeps of them, and what strangers can do."""

import asyncio
import gc
import logging
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import Tls, token_lines, wire
from holdfast.transport import tls
from http_api.server import authentication, tls_context
from http_api.server.connection_limits import Place
from http_api.server.fast_lane import LaneCall
from http_api.server.tls_gate import TlsDoor
from http_api.v1 import watch
from tests.support.certificates import Certificates
from tests.unit.http_api.serving import Served, bearer, serving, token_line, until

GOOD, OTHER = "hft_good-CANARY-4711-".ljust(47, "g"), "hft_other-CANARY-4711-".ljust(47, "o")
LINES = token_line("worker", GOOD, "read,acquire@mine metrics")
ACQUIRE = b'{"name":"mine/a","ttl_ms":60000}'


def request(token: str, body: bytes = ACQUIRE, path: str = wire.LOCK_ACQUIRE) -> bytes:
    """Return a plain request, as the fast lane takes it."""
    head = f"POST {path} HTTP/1.1\r\nHost: n1\r\nAuthorization: Bearer {token}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def closing(sent: bytes) -> bytes:
    """Return a request behind which the connection ends."""
    return sent.replace(b"Host: n1", b"Host: n1\r\nConnection: close")


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the tokens that are hashed from now on."""
    found: list[bytes] = []
    of_token = authentication.KnownPrincipals.of_token

    def seen(self: authentication.KnownPrincipals, token: bytes) -> Any:
        found.append(token)
        return of_token(self, token)

    monkeypatch.setattr(authentication.KnownPrincipals, "of_token", seen)
    return found


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (None, "send a token, in the header Authorization: Bearer TOKEN"),
        ("", "must be given once, as Bearer and a token of 32 to 256 visible ASCII characters"),
        ("Basic dXNlcjpwYXNz", "must be given once"),
        ("Bearer", "must be given once"),
        ("Bearer short", "must be given once"),
        (f"Bearer {'x' * 257}", "must be given once"),
        (f"Bearer {GOOD[:-1]}", "no principal has this token"),
        (f"Bearer {GOOD}g", "no principal has this token"),
        (f"Bearer {GOOD.upper()}", "no principal has this token"),
        (f"Bearer {GOOD[:-1]}é", "must be given once"),
    ],
)
async def test_strangers_are_told_how_to_call(header: str | None, said: str) -> None:
    """401, with the scheme, and nothing that they have sent."""
    async with serving(tokens=LINES) as served:
        headers = {} if header is None else {"Authorization": header}
        got = await served.call("GET", wire.CLUSTER, headers=headers)
        assert (got.status, got.body["code"]) == (401, "unauthenticated")
        assert got.headers["WWW-Authenticate"] == "Bearer"
        assert said in got.body["detail"]
        assert header is None or len(header) < 8 or header[7:] not in str(got.body)


async def test_the_scheme_is_written_as_one_likes_and_given_once() -> None:
    """As HTTP says. Two headers could mean two callers."""
    async with serving(tokens=LINES) as served:
        for scheme in ("Bearer", "bearer", "BEARER  "):
            got = await served.call("GET", wire.CLUSTER, headers={"authorization": f"{scheme} {GOOD}"})
            assert got.status == 200
        sent = request(GOOD).replace(b"\r\nContent", f"\r\nAuthorization: Bearer {OTHER}\r\nContent".encode())
        assert b"HTTP/1.1 401 " in await served.raw(closing(sent))


async def test_without_a_file_everybody_may_do_everything() -> None:
    """A token that is sent all the same means nothing, and costs no client the fast lane."""
    async with serving() as served:
        got = await served.call("GET", wire.CLUSTER, headers=bearer(OTHER))
        assert got.status == 200


async def converse(served: Served, *sent: bytes) -> list[bytes]:
    """Send one request after the other on one connection; return the answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    answers = []
    for one in sent:
        writer.write(one)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        answers.append(head + await reader.readexactly(length))
    writer.close()
    return answers


def statuses(answers: list[bytes]) -> list[int]:
    """Return the statuses of answers."""
    return [int(answer.split()[1]) for answer in answers]


async def test_a_connection_proves_itself_once(
    looked_up: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has proven is kept with it, in both lanes, until it proves something else."""
    begun: list[LaneCall] = []
    begin = LaneCall.begin

    def seen(call: LaneCall) -> None:
        begun.append(call)
        begin(call)

    monkeypatch.setattr(LaneCall, "begin", seen)
    async with serving(tokens=LINES + token_line("other", OTHER, "acquire")) as served:
        get = b"GET /v1/locks/mine/a HTTP/1.1\r\nHost: n1\r\nAuthorization: Bearer %b\r\n\r\n" % GOOD.encode()
        answers = await converse(served, request(GOOD), request(GOOD), get, get, request(OTHER))
        assert statuses(answers) == [200, 409, 200, 200, 409]
        assert looked_up == [GOOD.encode(), OTHER.encode()]
        assert len(begun) == 3
        await converse(served, request(GOOD))
        assert looked_up == [GOOD.encode(), OTHER.encode(), GOOD.encode()]


async def test_what_was_proven_ends_with_the_principals(looked_up: list[bytes]) -> None:
    """Whoever is gone from the file is a stranger on connections that are open, and rights change there."""
    async with serving(tokens=LINES) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)

        async def status() -> int:
            writer.write(request(GOOD))
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]))
            return int(head.split()[1])

        assert await status() == 200
        served.know(token_line("worker", GOOD, "read@mine"))
        assert await status() == 403
        served.know(token_line("other", OTHER, "acquire"))
        assert await status() == 401
        served.know(LINES)
        assert await status() == 409
        assert len(looked_up) == 5, "what the lane refuses is looked at again where it is explained"
        writer.close()


async def test_a_token_ends_at_its_time() -> None:
    """Also on a connection that is open."""
    until_s = int(time.time()) + 2
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(until_s))
    async with serving(tokens=token_line("worker", GOOD, f"read until={moment}")) as served:
        got = await served.call("GET", wire.CLUSTER, headers=bearer(GOOD))
        assert got.status == 200
        await until(lambda: time.time() >= until_s)
        got = await served.call("GET", wire.CLUSTER, headers=bearer(GOOD))
        assert (got.status, got.body["detail"]) == (401, "'worker' has expired (until=)")
        text = await metrics(served)
        assert text == ""


async def metrics(served: Served) -> str:
    """Return what is counted, "" if the token has no right to see it."""
    got = await served.call("GET", wire.METRICS, headers=bearer(GOOD))
    return "" if got.status != 200 else str(got.body.decode())


async def test_a_token_is_exchanged_without_a_gap() -> None:
    """A line may have two hashes: that of the old token and that of the new one."""
    digest = token_lines.digest(OTHER.encode()).hex().encode()
    both = LINES.replace(b" read,", b",sha256:" + digest + b" read,", 1)
    async with serving(tokens=both) as served:
        for token in (GOOD, OTHER):
            assert (await served.call("GET", wire.CLUSTER, headers=bearer(token))).status == 200


async def test_strangers_are_counted_and_nothing_is_kept_of_them() -> None:
    """Memory does not grow with their tokens; nor is the table of heads theirs to fill."""
    async with serving(tokens=LINES) as served:
        lane = served.runner.server.lane  # type: ignore[union-attr]
        sent = [request(f"{OTHER[:-6]}{number:06}") for number in range(300)]
        await converse(served, *sent[:100])
        heads = len(lane._fits)
        gc.collect()
        before = len(gc.get_objects())
        await converse(served, *sent)
        gc.collect()
        assert len(gc.get_objects()) - before < 200
        assert len(lane._fits) == heads
        text = await metrics(served)
        assert 'holdfast_http_unauthenticated_total{reason="unknown"} 400' in text
        assert "holdfast_http_principals 1" in text


async def test_a_stranger_s_body_is_not_read() -> None:
    """401 comes before the body: it would be looked at for nothing."""
    async with serving(tokens=LINES) as served:
        head = b"POST /v1/locks/acquire HTTP/1.1\r\nHost: n1\r\nContent-Length: 60000\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(head)
        assert (await asyncio.wait_for(reader.readline(), 5)).startswith(b"HTTP/1.1 401 ")
        writer.close()


async def test_probes_are_open_and_metrics_are_not() -> None:
    """Supervisors have no token; metrics say what a cluster does."""
    async with serving(tokens=LINES) as served:
        for path, status in {wire.LIVEZ: 200, wire.READYZ: 200, wire.METRICS: 401, wire.OPENAPI: 401}.items():
            assert (await served.call("GET", path)).status == status
            assert (await served.call("HEAD", path)).status == status


async def test_no_token_is_ever_shown(caplog: pytest.LogCaptureFixture) -> None:
    """Neither in logs at debug, nor in metrics, problems and tracebacks, wherever somebody writes one."""
    caplog.set_level(logging.DEBUG)
    seen: list[bytes] = []
    async with serving(tokens=LINES) as served:
        for token in (GOOD, OTHER):
            sent = [
                request(token),
                request(token, b"{"),
                request(token).replace(b"Bearer", b"Basic"),
                request(token).replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r\nbroken\r\n"),
                request(token).replace(b"Authorization: Bearer", b"Authorization: Bearer \x00"),
                request(token).replace(b"POST", b"PATCH"),
                request(token).replace(b"Host", b"Expect: miracles\r\nHost"),
            ]
            seen += [await served.raw(closing(one)) for one in sent]
        served.node.failure = RuntimeError("a bug")
        seen.append(await served.raw(closing(request(GOOD))))
        assert b"500 " in seen[-1]
        served.node.failure = None
        seen.append((await metrics(served)).encode())
        proven = [place.proven for place in gc.get_objects() if type(place) is Place]
        assert all("CANARY" not in repr(one) for one in proven)
    assert "event=internal-error" in caplog.text
    assert "principal=worker" in caplog.text
    assert b"CANARY" not in b"".join(seen)
    assert "CANARY" not in caplog.text


async def test_the_log_says_who_was_refused(caplog: pytest.LogCaptureFixture) -> None:
    """Whether for the kind of the call or for its name; of a stranger there is nothing to say."""
    caplog.set_level(logging.INFO)
    async with serving(tokens=LINES) as served:
        await served.call(
            "POST", wire.LOCK_FORCE_RELEASE, {"name": "mine/a", "reason": "r"}, headers=bearer(GOOD)
        )
        await served.call("POST", wire.LOCK_ACQUIRE, {"name": "a", "ttl_ms": 1000}, headers=bearer(GOOD))
        await served.call("GET", wire.CLUSTER)
    told = [line for line in caplog.messages if "event=request" in line]
    assert [" status=403 principal=worker " in line for line in told] == [True, True, False]
    assert [" principal=" in line for line in told] == [True, True, False]


async def test_a_watch_ends_with_the_right_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the next heartbeat it is cut, and says so."""
    monkeypatch.setattr(watch, "HEARTBEAT_S", 0.01)
    async with serving(tokens=LINES) as served:
        head = f"GET {wire.WATCH}?prefix=mine/ HTTP/1.1\r\nHost: n1\r\nAuthorization: Bearer {GOOD}\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(head.encode())
        await reader.readuntil(b": heartbeat\n")
        served.know(token_line("worker", GOOD, "read@mine read@other"))
        await reader.readuntil(b": heartbeat\n")
        served.know(token_line("worker", GOOD, "read@mine none@mine/secret"))
        text = await asyncio.wait_for(reader.read(), 10)
        assert b'event: cut\ndata: {"reason":"forbidden"}\n\n' in text
        writer.close()


async def test_a_certificate_is_somebody(tmp_path: Path) -> None:
    """By its common name or URI, when no token says otherwise; others need a token besides."""
    certificates = Certificates(tmp_path)
    door = TlsDoor(tls_context.load(certificates.files(wants_clients=True)).context)
    lines = LINES + b"tester cert:worker-7 read,acquire\n"
    trust = client_trust(certificates, "worker-7")
    async with serving(tls=door, trust=trust, tokens=lines) as served:
        assert (await served.acquire("any/name")).status == 200
        got = await served.call(
            "POST", wire.LOCK_ACQUIRE, {"name": "b", "ttl_ms": 1000}, headers=bearer(GOOD)
        )
        assert got.status == 403
        assert (await served.acquire("any/name")).status == 409
    async with serving(tls=door, trust=client_trust(certificates, "worker-8"), tokens=lines) as served:
        assert (await served.acquire("any/name")).status == 401


def client_trust(certificates: Certificates, name: str) -> ssl.SSLContext:
    """Return what a client with a certificate of this name uses."""
    pair = certificates.client(name)
    return tls.make_context(Tls(certificates.ca, pair.cert, pair.key))
