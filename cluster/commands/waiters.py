"""Requests of this node's clients that wait in queues of the cluster, found by what the wait answers to.

That is the id of the hold that an acquire will have, or the ticket of a conversion: `hold_id` in both cases.
"""

import asyncio

from cluster.commands.outbox import Answer
from cluster.errors import ClusterError
from lockstate.words.ids import HoldId
from lockstate.words.outcomes import Settled
from lockstate.words.results import Granted, Queued


class Waiters:
    """Futures by hold id. Several attempts of one request may wait for the same."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._futures: dict[HoldId, list[asyncio.Future[Answer]]] = {}

    def __len__(self) -> int:
        """Return how many waits there are."""
        return len(self._futures)

    def add(self, hold_id: HoldId) -> "asyncio.Future[Answer]":
        """Return a future for the end of a wait. Called at the apply that queued it: no end is missed."""
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._futures.setdefault(hold_id, []).append(future)
        future.add_done_callback(lambda done: self._forget(hold_id, done))
        return future

    def wake(self, settled: Settled, revision: int) -> None:
        """Hand the end of a wait to who waits for it."""
        if settled.hold_id in self._futures:
            self._settle(settled.hold_id, _ended(settled, revision))

    def reconcile(
        self, hold_id: HoldId, found: Granted | Queued | None, revision: int, lost: ClusterError
    ) -> None:
        """Take over what a snapshot says of a wait whose end this node may have missed.

        The ticket of a conversion is gone once it ended, however it did: that outcome is lost.
        """
        match found:
            case Granted():
                self._settle(hold_id, Answer(found, revision))
            case None:
                self._fail(hold_id, lost)
            case Queued():
                """It still waits."""

    def hold_ids(self) -> list[HoldId]:
        """Return what is waited for."""
        return list(self._futures)

    def fail_all(self, error: ClusterError) -> None:
        """End every wait here; the tickets stay in the cluster."""
        for hold_id in self.hold_ids():
            self._fail(hold_id, error)

    def _settle(self, hold_id: HoldId, answer: Answer) -> None:
        for future in self._futures.get(hold_id, ()):
            if not future.done():
                future.set_result(answer)
        # Last: who was not told because this failed half-way is found by `fail_all`.
        self._futures.pop(hold_id, None)

    def _fail(self, hold_id: HoldId, error: ClusterError) -> None:
        for future in self._futures.get(hold_id, ()):
            if not future.done():
                future.set_exception(error)
        self._futures.pop(hold_id, None)

    def _forget(self, hold_id: HoldId, future: "asyncio.Future[Answer]") -> None:
        if not future.cancelled():
            future.exception()  # seen: where a client is away its wait may end with nobody there
        futures = self._futures.get(hold_id)
        if futures is not None and future in futures:
            futures.remove(future)
            if not futures:
                del self._futures[hold_id]


def _ended(settled: Settled, revision: int) -> Answer:
    return Answer(settled.result, revision, waited_ms=settled.waited_ms, position=settled.position)
