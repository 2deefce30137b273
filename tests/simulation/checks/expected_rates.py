"""What every rate limit must answer, from the list of all that it has admitted: without the product.

The limits of a simulated world are small: a sliding window is exact there.
"""

from typing import NamedTuple

from lockstate.words import limits
from lockstate.words.commands import Algorithm, TakeRate
from lockstate.words.results import RateTaken, Reason, Refused, Result


class Admission(NamedTuple):
    """Something that was admitted: `limit` is that of its request."""

    at_ms: int
    cost: int
    limit: int


Key = tuple[str, Algorithm, int]
"""Name, algorithm, window."""


def key_of(command: TakeRate) -> Key:
    """Return which rate limit a command is about."""
    return command.name, command.algorithm, command.window_ms


class ExpectedRates:
    """All rate limits, as lists of admissions."""

    def __init__(self) -> None:
        self._limiters: dict[Key, _Limiter] = {}

    def take(self, command: TakeRate, now_ms: int) -> Result:
        """Return what the answer has to be."""
        refused = _refuse(command)
        if refused is not None:
            return refused
        limiter = self._limiters.setdefault(key_of(command), _Limiter(command.algorithm, command.window_ms))
        limiter.forget(now_ms)
        return limiter.take(now_ms, command)


def _refuse(command: TakeRate) -> Refused | None:
    if 1 <= command.cost <= command.limit <= limits.RATE_ROWS_MAX:
        return limits.check_name(command.name)
    return Refused(Reason.INVALID_REQUEST, "")


class _Limiter:
    """One rate limit. Its admissions are in order of moments; `level` is how full a bucket is after them."""

    def __init__(self, algorithm: Algorithm, window_ms: int) -> None:
        self._algorithm = algorithm
        self._window_ms = window_ms
        self._admissions: list[Admission] = []
        self._level = 0

    def forget(self, now_ms: int) -> None:
        """Begin anew when nothing counts any more, and forget what does not."""
        if self._admissions and self._whole_ms() <= now_ms:
            self._admissions.clear()
            self._level = 0
        old_ms = now_ms - 2 * self._window_ms
        self._admissions = [
            item for item in self._admissions if item.at_ms > old_ms or item is self._admissions[-1]
        ]

    def take(self, now_ms: int, command: TakeRate) -> RateTaken:
        """Admit what fits within its wait."""
        limit = command.limit
        at_ms = self._earliest_ms(now_ms, limit, command.cost)
        is_allowed = at_ms - now_ms <= command.wait_ms
        if is_allowed:
            self._level = self._level_at(at_ms) + command.cost * self._window_ms
            self._admissions.append(Admission(at_ms, command.cost, limit))
        return RateTaken(
            is_allowed,
            limit,
            self._remaining(now_ms, limit),
            0 if is_allowed else at_ms - now_ms - command.wait_ms,
            self._whole_ms() - now_ms,
            at_ms if is_allowed else 0,
        )

    def _remaining(self, now_ms: int, limit: int) -> int:
        """Return the largest cost that could go now."""
        costs = range(limit, 0, -1)
        return next((cost for cost in costs if self._earliest_ms(now_ms, limit, cost) == now_ms), 0)

    def _earliest_ms(self, now_ms: int, limit: int, cost: int) -> int:
        """Return the first moment, not before any admission, at which `cost` fits."""
        at_ms = max([now_ms, *(item.at_ms for item in self._admissions[-1:])])
        match self._algorithm:
            case Algorithm.FIXED_WINDOW:
                return at_ms if self._used_fixed(at_ms) + cost <= limit else self._next_window_ms(at_ms)
            case Algorithm.SLIDING_WINDOW:
                counted = [item for item in self._admissions if item.at_ms > at_ms - self._window_ms]
                while sum(item.cost for item in counted) + cost > limit:
                    at_ms = max(at_ms, counted.pop(0).at_ms + self._window_ms)
                return at_ms
        if not self._admissions:
            return at_ms
        last = self._admissions[-1]
        to_leak = self._level + (cost - limit) * self._window_ms
        return max(at_ms, last.at_ms + -(-to_leak // last.limit))

    def _used_fixed(self, at_ms: int) -> int:
        window = at_ms // self._window_ms
        return sum(item.cost for item in self._admissions if item.at_ms // self._window_ms == window)

    def _next_window_ms(self, at_ms: int) -> int:
        return (at_ms // self._window_ms + 1) * self._window_ms

    def _level_at(self, at_ms: int) -> int:
        """Return how full the bucket is when it has leaked until `at_ms`."""
        last = self._admissions[-1] if self._admissions else Admission(at_ms, 0, 1)
        return max(0, self._level - last.limit * (at_ms - last.at_ms))

    def _whole_ms(self) -> int:
        """Return when nothing counts any more. There is an admission."""
        last = self._admissions[-1]
        match self._algorithm:
            case Algorithm.FIXED_WINDOW:
                return self._next_window_ms(last.at_ms)
            case Algorithm.SLIDING_WINDOW:
                return last.at_ms + self._window_ms
        return last.at_ms + -(-self._level // last.limit)
