"""The event loop of one simulated process: asyncio's contract, driven by the scheduler of the world.

A run of the loop takes no true time but what its callbacks spend: a slow disk makes the process busy, and
what it does afterwards happens later. A process that is paused or dead runs nothing.
"""

import asyncio
import contextlib
import contextvars
import heapq
import socket
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakSet

from tests.simulation.world.loop_handles import Call, Timer
from tests.simulation.world.scheduler import Clock, Scheduler

T = TypeVar("T")

SPIN_MAX: Final = 100_000
"""Runs of a loop in one and the same microsecond: more is a loop that waits for time to pass."""


STOOD_US: Final = 50_000
"""A process that is busy for longer stands still."""


class Killed(BaseException):
    """The process ends here and now."""


class Wires(Protocol):
    """The network as a loop sees it."""

    def listen(self, loop: "NodeLoop", factory: Callable[[], Any], address: tuple[str, int]) -> Any:
        """Accept connections; return something to close."""

    async def connect(
        self, loop: "NodeLoop", factory: Callable[[], Any], address: tuple[str, int]
    ) -> tuple[Any, Any]:
        """Connect; return transport and protocol. Raises OSError."""


class Current:
    """Which process runs at the moment; None while the world itself acts."""

    loop: "NodeLoop | None" = None


