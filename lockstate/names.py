"""The names that something is known of, in order."""

import bisect
from collections.abc import Iterator
from typing import Final

from lockstate.records import Lock

_RUN_MAX: Final = 512
YOUNG_MAX: Final = 1024


class NameIndex:
    """The names of `locks` in order, in short runs: adding and removing touch one run only.

    A record is sorted in when a thousand came after it, or when somebody lists: most are gone before, and
    cost no more than a place in `young`. Who makes a record puts it there; `settle` is called once for each
    entry, so that no single command pays for all.
    """

    def __init__(self, locks: dict[str, Lock]) -> None:
        self._locks = locks
        self.young: list[Lock] = []
        self._runs: list[list[str]] = []
        self._firsts: list[str] = []

    def settle(self) -> None:
        """Forget the young who are gone, if there are many; if many are left, they have come to stay."""
        if len(self.young) <= YOUNG_MAX:
            return
        self.young = self._alive()
        if len(self.young) > YOUNG_MAX // 2:
            self._sort_in()

    def remove(self, name: str) -> None:
        """Take out a name that was sorted in."""
        at = bisect.bisect_right(self._firsts, name) - 1
        run = self._runs[at]
        del run[bisect.bisect_left(run, name)]
        if run:
            self._firsts[at] = run[0]
        else:
            del self._runs[at]
            del self._firsts[at]

    def after(self, name: str, *, inclusive: bool) -> Iterator[str]:
        """Yield the names behind `name` in order, with `name` itself if `inclusive` and it is there."""
        self.young = self._alive()
        self._sort_in()
        at = max(bisect.bisect_right(self._firsts, name) - 1, 0)
        find = bisect.bisect_left if inclusive else bisect.bisect_right
        for run_at in range(at, len(self._runs)):
            run = self._runs[run_at]
            start = find(run, name) if run_at == at else 0
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
        at = max(bisect.bisect_right(self._firsts, name) - 1, 0)
        run = self._runs[at]
        bisect.insort(run, name)
        self._firsts[at] = run[0]
        if len(run) > _RUN_MAX:
            half = len(run) // 2
            self._runs[at : at + 1] = [run[:half], run[half:]]
            self._firsts[at : at + 1] = [run[0], run[half]]
