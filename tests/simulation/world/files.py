"""The operations of `cluster.storage.files.Files` on a simulated disk: one object for each process.

Every operation may be where the process is killed, and where the disk fails.
"""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from cluster.storage.files import Files
from tests.simulation.world.bad_reads import first_difference, misread
from tests.simulation.world.disk import Disk
from tests.simulation.world.event_loop import Killed
from tests.simulation.world.inode import Inode


class _Open:
    """What a descriptor stands for."""

    def __init__(self, inode: Inode, path: Path) -> None:
        self.inode = inode
        self.path = path
        self.name = path.name
        self.position = 0


class SimFiles(Files):
    """One process's way to its disk. `spend` makes the process busy, `kill` ends it."""

    def __init__(self, disk: Disk, spend: Callable[[int], None], kill: Callable[[], None]) -> None:
        self.disk = disk
        self.is_dead = False
        self.errors_count = 0
        """How many operations failed as the world wanted: the node may stop because of it."""
        self.misled: list[str] = []
        """Where a read brought wrong bytes although something on the disk says what is right."""
        self.recording: list[tuple[str, tuple[Any, ...]]] | None = None
        """Where the writes of a forked child are noted instead of done."""
        self._spend = spend
        self._kill = kill
        self._open: dict[int, _Open] = {}
        self._next_fd = 3

    def kill_with(self, kill: Callable[[], None]) -> None:
        """Let `kill` be what happens when it is time to die."""
        self._kill = kill

    # -- names ----------------------------------------------------------------------------------------------

    def make_directory(self, path: Path) -> None:
        """Create a directory."""
        self._begin()
        self.disk.make_directory(path)

    def is_directory(self, path: Path) -> bool:
        """Whether `path` is a directory."""
        self._begin()
        return path in self.disk.directories

    def other_owner(self, directory: Path) -> str:  # noqa: ARG002 - of a real disk
        """Nobody's: all is this process's own."""
        return ""

    def names(self, directory: Path) -> list[str]:
        """Return the names in `directory`, sorted."""
        self._begin()
        if directory not in self.disk.directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", str(directory))
        return sorted(path.name for path in self.disk.names if path.parent == directory)

    def exists(self, path: Path) -> bool:
        """Whether there is something called `path`."""
        self._begin()
        return path in self.disk.names or path in self.disk.directories

    def rename(self, source: Path, target: Path) -> None:
        """Give `source` the name `target`."""
        if target.name == "snapshot":
            self.disk.reach("placed")
        self._begin()
        self._maybe_fail_write(target.name)
        self.disk.change(target.parent, source, target, self._inode(source))

    def link(self, path: Path, name: Path) -> None:
        """Give a file another name."""
        self._begin()
        if name in self.disk.names:
            raise FileExistsError(errno.EEXIST, "file exists", str(name))
        self._maybe_fail_write(name.name)
        self.disk.change(name.parent, None, name, self._inode(path))

    def unlink(self, path: Path) -> None:
        """Remove a name."""
        if self.recording is not None:
            self.recording.append(("unlink_by_child", (path,)))
            return
        if path.name.startswith("journal"):
            self.disk.reach("removal")
        self._begin()
        self._inode(path)
        self.disk.change(path.parent, path, None, None)

    def unlink_by_child(self, _fd: int, path: Path) -> None:
        """Remove a name, as an operation that a forked child has noted: those begin with a descriptor."""
        self.unlink(path)

    def fsync_dir(self, directory: Path) -> None:
        """Make changes of names durable."""
        self._begin()
        self._sync_cost()
        self._maybe_fail_sync()
        if not self.disk.lies:
            self.disk.sync_directory(directory)

    # -- content --------------------------------------------------------------------------------------------

    def create(self, path: Path) -> int:
        """Create an empty file."""
        if self.recording is not None:
            self.recording.append(("create", (path,)))
            return -1
        if path.name.startswith(("snapshot", "incoming", "cluster")):
            self.disk.reach(path.name.split(".")[0])
        self._begin()
        if path in self.disk.names:
            raise FileExistsError(errno.EEXIST, "file exists", str(path))
        if path.parent not in self.disk.directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", str(path))
        self._maybe_fail_write(path.name)
        inode = Inode()
        self.disk.change(path.parent, None, path, inode)
        return self._opened(inode, path)

    def open(self, path: Path) -> int:
        """Open an existing file."""
        self._begin()
        return self._opened(self._inode(path), path)

    def open_to_read(self, path: Path) -> int:
        """Open an existing file."""
        self._begin()
        return self._opened(self._inode(path), path)

    def close(self, fd: int) -> None:
        """Give a descriptor back."""
        if self.recording is not None:
            self.recording.append(("close", ()))
            return
        self._begin()
        closed = self._open.pop(fd)
        if self.disk.owners.get(closed.path) is self:
            del self.disk.owners[closed.path]

    def write(self, fd: int, data: bytes) -> None:
        """Write behind what was written last."""
        if self.recording is not None:
            self.recording.append(("write", (bytes(data),)))
            return
        file = self._file(fd)
        offset, file.position = file.position, file.position + len(data)
        self._write(file, bytes(data), offset)

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        """Write at an offset."""
        self._write(self._file(fd), bytes(data), offset)

    def _write(self, file: _Open, data: bytes, offset: int) -> None:
        """Write, or a part of it, if the process is killed or the disk is full in the middle."""
        disk, inode = self.disk, file.inode
        if offset + len(data) <= len(inode.data) and not data.strip(b"\0"):
            disk.reach("torn")
        is_full = self._is_full(file.name)
        part = disk.random.randint(0, len(data)) if self._dies_now() or is_full else len(data)
        if disk.fail_writes:
            disk.fail_writes -= 1
            self._fail(errno.EIO)
        if part:
            inode.write(data, offset, kept_bytes=part)
        self._begin()
        if is_full:
            self._fail(errno.ENOSPC)

    def read_at(self, fd: int, size_bytes: int, offset: int) -> bytes:
        """Return bytes."""
        self._begin()
        file = self._file(fd)
        return self._bytes_read(
            file.path, file.inode, bytes(file.inode.data[offset : offset + size_bytes]), offset
        )

    def read(self, path: Path) -> bytes:
        """Return everything."""
        self._begin()
        inode = self._inode(path)
        return self._bytes_read(path, inode, bytes(inode.data), 0)

    def _bytes_read(self, path: Path, inode: Inode, data: bytes, offset: int) -> bytes:
        """Return what the disk gives out for `data`, and note what of it is wrong."""
        disk = self.disk
        wrong_at = inode.rot_within(offset, offset + len(data)) if inode.rotten else None
        bad = disk.bad_read
        if bad is not None and data and bad.names in path.name:
            bad.after -= 1
            if bad.after < 0:
                disk.bad_read = None
                if bad.kind == "error":
                    self._fail(errno.EIO)
                true, data = data, misread(bad.kind, data, disk.random)
                place = first_difference(true, data)
                if place is not None and (wrong_at is None or offset + place < wrong_at):
                    wrong_at = offset + place
        if wrong_at is not None:
            self.errors_count += 1
            if wrong_at < disk.provable_bytes(path):
                self.misled.append(f"byte {wrong_at} of {path.name}")
        return data

    def size(self, fd: int) -> int:
        """Return the length."""
        self._begin()
        return len(self._file(fd).inode.data)

    def fdatasync(self, fd: int) -> None:
        """Put the file on the platter."""
        if self.recording is not None:
            self.recording.append(("fdatasync", ()))
            return
        self._begin()
        inode = self._file(fd).inode
        self._sync_cost()
        if self.disk.fail_syncs:
            inode.fail_sync(self.disk.random)
        self._maybe_fail_sync()
        if not self.disk.lies:
            inode.sync()

    def drop_cache(self, fd: int) -> None:
        """See what the platter has."""
        self.disk.reach("recovery")
        self._begin()
        self._file(fd).inode.drop_cache()

    def lock(self, directory: Path) -> int:
        """Lock a directory."""
        self._begin()
        if directory in self.disk.owners:
            raise BlockingIOError(errno.EAGAIN, "locked by another process")
        self.disk.owners[directory] = self
        return self._opened(Inode(), directory)

    # -- what may happen ------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Die here, if it is time."""
        if self.is_dead:
            raise Killed
        disk = self.disk
        if disk.kill_after_operations is not None:
            disk.kill_after_operations -= 1
            if disk.kill_after_operations < 0:
                disk.kill_after_operations = None
                self._kill()
                raise Killed

    def _dies_now(self) -> bool:
        return self.disk.kill_after_operations == 0 and not self.is_dead

    def _sync_cost(self) -> None:
        disk = self.disk
        self._spend(disk.sync_us + disk.slow_sync_us + disk.random.randrange(disk.sync_us + 1))

    def _is_full(self, name: str) -> bool:
        """Whether there is no room for a file of this name."""
        return self.disk.is_full or bool(self.disk.full_names and self.disk.full_names in name)

    def _maybe_fail_write(self, name: str) -> None:
        if self._is_full(name):
            self._fail(errno.ENOSPC)

    def _maybe_fail_sync(self) -> None:
        if self.disk.fail_syncs:
            self.disk.fail_syncs -= 1
            self._fail(errno.EIO)

    def _fail(self, number: int) -> NoReturn:
        self.errors_count += 1
        raise OSError(number, "simulated disk error")

    # -- helpers --------------------------------------------------------------------------------------------

    def _opened(self, inode: Inode, path: Path) -> int:
        self._next_fd += 1
        self._open[self._next_fd] = _Open(inode, path)
        return self._next_fd

    def _file(self, fd: int) -> _Open:
        if self.is_dead:
            raise Killed
        return self._open[fd]

    def _inode(self, path: Path) -> Inode:
        inode = self.disk.names.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return inode
