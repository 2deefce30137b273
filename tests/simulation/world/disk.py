"""A simulated disk: what is in memory, what is on the platter, and what is lost between the two.

A kill loses nothing that was written. A loss of power keeps, of what was not synced, any sectors of any
moment since, and drops the newest changes of names. One disk outlives many processes; each process has its
own `SimFiles` on it.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from tests.simulation.world.bad_reads import BadRead
from tests.simulation.world.inode import Inode

MOMENTS: Final = ("recovery", "torn", "snapshot", "placed", "incoming", "removal", "cut", "term")
"""What a disk can be told that it has reached: a start reads a segment; it cuts what is torn; a snapshot is
begun, or gets its name; one begins to arrive; a segment is removed; the log is cut; a vote or term changes.
"""


class _Change:
    """A change of names in a directory that is not durable yet."""

    def __init__(self, removed: Path | None, added: Path | None, inode: Inode | None) -> None:
        self.removed = removed
        self.added = added
        self.inode = inode

    def apply(self, names: dict[Path, Inode]) -> None:
        if self.removed is not None:
            names.pop(self.removed, None)
        if self.added is not None and self.inode is not None:
            names[self.added] = self.inode


class Disk:
    """The disk of one machine. `root` is there from the beginning."""

    def __init__(self, root: Path, random: Random) -> None:
        self.random = random
        self.names: dict[Path, Inode] = {}
        self.directories: set[Path] = {root}
        self.owners: dict[Path, object] = {}
        """Whose lock is on which directory."""
        self.is_full = False
        self.fail_writes = 0
        """So many of the next writes fail with EIO."""
        self.fail_syncs = 0
        self.full_names = ""
        """There is no room for files with this in their names; empty: for all there is."""
        self.bad_read: BadRead | None = None
        self.lies = False
        """Syncs do nothing. Only where a test asks for it."""
        self.sync_us = 200
        self.slow_sync_us = 0
        """Added to each sync while the disk is slow."""
        self.kill_after_operations: int | None = None
        self.aims: dict[str, Callable[[], None]] = {}
        """What happens when a moment is reached, once."""
        self.on_snapshot: Callable[[bytes | None, bytes], None] = _nothing
        """Told when a file gets the name of a snapshot: what had it before, and what has it now."""
        self.on_record: Callable[[bytes, bytes], None] = _nothing
        """Told when another identity.json and cluster.json are on the platter: what is in them."""
        self._root = root
        self._record = (b"", b"")
        self._durable: dict[Path, Inode] = {}
        self._durable_directories: set[Path] = {root}
        self._changes: dict[Path, list[_Change]] = {}

    def reach(self, moment: str) -> None:
        """Do what is to happen at one of MOMENTS."""
        aim = self.aims.pop(moment, None)
        if aim is not None:
            aim()

    def make_directory(self, path: Path) -> None:
        """Create a directory."""
        if path in self.directories:
            raise FileExistsError(str(path))
        self.directories.add(path)

    def change(self, directory: Path, removed: Path | None, added: Path | None, inode: Inode | None) -> None:
        """Change names in a directory; durable after `sync_directory`."""
        change = _Change(removed, added, inode)
        if added is not None and added.name == "snapshot" and inode is not None:
            before = self.names.get(added)
            self.on_snapshot(None if before is None else bytes(before.data), bytes(inode.data))
        change.apply(self.names)
        self._changes.setdefault(directory, []).append(change)

    def sync_directory(self, directory: Path) -> None:
        """Make all changes of names in a directory durable."""
        for change in self._changes.pop(directory, ()):
            change.apply(self._durable)
        self._durable_directories |= {path for path in self.directories if path.parent == directory}
        self._tell_record()

    def record(self) -> tuple[bytes, bytes]:
        """Return what was put on the platter as identity.json and cluster.json; empty where there is none.

        Who reads it here is not to be blinded by what has rotten since.
        """
        files = {path.name: inode.as_written() for path, inode in self._durable.items()}
        return files.get("identity.json", b""), files.get("cluster.json", b"")

    def record_seen(self) -> tuple[bytes, bytes]:
        """Return what programs see as identity.json and cluster.json, synced or not."""
        files = {path.name: bytes(inode.data) for path, inode in self.names.items()}
        return files.get("identity.json", b""), files.get("cluster.json", b"")

    def _tell_record(self) -> None:
        record = self.record()
        if record != self._record:
            self._record = record
            self.on_record(*record)

    def lose_power(self) -> None:
        """Become what the platter has."""
        for changes in self._changes.values():
            for change in changes[: self.random.randint(0, len(changes))]:
                change.apply(self._durable)
        self._changes.clear()
        self.owners.clear()
        kept = self._durable_directories | {
            path for path in self.directories - self._durable_directories if self.random.random() < 0.5
        }
        self.directories, self._durable_directories = set(kept), kept
        self._durable = {path: inode for path, inode in self._durable.items() if path.parent in kept}
        self.names = dict(self._durable)
        for _, inode in sorted(self.names.items()):
            inode.lose_power(self.random)
        self._tell_record()

    def forget_owner(self, owner: object) -> None:
        """Free the locks of a process that ended."""
        self.owners = {path: other for path, other in self.owners.items() if other is not owner}

    def flip_bit(self) -> "tuple[Path, Disk] | None":
        """Damage one file that was synced; return which, and a copy of the disk as it was."""
        names = self._provable_names()
        if not names:
            return None
        path = self.random.choice(names)
        before = self.copy()
        self.names[path].flip(self.random, self.provable_bytes(path))
        return path, before

    def rot(self) -> bool:
        """Flip a bit of one file on the platter, under whoever uses it; whether there was one."""
        names = self._provable_names()
        if not names:
            return False
        path = self.random.choice(names)
        return self.names[path].rot(self.random, self.provable_bytes(path))

    def repair(self) -> None:
        """Undo all rot."""
        for inode in {id(inode): inode for inode in (*self.names.values(), *self._durable.values())}.values():
            inode.repair()

    def _provable_names(self) -> list[Path]:
        """Return the files of which something is surely protected. Not those that are rotten already."""
        return sorted(
            path for path, inode in self.names.items() if self.provable_bytes(path) and not inode.rotten
        )

    def provable_bytes(self, path: Path) -> int:
        """Return how much of a file is surely protected: damage there must be found.

        What a journal wrote last may be torn as far as anybody can tell, and nothing is in its zeros.
        """
        inode = self.names.get(path)
        if inode is None:
            return 0
        if path.name.startswith("journal-") and path.suffix == ".log":
            return inode.provable_bytes
        is_needed = path.name == "snapshot" or (path.suffix == ".json" and path.name != "peers.json")
        return len(inode.synced) if is_needed else 0

    def copy(self) -> "Disk":
        """Return a disk with the same content, as a backup would have it."""
        made = Disk(self._root, self.random)
        made.directories = set(self.directories)
        made._durable_directories = set(self.directories)
        for path, inode in self.names.items():
            made.names[path] = made._durable[path] = inode.copy()
        return made

    def restore(self, backup: "Disk") -> None:
        """Take over the content of a copy."""
        self.names, self._durable = dict(backup.names), dict(backup._durable)
        self.directories = set(backup.directories)
        self._durable_directories = set(backup.directories)
        self._changes.clear()
        self._tell_record()


def _nothing(_before: bytes | None, _after: bytes) -> None:
    """Nobody wants to know."""
