"""Principals that this node let in once and does not let in any more: their waits end, in the whole cluster.

Of a client that is shut out no call comes any more, but a wait of it may go on for a day and be granted then.
What it holds stays: it ends with its lease, which nobody can renew.

A node knows only those whom it has let in since it was started: of others it cannot tell whether another node
has a newer file, which lets them in.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final, Protocol

from cluster.errors import ClusterError
from holdfast.token_lines import Line
from lockapi.node import NodeState
from lockapi.problems import ProblemError
from lockstate.reads import listings
from lockstate.words.commands.overrides import ForceWaits
from lockstate.words.refusals import Reason
from lockstate.words.results import WaitsForced

_TIMEOUT_S: Final = 5.0
"""Seconds in which a wait is to be ended; else the next look tries it again."""
_AT_ONCE: Final = 50
"""Waits that are ended at a time."""

logger = logging.getLogger(__name__)


class Way(Protocol):
    """The gateway of somebody who may do everything: a protocol, for the gateway stands above this."""

    @property
    def node(self) -> NodeState:
        """Return what the node shows of itself."""
        ...

    async def submit(self, command: ForceWaits, kind: type[WaitsForced], timeout_s: float) -> object:
        """Have a command applied. Raises ProblemError, ClusterError."""
        ...


class ShutOut:
    """Ends the waits of those that are shut out. What the file says comes by `follow`."""

    def __init__(self, gateway: Way) -> None:
        """End them through `gateway`."""
        self._gateway = gateway
        self._known: set[str] = set()
        self._gone: set[str] = set()
        self._ends: list[tuple[float, str]] = []

    def follow(self, lines: Iterable[Line]) -> None:
        """Take who is let in from now on."""
        names = {line.name for line in lines}
        self._known |= names
        self._gone = self._known - names
        self._ends = [(line.ends_at_s, line.name) for line in lines if line.ends_at_s is not None]

    async def look(self, now_s: float) -> None:
        """End what those wait for that are not let in at this time. Called again and again."""
        ended = {name for ends_at_s, name in self._ends if ends_at_s <= now_s}
        usage = self._gateway.node.machine.state.principals.usage
        waiting = [name for name in self._gone | ended if name in usage and usage[name].waits]
        for name in sorted(waiting):
            try:
                count = await self._end_waits(name)
            except ClusterError:
                return  # there is no leader, for example: the next look tries it again
            if count:
                logger.warning("event=shut-out-waits-ended principal=%r count=%d", name, count)

    async def _end_waits(self, principal: str) -> int:
        """End all waits of a principal; return how many there were. Raises ClusterError."""
        node = self._gateway.node
        reason = f"principal {principal!r} is not let in any more by {node.status().node_id}"
        count, after = 0, 0
        while True:
            found, last = listings.waits_of(node.machine.state, principal, after, _AT_ONCE)
            commands = [ForceWaits(wait.name, reason, wait.kind, wait.number) for wait in found]
            count += sum(await asyncio.gather(*[self._end(command) for command in commands]))
            if last is None:
                return count
            after = last

    async def _end(self, command: ForceWaits) -> bool:
        """End one wait; return whether it was still there."""
        try:
            await self._gateway.submit(command, WaitsForced, _TIMEOUT_S)
        except ProblemError as refused:
            if refused.code != Reason.TICKET_ENDED:
                raise
            return False
        return True
