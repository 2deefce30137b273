"""The first renewals of what is held on an event loop: timers, and their end with the loop.

Most holds are released long before they have to be renewed, so none gets a task before it needs one. Nothing
here keeps what is to be renewed from being collected.
"""

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

from holdfast.values.clock import Clock, Timer
from holdfast.values.lease import NOT_RENEWED, Leased
from holdfast.values.process import after_fork


class Renewals:
    """What one client will have to renew on the loop that runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due: set[_Due] = set()
        self._with_loop: AsyncGenerator[None] | None = None
        _all.add(self)

    def later(self, leased: Leased, delay_s: float, begin: Callable[[Any], object]) -> Timer:
        """Call `begin` with it after so long, if it is still there.

        If the loop ends before, so does what would have been renewed.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._due = loop, set()
            self._with_loop = _end_with_loop(self._due)
            _start(self._with_loop)
        return _Due(leased, begin, self._clock, delay_s, self._due)

    def leave_to_parent(self) -> None:
        """Leave everything to the parent, in a process that was just forked."""
        if self._with_loop is not None:
            _of_parents.append(self._with_loop)
        self._loop, self._with_loop = None, None


class _Due:
    """A first renewal that is to come, among all of its loop. It does not keep what is to be renewed."""

    __slots__ = ("_all", "_begin", "_timer", "of")

    def __init__(
        self, leased: Leased, begin: Callable[[Any], object], clock: Clock, delay_s: float, among: "set[_Due]"
    ) -> None:
        self.of = weakref.ref(leased)
        self._begin = begin
        self._timer = clock.call_later(delay_s, self._fire)
        self._all = among
        among.add(self)

    def _fire(self) -> None:
        """Begin, if it is still there."""
        self._all.discard(self)
        if (leased := self.of()) is not None:
            self._begin(leased)

    def cancel(self) -> None:
        """Let it not come, nor end anything with the loop."""
        self._all.discard(self)
        self._timer.cancel()


async def _end_with_loop(all_due: set[_Due]) -> AsyncGenerator[None]:
    """End what is due. A loop that ends closes the generators that were begun on it."""
    try:
        yield
    finally:
        for due in tuple(all_due):
            if (leased := due.of()) is not None:
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
