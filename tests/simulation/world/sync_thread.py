"""Who syncs a node's journal, in simulated time, as a thread does.

The process goes on meanwhile. All is done at the end of the time that it takes.
"""

from collections.abc import Callable

from cluster.storage.journal import Sync
from tests.simulation.world.disk import Disk
from tests.simulation.world.event_loop import NodeLoop
from tests.simulation.world.scheduler import Event, Scheduler


class SimSyncs:
    """One process's syncs."""

    def __init__(self, scheduler: Scheduler, loop: NodeLoop, disk: Disk) -> None:
        self._scheduler = scheduler
        self._loop = loop
        self._disk = disk
        self._next: Event | None = None

    def start(self, sync: Sync, ended: Callable[[], None]) -> None:
        """Begin it, and end it in a while."""
        disk = self._disk
        cost_us = disk.sync_us + disk.slow_sync_us + disk.random.randrange(disk.sync_us + 1)
        sync.took_s = cost_us / 1_000_000
        sync.wait_for = lambda: self._end_now(sync)
        self._next = self._scheduler.at(self._loop.now_us + cost_us, self._end, sync, ended)

    def _end(self, sync: Sync, ended: Callable[[], None]) -> None:
        """Do what the thread does, unless the process has been killed."""
        self._next = None
        loop = self._loop
        if loop.is_dead:
            return
        with loop.not_blocked():
            sync.run()
        loop.call_soon(ended)

    def _end_now(self, sync: Sync) -> None:
        """Let the process wait for it."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
            sync.run()

    def close(self) -> None:
        """Do nothing: who closes has waited."""
