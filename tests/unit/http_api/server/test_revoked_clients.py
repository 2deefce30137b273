"""Clients whose certificate is revoked: they are refused, at once, and nobody else is."""

import asyncio
import logging
import ssl
from pathlib import Path

import pytest

import holdfast
from http_api.server import tls_context
from http_api.server.tls_gate import TlsDoor
from tests.support.certificates import Certificates, Pair
from tests.unit.http_api.serving import serving, token_line, until

TOKEN = "hft_worker".ljust(47, "w")
LINES = token_line("worker", TOKEN, "read,acquire")


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """Make an authority."""
    return Certificates(tmp_path)


def door_of(certificates: Certificates) -> TlsDoor:
    """Return the door of a server that wants certificates of its clients."""
    return TlsDoor(tls_context.load(certificates.files(wants_clients=True)).context)


def results(door: TlsDoor) -> dict[str, float]:
    """Return how often each result of a handshake was counted."""
    return {sample[3]["result"]: sample[4] for sample in door.samples()}


@pytest.mark.parametrize("tokens", [None, LINES])
@pytest.mark.parametrize("fast_lane", [True, False])
async def test_whatever_it_asks_is_refused(
    certificates: Certificates, tokens: bytes | None, caplog: pytest.LogCaptureFixture, *, fast_lane: bool
) -> None:
    """Also with a good token; the SDK hears at once why. Another client is served, and so are probes."""
    caplog.set_level(logging.INFO)
    door = door_of(certificates)
    lost, kept = certificates.client("lost"), certificates.client("kept")
    door.revoke(frozenset({lost.serial}))
    async with serving(tls=door, tokens=tokens, fast_lane=fast_lane) as served:
        url = f"https://127.0.0.1:{served.port}"
        async with holdfast.Client(url, tls=holdfast.Tls(certificates.ca, *kept), token=TOKEN) as client:
            hold = await client.acquire("a")
            await hold.release()
        async with holdfast.Client(url, tls=holdfast.Tls(certificates.ca, *lost), token=TOKEN) as client:
            for _ in range(2):
                with pytest.raises(
                    holdfast.AccessDenied, match="certificate of this client is revoked"
                ) as caught:
                    await client.acquire("a")
                assert caught.value.code == "unauthenticated"
            with pytest.raises(holdfast.AccessDenied):
                await anext(client.watch())
            with pytest.raises(holdfast.AccessDenied):
                await client.cluster()
        assert not served.node.machine.state.holds
        refused = served.authentication.trace.newest(10).refusals
        assert {(one.code, one.principal) for one in refused} == {("unauthenticated", "")}
        assert results(door)["client-revoked"] >= 1
        assert results(door)["ok"] >= 1
        assert f"serial number {lost.serial:X}" in caplog.text
        assert caplog.text.count("reason=client-revoked") == 1
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", served.port, ssl=_trust(certificates, lost)
        )
        writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()


def _trust(certificates: Certificates, pair: Pair) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificates.ca)
    context.load_cert_chain(*pair)
    return context


async def test_open_connections_end_when_it_is_revoked(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """With what they wait for; those of others go on, and what was acquired lives until its lease ends."""
    caplog.set_level(logging.INFO)
    door = door_of(certificates)
    lost, kept = certificates.client("lost"), certificates.client("kept")
    async with serving(tls=door) as served:
        url = f"https://127.0.0.1:{served.port}"
        async with (
            holdfast.Client(url, tls=holdfast.Tls(certificates.ca, *lost)) as loser,
            holdfast.Client(url, tls=holdfast.Tls(certificates.ca, *kept)) as keeper,
        ):
            await loser.acquire("a", ttl=60, renew=False)
            waiting = asyncio.create_task(loser.acquire("a", wait=60))
            told = keeper.watch()
            await told.begin()
            await until(lambda: served.node.machine.state.tickets)
            door.revoke(frozenset({lost.serial}))
            with pytest.raises(holdfast.OutcomeUnknown) as caught:  # it may have been granted when that ended
                await waiting
            assert isinstance(caught.value.__cause__, holdfast.AccessDenied)
            assert len(served.node.machine.state.holds) == 1
            hold = await keeper.acquire("b")
            assert (await anext(told)).name in {"a", "b"}
            await hold.release()
            await told.close()
            assert "event=tls-revoked ended=1" in caplog.text
            door.revoke(frozenset())
            async with loser.acquire("c") as other:
                assert other.is_valid
    assert not door._known, "what is gone is not kept"


async def test_who_showed_no_certificate_is_not_meant(certificates: Certificates) -> None:
    """A server that wants none knows nobody by it."""
    door = TlsDoor(tls_context.load(certificates.files()).context)
    lost = certificates.client("lost")
    door.revoke(frozenset({lost.serial, -1}))
    async with (
        serving(tls=door) as served,
        holdfast.Client(
            f"https://127.0.0.1:{served.port}", tls=holdfast.Tls(certificates.ca, *lost)
        ) as client,
        client.acquire("a") as hold,
    ):
        assert hold.is_valid
    assert results(door) == {"ok": 1}
