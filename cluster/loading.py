"""How a node reads its state at its start: in pieces, so that it can say meanwhile how far it is."""

import asyncio
import gc
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from cluster.storage.snapshot_store import Snapshot, SnapshotStore
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.tables.state import State

PIECE_S: Final = 0.02
"""For how long, in seconds, the event loop may be kept from anything else."""
TOLD_EVERY_S: Final = 5.0
"""Seconds between two lines about how far the node is."""

logger = logging.getLogger(__name__)


class Loading:
    """The start of one node, seen from outside."""

    def __init__(self) -> None:
        """Begin with nothing read."""
        self.is_over = False
        """Whether the node can be asked for its state."""
        self.on_progress: Callable[[str], None] = lambda _: None
        """Called with each line about how far the node is, for a service manager."""
        self._steps = self._steps_count = 0

    def __str__(self) -> str:
        """Return what the node does, and how much of that is done."""
        return f"the node is starting: it has read {self.percent} % of its state"

    @property
    def percent(self) -> int:
        """Return how much of the state is read. At 100 the names of its locks may still have to be sorted."""
        return min(100 * self._steps // self._steps_count, 100) if self._steps_count else 0

    async def load(self, store: SnapshotStore) -> Snapshot | None:
        """Return the snapshot with its state decoded, None if there is none.

        Raises SnapshotError for a state that this version cannot read, DataDirError for damage, OSError.
        """
        await asyncio.sleep(0)  # before the file is read, let clients be told that the node starts
        loaded = store.load()
        if loaded is None:
            return None
        machine = LockMachine(await self._state(loaded.state))
        return msgspec.structs.replace(loaded, state=b"", decoded=machine)

    async def _state(self, data: bytes) -> State:
        """Decode in pieces, and without the collector: much is new, and none of it garbage."""
        loop = asyncio.get_running_loop()
        began_s = told_s = paused_s = loop.time()
        self._steps_count = snapshot.steps_count(data)
        steps = snapshot.decode_in_steps(data)
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            while True:
                next(steps)
                self._steps += 1
                now_s = loop.time()
                if now_s - told_s >= TOLD_EVERY_S:
                    told_s = now_s
                    self._tell(len(data), now_s - began_s)
                if now_s - paused_s >= PIECE_S:
                    await asyncio.sleep(0)
                    paused_s = loop.time()
        except StopIteration as end:
            state: State = end.value
            return state
        finally:
            if was_enabled:
                gc.enable()

    def _tell(self, size_bytes: int, lasted_s: float) -> None:
        logger.info("event=loading percent=%d bytes=%d for_s=%.0f", self.percent, size_bytes, lasted_s)
        self.on_progress(str(self))
