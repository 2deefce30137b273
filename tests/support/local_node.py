"""The node of `holdfast.testing` on a real clock, with what tests of the faces watch and decide."""

import asyncio
from collections.abc import Iterable

from cluster.commands.outbox import Answer as LocalAnswer
from cluster.consensus import member_list
from cluster.consensus.member_list import MemberRecord, Members
from cluster.observing.samples import Sample
from cluster.observing.status import ClusterStatus, PeerStatus
from holdfast.testing._node import MemoryNode
from lockstate.words.commands.entries import Command
from lockstate.words.commands.holds import MayWait

__all__ = ["LocalAnswer", "LocalNode"]


class LocalMetrics:
    """Two metrics that a renderer has to get right."""

    def samples(self) -> Iterable[Sample]:
        """Return a counter and a histogram."""
        yield "test_commands_total", "Commands applied.", "counter", {"kind": 'a"b\\c'}, 3
        yield "test_wait_seconds_bucket", "Waits.", "histogram", {"le": "0.5"}, 1
        yield "test_wait_seconds_bucket", "Waits.", "histogram", {"le": "+Inf"}, 2
        yield "test_wait_seconds_sum", "Waits.", "histogram", {}, 0.75
        yield "test_wait_seconds_count", "Waits.", "histogram", {}, 2


class LocalNode(MemoryNode):
    """A node of a test. `failure`, when set, is raised by every call instead."""

    def __init__(self) -> None:
        super().__init__()
        self.metrics = LocalMetrics()
        self.members = Members({"n1": MemberRecord("127.0.0.1:2", is_voter=True)})
        self.is_ready = True
        self.told_troubles: tuple[str, ...] = ()
        self.failure: Exception | None = None
        self.timeouts_s: list[float] = []
        self.begun: list[tuple[Command, asyncio.Future[LocalAnswer]]] = []
        self.abandoned: list[Command] = []
        self.holds_outcomes = False
        self.fixed_ms: int | None = None
        """The time of all commands, for answers that must not depend on the clock."""
        self.cancelled = asyncio.Event()
        self.transfers: list[str | None] = []

    def begin(
        self, command: Command, timeout_s: float, principal: str = "", lane: str = ""
    ) -> asyncio.Future[LocalAnswer]:
        """Apply one command. With `holds_outcomes` the test says when, and sets the outcome itself."""
        if self.holds_outcomes:
            self._check(timeout_s)
            begun: asyncio.Future[LocalAnswer] = asyncio.get_running_loop().create_future()
        else:
            begun = super().begin(command, timeout_s, principal, lane)
        self.begun.append((command, begun))
        return begun

    def abandon(self, command: Command, begun: object, principal: str = "") -> None:
        """Note what was given up; what was acquired and waited for its moment is released."""
        if any(begun is known for _, known in self.begun):
            self.abandoned.append(command)
        else:
            super().abandon(command, begun, principal)

    async def acquire(
        self, command: MayWait, timeout_s: float, principal: str = "", poll_s: float | None = None
    ) -> LocalAnswer:
        """Apply a request and wait for its end; leave it when cancelled."""
        try:
            return await super().acquire(command, timeout_s, principal, poll_s)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    def status(self) -> ClusterStatus:
        """Return a cluster of one node."""
        peers = (PeerStatus("n1", "http://127.0.0.1:1", "127.0.0.1:2", "leader", self.machine.revision),)
        return ClusterStatus("n1", "n1", 1, self.machine.revision, 7, self.is_ready, peers)

    def troubles(self) -> tuple[str, ...]:
        """Return what the test says."""
        return self.told_troubles

    async def transfer_leadership(self, to: str | None, timeout_s: float) -> str:
        """Note the wish."""
        self._check(timeout_s)
        self.transfers.append(to)
        return to or "n1"

    async def members_if_made(
        self, node_id: str, peer: str, timeout_s: float, *, is_move: bool = False
    ) -> Members | None:
        """Say whether there is anything to change, as the leader would."""
        self._check(timeout_s)
        known = self.members.nodes.get(node_id)
        if not peer:
            member_list.without(self.members, node_id, "", self.members.nodes)
            return None
        if known is None and is_move:
            member_list.moved(self.members, node_id, peer)
        return self.members if known is not None and known.peer == peer else None

    async def add_member(self, node_id: str, peer: str, timeout_s: float) -> Members:
        """Let a node join; it never counts here."""
        self._check(timeout_s)
        if node_id not in self.members.nodes:
            self.members = member_list.with_learner(self.members, node_id, peer)
        return self.members

    async def move_member(self, node_id: str, peer: str, timeout_s: float) -> Members:
        """Change a node's address."""
        self._check(timeout_s)
        self.members = member_list.moved(self.members, node_id, peer)
        return self.members

    async def remove_member(self, node_id: str, timeout_s: float) -> Members:
        """Remove a node."""
        self._check(timeout_s)
        self.members = member_list.without(self.members, node_id, "", self.members.nodes)
        return self.members

    def close(self) -> None:
        """Let no timer outlive the test."""
        self._stop_timer()

    def _check(self, timeout_s: float) -> None:
        self.timeouts_s.append(timeout_s)
        if self.failure is not None:
            raise self.failure
        super()._check(timeout_s)

    def _now_ms(self) -> int:
        return super()._now_ms() if self.fixed_ms is None else self.fixed_ms

    def _set_timer(self) -> None:
        if self.fixed_ms is None:
            super()._set_timer()
