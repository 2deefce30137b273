"""Confirmed intervals on the clients' clock: no two that exclude each other overlap, no lease ends early."""

import heapq
import itertools

from lab.chaos.checkers.holds import FOREVER_NS, RENEWALS, Hold, by_name, holds
from lab.chaos.checkers.violation import Violation
from lab.chaos.history import History, Operation


def overlaps(history: History) -> list[Violation]:
    """No two clients hold at a time what excludes each other; no semaphore gives more than its limit."""
    known = holds(history)
    found = []
    for group in by_name(known, "lock").values():
        found += _overlapping_locks(group)
    for group in by_name(known, "semaphore").values():
        found += _too_many_permits(group)
    return found


def early_leases(history: History) -> list[Violation]:
    """Nobody gets a lock, and no holder hears of its end, before a lease that was not given up is over."""
    known = holds(history)
    found = []
    for group in by_name(known, "lock").values():
        active: list[Hold] = []
        for hold in group:
            if hold.trusted_until_ns <= hold.granted_ns:
                continue  # its client heard of it when it was over: it may be older than the others
            active = [other for other in active if other.trusted_until_ns > hold.granted_ns]
            for other in active:
                if other.conflicts(hold) and other.let_go_ns > hold.granted_ns:
                    left_ms = (other.trusted_until_ns - hold.granted_ns) / 1e6
                    text = f"{hold.name} was given to another {left_ms:.1f} ms before its lease was over"
                    found.append(_of(other.grant, hold.grant, checker="early-lease", text=text))
            active.append(hold)
    by_key = {hold.key: hold for hold in known}
    for operation in history.operations:
        if operation.kind in RENEWALS and operation.code == "lease-expired":
            ended = by_key.get(operation.arguments["hold"])
            if ended is not None and operation.return_ns < min(ended.trusted_until_ns, ended.let_go_ns):
                left_ms = (ended.trusted_until_ns - operation.return_ns) / 1e6
                text = f"a renewal of {ended.name} heard that it is over, {left_ms:.1f} ms early"
                found.append(_of(ended.grant, operation, checker="early-lease", text=text))
    return found


def revived(history: History) -> list[Violation]:
    """A hold whose end was acknowledged is not renewed afterwards."""
    ends = {hold.key: hold for hold in holds(history) if hold.released_ns < FOREVER_NS}
    found = []
    for operation in history.operations:
        if operation.kind in RENEWALS and operation.outcome == "ok":
            hold = ends.get(operation.arguments["hold"])
            if hold is not None and hold.released_ns < operation.call_ns:
                text = f"a hold of {hold.name} was renewed after its release was acknowledged"
                found.append(_of(hold.grant, operation, checker="revived", text=text))
    return found


def _overlapping_locks(group: list[Hold]) -> list[Violation]:
    """Compare each hold of a lock with those that are still trusted when its client heard of it."""
    found = []
    active: list[Hold] = []
    for hold in group:
        active = [other for other in active if other.end_ns > hold.granted_ns]
        if hold.end_ns <= hold.granted_ns:
            continue  # its client heard of it when it was over
        for other in active:
            if other.conflicts(hold):
                together_ms = (min(other.end_ns, hold.end_ns) - hold.granted_ns) / 1e6
                text = f"{hold.name} had two holders for {together_ms:.1f} ms"
                found.append(_of(other.grant, hold.grant, checker="overlap", text=text))
        active.append(hold)
    return found


def _too_many_permits(group: list[Hold]) -> list[Violation]:
    """Add up the permits that are surely out at each moment."""
    found = []
    used = 0
    numbers = itertools.count()
    ends: list[tuple[int, int, int]] = []
    for hold in group:
        while ends and ends[0][0] <= hold.granted_ns:
            used -= heapq.heappop(ends)[2]
        if hold.end_ns <= hold.granted_ns:
            continue
        used += hold.permits
        heapq.heappush(ends, (hold.end_ns, next(numbers), hold.permits))
        if used > hold.limit:
            text = f"{used} permits of {hold.name} were out, the limit is {hold.limit}"
            found.append(_of(hold.grant, checker="overlap", text=text))
    return found


def _of(*operations: Operation, checker: str, text: str) -> Violation:
    """Return a violation that these operations show, at the end of the last one."""
    return Violation(
        checker=checker,
        text=text,
        operations=tuple(operation.id for operation in operations),
        at_ns=operations[-1].return_ns,
    )
