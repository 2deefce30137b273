"""The latest of what came before something."""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate


class Latest:
    """The largest of some values, among those whose key is below another."""

    def __init__(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Each is a key and its value."""
        ordered = sorted(pairs)
        self._keys = [key for key, _ in ordered]
        self._latest = list(accumulate((value for _, value in ordered), max))

    def below(self, key: int) -> int:
        """Return the largest value, 0 if there is none."""
        count = bisect_left(self._keys, key)
        return self._latest[count - 1] if count else 0
