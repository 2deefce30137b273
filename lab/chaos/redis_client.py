"""A client of the lab that takes its locks with an unmodified library for Redis, and records what it says.

The library tries again by itself what it got no answer to. Each such attempt counts as lost unless it surely
had no effect, so that the history says what may have been granted without anybody hearing of it.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, ClassVar, Final, Protocol, Self, TypeVar

import redis
from pottery import ExtendUnlockedLock, QuorumIsImpossible, Redlock, ReleaseUnlockedLock
from redis.backoff import ExponentialBackoff
from redis.exceptions import BusyLoadingError, LockError, RedisError
from redis.retry import Retry

from lab.chaos.client import Client
from lab.chaos.history import Operation, Witnessed, public_id
from lab.chaos.lab import Lab, now_ns
from scripts.lib.ports import HOST

T = TypeVar("T")

TIMEOUT_S: Final = 3.0
"""How long the library listens to a node before it asks it again, on another connection."""
RETRIES_COUNT: Final = 3
GIVEN_BACK_MS: Final = 2_000
"""Within how many milliseconds, and a tick of patience, a node that lives has given back what it granted to
an attempt whose client was gone: a second for its client to come again, and a second between two tries."""
NOT_OWNED: Final = (LockError, ReleaseUnlockedLock, ExtendUnlockedLock)
"""What libraries raise if a lock is not, or no longer, the caller's."""
FAILED: Final = (RedisError, QuorumIsImpossible, OSError)

logging.getLogger("pottery").setLevel(logging.CRITICAL)  # it logs each error that it raises, with a traceback


class LibraryLock(Protocol):
    """A lock of a library."""

    def acquire(self) -> bool:
        """Try to take it; return whether that was granted."""

    def extend(self) -> None:
        """Let it last its time from now on."""

    def release(self) -> None:
        """Give it back."""

    @property
    def place(self) -> tuple[str, str | bytes]:
        """Return its key and its value."""
        ...


class RedisPyLock:
    """The `Lock` of redis-py."""

    def __init__(self, client: redis.Redis, key: str, ttl_ms: int) -> None:
        self._lock = client.lock(key, timeout=ttl_ms / 1000, thread_local=False)
        self._key = key

    def acquire(self) -> bool:
        """Try to take it."""
        return bool(self._lock.acquire(blocking=False))

    def extend(self) -> None:
        """Let it last its time from now on."""
        self._lock.reacquire()

    def release(self) -> None:
        """Give it back."""
        self._lock.release()

    @property
    def place(self) -> tuple[str, str | bytes]:
        """Return its key and its value."""
        return self._key, self._lock.local.token or b""


class PotteryLock:
    """The `Redlock` of pottery, with the cluster as its one server."""

    def __init__(self, client: redis.Redis, key: str, ttl_ms: int) -> None:
        self._lock = Redlock(
            key=key, masters={client}, auto_release_time=ttl_ms / 1000, raise_on_redis_errors=True
        )

    def acquire(self) -> bool:
        """Try to take it."""
        return bool(self._lock.acquire(blocking=False))

    def extend(self) -> None:
        """Let it last its time from now on."""
        self._lock.extend()

    def release(self) -> None:
        """Give it back."""
        self._lock.release()

    @property
    def place(self) -> tuple[str, str | bytes]:
        """Return its key and its value."""
        return self._lock.key, self._lock._uuid  # noqa: SLF001 - HF.TOKEN asks for it, and nothing else tells


class CountingRetry(Retry):
    """The retries of redis-py, which also count how many attempts may have had an effect."""

    def __init__(self) -> None:
        super().__init__(ExponentialBackoff(cap=0.5, base=0.05), RETRIES_COUNT)
        self.lost_count = 0

    def __deepcopy__(self, memo: object) -> Self:
        """Return itself: each connection of the library makes a copy, and all are to count together."""
        del memo
        return self

    def call_with_retry(self, do: Callable[[], T], *args: Any, **options: Any) -> T:
        """Do something, again and again until there is an answer."""

        def counted() -> T:
            try:
                return do()
            except (RedisError, OSError) as error:
                self.lost_count += may_have_effect(error)
                raise

        return super().call_with_retry(counted, *args, **options)


def may_have_effect(error: Exception) -> bool:
    """Whether what ended with this error may have been done: not if it was refused, or never sent."""
    is_connection = isinstance(error, redis.ConnectionError | redis.TimeoutError | OSError)
    return is_connection and not isinstance(error, BusyLoadingError) and "connecting to" not in str(error)


