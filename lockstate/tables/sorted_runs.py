"""Keys in order, in short runs: to add or to remove one touches a single run, however many there are."""

import bisect
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Final, Generic, TypeVar

_RUN_MAX: Final = 512
"""Keys in one run; a longer one is split."""
_FEW: Final = 24
"""Neighbours that find their places in a run one by one; with more, it is quicker to go through all of it."""
_PART: Final = 16_384
"""Keys that `fill` sorts at once: ten milliseconds of work."""
_APART: Final = 1024
"""Keys of a part from one border of `fill` to the next: on average there are as many between two borders."""

Key = TypeVar("Key", str, bytes)


_first = itemgetter(0)


class SortedRuns(Generic[Key]):
    """A sorted set of texts or of bytes. Neighbours that come or go together cost little more than one.

    If memory is short in the middle of a change, some of its keys have come or gone and others have not. Who
    does it again has done all of it.
    """

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[list[Key]] = []
        """None of them is empty, so each is found by its first key."""

    def add(self, keys: Iterable[Key]) -> None:
        """Add keys, each once, and pass over those that are there."""
        for index, group in self._groups(keys):
            if index == len(self._runs):
                self._runs.append(group)
            elif len(group) <= _FEW:
                _insert(self._runs[index], group)
            else:
                run = self._runs[index]
                present = set(run)
                run[:] = sorted(run + [key for key in group if key not in present])
            if len(self._runs[index]) > _RUN_MAX:
                self._split(index)

    def fill(self, keys: Sequence[Key]) -> Iterator[None]:
        """Add very many keys, each once, to an empty set: some milliseconds of work for each step.

        They are sorted in parts. Then what lies between two borders, which are keys of the parts, is merged
        from all parts at once: to sort what is in order in parts takes little longer than to copy it.
        """
        parts: list[list[Key]] = []
        for first in range(0, len(keys), _PART):
            parts.append(sorted(keys[first : first + _PART]))
            yield
        borders: list[Key] = sorted(chain.from_iterable([part[_APART::_APART] for part in parts]))
        cuts: list[list[int]] = []
        for each in parts:
            cuts.append(_cuts(each, borders))
            yield
        for place in range(len(borders) + 1):
            between = [part[cut[place] : cut[place + 1]] for part, cut in zip(parts, cuts, strict=True)]
            run = sorted(chain.from_iterable(between))
            if run:
                self._runs.append(run)
                self._split(len(self._runs) - 1)
            yield

    def remove(self, keys: Iterable[Key]) -> None:
        """Remove keys, each once, and pass over those that are not there."""
        for index, group in self._groups(keys):
            if index == len(self._runs):
                return
            run = self._runs[index]
            start = bisect.bisect_left(run, group[0])
            if run[start : start + len(group)] == group:
                del run[start : start + len(group)]
            elif len(group) <= _FEW:
                _remove(run, group)
            else:
                gone = set(group)
                run[:] = [key for key in run if key not in gone]
            if not run:
                del self._runs[index]

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
        return max(bisect.bisect_right(self._runs, key, key=_first) - 1, 0)

    def _groups(self, keys: Iterable[Key]) -> Iterator[tuple[int, list[Key]]]:
        """Yield the keys by run. The last ones are first, so that runs may come and go meanwhile."""
        ordered = sorted(keys)
        while ordered:
            index = self._run_of(ordered[-1])
            # What comes before the first run belongs to it as well.
            start = bisect.bisect_left(ordered, self._runs[index][0]) if index else 0
            yield index, ordered[start:]
            del ordered[start:]

    def _split(self, index: int) -> None:
        """Put several runs of about half the length into the place of one that is too long."""
        run = self._runs[index]
        size = -(-len(run) // max(2 * len(run) // _RUN_MAX, 1))
        self._runs[index : index + 1] = [run[start : start + size] for start in range(0, len(run), size)]


def _cuts(part: list[Key], borders: Iterable[Key]) -> list[int]:
    """Return the places of borders in a part, with its beginning and its end."""
    return [0, *[bisect.bisect_left(part, border) for border in borders], len(part)]


def _insert(run: list[Key], keys: Iterable[Key]) -> None:
    """Insert a few keys one by one."""
    for key in keys:
        place = bisect.bisect_left(run, key)
        if place == len(run) or run[place] != key:
            run.insert(place, key)


def _remove(run: list[Key], keys: Iterable[Key]) -> None:
    """Remove a few keys one by one."""
    for key in keys:
        place = bisect.bisect_left(run, key)
        if place < len(run) and run[place] == key:
            del run[place]
