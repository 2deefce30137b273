"""Functions that run under a lock, or once in a period: `locked` and `once`. `leader` is in `leader.py`."""

import contextlib
import functools
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any, Final, Literal, ParamSpec, Protocol, TypeVar, overload

from holdfast.client.hold import Hold
from holdfast.decorators.decorating import (
    ClientOrMaker,
    NameOfCall,
    check_client,
    check_function,
    check_name,
    client_for,
    ended,
    is_async,
)
from holdfast.operations.terms import wait_s
from holdfast.threads.sync_holds import SyncHold
from holdfast.values.durations import Seconds, parse_s, to_s
from holdfast.values.errors import LockHeld

P = ParamSpec("P")
R = TypeVar("R")

WAIT: Final = "wait"
SKIP: Final = "skip"
RAISE: Final = "raise"

EVERY_S_MAX: Final = 24 * 3600
"""Seconds of the longest period: that of the longest lease."""


class Keeping(Protocol):
    """A decorator that does not change what a function returns."""

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Decorate a function."""
        ...


class Skipping(Protocol):
    """A decorator whose functions return None when they are skipped."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R | None]]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R | None]: ...


@overload
def locked(
    name: str,
    *,
    if_busy: Literal["wait", "raise"] = "wait",
    ttl: Seconds | None = None,
    wait: Seconds | None = None,
    client: ClientOrMaker = None,
) -> Keeping: ...


@overload
def locked(
    name: str,
    *,
    if_busy: Literal["skip"],
    ttl: Seconds | None = None,
    wait: Seconds | None = None,
    client: ClientOrMaker = None,
) -> Skipping: ...


def locked(
    name: str,
    *,
    if_busy: str = WAIT,
    ttl: Seconds | None = None,
    wait: Seconds | None = None,
    client: ClientOrMaker = None,
) -> Any:
    """Run each call of a function, made with `def` or `async def`, under a lock.

    Fields of `name`, as in `report/{user_id}`, are the arguments of the call. While another client has the
    lock, a call waits for it ("wait": as long as it takes, or `wait`, and then raises LockTimeout), raises
    LockTimeout ("raise") or returns None without running ("skip"); with a `wait` these two wait, too. A call
    within a call under the same lock would wait for itself: it raises RuntimeError.

    The lock is renewed while the function runs. When it is lost, a function made with `async def` is
    cancelled; in any case the call raises LeaseLost. `client` is a client, or a function that returns one;
    without it, one for all such functions is made with the first call, from HOLDFAST_NODES.

    Raises ValueError or TypeError, when the function is decorated, for arguments that can never work.
    """
    if if_busy not in (WAIT, SKIP, RAISE):
        raise ValueError(f"if_busy: {if_busy!r} is none of {WAIT}, {SKIP} and {RAISE}")
    check_name("locked", name)
    if wait is None and if_busy != WAIT:
        wait = 0
    options = {"ttl": ttl, "wait": wait}
    wait_s(wait)
    if ttl is not None:
        to_s(ttl, "ttl")
    skips = if_busy == SKIP
    return _Rules(decorator="locked", name=name, client=client, options=options, skips=skips).decorate


def once(name: str, *, every: Seconds | str, retry: bool = False, client: ClientOrMaker = None) -> Skipping:
    """Run a function at most once in each period, across all machines.

    The first call takes the lock `name` and keeps it for `every` (24 hours at most; a text such as "24h" is
    allowed), counted from its beginning. Renewals of a longer run begin the period anew. All other calls
    return None meanwhile. The lock is not released: it ends by itself, even if the process has died.

    A call that raises still counts; with `retry` it does not, and the next call runs. Raises Unavailable and
    OutcomeUnknown when the cluster does not answer: the function did not run. After the latter perhaps no
    process runs it in this period.
    """
    every_s = parse_s(every, "every")
    if not 0 < every_s <= EVERY_S_MAX:
        raise ValueError(f"every: {every!r}; must be more than nothing, and at most 24h")
    check_name("once", name)
    options = {"ttl": every_s, "wait": 0}
    rules = _Rules(
        decorator="once", name=name, client=client, options=options, skips=True, keeps=True, retries=retry
    )
    decorate: Skipping = rules.decorate
    return decorate


@dataclass(frozen=True, kw_only=True)
class _Rules:
    """What a decorator does: `skips` a call whose lock is held, `keeps` the lock when the call is over."""

    decorator: str
    name: str
    client: ClientOrMaker
    options: dict[str, Any]
    skips: bool
    keeps: bool = False
    retries: bool = False

    def decorate(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function under its lock."""
        check_function(self.decorator, function)
        for_tasks = is_async(function)
        check_client(self.decorator, self.client, for_tasks=for_tasks)
        calls = _Calls(self, function, for_tasks=for_tasks)

        @functools.wraps(function)
        async def in_task(*args: Any, **kwargs: Any) -> Any:
            return await calls.in_task(args, kwargs)

        @functools.wraps(function)
        def in_thread(*args: Any, **kwargs: Any) -> Any:
            return calls.in_thread(args, kwargs)

        return in_task if for_tasks else in_thread


class _Calls:
    """The calls of one function."""

    def __init__(self, rules: _Rules, function: Callable[..., Any], *, for_tasks: bool) -> None:
        self._rules = rules
        self._function = function
        self._for_tasks = for_tasks
        self._name = NameOfCall(rules.name, function)

    async def in_task(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one call of an `async def`."""
        lock = self._lock(args, kwargs)
        has_lock = False
        try:
            async with lock as hold:
                has_lock = True
                with self._body(hold):
                    return await self._function(*args, **kwargs)
        except LockHeld:
            if has_lock or not self._rules.skips:
                raise
            return None

    def in_thread(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one call of a `def`."""
        lock = self._lock(args, kwargs)
        has_lock = False
        try:
            with lock as hold:
                has_lock = True
                with self._body(hold):
                    return ended(self._rules.decorator, self._function(*args, **kwargs))
        except LockHeld:
            if has_lock or not self._rules.skips:
                raise
            return None

    def _lock(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the lock of a call."""
        rules = self._rules
        client = client_for(rules.decorator, rules.client, for_tasks=self._for_tasks)
        return client.lock(self._name.of(args, kwargs), **rules.options)

    @contextlib.contextmanager
    def _body(self, hold: Any) -> Generator[None]:
        """Surround the function itself."""
        rules = self._rules
        _leave_to_lease(hold, keeps=rules.keeps)
        try:
            yield
        except BaseException:
            _leave_to_lease(hold, keeps=rules.keeps and not rules.retries)
            raise


def _leave_to_lease(hold: Any, *, keeps: bool) -> None:
    """Say whether a hold is released at the end, or left to its lease. Stand-ins of tests know no leases."""
    if isinstance(hold, SyncHold):
        hold = hold.twin
    if isinstance(hold, Hold):
        hold.ends_by_itself = keeps
