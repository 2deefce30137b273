"""The secret file of a running node: read again when it changes, and when an operator asks for it.

A file that changes is read when it has been the same for two looks: whoever writes it may not be finished.
What cannot be read changes nothing: the node goes on with what it knows, and says so.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cluster import config_secrets
from cluster.config_secrets import Secrets, SecretsUnreadable
from cluster.file_watch import FileWatch, Signature, signature

LOOK_S: Final = 0.5
"""Seconds between two looks at the file."""

logger = logging.getLogger(__name__)


class SecretWatch(FileWatch):
    """Watches one file and tells `use` what it says."""

    def __init__(self, path: Path, secrets: Secrets, use: Callable[[Secrets], None]) -> None:
        """`secrets` are those that the node uses now."""
        super().__init__("secret")
        self._path = path
        self._secrets = secrets
        self._use = use
        self._read_last: Signature = None
        self._seen: Signature = None

    @property
    def interval_s(self) -> float:
        """Return the seconds between two looks."""
        return LOOK_S

    def look(self, *, is_asked: bool = False) -> None:
        """Read the file if it has changed and rests since the last look, or if somebody asks for it."""
        found = signature(self._path)
        is_due = is_asked or found == self._seen != self._read_last
        self._seen = found
        if is_due:
            # Noted before: what cannot be read is told once, and again when the file is another one.
            self._read_last = found
            self._read()

    def _read(self) -> None:
        try:
            secrets = config_secrets.read(self._path)
        except SecretsUnreadable as error:
            reason = f"{error}; the present secret stays in use"
            logger.error("event=secret-not-read path=%s reason=%r", self._path, reason)  # noqa: TRY400
            return
        if secrets != self._secrets:
            self._use(secrets)
            self._secrets = secrets
