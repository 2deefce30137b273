"""The TLS files of a running node for its peers: new ones are taken, wrong ones change nothing."""

import logging
import time
from pathlib import Path

import pytest

from cluster.errors import ConfigError
from cluster.peers.peer_certificate import PeerFiles
from cluster.peers.peer_tls import PeerTlsMode
from cluster.peers.peer_tls_watch import PeerTlsWatch
from cluster.tls.files import TlsUnusable
from tests.support.certificates import Certificates, Pair

ID, OTHER_ID = "0" * 31 + "a", "0" * 31 + "b"
DAY_S, HOUR_S = 86_400, 3600
REQUIRE = PeerTlsMode.REQUIRE


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """Make an authority."""
    return Certificates(tmp_path)


@pytest.fixture(autouse=True)
def _all_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def test_new_files_are_taken(certificates: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    """From then on for all new connections; files that have not changed are left alone."""
    watch = PeerTlsWatch(certificates.peer_files("n1"), REQUIRE, "n1")
    ready, ends_at_s = watch.tls.ready, watch.ends_at_s
    watch.look()
    assert watch.tls.ready is ready
    certificates.peer("n1", days=60)
    watch.look()
    assert watch.tls.ready is not ready
    assert watch.ends_at_s["peer"] > ends_at_s["peer"]
    assert "event=tls-read path=" in caplog.text
    assert "n1-peer.pem' days_left=5" in caplog.text


def test_the_list_of_what_is_revoked_is_read_again(certificates: Certificates) -> None:
    """When it has changed, and links are told; that its own is on it as well saves nobody else who is."""
    path, lost = certificates.directory / "revoked", certificates.peer("n2")
    files = certificates.peer_files("n1")._replace(revoked=path)
    path.write_text("")
    watch = PeerTlsWatch(files, REQUIRE, "n1")
    told: list[frozenset[int]] = []
    watch.tls.revoked = lambda: told.append(watch.tls.ready.revoked)
    path.write_text(f"{lost.serial:X}\n")
    watch.look()
    assert told == [{lost.serial}]
    own = Pair(files.cert, files.key).serial
    path.write_text(f"{lost.serial:X}\n{own:X}\n")
    watch.look()
    refused = [watch.is_refused]
    assert told == [{lost.serial}, {lost.serial, own}]
    certificates.peer("n1")
    watch.look()
    assert [*refused, watch.is_refused] == [True, False]
    assert told[2:] == [{lost.serial, own}]
    path.write_text(f"{Pair(files.cert, files.key).serial:X}\n")
    with pytest.raises(TlsUnusable, match=r"peer_cert: .* is revoked by peer_revoked '.*': make or order"):
        PeerTlsWatch(files, REQUIRE, "n1")


def test_wrong_files_change_nothing(certificates: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    """Not those of another node, of another cluster, by another authority, or that nobody can read."""
    watch = PeerTlsWatch(certificates.peer_files("n1"), REQUIRE, "n1")
    watch.belong(lambda: ID, is_founding=False)
    ready = watch.tls.ready
    for wrong, words in (
        (lambda: certificates.peer("n2", name="n1-peer"), "and this is node n1"),
        (lambda: certificates.peer("n1", OTHER_ID), f"belongs to cluster {ID}"),
        (lambda: certificates.peer("n1", by="another"), "is not signed by an authority in peer_ca"),
        (lambda: (certificates.directory / "n1-peer-key.pem").write_text("x"), "peer_key: "),
    ):
        wrong()
        watch.look()
        watch.look()
        assert watch.tls.ready is ready
        assert watch.is_refused
        assert caplog.text.count(words) == 1
    certificates.peer("n1", ID)
    watch.look()
    assert not watch.is_refused
    assert watch.tls.ready is not ready


def test_the_end_is_told_once_a_day(certificates: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    """From two weeks before, with the setting that names the file."""
    now_s = time.time()
    watch = PeerTlsWatch(certificates.peer_files("n1"), REQUIRE, "n1", lambda: now_s)
    told = []
    for _ in range(20):
        now_s += DAY_S
        caplog.clear()
        watch.look()
        watch.look()
        told.append(caplog.text.count("event=tls-certificate-ends setting=peer_cert"))
    assert told == [0] * 15 + [1] * 5


def test_authorities_that_have_all_ended_let_nobody_in(certificates: Certificates) -> None:
    """So a node does not begin with them."""
    with pytest.raises(TlsUnusable, match=r"peer_ca.*has expired"):
        PeerTlsWatch(certificates.peer_files("n1"), REQUIRE, "n1", lambda: time.time() + 4000 * DAY_S)


@pytest.mark.parametrize("mode", [PeerTlsMode.ACCEPT, PeerTlsMode.DIAL, REQUIRE])
async def test_links_without_tls_are_warned_of(
    certificates: Certificates, mode: PeerTlsMode, caplog: pytest.LogCaptureFixture
) -> None:
    """At the start and once an hour, with how many there are, until TLS is required."""
    now_s = time.time()
    watch = PeerTlsWatch(certificates.peer_files("n1"), mode, "n1", lambda: now_s)
    watch.plain_count = lambda: 2
    watch.start()
    await watch.stop()
    told = [caplog.text.count(f"event=peer-tls-not-required mode={mode} plain_links=2")]
    for _ in range(4):
        now_s += HOUR_S / 2
        caplog.clear()
        watch.look()
        told.append(caplog.text.count("event=peer-tls-not-required"))
    assert told == ([0] * 5 if mode is REQUIRE else [1, 0, 1, 0, 1])


def test_a_certificate_has_to_be_that_of_the_cluster(certificates: Certificates) -> None:
    """A node that belongs to a cluster does not start with one of another; names are only compared."""
    files = PeerFiles(*certificates.peer("n1", ID), certificates.ca)
    watch = PeerTlsWatch(files, REQUIRE, "n1")
    watch.belong(lambda: ID, is_founding=False)
    with pytest.raises(ConfigError, match=f"{ID}/n1, and this node belongs to cluster {OTHER_ID}"):
        watch.belong(lambda: OTHER_ID, is_founding=False)
    named = PeerTlsWatch(certificates.peer_files("n1"), REQUIRE, "n1")
    named.belong(lambda: OTHER_ID, is_founding=False)


def test_a_new_cluster_needs_a_name(certificates: Certificates) -> None:
    """Its id is not made yet. Whoever joins one, or was there before, may have its id."""
    files = PeerFiles(*certificates.peer("n1", ID), certificates.ca)
    watch = PeerTlsWatch(files, REQUIRE, "n1")
    watch.belong(str, is_founding=False)
    with pytest.raises(ConfigError, match="this node is to begin a new cluster"):
        watch.belong(str, is_founding=True)
    both = PeerFiles(*certificates.peer("n1", ID, "prod"), certificates.ca)
    PeerTlsWatch(both, REQUIRE, "n1").belong(str, is_founding=True)
