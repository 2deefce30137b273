"""TLS in front of the real server: who gets in, who does not, and what each of them hears."""

import asyncio
import contextlib
import logging
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from holdfast.transport import tls
from http_api.server import tls_context, tls_gate
from http_api.server.connection_limits import PlaceLimits
from http_api.server.tls_gate import TlsDoor
from tests.support.certificates import Certificates, authority
from tests.unit.http_api.serving import ROOM, Served, serving, until

JSON = {"Content-Type": "application/json"}
RELEASE = (
    b"POST /v1/locks/release HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n"
    b'{"hold_id":"0123456789abcdef0123456789abcdef"}    '
)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """Make an authority."""
    return Certificates(tmp_path)


@contextlib.asynccontextmanager
async def tls_serving(
    certificates: Certificates,
    *,
    wants_clients: bool = False,
    room: PlaceLimits = ROOM,
    fast_lane: bool = True,
    is_known: bool = True,
    takes_plain: bool = False,
) -> AsyncIterator[tuple[Served, TlsDoor]]:
    """Run a server with TLS, and a client that trusts it."""
    ready = tls_context.load(certificates.files(wants_clients=wants_clients))
    door = TlsDoor(ready.context, takes_plain=takes_plain)
    trust = tls.make_context(certificates.tls(is_known=is_known))
    async with serving(room, fast_lane=fast_lane, tls=door, trust=trust) as served:
        yield served, door


def counts(door: TlsDoor) -> dict[str, float]:
    """Return how often each result was counted."""
    return {sample[3]["result"]: sample[4] for sample in door.samples()}


@pytest.mark.parametrize("fast_lane", [True, False])
async def test_calls_are_answered(certificates: Certificates, *, fast_lane: bool) -> None:
    """Locks are taken and released, on one connection and on several."""
    async with tls_serving(certificates, fast_lane=fast_lane) as (served, door):
        got = await served.acquire("a")
        assert got.status == 200
        assert (await served.post("/v1/locks/release", hold_id=got.body["hold_id"])).status == 200
        assert (await served.call("GET", "/metrics")).status == 200
        assert counts(door) == {"ok": 1}


async def test_the_fast_lane_takes_what_comes_through_tls(certificates: Certificates) -> None:
    """A plain request is its own, from the first of a connection on, and answers are the same bytes."""
    async with tls_serving(certificates) as (served, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=served.trust)
        for _ in range(2):
            writer.write(RELEASE)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 410 ")
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
        writer.close()
        assert len(served.node.begun) == 2  # `begin` is what the lane alone calls


async def test_bodies_and_answers_of_many_records(certificates: Certificates) -> None:
    """A record holds 16 KiB; what is longer comes and goes in several."""
    async with tls_serving(certificates) as (served, _):
        body = b" " * 40_000 + b'{"name":"a","ttl_ms":60000}'
        assert (await served.call("POST", "/v1/locks/acquire", data=body, headers=JSON)).status == 200
        got = await served.call("GET", "/openapi.json")
        assert got.body["openapi"]
        assert int(got.headers["Content-Length"]) > 16_384
        refused = await served.call("POST", "/v1/locks/acquire", {"name": "n" * 70_000, "ttl_ms": 1000})
        assert refused.body["code"] == "payload-too-large"


async def test_a_client_that_does_not_read_does_not_fill_the_memory(certificates: Certificates) -> None:
    """Requests without end, none of whose answers are read, are not read either."""
    async with tls_serving(certificates) as (served, _):
        _, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=served.trust, limit=1)
        one = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100

        async def send_much() -> None:
            for _ in range(5000):
                writer.write(one)
                await asyncio.wait_for(writer.drain(), 1)

        with pytest.raises(TimeoutError):
            await send_much()
        writer.transport.abort()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2])
async def test_older_versions_are_refused(certificates: Certificates, version: ssl.TLSVersion) -> None:
    """TLS 1.2 gets an alert that says so."""
    async with tls_serving(certificates) as (served, door):
        assert served.trust is not None
        served.trust.minimum_version = ssl.TLSVersion.TLSv1_2
        served.trust.maximum_version = version
        with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
            await asyncio.open_connection("127.0.0.1", served.port, ssl=served.trust)
        assert counts(door) == {"protocol": 1}


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl program")
@pytest.mark.parametrize(("option", "is_served"), [("-tls1_2", False), ("-tls1_3", True)])
async def test_openssl_speaks_only_the_newest_version(
    certificates: Certificates, option: str, *, is_served: bool
) -> None:
    """Another implementation finds the same."""
    async with tls_serving(certificates) as (served, _):
        where = ("-connect", f"127.0.0.1:{served.port}", "-CAfile", str(certificates.ca))
        asked = await asyncio.to_thread(
            subprocess.run,
            ["openssl", "s_client", option, "-verify_return_error", *where],
            input=b"",
            capture_output=True,
            check=False,
            timeout=20,
        )
        assert (asked.returncode == 0) == is_served
        assert (b"alert protocol version" in asked.stderr) != is_served


