"""A load of real clients that notes when anybody was granted a lock: the gaps are what a failure costs."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

import holdfast

TIMEOUT_S: Final = 10.0
"""The patience of every client: with less it would see errors, and the gap would not be longer."""
TTL_S: Final = 30.0
ERRORS_KEPT_MAX: Final = 5
LOOK_S: Final = 0.005
WAIT_S: Final = 60.0


class GrantLoad:
    """Clients that acquire and release a lock of their own while the `async with` lasts.

    `grants_s` are the moments of all grants in order, by the monotonic clock in seconds.
    """

    def __init__(self, nodes: Sequence[str], clients: int) -> None:
        self._nodes = nodes
        self._clients = clients
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []
        self.grants_s: list[float] = []
        self.errors_count = 0
        self.errors: list[str] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._work(number)) for number in range(self._clients)]
        try:
            await self.more(10 * self._clients)
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._end()

    async def _end(self) -> None:
        self._is_over = True
        _, late = await asyncio.wait(self._tasks, timeout=2 * TIMEOUT_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def more(self, count: int) -> None:
        """Wait until so many more locks have been granted. Raises OSError if that takes too long."""
        wanted, end_s = len(self.grants_s) + count, time.monotonic() + WAIT_S
        while len(self.grants_s) < wanted:
            if time.monotonic() > end_s:
                raise OSError(f"no {count} grants within {WAIT_S:.0f} s; errors: {self.errors}")
            await asyncio.sleep(LOOK_S)

    async def _work(self, number: int) -> None:
        """Be one client. It begins at a node of its own, so that all nodes have clients."""
        first = number % len(self._nodes)
        nodes = [*self._nodes[first:], *self._nodes[:first]]
        async with holdfast.Client(nodes, timeout=TIMEOUT_S, owner=f"bench-{number}") as client:
            for cycle in itertools.count():
                if self._is_over:
                    return
                try:
                    hold = await client.acquire(f"bench/{number}/{cycle}", ttl=TTL_S, wait=TIMEOUT_S)
                    self.grants_s.append(time.monotonic())
                    await hold.release()
                except holdfast.LockError as error:
                    self._failed(error)
                    await asyncio.sleep(LOOK_S)

    def _failed(self, error: holdfast.LockError) -> None:
        self.errors_count += 1
        if len(self.errors) < ERRORS_KEPT_MAX:
            self.errors.append(f"{type(error).__name__}: {error}")


def longest_gap_s(moments_s: Sequence[float], begin_s: float, end_s: float) -> float:
    """Return the longest time without any of the ordered moments, from `begin_s` to `end_s`."""
    inside = [moment_s for moment_s in moments_s if begin_s <= moment_s <= end_s]
    return max(after - before for before, after in itertools.pairwise([begin_s, *inside, end_s]))
