"""A naive rate limit: a list of all that was admitted, searched millisecond by millisecond."""

from fractions import Fraction
from typing import NamedTuple

from lockstate.words.kinds import Algorithm
from lockstate.words.results import RateTaken


class Admission(NamedTuple):
    """Something that was admitted: `limit` is that of its request."""

    at_ms: int
    cost: int
    limit: int


class RateModel:
    """One rate limit as the list of its admissions."""

    def __init__(self, algorithm: Algorithm, window_ms: int) -> None:
        self.algorithm = algorithm
        self.window_ms = window_ms
        self.admissions: list[Admission] = []

    def used(self, at_ms: int) -> Fraction:
        """How much of the limit is taken at `at_ms`, which is behind all admissions."""
        window_ms = self.window_ms
        match self.algorithm:
            case Algorithm.FIXED_WINDOW:
                start_ms = at_ms - at_ms % window_ms
                return Fraction(
                    sum(admission.cost for admission in self.admissions if admission.at_ms >= start_ms)
                )
            case Algorithm.SLIDING_WINDOW:
                return Fraction(
                    sum(
                        admission.cost for admission in self.admissions if admission.at_ms > at_ms - window_ms
                    )
                )
            case Algorithm.GCRA:
                used, arrival_ms, rate = Fraction(0), Fraction(0), Fraction(1)
                for admission in self.admissions:
                    used = max(Fraction(0), arrival_ms - admission.at_ms) * rate + admission.cost
                    rate = Fraction(admission.limit, window_ms)
                    arrival_ms = admission.at_ms + used / rate
                return max(Fraction(0), arrival_ms - at_ms) * rate

    def earliest_ms(self, now_ms: int, limit: int, cost: int) -> int:
        """The first moment, not before any admission, at which `cost` fits.

        In a fixed window all moments are as good: one kept for the sake of another limit may be late in it.
        """
        is_fixed = self.algorithm is Algorithm.FIXED_WINDOW
        moments = [
            one.at_ms - one.at_ms % self.window_ms if is_fixed else one.at_ms for one in self.admissions
        ]
        at_ms = max([now_ms, *moments])
        while self.used(at_ms) + cost > limit:
            at_ms += 1
        return at_ms

    def whole_ms(self, now_ms: int) -> int:
        """The first moment at which nothing is taken: a cost of one fits into a limit of one."""
        return self.earliest_ms(now_ms, 1, 1)

    def remaining(self, now_ms: int, limit: int) -> int:
        """The largest cost that could go now."""
        costs = (cost for cost in range(limit, 0, -1) if self.earliest_ms(now_ms, limit, cost) == now_ms)
        return next(costs, 0)

    def take(self, now_ms: int, limit: int, cost: int, wait_ms: int) -> RateTaken:
        """What the answer has to be."""
        at_ms = self.earliest_ms(now_ms, limit, cost)
        allowed = at_ms - now_ms <= wait_ms
        if allowed:
            self.admissions.append(Admission(at_ms, cost, limit))
        return RateTaken(
            allowed,
            limit,
            self.remaining(now_ms, limit),
            0 if allowed else at_ms - now_ms - wait_ms,
            self.whole_ms(now_ms) - now_ms,
            at_ms if allowed else 0,
            self.window_ms,
        )
