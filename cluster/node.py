"""A node as its HTTP front end sees it: commands and reads in, outcomes out; how it starts and stops."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeVar

from cluster.commands.outbox import Answer, Pending
from cluster.config import NodeConfig, check_member
from cluster.consensus.member_list import Members
from cluster.core import Core
from cluster.errors import ClusterError, NoLeader, OutcomeUnknown, ShuttingDown, TransferFailed
from cluster.observing.event_log import EventLog
from cluster.observing.metrics import Metrics
from cluster.observing.status import ClusterStatus, PeerStatus
from cluster.peers.link import FrameKind
from cluster.storage.files import Files
from cluster.storage.forked_child import Child
from lockstate import codec
from lockstate.commands import Cancel, Command, Convert, MayWait
from lockstate.ids import NO_HOLD, HoldId
from lockstate.machine import LockMachine
from lockstate.results import Granted, Queued, Result

__all__ = ["Answer", "Node"]

T = TypeVar("T")

"""The commands that may wait in a queue."""

HANDOVERS_MAX: Final = 2
"""How often a stopping leader tries to hand leadership over."""
DRAIN_S: Final = 2.0
"""How long a stopping node waits for the outcomes of what is under way."""
CANCEL_S: Final = 5.0
"""How long the cancel of an abandoned request is tried."""
READY_LAG_MS_MAX: Final = 3_000
"""A node that has heard of no leader for longer is not ready. Nor is one that has the log to come yet."""

logger = logging.getLogger(__name__)


class Node:
    """One node of the cluster: takes commands and reads, replicates them, completes them from its own apply.

    One thread: everything is called from the event loop in which it was started.
    """

    def __init__(self, config: NodeConfig, *, files: Files | None = None, child: Child | None = None) -> None:
        """Be a node of `config`; `files` and `child` are its disk and how it forks, for tests to replace."""
        self.config = config
        self._files = files or Files()
        self._child = child or Child()
        self._core: Core | None = None
        self._shutdown = asyncio.Event()
        self._cancels: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Take the data directory, recover, listen for peers. Raises StartupError."""
        self._core = Core(self.config, self._files, self._child)
        try:
            await self._core.start()
        except BaseException:
            await self._core.stop()
            raise

    def begin_shutdown(self) -> None:
        """Refuse new work; waits in queues and watches end here. What was sent may still finish."""
        self._shutdown.set()
        self.core.waiters.fail_all(_left())
        self.core.events.end()

    async def wait_shutdown(self) -> None:
        """Return once this node begins to shut down."""
        await self._shutdown.wait()

    async def hand_over(self) -> None:
        """Make another node lead, if this one does and any can: before clients have to notice anything."""
        core = self.core
        for _ in range(HANDOVERS_MAX):
            successor = core.replica.most_caught_up()
            handover = core.begin_handover(successor) if successor is not None else None
            if handover is None:
                return
            if await handover.wait():
                logger.info("event=leadership-handed-over to=%s", successor)
                return

    async def stop(self) -> None:
        """Hand leadership over if leading, finish what is in flight, sync, close. Idempotent.

        Raises NodeFailed if the disk fails at the last write. What broke earlier is in `failure`.
        """
        core = self._core
        if core is None:
            return
        self._shutdown.set()
        core.events.end()
        if not core.failed.done():
            await self.hand_over()
            core.waiters.fail_all(_left())
            await core.outbox.drain(DRAIN_S)
        await core.stop()

    async def wait_failed(self) -> BaseException:
        """Return the failure once this node broke. It must be stopped then."""
        return await asyncio.shield(self.core.failed)

    @property
    def failure(self) -> BaseException | None:
        """Return what broke this node, None if nothing did: also while it was stopping."""
        core = self._core
        return core.failed.result() if core is not None and core.failed.done() else None

    @property
    def core(self) -> Core:
        """Return the core of a started node."""
        assert self._core is not None, "the node has not been started"
        return self._core

    @property
    def machine(self) -> LockMachine:
        """Return this node's state, which may be stale. To be read only."""
        return self.core.machine

    @property
    def events(self) -> EventLog:
        """Return what happened lately, as this node applied it."""
        return self.core.events

    @property
    def metrics(self) -> Metrics:
        """Return this node's counters."""
        return self.core.metrics

    @property
    def is_shutting_down(self) -> bool:
        """Whether this node refuses new work."""
        return self._shutdown.is_set()

    # -- commands and reads ---------------------------------------------------------------------------------

    async def submit(self, command: Command, timeout_s: float) -> Answer:
        """Replicate one command and return its result and revision.

        Raises:
            NoLeader, Overloaded, ShuttingDown: not applied.
            OutcomeUnknown: sent, and no outcome within `timeout_s`.
        """
        return await self._submit(command, timeout_s).future

    async def acquire(self, command: MayWait, timeout_s: float) -> Answer:
        """Replicate a request that may wait in a queue, and wait there: the result is Granted or Refused.

        When the calling task is cancelled (the client went away) the request is undone in the cluster too,
        unless this node is shutting down: then its client may ask on another node with the same request_id.
        Of a conversion only the wait is undone: one that came through stays, as the hold does.
        Takes at most `wait_ms` + 2 * `timeout_s`. Raises as `submit`.
        """
        pending = self._submit(command, timeout_s)
        try:
            answer = await asyncio.shield(pending.future)
        except asyncio.CancelledError:
            self._undo_when_known(command, pending)
            raise
        if answer.wait is None:
            return answer
        try:
            async with asyncio.timeout(command.wait_ms / 1000 + timeout_s):
                return await answer.wait
        except TimeoutError:
            if not command.request_id:
                # Nobody can ask for this outcome again.
                self._undo(command, answer)
            raise OutcomeUnknown("the wait did not end in time; repeat with the same request_id") from None
        except asyncio.CancelledError:
            self._undo(command, answer)
            raise
        except OutcomeUnknown:
            if self.is_shutting_down and not command.request_id:
                # Nobody can ask for this outcome again: take the ticket back rather than leave it behind.
                await self._cancel(command, answer)
            raise

    async def read(self, query: Callable[[LockMachine], T], timeout_s: float) -> T:
        """Answer from a state at least as new as every answer given before this call, anywhere.

        Raises NoLeader, Overloaded, ShuttingDown.
        """
        self._check_open()
        future = self.core.outbox.read(query, timeout_s)
        self.core.request_flush()
        return await future

    def _submit(self, command: Command, timeout_s: float) -> Pending:
        self._check_open()
        try:
            pending = self.core.outbox.submit(codec.encode_command(command), timeout_s)
        except ClusterError as error:
            self.metrics.failures[error.code] += 1
            raise
        self.core.request_flush()
        return pending

    def _check_open(self) -> None:
        if self.is_shutting_down or self.core.failed.done():
            self.metrics.failures[ShuttingDown.code] += 1
            raise ShuttingDown("this node is stopping; ask another")

    # -- clients that went away -----------------------------------------------------------------------------

    def _undo_when_known(self, command: MayWait, pending: Pending) -> None:
        """Undo a request whose client left before it was known whether it waits or holds."""

        def on_outcome(future: asyncio.Future[Answer]) -> None:
            if not future.cancelled() and future.exception() is None:
                self._undo(command, future.result())

        pending.future.add_done_callback(on_outcome)

    def _undo(self, command: MayWait, answer: Answer) -> None:
        """Cancel in the background."""
        if answer.wait is not None:
            answer.wait.cancel()
        if not self.is_shutting_down:
            task = asyncio.get_running_loop().create_task(self._cancel(command, answer))
            self._cancels.add(task)
            task.add_done_callback(self._cancels.discard)

    async def _cancel(self, command: MayWait, answer: Answer) -> None:
        """Take back a wait, or a grant. If no leader can be told, ticket and hold end by themselves."""
        undone = _to_undo(command, answer.result)
        if not undone:
            return
        cancel = codec.encode_command(Cancel(undone, command.attempt_id))
        try:
            pending = self.core.outbox.submit(cancel, CANCEL_S)
            self.core.request_flush()
            await pending.future
        except ClusterError as error:
            name = "" if isinstance(command, Convert) else command.name
            logger.warning("event=cancel-failed code=%s name=%r", error.code, name)

    # -- cluster --------------------------------------------------------------------------------------------

    def status(self) -> ClusterStatus:
        """Return the cluster as this node sees it."""
        core = self.core
        leader_id = core.leader_id()
        lag_ms = int(min(core.replica.lag_s, 10**6) * 1000)
        members = set(core.replica.members.nodes) | {self.config.node_id}
        return ClusterStatus(
            node_id=self.config.node_id,
            leader=leader_id,
            term=core.replica.term,
            revision=core.machine.revision,
            lag_ms=lag_ms,
            ready=self._is_ready(leader_id, lag_ms),
            nodes=tuple(self._peer_status(node_id, leader_id) for node_id in sorted(members)),
        )

    def _is_ready(self, leader_id: str | None, lag_ms: int) -> bool:
        is_broken = self.is_shutting_down or self.core.failed.done()
        is_voter = self.config.node_id in self.core.replica.voters
        return not is_broken and is_voter and leader_id is not None and lag_ms < READY_LAG_MS_MAX

    def _peer_status(self, node_id: str, leader_id: str | None) -> PeerStatus:
        core = self.core
        member = core.replica.members.nodes.get(node_id)
        peer = member.peer if member is not None else str(self.config.peer)
        if node_id == self.config.node_id:
            return PeerStatus(node_id, self.config.advertise_http, peer, core.role(), core.machine.revision)
        ping, http = core.peering.pings.get(node_id), core.peering.http.get(node_id, "")
        if ping is None or not core.links.is_up(node_id):
            return PeerStatus(node_id, http, peer, "unreachable", ping.revision if ping else 0)
        told = "follower" if ping.state == "leader" else ping.state
        if member is not None and not member.is_voter:
            told = "joining"
        state = "leader" if node_id == leader_id else told
        return PeerStatus(node_id, http, peer, state, ping.revision)

    async def transfer_leadership(self, to: str | None, timeout_s: float) -> str:
        """Hand leadership to `to`, or to the most caught-up follower, from any node; return who leads then.

        Raises NoLeader, TransferFailed.
        """
        core = self.core
        if to is not None and to not in core.replica.voters:
            raise TransferFailed(f"no node that may lead is called {to!r}")
        leader_id = core.leader_id()
        if leader_id is None:
            raise NoLeader("no leader can be reached")
        if to is None:
            to = self._successor(leader_id)
        if to is None:
            raise TransferFailed("no other node is connected to the leader")
        if to == leader_id:
            return leader_id
        if not core.replica.is_leader:
            core.links.send(leader_id, FrameKind.TRANSFER, to)
        elif core.begin_handover(to) is None:
            raise TransferFailed(f"{to} is not connected to the leader")
        try:
            async with asyncio.timeout(timeout_s):
                while core.leader_id() != to:
                    await core.leadership.wait()
        except TimeoutError:
            raise TransferFailed(f"{to} did not take over; {core.leader_id()} leads") from None
        return to

    def _successor(self, leader_id: str) -> str | None:
        """Return who shall lead next. Only the leader knows who has most; others offer themselves."""
        core = self.core
        if core.replica.is_leader:
            return core.replica.most_caught_up()
        candidates = core.replica.voters & (core.links.up() | {self.config.node_id}) - {leader_id}
        return self.config.node_id if self.config.node_id in candidates else min(candidates, default=None)

    async def add_member(self, node_id: str, peer: str, timeout_s: float) -> Members:
        """Add a node that listens at `peer`; return the committed list. It counts when it has caught up.

        Raises NoLeader, ShuttingDown, MemberChangeRefused, OutcomeUnknown, and ConfigError for what is no id
        or address.
        """
        self._check_open()
        return await self.core.changes.change(node_id, str(check_member(node_id, peer)), timeout_s)

    async def remove_member(self, node_id: str, timeout_s: float) -> Members:
        """Remove a node, which hands leadership over first if it leads; return the committed list.

        Raises NoLeader, ShuttingDown, MemberChangeRefused, OutcomeUnknown.
        """
        self._check_open()
        return await self.core.changes.change(node_id, "", timeout_s)


def _to_undo(command: MayWait, result: Result) -> HoldId:
    """Return the id of the ticket or hold that a client left behind, empty if there is none.

    A hold that the session had before, or that an earlier attempt got, is not this one's to undo. Nor is the
    hold of a conversion.
    """
    match result:
        case Queued():
            return result.hold_id
        case Granted() if not isinstance(command, Convert) and result.hold_id == command.hold_id:
            return result.hold_id
    return NO_HOLD


def _left() -> OutcomeUnknown:
    """Say that a wait ended here only because this node stops."""
    return OutcomeUnknown("this node stops; repeat the request with the same request_id on another node")
