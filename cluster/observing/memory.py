"""How much memory this process may take: the least of what the machine has and what limits it.

A node that takes more is killed, or runs into MemoryError, at a moment that nobody chose.
"""

import os
import resource
from pathlib import Path
from typing import Final

from lockstate.words import limits

STATE_PART: Final = 4
"""One in so many bytes is for the state. A snapshot that is being written can double what the state takes,
and one that is received stands beside it until it counts."""
OTHER_BYTES: Final = 96 << 20
"""Bytes that are for no state: the log has up to 64 MiB of its own, the rest is for requests under way."""

THREADS_BYTES: Final = 192 << 20
"""Bytes that threads take of what a process may map, once it runs: stacks, and places to allocate from. They
are hardly used, but count."""

_CGROUP_FILES: Final = ("memory.max", "memory/memory.limit_in_bytes")
_KIB: Final = 1024


def state_bytes_max(proc: Path = Path("/proc/self/status"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bound on the state, in bytes, that this process can bear: a part of the memory there is."""
    room_bytes = min(_physical_bytes(), _cgroup_bytes(cgroup), _limit_bytes(proc)) - OTHER_BYTES
    return max(min(room_bytes // STATE_PART, limits.STATE_BYTES_MAX), limits.STATE_BYTES_LEAST)


def _physical_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _cgroup_bytes(cgroup: Path) -> int:
    """Return the limit of this container; a very large number if there is none."""
    found = [_physical_bytes()]
    for name in _CGROUP_FILES:
        try:
            text = (cgroup / name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            found.append(int(text))
    return min(found)


def _limit_bytes(proc: Path) -> int:
    """Return how much may be added to what this process has mapped already (`ulimit -v`)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        return _physical_bytes()
    mapped_kib = next((line.split()[1] for line in proc.read_text().splitlines() if "VmSize" in line), "0")
    return max(soft - int(mapped_kib) * _KIB - THREADS_BYTES, 0)
