"""What is wrong with the files that a node needs for its peers is told in a sentence that names the file."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cluster.peers import peer_certificate
from cluster.peers.certificate_names import PeerName
from cluster.peers.peer_certificate import PeerFiles
from cluster.tls.files import TlsUnusable
from holdfast.cli.certificates import end_of
from tests.support.certificates import Certificates

ID, OTHER_ID = "0" * 31 + "a", "0" * 31 + "b"


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """Make an authority."""
    return Certificates(tmp_path)


def test_good_files_say_whom_they_name_and_when_they_end(certificates: Certificates) -> None:
    """To the second."""
    files = PeerFiles(*certificates.peer("n1", "prod", ID), certificates.ca)
    ready = peer_certificate.load(files, "n1", ID)
    assert ready.names == {PeerName("prod", "n1"), PeerName(ID, "n1")}
    ends = {
        name: int(end_of(path.read_bytes()).timestamp())
        for name, path in {"peer": files.cert, "peer-ca": files.ca}.items()
    }
    assert ready.ends_at_s == ends


def test_authorities_may_change(certificates: Certificates) -> None:
    """While one takes the place of the other, both are in the file, and the last one to end is told."""
    both = certificates.old_ca
    for by in ("test authority", "another"):
        files = PeerFiles(*certificates.peer("n1", by=by), both)
        if by == "another":
            with pytest.raises(TlsUnusable, match=r"is not signed by an authority in peer_ca"):
                peer_certificate.load(files, "n1")
        else:
            assert peer_certificate.load(files, "n1").ends_at_s["peer-ca"]


def _early(made: Certificates) -> PeerFiles:
    """Make a certificate that is good from tomorrow on."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    return PeerFiles(*made.peer("n1", now=tomorrow, name="early"), made.ca)


SPOILT: dict[str, Callable[[Certificates, PeerFiles], PeerFiles]] = {
    "no certificate": lambda _, good: good._replace(cert=Path("nowhere/wrong.pem")),
    "no authority": lambda _, good: good._replace(ca=Path("nowhere/wrong.pem")),
    "other key": lambda made, good: good._replace(key=made.client().key),
    "expired": lambda made, _: PeerFiles(*made.expired_peer("n1"), made.old_ca),
    "too early": lambda made, _: _early(made),
    "other authority": lambda made, _: PeerFiles(*made.peer("n1", by="another"), made.ca),
    "leaf": lambda made, good: good._replace(ca=made.client().cert),
    "a client's": lambda made, good: good._replace(cert=made.client().cert, key=made.client().key),
    "a node's for clients": lambda made, good: PeerFiles(*made.node(), good.ca),
    "another node's": lambda made, _: PeerFiles(*made.peer("n2"), made.ca),
    "another cluster's": lambda made, _: PeerFiles(*made.peer("n1", OTHER_ID), made.ca),
}


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("no certificate", r"^peer_cert: '.*wrong.pem': cannot be read: No such file"),
        ("no authority", r"^peer_ca: '.*wrong.pem': cannot be read: No such file"),
        ("other key", r"^peer_key: '.*client-key.pem': is not the key of the certificate in"),
        ("expired", r"^peer_cert: '.*n1-expired-peer.pem': has expired"),
        ("too early", r"^peer_cert: '.*early.pem': is not valid yet"),
        (
            "other authority",
            r"^peer_cert: '.*n1-peer.pem': is not signed by an authority in peer_ca '",
        ),
        ("leaf", r"^peer_ca: '.*client.pem': has no certificate of an authority: no peer could be let in"),
        ("a client's", r"^peer_cert: '.*client.pem': is not for both servers and clients"),
        ("a node's for clients", r"^peer_cert: '.*node.pem': names no node \(no URI holdfast://CLUSTER"),
        ("another node's", r"^peer_cert: '.*n2-peer.pem': names holdfast://prod/n2, and this is node n1"),
        ("another cluster's", rf"names holdfast://{OTHER_ID}/n1, and this node belongs to cluster {ID}"),
    ],
)
def test_wrong_files_are_named(certificates: Certificates, case: str, words: str) -> None:
    """And what to do about them."""
    with pytest.raises(TlsUnusable, match=words):
        peer_certificate.load(SPOILT[case](certificates, certificates.peer_files("n1")), "n1", ID)
