"""Makes certificates: a small authority of one's own, and what it signs. Needs the package `cryptography`.

Keys are of the curve P-256, which all programs know. No I/O.
"""

import ipaddress
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

EARLY: Final = timedelta(hours=1)
"""By how much certificates are valid before they are made: clocks of other machines may be behind."""

_HOST: Final = re.compile(r"(?:\*\.)?[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?(?:\.[A-Za-z0-9_-]+)*")
_PEER_PART: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
_HOST_CHARS_MAX: Final = 253


class Issued(NamedTuple):
    """A certificate and its private key, both in PEM form. The key is a secret."""

    certificate: bytes
    key: bytes


def new_authority(name: str, *, days: float, now: datetime | None = None) -> Issued:
    """Make an authority that can sign certificates of nodes and clients, and nothing else."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    builder = _begun(subject, subject, key.public_key(), _validity(days, now))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return _issued(builder, key, signed_by=key)


def for_node(
    authority: Issued, name: str, hosts: Sequence[str], *, days: float, now: datetime | None = None
) -> Issued:
    """Make a certificate by which clients know a node when they call it by one of `hosts`.

    Hosts are DNS names or addresses. A node may also show it as a client, as its own health check does.
    Raises ValueError.
    """
    if not hosts:
        raise ValueError("name at least one host name or address that clients will use for the node")
    names = x509.SubjectAlternativeName([_host(host) for host in hosts])
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return _signed(authority, name, purposes, names, _validity(days, now))


def for_peer(
    authority: Issued,
    node_id: str,
    clusters: Sequence[str],
    *,
    days: float,
    now: datetime | None = None,
) -> Issued:
    """Make a certificate by which the nodes of a cluster know each other: each dials, and is dialed.

    `clusters` are the cluster id, or a name for the cluster, or both. Raises ValueError.
    """
    if not clusters:
        raise ValueError("name the cluster, or give its id")
    for part in (node_id, *clusters):
        if not _PEER_PART.fullmatch(part):
            allowed = "1 to 63 letters, digits, '.', '_' or '-', and begins with a letter or digit"
            raise ValueError(f"{part!r}: the id of a node, and the name of a cluster, has {allowed}")
    uris = [x509.UniformResourceIdentifier(f"holdfast://{cluster}/{node_id}") for cluster in clusters]
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    names = x509.SubjectAlternativeName(uris)
    return _signed(authority, node_id, purposes, names, _validity(days, now))


def for_client(authority: Issued, name: str, *, days: float, now: datetime | None = None) -> Issued:
    """Make a certificate that a client shows to nodes. Raises ValueError."""
    return _signed(authority, name, [ExtendedKeyUsageOID.CLIENT_AUTH], None, _validity(days, now))


def end_of(certificate: bytes) -> datetime:
    """Return when a certificate ends. Raises ValueError."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


class _Validity(NamedTuple):
    begin: datetime
    end: datetime


def _validity(days: float, now: datetime | None) -> _Validity:
    now = datetime.now(UTC) if now is None else now
    try:
        return _Validity(now - EARLY, now + timedelta(days=days))
    except OverflowError:
        raise ValueError(f"{days:g} days: no certificate can last that long") from None


def _signed(
    authority: Issued,
    name: str,
    purposes: list[x509.ObjectIdentifier],
    names: x509.SubjectAlternativeName | None,
    validity: _Validity,
) -> Issued:
    """Make a key, and a certificate for it. Raises ValueError."""
    try:
        signer = x509.load_pem_x509_certificate(authority.certificate)
    except ValueError:
        raise ValueError("the certificate of the authority cannot be read: it is no PEM file") from None
    signing = _signing_key(authority, signer)
    if validity.end > signer.not_valid_after_utc:
        end = f"{signer.not_valid_after_utc:%Y-%m-%d}"
        raise ValueError(f"the authority itself ends on {end}: give fewer --days, or make a new authority")
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _begun(_subject(name), signer.subject, key.public_key(), validity)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    by = signer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(by), critical=False
    )
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    return _issued(builder, key, signed_by=signing)


def _signing_key(authority: Issued, signer: x509.Certificate) -> ec.EllipticCurvePrivateKey:
    """Return the key of an authority that `new_authority` has made. Raises ValueError."""
    try:
        key = serialization.load_pem_private_key(authority.key, password=None)
    except ValueError:
        raise ValueError("the key of the authority cannot be read: it is no PEM file") from None
    except TypeError:
        raise ValueError("the key of the authority is encrypted, and cannot be used here") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key of the authority is not one that `holdfast cert ca` makes")  # noqa: TRY004 - a file
    if key.public_key() != signer.public_key():
        raise ValueError("the key does not belong to the authority's certificate")
    return key


def _begun(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, validity: _Validity
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        subject_name=subject,
        issuer_name=issuer,
        public_key=public,
        serial_number=x509.random_serial_number(),
        not_valid_before=validity.begin,
        not_valid_after=validity.end,
    ).add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)


def _issued(
    builder: x509.CertificateBuilder,
    key: ec.EllipticCurvePrivateKey,
    *,
    signed_by: ec.EllipticCurvePrivateKey,
) -> Issued:
    certificate = builder.sign(signed_by, hashes.SHA256())
    return Issued(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    """Return a DNS name or an address as a certificate has it. Raises ValueError."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        if len(host) > _HOST_CHARS_MAX or not _HOST.fullmatch(host) or host.rpartition(".")[2].isdigit():
            raise ValueError(f"{host!r} is neither the name nor the address of a host") from None
        return x509.DNSName(host)