class NodeLoop(asyncio.AbstractEventLoop):
    """The loop of one process. `told` hears of exceptions that nobody caught."""

    def __init__(
        self,
        scheduler: Scheduler,
        clock: Clock,
        name: str,
        current: Current,
        told: Callable[["NodeLoop", dict[str, Any]], None],
        *,
        wires: Wires | None = None,
        run_cost_us: int = 0,
    ) -> None:
        self.name = name
        self.clock = clock
        self.is_dead = False
        self.kill_after_handles: int | None = None
        self.stall_after_looks = 0
        """After so many looks at the clock the process stands still for `stall_us`; 0: it does not."""
        self.stall_us = 0
        self.stood_us = 0
        """Until when this process did not run the last time that it stood still for long."""
        self.on_kill: Callable[[], None] = _nothing
        self._scheduler = scheduler
        self._current = current
        self._told = told
        self._wires = wires
        self._run_cost_us = run_cost_us
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []
        self._timers_count = 0
        self._busy_until_us = 0
        self._wakes_at_us = -1
        self._wake_number = 0
        self._local_us = 0
        self._is_paused = False
        self._is_in_run = False
        self._spins = (0, 0)
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._context = contextvars.Context()

    # -- time -----------------------------------------------------------------------------------------------

    @property
    def now_us(self) -> int:
        """Return the true time at which this process is."""
        now_us = self._scheduler.now_us
        return max(now_us, self._busy_until_us)

    def local_us(self) -> int:
        """Return what this machine's clock shows. During a run it moves only with what is spent."""
        return self._local_us if self._is_in_run else self.clock.read(self.now_us)

    def look_at_clock(self) -> int:
        """Return what the machine's clock shows, as a line of the program asks for it: it may stall there."""
        if self.stall_after_looks:
            self.stall_after_looks -= 1
            if not self.stall_after_looks:
                self.spend(self.stall_us)
        return self.local_us()

    def time(self) -> float:
        """Return this machine's monotonic clock in seconds."""
        return self.local_us() / 1_000_000

    def spend(self, microseconds: int) -> None:
        """Be busy, or blocked, for a while of true time."""
        self._busy_until_us = self.now_us + microseconds
        self._local_us = self.clock.read(self._busy_until_us)
        if microseconds > STOOD_US:
            self.stood_us = self._busy_until_us

    @contextlib.contextmanager
    def not_blocked(self) -> Iterator[None]:
        """What is spent meanwhile does not make this process busy: a child of it is."""
        busy_until_us = self._busy_until_us
        try:
            yield
        finally:
            self._busy_until_us = busy_until_us

    # -- callbacks ------------------------------------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Run a callback in the next run of the loop."""
        del context
        handle = Call(callback, args)
        if not self.is_dead:
            self._ready.append(handle)
            if not self._is_in_run:
                self._arrange()
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback after a while of this machine's clock."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback when this machine's clock shows `when`."""
        del context
        handle = Timer(when, callback, args)
        if not self.is_dead:
            self._timers_count += 1
            when_us = -int(-when * 1_000_000 // 1)
            heapq.heappush(self._timers, (when_us, self._timers_count, handle))
            if not self._is_in_run:
                self._arrange()
        return handle

    def _arrange(self) -> None:
        """Plan the next run, if it is earlier than the one that is planned."""
        if self.is_dead or self._is_paused:
            return
        now_us = self._scheduler.now_us
        now_us = max(now_us, self._busy_until_us)
        if self._ready:
            when_us = now_us
        else:
            timers = self._timers
            while timers and timers[0][2]._cancelled:
                heapq.heappop(timers)
            if not timers:
                return
            when_us = self.clock.true_time(timers[0][0])
            when_us = max(when_us, now_us)
        if self._wakes_at_us < 0 or when_us < self._wakes_at_us:
            self._wakes_at_us = when_us
            self._wake_number += 1
            self._scheduler.at(when_us, self._run, self._wake_number)

    def call_now(self, callback: Callable[..., object], *args: Any) -> None:
        """Run a callback in the next run of the loop, which is at once if it is idle."""
        if self._ready or self.now_us > self._scheduler.now_us or self._current.loop is not None:
            self.call_soon(callback, *args)
        elif not self.is_dead:
            self._ready.append(Call(callback, args))
            self._wake_number += 1
            self._run(self._wake_number)

    def _run(self, wake_number: int) -> None:
        """Do what is ready now, as one run of asyncio's loop does."""
        if wake_number != self._wake_number or self.is_dead or self._is_paused:
            return
        self._wakes_at_us = -1
        self._look_for_spinning()
        ready, timers = self._ready, self._timers
        self._local_us = local_us = self.clock.read(self.now_us)
        while timers and timers[0][0] <= local_us:
            handle = heapq.heappop(timers)[2]
            if not handle._cancelled:
                ready.append(handle)
        current = self._current
        current.loop, self._is_in_run = self, True
        events._set_running_loop(self)
        try:
            for _ in range(len(ready)):
                one = ready.popleft()
                if one._cancelled:
                    continue
                self._call(one)
                if self.kill_after_handles is not None:
                    self._count_down()
                if self.is_closed():
                    break
        finally:
            events._set_running_loop(None)
            current.loop, self._is_in_run = None, False
        if self.is_closed():
            self._bury()
            return
        self._busy_until_us = self.now_us + self._run_cost_us
        self._arrange()

    def _call(self, handle: asyncio.Handle) -> None:
        try:
            handle._callback(*handle._args)  # type: ignore[attr-defined]
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - as asyncio's own loop does
            message = f"exception in callback {handle._callback!r}"  # type: ignore[attr-defined]
            self.call_exception_handler({"message": message, "exception": error})

    def _look_for_spinning(self) -> None:
        when_us, count = self._spins
        count = count + 1 if when_us == self._scheduler.now_us else 0
        self._spins = (self._scheduler.now_us, count)
        if count > SPIN_MAX:
            raise AssertionError(f"{self.name} runs without an end while no time passes")

    def _count_down(self) -> None:
        assert self.kill_after_handles is not None
        self.kill_after_handles -= 1
        if self.kill_after_handles <= 0:
            self.kill_after_handles = None
            self.on_kill()

    # -- life and death -------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Run nothing until `resume`."""
        self._is_paused = True
        self._wakes_at_us = -1
        self._wake_number += 1

    def resume(self) -> None:
        """Go on."""
        self._is_paused = False
        self.stood_us = self.now_us
        self._arrange()

    @property
    def is_held(self) -> bool:
        """Whether this process is stopped, or busy with what takes long."""
        return self._is_paused or self._busy_until_us > self._scheduler.now_us + STOOD_US

    @property
    def is_paused(self) -> bool:
        """Whether this process is stopped."""
        return self._is_paused

    def kill(self) -> None:
        """Run nothing any more."""
        if not self.is_dead:
            self.is_dead = True
            if not self._is_in_run:
                self._bury()

    def _bury(self) -> None:
        """End all coroutines, so that nothing of the dead process runs later by chance."""
        self._ready.clear()
        self._timers.clear()
        before = events._get_running_loop()
        running, self._current.loop = self._current.loop, self
        events._set_running_loop(self)
        try:
            for task in list(self._tasks):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coroutine = task.get_coro()
                _end(coroutine)
        finally:
            events._set_running_loop(before)
            self._current.loop = running
        self._tasks.clear()

    # -- asyncio's contract ---------------------------------------------------------------------------------

    def create_future(self) -> "asyncio.Future[Any]":
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        """Return a task of this loop."""
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=name, context=context or self._context)
        self._tasks.add(task)
        return task

    def is_running(self) -> bool:
        """Whether it runs."""
        return not self.is_dead

    def is_closed(self) -> bool:
        """Whether it is over."""
        return self.is_dead

    def get_debug(self) -> bool:
        """Return False."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Tell the world what nobody caught."""
        if not self.is_dead and not isinstance(context.get("exception"), Killed):
            self._told(self, context)

    def tell_failure(self, task: "asyncio.Task[Any]") -> None:
        """Tell the world when a task ended with an exception that nobody will look at."""
        if not task.cancelled() and task.exception() is not None:
            self.call_exception_handler({"message": "a task failed", "exception": task.exception()})

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_: Any
    ) -> Any:
        """Listen on the simulated network."""
        assert self._wires is not None, "this process has no network"
        return self._wires.listen(self, protocol_factory, (host, port))

    async def getaddrinfo(self, host: str, port: int, **_: Any) -> list[Any]:  # type: ignore[override]
        """Return the host itself: the simulated network goes by names."""
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port))]

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_: Any
    ) -> tuple[Any, Any]:
        """Connect over the simulated network."""
        assert self._wires is not None, "this process has no network"
        return await self._wires.connect(self, protocol_factory, (host, port))


def make_loop(
    scheduler: Scheduler,
    clock: Clock,
    name: str,
    current: Current,
    told: Callable[[NodeLoop, dict[str, Any]], None],
    *,
    wires: Wires | None = None,
    run_cost_us: int = 0,
) -> NodeLoop:
    """Return a loop. What it does not have of asyncio's contract raises NotImplementedError."""
    loop: type[Any] = NodeLoop
    made: NodeLoop = loop(scheduler, clock, name, current, told, wires=wires, run_cost_us=run_cost_us)
    return made


def _nothing() -> None:
    """Do nothing."""


def _end(coroutine: Any) -> None:
    """Close a coroutine of a dead process, whatever it does about it."""
    try:
        coroutine.close()
    except (Killed, Exception):  # noqa: BLE001 - the process is dead: nobody hears what it says
        return
