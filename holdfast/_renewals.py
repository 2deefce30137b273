"""The first renewals of what is held on an event loop: timers, and their end with the loop.

Most holds are released long before they have to be renewed, so none gets a task before it needs one. Nothing
here keeps what is to be renewed from being collected.
"""

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

from holdfast._clock import Clock, Timer
from holdfast._lease import NOT_RENEWED, Leased
from holdfast._process import after_fork


class Renewals:
    """What one client will have to renew on the loop that runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due: weakref.WeakSet[Leased] = weakref.WeakSet()
        self._with_loop: AsyncGenerator[None] | None = None
        _all.add(self)

    def later(self, leased: Leased, delay_s: float, begin: Callable[[Any], object]) -> Timer:
        """Call `begin` with it after so long, if it is still there.

        If the loop ends before, so does what would have been renewed.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._due = loop, weakref.WeakSet()
            self._with_loop = _end_with_loop(self._due)
            _start(self._with_loop)
        due, this = self._due, weakref.ref(leased)
        due.add(leased)

        def fire() -> None:
            found = this()
            if found is not None:
                due.discard(found)
                begin(found)

        return self._clock.call_later(delay_s, fire)

    def forget(self, leased: Leased) -> None:
        """End it with the loop no more."""
        self._due.discard(leased)

    def leave_to_parent(self) -> None:
        """Leave everything to the parent, in a process that was just forked."""
        if self._with_loop is not None:
            _of_parents.append(self._with_loop)
        self._loop, self._with_loop = None, None


async def _end_with_loop(due: "weakref.WeakSet[Leased]") -> AsyncGenerator[None]:
    """End what is due. A loop that ends closes the generators that were begun on it."""
    try:
        yield
    finally:
        for leased in tuple(due):
            leased.end(NOT_RENEWED)


def _start(generator: AsyncGenerator[None]) -> None:
    """Let a generator come to its `yield`, which it does without waiting, and the loop know of it."""
    try:
        generator.__anext__().send(None)
    except StopIteration:
        return
    raise AssertionError("the generator waits")


_all: Final["weakref.WeakSet[Renewals]"] = weakref.WeakSet()
_of_parents: Final[list[AsyncGenerator[None]]] = []
"""Kept, so that a child does not ask the loop that it has a copy of to close them."""


def _leave_all() -> None:
    for renewals in list(_all):
        renewals.leave_to_parent()


after_fork(_leave_all)
