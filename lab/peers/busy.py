"""A busy processor: one process that does nothing but keep it so, as other programs of a machine may."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from lab.peers.system import programs


@contextlib.contextmanager
def processor(directory: Path) -> Iterator[int]:
    """Keep the last processor that we may use busy meanwhile; give the pid of what does.

    `directory` is for its log.
    """
    with programs("busy") as started:
        started.start([sys.executable, "-S", "-c", "while True: pass"], directory / "busy.log")
        (pid,) = started.pids
        os.sched_setaffinity(pid, {max(os.sched_getaffinity(0))})
        yield pid
