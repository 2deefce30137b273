"""Beliefs: what clients hold by their own clocks excludes each other at every moment, in true time."""

from collections import deque
from collections.abc import Iterable
from typing import Final

from lockstate.words.commands.holds import AcquirePermits
from lockstate.words.commands.primitives import ResizeSemaphore
from lockstate.words.ids import HoldId
from lockstate.words.kinds import HoldKind
from lockstate.words.results import Granted, GrantedSeveral, Resized
from tests.simulation.checks.conflicts import conflict
from tests.simulation.checks.model_replay import Step
from tests.simulation.checks.report import Report
from tests.simulation.workload.history import Belief

VOIDED_KEPT: Final = 10_000
"""Holds that ended on request, of which somebody may still be told."""
LIMITS_KEPT: Final = 50
"""Changes of the limit of one semaphore."""


class Beliefs:
    """Which client believes to hold what. At every moment all beliefs go together."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._beliefs: dict[HoldId, Belief] = {}
        self._voided: dict[HoldId, None] = {}
        self._limits: dict[str, deque[tuple[int, int]]] = {}
        """Of each semaphore: from when it had which limit, in true time."""

    def believes(self, belief: Belief) -> None:
        """Check a belief against all others that are alive when it begins, changes or is prolonged."""
        beliefs = self._beliefs
        for hold_id in [item.hold_id for item in beliefs.values() if item.until_us <= belief.from_us]:
            del beliefs[hold_id]
        if belief.until_us <= belief.from_us or belief.hold_id in self._voided:
            return
        others = [
            item for item in beliefs.values() if item.kind is belief.kind and item.hold_id != belief.hold_id
        ]
        if belief.kind is not HoldKind.SEMAPHORE:
            self._check_locks(belief, others)
        for name in belief.permits_of:
            rivals = [item for item in beliefs.values() if name in item.permits_of]
            self._check_permits(name, belief, [one for one in rivals if one.hold_id != belief.hold_id])
        beliefs[belief.hold_id] = belief

    def _check_locks(self, belief: Belief, others: Iterable[Belief]) -> None:
        for other in others:
            if conflict(belief.locks, other.locks):
                self._report.fail(
                    "exclusion",
                    f"{belief.client} and {other.client} believe at the same time to hold "
                    f"{belief.locks[0].name!r}",
                    one=other,
                    two=belief,
                )

    def _check_permits(self, name: str, belief: Belief, others: list[Belief]) -> None:
        used = sum(item.permits_of[name] for item in (belief, *others))
        since_us = min(item.since_us for item in (*others, belief))
        limit = self._limit(name, since_us)
        if used > limit:
            self._report.fail(
                "exclusion",
                f"{used} permits of {name!r} are believed in, and there were {limit} at most",
                one=others,
                two=belief,
            )

    def _limit(self, name: str, since_us: int) -> int:
        """Return the largest limit that a semaphore had since then."""
        changes = self._limits.get(name, deque())
        before = [limit for at_us, limit in changes if at_us <= since_us]
        return max([limit for at_us, limit in changes if at_us > since_us] + before[-1:], default=0)

    def applied(self, step: Step, now_us: int) -> None:
        """Count beliefs no more that somebody ended on request; and record limits."""
        self.void(step.voided)
        for result in step.told():
            for one in result.held if isinstance(result, GrantedSeveral) else ():
                self._set_limit(one.name, one.limit, now_us)
        for _, ended in step.wait_ends:
            if isinstance(ended, Granted) and ended.permits:
                self._set_limit(ended.name, ended.limit, now_us)
        for answer in step.single_answers():
            match answer.command, answer.result:
                case AcquirePermits() as command, Granted() as granted if granted.hold_id == command.hold_id:
                    self._set_limit(command.name, granted.limit, now_us)
                case ResizeSemaphore() as command, Resized():
                    self._set_limit(command.name, command.limit, now_us)

    def _set_limit(self, name: str, limit: int, now_us: int) -> None:
        changes = self._limits.setdefault(name, deque(maxlen=LIMITS_KEPT))
        if not changes or changes[-1][1] != limit:
            changes.append((now_us, limit))

    def void(self, hold_ids: Iterable[HoldId]) -> None:
        """Count a belief no more: somebody who may asked for the end of the hold, and it did not expire."""
        for hold_id in hold_ids:
            self.stopped_believing(hold_id)
            self._voided[hold_id] = None
            if len(self._voided) > VOIDED_KEPT:
                del self._voided[next(iter(self._voided))]

    def stopped_believing(self, hold_id: HoldId) -> None:
        """Record the end of a belief."""
        self._beliefs.pop(hold_id, None)