async def test_a_client_needs_a_certificate_where_one_is_wanted(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """One without hears that it is missing; the request that it sent meanwhile is not carried out."""
    async with tls_serving(certificates, wants_clients=True) as (served, door):
        assert (await served.acquire("a")).status == 200
        for stranger, alert in {
            certificates.tls(): "CERTIFICATE_REQUIRED",
            tls.Tls(certificates.ca, *certificates.client("other", by="somebody else")): "UNKNOWN_CA",
        }.items():
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", served.port, ssl=tls.make_context(stranger)
            )
            with pytest.raises(ssl.SSLError, match=alert):  # noqa: PT012 - sent, or refused before that
                writer.write(RELEASE)
                await reader.read()
            writer.transport.abort()
        assert len(served.node.begun) == 1
        assert counts(door) == {"ok": 1, "client-certificate": 2}
        assert "--tls-client-ca" in caplog.text


async def test_an_expired_certificate_of_a_client_is_refused(certificates: Certificates) -> None:
    """It is told so."""
    files = certificates.files()._replace(client_ca=certificates.old_ca)
    trust = tls.make_context(tls.Tls(certificates.ca, *certificates.expired_client()))
    async with serving(tls=TlsDoor(tls_context.load(files).context), trust=trust) as served:
        with pytest.raises((ssl.SSLError, aiohttp.ClientError), match="CERTIFICATE_EXPIRED"):
            await served.acquire("a")


