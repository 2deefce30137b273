"""A disk that loses power: what no sync has made durable is gone, contents and names."""

import os
from pathlib import Path

from cluster.storage.files import Files


class PowerDisk:
    """Knows what is durable below some directories. Nothing is until it is synced, or written back."""

    def __init__(self) -> None:
        self._contents: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {}

    def sync_file(self, fd: int) -> None:
        """Make the contents of a file durable."""
        status = os.fstat(fd)
        self._contents[status.st_ino] = Path(f"/proc/self/fd/{fd}").read_bytes()

    def sync_names(self, directory: Path) -> None:
        """Make the names in a directory durable."""
        self._names[directory] = {path.name: path.stat().st_ino for path in directory.iterdir()}

    def write_back(self, directory: Path) -> None:
        """Make everything durable, as the kernel does of itself now and then."""
        for path in directory.iterdir():
            self._contents[path.stat().st_ino] = path.read_bytes()
        self.sync_names(directory)

    def lose_power(self, directory: Path) -> None:
        """Take away what is not durable."""
        durable = {
            name: self._contents.get(inode, b"") for name, inode in self._names.get(directory, {}).items()
        }
        for path in directory.iterdir():
            path.unlink()
        for name, content in durable.items():
            (directory / name).write_bytes(content)
        self.write_back(directory)


class PowerFiles(Files):
    """Real files on such a disk."""

    def __init__(self, disk: PowerDisk) -> None:
        self._disk = disk

    def fdatasync(self, fd: int) -> None:
        """Sync to the disk of the test."""
        self._disk.sync_file(fd)

    def fsync_dir(self, directory: Path) -> None:
        """Sync to the disk of the test."""
        self._disk.sync_names(directory)
