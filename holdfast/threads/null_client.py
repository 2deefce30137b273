"""Stand-ins that grant everything, for tests of code that only wants something like a lock."""

import inspect
import itertools
import math
import sys
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from holdfast.client.acquiring import held_around
from holdfast.client.client import Client
from holdfast.operations.terms import CampaignTerms, HoldTerms, LockTerms, Terms, Wait, terms_of
from holdfast.transport.blocks import Acquired, Around, Block, Blocks, Entered
from holdfast.values.errors import LeaseExpired, LeaseLost
from holdfast.values.lease import RELEASED
from holdfast.values.names import Name, to_name
from holdfast.values.words import HoldState, Mode

T = TypeVar("T")


class _Done(Generic[T]):
    """A result that may be awaited, or not: the same stand-in serves tasks and threads."""

    def __init__(self, value: T) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, None, T]:
        yield from ()
        return self._value


class NullHold:
    """A hold of nothing. It is valid until it is released, for as long as you like.

    As a real one it warns when it is collected without a release, and is released once.
    """

    def __init__(self, names: tuple[str, ...], token: int, mode: Mode = "exclusive") -> None:
        self.names = names
        self.token = token
        self.mode = mode
        self.hold_id = f"{token:032x}"
        self.reason = ""
        self._sought: _Sought | None = None
        self._around = Around(Entered())
        self._counts: list[object] = []

    def __repr__(self) -> str:
        return f"<NullHold name={self.name!r} token={self.token}>"

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        if self._sought is not None and not self.reason:
            _warn(f"hold {self.name!r} (token {self.token}) was never released", ResourceWarning, source=self)

    def __enter__(self) -> Self:
        self._enter(sys._getframe(1))  # noqa: SLF001 - see blocks.py
        return self

    def _enter(self, frame: FrameType) -> None:
        if self._sought is not None:
            self._around.enter(frame, self, self._sought)

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._around.leave(sys._getframe(1))  # noqa: SLF001 - see blocks.py
        self._end_block()

    def _end_block(self) -> None:
        """Release it at the end of a block, unless the block has done so."""
        if not self.reason:
            self.release()

    def __aenter__(self) -> _Done[Self]:
        self._enter(sys._getframe(1))  # noqa: SLF001 - see blocks.py
        return _Done(self)

    def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> _Done[None]:
        self._around.leave(sys._getframe(1))  # noqa: SLF001 - see blocks.py
        self._end_block()
        return _Done(None)

    @property
    def has_ended(self) -> bool:
        """Whether it was released."""
        return bool(self.reason)

    def count(self, by: object = None) -> None:
        """Need one more release: who holds it has acquired it again."""
        self._counts.append(by)

    @property
    def name(self) -> str:
        """The name of the lock; of several, all of them."""
        return ", ".join(self.names)

    @property
    def is_valid(self) -> bool:
        """Whether it was not released."""
        return not self.reason

    @property
    def state(self) -> HoldState:
        """`held`, or `released`."""
        return "released" if self.reason else "held"

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
        """Give it back. May be awaited. Raises LeaseExpired when it was released before."""
        if self.reason:
            raise LeaseExpired("lease-expired", f"the lock {self.name!r} was released before")
        if self._counts:
            self._counts.pop()
        else:
            self.reason = RELEASED
        return _Done(None)

    def renew(self, *, ttl: object = None, exact: bool = False) -> _Done[None]:
        """Do nothing to one that is valid; else raise LeaseLost. May be awaited."""
        del ttl, exact
        self.ensure()
        return _Done(None)

    def convert(self, mode: Mode, *, wait: object = None) -> _Done[None]:
        """Give it another mode. May be awaited."""
        del wait
        self.ensure()
        self.mode = mode
        return _Done(None)

    def add(
        self, *names: Name, mode: str = "exclusive", scope: str = "node", wait: object = None
    ) -> _Done[None]:
        """Add locks to it. May be awaited."""
        del mode, scope, wait
        if not names:
            raise ValueError("names: name at least one lock")
        self.ensure()
        self.names += tuple(name for name in map(to_name, names) if name not in self.names)
        return _Done(None)

    def __await__(self) -> Generator[Any, None, Self]:
        yield from ()
        return self


@dataclass(frozen=True)
class _Sought:
    """What a block of a stand-in was entered for; see `_blocks.Keyed`."""

    mode: Mode
    keys: tuple[tuple[str, str], ...]
    terms: Terms
    text: str

    @property
    def session(self) -> Any:
        """The session that it is acquired in, if there is one."""
        return self.terms.session

    def __str__(self) -> str:
        return self.text


