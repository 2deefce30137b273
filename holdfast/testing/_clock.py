"""A clock that stands still until it is moved, for the clients and the node of a cluster in memory."""

import asyncio
import contextlib
import heapq
import itertools
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

BEGIN_MS: Final = 1_000_000
"""Milliseconds that it shows at first."""


class HandTimer:
    """A call that is yet to come, on the loop that asked for it."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Let it not come."""
        self._callback = None

    def fire(self) -> None:
        """Let it come now, in its own loop, if that still runs."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it whoever waited there
            self._loop.call_soon_threadsafe(self._call)

    def _call(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    @property
    def is_over(self) -> bool:
        """Whether it needs no place any longer."""
        return self._callback is None


class HandClock:
    """Keeps the contract of `holdfast.values.clock.Clock`. Any thread may read and move it."""

    def __init__(self) -> None:
        self._now_ms = BEGIN_MS
        self._lock = threading.Lock()
        self._timers: list[tuple[float, int, HandTimer]] = []
        self._numbers = itertools.count()

    def now_s(self) -> float:
        """Return its time in seconds."""
        return self._now_ms / 1000

    @property
    def now_ms(self) -> int:
        """Its time in whole milliseconds."""
        return self._now_ms

    def move(self, forward_ms: int) -> None:
        """Show a later time. Timers that are due come with `fire_due`."""
        with self._lock:
            self._now_ms += forward_ms

    def fire_due(self) -> None:
        """Let the timers come whose time has come, in their order."""
        with self._lock:
            due = []
            while self._timers and self._timers[0][0] <= self.now_s():
                due.append(heapq.heappop(self._timers)[2])
        for timer in due:
            timer.fire()

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> HandTimer:
        """Call this on the running loop once the clock was moved so far; soon, if that is not at all."""
        timer = HandTimer(callback)
        with self._lock:
            self._timers = [item for item in self._timers if not item[2].is_over]
            heapq.heapify(self._timers)
            heapq.heappush(self._timers, (self.now_s() + delay_s, next(self._numbers), timer))
        if delay_s <= 0:
            self.fire_due()
        return timer

    async def sleep(self, delay_s: float) -> None:
        """Return once the clock was moved so far."""
        if delay_s <= 0:
            await asyncio.sleep(0)
            return
        moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not moved.done():
                moved.set_result(None)

        timer = self.call_later(delay_s, wake)
        try:
            await moved
        finally:
            timer.cancel()

    def timeout(self, delay_s: float) -> AbstractAsyncContextManager[object]:
        """Return what `asyncio.timeout` does, by this clock."""
        return self._timeout(delay_s)

    @contextlib.asynccontextmanager
    async def _timeout(self, delay_s: float) -> AsyncGenerator[None]:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(None if delay_s > 0 else 0) as limit:
            timer = self.call_later(delay_s, lambda: limit.reschedule(loop.time())) if delay_s > 0 else None
            try:
                yield
            finally:
                if timer is not None:
                    timer.cancel()

    async def pause(self, delay_s: float) -> float:
        """Skip a pause between two attempts: nobody moves the clock for it, and no real time passes."""
        await asyncio.sleep(0)
        return delay_s
