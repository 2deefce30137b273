"""Stand-ins that grant everything, for tests of code that only wants something like a lock."""

import inspect
import itertools
import math
from collections.abc import Generator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from holdfast._client import Client
from holdfast._errors import LeaseLost
from holdfast._lease import RELEASED
from holdfast._names import Name, to_name

T = TypeVar("T")


class _Done(Generic[T]):
    """A result that may be awaited, or not: the same stand-in serves tasks and threads."""

    def __init__(self, value: T) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, None, T]:
        yield from ()
        return self._value


class NullHold:
    """A hold of nothing. It is valid until it is released, for as long as you like."""

    def __init__(self, names: tuple[str, ...], token: int, mode: str = "exclusive") -> None:
        self.names = names
        self.token = token
        self.mode = mode
        self.hold_id = f"{token:032x}"
        self.reason = ""

    def __repr__(self) -> str:
        return f"<NullHold name={self.name!r} token={self.token}>"

    @property
    def name(self) -> str:
        """The name of the lock; of several, all of them."""
        return ", ".join(self.names)

    @property
    def is_valid(self) -> bool:
        """Whether it was not released."""
        return not self.reason

    @property
    def state(self) -> str:
        """`held`, or `lost` once it was released."""
        return "lost" if self.reason else "held"

    @property
    def remaining(self) -> float:
        """For how many seconds it can be relied on: for ever, until it is released."""
        return 0.0 if self.reason else math.inf

    def ensure(self, seconds: object = 0) -> None:
        """Raise LeaseLost once it was released."""
        del seconds
        if self.reason:
            raise LeaseLost(f"the lock {self.name!r} was released", self.reason)

    ensure_valid = ensure

    def release(self) -> _Done[None]:
        """Give it back. May be awaited."""
        self.reason = RELEASED
        return _Done(None)

    def renew(self, *, ttl: object = None) -> _Done[None]:
        """Do nothing to one that is valid; else raise LeaseLost. May be awaited."""
        del ttl
        self.ensure()
        return _Done(None)

    def convert(self, mode: str, *, timeout: object = None) -> _Done[None]:
        """Give it another mode. May be awaited."""
        del timeout
        self.ensure()
        self.mode = mode
        return _Done(None)

    def add(
        self, *names: Name, mode: str = "exclusive", scope: str = "node", timeout: object = None
    ) -> _Done[None]:
        """Add locks to it. May be awaited."""
        del mode, scope, timeout
        if not names:
            raise ValueError("names: name at least one lock")
        self.ensure()
        self.names += tuple(name for name in map(to_name, names) if name not in self.names)
        return _Done(None)

    def __await__(self) -> Generator[Any, None, Self]:
        yield from ()
        return self


class NullLock:
    """A lock that everybody gets at once, for `with`, `async with`, and calls that may be awaited or not.

    The holds of one lock have rising tokens. `acquired` counts them.
    """

    def __init__(self, *names: Name, tokens: "itertools.count[int] | None" = None) -> None:
        self._names = tuple(to_name(name) for name in names) or ("null",)
        self._tokens = tokens or itertools.count(1)
        self._entered: list[NullHold] = []
        self.acquired = 0

    def acquire(self, *, timeout: object = ...) -> NullHold:
        """Return a hold. May be awaited."""
        del timeout
        self.acquired += 1
        return NullHold(self._names, next(self._tokens))

    def try_acquire(self) -> NullHold:
        """Return a hold. May be awaited."""
        return self.acquire()

    def __enter__(self) -> NullHold:
        hold = self.acquire()
        self._entered.append(hold)
        return hold

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered.pop().release()

    async def __aenter__(self) -> NullHold:
        return self.__enter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(exc_type, exc, traceback)


class NullClient:
    """A client that grants every lock, for tasks and for threads. It takes the arguments of `Client`.

    It has what is acquired, and nothing that is read: `lock`, `locks`, `semaphore`, `election`, `acquire`,
    `renew`, `release`. A test that needs refusals, leases or anything else needs MemoryCluster.
    """

    def __init__(self) -> None:
        self._tokens = itertools.count(1)

    def lock(self, name: Name, **options: Any) -> NullLock:
        """Return a lock that everybody gets. Raises TypeError for what `Client.lock` does not take."""
        return self._new("lock", (name,), options)

    def locks(self, *names: Name, **options: Any) -> NullLock:
        """Return several locks as one."""
        if not names:
            raise ValueError("names: name at least one lock")
        return self._new("locks", names, options)

    def semaphore(self, name: Name, **options: Any) -> NullLock:
        """Return a semaphore that has permits for everybody."""
        return self._new("semaphore", (name,), options)

    def election(self, name: Name, **options: Any) -> NullLock:
        """Return an election that everybody wins."""
        return self._new("election", (name,), options)

    def acquire(self, name: Name, **options: Any) -> NullHold:
        """Return a hold. May be awaited."""
        return self._new("acquire", (name,), options).acquire()

    def renew(self, hold: NullHold, *, ttl: object = None) -> _Done[None]:
        """Do nothing to a hold that is valid. May be awaited."""
        return hold.renew(ttl=ttl)

    def release(self, hold: NullHold) -> _Done[None]:
        """Give a hold back. May be awaited."""
        return hold.release()

    def close(self) -> _Done[None]:
        """Do nothing. May be awaited."""
        return _Done(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _new(self, call: str, names: tuple[Name, ...], options: dict[str, Any]) -> NullLock:
        """Return a lock, once the real client would have taken the arguments."""
        inspect.signature(getattr(Client, call)).bind(None, *names, **options)
        return NullLock(*names, tokens=self._tokens)