class NullLock:
    """A lock that everybody gets at once, for `with`, `async with`, and calls that may be awaited or not.

    The holds of one lock have rising tokens. `acquired` counts them. What a real lock could not tell or would
    wait for for ever, it refuses as well: blocks that wait for themselves, and a release of one of several.
    """

    def __init__(
        self,
        *names: Name,
        tokens: "itertools.count[int] | None" = None,
        terms: Terms | None = None,
        mode: Mode = "exclusive",
        kind: str = "lock",
        entered: Entered | None = None,
    ) -> None:
        self._names = tuple(to_name(name) for name in names) or ("null",)
        self._tokens = tokens or itertools.count(1)
        self._entered = entered or Entered()
        self._blocks: Blocks[NullHold] = Blocks(self._entered)
        self._acquired: Acquired[NullHold] = Acquired()
        keys = () if kind == "semaphore" else tuple((kind, name) for name in self._names)
        self._sought = _Sought(mode, keys, terms or Terms(owner=""), repr(self))
        self.acquired = 0

    def __repr__(self) -> str:
        return f"<NullLock {self.name!r}>"

    @property
    def name(self) -> str:
        """Its name; of several, all of them."""
        return ", ".join(self._names)

    @property
    def holds(self) -> tuple[NullHold, ...]:
        """What was acquired by this object and has not ended."""
        return self._acquired.live

    def acquire(self, blocking: bool = True, *, wait: Wait = ...) -> NullHold:  # noqa: FBT001, FBT002 - as the real one
        """Return a hold. May be awaited, and used as a context."""
        return self._acquire(self._sought.terms.waiting(0 if not blocking else wait), sys._getframe())  # noqa: SLF001

    def try_acquire(self) -> NullHold:
        """Return a hold. May be awaited."""
        return self._acquire(self._sought.terms.waiting(0), sys._getframe())  # noqa: SLF001 - see blocks.py

    def _acquire(self, terms: Terms, frame: FrameType) -> NullHold:
        again: NullHold | None = held_around(self._sought, self._entered, terms, frame)
        if again is not None:
            return again
        self.acquired += 1
        hold = NullHold(self._names, next(self._tokens), self._sought.mode)
        hold._sought, hold._around = self._sought, Around(self._entered)  # noqa: SLF001 - of this module
        self._acquired.add(hold)
        return hold

    def release(self) -> _Done[None]:
        """Give back what was acquired by this object. Raises RuntimeError unless that is one hold."""
        return self._acquired.only(self).release()

    def owned(self) -> bool:
        """Whether this object has a hold."""
        return bool(self.holds)

    def __enter__(self) -> NullHold:
        return self._enter(sys._getframe(1))  # noqa: SLF001 - see blocks.py

    def _enter(self, frame: FrameType) -> NullHold:
        hold = self._acquire(self._sought.terms, frame)
        self._blocks.enter(Block(frame, hold, self._sought))
        return hold

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave(sys._getframe(1))  # noqa: SLF001 - see blocks.py

    def _leave(self, frame: FrameType) -> None:
        ended: list[Block[NullHold]] = []
        self._blocks.leave(frame, ended)
        for block in ended:
            block.held._end_block()  # noqa: SLF001 - of this module

    def __aenter__(self) -> _Done[NullHold]:
        return _Done(self._enter(sys._getframe(1)))  # noqa: SLF001 - see blocks.py

    def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> _Done[None]:
        self._leave(sys._getframe(1))  # noqa: SLF001 - see blocks.py
        return _Done(None)


class NullClient:
    """A client that grants every lock, for tasks and for threads. It takes the arguments of `Client`.

    It has what is acquired, and nothing that is read: `lock`, `locks`, `semaphore`, `election`, `acquire`.
    A test that needs refusals, leases or anything else needs MemoryCluster.
    """

    def __init__(self) -> None:
        self._tokens = itertools.count(1)
        self._entered = Entered()

    def lock(self, name: Name, **options: Any) -> NullLock:
        """Return a lock that everybody gets. Raises TypeError for what `Client.lock` does not take."""
        return self._new("lock", (name,), options)

    def locks(self, *names: Name, **options: Any) -> NullLock:
        """Return several locks as one."""
        if not names:
            raise ValueError("names: name at least one lock")
        return self._new("locks", names, options)

    def semaphore(self, name: Name, limit: int | None = None, **options: Any) -> NullLock:
        """Return a semaphore that has permits for everybody."""
        return self._new("semaphore", (name,), options | {"limit": limit})

    def election(self, name: Name, **options: Any) -> NullLock:
        """Return an election that everybody wins."""
        return self._new("election", (name,), options)

    def acquire(self, name: Name, **options: Any) -> NullHold:
        """Return a hold. May be awaited, and used as a context."""
        lock = self._new("acquire", (name,), options)
        return lock._acquire(lock._sought.terms, sys._getframe())  # noqa: SLF001 - of this module

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
        known = inspect.signature(getattr(Client, call)).parameters
        terms = {option: value for option, value in options.items() if option not in known}
        kind = call if call in _KINDS else "lock"
        return NullLock(
            *names,
            tokens=self._tokens,
            terms=terms_of(call, "", _KINDS[kind], terms),
            mode=options.get("mode", "exclusive"),
            kind=kind,
            entered=self._entered,
        )


_KINDS: Final[dict[str, type]] = {"lock": LockTerms, "semaphore": HoldTerms, "election": CampaignTerms}
"""The keywords of each kind of call."""
