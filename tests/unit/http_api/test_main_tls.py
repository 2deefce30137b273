"""The program with TLS: it begins only with good files, and takes new ones without losing a request."""

import asyncio
import signal
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.certificates import Issued
from tests.support.certificates import Certificates
from tests.unit.http_api.test_main import DEADLINE_S, Program, _running, _start

pytestmark = pytest.mark.process


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """Make an authority."""
    return Certificates(tmp_path / "tls")


def _flags(certificates: Certificates, *, wants_clients: bool = True) -> list[str]:
    files = certificates.files(wants_clients=wants_clients)
    flags = ["--tls-cert", str(files.cert), "--tls-key", str(files.key)]
    return [*flags, *(["--tls-client-ca", str(files.client_ca)] if wants_clients else [])]


def test_a_node_does_not_begin_with_wrong_files(tmp_path: Path, certificates: Certificates) -> None:
    """It ends as with every wrong setting, before it touches its directory."""
    flags = _flags(certificates)
    certificates.write("node", certificates_of_another(certificates))
    with _start("--data-dir", str(tmp_path / "data"), "--http", "127.0.0.1:0", *flags) as process:
        _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2
    assert "holdfast-node: tls_cert: " in said
    assert "has expired: make or order a new one" in said
    assert not (tmp_path / "data").exists()


def certificates_of_another(certificates: Certificates) -> Issued:
    """Return a certificate that has ended, and its key."""
    pair = certificates.expired_node()
    return Issued(pair.cert.read_bytes(), pair.key.read_bytes())


async def _load(url: str, tls: holdfast.Tls, stop: asyncio.Event) -> None:
    """Take and release locks, every ten on a new connection. Raises LockError if one request is lost."""
    while not stop.is_set():
        async with holdfast.Client(url, tls=tls, timeout=DEADLINE_S) as client:
            for number in range(10):
                async with client.lock(f"a/{number}") as hold:
                    hold.ensure(1)


async def _line(program: Program, pattern: str) -> str:
    return await asyncio.to_thread(program.wait_line, pattern)


def test_new_files_are_taken_under_load(tmp_path: Path, certificates: Certificates) -> None:
    """At SIGHUP, with no request lost; a wrong file is told, and the node goes on with the one before."""
    with _running(tmp_path, *_flags(certificates)) as program:
        url = program.wait_ready()
        assert url.startswith("https://")

        async def renew() -> None:
            stop = asyncio.Event()
            tls = certificates.tls(is_known=True)
            loads = [asyncio.create_task(_load(url, tls, stop)) for _ in range(4)]
            kept = holdfast.Client(url, tls=tls)
            hold = await kept.acquire("kept", ttl=60)
            for days in (20, 10):
                certificates.node(days=days)
                program.process.send_signal(signal.SIGHUP)
                await _line(program, rf"event=tls-read .*days_left=({days - 1})")
            await _line(program, r"event=(tls-certificate-ends)")
            (certificates.directory / "node.pem").write_text("junk")
            program.process.send_signal(signal.SIGHUP)
            assert "node.pem" in await _line(program, r"level=error .*event=tls-not-read (.*)")
            await hold.renew()  # on the connection that it has had all the time
            stop.set()
            await asyncio.gather(*loads)
            await hold.release()
            await kept.close()

        asyncio.run(renew())
        assert program.stop(signal.SIGTERM) == 0


def test_a_client_is_revoked_while_the_node_runs(tmp_path: Path, certificates: Certificates) -> None:
    """At SIGHUP: from then on it is refused, on the connection that it has, and another client goes on."""
    path = tmp_path / "revoked"
    path.write_text("# nobody yet\n")
    lost, kept = certificates.client("lost"), certificates.client("kept")
    with _running(tmp_path, *_flags(certificates), "--tls-revoked", str(path)) as program:
        url = program.wait_ready()
        with (
            holdfast.SyncClient(url, tls=holdfast.Tls(certificates.ca, *lost)) as loser,
            holdfast.SyncClient(url, tls=holdfast.Tls(certificates.ca, *kept)) as keeper,
        ):
            loser.acquire("a", renew=False)
            hold = keeper.acquire("b")
            path.write_text(f"{lost.serial:x}  # the notebook that was stolen\n")
            program.process.send_signal(signal.SIGHUP)
            assert program.wait_line(r"event=tls-revoked ended=(\d+)") == "1"
            # Unknown if it was sent on the connection that had just ended: nobody told that it was not read.
            refused = (holdfast.AccessDenied, holdfast.OutcomeUnknown)
            with pytest.raises(refused, match="the certificate of this client is revoked"):
                loser.acquire("c")
            hold.renew()
        assert program.stop(signal.SIGTERM) == 0


def test_a_client_without_a_certificate_is_told_so(tmp_path: Path, certificates: Certificates) -> None:
    """By both clients, at once."""
    with _running(tmp_path, *_flags(certificates)) as program:
        url = program.wait_ready()
        with (
            holdfast.SyncClient(url, tls=certificates.tls(), timeout=10 * DEADLINE_S) as client,
            pytest.raises(holdfast.TlsRefused, match="HOLDFAST_CERT"),
        ):
            client.acquire("a")

        async def ask() -> None:
            async with holdfast.Client(url, tls=certificates.tls(), timeout=10 * DEADLINE_S) as client:
                with pytest.raises(holdfast.TlsRefused, match="HOLDFAST_CERT"):
                    await client.acquire("a")

        asyncio.run(ask())
        assert "client-certificate" in program.wait_line(r"event=tls-handshake-failed (.*)")
        assert program.stop(signal.SIGTERM) == 0
