"""Checkers of how much clients were given: by rate limits over time, by semaphores at one time.

Like those of `history` they only know what clients saw. They return sentences about what surely must not be;
what may have been right is right: an amount counts only where the whole of its interval lies inside.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.process.history_checkers import BROKEN

ROUNDING_MS = 2
"""Stamps and timers are whole milliseconds: two moments may be this much closer than they say."""

Promise = Callable[[int], int]
"""How much a rate limit admits at most in a span of so many milliseconds, both its ends included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """Something that one client was given.

    Of a rate limit: somewhere between `from_s`, when the request was sent first, and `until_s`, when it was
    answered. Of a semaphore: all the time from `from_s`, when it was answered, to `until_s`, when the client
    began to give it back.
    """

    from_s: float
    until_s: float
    amount: int = 1


def fixed_window(limit: int, window_ms: int) -> Promise:
    """Return the promise of windows in a row, whose seams no client knows."""
    return lambda span_ms: limit * (-(-span_ms // window_ms) + 1)


def sliding_window(limit: int, window_ms: int) -> Promise:
    """Return the promise for any window, without its end."""
    return lambda span_ms: limit * (span_ms // window_ms + 1)


def gcra(limit: int, window_ms: int) -> Promise:
    """Return the promise of a full bucket, and what leaks from it."""
    return lambda span_ms: limit + limit * span_ms // window_ms


def too_fast(admissions: Sequence[Amount], promise: Promise) -> list[str]:
    """No span, wherever it begins and ends, has more admissions that are surely in it than are promised."""
    by_end = sorted(admissions, key=lambda item: item.until_s)
    found = []
    for start_s in sorted({item.from_s for item in admissions}):
        admitted = 0
        for item in by_end:
            if item.from_s < start_s:
                continue
            admitted += item.amount
            span_ms = int((item.until_s - start_s) * 1000) + ROUNDING_MS
            if admitted > promise(span_ms):
                found.append(
                    f"{BROKEN} {admitted} admitted in {span_ms} ms from {start_s}; most: {promise(span_ms)}"
                )
                break
    return found


def too_much(held: Sequence[Amount], limit: int) -> list[str]:
    """Never is more than the limit held at one time."""
    found = []
    used = 0
    ends: list[tuple[float, int]] = []
    for item in sorted(held, key=lambda item: item.from_s):
        while ends and ends[0][0] <= item.from_s:
            used -= heapq.heappop(ends)[1]
        if item.until_s <= item.from_s:
            continue
        used += item.amount
        heapq.heappush(ends, (item.until_s, item.amount))
        if used > limit:
            found.append(f"{BROKEN} {used} of {limit} held at {item.from_s}, with {item}")
    return found
