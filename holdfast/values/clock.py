"""The clock that a client counts its leases by, and the waits that belong to it.

Every client has that of this machine; tests bring one that stands still until it is moved (testing/clock.py).
What only paces the network, such as probes, is not counted here: it takes real time in tests, too.
"""

import asyncio
import functools
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol


def _monotonic() -> Callable[[], float]:
    """Return what reads the clock that goes on while this machine is suspended: the cluster does not stop.

    Linux and macOS have it, under different names. Elsewhere, as on Windows, it is Python's own.
    """
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):
        clock = getattr(time, name, None)
        if clock is not None:
            return functools.partial(time.clock_gettime, clock)
    return time.monotonic


now_s: Final[Callable[[], float]] = _monotonic()
"""Reads this machine's monotonic clock, in seconds."""


class Timer(Protocol):
    """A call that is yet to come."""

    def cancel(self) -> None:
        """Let it not come."""


class Clock(Protocol):
    """A clock that only goes forward, for clients on any event loop."""

    def now_s(self) -> float:
        """Return its time in seconds, counted from anywhere."""
        ...

    async def sleep(self, delay_s: float) -> None:
        """Return after so long by this clock."""
        ...

    def timeout(self, delay_s: float) -> AbstractAsyncContextManager[object]:
        """Return what `asyncio.timeout` does, by this clock."""
        ...

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        """Call this on the running loop after so long by this clock."""
        ...

    async def pause(self, delay_s: float) -> float:
        """Wait between two attempts; return how many of these seconds were skipped, though they count."""
        ...


class _RealClock:
    """That of this machine."""

    now_s = staticmethod(now_s)

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)

    def timeout(self, delay_s: float) -> AbstractAsyncContextManager[object]:
        return asyncio.timeout(delay_s)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(delay_s, callback)

    async def pause(self, delay_s: float) -> float:
        await asyncio.sleep(delay_s)
        return 0.0


REAL: Final[Clock] = _RealClock()
"""The clock of this machine."""
