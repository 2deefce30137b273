"""Gather the memory of a large process in huge pages, so that a fork stops it for a shorter time.

A fork copies the page tables of its parent while the parent waits: 30 ms for each GB of small pages, 2 ms of
huge ones (2 MiB, one entry instead of 512). Python and the C library take memory in pieces too small for the
kernel to use huge pages by itself, hence a thread that gathers what is there (madvise `MADV_COLLAPSE`, Linux
6.1). It only gives advice: contents and addresses stay as they are, and where the kernel cannot, or the
administrator does not want it, nothing happens but longer forks.
"""

import ctypes
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cluster.storage.forked_child import Child

HUGE_BYTES: Final = 2 * 1024 * 1024
"""The size in bytes of a huge page on x86-64, and wherever base pages have 4 KiB."""
PROCESS_BYTES_MIN: Final = 256 * 1024 * 1024
"""The size in bytes from which on a process is gathered: a smaller one forks fast enough."""
PERIOD_S: Final = 1.0
"""Seconds between two looks at whether there is something to gather."""
GROWTH_PART: Final = 16
"""The part (one in so many) by which a process must have grown or shrunk before it is gathered again."""
REST_S: Final = 0.005
"""Seconds of rest after each gathered page: who needs memory meanwhile waits for one page, not for all."""
_WORK_S: Final = 0.0002
"""Seconds: a call that took longer gathered a page. Finding one gathered already takes some microseconds."""

_MADV_COLLAPSE: Final = 25
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_SETTING: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")

_libc = ctypes.CDLL(None)  # its calls let other threads run meanwhile
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)

logger = logging.getLogger(__name__)


class HugePages:
    """The thread that gathers the memory of this process, once it is large."""

    def __init__(
        self, child: Child, process_bytes_min: int = PROCESS_BYTES_MIN, period_s: float = PERIOD_S
    ) -> None:
        """Rest while `child` runs: it shares the pages, and gathering would copy them."""
        self._child = child
        self._process_bytes_min = process_bytes_min
        self._period_s = period_s
        self._is_stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> bool:
        """Start the thread; return whether the kernel can gather at all."""
        if not is_supported():
            logger.info("event=huge-pages-unavailable")
            return False
        self._thread = threading.Thread(target=self._run, name="huge-pages", daemon=True)
        self._thread.start()
        return True

    def stop(self) -> None:
        """End the thread. Idempotent."""
        self._is_stopped.set()
        if self._thread is not None:
            self._thread.join()

    def gather(self) -> int:
        """Gather what is in small pages now; return how many huge pages that took work."""
        gathered_count = 0
        for start, end in private_mappings(Path("/proc/self/maps").read_text()):
            for address in mostly_used(start, end):
                if self._child.is_running or self._is_stopped.is_set():
                    return gathered_count
                if _gather(address):
                    gathered_count += 1
                    self._is_stopped.wait(REST_S)
        return gathered_count

    def _run(self) -> None:
        """Gather when the memory has changed much, or a child shared it: both sides' writes split pages."""
        done_bytes = done_forks = 0
        try:
            while not self._is_stopped.wait(self._period_s):
                size_bytes, forks = resident_bytes(), self._child.forks_count
                is_due = forks != done_forks or abs(size_bytes - done_bytes) * GROWTH_PART > size_bytes
                if size_bytes < self._process_bytes_min or not is_due or self._child.is_running:
                    continue
                if is_wanted():
                    logger.debug("event=huge-pages-gathered count=%d", self.gather())
                done_bytes, done_forks = size_bytes, forks
        except OSError as error:
            logger.info("event=huge-pages-unavailable error=%r", str(error))


def is_supported() -> bool:
    """Whether this kernel knows the advice. One that does takes it for no bytes at all."""
    return _PAGE_BYTES * 512 == HUGE_BYTES and _libc.madvise(None, 0, _MADV_COLLAPSE) == 0


def is_wanted() -> bool:
    """Whether the administrator lets programs ask for huge pages. Raises OSError when the kernel has none."""
    return "[never]" not in _SETTING.read_text()


def resident_bytes() -> int:
    """Return how much memory this process has. Raises OSError."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def private_mappings(maps: str) -> Iterator[tuple[int, int]]:
    """Yield first and last address of whole huge pages in what `maps` says is this process's own data.

    `maps` is the text of /proc/self/maps. The heap and mappings without a file are; stacks are not.
    """
    for line in maps.splitlines():
        addresses, rights, _, _, inode, *name = line.split(maxsplit=5)
        if rights != "rw-p" or inode != "0" or (name and not name[0].startswith(("[heap]", "[anon"))):
            continue
        first, last = (int(address, 16) for address in addresses.split("-"))
        start, end = -(-first // HUGE_BYTES) * HUGE_BYTES, last // HUGE_BYTES * HUGE_BYTES
        if start < end:
            yield start, end


def mostly_used(start: int, end: int) -> Iterator[int]:
    """Yield where at least half of a huge page's memory is there: to gather others would cost more memory.

    Asked at once for all: whenever this thread calls the kernel, it waits for its turn in the interpreter.
    """
    resident = ctypes.create_string_buffer((end - start) // _PAGE_BYTES)
    if _libc.mincore(start, end - start, resident):
        return  # unmapped since the mappings were read
    pages, each = resident.raw, HUGE_BYTES // _PAGE_BYTES
    for number in range((end - start) // HUGE_BYTES):
        if pages.count(1, number * each, (number + 1) * each) * 2 >= each:
            yield start + number * HUGE_BYTES


def _gather(address: int) -> bool:
    """Make one huge page; tell whether that was work. What the kernel refuses stays as it is."""
    began_s = time.monotonic()
    _libc.madvise(address, HUGE_BYTES, _MADV_COLLAPSE)
    return time.monotonic() - began_s > _WORK_S
