"""One file of a simulated disk: what programs see of it, what the platter has, and what has rotten there."""

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
        self.rotten: dict[int, tuple[int, int]] = {}
        """Bytes that have changed on the platter: what was written, and what is there now."""
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

    def copy(self) -> "Inode":
        """Return a file of its own with what programs see of this one, rot included, all on the platter."""
        twin = Inode()
        twin.data, twin.synced = bytearray(self.data), bytearray(self.data)
        twin.rotten = dict(self.rotten)
        twin._stored = list(self._stored)
        return twin

    def flip(self, random: Random, size_bytes: int) -> None:
        """Flip one bit of the first `size_bytes`."""
        self.drop_cache()
        at, mask = random.randrange(size_bytes), 1 << random.randrange(8)
        self.synced[at] ^= mask
        self.data[at] ^= mask

    def rot(self, random: Random, size_bytes: int) -> bool:
        """Flip one bit of the first `size_bytes` on the platter; whether there was one.

        Who has the file in memory sees it later. Only in sectors that nothing is written to any more.
        """
        stable_bytes = min(size_bytes, len(self.synced))
        if stable_bytes < len(self.data):
            stable_bytes -= stable_bytes % SECTOR_BYTES
        if not stable_bytes:
            return False
        at = random.randrange(stable_bytes)
        written = self.synced[at]
        self.synced[at] ^= 1 << random.randrange(8)
        self.rotten[at] = written, self.synced[at]
        return True

    def rot_within(self, start: int, end: int) -> int | None:
        """Return where a program that reads from `start` to `end` sees the first rotten byte, if it does."""
        seen = [at for at, (_, now) in self.rotten.items() if start <= at < end and self.data[at] == now]
        return min(seen, default=None)

    def repair(self) -> None:
        """Undo all rot, as from a mirror."""
        for at, (written, now) in self.rotten.items():
            for content in (self.synced, self.data):
                if content[at] == now:
                    content[at] = written
        self.rotten.clear()

    def as_written(self) -> bytes:
        """Return what was put on the platter, as if nothing of it had rotten since."""
        content = bytearray(self.synced)
        for at, (written, now) in self.rotten.items():
            if content[at] == now:
                content[at] = written
        return bytes(content)

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
