"""How a rate limit counts: the three kinds of limiter. `rates` chooses the limiter of a request.

All three grant places in order: `at_ms` never falls from one admission to the next, so that nothing, not even
a smaller cost, overtakes a place that was reserved. Only within one fixed window it may, all of whose moments
are as good: a place that another limit made late in it delays nobody. All arithmetic is on integers, in
cluster milliseconds.
"""

from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate, chain, pairwise
from typing import ClassVar, Final

import msgspec

from lockstate.tables.deadlines import Timed
from lockstate.words import limits
from lockstate.words.kinds import Algorithm

_NEVER: Final = -(1 << 63)
"""Milliseconds of cluster time before all others: the moment of the first row of a log."""


def _new_log(first: int) -> "array[int]":
    """Return a log with the row that stands before all others."""
    return array("q", (first,))


class Limiter(Timed, kw_only=True, eq=False, gc=False, array_like=True):
    """What one rate limit remembers. At `expires_at_ms` it is whole again, as if nobody had ever asked.

    Each kind has these methods; a cost is 1 to the limit:

    - `earliest_ms(now_ms, limit, cost)`: the first moment from `now_ms` on at which `cost` fits behind all
      that was admitted. It stays the same until it has come, unless something else is admitted.
    - `remaining(now_ms, limit)`: the largest cost that would be admitted at `now_ms` without a wait.
    - `admit(at_ms, limit, cost)`: count `cost` at `at_ms`, which `earliest_ms` returned.
    - `whole_ms()`: when it will be whole; in the past if nothing was ever admitted.
    - `copy()`: another one that has admitted the same.
    - `taken(now_ms)`: moments up to `now_ms`, each with a cost: a limiter of another kind or window that
      admits these goes on with this one's count. What is not known exactly is told later than it was.
    - `told()`: what a fingerprint of the state has of it, but for its deadline (see `marks`).

    A whole limiter that has not been dropped yet answers like a new one. It counts for the `principal` that
    began it; `last_principal` is the one that took from it last.
    """

    algorithm: ClassVar[Algorithm]

    name: str
    window_ms: int
    principal: str = ""
    last_principal: str = ""

    @property
    def rows_count(self) -> int:
        """How many rows it has: none, unless it keeps a log."""
        return 0


class FixedWindow(Limiter, kw_only=True, eq=False, gc=False, array_like=True, tag=1):
    """`limit` in each window; windows begin at the multiples of `window_ms`.

    Promise: what is admitted within one window, counted at `at_ms`, is at most the limit of its last request.
    Around the seam of two windows, twice the limit may go within one `window_ms`.

    A request that does not fit is offered the start of the next window. Only the last window in use is
    remembered: nobody can get what is left of earlier ones, since places are granted in order.
    """

    algorithm: ClassVar[Algorithm] = Algorithm.FIXED_WINDOW

    window: int = 0
    used: int = 0

    def told(self) -> tuple[str | int, ...]:
        """Return all of it."""
        return (1, *_common(self), self.window, self.used)

    def earliest_ms(self, now_ms: int, limit: int, cost: int) -> int:
        """Return `now_ms`, the start of the last window if that is still to come, or that of the next one."""
        window_ms = self.window_ms
        if now_ms // window_ms > self.window:
            return now_ms
        window = self.window if self.used + cost <= limit else self.window + 1
        return max(now_ms, window * window_ms)

    def remaining(self, now_ms: int, limit: int) -> int:
        """Return what is left of the present window; nothing if a later one is already in use."""
        ahead = self.window - now_ms // self.window_ms
        if ahead < 0:
            return limit
        return max(0, limit - self.used) if ahead == 0 else 0

    def admit(self, at_ms: int, limit: int, cost: int) -> None:  # noqa: ARG002 - only other algorithms need it
        """Count `cost` in the window of `at_ms`."""
        window = at_ms // self.window_ms
        if window > self.window:
            self.window, self.used = window, 0
        self.used += cost

    def whole_ms(self) -> int:
        """Return when the last window in use is over."""
        return (self.window + 1) * self.window_ms if self.used else 0

    def copy(self) -> "FixedWindow":
        """Return another one that has admitted the same."""
        return msgspec.structs.replace(self)

    def taken(self, now_ms: int) -> list[tuple[int, int]]:
        """Return what was used of the present window."""
        return [(now_ms, self.used)] if self.whole_ms() > now_ms else []


