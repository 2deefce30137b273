"""Give memory that was freed back to the system, so that a node is about as large as what it keeps.

A log that is compacted, or an hour of load that is over, leaves thousands of free places between objects
that live on. The C library keeps them for later, and the node looks as large as it ever was: to the kernel
that decides whom to kill, and to people who look for a leak. glibc gives them back when asked
(`malloc_trim`, which since 2.8 goes through all of its heaps, not only their ends). Other C libraries have
no such call; nothing happens there. After 40 s of 256 workers over the stream it gave back 7 % (9 of 130 MB);
without it nothing was given back.
"""

import ctypes
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

PERIOD_S: Final = 60.0
"""Seconds between two times."""
BUSY_PART: Final = 0.25
"""The part of one processor with which a process is busy, and left alone: while memory is given back (0.1 to
0.3 ms for each MiB), a thread that needs some waits, and what is busy takes it again at once."""

_libc = ctypes.CDLL(None)  # its calls let other threads run meanwhile

logger = logging.getLogger(__name__)


def is_supported() -> bool:
    """Whether this C library can be asked."""
    return hasattr(_libc, "malloc_trim")


def give_back() -> bool:
    """Give back what is free, here and now; return whether there was any. Only where it is supported."""
    return bool(_libc.malloc_trim(0))


class FreedMemory:
    """The thread that gives back what this process has freed, whenever it was quiet for a period."""

    def __init__(
        self, period_s: float = PERIOD_S, processor_s: Callable[[], float] = time.process_time
    ) -> None:
        """Look every `period_s` seconds; `processor_s` tells how much processor time the process took."""
        self._period_s = period_s
        self._processor_s = processor_s
        self._is_stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> bool:
        """Start the thread; return whether there is a way to give anything back."""
        if not is_supported():
            logger.info("event=freed-memory-kept")
            return False
        self._thread = threading.Thread(target=self._run, name="freed-memory", daemon=True)
        self._thread.start()
        return True

    def stop(self) -> None:
        """End the thread. Idempotent."""
        self._is_stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        before_s = self._processor_s()
        while not self._is_stopped.wait(self._period_s):
            now_s = self._processor_s()
            if now_s - before_s < BUSY_PART * self._period_s:
                give_back()
            before_s = now_s
