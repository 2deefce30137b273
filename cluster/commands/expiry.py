"""The leader's alarms: when something in the state is due, time must be made to pass in the log."""

import asyncio
from collections.abc import Callable
from typing import Final

from cluster.commands.clock import ClusterClock
from cluster.commands.timers import Timers
from lockstate.machine import LockMachine

WAKE_MS_MAX: Final = 60_000
"""The longest sleep; a later deadline is looked at again then."""
RETRY_MS: Final = 20
"""After the alarm, until the entry that it asked for has been applied."""
FORGET_PAUSE_MS: Final = 2_000
"""Between two entries of an idle cluster that only forget: each costs all nodes a sync, and forgets a limited
number. A million outcomes, the most there can be, are gone after 17 minutes."""


def forgetting_ms(forgettable_ms: int | None, now_ms: int) -> int | None:
    """Return when an entry is worth its cost that only forgets; None: never.

    `forgettable_ms` is when the oldest memory may go, `now_ms` the time of the newest entry, which has
    forgotten what it could.
    """
    return None if forgettable_ms is None else max(forgettable_ms, now_ms + FORGET_PAUSE_MS)


class Expiry:
    """One timer for the earliest deadline, in cluster time. `pass_time` proposes an entry."""

    def __init__(self, timers: Timers, clock: ClusterClock, pass_time: Callable[[], None]) -> None:
        self._timers = timers
        self._clock = clock
        self._pass_time = pass_time
        self._deadline_ms: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at_ms = 0

    def arm(self, deadline_ms: int | None) -> None:
        """Wake up when cluster time has passed `deadline_ms`; None: never. Cheap when little changes.

        A timer that would ring too early is left alone: it looks again.
        """
        self._deadline_ms = deadline_ms
        if deadline_ms is not None and (self._timer is None or deadline_ms < self._wakes_at_ms):
            self._set_timer(deadline_ms)

    def stop(self) -> None:
        """Never wake again, unless armed anew."""
        self._deadline_ms = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, deadline_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # A deadline is over only when time has passed it: one millisecond more.
        sleep_ms = min(max(deadline_ms + 1 - self._clock.now_ms(), 1), WAKE_MS_MAX)
        self._wakes_at_ms = deadline_ms
        self._timer = self._timers.call_later(sleep_ms / 1000, self._ring)

    def _ring(self) -> None:
        self._timer = None
        deadline_ms = self._deadline_ms
        if deadline_ms is None:
            return
        now_ms = self._clock.now_ms()
        if now_ms > deadline_ms:
            self._pass_time()
            deadline_ms = now_ms + RETRY_MS
        self._set_timer(deadline_ms)


class Alarms:
    """A leader's alarms by its state: for what ends, and for what may be forgotten. One thread."""

    def __init__(self, timers: Timers, clock: ClusterClock, pass_time: Callable[[], None]) -> None:
        """`pass_time` proposes an entry."""
        self._ends = Expiry(timers, clock, pass_time)
        self._forgetting = Expiry(timers, clock, pass_time)

    def arm(self, machine: LockMachine) -> None:
        """Set the alarms by this state."""
        self._ends.arm(machine.next_deadline_ms())
        self._forgetting.arm(forgetting_ms(machine.next_forgetting_ms(), machine.now_ms))

    def stop(self) -> None:
        """Never ring again, unless armed anew."""
        self._ends.stop()
        self._forgetting.stop()
