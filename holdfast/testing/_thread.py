"""The thread in which a cluster in memory lives, with an event loop that goes by a clock moved by hand."""

import asyncio
import contextlib
import threading
import time
import weakref
from collections.abc import Callable
from contextvars import Context
from typing import Final, TypeVar, TypeVarTuple

from aiohttp.web import Server

from holdfast.testing._clock import HandClock
from holdfast.testing._node import MemoryNode
from holdfast.testing._pipe import PipeEnd
from http_api.app import build_server
from http_api.server.authentication import Authentication
from http_api.server.connection_limits import PlaceLimits
from lockapi.allowed_names import EVERYWHERE, allowed
from lockapi.gateway import Gateway

T = TypeVar("T")
_Arguments = TypeVarTuple("_Arguments")

REQUEST_TIMEOUT_MS: Final = 5_000
_CLIENT: Final = "127.0.0.1"
"""Where all clients come from, as the node sees it."""
_IDLE_S: Final = 24 * 3600.0
"""Seconds that a connection may rest: so long somebody may look at a test in a debugger."""
_STOP_S: Final = 5.0
_PAUSE_S_MAX: Final = 1.0
"""Seconds below which a delay is a pause that a server makes so that others have their turn."""


class ClusterClosed(ConnectionError):
    """The cluster in memory is closed."""

    def __init__(self) -> None:
        super().__init__("the cluster in memory is closed, or another process has it")


class _HandLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers go by a clock that is moved by hand."""

    def __init__(self, clock: HandClock) -> None:
        self._hand_clock = clock
        self._let_go_at_s = 0.0
        super().__init__()

    def time(self) -> float:
        """Return the time of the clock."""
        return self._hand_clock.now_s() + (time.monotonic() - self._let_go_at_s if self._let_go_at_s else 0)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call this after a delay; after a mere pause at once: while the clock stands still, it has no end.

        What lasts for a time that clients know is set by `call_at`.
        """
        delay = delay if delay >= _PAUSE_S_MAX else 0
        return super().call_later(delay, callback, *args, context=context)

    def let_go(self) -> None:
        """Let its time run from now on, as that of other loops."""
        self._let_go_at_s = time.monotonic()


class NodeThread:
    """One node with the server that real nodes have, in a thread of its own.

    It is a daemon: a cluster that nobody closes keeps no process from its end.
    """

    def __init__(self, clock: HandClock) -> None:
        self._clock = clock
        self._loop = _HandLoop(clock)
        self._ends: weakref.WeakSet[PipeEnd] = weakref.WeakSet()
        self._is_stopped = False
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-memory", daemon=True)
        self._thread.start()
        self._started.wait()

    node: MemoryNode
    _server: Server

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._start())
            self._started.set()
            self._loop.run_forever()
            self._loop.run_until_complete(self._end())
        finally:
            self._started.set()
            self._loop.close()

    async def _start(self) -> None:
        self.node = MemoryNode()
        # Where a real node allows priorities and holds without a deadline is its setting: here everywhere.
        gateway = Gateway(self.node, allowed=allowed([EVERYWHERE], [EVERYWHERE]))
        self._server = build_server(
            self.node,
            REQUEST_TIMEOUT_MS,
            PlaceLimits(idle_s=_IDLE_S),
            authentication=Authentication(gateway),
        )

    async def _end(self) -> None:
        self._loop.let_go()
        for end in list(self._ends):
            end.close()
        self.node.begin_shutdown()
        await asyncio.sleep(0)  # the server hears that its connections are gone, and ends their calls
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_STOP_S)

    @property
    def is_running(self) -> bool:
        """Whether it can be asked anything."""
        return self._thread.is_alive() and not self._is_stopped

    def call(self, work: Callable[[], T]) -> T:
        """Do something in the thread, and return what comes of it. Raises ClusterClosed."""
        if threading.current_thread() is self._thread:
            return work()
        done = threading.Event()
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(work())
            except Exception as error:  # noqa: BLE001 - raised where it was asked for
                errors.append(error)
            finally:
                done.set()

        self._post(run)
        while not done.wait(_STOP_S):
            if not self._thread.is_alive():
                raise ClusterClosed
        if errors:
            raise errors[0]
        return results[0]

    def connect(self, protocol: asyncio.BaseProtocol) -> None:
        """Connect a client, from its own loop. Raises ClusterClosed."""
        near = PipeEnd(asyncio.get_running_loop(), _CLIENT)
        far = PipeEnd(self._loop, _CLIENT)
        near.join(far)
        self._post(lambda: self._take(far))
        near.begin(protocol)

    def _take(self, far: PipeEnd) -> None:
        self._ends.add(far)
        far.begin(self._server())

    def stop(self) -> None:
        """End all connections, and the thread."""
        self._is_stopped = True
        with contextlib.suppress(RuntimeError):  # it has ended before
            self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(_STOP_S)

    def _post(self, call: Callable[[], object]) -> None:
        if not self.is_running:
            raise ClusterClosed
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError as error:
            raise ClusterClosed from error
