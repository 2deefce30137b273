"""A disk that a test can stop at any operation: by a kill (the page cache stays) or by a loss of power."""

import os
from pathlib import Path
from random import Random

from cluster.files import Files


class Crash(BaseException):
    """The process ends here. No `except Exception` of the code under test may stop it."""


class CrashDisk(Files):
    """Real files, with the syncs only noted; raises Crash instead of operation number `crash_at`.

    A write that crashes leaves a part of its bytes. `lose_power` then takes away what no sync made durable.
    """

    def __init__(self, crash_at: int | None = None, torn_part: float = 0.5) -> None:
        """Crash at operation `crash_at` (from 1), leaving `torn_part` of a torn write."""
        self.crash_at = crash_at
        self.torn_part = torn_part
        self.operations: list[str] = []
        self._synced_bytes: dict[int, int] = {}
        self._names: list[tuple[Path, Path, tuple[bytes, int] | None]] = []

    def create(self, path: Path) -> int:
        """Create, with nothing of it durable yet."""
        self._count("create")
        fd = super().create(path)
        self._synced_bytes[os.fstat(fd).st_ino] = 0
        return fd

    def write(self, fd: int, data: bytes) -> None:
        """Write, or write a part and crash."""
        self.operations.append("write")
        inode = os.fstat(fd)
        self._synced_bytes.setdefault(inode.st_ino, inode.st_size)
        if len(self.operations) == self.crash_at:
            os.write(fd, data[: int(len(data) * self.torn_part)])
            raise Crash
        super().write(fd, data)

    def fdatasync(self, fd: int) -> None:
        """Note that the file is durable as it is."""
        self._count("fdatasync")
        inode = os.fstat(fd)
        self._synced_bytes[inode.st_ino] = inode.st_size

    def truncate(self, fd: int, size_bytes: int) -> None:
        """Truncate, durably at once: only ever done to bytes that were never durable."""
        self._count("truncate")
        super().truncate(fd, size_bytes)

    def rename(self, source: Path, target: Path) -> None:
        """Rename, not durable yet."""
        self._count("rename")
        super().rename(source, target)
        self._names.append((source, target, None))

    def unlink(self, path: Path) -> None:
        """Unlink, not durable yet."""
        self._count("unlink")
        status = path.stat()
        # Popped, because the file system may give the number to another file at once.
        synced_bytes = self._synced_bytes.pop(status.st_ino, status.st_size)
        self._names.append((path, path, (path.read_bytes(), synced_bytes)))
        super().unlink(path)

    def fsync_dir(self, directory: Path) -> None:
        """Note that all names are durable."""
        self._count("fsync_dir")
        assert directory.is_dir()
        self._names.clear()

    def lose_power(self, directory: Path, random: Random) -> None:
        """Undo the last name changes and spoil the unsynced ends of files, as far as `random` says."""
        for _ in range(random.randint(0, len(self._names))):
            source, target, removed = self._names.pop()
            if removed is None:
                target.rename(source)
            else:
                content, synced_bytes = removed
                source.write_bytes(content)
                self._synced_bytes[source.stat().st_ino] = synced_bytes
        for path in directory.iterdir():
            status = path.stat()
            synced_bytes = self._synced_bytes.get(status.st_ino, status.st_size)
            if status.st_size > synced_bytes:
                content = path.read_bytes()
                zero_from, end = sorted(random.randint(synced_bytes, len(content)) for _ in range(2))
                zero_to = random.choice((zero_from, end, len(content)))
                lost = content[:zero_from] + bytes(zero_to - zero_from) + content[zero_to:]
                path.write_bytes(lost[: random.choice((end, len(lost)))])

    def _count(self, operation: str) -> None:
        self.operations.append(operation)
        if len(self.operations) == self.crash_at:
            raise Crash
