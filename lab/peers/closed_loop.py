"""The load of `scripts/bench peers`, the same for every system: workers that acquire and release.

A worker says what it wants to a lean client (`Lean`), and the client calls it back: no task, no future and no
library stands between an answer and the next request. So what differs between two figures is the system, and
how much its protocol costs to speak. With one name for all workers, it measures how a lock is handed on.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Final, Protocol

from lab.loads.load import PAUSE_S, Tally

DRAIN_S: Final = 30.0
"""Seconds within which the last requests of a step must be answered."""


class Lean(Protocol):
    """A client that one worker has for itself, or that many share."""

    def acquire(self, worker: "Worker") -> None:
        """Ask for `worker.name`; `worker.acquired` or `worker.failed` is called with the answer."""

    def release(self, worker: "Worker", held: bytes) -> None:
        """Give back what `acquired` was called with; `worker.released` or `worker.failed` is called."""

    def close(self) -> None:
        """End the connection, and whatever is still held over it."""


class Worker:
    """One closed loop: acquire `name`, release it, again, until the tally says that it is over."""

    def __init__(self, tally: Tally, lean: Lean, name: str, number: int) -> None:
        """Make a worker; `number` tells those of a step apart, also when they have one name."""
        self.name = name
        self.number = number
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tally = tally
        self._lean = lean
        self._began_s = 0.0

    def begin(self) -> None:
        """Begin a cycle, or end when told so."""
        if self._tally.is_stopping:
            self._end()
            return
        self._began_s = time.perf_counter()
        self._lean.acquire(self)

    def acquired(self, held: bytes) -> None:
        """Measure the acquire, and release; `held` says to the client what."""
        self._tally.acquires_s.append(time.perf_counter() - self._began_s)
        self._lean.release(self, held)

    def released(self) -> None:
        """Measure the cycle, and begin the next one."""
        self._tally.cycles_s.append(time.perf_counter() - self._began_s)
        self.begin()

    def failed(self, text: str) -> None:
        """Count an error, and try again a little later."""
        self._tally.error(text)
        asyncio.get_running_loop().call_later(PAUSE_S, self.begin)

    def lost(self, text: str) -> None:
        """Count an error, and end: the connection is gone."""
        if not self.ended.done():
            self._tally.error(text)
            self._end()

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


class StuckError(Exception):
    """Requests of a step were not answered in time."""


def begin(tally: Tally, clients: Sequence[Lean], names: Sequence[str]) -> list[Worker]:
    """Begin a worker for each name; they take turns in having the clients."""
    workers = [
        Worker(tally, clients[number % len(clients)], name, number) for number, name in enumerate(names)
    ]
    for worker in workers:
        worker.begin()
    return workers


async def end(tally: Tally, workers: Sequence[Worker]) -> None:
    """Let the workers end what they are at. Raises StuckError if that takes too long."""
    tally.is_stopping = True
    waiting = (await asyncio.wait([worker.ended for worker in workers], timeout=DRAIN_S))[1]
    if waiting:
        raise StuckError(f"{len(waiting)} of {len(workers)} workers got no answer within {DRAIN_S:.0f} s")
