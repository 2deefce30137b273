"""Handing leadership over: stop proposing, wait until the successor has the whole log, ask it."""

import asyncio

from cluster.consensus.replica import RaftReplica


class Handover:
    """One attempt, made on the leader. `step` is called after every tick and change of leadership."""

    def __init__(
        self, replica: RaftReplica, to: str, loop: asyncio.AbstractEventLoop, timeout_s: float
    ) -> None:
        self._replica = replica
        self._to = to
        self._term = replica.term
        self._is_asked = False
        self._done: asyncio.Future[bool] = loop.create_future()
        self._timer = loop.call_later(timeout_s, self._end, False)
        replica.is_proposing = False

    def step(self) -> None:
        """Ask the successor as soon as it has everything; notice when this node leads no more."""
        replica = self._replica
        if not replica.is_leader or replica.term != self._term:
            self._end(is_over=True)
        elif not self._is_asked:
            self._is_asked = replica.transfer(self._to)

    async def wait(self) -> bool:
        """Return whether this node has given up leadership. If not in time, it goes on to propose."""
        return await asyncio.shield(self._done)

    @property
    def is_ended(self) -> bool:
        """Whether there is nothing more to do."""
        return self._done.done()

    def _end(self, is_over: bool) -> None:  # noqa: FBT001 - called by a timer
        self._timer.cancel()
        if not self._done.done():
            if not is_over:
                self._replica.is_proposing = True
            self._done.set_result(is_over)
