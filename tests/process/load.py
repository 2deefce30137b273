"""A load of clients that work as users do, through the SDK, and write down what they are told."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self, TypeVar

import holdfast
from holdfast.values.clock import now_s
from tests.process.history_checkers import FAILED, GRANTED, REFUSED, RELEASED, Operation

T = TypeVar("T")

TIMEOUT_S = 30.0
"""The patience of every client: three nodes have started again by then, even on a slow machine."""
TTL_MS = 60_000
KEPT_TTL_MS = 3_600_000
"""What is kept for good is held when a test ends, however long it took."""
WAIT_MS = 20_000


class Load:
    """Clients that acquire and release in a loop while the `async with` lasts, recorded in `history`.

    Names are one of each client's own ("unique/..."), taken anew each time, and a few that all of them queue
    for ("shared/..."). A client keeps one hold in `keep_every` for good ("kept/..."), and lets the lease of
    one in `forget_every` shared ones end instead of releasing it.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        prefix: str,
        clients: int = 6,
        shared: int = 2,
        keep_every: int = 0,
        forget_every: int = 0,
        ttl_ms: int = TTL_MS,
        wait_ms: int = WAIT_MS,
        tls: holdfast.Tls | None = None,
    ) -> None:
        self._urls = urls
        self._tls = tls
        self._prefix = prefix
        self._clients = clients
        self._shared = shared
        self._keep_every = keep_every
        self._forget_every = forget_every
        self._ttl_ms = ttl_ms
        self._wait_s = wait_ms / 1000
        self._is_stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self.history: list[Operation] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._work(client)) for client in range(self._clients)]
        await self.grants(5 * self._clients)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_stopping = True
        done, late = await asyncio.wait(self._tasks, timeout=2 * TIMEOUT_S + WAIT_MS / 1000)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        assert not late, f"{len(late)} clients hang"
        for task in done:
            task.result()

    async def grants(self, count: int, timeout_s: float = 60.0) -> None:
        """Wait until so many more acquires have been granted."""
        seen = len(self.history)
        async with asyncio.timeout(timeout_s):
            while sum(operation.outcome == GRANTED for operation in self.history[seen:]) < count:
                # A worker that broke would otherwise be seen only as a timeout.
                for task in self._tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.01)

    async def _work(self, client: int) -> None:
        """Be one client."""
        choices = random.Random(client)
        async with holdfast.Client(
            self._urls, timeout=TIMEOUT_S, owner=f"client-{client}", tls=self._tls
        ) as sdk:
            for cycle in itertools.count(1):
                if self._is_stopping:
                    return
                is_kept = self._keep_every > 0 and cycle % self._keep_every == 0
                is_shared = not is_kept and self._shared > 0 and choices.random() < 1 / 4
                if is_kept:
                    name = f"{self._prefix}/kept/{client}/{cycle}"
                elif is_shared:
                    name = f"{self._prefix}/shared/{choices.randrange(self._shared)}"
                else:
                    name = f"{self._prefix}/unique/{client}/{cycle % 10}"
                is_forgotten = (
                    is_shared and self._forget_every > 0 and choices.randrange(self._forget_every) == 0
                )
                hold = await self._acquire(client, sdk, name, KEPT_TTL_MS if is_kept else self._ttl_ms)
                if hold is not None and not is_kept and not is_forgotten:
                    await self._release(client, hold)

    async def _acquire(
        self, client: int, sdk: holdfast.Client, name: str, ttl_ms: int
    ) -> holdfast.Hold | None:
        operation = Operation(client=client, kind="acquire", name=name, started_s=now_s())
        hold = await self._record(
            operation, GRANTED, lambda: sdk.acquire(name, ttl=ttl_ms / 1000, wait=self._wait_s, renew=False)
        )
        if hold is not None:
            operation.token, operation.hold_id = hold.token, hold.hold_id
            operation.valid_until_s = hold.lease.valid_until_s
        return hold

    async def _release(self, client: int, hold: holdfast.Hold) -> None:
        operation = Operation(
            client=client,
            kind="release",
            name=hold.name,
            started_s=now_s(),
            token=hold.token,
            hold_id=hold.hold_id,
        )
        await self._record(operation, RELEASED, hold.release)

    async def _record(self, operation: Operation, good: str, send: Callable[[], Awaitable[T]]) -> T | None:
        """Write down a request before it is sent, and its outcome."""
        self.history.append(operation)
        answer = None
        try:
            answer = await send()
            operation.outcomes += (good,)
        except holdfast.Refused as error:
            operation.outcomes += (REFUSED,)
            operation.detail = str(error)
        except holdfast.LockError as error:
            operation.outcomes += (FAILED,)
            operation.detail = f"{type(error).__name__}: {error}"
        operation.ended_s = now_s()
        return answer
