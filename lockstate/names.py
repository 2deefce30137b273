"""The index of active names: in order, so that they can be listed and found below a name."""

import bisect
from collections.abc import Iterator
from typing import Final

from lockstate.records import Lock

_RUN_MAX: Final = 512
"""Names in one run; a longer one is split."""
YOUNG_MAX: Final = 1024
"""Records that may wait to be sorted in before `settle` looks through them."""


class NameIndex:
    """The names of `locks` in order, in short runs, so that adding or removing one touches a single run.

    A new record is first put into `young`, by the code that makes it. It is sorted in after a thousand
    others, or when somebody lists. Most records are gone by then, and cost no more than a place in that list.
    `settle` is called once for each entry, so that no single command pays for all.
    """

    def __init__(self, locks: dict[str, Lock]) -> None:
        self._locks = locks
        self.young: list[Lock] = []
        self._runs: list[list[str]] = []
        self._firsts: list[str] = []

    def settle(self) -> None:
        """If many records are young, forget those that are gone; if many are left, sort them in."""
        if len(self.young) <= YOUNG_MAX:
            return
        self.young = self._alive()
        if len(self.young) > YOUNG_MAX // 2:
            self._sort_in()

    def remove(self, name: str) -> None:
        """Take out a name that was sorted in."""
        index = bisect.bisect_right(self._firsts, name) - 1
        run = self._runs[index]
        del run[bisect.bisect_left(run, name)]
        if run:
            self._firsts[index] = run[0]
        else:
            del self._runs[index]
            del self._firsts[index]

    def after(self, name: str, *, inclusive: bool) -> Iterator[str]:
        """Yield the names after `name` in order; if `inclusive`, `name` itself comes first if it is there."""
        self.young = self._alive()
        self._sort_in()
        first = max(bisect.bisect_right(self._firsts, name) - 1, 0)
        find = bisect.bisect_left if inclusive else bisect.bisect_right
        for index in range(first, len(self._runs)):
            run = self._runs[index]
            start = find(run, name) if index == first else 0
            yield from run[start:]

    def _alive(self) -> list[Lock]:
        locks = self._locks
        return [lock for lock in self.young if locks.get(lock.name) is lock]

    def _sort_in(self) -> None:
        for lock in self.young:
            lock.is_sorted = True
            self._insert(lock.name)
        self.young = []

    def _insert(self, name: str) -> None:
        if not self._runs:
            self._runs.append([name])
            self._firsts.append(name)
            return
        index = max(bisect.bisect_right(self._firsts, name) - 1, 0)
        run = self._runs[index]
        bisect.insort(run, name)
        self._firsts[index] = run[0]
        if len(run) > _RUN_MAX:
            half = len(run) // 2
            self._runs[index : index + 1] = [run[:half], run[half:]]
            self._firsts[index : index + 1] = [run[0], run[half]]
