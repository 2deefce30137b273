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

    def __init__(self, key: Callable[[R], Any], young_max: int = _YOUNG_MAX) -> None:
        """Sort in as many as `young_max` at a time."""
        self._key = key
        self._young_max = young_max
        self._young: dict[R, None] = {}
        self._runs: list[list[R]] = []
        """None of them is empty, so each is found by its first record."""

    def add(self, record: R) -> None:
        """Add a record whose key is not there."""
        self._young[record] = None
        if len(self._young) > self._young_max:
            self._sort_in()

    def remove(self, record: R) -> None:
        """Take out a record that is there."""
        if record in self._young:
            del self._young[record]
            return
        key = self._key(record)
        index = self._run_of(key)
        run = self._runs[index]
        if len(run) > 1:
            del run[bisect.bisect_left(run, key, key=self._key)]
        else:
            del self._runs[index]

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
        return max(bisect.bisect_right(self._runs, key, key=self._first) - 1, 0)

    def _first(self, run: list[R]) -> Any:
        return self._key(run[0])

    def _sort_in(self) -> None:
        """Sort in the young ones. Each is young or in its run, never both, also if memory ends the work."""
        for record in sorted(self._young, key=self._key):
            index = self._insert(record)
            del self._young[record]
            if len(self._runs[index]) > _RUN_MAX:
                self._split(index)

    def _insert(self, record: R) -> int:
        """Put a record into its run, and return the place of that."""
        index = self._run_of(self._key(record))
        if self._runs:
            bisect.insort(self._runs[index], record, key=self._key)
        else:
            self._runs.append([record])
        return index

    def _split(self, index: int) -> None:
        run = self._runs[index]
        half = len(run) // 2
        self._runs[index : index + 1] = [run[:half], run[half:]]
