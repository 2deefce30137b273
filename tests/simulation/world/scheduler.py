"""True time of a simulated world, and the clocks of its machines.

Everything that happens is an event at an integer number of true microseconds; events of the same moment
happen in the order in which they were planned. Nobody in the world sees true time: machines have clocks.
"""

import heapq
from collections.abc import Callable
from typing import Any, Final

PPM: Final = 1_000_000


class Event:
    """Something that will happen, unless it is cancelled."""

    __slots__ = ("args", "call")

    def __init__(self, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.call: Callable[..., object] | None = call
        self.args = args

    def cancel(self) -> None:
        """Do not let it happen."""
        self.call = None
        self.args = ()


class Scheduler:
    """The only clock that is true, and everything that is going to happen."""

    def __init__(self) -> None:
        self.now_us = 0
        self.steps = 0
        self.is_stopped = False
        """Set when nothing more shall happen: a promise was broken."""
        self._heap: list[tuple[int, int, Event]] = []
        self._planned = 0

    def at(self, when_us: int, call: Callable[..., object], *args: Any) -> Event:
        """Let `call` happen at a true time; at once when it has passed."""
        event = Event(call, args)
        self._planned += 1
        heapq.heappush(self._heap, (max(when_us, self.now_us), self._planned, event))
        return event

    def after(self, delay_us: int, call: Callable[..., object], *args: Any) -> Event:
        """Let `call` happen in a while."""
        return self.at(self.now_us + delay_us, call, *args)

    def run_until(self, until_us: int) -> None:
        """Let everything happen up to a true time, which is now afterwards."""
        heap = self._heap
        while heap and heap[0][0] <= until_us and not self.is_stopped:
            when_us, _, event = heapq.heappop(heap)
            call = event.call
            if call is not None:
                self.now_us = when_us
                self.steps += 1
                call(*event.args)
        if not self.is_stopped:
            self.now_us = until_us


class Clock:
    """One machine's monotonic clock: runs at a rate of its own, may stop, begins anywhere."""

    def __init__(self, local_us: int, drift_ppm: int, true_us: int = 0) -> None:
        self._local_us = local_us
        self._true_us = true_us
        self._rate_ppm = PPM + drift_ppm
        self._is_stopped = False

    @property
    def drift_ppm(self) -> int:
        """How much faster than true time it runs, in millionths."""
        return self._rate_ppm - PPM

    def read(self, true_us: int) -> int:
        """Return what it shows at a true time."""
        if self._is_stopped:
            return self._local_us
        return self._local_us + (true_us - self._true_us) * self._rate_ppm // PPM

    def true_time(self, local_us: int) -> int:
        """Return the true time at which it will show `local_us`. It must run."""
        return self._true_us - ((self._local_us - local_us) * PPM // self._rate_ppm)

    def stop(self, true_us: int) -> None:
        """Stand still, as the clock of a suspended machine."""
        self._local_us, self._is_stopped = self.read(true_us), True

    def go(self, true_us: int) -> None:
        """Run again from where it stood."""
        assert self._is_stopped
        self._true_us, self._is_stopped = true_us, False

    def go_if_stopped(self, true_us: int) -> None:
        """Run again, if it does not."""
        if self._is_stopped:
            self.go(true_us)

    def set_drift(self, drift_ppm: int, true_us: int) -> None:
        """Run at another rate from now on."""
        if not self._is_stopped:
            self._local_us, self._true_us = self.read(true_us), true_us
        self._rate_ppm = PPM + drift_ppm

    def restart(self, local_us: int, true_us: int) -> None:
        """Begin anew, as after a boot."""
        self._local_us, self._true_us, self._is_stopped = local_us, true_us, False
