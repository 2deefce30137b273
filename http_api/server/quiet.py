"""Connections on which nothing happens, in the order in which they fell quiet: of all, and of each client."""

import itertools
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

QUIET_S: Final = 1.0
"""Seconds that a connection is left alone before it may go for another: a request may be on its way."""

T = TypeVar("T", bound=Hashable)


class Quiet(Generic[T]):
    """Items that are quiet, and since when. Each has an origin, by which it can be found as well."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """Take the time from `now_s`, which never goes back."""
        self._now_s = now_s
        self._since_s: dict[T, float] = {}
        self._by_origin: dict[str, dict[T, None]] = {}

    def add(self, item: T, origin: str) -> None:
        """Take an item that falls quiet now."""
        self._since_s[item] = self._now_s()
        self._by_origin.setdefault(origin, {})[item] = None

    def remove(self, item: T, origin: str) -> bool:
        """Take an item out; return whether it was there."""
        if self._since_s.pop(item, None) is None:
            return False
        same = self._by_origin[origin]
        del same[item]
        if not same:
            del self._by_origin[origin]
        return True

    def oldest(self, origin: str | None = None) -> T | None:
        """Return the item that has been quiet longest, of all or of one origin, if that is long enough."""
        item = next(iter(self._since_s if origin is None else self._by_origin.get(origin, ())), None)
        if item is None or self._now_s() - self._since_s[item] < QUIET_S:
            return None
        return item

    def oldest_where(self, is_wanted: Callable[[T], bool], looks_max: int) -> T | None:
        """Return the item that has been quiet longest, if that is long enough, of those that are wanted.

        Only the `looks_max` longest of all are looked at.
        """
        until_s = self._now_s() - QUIET_S
        longest = itertools.islice(self._since_s.items(), looks_max)
        return next((item for item, since_s in longest if since_s <= until_s and is_wanted(item)), None)

    def longer_than(self, seconds: float) -> list[T]:
        """Return the items that have been quiet for so long, the longest first."""
        until_s = self._now_s() - seconds
        return list(itertools.takewhile(lambda item: self._since_s[item] <= until_s, self._since_s))
