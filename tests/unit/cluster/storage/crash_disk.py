"""A disk in memory that a test can stop at any operation, by a kill (the page cache stays) or a power loss.

The latter lets each 512-byte sector of what was written since the last sync survive or not, each for
itself; lengths stop anywhere between the old and the new one; names changed since the last `fsync_dir` are
undone from the last one back.
"""

import errno
import itertools
import os
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from cluster.storage.files import Files

SECTOR_BYTES = 512


class Crash(BaseException):
    """The process ends here. No `except Exception` of the code under test may stop it."""


@dataclass
class Inode:
    """A file: what programs read, what is durable, the writes in between (offset, bytes, length after)."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    unsynced: list[tuple[int, bytes, int]] = field(default_factory=list)

    def write(self, offset: int, data: bytes) -> None:
        """Write into the page cache."""
        self.content.extend(bytes(max(0, offset - len(self.content))))
        self.content[offset : offset + len(data)] = data
        self.unsynced.append((offset, data, len(self.content)))

    def sync(self) -> None:
        """Make the content durable."""
        self.durable = bytes(self.content)
        self.unsynced.clear()

    def lose_power(self, random: Random) -> None:
        """Keep a random subset of the sectors that were written since the last sync."""
        length = random.choice([len(self.durable), *(length for _, _, length in self.unsynced)])
        luck = random.choice((0.0, 0.2, 0.5, 0.8, 1.0))
        content = bytearray(self.durable)
        lost: set[int] = set()
        for offset, data, _ in self.unsynced:
            content.extend(bytes(max(0, offset + len(data) - len(content))))
            for sector in range(offset // SECTOR_BYTES, -(-(offset + len(data)) // SECTOR_BYTES)):
                # A sector that once stayed behind keeps what it has: the disk saw none of its later states.
                if sector not in lost and random.random() >= luck:
                    lost.add(sector)
                if sector not in lost:
                    start, end = max(offset, sector * SECTOR_BYTES), (sector + 1) * SECTOR_BYTES
                    part = data[start - offset : end - offset]
                    content[start : start + len(part)] = part
        content.extend(bytes(max(0, length - len(content))))
        self.content = content[:length]
        self.sync()


class CrashDisk(Files):
    """Files in memory; raises Crash instead of operation number `crash_at`, a write leaving a part of it."""

    def __init__(self, crash_at: int | None = None, torn_part: float = 0.5) -> None:
        """Crash at operation `crash_at` (from 1), leaving `torn_part` of a torn write."""
        self.crash_at = crash_at
        self.torn_part = torn_part
        self.operations: list[str] = []
        self.free_bytes: int | None = None
        self.failing: str | None = None
        self._inodes: dict[Path, Inode] = {}
        self._names_before: list[dict[Path, Inode]] = []
        self._open: dict[int, Inode] = {}
        self._written: dict[int, int] = {}
        self._fds = itertools.count(1000)

    # -- for tests ------------------------------------------------------------------------------------------

    def reboot(self, power: Random | None, crash_at: int | None = None) -> None:
        """End the process, with a loss of power if `power` is given; the next may crash at `crash_at`."""
        if power is not None:
            if self._names_before:
                keep = power.randint(0, len(self._names_before))
                self._inodes = [*self._names_before, self._inodes][keep]
            for inode in self._inodes.values():
                inode.lose_power(power)
            self._names_before.clear()
        self._open.clear()
        self.crash_at = crash_at
        self.operations = []

    def copy(self) -> "CrashDisk":
        """Return a disk with the same durable and readable content, and no process on it."""
        other = CrashDisk()
        twins = {
            id(inode): Inode(bytearray(inode.content), inode.durable, list(inode.unsynced))
            for names in (*self._names_before, self._inodes)
            for inode in names.values()
        }
        own = [
            {path: twins[id(inode)] for path, inode in names.items()}
            for names in (*self._names_before, self._inodes)
        ]
        *other._names_before, other._inodes = own
        return other

    def content(self, path: Path) -> bytes:
        """Return what a program would read."""
        return bytes(self._inodes[path].content)

    def put(self, path: Path, content: bytes) -> None:
        """Put durable content at `path`, from outside."""
        self._inodes[path] = Inode(bytearray(content), content)

    # -- names ----------------------------------------------------------------------------------------------

    def make_directory(self, path: Path) -> None:
        """Directories need not be made."""
        raise AssertionError(path)

    def is_directory(self, path: Path) -> bool:
        """Every directory is there."""
        return path not in self._inodes

    def names(self, directory: Path) -> list[str]:
        """Return the names."""
        return sorted(path.name for path in self._inodes if path.parent == directory)

    def exists(self, path: Path) -> bool:
        """Whether there is such a file."""
        return path in self._inodes

    def rename(self, source: Path, target: Path) -> None:
        """Rename, not durable yet."""
        self._count("rename")
        names = dict(self._inodes)
        names[target] = names.pop(source)
        self._change_names(names)

    def link(self, path: Path, name: Path) -> None:
        """Give a second name, not durable yet."""
        self._count("link")
        assert name not in self._inodes
        self._change_names({**self._inodes, name: self._inodes[path]})

    def unlink(self, path: Path) -> None:
        """Unlink, not durable yet."""
        self._count("unlink")
        names = dict(self._inodes)
        del names[path]
        self._change_names(names)

    def fsync_dir(self, directory: Path) -> None:
        """Note that all names are durable."""
        self._count("fsync_dir")
        assert self.is_directory(directory)
        self._names_before.clear()

    # -- content --------------------------------------------------------------------------------------------

    def create(self, path: Path) -> int:
        """Create, with nothing of it durable yet, not even the name."""
        self._count("create")
        assert path not in self._inodes
        self._change_names({**self._inodes, path: Inode()})
        return self.open(path)

    def open(self, path: Path) -> int:
        """Open an existing file."""
        if path not in self._inodes:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        fd = next(self._fds)
        self._open[fd] = self._inodes[path]
        self._written[fd] = 0
        return fd

    def open_to_read(self, path: Path) -> int:
        """Open an existing file."""
        return self.open(path)

    def lock(self, directory: Path) -> int:
        """Open a directory; there is no other process."""
        assert self.is_directory(directory)
        fd = next(self._fds)
        self._open[fd] = Inode()
        return fd

    def close(self, fd: int) -> None:
        """Forget the descriptor."""
        del self._open[fd]

    def write(self, fd: int, data: bytes) -> None:
        """Write behind what was written last."""
        self.write_at(fd, data, self._written[fd])
        self._written[fd] += len(data)

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        """Write, or write a part and crash or run out of space."""
        self.operations.append("write")
        inode = self._open[fd]
        if len(self.operations) == self.crash_at:
            inode.write(offset, data[: int(len(data) * self.torn_part)])
            raise Crash
        grown = max(0, offset + len(data) - len(inode.content))
        if self.free_bytes is not None:
            if grown > self.free_bytes:
                inode.write(offset, data[: len(data) - (grown - self.free_bytes)])
                self.free_bytes = 0
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.free_bytes -= grown
        inode.write(offset, bytes(data))

    def read_at(self, fd: int, size_bytes: int, offset: int) -> bytes:
        """Read."""
        return bytes(self._open[fd].content[offset : offset + size_bytes])

    def read(self, path: Path) -> bytes:
        """Read all."""
        return self.content(path)

    def size(self, fd: int) -> int:
        """Return the length."""
        return len(self._open[fd].content)

    def fdatasync(self, fd: int) -> None:
        """Make the file durable; or fail, after which its pages count as clean though nothing was written."""
        self._count("fdatasync")
        if self.failing == "fdatasync":
            self.failing = None
            self._open[fd].unsynced.clear()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self._open[fd].unsynced:
            self._open[fd].sync()

    def drop_cache(self, fd: int) -> None:
        """Read what the disk has from now on; pages that wait to be written stay."""
        inode = self._open[fd]
        if not inode.unsynced:
            inode.content = bytearray(inode.durable)

    def _change_names(self, names: dict[Path, Inode]) -> None:
        self._names_before.append(self._inodes)
        self._inodes = names

    def _count(self, operation: str) -> None:
        self.operations.append(operation)
        if len(self.operations) == self.crash_at:
            raise Crash
