"""The disk as one small object: every operation on the data directory goes through `Files`.

So a test can put a crash before any operation, tear the last write, fail a sync or fill the disk, and a
simulation can run on a disk of its own. No decision lives here. Errors are `OSError`, unchanged.
"""

import errno
import fcntl
import os
import pwd
from pathlib import Path


class Files:
    """The operating system's disk operations. Each returns only when the system says that it is done."""

    # -- names ----------------------------------------------------------------------------------------------

    def make_directory(self, path: Path) -> None:
        """Create a directory for this user only, with its parents; durable after their `fsync_dir`."""
        path.mkdir(mode=0o700, parents=True)

    def is_directory(self, path: Path) -> bool:
        """Whether `path` is a directory."""
        return path.is_dir()

    def other_owner(self, directory: Path) -> str:
        """Return the user whose directory it is, if this process is root's and the directory is not."""
        if os.geteuid() or not directory.is_dir() or not (owner := directory.stat().st_uid):
            return ""
        try:
            return pwd.getpwuid(owner).pw_name
        except KeyError:
            return str(owner)

    def names(self, directory: Path) -> list[str]:
        """Return the names in `directory`, sorted."""
        return sorted(path.name for path in directory.iterdir())

    def exists(self, path: Path) -> bool:
        """Whether there is something called `path`."""
        return path.exists()

    def rename(self, source: Path, target: Path) -> None:
        """Give `source` the name `target`, atomically; durable after `fsync_dir`."""
        source.rename(target)

    def link(self, path: Path, name: Path) -> None:
        """Give the file `path` another name, too; durable after `fsync_dir`. Not every file system can."""
        name.hardlink_to(path)

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

    # -- content --------------------------------------------------------------------------------------------

    def create(self, path: Path) -> int:
        """Create `path`, empty and for this user only, and return a descriptor to read and write it."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def open(self, path: Path) -> int:
        """Return a descriptor to read and write the existing file `path`."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def open_to_read(self, path: Path) -> int:
        """Return a descriptor to read the existing file `path`."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        """Give a descriptor back; writes nothing."""
        os.close(fd)

    def write(self, fd: int, data: bytes) -> None:
        """Write all of `data` behind what was written last. A full disk takes a part, then fails."""
        written = os.write(fd, data)
        while written < len(data):
            written += os.write(fd, memoryview(data)[written:])

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        """Write all of `data` at `offset`. A full disk takes a part, then fails."""
        written = os.pwrite(fd, data, offset)
        while written < len(data):
            written += os.pwrite(fd, memoryview(data)[written:], offset + written)

    def read_at(self, fd: int, size_bytes: int, offset: int) -> bytes:
        """Return up to `size_bytes` from `offset`; fewer only at the end of the file."""
        parts = []
        while size_bytes > 0:
            part = os.pread(fd, size_bytes, offset)
            if not part:
                break
            parts.append(part)
            size_bytes -= len(part)
            offset += len(part)
        return b"".join(parts)

    def read(self, path: Path) -> bytes:
        """Return the whole content of `path`."""
        return path.read_bytes()

    def size(self, fd: int) -> int:
        """Return the length of the file in bytes."""
        return os.fstat(fd).st_size

    def fdatasync(self, fd: int) -> None:
        """Wait until data and length are on disk. After an error nothing is known: never call it again."""
        os.fdatasync(fd)

    def drop_cache(self, fd: int) -> None:
        """Forget what memory holds of the file: what is read next is what the disk has."""
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def lock(self, directory: Path) -> int:
        """Lock `directory` until the descriptor is closed or the process ends.

        The directory itself is locked, so that no file that is deleted frees it. Raises BlockingIOError when
        another process has the lock.
        """
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(fd)
            raise
        return fd


class LookingFiles(Files):
    """The disk of somebody that only looks: what is read is real, and what would change it is left out.

    So a check goes through the very steps of a start. A change that this user may not make is an OSError,
    too.
    """

    def __init__(self) -> None:
        self.is_locked = False
        """Whether another process was found to have the directory."""

    def check_writable(self, directory: Path) -> None:
        """Find out whether a name can be made in `directory`, or in the one that it would be made in."""
        existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
        if not existing.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(existing))
        _check_access(existing, os.W_OK | os.X_OK)

    def make_directory(self, path: Path) -> None:
        """Find out whether it could be made."""
        self.check_writable(path)

    def names(self, directory: Path) -> list[str]:
        """Return the names in `directory`, none if it is yet to be made."""
        return super().names(directory) if self.is_directory(directory) else []

    def rename(self, source: Path, target: Path) -> None:
        """Do nothing."""

    def link(self, path: Path, name: Path) -> None:
        """Do nothing."""

    def unlink(self, path: Path) -> None:
        """Do nothing."""

    def fsync_dir(self, directory: Path) -> None:
        """Do nothing."""

    def create(self, path: Path) -> int:
        """Find out whether it could be made; what is written to the descriptor goes nowhere."""
        self.check_writable(path.parent)
        return os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)

    def open(self, path: Path) -> int:
        """Return a descriptor to read a file that could be written."""
        _check_access(path, os.R_OK | os.W_OK)
        return self.open_to_read(path)

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        """Do nothing."""

    def fdatasync(self, fd: int) -> None:
        """Do nothing."""

    def lock(self, directory: Path) -> int:
        """Look whether another process has the lock, and keep none: a node may start meanwhile."""
        if not self.is_directory(directory):
            return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(fd, fcntl.LOCK_UN)
        except BlockingIOError:
            self.is_locked = True
        return fd


def _check_access(path: Path, wanted: int) -> None:
    """Raise PermissionError unless this process may do that, and OSError on a disk that is read only."""
    if not os.access(path, wanted, effective_ids=True):
        is_read_only = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
        code = errno.EROFS if is_read_only and wanted & os.W_OK else errno.EACCES
        raise OSError(code, os.strerror(code), str(path))


def replace_file(files: Files, path: Path, data: bytes) -> None:
    """Make `data` the content of `path`, durably: a crash leaves the whole old or the whole new content."""
    temporary = path.with_name(path.name + ".tmp")
    if files.exists(temporary):
        files.unlink(temporary)
    fd = files.create(temporary)
    try:
        files.write(fd, data)
        files.fdatasync(fd)
    finally:
        files.close(fd)
    files.rename(temporary, path)
    files.fsync_dir(path.parent)
