"""The index of active names: in order, so that they can be listed and found below a name."""

from collections.abc import Iterator
from typing import Final

from lockstate.records import Lock
from lockstate.sorted_runs import SortedRuns

YOUNG_MAX: Final = 1024
"""Records that may be young before `settle` lets them age."""


class NameIndex:
    """The names of `locks` in order.

    A new record is first put into `young`, by the code that makes it. When a thousand others are there too,
    all of them are aged, and those before them are sorted in, as when somebody lists. Most records are gone
    by then, and cost no more than a place in those lists; also those of a hold that has a thousand itself.
    `settle` is called once for each entry, so that no single command pays for all.
    """

    def __init__(self, locks: dict[str, Lock]) -> None:
        self._locks = locks
        self.young: list[Lock] = []
        self._aged: list[Lock] = []
        self._sorted = SortedRuns[str]()

    def settle(self) -> None:
        """If many records are young, let them age, and sort in those that have aged and are still there."""
        if len(self.young) > YOUNG_MAX:
            self._sort_in(self._aged)
            self._aged, self.young = self.young, []

    def remove(self, name: str) -> None:
        """Take out a name that was sorted in."""
        self._sorted.remove(name)

    def after(self, name: str, *, inclusive: bool) -> Iterator[str]:
        """Return the names after `name` in order; if `inclusive`, `name` comes first if it is there."""
        self._sort_in(self._aged)
        self._sort_in(self.young)
        self._aged, self.young = [], []
        return self._sorted.after(name, inclusive=inclusive)

    def _sort_in(self, records: list[Lock]) -> None:
        locks = self._locks
        for lock in records:
            if locks.get(lock.name) is lock:
                lock.is_sorted = True
                self._sorted.add(lock.name)
