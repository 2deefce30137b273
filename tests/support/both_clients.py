"""Either client of the package behind one face, so that one test runs over both.

`SyncClient` and all that it gives are used with `await`, `async with` and `async for` here: every call runs
in a thread, the only one that uses the client, as if it were a program's main thread.
"""

import asyncio
import contextlib
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import holdfast

TWINS: dict[type, type] = {
    holdfast.SyncCells: holdfast.Cells,
    holdfast.SyncClient: holdfast.Client,
    holdfast.SyncElection: holdfast.Election,
    holdfast.SyncFence: holdfast.Fence,
    holdfast.SyncHold: holdfast.Hold,
    holdfast.SyncLeadership: holdfast.Leadership,
    holdfast.SyncLock: holdfast.Lock,
    holdfast.SyncRateLimiter: holdfast.RateLimiter,
    holdfast.SyncSemaphore: holdfast.Semaphore,
    holdfast.SyncTogether: holdfast.Together,
    holdfast.SyncSession: holdfast.Session,
    holdfast.SyncSessionContext: holdfast.SessionContext,
    holdfast.SyncTransaction: holdfast.Transaction,
    holdfast.SyncTransactionContext: holdfast.TransactionContext,
    holdfast.SyncWatch: holdfast.Watch,
    threading.Event: asyncio.Event,
}
"""What waits in a thread, by what is awaited."""
KINDS = ("asyncio", "threads")


@contextlib.asynccontextmanager
async def client_of(kind: str, nodes: str | list[str], **options: Any) -> AsyncIterator[holdfast.Client]:
    """Give a client of this kind, with the face of the asyncio one."""
    if kind == "asyncio":
        async with holdfast.Client(nodes, **options) as client:
            yield client
        return
    with ThreadPoolExecutor(max_workers=1) as thread:
        threaded = cast("holdfast.Client", Threaded(holdfast.SyncClient(nodes, **options), thread))
        async with threaded:
            yield threaded


class Threaded:
    """Something that waits in its thread, with the face of its twin."""

    def __init__(self, thing: Any, thread: ThreadPoolExecutor) -> None:
        self.thing = thing
        self._thread = thread
        self._twin = TWINS[type(thing)]
        self._iterator: Iterator[Any] | None = None

    async def in_thread(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call something in the thread."""
        bare = [_bare(arg) for arg in args]
        named = {name: _bare(option) for name, option in options.items()}
        loop = asyncio.get_running_loop()
        return self._wrap(await loop.run_in_executor(self._thread, functools.partial(call, *bare, **named)))

    def _wrap(self, thing: Any) -> Any:
        return Threaded(thing, self._thread) if type(thing) in TWINS else thing

    def __getattr__(self, name: str) -> Any:
        theirs = inspect.getattr_static(self._twin, name, None)
        ours = getattr(self.thing, name)
        if inspect.iscoroutinefunction(theirs):
            return functools.partial(self.in_thread, ours)
        if inspect.isasyncgenfunction(theirs):
            return lambda *args, **options: self._each(ours(*args, **options))
        if callable(ours):
            return lambda *args, **options: self._wrap(
                ours(*map(_bare, args), **{key: _bare(option) for key, option in options.items()})
            )
        return self._wrap(ours)

    async def _each(self, iterator: Iterator[Any]) -> AsyncIterator[Any]:
        end = object()
        while (item := await self.in_thread(next, iterator, end)) is not end:
            yield item

    async def __aenter__(self) -> Any:
        return await self.in_thread(self.thing.__enter__)

    async def __aexit__(self, *failure: object) -> None:
        await self.in_thread(self.thing.__exit__, *failure)

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        item = await self.in_thread(next, self.thing, _END)
        if item is _END:
            raise StopAsyncIteration
        return item


_END = object()
"""What an iterator gives in a thread when it has ended: StopIteration is not for another thread."""


def _bare(thing: Any) -> Any:
    """Return what a test got as the client gave it; callbacks get what tests get."""
    return thing.thing if isinstance(thing, Threaded) else thing
