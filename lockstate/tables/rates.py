"""The table of rate limits. How each of them counts is in `rate_algorithms`.

A rate limit is identified by its name, algorithm and window; the limit itself comes with every request. It
exists from the first admission until it is whole again.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Final

from lockstate.tables.deadlines import Deadlines
from lockstate.tables.ledger import Ledger, mark_of_limiter
from lockstate.tables.rate_algorithms import FixedWindow, Gcra, Limiter, SlidingRow, SlidingWindow
from lockstate.tables.record_index import RecordIndex
from lockstate.words import limits
from lockstate.words.commands import Algorithm, TakeRate, WantedRate
from lockstate.words.results import RateTaken, RateUsed, Reason, Refused

RateRow = FixedWindow | SlidingRow | Gcra
"""A rate limit as it is stored."""

RateKey = tuple[str, Algorithm, int]
"""Name, algorithm and window in milliseconds."""

_KINDS: Final[dict[Algorithm, type[FixedWindow | SlidingWindow | Gcra]]] = {
    kind.algorithm: kind for kind in (FixedWindow, SlidingWindow, Gcra)
}


def _check_between(field: str, value: int, smallest: int, largest: int) -> Refused | None:
    if smallest <= value <= largest:
        return None
    return Refused(Reason.INVALID_REQUEST, f"{field}: {value}; must be {smallest} to {largest}")


def _check(command: TakeRate) -> Refused | None:
    """Return what is wrong with the command itself, or None. A cost above the limit would never fit.

    One condition lets nearly all of them pass.
    """
    if (
        1 <= command.cost <= command.limit <= limits.RATE_LIMIT_MAX
        and limits.RATE_WINDOW_MS_MIN <= command.window_ms <= limits.RATE_WINDOW_MS_MAX
        and 0 <= command.wait_ms <= limits.WAIT_MS_MAX
    ):
        return limits.check_name(command.name)
    return (
        limits.check_name(command.name)
        or _check_between("limit", command.limit, 1, limits.RATE_LIMIT_MAX)
        or _check_between("cost", command.cost, 1, command.limit)
        or _check_between(
            "window_ms", command.window_ms, limits.RATE_WINDOW_MS_MIN, limits.RATE_WINDOW_MS_MAX
        )
        or limits.check_range("wait_ms", command.wait_ms, limits.WAIT_MS_MAX)
    )


def check_wanted(rate: WantedRate) -> Refused | None:
    """Return why no place of this rate limit can be asked for, or None."""
    return _check(TakeRate(rate.name, rate.limit, rate.window_ms, rate.algorithm, rate.cost))


def _overloaded(count: int, what: str) -> Refused:
    return Refused(
        Reason.OVERLOADED, f"the cluster has {count} {what}; no more are allowed", retry_after_ms=1000
    )


class RateLimits:
    """All rate limits that are not whole, in order of creation."""

    def __init__(
        self, deadlines: Deadlines, take_order: Callable[[], int], ledger: Ledger | None = None
    ) -> None:
        self._deadlines = deadlines
        self._take_order = take_order
        self._limiters: dict[RateKey, FixedWindow | SlidingWindow | Gcra] = {}
        self._rows_count = 0
        self._ledger = Ledger() if ledger is None else ledger
        self.in_order: RecordIndex[Limiter] = RecordIndex(attrgetter("name", "algorithm", "window_ms"))

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._limiters)

    def take(self, command: TakeRate, now_ms: int, no_room: Refused | None = None) -> RateTaken | Refused:
        """Admit the request at the first moment at which it fits, if that is within its `wait_ms`.

        If it is admitted, the client may go on when cluster time is `at_ms`; what it takes is counted there,
        and nobody gets an earlier place any more. If it is not admitted, nothing changes and `at_ms` is 0.
        `no_room` is the answer to a request for a rate limit that is not there yet, if there is no room.

        `remaining`: the largest cost that would be admitted now without a wait, with the same limit.
        `retry_after_ms`: 0 if admitted. Otherwise the time after which the same request, with its `wait_ms`,
        will be admitted if nothing else is admitted meanwhile; not a millisecond earlier.
        `reset_in_ms`: the time until the limit is whole and all reservations are used, if nothing else is
        admitted.
        """
        refused = _check(command)
        if refused is not None:
            return refused
        limit, algorithm = command.limit, command.algorithm
        key = (command.name, algorithm, command.window_ms)
        limiter = self._limiters.get(key)
        at_ms = now_ms
        if limiter is not None:
            at_ms = limiter.earliest_ms(now_ms, limit, command.cost)
            retry_after_ms = at_ms - now_ms - command.wait_ms
            if retry_after_ms > 0:
                reset_in_ms = limiter.expires_at_ms - now_ms
                return RateTaken(
                    False, limit, limiter.remaining(now_ms, limit), retry_after_ms, reset_in_ms, 0
                )
        elif len(self._limiters) >= limits.RATE_LIMITERS_COUNT_MAX:
            return _overloaded(len(self._limiters), "rate limits in use")
        elif no_room is not None:
            return no_room
        if algorithm is Algorithm.SLIDING_WINDOW and self._rows_count >= limits.RATE_ROWS_COUNT_MAX:
            return _overloaded(self._rows_count, "rows in the logs of sliding windows")
        if limiter is None:
            limiter = self._add(key, now_ms)
        elif limiter not in self._ledger.noted:
            self._ledger.change(limiter)
        whole_ms = self._admit(limiter, at_ms, limit, command.cost)
        return RateTaken(True, limit, limiter.remaining(now_ms, limit), 0, whole_ms - now_ms, at_ms)

    def take_together(
        self, wanted: Sequence[WantedRate], now_ms: int, wait_ms: int, no_room: Refused | None
    ) -> tuple[int, tuple[RateUsed, ...]] | Refused:
        """Admit all of `wanted` at the first moment at which each fits, if that is within `wait_ms`, or none.

        Return the moment, and what each answers. It is one moment for all: a place that is counted earlier
        than it is used would let the limit be exceeded. `no_room` is as for `take`.
        """
        known = [self._limiters.get((one.name, one.algorithm, one.window_ms)) for one in wanted]
        pairs = list(zip(wanted, known, strict=True))
        at_ms, last = now_ms, None
        for one, limiter in pairs:
            if limiter is not None and limiter.earliest_ms(now_ms, one.limit, one.cost) > at_ms:
                at_ms, last = limiter.earliest_ms(now_ms, one.limit, one.cost), (one, limiter)
        if last is not None and at_ms - now_ms > wait_ms:
            one, limiter = last
            remaining = limiter.remaining(now_ms, one.limit)
            detail = f"the rate limit {one.name!r} has no free place in time"
            facts = {"limit": one.limit, "remaining": remaining}
            return Refused(Reason.RATE_LIMITED, detail, (), 0, at_ms - now_ms - wait_ms, (), facts)
        refused = self._no_room_for(pairs) or (no_room if None in known else None)
        if refused is not None:
            return refused
        used: list[RateUsed] = []
        for one, found in pairs:
            limiter = found or self._add((one.name, one.algorithm, one.window_ms), now_ms)
            self._ledger.change(limiter)
            whole_ms = self._admit(limiter, at_ms, one.limit, one.cost)
            used.append(RateUsed(one.name, limiter.remaining(now_ms, one.limit), whole_ms - now_ms))
        return at_ms, tuple(used)

    def _no_room_for(
        self, pairs: Iterable[tuple[WantedRate, FixedWindow | SlidingWindow | Gcra | None]]
    ) -> Refused | None:
        """Refuse rate limits for which there is no room in the tables."""
        new_count = sum([limiter is None for _, limiter in pairs])
        if new_count and len(self._limiters) + new_count > limits.RATE_LIMITERS_COUNT_MAX:
            return _overloaded(len(self._limiters), "rate limits in use")
        is_sliding = any(one.algorithm is Algorithm.SLIDING_WINDOW for one, _ in pairs)
        if is_sliding and self._rows_count >= limits.RATE_ROWS_COUNT_MAX:
            return _overloaded(self._rows_count, "rows in the logs of sliding windows")
        return None

    def peek(self, command: TakeRate, now_ms: int) -> RateTaken | Refused:
        """Return what `take` would answer at `now_ms`, but for want of room; nothing changes.

        An allowed answer has what there is before the request takes its cost.
        """
        refused = _check(command)
        if refused is not None:
            return refused
        limit, key = command.limit, (command.name, command.algorithm, command.window_ms)
        limiter = self._limiters.get(key)
        if limiter is None:
            return RateTaken(True, limit, limit, 0, 0, now_ms)
        at_ms = limiter.earliest_ms(now_ms, limit, command.cost)
        retry_after_ms = max(at_ms - now_ms - command.wait_ms, 0)
        reset_in_ms = max(limiter.expires_at_ms - now_ms, 0)
        remaining = limiter.remaining(now_ms, limit)
        return RateTaken(
            not retry_after_ms, limit, remaining, retry_after_ms, reset_in_ms, 0 if retry_after_ms else at_ms
        )

    def _add(self, key: RateKey, now_ms: int) -> FixedWindow | SlidingWindow | Gcra:
        name, algorithm, window_ms = key
        limiter = _KINDS[algorithm](
            order=self._take_order(), expires_at_ms=now_ms, name=name, window_ms=window_ms
        )
        self._limiters[key] = limiter
        self.in_order.add(limiter)
        self._deadlines.add(limiter)
        self._ledger.noted[limiter] = 0
        return limiter

    def _admit(self, limiter: FixedWindow | SlidingWindow | Gcra, at_ms: int, limit: int, cost: int) -> int:
        """Count `cost`, and return when the limiter will be whole."""
        if isinstance(limiter, SlidingWindow):
            self._rows_count -= limiter.rows_count
            whole_ms = limiter.admit(at_ms, limit, cost)
            self._rows_count += limiter.rows_count
        else:
            whole_ms = limiter.admit(at_ms, limit, cost)
        self._deadlines.move(limiter, whole_ms)
        return whole_ms

    def end(self, limiter: Limiter) -> None:
        """Forget a rate limit that is whole, and its deadline."""
        self._deadlines.remove(limiter)
        gone = self._limiters.pop((limiter.name, limiter.algorithm, limiter.window_ms))
        self.in_order.remove(gone)
        self._ledger.remove(gone)
        if isinstance(gone, SlidingWindow):
            self._rows_count -= gone.rows_count

    @property
    def rows_count(self) -> int:
        """Return how many rows the logs of all sliding windows have."""
        return self._rows_count

    def recomputed_sum(self) -> int:
        """Return the sum of the marks of all of them, but for their deadlines (see `marks`)."""
        return sum([mark_of_limiter(limiter) for limiter in self._limiters.values()])

    def dump(self) -> list[RateRow]:
        """Return what must be stored, in order of creation; equal states give equal rows.

        Encode the rows before the next change: most of them are the limiters themselves.
        """
        return [
            limiter.row() if isinstance(limiter, SlidingWindow) else limiter
            for limiter in self._limiters.values()
        ]

    def load(self, rows: Iterable[RateRow]) -> None:
        """Add stored rate limits, in order of creation. The rows belong to the table from now on."""
        for row in rows:
            limiter = row.limiter() if isinstance(row, SlidingRow) else row
            self._limiters[limiter.name, limiter.algorithm, limiter.window_ms] = limiter
            self.in_order.add(limiter)
            self._deadlines.add(limiter)
            self._ledger.noted[limiter] = 0
            if isinstance(limiter, SlidingWindow):
                self._rows_count += limiter.rows_count
