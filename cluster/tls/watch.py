"""The TLS files of a running node: looked at once a minute, and at once when an operator asks for it.

What cannot be used changes nothing: the node goes on with the certificate that it has, and says so. Only the
list of what is revoked counts whatever is wrong with the other files: who has stolen a key must not be let in
because a renewal went wrong. It says as well when a certificate ends soon.
"""

import abc
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

from cluster.file_watch import FileWatch, Signature, readers, signature
from cluster.tls import revoked
from cluster.tls.files import TlsFile, TlsUnusable

LOOK_S: Final = 60.0
"""Seconds between two looks at the files."""
DAY_S: Final = 86_400
SOON_DAYS: Final = 14
"""Days before the end of a certificate from which on the log says so, once a day."""


class FilesReady(Protocol):
    """What was made of the files."""

    @property
    def ends_at_s(self) -> Mapping[str, int]:
        """Return, by what a certificate is for, the second since 1970 in which it ends."""


R = TypeVar("R", bound=FilesReady)


class TlsFilesWatch(FileWatch, abc.ABC, Generic[R]):
    """Keeps what was made of TLS files what these say."""

    def __init__(
        self,
        what: str,
        files: Sequence[TlsFile],
        *,
        revoked_list: TlsFile | None,
        settings: Mapping[str, str],
        logger: logging.Logger,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """Read the files for the first time: certificate, key, and perhaps authorities. Raises TlsUnusable.

        `revoked_list` is the one among them of what is revoked, if there is one. `settings` says which of
        them a certificate in `FilesReady.ends_at_s` comes from.
        """
        super().__init__(what)
        self._files = files
        self._revoked_list = revoked_list
        self._settings = settings
        self._logger = logger
        self._now_s = now_s
        self._read_last = self._signature()
        self._ready = self._load()
        self._serials = self._listed()
        """What is revoked, as it counts."""
        self._shorter: tuple[Signature, ...] = ()
        """The signature with which the list had lost something, until that counts."""
        self._refused = ""
        self._told_at_s = float("-inf")

    @property
    def ends_at_s(self) -> Mapping[str, int]:
        """Return when the certificates in force end, as `FilesReady` says it."""
        return self._ready.ends_at_s

    @property
    def is_refused(self) -> bool:
        """Whether the files cannot be used, and an earlier certificate is."""
        return bool(self._refused)

    @abc.abstractmethod
    def _load(self) -> R:
        """Read the files. Raises TlsUnusable."""

    @abc.abstractmethod
    def _use(self, ready: R) -> None:
        """Take this for all new connections from now on."""

    @abc.abstractmethod
    def _with_revoked(self, ready: R, serials: frozenset[int]) -> R:
        """Return this with another list of what is revoked."""

    @property
    def interval_s(self) -> float:
        """Return the seconds between two looks."""
        return LOOK_S

    def start(self) -> None:
        """Say what is known already, and begin to look."""
        self._tell_ends()
        if warning := self.open_key():
            self._logger.warning("event=config-warning detail=%r", warning)
        super().start()

    def look(self, *, is_asked: bool = False) -> None:
        """Read the files if they have changed, or could not be used, or if somebody asks for it."""
        found = self._signature()
        if is_asked or self._refused or found != self._read_last:
            # Noted before: what changes while it is read is found by the next look.
            self._read_last = found
            self._read(is_asked=is_asked)
            self._keep_lost(found, is_asked=is_asked)
        if self._now_s() - self._told_at_s >= DAY_S:
            self._tell_ends()

    def _read(self, *, is_asked: bool) -> None:
        try:
            self._ready = self._load()
        except TlsUnusable as error:
            is_list_read = self._read_revoked()
            if is_asked or str(error) != self._refused:
                reason = f"{error}; the certificate stays what it was"
                if is_list_read:
                    reason += ", and what is revoked is what the list says now"
                self._logger.error("event=tls-not-read reason=%r", reason)  # noqa: TRY400 - it says all
            self._refused = str(error)
            return
        self._refused = ""
        self._use(self._ready)
        first = next(iter(self._ready.ends_at_s))
        self._logger.info(
            "event=tls-read path=%r days_left=%d", str(self._files[0].path), self._days_left(first)
        )
        self._tell_ends()

    def _listed(self) -> frozenset[int]:
        """Return what the list says is revoked. Raises TlsUnusable."""
        return frozenset() if self._revoked_list is None else revoked.read(self._revoked_list)

    def _keep_lost(self, found: tuple[Signature, ...], *, is_asked: bool) -> None:
        """Let what the list has lost count as revoked until the next look finds it the same.

        Whoever writes a file anew in its place empties it first, and may be in the middle of that. `_read`
        has just taken what the list says now.
        """
        try:
            serials = self._listed()
        except TlsUnusable:
            return  # it has been told; what counted before counts
        lost = self._serials - serials
        if not lost or is_asked or found == self._shorter:
            self._serials, self._shorter = serials, ()
            return
        self._shorter, self._read_last = found, ()
        self._ready = self._with_revoked(self._ready, self._serials | serials)
        self._use(self._ready)
        self._logger.warning(
            "event=tls-revoked-shorter path=%r lost=%d detail=%r",
            *(str(self._revoked_list.path if self._revoked_list else ""), len(lost)),
            "these serial numbers are revoked until the next look, in a minute, finds the list as it is now",
        )

    def _read_revoked(self) -> bool:
        """Read only the list of what is revoked; return whether that could be done."""
        if self._revoked_list is None:
            return False
        try:
            serials = revoked.read(self._revoked_list)
        except TlsUnusable:
            return False  # of all files it is told what is wrong with the first
        self._ready = self._with_revoked(self._ready, serials)
        self._use(self._ready)
        return True

    def _signature(self) -> tuple[Signature, ...]:
        """Return what changes when the files do."""
        return tuple(signature(file.path) for file in self._files)

    def _days_left(self, which: str) -> int:
        return int((self._ready.ends_at_s[which] - self._now_s()) // DAY_S)

    def _tell_ends(self) -> None:
        """Warn of what ends soon."""
        self._told_at_s = self._now_s()
        for setting, days in self.days_left():
            if days < SOON_DAYS:
                self._logger.warning(
                    "event=tls-certificate-ends setting=%s days_left=%d detail=%r",
                    *(setting, days, told_end(days)),
                )

    def days_left(self) -> Iterator[tuple[str, int]]:
        """Yield each setting that names certificates, and the days that they have, less than 0 when ended."""
        for which in self._ready.ends_at_s:
            yield self._settings[which], self._days_left(which)

    def open_key(self) -> str:
        """Return a warning of a key that others can read; empty if they cannot."""
        setting, path = self._files[1]
        who = readers(path)
        return f"{setting}: {str(path)!r}: {who} can read it; chmod 600 it" if who else ""


def told_end(days: int) -> str:
    """Say what to do about a certificate that has few days left, or none."""
    what = "ends soon" if days >= 0 else "has ended"
    return (
        f"a certificate {what}, and the other side will refuse it, or be refused: put a new one"
        " into its place; the node reads it within a minute, and at once at SIGHUP"
    )
