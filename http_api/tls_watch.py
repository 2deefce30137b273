"""The TLS files of a running node for its clients: new ones are taken without a restart."""

import logging
import time
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Final

from cluster.config import NodeConfig
from cluster.errors import ConfigError
from cluster.observing.samples import Sample, gauge
from cluster.tls.files import TlsUnusable
from cluster.tls.watch import TlsFilesWatch
from http_api.server import tls_context
from http_api.server.tls_context import TlsFiles, TlsReady
from http_api.server.tls_gate import TlsDoor

_SETTINGS: Final = {"node": "tls_cert", "client-ca": "tls_client_ca"}


class TlsWatch(TlsFilesWatch[TlsReady]):
    """Keeps the certificate of a server what its files say."""

    def __init__(
        self, files: TlsFiles, now_s: Callable[[], float] = time.time, *, takes_plain: bool = False
    ) -> None:
        """Read the files for the first time. Raises TlsUnusable. `takes_plain`: see `TlsDoor`."""
        self._tls_files = files
        logger = logging.getLogger("http_api")
        super().__init__(
            "tls",
            files.named,
            revoked_list=files.revoked_list,
            settings=_SETTINGS,
            logger=logger,
            now_s=now_s,
        )
        self.door = TlsDoor(self._ready.context, self._samples, takes_plain=takes_plain)
        self.door.revoke(self._ready.revoked)

    def _load(self) -> TlsReady:
        """Read the files. Raises TlsUnusable, also when authorities of clients have ended."""
        ready = tls_context.load(self._tls_files)
        client_ca = self._tls_files.client_ca
        if client_ca is not None and ready.ends_at_s["client-ca"] <= self._now_s():
            raise TlsUnusable("tls_client_ca", client_ca, "has expired: no client could be let in")
        return ready

    def _use(self, ready: TlsReady) -> None:
        """Show new connections this certificate; end those of clients whose own is revoked."""
        self.door.context = ready.context
        self.door.revoke(ready.revoked)

    def _with_revoked(self, ready: TlsReady, serials: frozenset[int]) -> TlsReady:
        """Return this with another list."""
        return ready._replace(revoked=serials)

    def unnamed(self, url: str) -> str:
        """Return a warning if clients that call the node by `url` refuse its certificate, "" if none do."""
        host, names = urllib.parse.urlsplit(url).hostname or "", self._ready.names
        if not url.startswith("https:") or tls_context.is_named(host, names):
            return ""
        return (
            f"tls_cert: {str(self._tls_files.cert)!r}: names {', '.join(names) or 'no host'}, and clients are"
            f" told to call {host} (--advertise-http): they will refuse it: make one with that name"
        )

    def _samples(self) -> Iterator[Sample]:
        text = "Second since 1970 in which a certificate ends."
        for which, end_s in self.ends_at_s.items():
            yield gauge("http_tls_certificate_end_seconds", text, end_s, certificate=which)
        text = "1 while the TLS files are unusable and an earlier certificate is in use."
        yield gauge("http_tls_files_refused", text, self.is_refused)


def watch_of(config: NodeConfig) -> TlsWatch | None:
    """Return what clients need for TLS, None if they are served without. Raises ConfigError."""
    if config.tls_cert is None or config.tls_key is None:
        return None
    try:
        files = TlsFiles(config.tls_cert, config.tls_key, config.tls_client_ca, config.tls_revoked)
        return TlsWatch(files, takes_plain=not config.requires_tls)
    except TlsUnusable as error:
        raise ConfigError(str(error)) from None
