"""The index of active names: in order, so that they can be listed and found below a name."""

from collections.abc import Iterator
from typing import Final

from lockstate.records import Lock
from lockstate.sorted_runs import SortedRuns

YOUNG_MAX: Final = 1024
"""Records that may wait to be sorted in before `settle` looks through them."""


class NameIndex:
    """The names of `locks` in order.

    A new record is first put into `young`, by the code that makes it. It is sorted in after a thousand
    others, or when somebody lists. Most records are gone by then, and cost no more than a place in that list.
    `settle` is called once for each entry, so that no single command pays for all.
    """

    def __init__(self, locks: dict[str, Lock]) -> None:
        self._locks = locks
        self.young: list[Lock] = []
        self._sorted = SortedRuns[str]()

    def settle(self) -> None:
        """If many records are young, forget those that are gone; if many are left, sort them in."""
        if len(self.young) <= YOUNG_MAX:
            return
        self.young = self._alive()
        if len(self.young) > YOUNG_MAX // 2:
            self._sort_in()

    def remove(self, name: str) -> None:
        """Take out a name that was sorted in."""
        self._sorted.remove(name)

    def after(self, name: str, *, inclusive: bool) -> Iterator[str]:
        """Return the names after `name` in order; if `inclusive`, `name` comes first if it is there."""
        self.young = self._alive()
        self._sort_in()
        return self._sorted.after(name, inclusive=inclusive)

    def _alive(self) -> list[Lock]:
        locks = self._locks
        return [lock for lock in self.young if locks.get(lock.name) is lock]

    def _sort_in(self) -> None:
        for lock in self.young:
            lock.is_sorted = True
            self._sorted.add(lock.name)
        self.young = []
