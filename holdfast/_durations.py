"""Lengths of time as callers give them, in seconds, and as the cluster takes them, in whole milliseconds."""

import math
from datetime import timedelta
from typing import TypeAlias

Seconds: TypeAlias = float | timedelta
"""A length of time: a number of seconds, or a timedelta."""

_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_s(length: "Seconds | str", name: str) -> float:
    """Return a length in seconds that may also be a text such as 30s, 5m or 24h. Raises ValueError."""
    if not isinstance(length, str):
        return to_s(length, name)
    unit = next((unit for unit in _UNITS_S if length.endswith(unit)), "")
    try:
        return to_s(float(length.removesuffix(unit)) * _UNITS_S[unit], name)
    except (KeyError, ValueError):
        raise ValueError(
            f"{name}: {length!r} is not a length of time; write it like 30s, 5m or 24h"
        ) from None


def to_s(length: Seconds, name: str) -> float:
    """Return a length in seconds. Raises ValueError, for another type TypeError; both name the argument."""
    if isinstance(length, (bool, str, bytes)) or length is None:
        raise TypeError(f"{name}: {length!r} is a {type(length).__name__}; give seconds, or a timedelta")
    seconds = length.total_seconds() if isinstance(length, timedelta) else float(length)
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{name}: {length!r} is not a length of time")
    return seconds


def to_ms(length: Seconds, name: str) -> int:
    """Return a length in milliseconds, rounded up: less than one is not none. Raises as `to_s` does."""
    # What is not a whole number by the error of binary fractions alone is not rounded up.
    return math.ceil(round(to_s(length, name) * 1000, 3))
