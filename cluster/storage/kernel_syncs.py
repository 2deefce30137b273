"""Syncs that the kernel runs: the loop writes the block into the page cache and goes on at once.

It is the quickest way for a block that only overwrites what was prepared (`LogOnDisk.begin`), and most do.
All others are left to a thread (docs/decisions/0018), and so are those behind a slow one, and all when the
kernel has refused one: to create, lengthen or remove a file may wait for the disk, and so may a write to a
disk that is in trouble.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from typing import Final

from cluster.storage.files import Files
from cluster.storage.journal import Sync
from cluster.storage.kernel_aio import KernelAio
from cluster.storage.sync_runner import SyncRunner, SyncThread

SLOW_S: Final = 0.05
"""A sync that took so long, in seconds, lets the next one be run by the thread, with its write."""

logger = logging.getLogger(__name__)


def runner_for(loop: asyncio.AbstractEventLoop, files: Files) -> SyncRunner:
    """Return the best runner of syncs: the kernel where it can and `files` are the real ones, or a thread."""
    thread = SyncThread(loop.call_soon_threadsafe)
    if type(files) is not Files:
        return thread  # they have a say in every operation
    try:
        aio = KernelAio()
    except OSError as error:
        logger.info("event=syncs-in-thread detail=%r", f"the kernel runs none: {error}")
        return thread
    return KernelSyncs(loop, aio, thread)


class KernelSyncs:
    """Runs syncs by `KernelAio` where that is enough, else in `thread`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, aio: KernelAio, thread: SyncThread) -> None:
        """Take over `aio` and `thread`: `close` closes both."""
        self._loop = loop
        self._aio = aio
        self._thread = thread
        self._present: Sync | None = None
        self._ended: Callable[[], None] | None = None
        self._began_s = self._began_busy_s = 0.0
        self._is_slow = self._is_refused = self._is_closed = False
        loop.add_reader(aio.eventfd, self._on_event)

    def start(self, sync: Sync, ended: Callable[[], None]) -> None:
        """Run it; `ended` is called from the loop, or before this returns if the thread is quick."""
        fd = None if self._is_slow or self._is_refused else sync.begin()
        if fd is None:
            self._run_in_thread(sync, ended)
            return
        # Whatever else is raised on the way leaves a sync that nobody has run, and so a failed one.
        self._ended = ended
        sync.wait_for = self._wait
        self._began_s, self._began_busy_s = time.perf_counter(), time.thread_time()
        try:
            self._aio.begin_fdatasync(fd)
        except OSError as error:
            # Nothing is under way, and no sync of this write was tried: the thread's is the first.
            logger.warning("event=syncs-in-thread detail=%r", f"the kernel refuses one: {error}")
            self._is_refused, self._ended = True, None
            self._run_in_thread(sync, ended)
            return
        self._present = sync

    def close(self) -> None:
        """Wait for what is under way, and run nothing any more. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            if not self._loop.is_closed():
                self._loop.remove_reader(self._aio.eventfd)
            self._aio.close()
        self._thread.close()

    def _run_in_thread(self, sync: Sync, ended: Callable[[], None]) -> None:
        def told() -> None:
            self._is_slow = sync.took_s > SLOW_S
            ended()

        self._thread.start(sync, told)

    def _on_event(self) -> None:
        """Take over the sync that has ended, unless somebody waited for it, and tell."""
        try:
            os.eventfd_read(self._aio.eventfd)
        except BlockingIOError:
            return
        if self._present is not None:
            try:
                error = self._result(waits=False)
            except BlockingIOError:
                return  # its own event is still to come
            self._take_over(error)
        ended, self._ended = self._ended, None
        if ended is not None:
            ended()

    def _wait(self) -> None:
        """Wait for the sync that is under way. Its end is told by the event, which is still to come."""
        if self._present is not None:
            self._take_over(self._result(waits=True))

    def _result(self, *, waits: bool) -> Exception | None:
        """Return how the sync has ended. Raises BlockingIOError if it has not.

        Whatever keeps us from knowing, such as a want of memory, is a failed sync: its event comes only once.
        """
        try:
            return self._aio.result(waits=waits)
        except BlockingIOError:
            raise
        except Exception as problem:  # noqa: BLE001 - whoever ends the sync raises it
            return problem

    def _take_over(self, error: Exception | None) -> None:
        sync, self._present = self._present, None
        assert sync is not None, "the end of a sync that was not begun"
        # A loop that had much to do hears late of the end. What it did meanwhile is not the disk's time.
        busy_s = time.thread_time() - self._began_busy_s
        sync.took_s = max(0.0, time.perf_counter() - self._began_s - busy_s)
        self._is_slow = sync.took_s > SLOW_S
        sync.end(error)
