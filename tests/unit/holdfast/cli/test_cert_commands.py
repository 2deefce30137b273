"""`holdfast cert`: certificates that nodes and clients take, in files that nobody else can read."""

import asyncio
import os
import ssl
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import holdfast
from cluster.peers import peer_certificate
from cluster.peers.peer_certificate import PeerFiles
from cluster.tls.files import TlsUnusable
from holdfast.cli import certificates
from holdfast.cli.main import main
from http_api.server import tls_context
from http_api.server.tls_context import TlsFiles
from http_api.server.tls_gate import TlsDoor
from tests.support.certificates import OURS, authority
from tests.unit.http_api.serving import serving


def cert(*words: str) -> int:
    """Run the command; return its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(["cert", *words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def make(directory: Path) -> None:
    """Make an authority, a node and a client."""
    where = ("--dir", str(directory))
    assert cert("ca", *where) == 0
    assert cert("node", "n1", "127.0.0.1", "localhost", "::1", "*.example.com", *where) == 0
    assert cert("client", "worker-7", *where) == 0


async def test_what_it_makes_is_taken_by_nodes_and_clients(tmp_path: Path) -> None:
    """By both clients, under each of the names."""
    await asyncio.to_thread(make, tmp_path)
    files = TlsFiles(tmp_path / "n1.pem", tmp_path / "n1-key.pem", tmp_path / "ca.pem")
    tls = holdfast.Tls(tmp_path / "ca.pem", tmp_path / "worker-7.pem", tmp_path / "worker-7-key.pem")
    async with serving(tls=TlsDoor(tls_context.load(files).context)) as served:
        for host in ("127.0.0.1", "localhost"):
            async with holdfast.Client(f"{host}:{served.port}", tls=tls) as client:
                assert (await client.acquire(host, wait=0, renew=False)).token
        stranger = holdfast.Tls(tmp_path / "ca.pem")
        async with holdfast.Client(f"localhost:{served.port}", tls=stranger) as client:
            with pytest.raises(holdfast.TlsRefused):
                await client.acquire("a", wait=0, renew=False)


def test_keys_are_for_their_owner_only(tmp_path: Path) -> None:
    """Whatever the umask says, and nothing else stays behind."""
    before = os.umask(0)
    try:
        make(tmp_path / "new" / "place")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new/place").iterdir()}
    assert modes == {
        f"{name}{end}.pem": mode
        for name in ("ca", "n1", "worker-7")
        for end, mode in {"": 0o644, "-key": 0o600}.items()
    }


def test_nothing_is_replaced_without_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also if only one of the two files is there."""
    make(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    where = ("--dir", str(tmp_path))
    assert cert("ca", *where) == 2
    assert "ca.pem is there already" in capsys.readouterr().err
    (tmp_path / "n1.pem").unlink()
    assert cert("node", "n1", "localhost", *where) == 2
    assert "n1-key.pem is there already" in capsys.readouterr().err
    assert before == before | {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert cert("node", "n1", "localhost", "--force", *where) == 0
    assert (tmp_path / "n1-key.pem").read_bytes() != before[tmp_path / "n1-key.pem"]
    tls_context.load(TlsFiles(tmp_path / "n1.pem", tmp_path / "n1-key.pem", tmp_path / "ca.pem"))


def test_ends_are_as_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An authority lasts ten years, others a year; none longer than its authority."""
    make(tmp_path)
    ends = {name: certificates.end_of((tmp_path / f"{name}.pem").read_bytes()) for name in ("ca", "n1")}
    now, hour = datetime.now(UTC), timedelta(hours=1)
    assert abs(ends["ca"] - now - timedelta(days=3650)) < hour
    assert abs(ends["n1"] - now - timedelta(days=365)) < hour
    assert cert("client", "c", "--days", "7", "--dir", str(tmp_path)) == 0
    end = certificates.end_of((tmp_path / "c.pem").read_bytes())
    assert abs(end - now - timedelta(days=7)) < hour
    assert cert("client", "d", "--days", "4000", "--dir", str(tmp_path)) == 2
    assert "the authority itself ends" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("node", "n1"), "HOST"),
        (("node", "n1", "a b"), "neither the name nor the address"),
        (("node", "n1", "10.0.0.300"), "neither the name nor the address"),
        (("node", "n1", "http://n1:7700"), "neither the name nor the address"),
        (("node", "../n1", "n1"), "a name has 1 to 63"),
        (("client", "ca"), "another one than ca"),
        (("client", "x-key"), "does not end in -key"),
        (("client", "x", "--days", "0"), "a number of days"),
        (("client", "x", "--days", "99999999999"), "a number of days"),
        (("ca", "--name", "x" * 65), "64"),
        (("ca", "--name", ""), "64"),
    ],
)
def test_wrong_words_make_no_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    """They are told what would be right."""
    assert cert("ca", "--dir", str(tmp_path / "ca")) == 0
    where = tmp_path / ("ca" if words[0] != "ca" else "other")
    assert cert(*words, "--dir", str(where)) == 2
    assert said in capsys.readouterr().err
    assert {path.name for path in tmp_path.rglob("*.pem")} == {"ca.pem", "ca-key.pem"}


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda where: (where / "ca-key.pem").unlink(), "make an authority first"),
        (lambda where: (where / "ca.pem").write_text("junk"), "certificate of the authority cannot be read"),
        (lambda where: (where / "ca-key.pem").write_text("junk"), "key of the authority cannot be read"),
        (
            lambda where: (where / "ca-key.pem").write_bytes(certificates.new_authority("o", days=9).key),
            "does not belong",
        ),
    ],
)
def test_an_authority_that_cannot_sign(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: object, said: str
) -> None:
    """It is told what is wrong."""
    assert cert("ca", "--dir", str(tmp_path)) == 0
    assert callable(spoil)
    spoil(tmp_path)
    assert cert("client", "c", "--dir", str(tmp_path)) == 2
    assert said in capsys.readouterr().err


def test_a_directory_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The system says why."""
    (tmp_path / "file").write_text("")
    assert cert("ca", "--dir", str(tmp_path / "file")) == 119
    assert "file: " in capsys.readouterr().err


def test_without_cryptography_it_says_what_to_install(tmp_path: Path) -> None:
    """And the rest of the command line works."""
    (tmp_path / "cryptography.py").write_text("raise ModuleNotFoundError(name='cryptography')")
    said = subprocess.run(
        [sys.executable, "-m", "holdfast", "cert", "ca", "--dir", str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (said.returncode, "pip install 'holdfast-locks[cert]'" in said.stderr) == (2, True)


def test_a_client_cannot_be_a_node(tmp_path: Path) -> None:
    """Its certificate is for clients only, and that of an authority signs and does nothing else."""
    make(tmp_path)
    with pytest.raises(TlsUnusable, match="not for servers"):
        tls_context.load(TlsFiles(tmp_path / "worker-7.pem", tmp_path / "worker-7-key.pem"))
    context = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    assert context.cert_store_stats()["x509_ca"] >= 1


def test_what_it_makes_is_taken_by_peers(tmp_path: Path) -> None:
    """By the name of the cluster and by its id; beside the certificate for clients of the same node."""
    make(tmp_path)
    where, cluster_id = ("--dir", str(tmp_path)), "0" * 32
    assert cert("peer", "n1", "--cluster", "prod", "--cluster", cluster_id, *where) == 0
    key = tmp_path / "n1-peer-key.pem"
    files = PeerFiles(tmp_path / "n1-peer.pem", key, tmp_path / "ca.pem")
    assert peer_certificate.load(files, "n1", cluster_id).names == {("prod", "n1"), (cluster_id, "n1")}
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


@pytest.mark.parametrize("cluster", ["", "a/b", "prod ", "prod?", "x" * 64, "pröd"])
def test_what_cannot_name_a_cluster_is_refused(
    tmp_path: Path, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written."""
    make(tmp_path)
    assert cert("peer", "n1", "--cluster", cluster, "--dir", str(tmp_path)) == 2
    assert "the name of a cluster" in capsys.readouterr().err
    assert not (tmp_path / "n1-peer.pem").exists()
    with pytest.raises(ValueError, match="name the cluster"):
        certificates.for_peer(authority(OURS), "n1", [], days=1)
