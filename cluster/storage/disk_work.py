"""Disk work that may take long and that only its asker waits for: done in a thread, one job after the other.

Not the syncs of the journal, which many wait for (sync_runner). A disk that hangs here stops who asked for
the work, and nothing else: the event loop goes on, and with it heartbeats and elections.
"""

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, Protocol

logger = logging.getLogger(__name__)


class Job:
    """A piece of work. Begun and asked by the event loop's thread."""

    def __init__(self, work: Callable[[], None], ended: Callable[[], None]) -> None:
        """Do `work`; `ended` hears in the event loop's thread that it has been done, or has failed."""
        self._work = work
        self.ended: Final = ended
        self._error: BaseException | None = None
        self._is_done = threading.Event()

    @property
    def is_done(self) -> bool:
        """Whether it has been done, or has failed."""
        return self._is_done.is_set()

    def check(self) -> None:
        """Raise what the work raised, if it did. Only once it is done."""
        assert self.is_done, "nobody knows yet how this work ends"
        if self._error is not None:
            raise self._error

    def do(self) -> None:
        """Do the work. Never raises: whoever asked for it does."""
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - `check` raises it where it belongs
            self._error = error
        finally:
            self._is_done.set()


class DiskWork(Protocol):
    """Does one job after the other."""

    def start(self, job: Job) -> None:
        """Do a job; `job.ended` is called before this returns, or later."""

    def close(self) -> None:
        """Wait for what was started, and do nothing any more. Idempotent."""


class WorkInPlace:
    """Does a job at once, while everything waits."""

    def start(self, job: Job) -> None:
        """Do it, and tell."""
        job.do()
        job.ended()

    def close(self) -> None:
        """Do nothing: nothing is under way."""


class WorkThread:
    """Does jobs in a thread, which begins with the first one."""

    def __init__(self, call_soon_threadsafe: Callable[[Callable[[], None]], object]) -> None:
        """`call_soon_threadsafe` is the event loop's."""
        self._call_soon_threadsafe = call_soon_threadsafe
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, job: Job) -> None:
        """Let the thread do it."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="disk-work", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def close(self) -> None:
        """Wait for what was started, and end the thread. Idempotent."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            thread.join()

    def _work(self) -> None:
        """Do one job after the other."""
        while (job := self._jobs.get()) is not None:
            job.do()
            try:
                self._call_soon_threadsafe(job.ended)
            except RuntimeError:
                logger.info("event=disk-work-ended-late detail=%r", "the event loop is closed")
