"""The index of active names: in order, so that they can be listed and found below a name."""

from collections.abc import Iterator
from typing import Final

from lockstate.tables.records import Lock
from lockstate.tables.sorted_runs import SortedRuns

YOUNG_MAX: Final = 1024
"""Records that may be young before `settle` lets them age."""
GONE_MAX: Final = 256
"""Names that may wait to be sorted out: to do that takes less than a millisecond, wherever they are."""


class NameIndex:
    """The names of `locks` in order.

    A new record is first put into `young`, by the code that makes it. When a thousand others are there too,
    all of them are aged, and those before them are sorted in, as when somebody lists. Most records are gone
    by then, and cost no more than a place in those lists; also those of a hold that has a thousand itself.
    What was sorted in and is not there any more is in `gone` until there are some hundreds: names that come
    or go together are mostly neighbours, and cost far less together. `settle` is called once for each entry,
    so that no single command pays for all.
    """

    def __init__(self, locks: dict[str, Lock]) -> None:
        self._locks = locks
        self.young: list[Lock] = []
        self.gone: dict[str, None] = {}
        self._aged: list[Lock] = []
        self._sorted = SortedRuns[str]()

    def settle(self) -> None:
        """If many names came or went, let the young ones age, and sort in or out those before them."""
        if len(self.young) > YOUNG_MAX:
            self._sort_in(self._aged)
            self._aged, self.young = self.young, []
        if len(self.gone) > GONE_MAX:
            self._sort_out()

    def sort_all(self) -> Iterator[None]:
        """Sort in the names of a state that is being loaded, some milliseconds of work for each step."""
        for lock in self.young:
            lock.is_sorted = True
        names = [lock.name for lock in self.young]
        self.young = []
        yield from self._sorted.fill(names)

    def after(self, name: str, *, inclusive: bool) -> Iterator[str]:
        """Return the names after `name` in order; if `inclusive`, `name` comes first if it is there."""
        self._sort_in(self._aged)
        self._sort_in(self.young)
        self._aged, self.young = [], []
        self._sort_out()
        return self._sorted.after(name, inclusive=inclusive)

    def _sort_in(self, records: list[Lock]) -> None:
        """Sort in the records that are still there. Names that went and came back have stayed.

        Memory may be short in the middle, and a read that fails for it must not leave a wrong order behind,
        for commands are decided by it. So whoever goes from now on is sorted out, wherever this stops, and
        what is done again changes nothing.
        """
        locks = self._locks
        there = [lock for lock in records if locks.get(lock.name) is lock]
        for lock in there:
            lock.is_sorted = True
            self.gone.pop(lock.name, None)
        self._sorted.add([lock.name for lock in there])

    def _sort_out(self) -> None:
        self._sorted.remove(self.gone)
        self.gone.clear()
