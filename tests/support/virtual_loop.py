"""An event loop on virtual milliseconds, for code that reads its clock and sets timers. No callback is late.

Futures are those of the running loop. Whole processes on virtual time are in tests/simulation.
"""

import asyncio
from collections.abc import Callable
from typing import Any, cast


class VirtualTimer:
    """One call_later."""

    def __init__(self, at_ms: float, callback: Callable[[], None]) -> None:
        self.at_ms = at_ms
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        """Never call."""
        self.is_cancelled = True


class VirtualLoop:
    """Time passes in `run_to` and `run_ms` only; timers are called in order."""

    def __init__(self, at_ms: int = 0) -> None:
        self.at_ms = at_ms
        self.timers: list[VirtualTimer] = []

    @property
    def as_loop(self) -> asyncio.AbstractEventLoop:
        """This loop, as the code under test takes it."""
        return cast("asyncio.AbstractEventLoop", self)

    @property
    def waiting(self) -> list[VirtualTimer]:
        """The timers that are set."""
        return [timer for timer in self.timers if not timer.is_cancelled]

    def time(self) -> float:
        """Return the time in seconds."""
        return self.at_ms / 1000

    def create_future(self) -> "asyncio.Future[Any]":
        """Return a future of the running loop."""
        return asyncio.get_running_loop().create_future()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> VirtualTimer:
        """Set a timer."""
        self.timers.append(VirtualTimer(self.at_ms + delay_s * 1000, callback))
        return self.timers[-1]

    def run_ms(self, milliseconds: int) -> None:
        """Let time pass."""
        self.run_to(self.at_ms + milliseconds)

    def run_to(self, end_ms: int) -> None:
        """Let time pass up to `end_ms`."""
        while due := [timer for timer in self.waiting if timer.at_ms <= end_ms]:
            timer = min(due, key=lambda timer: timer.at_ms)
            self.timers.remove(timer)
            # A timer of a loop may come a little early by the clock: whole milliseconds only.
            self.at_ms = max(self.at_ms, int(timer.at_ms))
            timer.callback()
        self.at_ms = end_ms
