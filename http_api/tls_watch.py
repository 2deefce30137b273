"""The TLS files of a running node: looked at once a minute, and at once when an operator asks for it.

What cannot be used changes nothing: the node goes on with the certificate that it has, and says so. It says
as well when a certificate ends soon.
"""

import contextlib
import logging
import stat
import time
from collections.abc import Callable, Iterator
from typing import Final

from cluster.file_watch import FileWatch, Signature, signature
from cluster.observing.metrics import Sample, gauge
from http_api.server import tls_context
from http_api.server.tls_context import TlsFiles, TlsReady, TlsUnusable
from http_api.server.tls_gate import TlsDoor

LOOK_S: Final = 60.0
"""Seconds between two looks at the files."""
_DAY_S: Final = 86_400
SOON_DAYS: Final = 14
"""Days before the end of a certificate from which on the log says so, once a day."""
_FILES: Final = {"node": "tls_cert", "client-ca": "tls_client_ca"}

logger = logging.getLogger("http_api")


class TlsWatch(FileWatch):
    """Keeps the certificate of a server what its files say."""

    def __init__(self, files: TlsFiles, now_s: Callable[[], float] = time.time) -> None:
        """Read the files for the first time. Raises TlsUnusable."""
        super().__init__("tls")
        self._files = files
        self._now_s = now_s
        self._read_last = self._signature()
        self._ready = _usable(files, now_s())
        self.door = TlsDoor(self._ready.context, self._samples)
        self._refused = ""
        self._told_at_s = float("-inf")

    @property
    def interval_s(self) -> float:
        """Return the seconds between two looks."""
        return LOOK_S

    def start(self) -> None:
        """Say what is known already, and begin to look."""
        self._tell_ends()
        self._tell_open_key()
        super().start()

    def look(self, *, is_asked: bool = False) -> None:
        """Read the files if they have changed, or could not be used, or if somebody asks for it."""
        found = self._signature()
        if is_asked or self._refused or found != self._read_last:
            # Noted before: what changes while it is read is found by the next look.
            self._read_last = found
            self._read(is_asked=is_asked)
        if self._now_s() - self._told_at_s >= _DAY_S:
            self._tell_ends()

    def _read(self, *, is_asked: bool) -> None:
        try:
            self._ready = _usable(self._files, self._now_s())
        except TlsUnusable as error:
            if is_asked or str(error) != self._refused:
                reason = f"{error}; the certificate stays what it was"
                logger.error("event=tls-not-read reason=%r", reason)  # noqa: TRY400 - it says all
            self._refused = str(error)
            return
        self._refused = ""
        self.door.context = self._ready.context
        logger.info("event=tls-read path=%r days_left=%d", str(self._files.cert), self._days_left("node"))
        self._tell_ends()

    def _signature(self) -> tuple[Signature, ...]:
        """Return what changes when the files do."""
        return tuple(signature(path) for path in self._files if path is not None)

    def _days_left(self, which: str) -> int:
        return int((self._ready.ends_at_s[which] - self._now_s()) // _DAY_S)

    def _tell_ends(self) -> None:
        """Warn of what ends soon."""
        self._told_at_s = self._now_s()
        for which in self._ready.ends_at_s:
            days = self._days_left(which)
            if days < SOON_DAYS:
                what = "ends soon" if days >= 0 else "has ended"
                logger.warning(
                    "event=tls-certificate-ends setting=%s days_left=%d detail=%r",
                    *(_FILES[which], days),
                    f"a certificate {what}, and clients will refuse it, or be refused: put a new one into its"
                    " place; the node reads it within a minute, and at once at SIGHUP",
                )

    def _tell_open_key(self) -> None:
        """Warn of a key that all users of the machine can read."""
        with contextlib.suppress(OSError):  # gone meanwhile: the next look tells of that
            if self._files.key.stat().st_mode & stat.S_IROTH:
                detail = f"tls_key: {str(self._files.key)!r}: other users can read it; chmod 600 it"
                logger.warning("event=config-warning detail=%r", detail)

    def _samples(self) -> Iterator[Sample]:
        name = "holdfast_http_tls_certificate_end_seconds"
        text = "Second since 1970 in which a certificate ends."
        for which, end_s in self._ready.ends_at_s.items():
            yield name, text, "gauge", {"certificate": which}, end_s
        text = "1 while the TLS files cannot be used, and an earlier certificate is."
        yield gauge("http_tls_files_refused", text, int(bool(self._refused)))


def _usable(files: TlsFiles, now_s: float) -> TlsReady:
    """Read the files. Raises TlsUnusable, also when authorities of clients have ended."""
    ready = tls_context.load(files)
    if files.client_ca is not None and ready.ends_at_s["client-ca"] <= now_s:
        raise TlsUnusable("tls_client_ca", files.client_ca, "has expired: no client could be let in")
    return ready
