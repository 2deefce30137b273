"""Whether this node speaks TLS with its peers, with which certificate, and whom it takes a peer for.

TLS comes beneath the handshake by the secret, and replaces nothing of it: who wants to be a node needs both.
"""

import enum
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Final

from cluster.peers.certificate_names import Shown, clusters_of, fault_in
from cluster.peers.cuts import Cut
from cluster.peers.peer_certificate import PeerReady
from cluster.tls.files import EXPIRED, NOT_YET_VALID, UNKNOWN_AUTHORITY

_SECURED, _PLAIN = "tls", "plain"
_DATES: Final = frozenset({NOT_YET_VALID, EXPIRED})


@enum.unique
class PeerTlsMode(enum.StrEnum):
    """How far a node has gone from links without TLS to links with it."""

    OFF = "off"
    """It speaks no TLS with peers."""
    ACCEPT = "accept"
    """It dials without TLS, and takes peers that dial with or without it."""
    DIAL = "dial"
    """It dials with TLS, and takes peers that dial with or without it."""
    REQUIRE = "require"
    """It speaks nothing but TLS with peers."""


class PeerTls:
    """What all links of a node ask. `ready` is replaced when the files change; open links go on."""

    def __init__(self, mode: PeerTlsMode, ready: PeerReady, node_id: str) -> None:
        self.mode = mode
        self.ready = ready
        self.cluster_id: Callable[[], str] = lambda: ""
        """Asked for the id of this cluster, empty while it has none. Set before the first connection."""
        self._node_id = node_id
        self.opened: Counter[str] = Counter({_SECURED: 0, _PLAIN: 0})
        """Links that came into use, with TLS and without."""
        self.revoked: Callable[[], None] = lambda: None
        """Called when there are new files: links whose certificate counts no longer are to end."""

    @property
    def dials(self) -> bool:
        """Whether this node dials its peers with TLS."""
        return self.mode in (PeerTlsMode.DIAL, PeerTlsMode.REQUIRE)

    @property
    def takes_plain(self) -> bool:
        """Whether peers may dial this node without TLS."""
        return self.mode is not PeerTlsMode.REQUIRE

    def fault(self, shown: Shown | None, node_id: str) -> tuple[Cut, str] | None:
        """Return why the one that showed this may not be `node_id`, None if it may; None shows no TLS."""
        if shown is None:
            return None
        if self.is_revoked(shown):
            return (
                Cut.CERTIFICATE_REVOKED,
                f"its certificate, number {shown.serial:X}, is revoked (--peer-revoked)",
            )
        cluster_id = self.cluster_id()
        ours = clusters_of(self.ready.names, self._node_id, cluster_id) | ({cluster_id} - {""})
        return fault_in(shown.names, node_id, ours)

    def is_revoked(self, shown: Shown) -> bool:
        """Whether the certificate of the other side counts no longer."""
        return shown.serial in self.ready.revoked

    def count(self, *, is_secured: bool) -> None:
        """Count a link that came into use."""
        self.opened[_SECURED if is_secured else _PLAIN] += 1


def cut_for(error: ssl.SSLError, *, is_shaken: bool) -> tuple[Cut, str]:
    """Return for what a connection ends, and why; `is_shaken` if its TLS handshake was over."""
    text = error.reason or str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = f"its certificate is not accepted: {error.verify_message}"
        if error.verify_code in _DATES:
            return Cut.CERTIFICATE_DATES, reason
        if error.verify_code in UNKNOWN_AUTHORITY:
            return Cut.CERTIFICATE_AUTHORITY, reason
        return Cut.CERTIFICATE, reason
    if "DID_NOT_RETURN_A_CERTIFICATE" in text:
        return Cut.CERTIFICATE_MISSING, "it shows no certificate"
    if "ALERT" in text and ("CERTIFICATE" in text or "UNKNOWN_CA" in text):
        return Cut.CERTIFICATE_REFUSED, f"it does not accept the certificate of this node: {text}"
    if is_shaken:
        return Cut.FORGED, f"{text}: somebody in between changes or adds bytes"
    return Cut.TLS, f"no TLS handshake: {text}"
