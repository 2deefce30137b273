"""Lengths of time as callers give them, in seconds, and as the cluster takes them, in whole milliseconds."""

import math
from datetime import timedelta
from typing import TypeAlias

Seconds: TypeAlias = float | timedelta
"""A length of time: a number of seconds, or a timedelta."""

EXAMPLE_RATE = "100/minute"
"""How a rate is written as a text."""
_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_RATE_UNITS = {"second": "s", "minute": "m", "hour": "h", "day": "d"}


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


def parse_rate(rate: str) -> tuple[int, float]:
    """Return the limit and the seconds of a text such as 100/minute or 5/10s. Raises ValueError."""
    limit, _, unit = (part.strip() for part in rate.partition("/"))
    unit = _RATE_UNITS.get(unit, unit)
    try:
        per_s = parse_s(f"1{unit}" if unit in _UNITS_S else unit, "limit")
        if int(limit) > 0 and unit[-1:].isalpha():
            return int(limit), per_s
    except ValueError:
        """Neither a number nor a length; below."""
    raise ValueError(f"limit: {rate!r} is not a rate; write it like {EXAMPLE_RATE}, 5/s or 20/10m")


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
