"""A cluster in memory, for tests of programs that use Holdfast."""

import os
import socket
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Self

from holdfast.client import portal
from holdfast.client.client import Client
from holdfast.testing._clock import HandClock
from holdfast.testing._connections import MemoryConnections
from holdfast.testing._node import HTTP
from holdfast.testing._thread import NodeThread
from holdfast.threads.sync_client import SyncClient
from holdfast.transport.transport import Transport
from holdfast.values.durations import Seconds, to_ms, to_s


class MemoryCluster:
    """A cluster in memory: the state machine and the HTTP API of real nodes, without disk and network.

    Its clock, which is also that of its clients, stands still until `advance`. So nothing expires while a
    debugger holds the test, and no test waits for a lease. It has one node, and lives in a thread of its own:
    clients of any event loop and any thread may use it together. A forked child cannot use it.
    """

    def __init__(self) -> None:
        self.clock = HandClock()
        self.thread = NodeThread(self.clock)
        self._end = weakref.finalize(self, self.thread.stop)
        self._end.atexit = False  # clients release at the end of a process; the thread ends by itself

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it. Clients find no node from then on: close them before."""
        self._end()

    # -- clients --------------------------------------------------------------------------------------------

    def client(self, *, timeout: Seconds = 10.0, owner: str | None = None) -> Client:
        """Return a client for asyncio. It is a `holdfast.Client`; see there."""
        return self.client_over(MemoryConnections(self.thread), timeout=timeout, owner=owner)

    def sync_client(self, *, timeout: Seconds = 10.0, owner: str | None = None) -> SyncClient:
        """Return a client for threads. It is a `holdfast.SyncClient`; see there."""
        return self.sync_client_over(MemoryConnections(self.thread), timeout=timeout, owner=owner)

    def client_over(
        self, connections: MemoryConnections, *, timeout: Seconds = 10.0, owner: str | None = None
    ) -> Client:
        """Return a client for asyncio that goes another way to the node. For Flaky."""
        timeout_s = to_s(timeout, "timeout")
        transport = Transport(
            (HTTP,), timeout_s, clock=self.clock, connections=connections, has_streams=False
        )
        return _MemoryClient(self, transport, owner)

    def sync_client_over(
        self, connections: MemoryConnections, *, timeout: Seconds = 10.0, owner: str | None = None
    ) -> SyncClient:
        """Return a client for threads that goes another way to the node. For Flaky."""
        return _MemorySyncClient(self.client_over(connections, timeout=timeout, owner=owner))

    # -- time -----------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The time of its clock, in seconds."""
        return self.clock.now_s()

    def advance(self, seconds: Seconds) -> None:
        """Move the clock forward at once, as if every program had been frozen for this long.

        It is moved by a millisecond more, so a lease of exactly this length is over then. Leases and waits
        that are over end, and waiters are granted. Clients renew nothing in between: they find out that time
        has passed when they run next. To let them renew, advance in steps of less than a third of a lease,
        and let them run after each.

        It returns when the cluster has done its part. May be called from any thread and any task.
        """
        forward_ms = to_ms(seconds, "seconds") + 1

        def work() -> None:
            self.clock.move(forward_ms)
            self.thread.node.let_time_pass()
            self.clock.fire_due()

        self.thread.call(work)

    # -- waits ----------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """How many requests wait in queues."""
        return self.thread.call(lambda: self.thread.node.waiting_count)

    @property
    def when_waiting(self) -> Callable[[], object] | None:
        """Called whenever a request has begun to wait in a queue; None (the default) does nothing.

        With `cluster.when_waiting = lambda: cluster.advance(5)` no test has to wait for a wait to end. It is
        called in the thread of the cluster, where clients for threads cannot be used.
        """
        return self.thread.node.when_waiting

    @when_waiting.setter
    def when_waiting(self, call: Callable[[], object] | None) -> None:
        self.thread.node.when_waiting = call


class _MemoryClient(Client):
    """A client that was given its way to the node. It keeps the cluster from being collected."""

    def __init__(self, cluster: MemoryCluster, transport: Transport, owner: str | None) -> None:
        # Not that of Client, which takes nodes and TLS from the environment.
        self._cluster = cluster
        self._transport = transport
        self._owner = owner or f"{socket.gethostname()}:{os.getpid()}"


class _MemorySyncClient(SyncClient):
    """A client for threads whose twin was given its way to the node."""

    def __init__(self, twin: Client) -> None:
        self._twin = twin
        portal.register(twin._transport)  # noqa: SLF001 - of the twin
