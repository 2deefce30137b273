"""Backups of one node: the state as it is, written by a forked child, for somebody to read.

The file lies in the data directory while it is made, has no name any more while it is read, and is gone with
its last reader. What a dead process left there goes at the next start (SnapshotStore).
"""

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cluster.errors import Overloaded
from cluster.storage.files import Files
from cluster.storage.forked_child import Child
from cluster.storage.snapshot_format import write_sealed
from cluster.storage.snapshot_store import BACKUP_NAME, SnapshotReader

POLL_S: Final = 0.02
"""Seconds between two looks at whether the child has ended."""


class Backups:
    """Writes the backups of one node, one at a time."""

    def __init__(self, directory: Path, files: Files, child: Child) -> None:
        self._path = directory / f"{BACKUP_NAME}.{os.getpid()}.tmp"
        self._files = files
        self._child = child
        self._is_busy = False

    async def write(self, head: Callable[[int], bytes], encode_state: Callable[[], bytes]) -> SnapshotReader:
        """Return a backup of the state as it is at the call. Raises Overloaded, StateDamaged.

        `head` makes what stands before the state, of its length in bytes. Both are called in the child.
        """
        if self._is_busy:
            raise Overloaded("this node is making another backup; ask another node, or later")
        self._is_busy = True
        path, files = self._path, self._files

        def work() -> None:
            state = encode_state()
            write_sealed(path, head(len(state)), state, hashlib.sha256(), files)

        try:
            self._child.start(work)
            while (outcome := self._child.poll()) == "running":  # noqa: ASYNC110 - children set no event
                await asyncio.sleep(POLL_S)
            if outcome != "done":
                raise Overloaded(
                    "this node could not write the backup, for which it needs memory and disk space as for a"
                    " snapshot; its log has the reason (event=child-failed). Ask another node"
                )
            return SnapshotReader(path, files)
        finally:
            self._child.stop()
            if files.exists(path):
                files.unlink(path)
            self._is_busy = False
