"""Rate windows: no stretch of time has more admissions that surely lie in it than the algorithm promises.

And there is no refusal of what has room beside all that may have been admitted in the window before it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import Final

from lab.chaos.checkers.violation import Violation
from lab.chaos.gaps import ClusterClock
from lab.chaos.history import History, Operation

ROUNDING_MS: Final = 2
"""Stamps and timers are whole milliseconds: two moments may be this much closer than they say."""
SLACK_NS: Final = 200_000_000
"""How much longer than its time an admission may count, for clocks that are slow."""
WINDOWS: Final = 5
"""Stretches of more windows than this are not looked at."""


def rate_windows(history: History) -> list[Violation]:
    """No rate limit admits more than it promises, or refuses what has room."""
    clock = ClusterClock(history)
    groups: dict[str, list[Operation]] = {}
    for operation in history.operations:
        if operation.kind == "take":
            groups.setdefault(operation.name, []).append(operation)
    found = []
    for group in groups.values():
        admitted = [item for item in group if item.outcome == "ok" and item.result["allowed"]]
        found += _too_fast(admitted)
        found += _refused_with_room(group, clock)
    return found


def _refused_with_room(group: list[Operation], clock: ClusterClock) -> list[Violation]:
    """Find refusals of what fits beside all that may have been admitted within a window before."""
    maybe = [item for item in group if item.lost or (item.outcome == "ok" and item.result["allowed"])]
    ends = sorted((_counts_until_ns(item, clock), item.arguments["cost"]) for item in maybe)
    calls_ns, ends_ns = [item.call_ns for item in maybe], [end_ns for end_ns, _ in ends]
    begun = [0, *accumulate(item.arguments["cost"] for item in maybe)]
    ended = [0, *accumulate(cost for _, cost in ends)]
    found = []
    for item in group:
        if item.outcome != "ok" or item.result["allowed"]:
            continue
        used = begun[bisect_left(calls_ns, item.return_ns)] - ended[bisect_right(ends_ns, item.call_ns)]
        if used + item.arguments["cost"] <= item.arguments["limit"]:
            limit, cost = item.arguments["limit"], item.arguments["cost"]
            text = f"{item.name} refused {cost}, with at most {used} of {limit} used"
            found.append(Violation(checker="rates", text=text, operations=(item.id,), at_ns=item.return_ns))
    return found


def _counts_until_ns(item: Operation, clock: ClusterClock) -> int:
    """Return until when an admission may count.

    One that waited had its place in a window to come from the start. Its node tells it by a clock of its own,
    while cluster time, and with it that window, may stand still.
    """
    waited_ns = clock.settled_ns(item) - item.call_ns
    return clock.after(item.call_ns, waited_ns + item.arguments["window_ms"] * 1_000_000) + SLACK_NS


def _too_fast(group: list[Operation]) -> list[Violation]:
    """Look at the stretches that begin with each admission. One objection per limit is enough."""
    if not group:
        return []
    arguments = group[0].arguments
    promise = _promise(arguments["algorithm"], arguments["limit"], arguments["window_ms"])
    longest_ns = WINDOWS * arguments["window_ms"] * 1_000_000
    for number, first in enumerate(group):
        until_ns = first.call_ns + longest_ns
        inside: list[Operation] = []
        for item in group[number:]:  # in order of their calls
            if item.call_ns > until_ns:
                break
            inside.append(item)
        admitted = 0
        for item in sorted(inside, key=lambda operation: operation.return_ns):
            admitted += item.arguments["cost"]
            span_ms = (item.return_ns - first.call_ns) // 1_000_000 + ROUNDING_MS
            if admitted > promise(span_ms):
                text = f"{item.name} admitted {admitted} in {span_ms} ms, promised are {promise(span_ms)}"
                return [
                    Violation(
                        checker="rates", text=text, operations=(first.id, item.id), at_ns=item.return_ns
                    )
                ]
    return []


def _promise(algorithm: str, limit: int, window_ms: int) -> Callable[[int], int]:
    """Return how much is admitted at most in so many milliseconds, both ends included."""
    match algorithm:
        case "fixed-window":  # their seams are not known to clients
            return lambda span_ms: limit * (-(-span_ms // window_ms) + 1)
        case "sliding-window":
            return lambda span_ms: limit * (span_ms // window_ms + 1)
        case _:
            return lambda span_ms: limit + limit * span_ms // window_ms
