"""Who syncs a node's journal, in simulated time, in its two ways: by the kernel, or in a thread.

The process goes on meanwhile. For the kernel the write is done at once; in a thread all is done at the end of
the time that it takes.
"""

from collections.abc import Callable

from cluster.storage.files import Files
from cluster.storage.journal import Sync
from tests.simulation.world.disk import Disk
from tests.simulation.world.event_loop import NodeLoop
from tests.simulation.world.scheduler import Event, Scheduler
from tests.support.two_parts import finish


class SimSyncs:
    """One process's syncs."""

    def __init__(self, scheduler: Scheduler, loop: NodeLoop, disk: Disk, files: Files) -> None:
        self._scheduler = scheduler
        self._loop = loop
        self._disk = disk
        self._files = files
        self._next: Event | None = None

    def start(self, sync: Sync, ended: Callable[[], None]) -> None:
        """Begin it, and end it in a while."""
        disk = self._disk
        cost_us = disk.sync_us + disk.slow_sync_us + disk.random.randrange(disk.sync_us + 1)
        sync.took_s = cost_us / 1_000_000
        fd = sync.begin()
        sync.wait_for = lambda: self._end_now(sync, fd)
        self._next = self._scheduler.at(self._loop.now_us + cost_us, self._end, sync, fd, ended)

    def _end(self, sync: Sync, fd: int | None, ended: Callable[[], None]) -> None:
        """Do what the kernel or the thread does, unless the process has been killed."""
        self._next = None
        loop = self._loop
        if loop.is_dead:
            return
        with loop.not_blocked():
            finish(sync, fd, self._files)
        loop.call_soon(ended)

    def _end_now(self, sync: Sync, fd: int | None) -> None:
        """Let the process wait for it."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
            finish(sync, fd, self._files)

    def close(self) -> None:
        """Do nothing: who closes has waited."""
