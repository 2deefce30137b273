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
from holdfast.client.portal import Call
from holdfast.stream.stream_link import StreamLink

TWINS: dict[type, type] = {
    holdfast.SyncAdmin: holdfast.Admin,
    holdfast.SyncCellWatch: holdfast.CellWatch,
    holdfast.SyncCells: holdfast.Cells,
    holdfast.SyncClient: holdfast.Client,
    holdfast.SyncElection: holdfast.Election,
    holdfast.SyncFence: holdfast.Fence,
    holdfast.SyncHold: holdfast.Hold,
    holdfast.SyncLeadership: holdfast.Leadership,
    holdfast.SyncListing: holdfast.Listing,
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
WAYS = ("http", "stream")
"""How what can go either way goes."""
OPEN_S = 20.0
"""Seconds that a stream may take to open."""


@contextlib.asynccontextmanager
async def client_of(
    kind: str, nodes: str | list[str], *, way: str = "", **options: Any
) -> AsyncIterator[holdfast.Client]:
    """Give a client of this kind, with the face of the asyncio one.

    It goes this `way` from the first call on; without one it decides itself, as those of users do.
    """
    if kind == "asyncio":
        async with holdfast.Client(nodes, **options) as client:
            await take(client, way)
            yield client
        return
    with ThreadPoolExecutor(max_workers=1) as thread:
        bare = holdfast.SyncClient(nodes, **options)
        await asyncio.to_thread(Call(lambda: take(bare._twin, way)).run)
        threaded = cast("holdfast.Client", Threaded(bare, thread))
        async with threaded:
            yield threaded


async def take(client: holdfast.Client, way: str) -> None:
    """Let a client go this way, on the loop that it runs on."""
    transport = client._transport
    assert transport.streams is not None
    if way == "stream":
        link = transport.streams.open()
        async with asyncio.timeout(OPEN_S):
            while not link.is_ready:
                assert link._task is not None
                if link._task.done():  # a machine that is busy may need more than one try
                    link = transport.streams.open()
                await asyncio.sleep(0.005)
    elif way == "http":
        transport.streams = None


def beneath(client: holdfast.Client) -> holdfast.Client:
    """Return the asyncio client that a client is, or stands on."""
    return client.thing._twin if isinstance(client, Threaded) else client


def stream_of(client: holdfast.Client) -> StreamLink | None:
    """Return the stream of a client, if there is one."""
    streams = beneath(client)._transport.streams
    return None if streams is None else streams._link


def is_streaming(client: holdfast.Client) -> bool:
    """Whether a client has a stream that takes calls now."""
    link = stream_of(client)
    return link is not None and link.is_ready


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
        if inspect.iscoroutinefunction(theirs) or name in _AWAITED:
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


_AWAITED = frozenset({"acquire", "open"})
"""Calls that return what may be awaited, or be used as a context."""
_END = object()
"""What an iterator gives in a thread when it has ended: StopIteration is not for another thread."""


def _bare(thing: Any) -> Any:
    """Return what a test got as the client gave it; callbacks get what tests get."""
    return thing.thing if isinstance(thing, Threaded) else thing
