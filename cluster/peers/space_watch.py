"""Whether the disk of a node is nearly full, before a write fails and the node has to stop.

The disk is looked at in a thread (disk_work): one that hangs keeps nobody waiting.
"""

import logging
from collections.abc import Callable
from typing import Final

from cluster.storage.disk_space import DiskSpace
from cluster.storage.disk_work import DiskWork, Job

LOOK_S: Final = 5.0
"""Seconds between two looks."""
SPARE_BYTES: Final = 64 << 20
"""What the journal may need before the next snapshot frees some of it: the log in memory has no more."""
WELL_AGAIN: Final = 1.25
"""A disk that was nearly full counts so until it has this many times the bytes that are needed."""

logger = logging.getLogger(__name__)


class SpaceWatch:
    """Looks at one data directory. One thread. Without `measure` nothing is known, as in simulations."""

    def __init__(
        self,
        directory: str = "",
        measure: Callable[[], DiskSpace] | None = None,
        work: DiskWork | None = None,
    ) -> None:
        """`measure` is called by `work`. Raises nothing: what cannot be measured is not known."""
        self._directory = directory
        self._measure = measure
        self._work = work
        self._next_s = float("-inf")
        self._nearly_full_since_s: float | None = None
        self.space: DiskSpace | None = None
        """What the last look found."""

    def look(self, now_s: float) -> None:
        """Have the disk measured, if that is due. Called by a timer."""
        if self._measure is None or self._work is None or now_s < self._next_s:
            return
        self._next_s = float("inf")  # not before this look has ended
        found: list[DiskSpace] = []
        measure = self._measure
        job: Job

        def ended() -> None:
            self._next_s = now_s + LOOK_S
            try:
                job.check()
            except OSError as error:
                logger.debug("event=disk-not-measured error=%r", str(error))
                return
            self.found(found[0], now_s)

        job = Job(lambda: found.append(measure()), ended)
        self._work.start(job)

    def found(self, space: DiskSpace, now_s: float) -> None:
        """Take what a look found."""
        self.space = space
        if self._nearly_full_since_s is None and space.free < needed_bytes(space):
            self._nearly_full_since_s = now_s
            logger.warning(
                "event=disk-nearly-full directory=%r free_bytes=%d needed_bytes=%d detail=%r",
                self._directory,
                space.free,
                needed_bytes(space),
                "make room: this node stops when a write fails",
            )
        elif self._nearly_full_since_s is not None and space.free >= WELL_AGAIN * needed_bytes(space):
            self._nearly_full_since_s = None
            logger.info("event=disk-has-room directory=%r free_bytes=%d", self._directory, space.free)

    def nearly_full_s(self, now_s: float) -> float | None:
        """Return for how long the disk has been nearly full, None if it is not."""
        return None if self._nearly_full_since_s is None else now_s - self._nearly_full_since_s


def needed_bytes(space: DiskSpace) -> int:
    """Return what must be free for the next snapshot, and for the journal until then."""
    return space.snapshot + SPARE_BYTES
