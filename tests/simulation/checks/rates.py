"""Rate limits seen from outside: no window has more than was promised, over all windows that there are.

Only what clients were told counts, each request once. What a client was not told may have been admitted,
too. It takes from the others; but its limit may be larger than theirs, and of a bucket all limits count: how
fast it leaks is decided by the limit that was admitted last. So those limits are learned from the committed
entries.

When limits change, a window may have up to the limit of its last request. For a bucket the flow is added,
that of the largest limit that was admitted meanwhile, told or not, at once or after a wait.

Twice: by the moments that the answers name, in cluster time; and by the clients' own, in true time, where
all is known of a decision is that it fell between question and answer.
"""

from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from lockstate.words.commands.overrides import ForgetRates
from lockstate.words.commands.primitives import TakeRate
from lockstate.words.kinds import Algorithm
from lockstate.words.results import RateTaken, Result
from tests.simulation.checks.expected_rates import Key, key_of
from tests.simulation.checks.model_replay import Step
from tests.simulation.checks.report import Report
from tests.simulation.workload.history import Call

KEPT: Final = 100
"""Admissions of one rate limit that are remembered, the newest by moment."""
LIMITS_KEPT: Final = 1_000
"""Committed admissions of one rate limit whose limits are remembered. No window is looked at beyond them."""
REQUESTS_KEPT: Final = 5_000


class _Admitted(NamedTuple):
    """What one request was allowed. The times of a client are true ones, in microseconds."""

    at_ms: int
    cost: int
    limit: int
    asked_us: int
    told_us: int
    is_at_once: bool
    """Whether it was decided for the very moment of the decision: nothing is reserved."""


