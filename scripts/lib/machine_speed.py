"""How slow this machine is just now: `python3 scripts/lib/machine_speed.py` prints it. Needs only Python.

Machines are shared: a processor second of one hour may be worth a quarter of that of another, and a machine
may stand still for a third of a second. What waits for elections has to know that, so that it is not the
machine that is tested.
"""

import multiprocessing
import os
import time
from typing import Final

REFERENCE_S: Final = 0.35
"""Seconds of the loop below on a machine that is called 1."""
STALL_S: Final = 0.1
"""So long a machine that is called 1 stands still at worst; one that stalls for twice as long is called 2."""
_ROUNDS: Final = 5_000_000
_TRIES: Final = 5
_LAP: Final = 1_000


def slowness() -> float:
    """Return how many times slower than the reference this machine is, at least 1, with all processors busy.

    By the clock on the wall: what other programs or the owner of the machine take counts.
    """
    cpus = len(os.sched_getaffinity(0))
    with multiprocessing.Pool(cpus) as pool:
        measured = pool.map(_measure, range(cpus), chunksize=1)
    return max(1.0, *(max(took_s / REFERENCE_S, stall_s / STALL_S) for took_s, stall_s in measured))


def _measure(_: int) -> tuple[float, float]:
    """Return the seconds of a fixed piece of work, the median of some tries, and the longest stall."""
    tries = [_loop_s() for _ in range(_TRIES)]
    return sorted(took_s for took_s, _ in tries)[_TRIES // 2], max(stall_s for _, stall_s in tries)


def _loop_s() -> tuple[float, float]:
    """Return the seconds of a fixed piece of work, and the longest that one small part of it took."""
    began_s = lap_s = time.perf_counter()
    stall_s, total = 0.0, 0
    for number in range(_ROUNDS):
        total += number
        if not number % _LAP:
            now_s = time.perf_counter()
            stall_s, lap_s = max(stall_s, now_s - lap_s), now_s
    return lap_s - began_s, stall_s


if __name__ == "__main__":
    print(round(slowness(), 2))
