"""How much a data directory takes on its disk, and what is left there. Looks at names and sizes only."""

import os
from pathlib import Path
from typing import NamedTuple

from cluster.storage.recovery import is_segment
from cluster.storage.snapshot_store import SNAPSHOT_NAME


class DiskSpace(NamedTuple):
    """Bytes of a data directory, and of the file system that it is on."""

    snapshot: int = 0
    """The snapshot that a start would read."""
    journal: int = 0
    """All segments of the journal."""
    directory: int = 0
    """All files, those that are unfinished or no longer needed included."""
    free: int = 0
    """What this user may still write on that file system."""
    disk: int = 0
    """The size of that file system."""


def disk_space(directory: Path) -> DiskSpace:
    """Measure a data directory; nothing but the disk if it does not exist yet. Raises OSError."""
    existing = next(path for path in (directory, *directory.absolute().parents) if path.is_dir())
    disk = os.statvfs(existing)
    sizes = _sizes(directory) if existing == directory else {}
    return DiskSpace(
        snapshot=sizes.get(SNAPSHOT_NAME, 0),
        journal=sum(size for name, size in sizes.items() if is_segment(name)),
        directory=sum(sizes.values()),
        free=disk.f_bavail * disk.f_frsize,
        disk=disk.f_blocks * disk.f_frsize,
    )


def _sizes(directory: Path) -> dict[str, int]:
    """Return the size of each file. One that goes away meanwhile does not count."""
    sizes = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                sizes[entry.name] = entry.stat().st_size
            except FileNotFoundError:
                continue
    return sizes
