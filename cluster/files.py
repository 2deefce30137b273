"""The disk operations that durability depends on, as one small object.

Everything that must survive a crash is written through `Files`, so a test can put a crash before any
operation, tear the last write, or fail a sync. No decision lives here. Errors are `OSError`, unchanged.
"""

import os
from pathlib import Path


class Files:
    """The operating system's disk operations. Each returns only when the system says that it is done."""

    def create(self, path: Path) -> int:
        """Create `path`, empty and for this user only, and return a descriptor that appends to it."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def open_append(self, path: Path) -> int:
        """Return a descriptor that appends to the existing file `path`."""
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)

    def write(self, fd: int, data: bytes) -> None:
        """Append all of `data`. A full disk writes a part first and fails on the rest."""
        written = os.write(fd, data)
        while written < len(data):
            written += os.write(fd, memoryview(data)[written:])

    def fdatasync(self, fd: int) -> None:
        """Wait until data and length are on disk. After an error nothing is known: never call it again."""
        os.fdatasync(fd)

    def truncate(self, fd: int, size_bytes: int) -> None:
        """Cut the file to `size_bytes`."""
        os.ftruncate(fd, size_bytes)

    def rename(self, source: Path, target: Path) -> None:
        """Give `source` the name `target`, atomically; durable after `fsync_dir`."""
        source.rename(target)

    def unlink(self, path: Path) -> None:
        """Remove the name `path`; durable after `fsync_dir`."""
        path.unlink()

    def fsync_dir(self, directory: Path) -> None:
        """Wait until created, renamed and removed names in `directory` are on disk."""
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def replace_file(files: Files, path: Path, data: bytes) -> None:
    """Make `data` the content of `path`, durably: a crash leaves the whole old or the whole new content."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)
    fd = files.create(temporary)
    try:
        files.write(fd, data)
        files.fdatasync(fd)
    finally:
        os.close(fd)
    files.rename(temporary, path)
    files.fsync_dir(path.parent)
