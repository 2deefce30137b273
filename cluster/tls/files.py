"""From files to what TLS needs. What cannot be used is told in a sentence that names setting and file.

Whether a certificate is one that the other side accepts is found by a handshake in memory: so OpenSSL judges
its dates and its purpose, and that the key belongs to it.
"""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

NOT_YET_VALID: Final = 9
EXPIRED: Final = 10
WRONG_PURPOSE: Final = 26
UNKNOWN_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21})
"""The verdicts of OpenSSL (X509_V_ERR_...): the authority is not known, or the certificate signed itself."""

_FLIGHTS_MAX: Final = 10
"""Turns that a handshake in memory may take. It takes three."""
_CERTIFICATE_MARK: Final = b"-----BEGIN CERTIFICATE-----"
_KEY_MARK: Final = b"PRIVATE KEY-----"


class TlsUnusable(Exception):
    """The files cannot be used: `setting` names one of them, the message says what to do."""

    def __init__(self, setting: str, path: Path, what: str) -> None:
        super().__init__(f"{setting}: {str(path)!r}: {what}")


class TlsFile(NamedTuple):
    """A file, and the setting that names it."""

    setting: str
    path: Path

    def unusable(self, what: str) -> TlsUnusable:
        """Return what says that this file cannot be used."""
        return TlsUnusable(self.setting, self.path, what)


def new_context(*, is_server: bool) -> ssl.SSLContext:
    """Return a context for TLS 1.3 and nothing older."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if is_server:
        # A resumed connection would not show its certificate again, which may not be good any longer.
        context.num_tickets = 0
    return context


def show(context: ssl.SSLContext, cert: TlsFile, key: TlsFile) -> None:
    """Let `context` show a certificate, and what is behind it in its file. Raises TlsUnusable."""
    _check_form(cert, _CERTIFICATE_MARK, "certificate")
    _check_form(key, _KEY_MARK, "private key")
    try:
        context.load_cert_chain(cert.path, key.path, password=_no_password)
    except _Encrypted:
        what = "is encrypted: a node cannot ask for a password; give it a key without one, mode 0600"
        raise key.unusable(what) from None
    except ssl.SSLError as error:
        raise _unusable_pair(cert, key, error) from None
    except OSError as error:
        raise cert.unusable(f"cannot be read: {error.strerror}") from None


def demand(context: ssl.SSLContext, ca: TlsFile, nobody: str) -> int:
    """Let `context` accept only certificates of these authorities; return when the last authority ends.

    Raises TlsUnusable, which says `nobody` if the file has no authority.
    """
    _check_form(ca, _CERTIFICATE_MARK, "certificate")
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(ca.path)
    except (ssl.SSLError, OSError) as error:
        raise ca.unusable(f"cannot be used: {getattr(error, 'reason', None) or error}") from None
    ends_at_s = [end_of(dict(authority)) for authority in context.get_ca_certs()]
    if not ends_at_s:
        raise ca.unusable(f"has no certificate of an authority: {nobody}")
    return max(ends_at_s)


class Shaken(NamedTuple):
    """What a handshake has shown of the server's certificate: as ssl.SSLSocket.getpeercert has it."""

    by_server: dict[str, Any]
    by_server_der: bytes


def shaken(server: ssl.SSLContext, client: ssl.SSLContext) -> Shaken:
    """Make a handshake in memory; the client must check certificates. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    dialer = client.wrap_bio(to_client, to_server)
    acceptor = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_FLIGHTS_MAX):
        for side in (dialer, acceptor):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
        if dialer.version() and acceptor.version() and not to_server.pending:
            break
    return Shaken(dict(dialer.getpeercert() or {}), dialer.getpeercert(binary_form=True) or b"")


def end_of(certificate: Mapping[str, Any]) -> int:
    """Return the second since 1970 in which a certificate ends."""
    return int(ssl.cert_time_to_seconds(str(certificate["notAfter"])))


class _Encrypted(Exception):
    """A key wants a password."""


def _no_password() -> str:
    raise _Encrypted


def _check_form(file: TlsFile, mark: bytes, what: str) -> None:
    """Refuse a file that cannot be read or is of another kind. Raises TlsUnusable."""
    try:
        content = file.path.read_bytes()
    except OSError as error:
        advice = "the user that runs the node must be able to read it"
        raise file.unusable(f"cannot be read: {error.strerror}; {advice}") from None
    if mark not in content:
        raise file.unusable(f"has no {what} in PEM form (-----BEGIN ...)")


def _unusable_pair(cert: TlsFile, key: TlsFile, error: ssl.SSLError) -> TlsUnusable:
    """Return what is wrong with a certificate and its key."""
    if error.reason == "KEY_VALUES_MISMATCH":
        what = f"is not the key of the certificate in {str(cert.path)!r}: give the two that belong together"
        return key.unusable(what)
    return cert.unusable(f"cannot be used, or the key in {str(key.path)!r} cannot: {error.reason or error}")
