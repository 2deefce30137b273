"""From files to what TLS needs: read, and tried out before anybody relies on it.

Whether a certificate is what clients accept is found by a handshake in memory, with a client that trusts
exactly this certificate: so OpenSSL judges its dates and its purpose, and that the key belongs to it.
"""

import ssl
from pathlib import Path
from typing import Final, NamedTuple

ALPN: Final = ("http/1.1",)

_FLIGHTS_MAX: Final = 10
"""Turns that a handshake in memory may take. It takes three."""
_NOT_YET_VALID, _EXPIRED, _WRONG_PURPOSE = 9, 10, 26
_VERDICTS: Final = {
    _NOT_YET_VALID: "is not valid yet: look at the clock of this machine, or make another one",
    _EXPIRED: "has expired: make or order a new one",
    _WRONG_PURPOSE: "is not for servers (extended key usage): make or order one for this node",
}
_CERTIFICATE_MARK: Final = b"-----BEGIN CERTIFICATE-----"
_KEY_MARK: Final = b"PRIVATE KEY-----"


class TlsUnusable(Exception):
    """The files cannot be used: `setting` names one of them, the message says what to do."""

    def __init__(self, setting: str, path: Path, what: str) -> None:
        super().__init__(f"{setting}: {str(path)!r}: {what}")


class TlsFiles(NamedTuple):
    """Where the certificate of a node is, its key, and the authorities whose clients it lets in, if any."""

    cert: Path
    key: Path
    client_ca: Path | None = None


class TlsReady(NamedTuple):
    """What was made of the files; by which file, the second since 1970 in which it ends."""

    context: ssl.SSLContext
    ends_at_s: dict[str, int]


def load(files: TlsFiles) -> TlsReady:
    """Read the files. Raises TlsUnusable."""
    _check_form("tls_cert", files.cert, _CERTIFICATE_MARK, "certificate")
    _check_form("tls_key", files.key, _KEY_MARK, "private key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(list(ALPN))
    # A resumed connection would not show its certificate again, which may not be good any longer.
    context.num_tickets = 0
    try:
        context.load_cert_chain(files.cert, files.key, password=_no_password)
    except _Encrypted:
        what = "is encrypted: a node cannot ask for a password; give it a key without one, mode 0600"
        raise TlsUnusable("tls_key", files.key, what) from None
    except ssl.SSLError as error:
        raise _unusable_pair(files, error) from None
    except OSError as error:
        raise TlsUnusable("tls_cert", files.cert, f"cannot be read: {error.strerror}") from None
    ends_at_s = {"node": _try_out(context, files.cert)}
    if files.client_ca is not None:
        ends_at_s["client-ca"] = _demand_clients(context, files.client_ca)
    return TlsReady(context, ends_at_s)


class _Encrypted(Exception):
    """A key wants a password."""


def _no_password() -> str:
    raise _Encrypted


def _check_form(setting: str, path: Path, mark: bytes, what: str) -> None:
    """Refuse a file that cannot be read or is of another kind. Raises TlsUnusable."""
    try:
        content = path.read_bytes()
    except OSError as error:
        advice = "the user that runs the node must be able to read it"
        raise TlsUnusable(setting, path, f"cannot be read: {error.strerror}; {advice}") from None
    if mark not in content:
        raise TlsUnusable(setting, path, f"has no {what} in PEM form (-----BEGIN ...)")


def _unusable_pair(files: TlsFiles, error: ssl.SSLError) -> TlsUnusable:
    """Return what is wrong with a certificate and its key."""
    if error.reason == "KEY_VALUES_MISMATCH":
        what = f"is not the key of the certificate in {str(files.cert)!r}: give the two that belong together"
        return TlsUnusable("tls_key", files.key, what)
    what = f"cannot be used, or the key in {str(files.key)!r} cannot: {error.reason or error}"
    return TlsUnusable("tls_cert", files.cert, what)


def _try_out(context: ssl.SSLContext, cert: Path) -> int:
    """Make a handshake in memory; return when the certificate ends. Raises TlsUnusable."""
    judge = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    judge.check_hostname = False  # by which names clients call is theirs to check
    judge.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        judge.load_verify_locations(cert)
        return _end_of(_shaken(context, judge))
    except ssl.SSLCertVerificationError as error:
        verdict = _VERDICTS.get(error.verify_code, f"is not one that clients accept: {error.verify_message}")
        raise TlsUnusable("tls_cert", cert, verdict) from None
    except (OSError, ValueError) as error:
        raise TlsUnusable("tls_cert", cert, f"cannot be used: {error}") from None


def _shaken(context: ssl.SSLContext, judge: ssl.SSLContext) -> dict[str, object]:
    """Return the certificate as a client sees it after a handshake. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = judge.wrap_bio(to_client, to_server)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_FLIGHTS_MAX):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
        if client.version() and server.version() and not to_server.pending:
            break
    return dict(client.getpeercert() or {})


def _demand_clients(context: ssl.SSLContext, path: Path) -> int:
    """Let only clients in that these authorities know; return when the last one ends. Raises TlsUnusable."""
    _check_form("tls_client_ca", path, _CERTIFICATE_MARK, "certificate")
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, OSError) as error:
        what = f"cannot be used: {getattr(error, 'reason', None) or error}"
        raise TlsUnusable("tls_client_ca", path, what) from None
    ends_at_s = [_end_of(dict(authority)) for authority in context.get_ca_certs()]
    if not ends_at_s:
        what = "has no certificate of an authority: no client could be let in"
        raise TlsUnusable("tls_client_ca", path, what)
    return max(ends_at_s)


def _end_of(certificate: dict[str, object]) -> int:
    """Return the second since 1970 in which a certificate ends."""
    return int(ssl.cert_time_to_seconds(str(certificate["notAfter"])))
