"""The secret file of a running node: read again when it changes, and when an operator asks for it.

A file that changes is read when it has been the same for two looks: whoever writes it may not be finished.
What cannot be read changes nothing: the node goes on with what it knows, and says so.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cluster import config_secrets
from cluster.config_secrets import Secrets, SecretsUnreadable

LOOK_S: Final = 0.5
"""Seconds between two looks at the file."""

logger = logging.getLogger(__name__)

_Signature = tuple[int, int, int] | None


class SecretWatch:
    """Watches one file and tells `use` what it says. One task; `start` and `stop` it."""

    def __init__(self, path: Path, secrets: Secrets, use: Callable[[Secrets], None]) -> None:
        """`secrets` are those that the node uses now."""
        self._path = path
        self._secrets = secrets
        self._use = use
        self._is_asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.get_running_loop().create_task(self._watch(), name="watch-secret")

    async def stop(self) -> None:
        """Look no more. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def read_now(self) -> None:
        """Read the file at once: an operator says that it is finished."""
        self._is_asked.set()

    async def _watch(self) -> None:
        read: _Signature = None
        seen: _Signature = None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._is_asked.wait()
            found = self._signature()
            if self._is_asked.is_set() or found == seen != read:
                self._read()
                read = found
            self._is_asked.clear()
            seen = found

    def _signature(self) -> _Signature:
        """Return what changes when the file does, None if there is none."""
        try:
            found = os.stat(self._path)  # noqa: PTH116 - no path object for each look
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size, found.st_ino)

    def _read(self) -> None:
        try:
            secrets = config_secrets.read(self._path)
        except SecretsUnreadable as error:
            reason = f"{error}; the secret stays what it was"
            logger.error("event=secret-not-read path=%s reason=%r", self._path, reason)  # noqa: TRY400
            return
        if secrets != self._secrets:
            self._secrets = secrets
            self._use(secrets)
