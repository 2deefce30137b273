"""How long clients got no answer while something was broken, and for how long they were told nothing.

The gap of a fault is the longest time between two answers in a row that begins with the fault or behind it,
until the next one begins: answers to anybody (was the cluster there at all?), to the clients that may ask any
node, or to those that are bound to one node. What begins while one fault is broken or heals is of that one,
however far it reaches into the next. A run without clients of one kind has no such gap. If the workload
`reach` was part of the run, only its clients count: they never wait for each other, so no queue passes for
a gap.

The budget is for both of the first two. A client that may ask any node is judged, too, because it is what a
careful program does: if all of them wait for one node that is silent, their patience was too long.
"""

import itertools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from lab.chaos.faults.clocks import SlowClock
from lab.chaos.faults.fault import Fault
from lab.chaos.history import History, Operation

TAIL_S = 5.0
"""For how long after its end a fault is answered for, if no other begins before: nodes come back late."""


JUST_BEFORE_NS = 200_000_000
"""Answers stand so close together that a gap which began that long before a fault is its own:
the last answer came just before."""
REACH = "reach"
"""The workload that is there for this."""
SPARES_PROCESSES = frozenset({"pause-leader", "pause-follower", "stutter", "slow-disk", "transfer-storm"})
"""Faults of local processes in which each goes on, or goes on later."""
DECIDED = "lock-held"
"""The refusal that only a serving cluster gives: here, of a lock that a client got without hearing of it."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """What clients saw of one fault. Times in seconds; None: no client of that kind asked."""

    fault: str
    where: list[str]
    any_s: float | None = None
    """The longest time in which no node answered anybody."""
    free_s: float | None = None
    """The longest time without an answer for all clients together that may ask any node."""
    bound_s: float | None = None
    """The longest that a node which the fault did not name kept its own clients waiting."""
    broken_s: float | None = None
    """The same for the nodes that it did name: until they are whole again, clients have to ask another."""
    errors: int = 0
    """Operations whose outcome stayed unknown, or that got no answer until their patience was over."""


def silences(history: History) -> list[tuple[int, int]]:
    """Return from when to when nobody was answered because something was broken, or had just been."""
    asked, answered = _of_the_cluster(history)
    times_ns = _while_asked(asked, answered)
    broken_ns = [(fault.begin_ns, fault.end_ns + round(TAIL_S * 1e9)) for fault in history.faults]
    return [
        (before_ns, after_ns)
        for before_ns, after_ns in itertools.pairwise(times_ns)
        if after_ns - before_ns > JUST_BEFORE_NS
        and any(begin_ns < after_ns and before_ns < end_ns for begin_ns, end_ns in broken_ns)
    ]


class ClusterClock:
    """Cluster time as clients can know it: in a silence it stands still, and a slow clock may lead."""

    def __init__(self, history: History) -> None:
        self._silences = silences(history)
        self._faults = history.faults
        self._slow = [fault for fault in self._faults if fault.what == SlowClock.name]

    def was_broken(self, operation: Operation) -> bool:
        """Whether the node that answered was broken meanwhile: its client may have heard of it late."""
        return any(
            operation.node in place
            for fault in self._faults
            if fault.begin_ns < operation.return_ns and operation.call_ns < fault.end_ns
            for place in fault.where
        )

    def was_ended(self, operation: Operation) -> bool:
        """Whether the process of any node may have ended meanwhile: what it alone knew is lost."""
        return any(
            fault.what not in SPARES_PROCESSES
            for fault in self._faults
            if fault.begin_ns < self.settled_ns(operation) and operation.call_ns < fault.end_ns
        )

    def after(self, from_ns: int, lasts_ns: int) -> int:
        """Return when so much cluster time has passed since a moment, at the latest."""
        return self._past_silences(from_ns, self._past_slow_clocks(from_ns, lasts_ns))

    def _past_slow_clocks(self, from_ns: int, lasts_ns: int) -> int:
        """Return how long it takes if a node leads whose clock has half its rate."""
        slow_ns = [
            min(lasts_ns, fault.end_ns - max(fault.begin_ns, from_ns))
            for fault in self._slow
            if from_ns < fault.end_ns and fault.begin_ns < from_ns + lasts_ns
        ]
        return lasts_ns + sum(slow_ns)

    def _past_silences(self, from_ns: int, lasts_ns: int) -> int:
        at_ns = from_ns + lasts_ns
        first = bisect_right(self._silences, from_ns, key=lambda silence: silence[1])
        for begin_ns, end_ns in itertools.islice(self._silences, first, None):
            if begin_ns >= at_ns:
                break
            at_ns += max(0, end_ns - max(begin_ns, from_ns))
        return at_ns

    def settled_ns(self, operation: Operation) -> int:
        """Return when a request has surely had its effect: a lost one when its node is whole again."""
        if not operation.lost:
            return operation.return_ns
        ends_ns = [
            fault.end_ns
            for fault in self._faults
            if fault.begin_ns < operation.return_ns and operation.call_ns < fault.end_ns
        ]
        return max([operation.return_ns, *ends_ns])


def gaps(history: History) -> list[Gap]:
    """Return the gap of each fault, in order."""
    faults = history.faults
    asked, answered = _of_the_cluster(history)
    anybody = _while_asked(asked, answered)
    free = _while_asked(asked, [item for item in answered if not item.bound])
    by_node: dict[str, list[Operation]] = {}
    for item in answered:
        if item.bound:
            by_node.setdefault(item.bound, []).append(item)
    bound = {node: _while_asked(asked, items) for node, items in by_node.items()}
    found = []
    before_ns = 0
    for number, fault in enumerate(faults):
        begin_ns = min(before_ns, fault.begin_ns - JUST_BEFORE_NS)
        end_ns = fault.end_ns + round(TAIL_S * 1e9)
        if number + 1 < len(faults):
            end_ns = min(end_ns, max(faults[number + 1].begin_ns - JUST_BEFORE_NS, begin_ns))
        before_ns = end_ns
        broken = {word for place in fault.where for word in re.findall(r"\w+", place)}
        waits = {node: longest(times, begin_ns, end_ns) for node, times in bound.items()}
        found.append(
            Gap(
                fault=fault.what,
                where=fault.where,
                any_s=longest(anybody, begin_ns, end_ns),
                free_s=longest(free, begin_ns, end_ns),
                bound_s=_longest(wait for node, wait in waits.items() if node not in broken),
                broken_s=_longest(wait for node, wait in waits.items() if node in broken),
                errors=sum(
                    _is_error(item) and fault.begin_ns <= item.return_ns <= end_ns
                    for item in history.operations
                ),
            )
        )
    return found


def _of_the_cluster(history: History) -> tuple[list[Operation], list[Operation]]:
    """Return what counts: all that was asked of the cluster, and what of it was answered."""
    asked = history.of(REACH) or [
        item for item in history.operations if not item.kind.startswith("register-")
    ]
    return asked, [item for item in asked if item.outcome == "ok" or item.code == DECIDED]


def _while_asked(asked: Sequence[Operation], answered: Sequence[Operation]) -> list[int]:
    """Return when there were answers, as long as clients asked; and when they stopped, if there were any.

    At the end of a run nobody asks any more: a late answer to who asked before that ends no gap.
    """
    free = [item for item in asked if not item.bound]  # who is bound may still wait for one answer
    stopped_ns = max((item.call_ns for item in free or asked), default=0)
    times = sorted(item.return_ns for item in answered if item.return_ns <= stopped_ns)
    return [*times, stopped_ns] if times else []


def _longest(waits: Iterable[float | None]) -> float | None:
    """Return the longest of the waits that there are."""
    return max((wait for wait in waits if wait is not None), default=None)


def longest(times_ns: Sequence[int], begin_ns: int, end_ns: int) -> float | None:
    """Return the longest time between two of the sorted times that begins in the span, in seconds.

    It counts up to the first one behind the span; None if there are not two.
    """
    inside = times_ns[bisect_left(times_ns, begin_ns) : bisect_right(times_ns, end_ns) + 1]
    if len(inside) < 2:  # noqa: PLR2004 - a gap has two ends
        return None
    return max(after - before for before, after in itertools.pairwise(inside)) / 1e9


def over_budget(found: Sequence[Gap], faults: Mapping[str, type[Fault[Any]]], factor: float) -> list[str]:
    """Return a sentence for each gap above `factor` times the budget of its fault.

    Judged are the gaps of anybody, and those of the clients that may ask any node.
    """
    told = []
    for gap in found:
        if gap.fault not in faults:
            continue
        budget_s = faults[gap.fault].gap_s_max * factor
        for whom, gap_s in (("anybody", gap.any_s), ("who may ask any node", gap.free_s)):
            if gap_s is not None and gap_s > budget_s:
                where = ", ".join(gap.where) or "nothing"
                told.append(
                    f"{gap.fault} of {where}: no answer to {whom} for {gap_s:.2f} s, the budget is"
                    f" {budget_s:.2f} s"
                )
    return told


def _is_error(item: Operation) -> bool:
    return item.outcome == "unknown"
