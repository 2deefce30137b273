"""Clients that wait for a list to get elements: who is woken when the node applies a write of its key.

Nothing is asked of the cluster while clients wait: the log of events tells of each write. The client that has
waited longest on this node is woken first and tries to take an element. What it leaves is a write again, and
when it goes it passes on: either wakes the next one.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from cluster.errors import Overloaded, ShuttingDown
from cluster.observing.event_log import EventLog, EventsCompacted, Position, revision_of
from lockstate.words.events import CellEventKind

WAITERS_COUNT_MAX: Final = 10_000
"""Clients that wait on one node."""
NAMES_COUNT_MAX: Final = 100_000
"""Names for which they wait, counted for each client: some 50 MB."""
_READ_COUNT: Final = 500
"""Events that are read at a time, or one entry more."""


class Waiter:
    """One client that waits for any of its keys."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.woken = asyncio.Event()
        self.is_over = False
        """Whether the node stops."""

    async def wait(self, deadline_s: float) -> bool:
        """Wait until there may be something for this client, or until then; return whether there may.

        Raises ShuttingDown.
        """
        try:
            async with asyncio.timeout_at(deadline_s):
                await self.woken.wait()
        except TimeoutError:
            return False
        self.woken.clear()
        if self.is_over:
            raise ShuttingDown("this node is stopping; ask another")
        return True


class KeyWaits:
    """The clients of one node that wait."""

    def __init__(self) -> None:
        self._waiters: dict[str, dict[Waiter, None]] = {}
        self.count = self._names_count = 0
        """How many wait, and for how many names."""
        self._log: EventLog
        self._position = Position.behind(0)

    @contextmanager
    def waiting(self, log: EventLog, names: Sequence[str]) -> Iterator[Waiter]:
        """Wait for writes of names in the block. Raises Overloaded."""
        if self.count >= WAITERS_COUNT_MAX:
            raise Overloaded(f"{WAITERS_COUNT_MAX} clients wait for lists on this node; try another one")
        waiter = Waiter(list(dict.fromkeys(names)))
        if self._names_count + len(waiter.names) > NAMES_COUNT_MAX:
            raise Overloaded(f"clients of this node wait for {NAMES_COUNT_MAX} lists; try another one")
        if not self.count:
            self._log, self._position = log, log.newest
            log.follow(self)
            log.watchers += 1  # a follower hears of entries at once while there are any
        self.count += 1
        self._names_count += len(waiter.names)
        for name in waiter.names:
            self._waiters.setdefault(name, {})[waiter] = None
        try:
            yield waiter
        finally:
            self.count -= 1
            self._names_count -= len(waiter.names)
            for name in waiter.names:
                waiters = self._waiters[name]
                del waiters[waiter]
                if not waiters:
                    del self._waiters[name]
            if not self.count:
                self._log.unfollow(self)
                self._log.watchers -= 1

    def pass_on(self, names: Sequence[str]) -> None:
        """Wake the next client of each name: the one that was woken has left what there is."""
        for name in names:
            waiter = next(iter(self._waiters.get(name, ())), None)
            if waiter is not None:
                waiter.woken.set()

    # -- cluster.observing.event_log.Follower ---------------------------------------------------------------

    def log_grew(self) -> None:
        """Wake the first client of each key that was written."""
        try:
            while blocks := self._log.read(self._position, _READ_COUNT):
                self._position = Position.behind(revision_of(blocks[-1]))
                for block in blocks:
                    self.pass_on([one.name for one in block if one.kind is CellEventKind.PUT])
        except EventsCompacted:
            self.log_restarted()

    def log_restarted(self) -> None:
        """Let all look again: what happened is not known."""
        self._position = self._log.newest
        self._wake_all()

    def log_ended(self) -> None:
        """End all waits."""
        self._wake_all(is_over=True)

    def _wake_all(self, *, is_over: bool = False) -> None:
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.is_over = is_over
                waiter.woken.set()
