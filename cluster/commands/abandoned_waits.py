"""The leader ends the waits of nodes that are gone, so that no lock goes where no client will hear of it.

A wait is kept by one run of a node's process, its origin: the one that has the client's connection. On every
link both sides first say which run they are, so each node knows the present runs of those it is connected
with. What waits for any other run is abandoned after a grace: its node died, is cut off, was removed, or has
been started anew. Only a leader acts, and nothing is done while nobody waits.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from cluster.commands.clock import ClusterClock
from cluster.commands.encoded_command import EncodedCommand
from cluster.commands.forwarded import node_of
from cluster.commands.outbox import Answer, Outbox, Pending
from cluster.commands.timers import Timers
from cluster.errors import ClusterError, NoLeader
from lockstate.words import codec
from lockstate.words.commands.entries import AbandonWaits
from lockstate.words.results import WaitsAbandoned

GRACE_MS: Final = 5_000
"""From when the leader begins to miss a run, in cluster time: its own stalls count little.

Clients repeat their requests on another node within a second or two, and links that broke are back as soon.
"""
TIMEOUT_S: Final = 5.0
"""How long one command is tried."""
RETRY_MS: Final = 1_000
"""After a command that was not taken, or had no outcome."""

logger = logging.getLogger(__name__)


class AbandonedWaits:
    """Knows which runs are connected, and ends the waits of others. `waiting` tells who has any."""

    def __init__(
        self,
        outbox: Outbox,
        timers: Timers,
        clock: ClusterClock,
        waiting: Callable[[], list[str]],
        flush: Callable[[], None],
    ) -> None:
        self._outbox = outbox
        self._timers = timers
        self._clock = clock
        self._waiting = waiting
        self._flush = flush
        self._present = {node_of(outbox.origin): outbox.origin}
        self._missed_since_ms: dict[str, int] = {}
        self._proposed: dict[str, Pending] = {}
        self._leads = False
        self._timer: asyncio.TimerHandle | None = None

    def heard(self, origin: str) -> None:
        """Record the run of a node that is connected. Cheap when it is known."""
        node_id = node_of(origin)
        if self._present.get(node_id) != origin:
            self._present[node_id] = origin
            self.look()

    def lost(self, node_id: str) -> None:
        """Record that a node is not connected any more."""
        if self._present.pop(node_id, None) is not None:
            self.look()

    def lead(self, *, is_leader: bool) -> None:
        """Begin or end to lead; in another term the grace begins anew.

        A command on its way is given up: whoever leads next may be connected with the run that it is about.
        """
        self._leads = is_leader
        self._missed_since_ms.clear()
        proposed, self._proposed = self._proposed, {}
        for pending in proposed.values():
            self._outbox.fail(pending.seq, NoLeader("this node no longer leads"))
        self.look()

    def look(self) -> None:
        """Find out who is missed; end the waits of those who have been for too long. Cheap if nobody is."""
        if not self._leads:
            return
        waiting, present = self._waiting(), self._present.values()
        missed = [origin for origin in waiting if origin not in present] if waiting else []
        if not missed:
            self._missed_since_ms.clear()
            return
        now_ms = self._clock.now_ms()
        known = self._missed_since_ms
        self._missed_since_ms = {origin: known.get(origin, now_ms) for origin in missed}
        for origin, since_ms in self._missed_since_ms.items():
            if now_ms - since_ms >= GRACE_MS:
                self._propose(origin)
        if self._timer is None:
            self._set_timer(now_ms)

    def stop(self) -> None:
        """Do nothing any more."""
        self._leads = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, now_ms: int) -> None:
        """Look again at the end of the first grace. Who is missed later has a later one."""
        waits_ms = [since_ms + GRACE_MS - now_ms for since_ms in self._missed_since_ms.values()]
        delay_ms = min(wait_ms if wait_ms > 0 else RETRY_MS for wait_ms in waits_ms)
        self._timer = self._timers.call_later(delay_ms / 1000, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self.look()

    def _propose(self, origin: str) -> None:
        """Propose an end, unless one is on its way. Of many waits some are left: the next look sees them."""
        if origin in self._proposed and not self._proposed[origin].future.done():
            return
        try:
            pending = self._outbox.submit(
                EncodedCommand(codec.encode_command(AbandonWaits(origin))), TIMEOUT_S
            )
        except ClusterError:
            # Too much to do, or this node stops: the timer tries again while there is a use.
            return
        self._proposed[origin] = pending
        pending.future.add_done_callback(lambda future: self._ended(origin, pending, future))
        self._flush()

    def _ended(self, origin: str, pending: Pending, future: "asyncio.Future[Answer]") -> None:
        """Tell people. Without an outcome the timer leads to another attempt."""
        if self._proposed.get(origin) is pending:
            del self._proposed[origin]
        if future.exception() is not None:
            return
        result = future.result().result
        if isinstance(result, WaitsAbandoned) and result.ended:
            logger.info(
                "event=waits-abandoned node=%s origin=%s ended=%d left=%d",
                node_of(origin),
                origin,
                result.ended,
                result.left,
            )
