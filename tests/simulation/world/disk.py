"""A simulated disk: what is in memory, what is on the platter, and what is lost between the two.

A kill loses nothing that was written. A loss of power keeps, of what was not synced, any sectors of any
moment since, and drops the newest changes of names. One disk outlives many processes; each process has its
own `SimFiles` on it.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

SECTOR_BYTES: Final = 512
VERSIONS_MAX: Final = 3
"""Older contents of a sector that are remembered between two syncs."""


class _Part(NamedTuple):
    """What one write was to put into a file."""

    start: int
    end: int
    data: bytes
    """Empty as soon as all of it is on the platter."""
    proves_bytes: int
    """So much of the file was on the platter before it, which it may say."""


class Inode:
    """One file: `data` as programs see it, `synced` as the platter has it."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = bytearray()
        self.dirty: dict[int, list[bytes]] = {}
        """Sectors that were written since the last sync, with what they held in between."""
        self.owner: object | None = None
        """Whose lock is on it."""
        self._unsynced: list[_Part] = []
        self._stored: list[_Part] = []
        """Those that are on the platter as a whole; both lists are in the order of the file."""

    @property
    def provable_bytes(self) -> int:
        """So much was on the platter when a later part was written that is there, too."""
        return self._stored[-1].proves_bytes if self._stored else 0

    def write(self, data: bytes, offset: int, *, kept_bytes: int | None = None) -> None:
        """Put `data`, or only its beginning, at `offset`; what lies between it and the end becomes zeros."""
        self._note_part(data, offset)
        data = data[:kept_bytes]
        end = offset + len(data)
        held = self.data
        for sector in range(offset // SECTOR_BYTES, (max(end, 1) - 1) // SECTOR_BYTES + 1):
            versions = self.dirty.setdefault(sector, [])
            start = sector * SECTOR_BYTES
            if len(versions) < VERSIONS_MAX and start < len(held):
                versions.append(bytes(held[start : start + SECTOR_BYTES]))
        if offset > len(held):
            held.extend(bytes(offset - len(held)))
        held[offset:end] = data

    def truncate(self, size_bytes: int) -> None:
        """Make it so long."""
        del self.data[size_bytes:]
        self.data.extend(bytes(size_bytes - len(self.data)))
        self.dirty.setdefault(size_bytes // SECTOR_BYTES, [])
        self._forget_parts(size_bytes)

    def sync(self) -> None:
        """Put everything on the platter."""
        self._fit(self.synced)
        for sector in self.dirty:
            start = sector * SECTOR_BYTES
            self.synced[start : start + SECTOR_BYTES] = self.data[start : start + SECTOR_BYTES]
        self.dirty.clear()
        self._note_stored()

    def fail_sync(self, random: Random) -> None:
        """Lose any of what was to be synced, and forget that it was to be: as Linux does."""
        self._fit(self.synced)
        for sector in list(self.dirty):
            if random.random() < 0.5:
                start = sector * SECTOR_BYTES
                self.synced[start : start + SECTOR_BYTES] = self.data[start : start + SECTOR_BYTES]
        self.dirty.clear()
        self._note_stored()

    def drop_cache(self) -> None:
        """Show what the platter has, but for what still waits to be written to it."""
        seen = bytearray(self.synced)
        self._fit(seen)
        for sector in self.dirty:
            start = sector * SECTOR_BYTES
            seen[start : start + SECTOR_BYTES] = self.data[start : start + SECTOR_BYTES]
        self.data = seen

    def lose_power(self, random: Random) -> None:
        """Keep what is on the platter, and of the rest what happened to get there."""
        kept = bytearray(self.synced)
        lengths = (len(self.synced), len(self.data))
        if lengths[0] != lengths[1] and self.dirty:
            size_bytes = random.choice([*lengths, random.randint(min(lengths), max(lengths))])
            del kept[size_bytes:]
            kept.extend(bytes(size_bytes - len(kept)))
        for sector in sorted(self.dirty):
            start = sector * SECTOR_BYTES
            version = random.choice(
                [None, *self.dirty[sector], bytes(self.data[start : start + SECTOR_BYTES])]
            )
            if version is not None and start < len(kept):
                kept[start : start + len(version)] = version[: len(kept) - start]
        self.data, self.synced = bytearray(kept), kept
        self.dirty.clear()
        self._note_stored()
        self.owner = None

    def flip(self, random: Random, size_bytes: int) -> None:
        """Flip one bit of the first `size_bytes`."""
        self.drop_cache()
        at, mask = random.randrange(size_bytes), 1 << random.randrange(8)
        self.synced[at] ^= mask
        self.data[at] ^= mask

    def _note_part(self, data: bytes, offset: int) -> None:
        """Record what is written, as far as it may say something of what was there before."""
        self._forget_parts(offset)
        # Zeros, ahead of a log or over what was torn of it, say nothing.
        if data.strip(b"\0"):
            stored_bytes = self._stored[-1].end if self._stored else 0
            self._unsynced.append(_Part(offset, offset + len(data), data, stored_bytes))

    def _forget_parts(self, offset: int) -> None:
        """Forget the parts that reach beyond `offset`: they are overwritten, or cut.

        A loss of power may bring them back. Then less is taken for provable than could be, never more.
        """
        for parts in (self._stored, self._unsynced):
            while parts and parts[-1].end > offset:
                parts.pop()

    def _note_stored(self) -> None:
        """Record which parts have got to the platter. Nothing waits any more: the others are lost."""
        for part in self._unsynced:
            if self.synced[part.start : part.end] == part.data:
                self._stored.append(part._replace(data=b""))
        self._unsynced.clear()

    def _fit(self, content: bytearray) -> None:
        """Give `content` the length that the file has now."""
        del content[len(self.data) :]
        content.extend(bytes(len(self.data) - len(content)))


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
        self.is_full = False
        self.fail_writes = 0
        """So many of the next writes fail with EIO."""
        self.fail_syncs = 0
        self.full_names = ""
        """There is no room for files with this in their names; empty: for all there is."""
        self.lies = False
        """Syncs do nothing. Only where a test asks for it."""
        self.sync_us = 200
        self.slow_sync_us = 0
        """Added to each sync while the disk is slow."""
        self.kill_after_operations: int | None = None
        self.on_snapshot: Callable[[bytes | None, bytes], None] = _nothing
        """Told when a file gets the name of a snapshot: what had it before, and what has it now."""
        self._root = root
        self._durable: dict[Path, Inode] = {}
        self._durable_directories: set[Path] = {root}
        self._changes: dict[Path, list[_Change]] = {}

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

    def lose_power(self) -> None:
        """Become what the platter has."""
        for changes in self._changes.values():
            for change in changes[: self.random.randint(0, len(changes))]:
                change.apply(self._durable)
        self._changes.clear()
        kept = self._durable_directories | {
            path for path in self.directories - self._durable_directories if self.random.random() < 0.5
        }
        self.directories, self._durable_directories = set(kept), kept
        self._durable = {path: inode for path, inode in self._durable.items() if path.parent in kept}
        self.names = dict(self._durable)
        for _, inode in sorted(self.names.items()):
            inode.lose_power(self.random)

    def forget_owner(self, owner: object) -> None:
        """Free the locks of a process that ended."""
        for inode in self.names.values():
            if inode.owner is owner:
                inode.owner = None

    def flip_bit(self) -> "tuple[Path, Disk] | None":
        """Damage one file that was synced; return which, and a copy of the disk as it was."""
        names = sorted(path for path in self.names if self.provable_bytes(path))
        if not names:
            return None
        path = self.random.choice(names)
        before = self.copy()
        self.names[path].flip(self.random, self.provable_bytes(path))
        return path, before

    def provable_bytes(self, path: Path) -> int:
        """Return how much of a file is surely protected: damage there must be found.

        What a journal wrote last may be torn as far as anybody can tell, and nothing is in its zeros.
        """
        inode = self.names[path]
        if path.name.startswith("journal-") and path.suffix == ".log":
            return inode.provable_bytes
        return len(inode.synced) if path.name == "snapshot" or path.suffix == ".json" else 0

    def copy(self) -> "Disk":
        """Return a disk with the same content, as a backup would have it."""
        made = Disk(self._root, self.random)
        made.directories = set(self.directories)
        made._durable_directories = set(self.directories)
        for path, inode in self.names.items():
            twin = Inode()
            twin.data, twin.synced = bytearray(inode.data), bytearray(inode.data)
            made.names[path] = made._durable[path] = twin
        return made

    def restore(self, backup: "Disk") -> None:
        """Take over the content of a copy."""
        self.names, self._durable = dict(backup.names), dict(backup._durable)
        self.directories = set(backup.directories)
        self._durable_directories = set(backup.directories)
        self._changes.clear()


def _nothing(_before: bytes | None, _after: bytes) -> None:
    """Nobody wants to know."""
