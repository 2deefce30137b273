"""The file of certificates that count no longer, though an authority has signed them and they have not ended.

Each line has the serial number of one certificate, in hexadecimal digits, as `openssl x509 -noout -serial`
prints it.
"""

import re
from collections.abc import Mapping
from typing import Final

from cluster.tls.files import TlsFile

_LINE: Final = re.compile(
    r"(?:serial=)?(?:0x)?([0-9a-f]{1,2}(?::[0-9a-f]{2})+|[0-9a-f]{1,64})", re.ASCII | re.IGNORECASE
)
"""A serial number has 160 bits at most (RFC 5280, 4.1.2.2), and some authorities do not know that."""
BYTES_MAX: Final = 1 << 20
"""Bytes of the file, of some 25,000 certificates. The loop of the node waits while it is read."""


def read(file: TlsFile) -> frozenset[int]:
    """Return the serial numbers in a file. Raises TlsUnusable, which names the line."""
    try:
        content = file.path.read_bytes()
    except OSError as error:
        advice = "the user that runs the node must be able to read it; empty, if nothing is revoked"
        raise file.unusable(f"cannot be read: {error.strerror}; {advice}") from None
    if len(content) > BYTES_MAX:
        raise file.unusable(f"has more than {BYTES_MAX >> 20} MiB: take out certificates that have ended")
    if content and not content.endswith(b"\n"):
        raise file.unusable("its last line has no newline at its end: it may be half written")
    found = set()
    for number, line in enumerate(content.decode("utf-8-sig", "replace").splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = _LINE.fullmatch(text)
        if match is None:
            what = "is not a serial number, as `openssl x509 -noout -serial -in CERTIFICATE` prints it"
            raise file.unusable(f"line {number}: {text[:80]!r} {what}")
        found.add(int(match[1].replace(":", ""), 16))
    return frozenset(found)


def serial_of(certificate: Mapping[str, object]) -> int:
    """Return the serial number of a certificate in the form of ssl.SSLSocket.getpeercert, -1 for none."""
    return int(str(certificate.get("serialNumber", "-1")), 16)
