"""Bars: what a figure should be at least or at most, and whether it is. `None` means: not measured."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

Bar = dict[str, Any]
"""`bar`, a sentence; `found`, the figure, None if there is none; `is_met`, None if that cannot be said."""
_WORDS: Final = {None: "not measured", True: "met", False: "MISSED"}


def at_most(bar: str, found: float | None, most: float, *, is_full: bool = True) -> Bar:
    """Judge a figure that should not be above `most`; it counts only if the load `is_full`."""
    return {"bar": bar, "found": found, "is_met": found <= most if is_full and found is not None else None}


def at_least(bar: str, found: float | None, least: float, *, is_full: bool = True) -> Bar:
    """Judge a figure that should not be below `least`; it counts only if the load `is_full`."""
    return {"bar": bar, "found": found, "is_met": found >= least if is_full and found is not None else None}


def lines(bars: Iterable[Bar]) -> list[str]:
    """Return a line for each bar: met, missed or not measured, and what was found."""
    return [
        f"{_WORDS[bar['is_met']]}: {bar['bar']}" + ("" if bar["found"] is None else f" ({bar['found']:,.4g})")
        for bar in bars
    ]


def are_met(bars: Sequence[Bar]) -> bool:
    """Whether all are met; one that was not measured is not."""
    return all(bar["is_met"] for bar in bars)
