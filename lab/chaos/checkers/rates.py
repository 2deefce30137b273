"""Rate windows: no stretch of time has more admissions that surely lie in it than the algorithm promises."""

from collections.abc import Callable
from typing import Final

from lab.chaos.checkers.violation import Violation
from lab.chaos.history import History, Operation

ROUNDING_MS: Final = 2
"""Stamps and timers are whole milliseconds: two moments may be this much closer than they say."""
WINDOWS: Final = 5
"""Stretches of more windows than this are not looked at."""


def rate_windows(history: History) -> list[Violation]:
    """No rate limit admits more than it promises."""
    groups: dict[str, list[Operation]] = {}
    for operation in history.operations:
        if operation.kind == "take" and operation.outcome == "ok" and operation.result["allowed"]:
            groups.setdefault(operation.name, []).append(operation)
    return [violation for group in groups.values() for violation in _too_fast(group)]


def _too_fast(group: list[Operation]) -> list[Violation]:
    """Look at the stretches that begin with each admission. One objection per limit is enough."""
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
