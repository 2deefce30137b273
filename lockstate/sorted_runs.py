"""Keys in order, in short runs: to add or to remove one touches a single run, however many there are."""

import bisect
from collections.abc import Iterable, Iterator
from typing import Final, Generic, TypeVar

_RUN_MAX: Final = 512
"""Keys in one run; a longer one is split."""
_FEW: Final = 24
"""Neighbours that find their places in a run one by one; with more, it is quicker to go through all of it."""

Key = TypeVar("Key", str, bytes)


class SortedRuns(Generic[Key]):
    """A sorted set of texts or of bytes. Neighbours that come or go together cost little more than one."""

    __slots__ = ("_firsts", "_runs")

    def __init__(self) -> None:
        self._runs: list[list[Key]] = []
        self._firsts: list[Key] = []

    def add(self, keys: Iterable[Key]) -> None:
        """Add keys, each once, which must not be there yet."""
        for index, group in self._groups(keys):
            run = self._runs[index]
            if len(group) <= _FEW:
                for key in group:
                    bisect.insort(run, key)
            else:
                run += group
                run.sort()
            self._firsts[index] = run[0]
            if len(run) > _RUN_MAX:
                self._split(index)

    def remove(self, keys: Iterable[Key]) -> None:
        """Remove keys, each once, which must be there."""
        for index, group in self._groups(keys):
            run = self._runs[index]
            start = bisect.bisect_left(run, group[0])
            if run[start : start + len(group)] == group:
                del run[start : start + len(group)]
            elif len(group) <= _FEW:
                for key in group:
                    del run[bisect.bisect_left(run, key)]
            else:
                gone = set(group)
                run[:] = [key for key in run if key not in gone]
            if run:
                self._firsts[index] = run[0]
            else:
                del self._runs[index]
                del self._firsts[index]

    def after(self, key: Key, *, inclusive: bool) -> Iterator[Key]:
        """Yield the keys after `key` in order; if `inclusive`, `key` itself comes first if it is there."""
        first = self._run_of(key)
        find = bisect.bisect_left if inclusive else bisect.bisect_right
        for index in range(first, len(self._runs)):
            run = self._runs[index]
            start = find(run, key) if index == first else 0
            yield from run[start:]

    def _run_of(self, key: Key) -> int:
        """Return the place of the run in which `key` is, or would be."""
        return max(bisect.bisect_right(self._firsts, key) - 1, 0)

    def _groups(self, keys: Iterable[Key]) -> Iterator[tuple[int, list[Key]]]:
        """Yield the keys by run. The last ones are first, so that runs may come and go meanwhile."""
        ordered = sorted(keys)
        if ordered and not self._runs:
            self._runs.append([])
            self._firsts.append(ordered[0])
        while ordered:
            index = self._run_of(ordered[-1])
            # What comes before the first run belongs to it as well.
            start = bisect.bisect_left(ordered, self._firsts[index]) if index else 0
            yield index, ordered[start:]
            del ordered[start:]

    def _split(self, index: int) -> None:
        """Put several runs of about half the length into the place of one that is too long."""
        run = self._runs[index]
        size = -(-len(run) // (2 * len(run) // _RUN_MAX))
        runs = [run[start : start + size] for start in range(0, len(run), size)]
        self._runs[index : index + 1] = runs
        self._firsts[index : index + 1] = [part[0] for part in runs]
