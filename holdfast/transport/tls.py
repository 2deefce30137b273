"""How a client knows nodes, and is known by them: TLS 1.3 with the `ssl` module of the standard library."""

import logging
import os
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

CA_VARIABLE: Final = "HOLDFAST_CA"
CERT_VARIABLE: Final = "HOLDFAST_CERT"
KEY_VARIABLE: Final = "HOLDFAST_KEY"
LOOK_S: Final = 60.0
"""Seconds between two looks at whether the files have changed."""

_log = logging.getLogger("holdfast")

_NAME_MISMATCH, _ADDRESS_MISMATCH, _NOT_YET_VALID, _EXPIRED = 62, 64, 9, 10
_VERDICTS: Final = {
    _NAME_MISMATCH: "its certificate is not for this name: call it by a name that is in the certificate",
    _ADDRESS_MISMATCH: "its certificate is not for this address: call it by one that is in the certificate",
    _NOT_YET_VALID: "its certificate is not valid yet: are the clocks of both machines right?",
    _EXPIRED: "its certificate has expired: the node needs a new one",
}
_ALERTS: Final = {
    "CERTIFICATE_REQUIRED": "it wants a certificate of the client: give cert= and key=, or set"
    f" {CERT_VARIABLE} and {KEY_VARIABLE}",
    "CERTIFICATE_EXPIRED": "it says that this client's certificate has expired: get a new one",
    "UNKNOWN_CA": "it does not know the authority that has signed this client's certificate",
    "CERTIFICATE": "it does not accept this client's certificate",
    "PROTOCOL_VERSION": "it speaks another version of TLS: TLS 1.3 is needed",
    "HANDSHAKE_FAILURE": "it finds no way to speak TLS with this client",
}
"""What alerts of a node mean, by a part of what OpenSSL calls them. The first that fits counts."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Files in PEM form for connections to nodes whose URLs begin with https://. All may be left out.

    `ca` has the authorities that sign the certificates of nodes; by default the machine's own are used.
    `cert` and `key` are the client's, for nodes that require one; `key` is not needed if `cert` has both. The
    files are read again when they change.
    """

    ca: str | os.PathLike[str] | None = None
    cert: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None


def from_environment(environment: Mapping[str, str]) -> Tls | None:
    """Return what HOLDFAST_CA, HOLDFAST_CERT and HOLDFAST_KEY say, None if they say nothing."""
    values = [environment.get(name) or None for name in (CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE)]
    return Tls(*values) if any(values) else None


class Trust:
    """Makes of the files what `ssl` needs. Raises ValueError when they cannot be used."""

    def __init__(self, tls: Tls, now_s: Callable[[], float] = time.monotonic) -> None:
        self._tls = tls
        self._now_s = now_s
        self._looked_at_s = now_s()
        self._read = self._signature()
        self._context = make_context(tls)

    def context(self) -> ssl.SSLContext:
        """Return what new connections use; the files are read again if they have changed."""
        now_s = self._now_s()
        if now_s - self._looked_at_s >= LOOK_S:
            self._looked_at_s = now_s
            found = self._signature()
            if found != self._read:
                self._read_again(found)
        return self._context

    def _read_again(self, found: Sequence[object]) -> None:
        try:
            self._context = make_context(self._tls)
        except ValueError as error:
            # Not noted as read: whoever writes them may not be finished.
            _log.warning("files for TLS not read, the ones before stay in use: error=%s", error)
        else:
            self._read = found

    def _signature(self) -> Sequence[object]:
        """Return what changes when one of the files does."""
        return [_signature(getattr(self._tls, item.name)) for item in fields(self._tls)]


def _signature(path: str | os.PathLike[str] | None) -> object:
    try:
        found = os.stat(path) if path is not None else None  # noqa: PTH116 - path may be a text
    except OSError:
        return None
    return found and (found.st_mtime_ns, found.st_size, found.st_ino)


def make_context(tls: Tls) -> ssl.SSLContext:
    """Read the files. Raises ValueError, which names the file that cannot be used."""
    if tls.key is not None and tls.cert is None:
        raise ValueError(f"tls: key without cert: give the certificate, too (cert=, {CERT_VARIABLE})")
    # Without a file those of the machine; with one only those in it.
    context = ssl.create_default_context() if tls.ca is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.ca is not None:
        _read(f"ca ({CA_VARIABLE})", tls.ca, context.load_verify_locations)
        if not context.get_ca_certs():
            raise ValueError(f"tls: ca ({CA_VARIABLE}): {os.fspath(tls.ca)!r} has no authority's certificate")
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if tls.cert is not None:
        _read(f"cert ({CERT_VARIABLE})", tls.cert, _look_at)
        if tls.key is not None:
            _read(f"key ({KEY_VARIABLE})", tls.key, _look_at)
        _read(
            f"cert ({CERT_VARIABLE}) and key ({KEY_VARIABLE})",
            tls.cert,
            lambda path: context.load_cert_chain(path, tls.key, password=_no_password),
        )
    return context


def _look_at(path: str | os.PathLike[str]) -> None:
    """Find out whether a file can be read: OpenSSL does not say which one cannot. Raises OSError."""
    Path(path).read_bytes()


def _read(what: str, path: str | os.PathLike[str], read: Callable[[str | os.PathLike[str]], None]) -> None:
    """Read a file. Raises ValueError."""
    try:
        read(path)
    except ssl.SSLError as error:
        reason = error.reason or str(error)
        if reason == "KEY_VALUES_MISMATCH":
            reason = "the key is not that of the certificate"
        raise ValueError(f"tls: {what}: {os.fspath(path)!r} cannot be used: {reason}") from None
    except OSError as error:
        raise ValueError(f"tls: {what}: {os.fspath(path)!r} cannot be read: {error.strerror}") from None


def _no_password() -> str:
    raise ValueError("tls: the key is encrypted, and nobody can be asked for its password: give one without")


def verdict_of(error: BaseException, *, is_connected: bool) -> str | None:
    """Return why TLS with a node fails, and will fail again; None if it was something else.

    Once a client `is_connected`, it may have sent its request, and only one thing says that no node has read
    it: the node's own word, under TLS, that it does not take the client's certificate.
    """
    seen: BaseException | None = error
    while seen is not None:
        if type(seen).__module__ != ssl.__name__:
            """One of the HTTP library's, which are of the same kinds, but say less."""
        elif isinstance(seen, ssl.SSLCertVerificationError):
            unknown = f"its certificate is not trusted: {seen.verify_message}; give ca= or {CA_VARIABLE}"
            return _VERDICTS.get(seen.verify_code, unknown)
        elif isinstance(seen, ssl.SSLError):
            return _verdict_of_reason(seen.reason or str(seen), is_connected=is_connected)
        seen = seen.__cause__ or seen.__context__
    return None


def _verdict_of_reason(reason: str, *, is_connected: bool) -> str | None:
    if is_connected and not ("ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason)):
        return None
    if reason in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"}:
        return "this node does not use TLS; use http://"
    if reason in {"UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE"}:
        return _ALERTS["PROTOCOL_VERSION"]
    if "ALERT" in reason:
        return next((words for part, words in _ALERTS.items() if part in reason), None)
    return None
