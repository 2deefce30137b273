"""How slow this machine is just now. Needs only Python.

`python3 scripts/lib/machine_speed.py` prints three numbers: how many times slower than usual it is, its
longest stall in milliseconds, and how many times longer than usual nodes should wait for a leader.

Machines are shared: a processor second of one hour may be worth a quarter of that of another, and a machine
may stand still for a third of a second. What waits for elections has to know that, so that it is not the
machine that is tested.
"""

import os
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Final, NamedTuple

REFERENCE_S: Final = 0.35
"""Seconds of the loop below on a machine that is called 1."""
STALL_S: Final = 0.1
"""Stalls up to here depose no leader; nodes of a machine that stalls for twice as long wait twice as long."""
MEASURED_S_MAX: Final = 120.0
_ROUNDS: Final = 5_000_000
_TRIES: Final = 5
_LAP: Final = 1_000


class Speed(NamedTuple):
    """How many times slower than the reference a machine is, at least 1; its longest stall in seconds."""

    slowness: float
    stall_s: float

    @property
    def patience(self) -> float:
        """How many times longer than usual nodes should wait for a leader: one stall may depose it."""
        return max(self.slowness, self.stall_s / STALL_S)


def measure() -> Speed:
    """Return how slow this machine is with all processors busy, by the clock on the wall.

    So what other programs or the owner of the machine take counts. Raises TimeoutError, and BrokenProcessPool
    when one of the processes that measure was killed.
    """
    cpus = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(cpus) as pool:
        measured = list(pool.map(_measure, range(cpus), timeout=MEASURED_S_MAX))
    slowness = max(took_s for took_s, _ in measured) / REFERENCE_S
    return Speed(max(slowness, 1.0), max(stall_s for _, stall_s in measured))


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
    found = measure()
    print(f"{found.slowness:.2f} {1000 * found.stall_s:.0f} {found.patience:.2f}")
