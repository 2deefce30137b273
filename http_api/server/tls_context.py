"""What a node needs for TLS with clients, made of its files and tried out before anybody relies on it."""

import ipaddress
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from cluster.tls import files as tls_files
from cluster.tls import revoked
from cluster.tls.files import EXPIRED, NOT_YET_VALID, WRONG_PURPOSE, TlsFile

ALPN: Final = ("http/1.1",)

_VERDICTS: Final = {
    NOT_YET_VALID: "is not valid yet: look at the clock of this machine, or make another one",
    EXPIRED: "has expired: make or order a new one",
    WRONG_PURPOSE: "is not for servers (extended key usage): make or order one for this node",
}


class TlsFiles(NamedTuple):
    """Where the certificate of a node is, its key, and the authorities whose clients it lets in, if any.

    And the list of certificates that they have signed and that count no longer, if there is one.
    """

    cert: Path
    key: Path
    client_ca: Path | None = None
    revoked: Path | None = None

    @property
    def named(self) -> tuple[TlsFile, ...]:
        """Return the files that there are, with their settings."""
        found = [TlsFile("tls_cert", self.cert), TlsFile("tls_key", self.key)]
        if self.client_ca is not None:
            found.append(TlsFile("tls_client_ca", self.client_ca))
        if self.revoked_list is not None:
            found.append(self.revoked_list)
        return tuple(found)

    @property
    def revoked_list(self) -> TlsFile | None:
        """Return the list of what is revoked with its setting, None if there is none."""
        return None if self.revoked is None else TlsFile("tls_revoked", self.revoked)


class TlsReady(NamedTuple):
    """What was made of the files; by which file, the second since 1970 in which it ends."""

    context: ssl.SSLContext
    ends_at_s: dict[str, int]
    revoked: frozenset[int] = frozenset()
    """The serial numbers of certificates that count no longer."""
    names: tuple[str, ...] = ()
    """The hosts that the certificate of the node is for."""


def load(files: TlsFiles) -> TlsReady:
    """Read the files. Raises TlsUnusable."""
    context = tls_files.new_context(is_server=True)
    context.set_alpn_protocols(list(ALPN))
    cert = TlsFile("tls_cert", files.cert)
    tls_files.show(context, cert, TlsFile("tls_key", files.key))
    own = _try_out(context, cert)
    ends_at_s = {"node": tls_files.end_of(own)}
    if files.client_ca is not None:
        authorities = TlsFile("tls_client_ca", files.client_ca)
        ends_at_s["client-ca"] = tls_files.demand(context, authorities, "no client could be let in")
    serials = frozenset[int]()
    if files.revoked_list is not None:
        serials = revoked.read(files.revoked_list)
    hosts = [str(name) for kind, name in own.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    return TlsReady(context, ends_at_s, serials, tuple(hosts))


def is_named(host: str, names: tuple[str, ...]) -> bool:
    """Whether clients that call `host` accept a certificate with these names."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        above = host.lower().partition(".")[2]
        return not {host.lower(), f"*.{above}"}.isdisjoint(map(str.lower, names))
    return any(_is_same(address, name) for name in names)


def _is_same(address: ipaddress.IPv4Address | ipaddress.IPv6Address, name: str) -> bool:
    try:
        return ipaddress.ip_address(name) == address
    except ValueError:
        return False


def _try_out(context: ssl.SSLContext, cert: TlsFile) -> Mapping[str, Any]:
    """Make a handshake in memory, with a client that trusts exactly this certificate; return what it shows.

    Raises TlsUnusable.
    """
    judge = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    judge.check_hostname = False  # by which names clients call is theirs to check
    judge.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        judge.load_verify_locations(cert.path)
        return tls_files.shaken(context, judge).by_server
    except ssl.SSLCertVerificationError as error:
        verdict = _VERDICTS.get(error.verify_code, f"is not one that clients accept: {error.verify_message}")
        raise cert.unusable(verdict) from None
    except (OSError, ValueError) as error:
        raise cert.unusable(f"cannot be used: {error}") from None