async def test_a_client_that_does_not_trust_the_node(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """The log of the node says what the client has found wrong."""
    other = certificates.write("others", authority("somebody else"))
    async with tls_serving(certificates) as (served, door):

        def ask() -> None:
            # asyncio's own connections end without the alert.
            with socket.create_connection(("127.0.0.1", served.port)) as raw:
                tls.make_context(tls.Tls(other.cert)).wrap_socket(raw, server_hostname="127.0.0.1")

        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.to_thread(ask)
        await until(lambda: counts(door) == {"node-certificate": 1})
    assert "does not trust this node" in caplog.text


async def test_plain_http_is_told_to_use_tls(certificates: Certificates) -> None:
    """That is the mistake that people make, and the answer is one that they can read."""
    async with tls_serving(certificates) as (served, door):
        served.trust = None
        answer = await served.raw(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 421 ")
        assert b'"code":"tls-required","outcome":"not-applied"' in answer
        assert b"https://" in answer
        long = await served.raw(RELEASE + b" " * 200_000)
        assert long.startswith(b"HTTP/1.1 421 ")
        assert counts(door) == {"plain-http": 2}
        assert not served.node.begun


@pytest.mark.parametrize("fast_lane", [True, False])
async def test_plain_http_is_served_while_clients_go_over(
    certificates: Certificates, caplog: pytest.LogCaptureFixture, *, fast_lane: bool
) -> None:
    """On the same port as TLS, with all that a connection without TLS has; the node says who it is."""
    async with tls_serving(certificates, fast_lane=fast_lane, takes_plain=True) as (served, door):
        assert (await served.acquire("sealed")).status == 200
        trust, served.trust = served.trust, None
        got = await served.acquire("open")
        assert got.status == 200
        assert (await served.post("/v1/locks/release", hold_id=got.body["hold_id"])).status == 200
        assert (
            await served.raw(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        ).startswith(b"HTTP/1.1 200 ")
        served.trust = trust
        assert (await served.acquire("sealed too")).status == 200
        told = counts(door)
        assert told["plain-accepted"] >= 2
        assert set(told) == {"ok", "plain-accepted"}
    (line,) = (
        record.getMessage() for record in caplog.records if "event=tls-not-used" in record.getMessage()
    )
    assert "https://" in line


async def test_a_plain_connection_that_is_silent_ends_like_any_other(certificates: Certificates) -> None:
    """After its first byte it has the place, and the limits, of a connection without TLS."""
    room = PlaceLimits(count_max=10, head_s=0.5)
    async with tls_serving(certificates, room=room, takes_plain=True) as (served, door):
        served.trust = None
        assert await served.raw(b"GET /livez HTTP/1.1\r\nHost: loc") == b""
        assert counts(door) == {"plain-accepted": 1}
        assert await served.raw(b"\x00" * 100) == b""
        assert counts(door)["protocol"] == 1


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01\x00", b"\x16"])
async def test_a_handshake_that_is_not_finished_ends_in_time(certificates: Certificates, sent: bytes) -> None:
    """It counts like a request whose head does not come."""
    room = PlaceLimits(count_max=10, head_s=0.5)
    async with tls_serving(certificates, room=room) as (served, door):
        served.trust = None
        assert await served.raw(sent) == b""
        assert counts(door) == {"late": 1}


async def test_the_handshake_has_a_limit_of_its_own(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the head of a request may take."""
    monkeypatch.setattr(tls_gate, "HANDSHAKE_S", 0.1)
    async with tls_serving(certificates, room=PlaceLimits(count_max=10, head_s=600)) as (served, door):
        served.trust = None
        assert await served.raw(b"\x16\x03") == b""
        assert counts(door) == {"late": 1}


async def test_handshakes_count_against_the_share_of_an_address(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The silent one that was there first ends, and who speaks is served."""
    monkeypatch.setattr("http_api.server.connection_limits.LOCAL", "none is local")
    monkeypatch.setattr("http_api.server.connection_limits._is_local", lambda _: False)
    monkeypatch.setattr("http_api.server.quiet.QUIET_S", 0.0)
    async with tls_serving(certificates, room=PlaceLimits(count_max=10, per_address_max=2)) as (served, _):
        silent = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(2)]
        assert (await served.acquire("a")).status == 200
        assert await silent[0][0].read() == b""
        for _, writer in silent:
            writer.close()


@pytest.mark.parametrize(
    "junk", [b"\x00" * 100, b"\x16\x03\x01\x00\x05hello", b"\x80\x2e\x01\x03\x01" + b"\x00" * 60]
)
async def test_garbage_is_refused(certificates: Certificates, junk: bytes) -> None:
    """Bytes of other protocols end their connection, and nothing else."""
    async with tls_serving(certificates) as (served, door):
        trust, served.trust = served.trust, None
        await served.raw(junk)
        assert counts(door) == {"protocol": 1}
        served.trust = trust
        assert (await served.acquire("a")).status == 200


async def test_bytes_that_are_not_sealed_end_a_connection(certificates: Certificates) -> None:
    """Somebody on the path cannot add a request."""
    async with tls_serving(certificates) as (served, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=served.trust)
        writer.write(RELEASE)
        await reader.readuntil(b"\r\n\r\n")
        own = writer.get_extra_info("socket")
        own._sock.send(b"\x17\x03\x03\x00\x40" + b"\x00" * 64)
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            while await reader.read(1000):
                """What was answered before."""
        writer.transport.abort()
        assert len(served.node.begun) == 1
        assert (await served.acquire("a")).status == 200


async def test_a_new_certificate_is_for_new_connections(certificates: Certificates) -> None:
    """Those that are open stay, and lose nothing."""
    async with tls_serving(certificates) as (served, door):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=served.trust)
        before = writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
        door.context = tls_context.load(certificates.files()).context
        writer.write(RELEASE)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 410 ")
        writer.close()
        _, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=served.trust)
        assert writer.get_extra_info("ssl_object").getpeercert()["serialNumber"] != before
        writer.close()


async def test_no_session_is_resumed(certificates: Certificates) -> None:
    """A certificate that is not good any longer would be let in by a ticket."""
    async with tls_serving(certificates, wants_clients=True) as (served, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=served.trust)
        writer.write(RELEASE)
        await reader.readuntil(b"\r\n\r\n")
        session = writer.get_extra_info("ssl_object").session
        assert session is None or not session.has_ticket
        writer.close()


async def test_shutting_down_answers_what_is_open(certificates: Certificates) -> None:
    """A call in the lane has its answer, and silent handshakes hold nothing up."""
    async with tls_serving(certificates) as (served, _):
        silent = await asyncio.open_connection("127.0.0.1", served.port)
        served.node.holds_outcomes = True
        asking = asyncio.create_task(served.post("/v1/locks/release", hold_id="0" * 32))
        await until(lambda: served.node.begun)
        stopping = asyncio.create_task(served.runner.cleanup())
        command, begun = served.node.begun[0]
        begun.set_result(served.node._apply(command))
        assert (await asking).status == 410
        await stopping
        silent[1].close()


async def test_a_client_that_leaves_is_counted_and_not_told(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """Load balancers look at ports so, every few seconds."""
    async with tls_serving(certificates) as (served, door):
        with caplog.at_level(logging.INFO):
            _, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.close()
            await until(lambda: counts(door) == {"left": 1})
        assert "tls-handshake" not in caplog.text
