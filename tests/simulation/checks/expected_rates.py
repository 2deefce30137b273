"""A rate limit as a list of what it has admitted, looked at in steps that are long enough for a simulation.

The limits of a simulated world are small: a sliding window is exact there.
"""

from lockstate.words.commands.primitives import TakeRate
from lockstate.words.kinds import Algorithm
from tests.property.model_rates import RateModel

Key = tuple[str, Algorithm, int]
"""Name, algorithm, window."""


def key_of(command: TakeRate) -> Key:
    """Return which rate limit a command is about."""
    return command.name, command.algorithm or Algorithm.FIXED_WINDOW, command.window_ms


class QuickRate(RateModel):
    """What the naive model says, found without a look at each millisecond."""

    def earliest_ms(self, now_ms: int, limit: int, cost: int) -> int:
        """Return the first moment, not before any admission, at which `cost` fits."""
        if self.algorithm is not Algorithm.GCRA:
            old_ms = now_ms - 2 * self.window_ms
            self.admissions = [one for one in self.admissions if one.at_ms > old_ms]
        window_ms = self.window_ms
        if self.algorithm is Algorithm.FIXED_WINDOW:
            starts = [one.at_ms - one.at_ms % window_ms for one in self.admissions]
            at_ms = max([now_ms, *starts])
            return at_ms if self.used(at_ms) + cost <= limit else (at_ms // window_ms + 1) * window_ms
        at_ms = max([now_ms, *[one.at_ms for one in self.admissions]])
        if self.algorithm is Algorithm.GCRA:
            last = self.admissions[-1] if self.admissions else None
            too_much = self.used(at_ms) + cost - limit
            return (
                at_ms if last is None or too_much <= 0 else at_ms + -int(-too_much * window_ms // last.limit)
            )
        moments = [
            at_ms,
            *[one.at_ms + window_ms for one in self.admissions if one.at_ms + window_ms > at_ms],
        ]
        return next(moment for moment in moments if self.used(moment) + cost <= limit)
