"""The clients that decorators use when they are given none: those of `use`, or made from HOLDFAST_NODES."""

import asyncio
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, Union

from holdfast.client.client import Client
from holdfast.threads.sync_client import SyncClient
from holdfast.values.process import after_fork

if TYPE_CHECKING:
    from holdfast.threads.null_client import NullClient

AnyClient: TypeAlias = Union[Client, SyncClient, "NullClient"]
"""A client for tasks, one for threads, or a stand-in, which serves both."""


class _Defaults:
    """The clients of this process: one for all threads, and one for each event loop."""

    def __init__(self) -> None:
        self._making = threading.Lock()
        self._sync: SyncClient | None = None
        self._by_loop: dict[asyncio.AbstractEventLoop, Client] = {}
        self.for_tasks: Any = None
        self.for_threads: Any = None

    def client(self) -> Client:
        """Return that of the running loop. Its connections end with the loop."""
        if self.for_tasks is not None:
            given: Client = self.for_tasks
            return given
        loop = asyncio.get_running_loop()
        with self._making:
            client = self._by_loop.get(loop)
            if client is None:
                for ended in [known for known in self._by_loop if known.is_closed()]:
                    del self._by_loop[ended]
                client = self._by_loop[loop] = Client()
            return client

    def sync_client(self) -> SyncClient:
        """Return that of all threads. What it holds is released at the end of the process."""
        if self.for_threads is not None:
            given: SyncClient = self.for_threads
            return given
        with self._making:
            if self._sync is None:
                self._sync = SyncClient()
            return self._sync


_defaults = _Defaults()


class use:  # noqa: N801 - it is called, and may be used as a context
    """Let decorators that are given no client use these from now on, or while a block runs.

    A `Client` is for functions made with `async def`, a `SyncClient` for others, a `NullClient` for both.
    `holdfast.use(client)` counts for the whole process: call it once, where the program begins.
    `with holdfast.use(client):` takes back at the end what it has set, as tests need it.
    """

    def __init__(self, *clients: AnyClient) -> None:
        self._before = _defaults.for_tasks, _defaults.for_threads
        for client in clients:
            if not hasattr(client, "lock"):
                raise TypeError(f"use: {client!r} is not a client")
            if not isinstance(client, SyncClient):
                _defaults.for_tasks = client
            if not isinstance(client, Client):
                _defaults.for_threads = client

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _defaults.for_tasks, _defaults.for_threads = self._before


def client() -> Client:
    """Return the client of the running event loop. Raises ValueError for wrong HOLDFAST_NODES."""
    return _defaults.client()


def sync_client() -> SyncClient:
    """Return the client of the threads of this process. Raises ValueError for wrong HOLDFAST_NODES."""
    return _defaults.sync_client()


def _forget() -> None:
    global _defaults  # noqa: PLW0603 - a child must not wait for a lock that a thread of its parent had
    given = _defaults
    _defaults = _Defaults()
    _defaults.for_tasks, _defaults.for_threads = given.for_tasks, given.for_threads


after_fork(_forget)
