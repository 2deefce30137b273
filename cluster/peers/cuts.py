"""Why connections of peers and strangers are ended: each is counted, and logged as far as a log should grow.

Strangers may connect as often as they like, and a broken peer comes back at once. So of each kind a few are
logged one by one, then ten a minute; the line says how many were not.
"""

import enum
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

LINES_COUNT_MAX: Final = 10
"""How many of one kind are logged in a row."""
LINE_S: Final = 6.0
"""Seconds after which one more may be logged."""

logger = logging.getLogger(__name__)


class Cut(enum.StrEnum):
    """What a connection was ended for."""

    HANDSHAKE = "handshake"
    """It does not speak the protocol, or names somebody else: a stranger, or a wrong address."""
    SECRET = "secret"  # noqa: S105 - a word for an operator
    """The other side does not know a secret that this node accepts."""
    PLAIN = "plain"
    """It speaks no TLS, and this node requires it."""
    TLS = "tls"
    """Its TLS handshake makes no sense: a stranger."""
    CERTIFICATE_MISSING = "certificate-missing"
    """It shows no certificate."""
    CERTIFICATE_DATES = "certificate-dates"
    """Its certificate, or an authority behind it, has ended or is not valid yet."""
    CERTIFICATE_AUTHORITY = "certificate-authority"
    """None of the authorities of this cluster has signed its certificate."""
    CERTIFICATE = "certificate"
    """Something else is wrong with its certificate."""
    CERTIFICATE_NODE = "certificate-node"
    """Its certificate names another node."""
    CERTIFICATE_CLUSTER = "certificate-cluster"
    """Its certificate names a node of another cluster."""
    CERTIFICATE_REVOKED = "certificate-revoked"
    """Its certificate counts no longer: its serial number is in the list of those."""
    CERTIFICATE_REFUSED = "certificate-refused"
    """It does not accept the certificate of this node."""
    RELAYED = "relayed"
    """It has shown another certificate than the one that came: somebody in between speaks TLS with both."""
    SLOW = "slow"
    """The handshake took too long."""
    CROWD = "crowd"
    """Too many connections that have proven nothing."""
    REFUSED = "refused"
    """The peer does not let this node in, and says why."""
    FORGED = "forged"
    """Bytes came that the peer has not sent so, or not now."""
    UNREADABLE = "unreadable"
    """What a peer sent is not a frame, or has no meaning."""
    IMPLAUSIBLE = "implausible"
    """A peer said what no correct node says."""
    CONTRADICTION = "contradiction"
    """A peer said that other entries are committed than are committed here."""
    BROKEN = "broken"
    """This node broke."""


class Cuts:
    """Counts what was cut, and logs it."""

    def __init__(
        self, now_s: Callable[[], float], failed: Callable[[str, str], object] = lambda _, __: None
    ) -> None:
        """`failed` is told whose connection ended, as far as that is known, and why."""
        self._now_s = now_s
        self._failed = failed
        self.counts: Counter[Cut] = Counter()
        self._lines: dict[Cut, tuple[float, float]] = {}
        self._unlogged: Counter[Cut] = Counter()

    def record(self, cut: Cut, peer_id: str, address: object, reason: str) -> None:
        """Count and perhaps log that a connection was ended; `peer_id` is empty for a stranger."""
        self.counts[cut] += 1
        self._failed(peer_id, reason)
        if not self._may_log(cut):
            self._unlogged[cut] += 1
            return
        unlogged = self._unlogged.pop(cut, 0)
        logger.warning(
            "event=peer-rejected peer=%s address=%s cut=%s reason=%r%s",
            peer_id or "stranger",
            address,
            cut,
            reason,
            f" unlogged={unlogged}" if unlogged else "",
        )

    def _may_log(self, cut: Cut) -> bool:
        """Take one of the lines that this kind has left, if it has any."""
        now_s = self._now_s()
        left, since_s = self._lines.get(cut, (float(LINES_COUNT_MAX), now_s))
        left = min(float(LINES_COUNT_MAX), left + (now_s - since_s) / LINE_S)
        self._lines[cut] = (left - 1 if left >= 1 else left, now_s)
        return left >= 1
