"""The clients that decorators use when they are given none, made with the first use from HOLDFAST_NODES."""

import asyncio
import threading

from holdfast._client import Client
from holdfast._process import after_fork
from holdfast._sync_client import SyncClient


class _Defaults:
    """The clients of this process: one for all threads, and one for each event loop."""

    def __init__(self) -> None:
        self._making = threading.Lock()
        self._sync: SyncClient | None = None
        self._by_loop: dict[asyncio.AbstractEventLoop, Client] = {}

    def client(self) -> Client:
        """Return that of the running loop. Its connections end with the loop."""
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
        with self._making:
            if self._sync is None:
                self._sync = SyncClient()
            return self._sync


_defaults = _Defaults()


def client() -> Client:
    """Return the client of the running event loop. Raises ValueError for wrong HOLDFAST_NODES."""
    return _defaults.client()


def sync_client() -> SyncClient:
    """Return the client of the threads of this process. Raises ValueError for wrong HOLDFAST_NODES."""
    return _defaults.sync_client()


def _forget() -> None:
    global _defaults  # noqa: PLW0603 - a child must not wait for a lock that a thread of its parent had
    _defaults = _Defaults()


after_fork(_forget)
