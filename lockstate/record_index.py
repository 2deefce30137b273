"""Indexes of records by a key: in order, so that they can be listed in pages and found by that key.

The index of the names of locks is in `names`: its records are made and dropped far more often.
"""

import bisect
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

_RUN_MAX: Final = 512
"""Records in one run; a longer one is split."""
_YOUNG_MAX: Final = 1024
"""Records that wait to be sorted in: a millisecond of work."""

R = TypeVar("R")


class RecordIndex(Generic[R]):
    """The records of one table in the order of `key`, in short runs, so that a change touches a single run.

    A key belongs to one record and does not change. A new record is sorted in after a thousand others, or
    when somebody lists: one that is gone by then has cost two places in a table.
    """

    def __init__(self, key: Callable[[R], Any]) -> None:
        self._key = key
        self._young: dict[R, None] = {}
        self._runs: list[list[R]] = []
        self._firsts: list[Any] = []

    def add(self, record: R) -> None:
        """Add a record whose key is not there."""
        self._young[record] = None
        if len(self._young) > _YOUNG_MAX:
            self._sort_in()

    def remove(self, record: R) -> None:
        """Take out a record that is there."""
        if record in self._young:
            del self._young[record]
            return
        key = self._key(record)
        index = self._run_of(key)
        run = self._runs[index]
        del run[bisect.bisect_left(run, key, key=self._key)]
        if run:
            self._firsts[index] = self._key(run[0])
        else:
            del self._runs[index]
            del self._firsts[index]

    def get(self, key: Any) -> R | None:
        """Return the record of a key, or None."""
        record = next(self.after(key, inclusive=True), None)
        return record if record is not None and self._key(record) == key else None

    def after(self, key: Any, *, inclusive: bool) -> Iterator[R]:
        """Yield the records behind `key` in order; if `inclusive`, that of `key` itself comes first."""
        self._sort_in()
        first = self._run_of(key)
        find = bisect.bisect_left if inclusive else bisect.bisect_right
        for index in range(first, len(self._runs)):
            run = self._runs[index]
            start = find(run, key, key=self._key) if index == first else 0
            yield from run[start:]

    def _run_of(self, key: Any) -> int:
        """Return the place of the run in which `key` is, or would be."""
        return max(bisect.bisect_right(self._firsts, key) - 1, 0)

    def _sort_in(self) -> None:
        if self._young:
            for record in sorted(self._young, key=self._key):
                self._insert(record)
            self._young = {}

    def _insert(self, record: R) -> None:
        key = self._key(record)
        if not self._runs:
            self._runs.append([record])
            self._firsts.append(key)
            return
        index = self._run_of(key)
        run = self._runs[index]
        bisect.insort(run, record, key=self._key)
        self._firsts[index] = self._key(run[0])
        if len(run) > _RUN_MAX:
            half = len(run) // 2
            self._runs[index : index + 1] = [run[:half], run[half:]]
            self._firsts[index : index + 1] = [self._key(run[0]), self._key(run[half])]
