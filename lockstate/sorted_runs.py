"""Keys in order, in short runs: to add or to remove one touches a single run, however many there are."""

import bisect
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

_RUN_MAX: Final = 512
"""Keys in one run; a longer one is split."""

Key = TypeVar("Key", str, bytes)


class SortedRuns(Generic[Key]):
    """A sorted set of texts or of bytes."""

    __slots__ = ("_firsts", "_runs")

    def __init__(self) -> None:
        self._runs: list[list[Key]] = []
        self._firsts: list[Key] = []

    def add(self, key: Key) -> None:
        """Add a key, which must not be there yet."""
        if not self._runs:
            self._runs.append([key])
            self._firsts.append(key)
            return
        index = max(bisect.bisect_right(self._firsts, key) - 1, 0)
        run = self._runs[index]
        bisect.insort(run, key)
        self._firsts[index] = run[0]
        if len(run) > _RUN_MAX:
            half = len(run) // 2
            self._runs[index : index + 1] = [run[:half], run[half:]]
            self._firsts[index : index + 1] = [run[0], run[half]]

    def remove(self, key: Key) -> None:
        """Take out a key, which must be there."""
        index = bisect.bisect_right(self._firsts, key) - 1
        run = self._runs[index]
        del run[bisect.bisect_left(run, key)]
        if run:
            self._firsts[index] = run[0]
        else:
            del self._runs[index]
            del self._firsts[index]

    def after(self, key: Key, *, inclusive: bool) -> Iterator[Key]:
        """Yield the keys after `key` in order; if `inclusive`, `key` itself comes first if it is there."""
        first = max(bisect.bisect_right(self._firsts, key) - 1, 0)
        find = bisect.bisect_left if inclusive else bisect.bisect_right
        for index in range(first, len(self._runs)):
            run = self._runs[index]
            start = find(run, key) if index == first else 0
            yield from run[start:]
