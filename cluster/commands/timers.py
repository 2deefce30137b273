"""Timers whose work is guarded: whatever it raises stops the node, as it would in a tick.

A timer that breaks is not set again. Without the guard a leader could go on for ever without ending leases.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol


class Timers(Protocol):
    """What sets a timer: an event loop, or this module's guard around it."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> asyncio.TimerHandle:
        """Call `callback` after `delay` seconds."""


class GuardedTimers:
    """Sets timers on `loop` whose work is done by `run`, which lets nothing escape."""

    def __init__(self, loop: asyncio.AbstractEventLoop, run: Callable[[Callable[[], None]], None]) -> None:
        self._loop = loop
        self._run = run

    def call_later(self, delay: float, callback: Callable[[], None], /) -> asyncio.TimerHandle:
        """Call `callback` after `delay` seconds."""
        return self._loop.call_later(delay, self._run, callback)
