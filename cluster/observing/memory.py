"""How much memory this process may take: the least of what the machine has and what limits it.

A node that takes more is killed, or runs into MemoryError, at a moment that nobody chose.
"""

import os
import resource
from collections.abc import Iterator
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

_KIB: Final = 1024


def state_bytes_max(proc: Path = Path("/proc/self"), mounted: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bound on the state, in bytes, that this process can bear: a part of the memory there is.

    `proc` is where the kernel tells about this process, `mounted` where control groups are.
    """
    groups_bytes = min(_groups_bytes(proc / "cgroup", mounted), default=_physical_bytes())
    room_bytes = min(_physical_bytes(), groups_bytes, _limit_bytes(proc / "status")) - OTHER_BYTES
    return max(min(room_bytes // STATE_PART, limits.STATE_BYTES_MAX), limits.STATE_BYTES_LEAST)


def _physical_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _groups_bytes(own: Path, mounted: Path) -> Iterator[int]:
    """Yield each limit of the control groups that this process is in, up to the root: all of them count.

    A limit may be that of a container, which sees its own group as the root, or of a service or a user far
    below it. `own` has a line for each hierarchy: `0::PATH` in version 2, `N:CONTROLLERS:PATH` in version 1.
    """
    for line in _text(own).splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            roots, name = [mounted, mounted / "unified"], "memory.max"
        elif "memory" in controllers.split(","):
            roots, name = [mounted / "memory"], "memory.limit_in_bytes"
        else:
            continue
        group = Path(path.lstrip("/"))
        limits_found = [_text(root / one / name).strip() for root in roots for one in (group, *group.parents)]
        yield from map(int, filter(str.isdigit, limits_found))


def _text(path: Path) -> str:
    """Return what a file says; nothing if it is not there, as of groups that only others see."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _limit_bytes(status: Path) -> int:
    """Return how much may be added to what this process has mapped already (`ulimit -v`)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        return _physical_bytes()
    mapped_kib = next((line.split()[1] for line in status.read_text().splitlines() if "VmSize" in line), "0")
    return max(soft - int(mapped_kib) * _KIB - THREADS_BYTES, 0)