class RedisClient(Client):
    """One client of a library: it asks one thing at a time, in a thread of its own."""

    library: ClassVar[type[RedisPyLock | PotteryLock]] = RedisPyLock
    names: ClassVar[str] = "redis/0/"
    """How the names of locks begin whose keys this library makes."""

    def __init__(self, lab: Lab, workload: str, number: int, *, node: str = "") -> None:
        super().__init__(lab, workload, number, node=node)
        self._thread = ThreadPoolExecutor(1)
        self._retry = CountingRetry()
        self._clients = {
            node_id: redis.Redis(
                host=HOST, port=port, client_name=self.name, socket_timeout=TIMEOUT_S, retry=self._retry
            )
            for node_id, port in lab.redis_ports.items()
        }

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close all connections."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        for client in self._clients.values():
            client.close()
        await super().__aexit__(exc_type, exc, traceback)

    def _next_node(self, attempts: int) -> str:
        """Return the node to ask: of those that serve clients of Redis."""
        nodes = sorted(self._clients)
        if self.node:
            return self.node
        self._turn += attempts > 0
        return nodes[self._turn % len(nodes)]

    async def take(self, name: str, ttl_ms: int) -> tuple[LibraryLock, Operation] | None:
        """Try to take a lock; return it with what was recorded, None if it was not granted."""
        node = self._next_node(0)
        lock = self.library(self._clients[node], name.removeprefix(self.names), ttl_ms)
        operation = self._begin("acquire", name, node)
        operation.arguments = {
            "owner": f"{self.name}@{HOST}", "ttl_ms": ttl_ms, "given_back_ms": GIVEN_BACK_MS,
        }  # fmt: skip
        try:
            is_granted = await self._run(operation, lock.acquire)
            if is_granted is None:
                self.move_on()
            elif is_granted:
                operation.lost += 1  # unless its token is told
                await self._note_grant(operation, lock, ttl_ms)
            else:
                operation.outcome, operation.code = "refused", "lock-held"
        finally:
            self.lab.history.write(operation)
        return (lock, operation) if operation.outcome == "ok" else None

    async def extend(self, lock: LibraryLock, grant: Operation) -> None:
        """Let a lock last as long again as when it was taken."""
        ttl_ms = grant.arguments["ttl_ms"]
        await self._use("renew", lock.extend, grant, {"expires_in_ms": ttl_ms}, ttl_ms=ttl_ms)

    async def give_back(self, lock: LibraryLock, grant: Operation) -> None:
        """Release a lock."""
        await self._use("release", lock.release, grant, {})

    async def _use(
        self, kind: str, act: Callable[[], None], grant: Operation, result: dict[str, Any], **arguments: Any
    ) -> None:
        """Do something with a lock, and record what its library said."""
        operation = self._begin(kind, grant.name, grant.node)
        operation.arguments = {"hold": grant.result["hold"], **arguments}

        def acted() -> bool:
            act()
            return True

        try:
            if await self._run(operation, acted):
                operation.outcome, operation.code = "ok", ""
                operation.result = {**result, "sent_ns": operation.call_ns}
        finally:
            self.lab.history.write(operation)

    async def _note_grant(self, operation: Operation, lock: LibraryLock, ttl_ms: int) -> None:
        """Record a grant with its token. A hold that is gone while its lease lasts is what must not be."""
        key, value = lock.place
        until_s = time.monotonic() + self.lab.patience_s
        token = told = None
        while told is None and time.monotonic() < until_s:
            told, token = await asyncio.get_running_loop().run_in_executor(
                self._thread, self._token, self._next_node(0), key, value
            )
        asked_ns = now_ns()
        if token is not None:
            operation.outcome, operation.code, operation.lost = "ok", "", operation.lost - 1
            hold = public_id(value if isinstance(value, str) else value.decode())
            operation.result = {
                "hold": hold, "token": token, "expires_in_ms": ttl_ms, "sent_ns": operation.call_ns,
            }  # fmt: skip
        elif told and asked_ns < operation.call_ns + ttl_ms * 1_000_000:
            text = f"{operation.name} was granted to {self.name}, and is not held while its lease lasts"
            self.lab.history.write(Witnessed(at_ns=asked_ns, text=text))

    def _token(self, node: str, key: str, value: str | bytes) -> tuple[bool | None, int | None]:
        """Ask for the token of a lock; return whether there was an answer, and the token."""
        ask: Any = self._clients[node].execute_command
        try:
            return True, ask("HF.TOKEN", key, value)
        except (RedisError, OSError):
            self.move_on()
            return None, None

    async def _run(self, operation: Operation, act: Callable[[], bool]) -> bool | None:
        """Let the library do something; return what it says, None if it failed, and record what that means.

        A lock that is not one's own may have been given back by an attempt that was lost.
        """
        self._retry.lost_count = 0
        said = None
        try:
            said = await asyncio.get_running_loop().run_in_executor(self._thread, act)
        except NOT_OWNED:
            operation.code = "lease-expired"
        except FAILED as error:
            operation.code = type(error).__name__
        operation.return_ns = now_ns()
        operation.lost = self._retry.lost_count
        operation.attempts += operation.lost
        operation.outcome = "unknown" if operation.lost or said else "refused"
        return said

    def _begin(self, kind: str, name: str, node: str) -> Operation:
        """Return an operation that begins now."""
        began_ns = now_ns()
        return Operation(
            id=self.lab.history.next_id(),
            client=self.name,
            bound=self.node,
            workload=self.workload,
            kind=kind,
            name=name,
            node=node,
            call_ns=began_ns,
            return_ns=began_ns,
            outcome="unknown",
            code="cancelled",
        )


class PotteryClient(RedisClient):
    """A client of pottery."""

    library = PotteryLock
    names = "redis/0/redlock:"
