"""Where the requests of a client that wait in queues go, and in which order: as its tasks have asked.

A single one goes over HTTP, in slices. As soon as there is another one, they share one connection
(`wait_link.py`), unless no node gives it: then each goes over HTTP.
"""

import asyncio
import time
import weakref
from collections.abc import Sequence
from typing import Final

from holdfast.stream.wait_link import LinkUser, WaitLink
from holdfast.values.process import after_fork

LINKED_COUNT: Final = 4
"""Requests that wait at once with which they share a connection."""
REFUSED_PAUSE_S: Final = 30.0
"""Seconds before a connection is asked for again that no node gave: a proxy in between, a missing right."""
PLACED_S: Final = 1.0
"""Seconds that a request waits for one before it, which may be on its way to a node that hangs."""
LATE_S: Final = 0.25
"""Seconds by which a timer is late if the loop stood still, as it does when thousands of tasks begin."""


class Turn:
    """A request that is to stand in queues behind those that were asked before it."""

    __slots__ = ("future", "has_ended", "names")

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.has_ended = False
        self.future: asyncio.Future[None] | None = None


class Order:
    """The requests that do not stand in their queues yet, by the names that they ask for, in order."""

    def __init__(self) -> None:
        self._turns: dict[str, list[Turn]] = {}
        self._moved_s: dict[str, float] = {}
        """When a turn for a name has ended last, in seconds of the monotonic clock, of names with turns."""

    def enter(self, names: Sequence[str]) -> Turn:
        """Take a turn behind all that have one."""
        turn = Turn(names)
        for name in names:
            self._turns.setdefault(name, []).append(turn)
        return turn

    def is_first(self, turn: Turn) -> bool:
        """Whether no other request has to be placed before."""
        return all(self._turns[name][0] is turn for name in turn.names)

    def has_others(self, turn: Turn) -> bool:
        """Whether requests wait for this one to be placed."""
        return any(len(self._turns[name]) > 1 for name in turn.names)

    async def first(self, turn: Turn) -> None:
        """Wait until it is the turn of this request, or for long enough without any that ends before it."""
        if turn.has_ended or self.is_first(turn):
            return
        turn.future = asyncio.get_running_loop().create_future()
        until_s = time.monotonic() + PLACED_S
        while not turn.future.done() and time.monotonic() < until_s:
            await asyncio.wait({turn.future}, timeout=until_s - time.monotonic())
            if time.monotonic() - until_s > LATE_S:
                # The loop stood still: what was asked before has had no time yet.
                until_s = time.monotonic() + PLACED_S
            moved_s = max([self._moved_s.get(name, 0.0) for name in turn.names], default=0.0)
            until_s = max(until_s, moved_s + PLACED_S)

    def leave(self, turn: Turn) -> None:
        """End a turn: the request stands in its queues, or never will."""
        if turn.has_ended:
            return
        turn.has_ended = True
        for name in turn.names:
            turns = self._turns.get(name)
            if turns is None or turn not in turns:
                continue  # this process was forked meanwhile
            turns.remove(turn)
            if not turns:
                del self._turns[name]
                self._moved_s.pop(name, None)
                continue
            self._moved_s[name] = time.monotonic()
            if self.is_first(turns[0]) and (future := turns[0].future) is not None and not future.done():
                future.set_result(None)


class SharedWaits:
    """The waits of one client: of the loop that runs and of this process."""

    def __init__(self, user: LinkUser, *, has_links: bool) -> None:
        self._user = user
        self._has_links = has_links
        self._link: WaitLink | None = None
        self._not_before_s = 0.0
        self._is_closed = False
        self.order = Order()
        self.count = 0
        """How many requests of this client may wait at present."""
        _all.add(self)

    @property
    def may_be_linked(self) -> bool:
        """Whether there may be a connection for them."""
        return self._has_links and time.monotonic() >= self._not_before_s

    def link(self, *, may_begin: bool = True) -> WaitLink | None:
        """Return the connection for a request about a wait; None if it has to go another way.

        Raises RuntimeError for one that would begin or go on with a wait while the client closes.
        """
        if self._is_closed and may_begin:
            raise RuntimeError("this client is closed")
        link = self._link
        if link is not None and link.loop is not asyncio.get_running_loop():
            link = self._link = None
        if link is not None and link.is_refused:
            link = self._link = None
            self._not_before_s = time.monotonic() + REFUSED_PAUSE_S
        if link is not None and not link.has_ended:
            # A withdrawal makes room.
            return link if link.has_room or not may_begin else None
        if not (may_begin and self.may_be_linked) or self.count < LINKED_COUNT:
            return None
        self._link = link = WaitLink(self._user)
        link.start()
        return link

    def enter(self, names: Sequence[str]) -> Turn:
        """Begin with a request that may wait for these: it has its turn behind all that have one."""
        self.count += 1
        return self.order.enter(names)

    def leave(self, turn: Turn) -> None:
        """Be done with a request that might wait."""
        self.count -= 1
        self.order.leave(turn)

    async def close(self) -> None:
        """End all waits, and the connection of the running loop; that of another one ends with it."""
        self._is_closed = True
        link, self._link = self._link, None
        if link is not None and link.loop is asyncio.get_running_loop():
            await link.close()

    def forget(self) -> None:
        """Leave everything to the parent, in a process that was just forked."""
        if self._link is not None:
            _of_parents.append(self._link)
        self._link, self.order, self.count = None, Order(), 0


_all: "weakref.WeakSet[SharedWaits]" = weakref.WeakSet()
_of_parents: list[WaitLink] = []
"""Kept, so that a child does not collect connections that it shares with its parent."""


def _forget_all() -> None:
    for waits in list(_all):
        waits.forget()


after_fork(_forget_all)
