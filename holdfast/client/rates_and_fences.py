"""Rate limits, and fences that the cluster keeps for resources which cannot compare tokens themselves."""

from types import TracebackType

from holdfast.client.twins import ForThreads, waiting
from holdfast.operations import primitive_operations
from holdfast.operations.terms import wait_s
from holdfast.transport.transport import Transport
from holdfast.values.durations import Seconds, to_ms
from holdfast.values.errors import RateLimited, Refused, StaleToken
from holdfast.values.other_words import MadeByClient
from holdfast.values.words import Algorithm
from holdfast.wire.answers import Taken


class RateLimiter(MadeByClient):
    """A limit that all clients share: `limit` in each `per` seconds, or what the cluster knows it to be.

    `async with limiter:` is `await limiter.take()` before a block; nothing is given back after it.
    """

    def __init__(
        self,
        transport: Transport,
        name: str,
        *,
        limit: int | None,
        per_ms: int | None,
        algorithm: Algorithm | None,
    ) -> None:
        self._transport = transport
        self._name = name
        self._limit = limit
        self._per_ms = per_ms
        self._algorithm = algorithm

    async def __aenter__(self) -> Taken:
        return await self.take()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the block: what was taken is used up."""

    async def take(self, cost: int = 1, *, wait: Seconds | None = None) -> Taken:
        """Wait for a place in order of arrival, up to `wait`; return when its time has come.

        Raises RateLimited when it would take longer; 0 takes it now or not at all. If the caller is cancelled
        before, the cluster gives the place to others within ten seconds.
        """
        taken = await self._transport.call(
            primitive_operations.take(
                self._name,
                limit=self._limit,
                window_ms=self._per_ms,
                algorithm=self._algorithm,
                cost=cost,
                wait_ms=None if (seconds := wait_s(wait)) is None else to_ms(seconds, "wait"),
            )
        )
        if not taken.allowed:
            raise RateLimited(self._name, taken.retry_after_ms / 1000)
        return taken

    async def peek(self, cost: int = 1, *, is_stale: bool = False) -> Taken:
        """Return the answer that `take` would get now; nothing is taken. `is_stale` reads one node's view."""
        return await self._transport.call(
            primitive_operations.peek(
                self._name,
                limit=self._limit,
                window_ms=self._per_ms,
                algorithm=self._algorithm,
                cost=cost,
                is_stale=is_stale,
            )
        )

    async def try_take(self, cost: int = 1) -> Taken | None:
        """Take it now, or return None."""
        try:
            return await self.take(cost, wait=0)
        except RateLimited:
            return None


class Fence(MadeByClient):
    """The highest token that a resource has seen, kept by the cluster."""

    def __init__(self, transport: Transport, name: str) -> None:
        self._transport = transport
        self._name = name

    async def highest(self, *, is_stale: bool = False) -> int | None:
        """Return the highest token that the resource has seen, None if it has never seen one."""
        operation = primitive_operations.get_fence(self._name, is_stale=is_stale)
        return await self._transport.call(operation)

    async def advance(self, token: int) -> int:
        """Show a token to the resource; return the highest one seen. Raises StaleToken for a smaller one."""
        try:
            return await self._transport.call(primitive_operations.advance(self._name, token))
        except Refused as error:
            highest = error.problem.get("highest_token")
            if error.code == "stale-token" and isinstance(highest, int):
                raise StaleToken(token, highest) from error
            raise


class SyncRateLimiter(ForThreads[RateLimiter]):
    """A limit that all clients share, for threads. See `RateLimiter`."""

    take = waiting(RateLimiter.take)
    peek = waiting(RateLimiter.peek)
    try_take = waiting(RateLimiter.try_take)

    def __enter__(self) -> Taken:
        return self.take()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the block: what was taken is used up."""


class SyncFence(ForThreads[Fence]):
    """The highest token that a resource has seen, kept by the cluster, for threads. See `Fence`."""

    highest = waiting(Fence.highest)
    advance = waiting(Fence.advance)
