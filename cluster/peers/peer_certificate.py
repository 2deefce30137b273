"""The certificate that a node shows its peers, made of its files and tried out before anybody relies on it.

It is tried by a handshake in memory of this node with itself: each node of a cluster is dialed and dials, and
all have the same authorities. So what works here works between them, as long as their files are alike.
"""

import ssl
from pathlib import Path
from typing import Final, NamedTuple

from cluster.peers.certificate_names import Names, clusters_of, digest_of, names_in, told
from cluster.tls import files as tls_files
from cluster.tls import revoked
from cluster.tls.files import EXPIRED, NOT_YET_VALID, UNKNOWN_AUTHORITY, WRONG_PURPOSE, TlsFile

CERT: Final = "peer_cert"
KEY: Final = "peer_key"
CA: Final = "peer_ca"
REVOKED: Final = "peer_revoked"

_VERDICTS: Final = {
    NOT_YET_VALID: "is not valid yet: look at the clock of this machine, or make another one",
    EXPIRED: "has expired, or an authority behind it has: make or order a new one",
    WRONG_PURPOSE: "is not for both servers and clients (extended key usage): nodes dial and are dialed",
}


class PeerFiles(NamedTuple):
    """Where the certificate of a node is, its key, and the authorities of the cluster's nodes.

    And the list of certificates that they have signed and that count no longer, if there is one.
    """

    cert: Path
    key: Path
    ca: Path
    revoked: Path | None = None

    @property
    def named(self) -> tuple[TlsFile, ...]:
        """Return the files with their settings: certificate, key, authorities, perhaps the list."""
        found = (TlsFile(CERT, self.cert), TlsFile(KEY, self.key), TlsFile(CA, self.ca))
        return found if self.revoked_list is None else (*found, self.revoked_list)

    @property
    def revoked_list(self) -> TlsFile | None:
        """Return the list of what is revoked with its setting, None if there is none."""
        return None if self.revoked is None else TlsFile(REVOKED, self.revoked)


class PeerReady(NamedTuple):
    """What was made of the files: for being dialed and for dialing, and whom the own certificate names."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    names: Names
    digest: str
    """Of the own certificate: certificate_names.digest_of."""
    ends_at_s: dict[str, int]
    revoked: frozenset[int] = frozenset()
    """The serial numbers of certificates that count no longer."""


def load(files: PeerFiles, node_id: str, cluster_id: str = "") -> PeerReady:
    """Read the files of a node; `cluster_id` is empty while it is not known. Raises TlsUnusable."""
    cert, key, ca, *lists = files.named
    server = tls_files.new_context(is_server=True)
    client = tls_files.new_context(is_server=False)
    client.check_hostname = False  # a peer is known by its id, wherever it is: see certificate_names
    ca_end_s = 0
    for context in (server, client):
        tls_files.show(context, cert, key)
        ca_end_s = tls_files.demand(context, ca, "no peer could be let in")
    try:
        shown = tls_files.shaken(server, client)
    except ssl.SSLCertVerificationError as error:
        raise cert.unusable(_verdict(error, files.ca)) from None
    except (OSError, ValueError) as error:
        raise cert.unusable(f"cannot be used: {error}") from None
    names = names_in(shown.by_server)
    if node_id not in (name.node_id for name in names):
        raise cert.unusable(f"names {told(names)}, and this is node {node_id}: make one for it")
    if not clusters_of(names, node_id, cluster_id):
        raise cert.unusable(f"names {told(names)}, and this node belongs to cluster {cluster_id}")
    serials = frozenset[int]().union(*map(revoked.read, lists))
    if revoked.serial_of(shown.by_server) in serials:
        raise cert.unusable(f"is revoked by {REVOKED} {str(files.revoked)!r}: make or order a new one first")
    ends_at_s = {"peer": tls_files.end_of(shown.by_server), "peer-ca": ca_end_s}
    return PeerReady(server, client, names, digest_of(shown.by_server_der), ends_at_s, serials)


def _verdict(error: ssl.SSLCertVerificationError, ca: Path) -> str:
    """Return why peers would not accept a certificate."""
    if error.verify_code in UNKNOWN_AUTHORITY:
        return f"is not signed by an authority in {CA} {str(ca)!r}: {error.verify_message}"
    return _VERDICTS.get(error.verify_code, f"is not one that peers accept: {error.verify_message}")
