"""A function that runs only while its process leads: `leader`."""

import asyncio
import functools
import inspect
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec, Protocol, TypeVar, overload

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
from holdfast.operations.terms import DEFAULT_SESSION_TTL_S
from holdfast.values.durations import Seconds, to_s
from holdfast.values.errors import LeaseExpired, LeaseLost, OutcomeUnknown, SessionExpired, Unavailable

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger("holdfast")

LOST: Final = "lost"
"""The argument by which a function in a thread hears that it leads no longer."""
RETRY_S: Final = 1.0
"""Seconds between two campaigns when the cluster does not answer, beyond what the client waits itself."""
_PASSING: Final = (Unavailable, OutcomeUnknown, SessionExpired, LeaseExpired, LeaseLost)
"""What ends a campaign without being a reason to end the candidacy."""


class Leading(Protocol):
    """A decorator that gives functions in threads their argument `lost`."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, function: Callable[..., R], /) -> Callable[..., R]: ...


def leader(
    name: str,
    *,
    value: str = "",
    ttl: Seconds = DEFAULT_SESSION_TTL_S,
    client: ClientOrMaker = None,
) -> Leading:
    """Run a function only while this caller leads the election `name`.

    A call campaigns for as long as it takes, runs the function when it is elected, and resigns when the
    function returns or raises: the call returns or raises the same. When leadership is lost before, the
    function is stopped and the call campaigns again; then the function runs from its beginning.

    A function made with `async def` is stopped by cancellation. One made with `def` needs an argument `lost`,
    which the decorator passes: a threading.Event that is set when leadership is lost. The function has to
    check it, and return. However it ends after the loss, it counts as stopped; an error is logged.

    While no node answers it goes on campaigning, and logs a warning for each attempt. `value` is published by
    the leader, `ttl` is how long others wait after it has died; `name` may have fields, and `client` is as
    for `locked`. Raises ValueError or TypeError, when the function is decorated, for arguments that can never
    work.
    """
    check_name("leader", name)
    to_s(ttl, "ttl")
    options = {"value": value, "ttl": ttl}

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        check_function("leader", function)
        for_tasks = is_async(function)
        check_client("leader", client, for_tasks=for_tasks)
        parameter = inspect.signature(function).parameters.get(LOST)
        if not for_tasks and (parameter is None or parameter.kind is parameter.POSITIONAL_ONLY):
            raise TypeError(f"leader: give the function an argument {LOST!r}, a threading.Event to look at")
        name_of_call = NameOfCall(name, function)

        def election(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            text = name_of_call.of(args, kwargs)
            return client_for("leader", client, for_tasks=for_tasks).election(text, **options)

        @functools.wraps(function)
        async def in_task(*args: Any, **kwargs: Any) -> Any:
            term = _Term(election(args, kwargs))
            while not term.is_over:
                await term.lead(lambda: function(*args, **kwargs))
            return term.result

        @functools.wraps(function)
        def in_thread(*args: Any, **kwargs: Any) -> Any:
            named = {**kwargs, LOST: threading.Event()}
            term = _Term(election(args, named))
            while not term.is_over:
                term.lead_in_thread(lambda lost: ended("leader", function(*args, **{**kwargs, LOST: lost})))
            return term.result

        return in_task if for_tasks else in_thread

    return decorate


class _Term:
    """The campaigns of one call, one after the other, until its function has ended by itself."""

    def __init__(self, election: Any) -> None:
        self._election = election
        self.is_over = False
        self.result: Any = None

    async def lead(self, body: Callable[[], Any]) -> None:
        """Campaign, and run the body while leading."""
        leadership = None
        try:
            async with self._election as leadership:
                self.result = await body()
            self.is_over = True
        except _PASSING as error:
            if self._must_raise(error, leadership):
                raise
            if leadership is None:
                await asyncio.sleep(RETRY_S)

    def lead_in_thread(self, body: Callable[[threading.Event], Any]) -> None:
        """Campaign, and run the body while leading."""
        leadership = None
        try:
            with self._election as leadership:
                self.result = body(getattr(leadership, LOST, threading.Event()))
            self.is_over = True
        except _PASSING as error:
            if self._must_raise(error, leadership):
                raise
            if leadership is None:
                time.sleep(RETRY_S)

    def _must_raise(self, error: Exception, leadership: Any) -> bool:
        """Whether an error is one of the body, and not the end of a campaign or of leadership."""
        if leadership is None:
            _log.warning("not elected, campaigns again: election=%s error=%s", self._election, error)
            return False
        is_lost = isinstance(error, LeaseLost) and error.reason == leadership.reason != ""
        if is_lost:
            told = "leads no longer, campaigns again: election=%s"
            _log.warning(told, self._election, exc_info=error)
        return not is_lost
