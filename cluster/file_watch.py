"""Files that a running node reads again: one loop that looks at them now and then, and at once when asked.

What a look does is told by those that are derived. They foresee files that are missing or wrong; whatever
else goes wrong must not end the loop: nobody would notice before the day on which the new file is needed.
"""

import abc
import asyncio
import contextlib
import logging
import os
import stat
import traceback
from pathlib import Path

logger = logging.getLogger(__name__)

Signature = tuple[int, int, int] | None


class FileWatch(abc.ABC):
    """Looks at files, again and again. One task; `start` and `stop` it."""

    def __init__(self, what: str) -> None:
        """Watch what the log calls `what`."""
        self._what = what
        self._failed_with = ""
        self._is_asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    @abc.abstractmethod
    def interval_s(self) -> float:
        """Return the seconds between two looks."""

    @abc.abstractmethod
    def look(self, *, is_asked: bool = False) -> None:
        """Read what has changed, or all if somebody asks for it. What cannot be used changes nothing."""

    async def look_aside(self, *, is_asked: bool) -> None:
        """Look, as a task: what takes long is derived to be done in a thread."""
        self.look(is_asked=is_asked)

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.get_running_loop().create_task(self._watch(), name=f"watch-{self._what}")

    async def stop(self) -> None:
        """Look no more. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def read_now(self) -> None:
        """Read the files at once, changed or not: an operator says that they are finished."""
        self._is_asked.set()

    async def _watch(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.interval_s):
                    await self._is_asked.wait()
            is_asked = self._is_asked.is_set()
            self._is_asked.clear()
            try:
                await self.look_aside(is_asked=is_asked)
            except Exception as error:  # noqa: BLE001 - see above
                self._tell_failure(error, is_asked=is_asked)
            else:
                self._failed_with = ""

    def _tell_failure(self, error: Exception, *, is_asked: bool) -> None:
        """Log what nobody foresaw: once, until it is something else. Its text may quote a secret."""
        frame = traceback.extract_tb(error.__traceback__)[-1]
        failed_with = f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
        if is_asked or failed_with != self._failed_with:
            logger.error("event=file-watch-failed files=%s error=%r", self._what, failed_with)
        self._failed_with = failed_with


def signature(path: str | os.PathLike[str]) -> Signature:
    """Return what changes when a file does, None if there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - no path object for each look
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def readers(path: Path) -> str:
    """Return which others of the machine can read a secret file, "" if none can that should not.

    A file of another user, root mostly, is one that this process reads by its group.
    """
    try:
        found = path.stat()
    except OSError:
        return ""  # gone meanwhile: the next look tells of that
    if found.st_mode & stat.S_IROTH:
        return "other users"
    is_own = found.st_uid == os.geteuid()
    return "users of its group" if is_own and found.st_mode & stat.S_IRGRP else ""
