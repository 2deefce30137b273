"""The newest items of many parties, so many in all: who has most gives way.

Pure. While there are n parties, each keeps its newest `count_max / n` items at least, whatever the others do;
what one does not use of its share is there for all.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from itertools import chain
from typing import Generic, TypeVar

T = TypeVar("T")


class FairShares(Generic[T]):
    """Keeps items by party. Each call takes the same time, however many there are."""

    def __init__(self, count_max: int) -> None:
        """Keep up to `count_max` items in all, at least one."""
        assert count_max > 0
        self._count_max = count_max
        self._count = 0
        self._items: dict[str, deque[T]] = {}
        """Of each party that has any, the oldest first."""
        self._by_count: dict[int, OrderedDict[str, None]] = {}
        """The parties that have so many, in the order in which they came to have them."""
        self._most = 0
        """How many the party has that has most."""

    def __len__(self) -> int:
        """Return how many items are kept."""
        return self._count

    def __iter__(self) -> Iterator[T]:
        """Yield the items: those of one party after those of another, the oldest first."""
        return chain.from_iterable(self._items.values())

    def add(self, party: str, item: T) -> None:
        """Keep an item; if there are too many then, forget the oldest of the party that has most."""
        items = self._items.setdefault(party, deque())
        items.append(item)
        self._count += 1
        self._has_now(party, len(items) - 1, len(items))
        self._most = max(self._most, len(items))
        if self._count > self._count_max:
            self._forget_one()

    def _forget_one(self) -> None:
        party = next(iter(self._by_count[self._most]))
        items = self._items[party]
        items.popleft()
        self._count -= 1
        self._has_now(party, len(items) + 1, len(items))
        if not items:
            del self._items[party]
        if self._most not in self._by_count:
            self._most -= 1  # this party has so many, if nobody else has

    def _has_now(self, party: str, before: int, now: int) -> None:
        """Keep in mind that a party has `now` items, and no longer `before`."""
        if before:
            parties = self._by_count[before]
            del parties[party]
            if not parties:
                del self._by_count[before]
        if now:
            self._by_count.setdefault(now, OrderedDict())[party] = None
