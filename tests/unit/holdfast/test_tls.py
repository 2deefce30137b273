"""Clients of nodes with TLS: they trust whom they are told to, and say at once when they cannot."""

import asyncio
import contextlib
import itertools
import os
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import holdfast
from holdfast.stream.streams import BUSY_COUNT
from holdfast.transport import tls as _tls
from holdfast.transport.tls import Tls, Trust
from http_api.server import tls_context
from http_api.server.tls_context import TlsFiles
from http_api.server.tls_gate import TlsDoor
from tests.support.both_clients import is_streaming
from tests.support.certificates import Certificates, authority
from tests.unit.holdfast.conftest import NewClient, a_node
from tests.unit.http_api.serving import Served, serving, until

LONG_S = 60
"""A timeout that no test wants to see the end of."""


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """Make an authority."""
    return Certificates(tmp_path)


@contextlib.asynccontextmanager
async def tls_node(files: TlsFiles) -> AsyncIterator[tuple[Served, str]]:
    """Give a node with TLS, and its URL."""
    async with serving(tls=TlsDoor(tls_context.load(files).context)) as served:
        yield served, f"https://127.0.0.1:{served.port}"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (_tls.CA_VARIABLE, _tls.CERT_VARIABLE, _tls.KEY_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("wants_clients", [True, False])
async def test_a_client_uses_locks_and_watches(
    certificates: Certificates, new_client_of_each_way: NewClient, *, wants_clients: bool
) -> None:
    """All that there is goes through TLS."""
    tls = certificates.tls(is_known=wants_clients)
    async with (
        tls_node(certificates.files(wants_clients=wants_clients)) as (_, url),
        new_client_of_each_way(url, tls=tls) as client,
        new_client_of_each_way(url, tls=tls) as other,
    ):
        watch = client.watch("a")
        await watch.begin()
        async with other.lock("a") as hold:
            assert hold.token == 1
            assert (await anext(watch)).event == "granted"
            with pytest.raises(holdfast.LockTimeout):
                await client.lock("a").acquire(wait=0.05)
        await watch.close()


async def test_the_environment_says_how(
    certificates: Certificates, new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its variables HOST:PORT is short for a URL with TLS."""
    pair = certificates.client()
    monkeypatch.setenv(_tls.CA_VARIABLE, str(certificates.ca))
    monkeypatch.setenv(_tls.CERT_VARIABLE, str(pair.cert))
    monkeypatch.setenv(_tls.KEY_VARIABLE, str(pair.key))
    async with (
        tls_node(certificates.files(wants_clients=True)) as (served, _),
        new_client(f"127.0.0.1:{served.port}") as client,
    ):
        assert (await client.cluster()).node_id == "n1"


def _wrong(case: str, certificates: Certificates) -> tuple[TlsFiles, Tls]:
    """Return what a node has and what a client has, of which one is wrong."""
    files = certificates.files(wants_clients=True)
    good = certificates.tls(is_known=True)
    match case:
        case "authority":
            other = certificates.write("other", authority("somebody else"))
            return files, Tls(other.cert, good.cert, good.key)
        case "name":
            return TlsFiles(*certificates.node("n9", "n9.example.com", "10.9.9.9"), files.client_ca), good
        case "no certificate":
            return files, Tls(certificates.ca)
        case "a stranger's":
            return files, Tls(certificates.ca, *certificates.client("eve", by="somebody else"))
        case _:
            raise AssertionError(case)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("authority", "not trusted: .*; give ca= or HOLDFAST_CA"),
        ("name", "not for this"),
        ("no certificate", "HOLDFAST_CERT"),
        ("a stranger's", "does not know the authority"),
    ],
)
async def test_what_can_never_succeed_fails_at_once(
    certificates: Certificates, new_client: NewClient, case: str, words: str
) -> None:
    """Long before the timeout, and with words that say what is wrong; surely nothing was done."""
    files, tls = _wrong(case, certificates)
    async with tls_node(files) as (served, url):
        async with new_client([url, f"https://localhost:{served.port}"], tls=tls, timeout=LONG_S) as client:
            async with asyncio.timeout(LONG_S / 2):
                with pytest.raises(holdfast.TlsRefused, match=words) as caught:
                    await client.acquire("a", wait=0, renew=False)
                with pytest.raises(holdfast.TlsRefused, match=words):
                    await client.watch("a").begin()
            assert isinstance(caught.value, holdfast.Unavailable)
            assert caught.value.code == "tls-refused"
        assert served.node.machine.revision == 0


async def test_an_expired_certificate_of_a_node(certificates: Certificates, new_client: NewClient) -> None:
    """A node that has run past the end of its certificate is not trusted."""
    files = certificates.files()
    context = tls_context.load(files).context
    context.load_cert_chain(*certificates.expired_node())
    async with serving(tls=TlsDoor(context)) as served:
        url = f"https://127.0.0.1:{served.port}"
        ca = certificates.old_ca
        async with new_client(url, tls=Tls(ca), timeout=LONG_S) as client, asyncio.timeout(LONG_S / 2):
            with pytest.raises(holdfast.TlsRefused, match="has expired"):
                await client.acquire("a", wait=0, renew=False)


async def test_an_expired_certificate_of_a_client(certificates: Certificates, new_client: NewClient) -> None:
    """It is told so by the node."""
    late = certificates.expired_client()
    files = certificates.files()._replace(client_ca=certificates.old_ca)
    async with (
        tls_node(files) as (_, url),
        new_client(url, tls=Tls(certificates.ca, *late), timeout=LONG_S) as client,
    ):
        async with asyncio.timeout(LONG_S / 2):
            with pytest.raises(holdfast.TlsRefused, match="client's certificate has expired"):
                await client.acquire("a", wait=0, renew=False)


async def test_a_node_that_can_be_trusted_is_enough(
    certificates: Certificates, new_client: NewClient
) -> None:
    """One node has a wrong certificate; its clients go on with the others."""
    bad = TlsFiles(*certificates.node("bad", "elsewhere.example.com"))
    async with tls_node(bad) as (_, wrong), tls_node(certificates.files()) as (_, right):
        for _ in range(4):
            async with new_client([wrong, right], tls=certificates.tls()) as client:
                await (await client.acquire("a", wait=1, renew=False)).release()


async def test_a_node_that_may_come_back_is_waited_for(
    certificates: Certificates, new_client: NewClient
) -> None:
    """A node that is down may be the one that can be trusted: its return is awaited."""
    bad = TlsFiles(*certificates.node("bad", "elsewhere.example.com"))
    async with (
        tls_node(bad) as (_, wrong),
        new_client([wrong, "https://127.0.0.1:1"], tls=certificates.tls(), timeout=0.5) as client,
    ):
        with pytest.raises(holdfast.Unavailable) as caught:
            await client.acquire("a", wait=0, renew=False)
        assert not isinstance(caught.value, holdfast.TlsRefused)


async def test_tls_against_a_node_without(certificates: Certificates, new_client: NewClient) -> None:
    """The URL is wrong, and the error says so."""
    async with a_node() as (_, url), asyncio.timeout(LONG_S / 2):
        secure = url.replace("http://", "https://")
        async with new_client(secure, tls=certificates.tls(), timeout=LONG_S) as client:
            with pytest.raises(holdfast.TlsRefused, match="does not use TLS"):
                await client.acquire("a", wait=0, renew=False)


async def test_a_wait_that_is_cancelled_leaves_nothing(certificates: Certificates) -> None:
    """TLS cannot end one direction of a connection; the node hears of it nevertheless."""
    async with (
        tls_node(certificates.files()) as (served, url),
        holdfast.Client(url, tls=certificates.tls()) as client,
    ):
        state = served.node.machine.state
        hold = await client.acquire("a", wait=0, renew=False)
        waiting = asyncio.create_task(client.acquire("a", wait=None, renew=False))
        await until(lambda: state.tickets)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: not state.tickets)
        await hold.release()
        assert not state.holds


def test_plain_urls_do_not_go_with_tls(certificates: Certificates) -> None:
    """A slip in a URL does not make less of TLS: each host without it has to be named with it as well."""
    with pytest.raises(ValueError, match=r"http://n2:7700.*https://"):
        holdfast.Client("https://n1:7700,http://n2:7700", tls=certificates.tls())
    holdfast.Client("https://n1:7700,http://n1:7700", tls=certificates.tls())


async def test_a_client_knows_both_urls_of_each_node(
    certificates: Certificates, new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nodes go over to TLS, clients with both URLs use those that are right, whichever is the first."""
    async with tls_node(certificates.files()) as (_, secure), a_node() as (_, plain):
        urls = [secure.replace("https", "http"), secure, plain, plain.replace("http", "https")]
        for first in range(len(urls)):
            monkeypatch.setattr("holdfast.transport.transport.random.randrange", lambda _, first=first: first)
            async with new_client(urls, tls=certificates.tls()) as client:
                watch = client.watch("both")
                await watch.begin()
                await watch.close()
                async with client.lock(f"both/{first}") as hold:
                    assert hold.is_valid


async def test_a_stream_turns_to_the_next_url(certificates: Certificates) -> None:
    """A busy client with both URLs of a node with TLS gets a stream soon, and no call fails."""
    async with tls_node(certificates.files()) as (_, secure):
        urls = [secure.replace("https", "http"), secure]
        async with holdfast.Client(urls, tls=certificates.tls(), timeout=LONG_S) as client:
            client._transport.node = 0
            numbers = itertools.count()

            async def use() -> None:
                await (await client.acquire(f"both/{next(numbers)}", wait=0, renew=False)).release()

            async with asyncio.timeout(LONG_S / 2):
                await asyncio.gather(*(use() for _ in range(2 * BUSY_COUNT)))
                while not is_streaming(client):
                    await use()


@pytest.mark.parametrize("call", ["acquire", "watch"])
async def test_urls_without_tls_only_are_given_up_soon(
    certificates: Certificates, new_client: NewClient, call: str
) -> None:
    """A client that knows no URL with TLS is told so at once, and that nothing was done."""
    async with tls_node(certificates.files()) as (_, secure), asyncio.timeout(LONG_S / 2):
        url = secure.replace("https", "http")
        async with new_client(url, timeout=LONG_S) as client:
            with pytest.raises(holdfast.TlsRefused, match=rf"{url}.*only TLS.*https://"):
                await (
                    client.acquire("a", wait=0, renew=False) if call == "acquire" else client.watch().begin()
                )


def test_a_token_is_not_sent_to_the_url_without_tls(certificates: Certificates) -> None:
    """With a token both URLs of a node are refused as the one without TLS is, unless that is allowed."""
    urls = "https://n1:7700,http://n1:7700"
    with pytest.raises(ValueError, match="a token is sent only over https://"):
        holdfast.Client(urls, tls=certificates.tls(), token="t" * 40)
    holdfast.Client(urls, tls=certificates.tls(), token="t" * 40, insecure_plain_token=True)


@pytest.mark.parametrize("spoilt", ["missing", "empty", "key", "other key", "no key", "directory"])
def test_files_that_cannot_be_used_are_named(certificates: Certificates, tmp_path: Path, spoilt: str) -> None:
    """When the client is made, not when it is used."""
    pair = certificates.client()
    wrong = tmp_path / "wrong.pem"
    tls, words = {
        "missing": (Tls(wrong), r"ca \(HOLDFAST_CA\).*wrong.pem.*No such file"),
        "empty": (Tls(pair.key), r"ca \(HOLDFAST_CA\).*client-key.pem"),
        "key": (Tls(certificates.ca, pair.cert, wrong), r"key \(HOLDFAST_KEY\).*wrong.pem"),
        "other key": (
            Tls(certificates.ca, pair.cert, certificates.node().key),
            "not that of the certificate",
        ),
        "no key": (Tls(certificates.ca, None, pair.key), "key without cert"),
        "directory": (Tls(tmp_path), "Is a directory"),
    }[spoilt]
    for kind in (holdfast.Client, holdfast.SyncClient):
        with pytest.raises(ValueError, match=words):
            kind("n1", tls=tls)


def test_a_clients_own_certificate_is_no_authority(certificates: Certificates) -> None:
    """To trust a file in which there is no authority would be to trust nobody."""
    with pytest.raises(ValueError, match="no authority"):
        _tls.make_context(Tls(certificates.client().cert))


def test_files_are_read_again_when_they_change(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """A client lives longer than its certificate; files that are wrong change nothing."""
    now_s = 0.0
    tls = certificates.tls(is_known=True)
    trust = Trust(tls, lambda: now_s)
    first = trust.context()
    new = certificates.client()
    assert trust.context() is first
    now_s += _tls.LOOK_S
    second = trust.context()
    assert second is not first
    new.key.write_text("nonsense")
    os.utime(new.key, (1, 1))
    now_s += _tls.LOOK_S
    assert trust.context() is second
    assert "not read" in caplog.text
    certificates.client()
    now_s += _tls.LOOK_S
    assert trust.context() not in (first, second)
    third = trust.context()
    now_s += _tls.LOOK_S
    assert trust.context() is third


def test_without_files_those_of_the_machine_are_asked() -> None:
    """A certificate that the world trusts needs no file."""
    assert holdfast.Client("https://locks.example.com")._transport.trust is not None
    assert holdfast.Client("http://locks.example.com")._transport.trust is None
    assert _tls.from_environment({_tls.CA_VARIABLE: ""}) is None


def _failure(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}] something")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    "reason", ["WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "SSLV3_ALERT_HANDSHAKE_FAILURE"]
)
def test_a_connection_that_is_spoilt_later_proves_nothing(reason: str) -> None:
    """Somebody on the path may spoil an answer. What it was about may have been done."""
    assert _tls.verdict_of(_failure(reason), is_connected=False) is not None
    assert _tls.verdict_of(_failure(reason), is_connected=True) is None


def test_a_node_says_late_that_a_certificate_is_missing() -> None:
    """In TLS 1.3 a client may send its request before the node has looked at its certificate."""
    said = _tls.verdict_of(_failure("TLSV13_ALERT_CERTIFICATE_REQUIRED"), is_connected=True)
    assert said is not None
    assert "HOLDFAST_CERT" in said


async def test_an_answer_that_is_spoilt_leaves_the_outcome_open(certificates: Certificates) -> None:
    """The request was carried out, and its answer is no TLS: nobody may say that nothing was done."""
    pair = certificates.node()
    context = tls_context.load(TlsFiles(*pair)).context

    async def spoil(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        raw = socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno()))
        with raw:
            raw.send(b"HTTP/1.1 200 OK\r\n\r\n")
        writer.transport.abort()

    server = await asyncio.start_server(spoil, "127.0.0.1", 0, ssl=context)
    async with server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with holdfast.Client(url, tls=certificates.tls(), timeout=0.5) as client:
            with pytest.raises(holdfast.OutcomeUnknown):
                await client.acquire("a", wait=0, renew=False)
