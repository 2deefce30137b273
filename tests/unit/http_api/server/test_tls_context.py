"""What is wrong with the files of a node is told at its start, in a sentence that names the file."""

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cluster.tls.files import TlsUnusable
from holdfast.cli.certificates import end_of, for_node
from http_api.server import tls_context
from http_api.server.tls_context import TlsFiles
from tests.support.certificates import HOSTS, OURS, Certificates, Pair, authority


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """Make an authority."""
    return Certificates(tmp_path)


def test_good_files_say_when_they_end(certificates: Certificates) -> None:
    """To the second."""
    ready = tls_context.load(certificates.files(wants_clients=True))
    node = end_of((certificates.directory / "node.pem").read_bytes())
    ca = end_of(certificates.ca.read_bytes())
    assert ready.ends_at_s == {"node": int(node.timestamp()), "client-ca": int(ca.timestamp())}


def _early(certificates: Certificates) -> Pair:
    """Make a certificate that is good from tomorrow on."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    made = for_node(authority(OURS), "early", HOSTS, days=9, now=tomorrow)
    return certificates.write("early", made)


def _wrong(certificates: Certificates, content: bytes) -> Path:
    """Write a file of its own."""
    path = certificates.directory / "wrong.pem"
    path.write_bytes(content)
    return path


def _encrypted(certificates: Certificates) -> Path:
    """Put the key of the node under a password."""
    path = certificates.directory / "wrong.pem"
    key = str(certificates.files().key)
    openssl = ["openssl", "ec", "-aes256", "-passout", "pass:x", "-in", key, "-out", str(path)]
    subprocess.run(openssl, check=True, capture_output=True)
    return path


JUNK = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
NOWHERE = Path("nowhere/wrong.pem")
SPOILT: dict[str, Callable[[Certificates, TlsFiles], TlsFiles]] = {
    "no certificate": lambda _, good: good._replace(cert=NOWHERE),
    "no key": lambda _, good: good._replace(key=NOWHERE),
    "no authority": lambda _, good: good._replace(client_ca=NOWHERE),
    "swapped": lambda _, good: TlsFiles(good.key, good.cert),
    "other key": lambda made, good: good._replace(key=made.client().key),
    "half a file": lambda made, good: good._replace(cert=_wrong(made, good.cert.read_bytes()[:300])),
    "expired": lambda made, _: TlsFiles(*made.expired_node()),
    "too early": lambda made, _: TlsFiles(*_early(made)),
    "a client's": lambda made, _: TlsFiles(*made.client()),
    "encrypted": lambda made, good: good._replace(key=_encrypted(made)),
    "leaf": lambda made, good: good._replace(client_ca=made.client().cert),
    "junk for an authority": lambda made, good: good._replace(client_ca=_wrong(made, JUNK)),
}


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("no certificate", r"^tls_cert: '.*wrong.pem': cannot be read: No such file"),
        ("no key", r"^tls_key: '.*wrong.pem': cannot be read: No such file"),
        ("no authority", r"^tls_client_ca: '.*wrong.pem': cannot be read: No such file"),
        ("swapped", r"^tls_cert: '.*node-key.pem': has no certificate"),
        ("other key", r"^tls_key: '.*client-key.pem': is not the key of the certificate in '.*node.pem'"),
        ("half a file", r"^tls_cert: '.*wrong.pem': cannot be used"),
        ("expired", r"^tls_cert: '.*expired.pem': has expired: make or order a new one"),
        ("too early", r"^tls_cert: '.*early.pem': is not valid yet"),
        ("a client's", r"^tls_cert: '.*client.pem': is not for servers"),
        ("encrypted", r"^tls_key: '.*wrong.pem': is encrypted"),
        ("leaf", r"^tls_client_ca: '.*client.pem': has no certificate of an authority"),
        ("junk for an authority", r"^tls_client_ca: '.*wrong.pem': cannot be used"),
    ],
)
def test_wrong_files_are_named(certificates: Certificates, case: str, words: str) -> None:
    """And what to do about them."""
    with pytest.raises(TlsUnusable, match=words):
        tls_context.load(SPOILT[case](certificates, certificates.files()))


def test_a_chain_is_taken(certificates: Certificates) -> None:
    """A file may have the authorities behind its certificate, as those that are ordered do."""
    good = certificates.files()
    chain = certificates.directory / "chain.pem"
    chain.write_bytes(good.cert.read_bytes() + certificates.ca.read_bytes())
    assert tls_context.load(good._replace(cert=chain)).ends_at_s["node"]
