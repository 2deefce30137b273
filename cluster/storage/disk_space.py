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
    written_s: float | None = None
    """When the snapshot was written, by the clock of the wall; None if there is none."""


def disk_space(directory: Path) -> DiskSpace:
    """Measure a data directory; nothing but the disk if it does not exist yet. Raises OSError."""
    existing = next(path for path in (directory, *directory.absolute().parents) if path.is_dir())
    disk = os.statvfs(existing)
    files = _files(directory) if existing == directory else {}
    snapshot = files.get(SNAPSHOT_NAME)
    return DiskSpace(
        snapshot=snapshot.st_size if snapshot is not None else 0,
        journal=sum(file.st_size for name, file in files.items() if is_segment(name)),
        directory=sum(file.st_size for file in files.values()),
        free=disk.f_bavail * disk.f_frsize,
        disk=disk.f_blocks * disk.f_frsize,
        written_s=snapshot.st_mtime if snapshot is not None else None,
    )


def _files(directory: Path) -> dict[str, os.stat_result]:
    """Return what is told of each file. One that goes away meanwhile does not count."""
    files = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                files[entry.name] = entry.stat()
            except FileNotFoundError:
                continue
    return files
