"""Lengths of time as callers give them, in seconds, and as the cluster takes them, in whole milliseconds."""

import math
from datetime import timedelta
from typing import TypeAlias

Seconds: TypeAlias = float | timedelta
"""A length of time: a number of seconds, or a timedelta."""


def to_s(length: Seconds, name: str) -> float:
    """Return a length in seconds. Raises ValueError, naming the argument, for anything else."""
    seconds = length.total_seconds() if isinstance(length, timedelta) else float(length)
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{name}: {length!r} is not a length of time")
    return seconds


def to_ms(length: Seconds, name: str) -> int:
    """Return a length in milliseconds, rounded up: less than one is not none. Raises ValueError."""
    # What is not a whole number by the error of binary fractions alone is not rounded up.
    return math.ceil(round(to_s(length, name) * 1000, 3))
