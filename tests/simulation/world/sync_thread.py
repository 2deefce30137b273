"""The thread that syncs a node's journal, in simulated time: the process goes on meanwhile."""

from collections.abc import Callable

from cluster.storage.journal import Sync
from tests.simulation.world.disk import Disk
from tests.simulation.world.event_loop import NodeLoop
from tests.simulation.world.scheduler import Event, Scheduler


class SimSyncs:
    """One process's thread. What it writes gets to the disk at the end of the time that it takes."""

    def __init__(self, scheduler: Scheduler, loop: NodeLoop, disk: Disk) -> None:
        self._scheduler = scheduler
        self._loop = loop
        self._disk = disk
        self._next: Event | None = None

    def start(self, sync: Sync, ended: Callable[[], None]) -> None:
        """Run it in a while."""
        disk = self._disk
        cost_us = disk.sync_us + disk.slow_sync_us + disk.random.randrange(disk.sync_us + 1)
        sync.wait_for = lambda: self._run_now(sync)
        sync.took_s = cost_us / 1_000_000
        self._next = self._scheduler.at(self._loop.now_us + cost_us, self._run, sync, ended)

    def _run(self, sync: Sync, ended: Callable[[], None]) -> None:
        """Do what the thread does, unless the process has been killed."""
        self._next = None
        loop = self._loop
        if loop.is_dead:
            return
        with loop.not_blocked():
            sync.run()
        loop.call_soon(ended)

    def _run_now(self, sync: Sync) -> None:
        """Let the process wait for it."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
            sync.run()

    def close(self) -> None:
        """Do nothing: who closes has waited."""
