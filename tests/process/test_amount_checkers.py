"""The checkers of amounts find what they are for, and nothing else."""

from collections.abc import Callable

import pytest

from tests.process.amount_checkers import (
    Amount,
    Promise,
    fixed_window,
    gcra,
    sliding_window,
    too_fast,
    too_much,
)

LIMIT, WINDOW_MS = 3, 1_000


def at(*moments_s: float, took_s: float = 0.0) -> list[Amount]:
    """Return admissions that were asked for at these moments and answered `took_s` later."""
    return [Amount(from_s=item, until_s=item + took_s) for item in moments_s]


@pytest.mark.parametrize(
    ("promise", "most", "one_more"),
    [
        # Two windows may meet in a span of any length; three only in more than one window.
        (fixed_window, [0.1] * 3 + [0.2] * 3, [0.1] * 3 + [0.2] * 4),
        (fixed_window, [0.1] * 3 + [0.5] * 3 + [1.2] * 3, [0.1] * 3 + [0.5] * 3 + [1.05] * 3 + [1.09]),
        (sliding_window, [0.1] * 3 + [1.1] * 3, [0.1] * 3 + [1.09]),
        (sliding_window, [0.0, 0.4, 0.8, 1.0, 1.4, 1.8], [0.0, 0.4, 0.8, 1.0, 1.3]),
        (gcra, [0.1] * 3 + [0.434, 0.768], [0.1] * 3 + [0.434, 0.7]),
        (gcra, [0.0, 1.0, 1.0, 1.0, 1.334], [0.0, 1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_too_fast(promise: Callable[[int, int], Promise], most: list[float], one_more: list[float]) -> None:
    """As much as a rate limit promises at most is right, a single admission more or earlier is found."""
    assert not too_fast(at(*most), promise(LIMIT, WINDOW_MS))
    assert too_fast(at(*one_more), promise(LIMIT, WINDOW_MS))


def test_too_fast_somewhere() -> None:
    """A burst is found in the middle of a long history that is right, by costs as well."""
    calm = at(*range(100))
    assert not too_fast(calm, sliding_window(LIMIT, WINDOW_MS))
    dear = Amount(from_s=50.5, until_s=50.6, amount=3)
    assert not too_fast([dear], sliding_window(LIMIT, WINDOW_MS))
    assert too_fast([*calm, dear], sliding_window(LIMIT, WINDOW_MS))


def test_late_answers() -> None:
    """What may have been admitted before or after a span does not count in it."""
    slow = at(*[0.0] * 4, took_s=1.0)
    assert not too_fast(slow, sliding_window(LIMIT, WINDOW_MS))
    assert too_fast(at(*[0.0] * 4, took_s=0.9), sliding_window(LIMIT, WINDOW_MS))


def test_too_much() -> None:
    """More than the limit at one time is found; one that begins when another ends is beside nobody."""
    first = Amount(from_s=0, until_s=2, amount=2)
    assert not too_much([first, Amount(from_s=1, until_s=3, amount=1)], LIMIT)
    assert not too_much([first, Amount(from_s=2, until_s=3, amount=3)], LIMIT)
    assert too_much([first, Amount(from_s=1, until_s=3, amount=2)], LIMIT)
    assert not too_much([first, Amount(from_s=1, until_s=1, amount=2)], LIMIT), (
        "nobody knows that it was held"
    )
