"""Handing leadership over: stop proposing, wait until the successor has the whole log, ask it."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from cluster.consensus.ready import Ready
from cluster.consensus.replica import Replica

ATTEMPTS_MAX: Final = 2
"""How often a stopping leader tries to hand leadership over."""

logger = logging.getLogger(__name__)


class Handover:
    """One attempt, made on the leader."""

    def __init__(self, replica: Replica, to: str, loop: asyncio.AbstractEventLoop, timeout_s: float) -> None:
        self._replica = replica
        self._to = to
        self._term = replica.role.term
        self._is_asked = False
        self._done: asyncio.Future[bool] = loop.create_future()
        self._timer = loop.call_later(timeout_s, self._end, False)
        replica.is_proposing = False

    def step(self) -> Ready | None:
        """Ask the successor as soon as it has everything; notice when this node no longer leads."""
        role = self._replica.role
        if not role.is_leader or role.term != self._term:
            self._end(is_over=True)
        elif not self._is_asked and not self.is_ended:
            ready = self._replica.transfer(self._to)
            self._is_asked = ready is not None
            return ready
        return None

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


class Handovers:
    """The attempts of one node, one at a time. `step` is called after every tick and change of role."""

    def __init__(
        self,
        replica: Replica,
        is_up: Callable[[str], bool],
        act: Callable[[Ready], None],
        request_tick: Callable[[], None],
        timeout_s: float,
    ) -> None:
        """`is_up` tells whether a peer is connected; `act` does what a step leads to."""
        self._replica = replica
        self._is_up = is_up
        self._act = act
        self._request_tick = request_tick
        self._timeout_s = timeout_s
        self._present: Handover | None = None
        self.is_fit: Callable[[str], bool] = lambda _: True
        """Tells whether a peer is fit to lead. Set once; if none is, one that is not takes over."""

    def begin(self, to: str) -> Handover | None:
        """Begin to hand leadership to `to`; None if this node does not lead or is not connected to `to`."""
        if not self._replica.role.is_leader or not self._is_up(to):
            return None
        if self._present is None or not self.is_under_way:
            self._present = Handover(self._replica, to, asyncio.get_running_loop(), self._timeout_s)
            self._request_tick()
        return self._present

    @property
    def is_under_way(self) -> bool:
        """Whether an attempt has begun that has not ended."""
        return self._present is not None and not self._present.is_ended

    def begin_with_most_caught_up(self) -> tuple[str, Handover] | None:
        """Begin to hand leadership to the follower that has most of the log; None if there is none."""
        successor = self.successor()
        handover = self.begin(successor) if successor is not None else None
        return (successor, handover) if successor is not None and handover is not None else None

    def successor(self) -> str | None:
        """Return which connected voter shall lead next: one that is fit to, if any is."""
        return self._replica.most_caught_up(self.is_fit) or self._replica.most_caught_up()

    async def hand_over(self) -> None:
        """Make another node lead, if this one does and any can: before clients have to notice anything."""
        for _ in range(ATTEMPTS_MAX):
            begun = self.begin_with_most_caught_up()
            if begun is None:
                return
            successor, handover = begun
            if await handover.wait():
                logger.info("event=leadership-handed-over to=%s", successor)
                return

    def step(self) -> None:
        """Go on with the present attempt, if there is one."""
        if self._present is None:
            return
        if self._present.is_ended:
            self._present = None
            return
        ready = self._present.step()
        if ready is not None:
            self._act(ready)
