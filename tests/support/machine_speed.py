"""How fast this machine is just now, for the few tests that hold a figure against it."""

import time

REFERENCE_S = 0.35
"""Processor seconds of the loop below on the machine that bounds in tests were measured on."""
_ROUNDS = 5_000_000
_TRIES = 3


def slowness() -> float:
    """Return how many times slower than the reference this machine is, at least 1.

    Machines are shared: a processor second of one hour may be worth a quarter of that of another.
    """
    return max(1.0, min(_loop_s() for _ in range(_TRIES)) / REFERENCE_S)


def _loop_s() -> float:
    """Return the processor seconds of a fixed piece of work."""
    began_s = time.process_time()
    total = 0
    for number in range(_ROUNDS):
        total += number
    return time.process_time() - began_s
