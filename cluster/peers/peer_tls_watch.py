"""The TLS files of a running node for its peers: new ones are taken without a restart, and no link ends."""

import logging
import time
from collections.abc import Callable
from typing import Final

from cluster.config import NodeConfig
from cluster.errors import ConfigError
from cluster.peers import peer_certificate
from cluster.peers.certificate_names import clusters_of, is_cluster_id, told
from cluster.peers.peer_certificate import CA, CERT, PeerFiles, PeerReady
from cluster.peers.peer_tls import PeerTls, PeerTlsMode
from cluster.tls.files import TlsUnusable
from cluster.tls.watch import TlsFilesWatch

TELL_S: Final = 3600.0
"""Seconds between two lines that say that links without TLS are let in."""
_SETTINGS: Final = {"peer": CERT, "peer-ca": CA}

logger = logging.getLogger(__name__)


class PeerTlsWatch(TlsFilesWatch[PeerReady]):
    """Keeps the certificate that peers are shown what its files say, and warns while links may be plain."""

    def __init__(
        self, files: PeerFiles, mode: PeerTlsMode, node_id: str, now_s: Callable[[], float] = time.time
    ) -> None:
        """Read the files for the first time. Raises TlsUnusable."""
        self._peer_files = files
        self._node_id = node_id
        self._cluster_id: Callable[[], str] = lambda: ""
        self.plain_count: Callable[[], int] = lambda: 0
        """How many links are in use without TLS. Set before `start`."""
        super().__init__(
            "peer-tls",
            files.named,
            revoked_list=files.revoked_list,
            settings=_SETTINGS,
            logger=logger,
            now_s=now_s,
        )
        self.tls = PeerTls(mode, self._ready, node_id)
        self._told_plain_at_s = float("-inf")

    def start(self) -> None:
        """Say what is known already, and begin to look."""
        self._tell_plain()
        super().start()

    def belong(self, cluster_id: Callable[[], str], *, is_founding: bool) -> None:
        """Ask this for the id of the node's cluster from now on; `is_founding` if there is to be a new one.

        Raises ConfigError if the certificate is that of another cluster.
        """
        self._cluster_id = self.tls.cluster_id = cluster_id
        known, names = cluster_id(), self._ready.names
        found = clusters_of(names, self._node_id, known)
        where = f"{CERT}: {str(self._peer_files.cert)!r}: names {told(names)}, and"
        if not found:
            raise ConfigError(f"{where} this node belongs to cluster {known}")
        if is_founding and not known and all(is_cluster_id(cluster) for cluster in found):
            raise ConfigError(
                f"{where} this node is to begin a new cluster, whose id nobody knows yet: make a certificate"
                " with a name for the cluster in the place of an id; or, if it is to join one, add --join"
            )

    def look(self, *, is_asked: bool = False) -> None:
        """Read the files if that is due, and say now and then that links may be plain."""
        super().look(is_asked=is_asked)
        if self._now_s() - self._told_plain_at_s >= TELL_S:
            self._tell_plain()

    def _load(self) -> PeerReady:
        """Read the files. Raises TlsUnusable, also when all authorities have ended."""
        ready = peer_certificate.load(self._peer_files, self._node_id, self._cluster_id())
        if ready.ends_at_s["peer-ca"] <= self._now_s():
            raise TlsUnusable(CA, self._peer_files.ca, "has expired: no peer could be let in")
        return ready

    def _use(self, ready: PeerReady) -> None:
        """Show new connections this certificate; end links of peers whose own is revoked."""
        self.tls.ready = ready
        self.tls.revoked()

    def _with_revoked(self, ready: PeerReady, serials: frozenset[int]) -> PeerReady:
        """Return this with another list. The own certificate may be on it: others judge that."""
        return ready._replace(revoked=serials)

    def _tell_plain(self) -> None:
        """Warn while links without TLS are let in."""
        self._told_plain_at_s = self._now_s()
        if self.tls.takes_plain:
            logger.warning(
                "event=peer-tls-not-required mode=%s plain_links=%d detail=%r",
                *(self.tls.mode.value, self.plain_count()),
                "peers may connect without TLS, and everybody on the path can read what they say: restart"
                " the nodes with the next --peer-tls (see 'TLS between nodes' in docs/operating.md)",
            )


def watch_of(config: NodeConfig) -> PeerTlsWatch | None:
    """Return the TLS of a node with its peers, None if it has none. Raises ConfigError."""
    mode = PeerTlsMode(config.peer_tls)
    cert, key, ca = config.peer_cert, config.peer_key, config.peer_ca
    if mode is PeerTlsMode.OFF or cert is None or key is None or ca is None:
        return None
    try:
        return PeerTlsWatch(PeerFiles(cert, key, ca, config.peer_revoked), mode, config.node_id)
    except TlsUnusable as error:
        raise ConfigError(str(error)) from None
