"""This node's commands on their way to whoever leads: to its own next entry, or over a link."""

import asyncio
from collections.abc import Callable
from typing import Final

from cluster.commands.forwarded import Forwarded
from cluster.commands.log_space import check_log_space
from cluster.commands.outbox import Outbox
from cluster.commands.traces import Traces
from cluster.consensus.compaction import LogSpace
from cluster.consensus.divergence import Divergence
from cluster.consensus.replica import Replica
from cluster.errors import NoLeader
from cluster.peers.leader_watch import LeaderWatch
from cluster.peers.link import FrameKind
from cluster.peers.links import PeerLinks
from cluster.peers.peer_table import PeerTable
from cluster.peers.shut_out import ShutOut
from lockstate.words.commands.entries import Command

NO_TERM: Final = 0
"""Marks a FORWARD frame without commands: it only announces this run of the process."""


class Outgoing:
    """Sends what the outbox holds, and sends it again when the leader, the term or a connection changes."""

    def __init__(
        self,
        outbox: Outbox,
        replica: Replica,
        links: PeerLinks,
        peers: PeerTable,
        *,
        leadership: LeaderWatch,
        divergence: Divergence,
        shut_out: ShutOut,
        request_entry: Callable[[], None],
        count_resent: Callable[[int], None],
        traces: Traces | None = None,
    ) -> None:
        """`request_entry` has a leader make an entry; `count_resent` is told how many commands go again.

        `traces` records what is sent, if anything is recorded.
        """
        self._outbox = outbox
        self._replica = replica
        self._links = links
        self._peers = peers
        self._leadership = leadership
        self._divergence = divergence
        self._shut_out = shut_out
        self._request_entry = request_entry
        self._count_resent = count_resent
        self._traces = traces
        self._loop = asyncio.get_running_loop()
        self._is_flush_due = False
        self.run: Callable[[Callable[[], None]], None]
        """Does a piece of work under the guard of the node's loop. Set before the first command."""

    def request_flush(self) -> None:
        """Send what the outbox holds at the end of this run of the event loop."""
        if not self._is_flush_due:
            self._loop.call_soon(self.run, self._flush)
            self._is_flush_due = True

    def _flush(self) -> None:
        """Hand unsent commands to the leader: to our own next tick, or over the link, as one frame."""
        self._is_flush_due = False
        role = self._replica.role
        if role.is_leader:
            self._request_entry()
            return
        outbox, leader_id = self._outbox, self._leadership.leader_id()
        while leader_id is not None and outbox.unsent:
            seqs, commands = outbox.take()
            traces = {} if self._traces is None else self._traces.sent(seqs, leader_id)
            forwarded = Forwarded(role.term, outbox.origin, seqs, commands, traces)
            self._links.send(leader_id, FrameKind.FORWARD, forwarded)

    def resend(self) -> None:
        """Begin again with whoever leads now: everything pending, from the lowest number on."""
        self._count_resent(self._outbox.rewind())
        self.request_flush()

    def check_room(self, command: type[Command]) -> None:
        """Raise NoLeader if this node is shut out, its state may be wrong or its cluster forms.

        Raise Overloaded if the log is full.

        That as far as the leader has told this node.
        """
        if self._shut_out.reason:
            raise NoLeader(f"this node does not take part: {self._shut_out.reason}")
        if self._divergence.is_in_doubt:
            raise NoLeader("the states of the nodes differ, and no majority says which is right")
        if not self._replica.membership.latest.serves:
            raise NoLeader("this cluster was restored, and serves when a majority of its nodes has joined")
        role = self._replica.role
        if role.is_leader:
            room: int = self._replica.engine.log_room
        else:
            ping = self._peers.records[role.leader_id].ping if role.leader_id is not None else None
            room = ping.log_room if ping is not None else LogSpace.ANYTHING
        if room:
            check_log_space(
                command, for_anything=room < LogSpace.WHAT_FREES, for_what_frees=room < LogSpace.NOTHING
            )

    def greet(self, peer_id: str) -> None:
        """Tell a connected peer which run of this node's process it speaks with; if it leads, begin again."""
        self._links.send(peer_id, FrameKind.FORWARD, Forwarded(NO_TERM, self._outbox.origin, [], []))
        if peer_id == self._replica.role.leader_id:
            self.resend()
            self._leadership.tell()
