"""Who runs the syncs of a journal: a thread of its own, so that the event loop never waits long for the disk.

A healthy disk takes less than a millisecond. The loop waits that long for the thread, because to go on and
come back costs more than it saves (docs/decisions/0015). A disk that takes longer is waited for by the thread
alone: heartbeats, elections, HTTP and health checks go on, and what was promised waits.

The two call each other by pipes: who writes into one, or waits for it, does so without the lock of the
interpreter, which the other one wants when it wakes. With locks each call took more switches between the two.
"""

import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from cluster.storage.journal import Sync

PATIENCE_S: Final = 0.002
"""The time, in seconds, for which the loop waits for a sync before it goes on without it."""

_CALL: Final = b"!"

logger = logging.getLogger(__name__)


class SyncRunner(Protocol):
    """Runs one sync after the other."""

    def start(self, sync: Sync, ended: Callable[[], None]) -> None:
        """Run `sync` and then call `ended` in the loop's thread: before this returns, or later."""

    def close(self) -> None:
        """Wait for what is under way, and run nothing any more. Idempotent."""


class InPlace:
    """Runs a sync at once, while everything waits."""

    def start(self, sync: Sync, ended: Callable[[], None]) -> None:
        """Run it, and tell."""
        began_s = time.perf_counter()
        sync.run()
        sync.took_s = time.perf_counter() - began_s
        ended()

    def close(self) -> None:
        """Do nothing: nothing is under way."""


class _Order:
    """One sync for the thread. The thread frees `is_run` when it has run it."""

    def __init__(self, sync: Sync, ended: Callable[[], None]) -> None:
        self.sync = sync
        self.ended = ended
        self.is_run = threading.Lock()
        self.is_run.acquire()
        self.guard = threading.Lock()
        self.is_done = self.is_waited_for_elsewhere = False

    def join(self) -> None:
        """Wait until it has been run."""
        with self.is_run:
            pass


class SyncThread:
    """Runs syncs in a thread, which begins with the first one."""

    def __init__(
        self, call_soon_threadsafe: Callable[[Callable[[], None]], object], patience_s: float = PATIENCE_S
    ) -> None:
        """`call_soon_threadsafe` is the event loop's; `patience_s` is how long `start` waits for an end."""
        self._call_soon_threadsafe = call_soon_threadsafe
        self._patience_ms = patience_s * 1000
        self._orders: deque[_Order | None] = deque()
        self._thread: threading.Thread | None = None

    def start(self, sync: Sync, ended: Callable[[], None]) -> None:
        """Run it in the thread; call `ended` before this returns if that is soon, else from the loop.

        Raises OSError or RuntimeError if there can be no thread: then nobody runs it.
        """
        order = _Order(sync, ended)
        if self._thread is None:
            self._thread = self._begin()
        # Not before there is a thread: nobody may wait for what nobody runs.
        sync.wait_for = order.join
        self._call(order)
        self._ends.poll(self._patience_ms)
        # What is on disk is said by the order: the call may be one that somebody else was to hear.
        with order.guard:
            order.is_waited_for_elsewhere = not order.is_done
        if not order.is_waited_for_elsewhere:
            os.read(self._end_calls[0], 1)
            ended()

    def close(self) -> None:
        """Wait for what is under way, and end the thread. Idempotent."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._call(None)
            thread.join()
            for fd in (*self._order_calls, *self._end_calls):
                os.close(fd)

    def _begin(self) -> threading.Thread:
        """Begin the thread. Raises OSError or RuntimeError if the system has no more pipes or threads."""
        self._order_calls, self._end_calls = os.pipe(), os.pipe()
        self._ends = select.poll()
        self._ends.register(self._end_calls[0], select.POLLIN)
        thread = threading.Thread(target=self._work, name="sync", daemon=True)
        thread.start()
        return thread

    def _call(self, order: _Order | None) -> None:
        """Give the thread an order; None: to end."""
        self._orders.append(order)
        os.write(self._order_calls[1], _CALL)

    def _work(self) -> None:
        """Run one order after the other."""
        while os.read(self._order_calls[0], 1) and (order := self._orders.popleft()) is not None:
            began_s = time.perf_counter()
            order.sync.run()
            order.sync.took_s = time.perf_counter() - began_s
            with order.guard:
                order.is_done = True
                is_waited_for_elsewhere = order.is_waited_for_elsewhere
            order.is_run.release()
            if is_waited_for_elsewhere:
                self._tell(order)
            else:
                os.write(self._end_calls[1], _CALL)

    def _tell(self, order: _Order) -> None:
        """Let the loop hear of an end that it did not wait for."""
        try:
            self._call_soon_threadsafe(order.ended)
        except RuntimeError:
            logger.info("event=sync-ended-late detail=%r", "the event loop is closed")