class Rates:
    """What was admitted, by rate limit."""

    def __init__(self, report: Report, rate_allowance: float) -> None:
        self._report = report
        self._rate = rate_allowance
        self._asked_us: dict[tuple[str, str], int] = {}
        """When the first attempt of a request left."""
        self._counted: dict[tuple[str, str], None] = {}
        self._forgotten: set[tuple[str, bool]] = set()
        """Names, and prefixes of names, of which nothing is expected: no answer says on which side of the
        forgetting it is. What must have come of each command in its place is known to the model."""
        self._admitted: dict[Key, list[_Admitted]] = {}
        self._limits: dict[Key, deque[tuple[int, int]]] = {}
        """Moments and limits of what was admitted in truth, in order."""
        self.checked_count = 0

    def called(self, call: Call) -> None:
        """Record when a request was made."""
        command = call.command
        if isinstance(command, ForgetRates):
            self._forgotten.add((command.name, command.is_prefix))
        if isinstance(command, TakeRate) and command.request_id:
            self._asked_us.setdefault((command.name, command.request_id), call.called_us)
            _shorten(self._asked_us)

    def applied(self, step: Step) -> None:
        """Learn the limits of what a committed entry admits, before any client is told."""
        for answer in step.answers:
            command, result = answer.command, answer.result
            if not (isinstance(command, TakeRate) and _is_said(command) and isinstance(result, RateTaken)):
                continue
            if result.allowed:
                limits = self._limits.setdefault(key_of(command), deque(maxlen=LIMITS_KEPT))
                if not limits or limits[-1][0] <= result.at_ms:  # a repetition is told the old moment
                    limits.append((result.at_ms, command.limit))

    def replied(self, call: Call, result: Result, now_us: int) -> None:
        """Check a request that was admitted against all others."""
        command = call.command
        if not (isinstance(command, TakeRate) and _is_said(command) and isinstance(result, RateTaken)):
            return
        if not result.allowed or self._is_forgotten(command.name):
            return
        asked_us = call.called_us
        if command.request_id:
            request = (command.name, command.request_id)
            if request in self._counted:
                return
            self._counted[request] = None
            _shorten(self._counted)
            asked_us = self._asked_us.get(request, 0)
        is_at_once = command.wait_ms == 0
        admitted = _Admitted(result.at_ms, command.cost, command.limit, asked_us, now_us, is_at_once)
        known = self._admitted.setdefault(key_of(command), [])
        insort(known, admitted)
        if len(known) > KEPT:
            del known[0]
        self._forget_unsure(key_of(command), known)
        self.checked_count += 1
        self._check_told(command, known, admitted)
        if is_at_once:
            self._check_outside(command, known, admitted)

    def _is_forgotten(self, name: str) -> bool:
        """Whether anybody has asked that this rate limit be forgotten."""
        return any(
            name.startswith(asked) if is_prefix else name == asked for asked, is_prefix in self._forgotten
        )

    def _forget_unsure(self, key: Key, known: list[_Admitted]) -> None:
        """Forget what was admitted when not all limits are known any more."""
        limits = self._limits.get(key)
        if limits is not None and len(limits) == LIMITS_KEPT:
            known[:] = [item for item in known if item.at_ms > limits[0][0]]

    # -- by what was told -----------------------------------------------------------------------------------

    def _check_told(self, command: TakeRate, known: Sequence[_Admitted], new: _Admitted) -> None:
        """Check every window that begins with an admission and has the new one in it."""
        for first, begin in enumerate(known):
            if begin.at_ms > new.at_ms:
                break
            inside: list[_Admitted] = []
            for item in known[first:]:
                if not _is_together(command, begin.at_ms, item.at_ms):
                    break
                inside.append(item)
                if item.at_ms >= new.at_ms:
                    self._check(command, inside, item.at_ms - begin.at_ms, "rate-promise")

    # -- by the clocks of clients ---------------------------------------------------------------------------

    def _check_outside(self, command: TakeRate, known: Iterable[_Admitted], new: _Admitted) -> None:
        """Check the stretches of true time that surely contain decisions, the new one among them.

        Cluster time may stand still for a while, and never runs faster than `rate_allowance`.
        """
        if command.algorithm is Algorithm.FIXED_WINDOW:
            return  # its windows are those of cluster time, which clients do not know
        known = [item for item in known if item.is_at_once and item.told_us <= new.told_us]
        for begin_us in {item.asked_us for item in known if item.asked_us <= new.asked_us}:
            length_ms = int((new.told_us - begin_us) * (1 + self._rate) / 1000) + 1
            if command.algorithm is Algorithm.SLIDING_WINDOW and length_ms >= command.window_ms:
                continue
            inside = [item for item in known if item.asked_us >= begin_us]
            self._check(command, inside, length_ms, "rate-outside")

    # -- what is promised -----------------------------------------------------------------------------------

    def _check(self, command: TakeRate, inside: Sequence[_Admitted], length_ms: int, checker: str) -> None:
        """Check what was admitted in a stretch of so many milliseconds, in order of moments."""
        cost = sum(item.cost for item in inside)
        last_ms = inside[-1].at_ms
        # Which of one moment was the last is not told.
        allowed = max(item.limit for item in inside if item.at_ms == last_ms)
        if cost > allowed and command.algorithm is Algorithm.GCRA:
            flow = self._largest_limit(command, inside[0].at_ms, last_ms)
            allowed += flow * length_ms // command.window_ms
        if cost > allowed:
            self._report.fail(
                checker,
                f"{command.name!r} admitted {cost} where {allowed} are promised by {command.algorithm}",
                newest=command,
            )

    def _largest_limit(self, command: TakeRate, from_ms: int, until_ms: int) -> int:
        """Return the largest limit of what was admitted between two moments, both included."""
        key = key_of(command)
        admitted = [(item.at_ms, item.limit) for item in self._admitted[key]]
        admitted.extend(self._limits.get(key, ()))
        return max(limit for at_ms, limit in admitted if from_ms <= at_ms <= until_ms)


def _is_said(command: TakeRate) -> bool:
    """Whether a request says all of what its rate limit is: else a namespace does, which is not looked at."""
    return bool(command.limit and command.window_ms and command.algorithm)


def _is_together(command: TakeRate, begin_ms: int, at_ms: int) -> bool:
    """Whether two moments may lie in one window that a promise is about."""
    match command.algorithm:
        case Algorithm.FIXED_WINDOW:
            return begin_ms // command.window_ms == at_ms // command.window_ms
        case Algorithm.SLIDING_WINDOW:
            return at_ms - begin_ms < command.window_ms
    return True


def _shorten(records: dict[tuple[str, str], Any]) -> None:
    """Drop the oldest record if there are too many."""
    if len(records) > REQUESTS_KEPT:
        del records[next(iter(records))]