class SlidingWindow(Limiter, kw_only=True, eq=False, gc=False, array_like=True):
    """`limit` in any window of `window_ms`, wherever it begins.

    Promise: what is admitted from t up to, not including, t + `window_ms`, counted at `at_ms`, is at most the
    limit of the last request in it, for every t.

    It keeps a log: a row for each millisecond with an admission. A limit of up to 1,000 is exact, as is a
    window of up to 1,000 ms: what was admitted at t is free again at t + `window_ms`. With larger ones a row
    stands for the end of a step of a thousandth of the window, rounded up to a millisecond: what was admitted
    is free again less than a step late, and never early. So there are at most 1,001 rows, or 2,001 when the
    limit changes between large and small.

    Rows that no later place can see are dropped with the next admission, those before a reservation also
    while it is yet to come. The log is two arrays: the moments, and the sum of all costs up to each. `dead`
    is the place of the last row that does not count any more; the first of all stands for what was before.
    """

    algorithm: ClassVar[Algorithm] = Algorithm.SLIDING_WINDOW

    last_ms: int = 0
    dead: int = 0
    moments_ms: "array[int]" = msgspec.field(default_factory=lambda: _new_log(_NEVER))
    sums: "array[int]" = msgspec.field(default_factory=lambda: _new_log(0))

    def told(self) -> tuple[str | int, ...]:
        """Return where the log ends and how much is in it: rows change only at the ends."""
        sums, dead = self.sums, self.dead
        total = sums[-1] - sums[dead]
        rows_count = len(sums) - 1 - dead
        return (2, *_common(self), self.last_ms, rows_count, self.moments_ms[-1], total)

    @property
    def rows_count(self) -> int:
        """How many rows still count."""
        return len(self.sums) - 1 - self.dead

    def _dead_at(self, at_ms: int) -> int:
        """Return the place of the last row that does not count at `at_ms`."""
        return bisect_right(self.moments_ms, at_ms - self.window_ms, self.dead + 1) - 1

    def earliest_ms(self, now_ms: int, limit: int, cost: int) -> int:
        """Return when enough of the oldest rows have left the window."""
        sums = self.sums
        at_ms = max(now_ms, self.last_ms)
        dead = self._dead_at(at_ms)
        to_leave = sums[-1] + cost - limit
        if to_leave <= sums[dead]:
            return at_ms
        return self.moments_ms[bisect_left(sums, to_leave, dead + 1)] + self.window_ms

    def remaining(self, now_ms: int, limit: int) -> int:
        """Return what the window that ends now leaves; nothing if a later place is already reserved."""
        if self.last_ms > now_ms:
            return 0
        return max(0, limit - self.sums[-1] + self.sums[self._dead_at(now_ms)])

    def admit(self, at_ms: int, limit: int, cost: int) -> None:
        """Log `cost`, and drop what no later place can see."""
        moments_ms, sums = self.moments_ms, self.sums
        self.last_ms = at_ms
        self.dead = dead = self._dead_at(at_ms)
        if limit <= limits.RATE_ROWS_MAX:
            moment_ms = at_ms
        else:
            step_ms = -(-self.window_ms // limits.RATE_ROWS_MAX)
            moment_ms = -(-at_ms // step_ms) * step_ms
        if moments_ms[-1] >= moment_ms:  # above it after a larger limit, and less than a step of that late
            sums[-1] += cost
        else:
            moments_ms.append(moment_ms)
            sums.append(sums[-1] + cost)
        if 2 * dead > len(sums):
            del moments_ms[:dead], sums[:dead]
            self.dead = 0

    def whole_ms(self) -> int:
        """Return when the last row has left the window."""
        return self.moments_ms[-1] + self.window_ms

    def copy(self) -> "SlidingWindow":
        """Return another one that has admitted the same."""
        return msgspec.structs.replace(self, moments_ms=self.moments_ms[:], sums=self.sums[:])

    def taken(self, now_ms: int) -> list[tuple[int, int]]:
        """Return the rows that count, those that stand for the end of a step as if that were now."""
        sums = self.sums
        places = range(self._dead_at(now_ms) + 1, len(sums))
        return [(min(self.moments_ms[place], now_ms), sums[place] - sums[place - 1]) for place in places]

    def row(self) -> "SlidingRow":
        """Return what is stored."""
        moments_ms, sums = self.moments_ms[self.dead + 1 :], self.sums[self.dead :]
        steps_ms = (later - earlier for earlier, later in pairwise(chain((0,), moments_ms)))
        costs = (later - earlier for earlier, later in pairwise(sums))
        return SlidingRow(
            order=self.order,
            expires_at_ms=self.expires_at_ms,
            name=self.name,
            window_ms=self.window_ms,
            principal=self.principal,
            last_principal=self.last_principal,
            last_ms=self.last_ms,
            steps_ms=list(steps_ms),
            costs=list(costs),
        )


class SlidingRow(Timed, kw_only=True, eq=False, gc=False, array_like=True, tag=2):
    """A sliding window as it is stored: the rows that count, each moment as the step from the one before."""

    name: str
    window_ms: int
    principal: str
    last_principal: str
    last_ms: int
    steps_ms: list[int]
    costs: list[int]

    def limiter(self) -> SlidingWindow:
        """Return the limiter that was stored."""
        moments_ms, sums = _new_log(_NEVER), _new_log(0)
        moments_ms.extend(accumulate(self.steps_ms))
        sums.extend(accumulate(self.costs))
        return SlidingWindow(
            order=self.order,
            expires_at_ms=self.expires_at_ms,
            name=self.name,
            window_ms=self.window_ms,
            principal=self.principal,
            last_principal=self.last_principal,
            last_ms=self.last_ms,
            moments_ms=moments_ms,
            sums=sums,
        )


class Gcra(Limiter, kw_only=True, eq=False, gc=False, array_like=True, tag=3):
    """The generic cell rate algorithm: `limit` at once, and then evenly `limit` per `window_ms`.

    Promise: what is admitted from one moment to another D ms later, both included, counted at `at_ms`, is at
    most limit + floor(limit * D / window_ms).

    This is the form of ITU-T I.371 that is called the leaky bucket: `level` is how full it is at `last_ms`; a
    cost fits if the level stays within the limit. One unit of cost is `window_ms` of level, so that `limit`
    leaks each millisecond, without a remainder. (The theoretical arrival time is last_ms + level / limit.)

    `limit` is that of the last admission. A request with another limit finds the bucket as it is, leaking at
    the old rate until the request is admitted; it fits if the level stays within the new limit. So with
    changing limits the promise is: at most (the limit of the last request) + floor(the largest limit * D /
    window_ms).
    """

    algorithm: ClassVar[Algorithm] = Algorithm.GCRA

    last_ms: int = 0
    limit: int = 1
    level: int = 0

    def told(self) -> tuple[str | int, ...]:
        """Return all of it."""
        return (3, *_common(self), self.last_ms, self.limit, self.level)

    def earliest_ms(self, now_ms: int, limit: int, cost: int) -> int:
        """Return when the bucket has leaked enough."""
        to_leak = self.level - (limit - cost) * self.window_ms
        return max(now_ms, self.last_ms, self.last_ms + -(-to_leak // self.limit))

    def remaining(self, now_ms: int, limit: int) -> int:
        """Return how many whole units fit into the bucket now; none if a later place is already reserved."""
        if self.last_ms > now_ms:
            return 0
        level = max(0, self.level - self.limit * (now_ms - self.last_ms))
        return max(0, limit - -(-level // self.window_ms))

    def admit(self, at_ms: int, limit: int, cost: int) -> None:
        """Fill `cost` into the bucket."""
        level = max(0, self.level - self.limit * (at_ms - self.last_ms)) + cost * self.window_ms
        self.last_ms, self.limit, self.level = at_ms, limit, level

    def whole_ms(self) -> int:
        """Return when all has leaked out."""
        return self.last_ms + -(-self.level // self.limit)

    def copy(self) -> "Gcra":
        """Return another one that has admitted the same."""
        return msgspec.structs.replace(self)

    def taken(self, now_ms: int) -> list[tuple[int, int]]:
        """Return what has not leaked out, in whole units."""
        level = max(0, self.level - self.limit * (now_ms - self.last_ms))
        return [(now_ms, -(-level // self.window_ms))] if level else []


AnyLimiter = FixedWindow | SlidingWindow | Gcra
"""A limiter of any kind."""


def _common(limiter: AnyLimiter) -> tuple[str | int, ...]:
    """Return what a fingerprint has of limiters of all kinds."""
    return (limiter.name, limiter.window_ms, limiter.order, limiter.principal, limiter.last_principal)
