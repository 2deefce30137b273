"""Watching cells with their values, for either client: what there is, and then what becomes of it."""

from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

import msgspec

from holdfast.client.listings import Listing
from holdfast.client.portal import Call
from holdfast.client.twins import ForThreads, waiting
from holdfast.client.watch import Watch
from holdfast.values.answers import Event
from holdfast.values.cells import Cell
from holdfast.values.errors import Compacted

_PUT = "cell-put"
_DELETED = "cell-deleted"
_GONE = (_DELETED, "cell-expired")


class CellChange(msgspec.Struct, frozen=True):
    """A cell as it is now; `cell` is None if it is gone.

    `event` is cell-put, cell-deleted or cell-expired (its lease or its session expired).
    """

    key: str
    cell: Cell | None
    event: str = _PUT


class _Readable(Protocol):
    """What cells are read with."""

    async def get(self, key: str) -> Cell | None: ...

    def list(self, prefix: str = "") -> Listing[Cell]: ...


class CellWatch:
    """An iterator of the cells with a prefix: first the existing ones, then each that changes.

    It yields the present state: of changes in quick succession only the last one. It never ends by itself. If
    events that it has not seen are gone, it reads all cells again and yields the differences. Use it with
    `async with`, or `close` it.
    """

    def __init__(self, cells: _Readable, prefix: str, new_watch: Callable[[], Watch]) -> None:
        self._cells = cells
        self._prefix = prefix
        self._new_watch = new_watch
        self._watch = new_watch()
        self._told: dict[str, int] = {}
        """Of each cell that was told and is not gone, its `mod_revision`."""
        self._listing: Listing[Cell] | None = None
        self._missing: set[str] = set()
        """Cells that were told, and that the present look has not found yet."""
        self._has_looked = False
        self._event: Event | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the stream. Iterating again goes on where it was."""
        await self._watch.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> CellChange:
        while True:
            change = await (self._follow() if self._has_looked else self._look())
            if change is not None:
                return change

    async def _look(self) -> CellChange | None:
        """Return the next cell that there is and was not told yet, or that is gone since."""
        if self._listing is None:
            await self._watch.begin()  # before the look: nothing changes unseen in between
            self._listing, self._missing = self._cells.list(self._prefix), set(self._told)
        async for cell in self._listing:
            self._missing.discard(cell.key)
            if cell.mod_revision > self._told.get(cell.key, 0):
                self._told[cell.key] = cell.mod_revision
                return CellChange(cell.key, cell)
        while self._missing:
            key = self._missing.pop()
            if self._told.pop(key, None) is not None:
                return CellChange(key, None, _DELETED)
        self._listing, self._has_looked = None, True
        return None

    async def _follow(self) -> CellChange | None:
        """Return what the next event has changed, None if it tells nothing new."""
        try:
            # It is kept until it is told: a caller that gives up waiting for its cell must not lose it.
            if self._event is None:
                self._event = await anext(self._watch)
        except Compacted:
            await self._watch.close()
            self._watch, self._has_looked = self._new_watch(), False
            return None
        change = await self._changed(self._event)
        self._event = None
        return change

    async def _changed(self, event: Event) -> CellChange | None:
        if event.event in _GONE:
            told = self._told.pop(event.name, None)
            return None if told is None else CellChange(event.name, None, event.event)
        if event.event != _PUT or self._told.get(event.name, 0) >= event.mod_revision:
            return None
        cell = await self._cells.get(event.name)
        if cell is None:  # it is gone by now: another event will tell
            return None
        self._told[cell.key] = cell.mod_revision
        return CellChange(cell.key, cell)


class SyncCellWatch(ForThreads[CellWatch]):
    """An iterator of the cells with a prefix, for threads. See `CellWatch`."""

    close = waiting(CellWatch.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> CellChange:
        return Call(self._twin.__anext__).run()
