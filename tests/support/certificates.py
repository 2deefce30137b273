"""Real certificates for tests, in files, as `holdfast cert` makes them: good ones and wrong ones."""

import functools
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509

import holdfast
from cluster.peers.peer_certificate import PeerFiles
from holdfast.cli import certificates
from holdfast.cli.certificates import Issued
from http_api.server.tls_context import TlsFiles

HOSTS = ("127.0.0.1", "localhost", "::1")
OURS = "test authority"
CLUSTER = "prod"
"""How the certificates of peers call their cluster."""
LONG_AGO = datetime.now(UTC) - timedelta(days=100)


@functools.cache
def authority(name: str) -> Issued:
    """Return an authority: the same one for the same name."""
    return certificates.new_authority(name, days=3650)


@functools.cache
def _old_authority() -> Issued:
    return certificates.new_authority("old authority", days=3650, now=LONG_AGO)


class Pair(NamedTuple):
    """The files of a certificate and its key."""

    cert: Path
    key: Path

    @property
    def serial(self) -> int:
        """Return the serial number of the certificate."""
        return x509.load_pem_x509_certificate(self.cert.read_bytes()).serial_number


class Certificates:
    """Makes files in a directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.ca = self.write("ca", authority(OURS)).cert

    def write(self, name: str, issued: Issued) -> Pair:
        """Write a certificate and its key, each in one move."""
        pair = Pair(self.directory / f"{name}.pem", self.directory / f"{name}-key.pem")
        for path, content in zip(pair, issued, strict=True):
            temporary = path.with_suffix(".new")
            temporary.write_bytes(content)
            os.replace(temporary, path)  # noqa: PTH105 - as a program that renews certificates does it
        return pair

    def node(
        self,
        name: str = "node",
        *hosts: str,
        days: float = 30,
        now: datetime | None = None,
        by: str = OURS,
    ) -> Pair:
        """Make the certificate of a node."""
        made = certificates.for_node(authority(by), name, hosts or HOSTS, days=days, now=now)
        return self.write(name, made)

    @functools.cached_property
    def old_ca(self) -> Path:
        """Return an authority that signed long ago, beside the present one."""
        path = self.directory / "old-ca.pem"
        path.write_bytes(_old_authority().certificate + authority(OURS).certificate)
        return path

    def expired_node(self) -> Pair:
        """Make the certificate of a node that ended long ago. The authority is in `old_ca`."""
        made = certificates.for_node(_old_authority(), "expired", HOSTS, days=30, now=LONG_AGO)
        return self.write("expired", made)

    def expired_client(self) -> Pair:
        """Make the certificate of a client that ended long ago. The authority is in `old_ca`."""
        made = certificates.for_client(_old_authority(), "expired-client", days=30, now=LONG_AGO)
        return self.write("expired-client", made)

    def client(
        self,
        name: str = "client",
        *,
        days: float = 30,
        now: datetime | None = None,
        by: str = OURS,
    ) -> Pair:
        """Make the certificate of a client."""
        return self.write(name, certificates.for_client(authority(by), name, days=days, now=now))

    def peer(
        self,
        node_id: str,
        *clusters: str,
        days: float = 30,
        now: datetime | None = None,
        by: str = OURS,
        name: str = "",
    ) -> Pair:
        """Make the certificate that a node shows its peers, in files of its `name`."""
        made = certificates.for_peer(authority(by), node_id, clusters or (CLUSTER,), days=days, now=now)
        return self.write(name or f"{node_id}-peer", made)

    def expired_peer(self, node_id: str) -> Pair:
        """Make the certificate of a peer that ended long ago. The authority is in `old_ca`."""
        made = certificates.for_peer(_old_authority(), node_id, [CLUSTER], days=30, now=LONG_AGO)
        return self.write(f"{node_id}-expired-peer", made)

    def peer_files(self, node_id: str) -> PeerFiles:
        """Return what a node needs for its peers."""
        return PeerFiles(*self.peer(node_id), self.ca)

    def files(self, *, wants_clients: bool = False) -> TlsFiles:
        """Return what a node needs."""
        return TlsFiles(*self.node(), self.ca if wants_clients else None)

    def tls(self, *, is_known: bool = False) -> holdfast.Tls:
        """Return what a client needs; with a certificate of its own if it `is_known`."""
        return holdfast.Tls(self.ca, *(self.client() if is_known else ()))
