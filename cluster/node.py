"""One process: whose directory, which links, and its parts; how a node starts and stops; operators' calls.

Faces see a node through `lockapi/node.py`: commands and reads in, outcomes out.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from cluster import exposure
from cluster.assembly import Parts
from cluster.backups import Backups
from cluster.build import UNKNOWN, Build
from cluster.commands.outbox import Answer
from cluster.config import Address, NodeConfig, check_member
from cluster.consensus.beginning import check_configured, check_founded, differing, listen_address
from cluster.consensus.library_words import EngineJournal
from cluster.consensus.member_list import Members
from cluster.errors import (
    DataDirError,
    NoLeader,
    OutcomeUnknown,
    ShuttingDown,
    StartupError,
    StateDamaged,
    TransferFailed,
)
from cluster.loading import Loading
from cluster.observing.event_log import EventLog
from cluster.observing.metrics import NodeMetrics
from cluster.observing.obstacles import obstacles
from cluster.observing.status import (
    ClusterStatus,
    OwnStatus,
    PeerStatus,
    PreferredLeaderStatus,
    RulesHoldStatus,
)
from cluster.observing.troubles import troubles
from cluster.peers import peer_tls_watch
from cluster.peers.channels import Channels
from cluster.peers.link import FrameKind
from cluster.peers.links import PeerLinks
from cluster.peers.peer_tls_watch import PeerTlsWatch
from cluster.peers.secret_watch import SecretWatch
from cluster.peers.space_watch import SpaceWatch
from cluster.storage.data_directory import DataDir
from cluster.storage.disk_space import disk_space
from cluster.storage.disk_work import DiskWork, WorkThread
from cluster.storage.files import Files
from cluster.storage.forked_child import Child
from cluster.storage.snapshot_store import SnapshotReader, SnapshotStore
from cluster.storage.sync_runner import SyncRunner, SyncThread
from cluster.tracing import Tracer
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words.commands.entries import Command
from lockstate.words.commands.holds import MayWait

__all__ = ["Answer", "Node"]

T = TypeVar("T")

DRAIN_S: Final = 2.0
"""The time, in seconds, for which a stopping node waits for the outcomes of what is under way."""
READY_LAG_MS_MAX: Final = 3_000
"""The silence of leaders, in ms, from which on a node is not ready. A node that has the log to come is not
ready either."""

logger = logging.getLogger(__name__)


class Node:
    """One node of the cluster: takes commands and reads, replicates them, completes them from its own apply.

    One thread: everything is called from the event loop in which it was started.
    """

    def __init__(
        self,
        config: NodeConfig,
        *,
        files: Files | None = None,
        child: Child | None = None,
        syncs: SyncRunner | None = None,
        work: DiskWork | None = None,
        build: Build = UNKNOWN,
        tracer: Tracer | None = None,
    ) -> None:
        """Be a node of `config`, that runs this build, and records with `tracer` if there is one.

        `files` and `child` are its disk and how it forks, `syncs` runs the syncs of its journal, `work`
        does its other long work on the disk; for tests to replace.
        """
        self.config = config
        self._files = files or Files()
        self._is_disk_real = files is None
        self._child = child or Child()
        self._given_syncs = syncs
        self._given_work = work
        self._build = build
        self._tracer = tracer
        self._backups = Backups(config.data_dir, self._files, Child())
        self._shutdown = asyncio.Event()
        self._parts: Parts | None = None
        self._secret_watch: SecretWatch | None = None
        self.peer_tls_watch: PeerTlsWatch | None = None
        """What keeps the TLS between this node and its peers, if there is any. Set by `start`."""
        self._is_stopped = False
        self.loading = Loading()
        """How far the start is."""
        self.peer_warning = ""
        """What is to be warned of where this node listens for others, once it does; empty if nothing is."""

    async def start(self) -> None:
        """Take the data directory, recover, listen for peers. Raises StartupError."""
        config = self.config
        self._is_stopped = False
        # Read first: what is wrong with files is found before the data directory is touched.
        self.peer_tls_watch = peer_tls_watch.watch_of(config)
        self._datadir = DataDir.open(config.data_dir, config.node_id, joins=config.join, files=self._files)
        with contextlib.ExitStack() as opened:
            opened.callback(self._datadir.close)
            parts = await self._assemble(opened)
            opened.pop_all()
        self._parts = parts
        if config.secret_file is not None:
            self._secret_watch = SecretWatch(config.secret_file, config.secrets, parts.links.use_secrets)
        try:
            await self._take_part(parts)
        except BaseException:
            await self._close(parts)
            raise
        self.loading.is_over = True

    async def _assemble(self, opened: contextlib.ExitStack) -> Parts:
        """Recover, and return the parts; what has to be closed if that fails is in `opened`."""
        config = self.config
        try:
            self._open_log()
            self._syncs = self._given_syncs or SyncThread(asyncio.get_running_loop().call_soon_threadsafe)
            opened.callback(self._syncs.close)
            loaded = await self.loading.load(self._store)
            if self._is_stopped:
                raise StartupError("the node was told to stop while it started")
            return Parts(
                config,
                self._datadir,
                self._journal,
                self._store,
                self._unlinked(),
                syncs=self._syncs,
                peer_tls_watch=self.peer_tls_watch,
                build=self._build,
                space=self._space_watch(),
                loaded=loaded,
                tracer=self._tracer,
            )
        except snapshot.SnapshotError as error:
            raise DataDirError(
                f"{config.data_dir}: the snapshot is whole, but this version cannot use it: {error}. Use the"
                " version of Holdfast that wrote it, or replace this node with a new one"
            ) from error
        except OSError as error:
            raise DataDirError(f"{config.data_dir}: the disk failed at the start: {error}") from error

    def _space_watch(self) -> SpaceWatch:
        """Return what looks at the space on the disk; at nothing, where tests have another one."""
        path = self.config.data_dir
        measure = partial(disk_space, path) if self._is_disk_real else None
        return SpaceWatch(str(path), measure, self._work)

    def _unlinked(self) -> PeerLinks:
        """Return the links of this node, to nobody yet, with TLS if it has that."""
        config, watch = self.config, self.peer_tls_watch
        tls = watch.tls if watch is not None else None
        return PeerLinks(config.node_id, config.secrets, {}, configured=config.peers, tls=tls)

    def _open_log(self) -> None:
        """Open journal and snapshots. Raises StartupError."""
        config = self.config
        self._work = self._given_work or WorkThread(asyncio.get_running_loop().call_soon_threadsafe)
        self._store = SnapshotStore(config.data_dir, self._files, self._child, self._work)
        self._journal = EngineJournal.open(config.data_dir, self._datadir.disk_id, files=self._files)
        journal, record = self._journal, self._datadir.cluster
        has_log = journal.last_index > 1 or journal.term > 0 or self._store.exists()
        is_in_use = has_log or bool(self._datadir.known)
        check_founded(config, record, joins=self._datadir.identity.joins, is_in_use=is_in_use)

    async def _take_part(self, parts: Parts) -> None:
        """Listen, dial, and begin to tick. Raises StartupError."""
        self._check_configuration(parts)
        self._journal.sync()
        if self.config.takes_peers:
            self._check_certificate(parts)
            listen = listen_address(self.config, parts.replica.membership.latest)
            await parts.links.start(listen, self._allow_peers)
            for watch in (self._secret_watch, self.peer_tls_watch):
                if watch is not None:
                    watch.start()
        if not parts.peering.is_established:
            logger.info("event=first-start waiting_for=%s", ",".join(parts.peering.founding.missing()) or "-")
        elif self.config.node_id not in parts.replica.membership.latest.nodes:
            logger.info("event=joining detail=%r", "waits to be added: see `holdfast cluster add`")
        self._compare_members(parts)
        parts.start()

    def _check_configuration(self, parts: Parts) -> None:
        """Refuse a configuration of another cluster than that in the data directory. Raises ConfigError."""
        membership, joins = parts.replica.membership, self._datadir.identity.joins
        check_configured(
            self.config,
            self._datadir.cluster,
            membership.latest,
            joins=joins,
            has_list=membership.is_listed,
        )

    def _check_certificate(self, parts: Parts) -> None:
        """Refuse a certificate for peers that is of another cluster. Raises ConfigError."""
        if self.peer_tls_watch is not None:
            joins = self._datadir.identity.joins
            self.peer_tls_watch.belong(
                lambda: parts.peering.table.cluster_id, is_founding=not joins and parts.replica.is_log_empty
            )

    def _allow_peers(self, bound: Sequence[Address]) -> None:
        """Refuse to listen where others could read along, unless that was asked for. Raises ConfigError."""
        self.peer_warning = exposure.check_peers(
            bound, has_tls=self.config.requires_peer_tls, is_allowed=self.config.insecure_peers
        )

    def _compare_members(self, parts: Parts) -> None:
        """Say so when the members are no longer those of the configuration: the list in the log counts."""
        membership, joins = parts.replica.membership, self._datadir.identity.joins
        found = differing(self.config, membership.latest, joins=joins, has_list=membership.is_listed)
        if found is not None:
            logger.warning(
                "event=members-differ members=%s configured=%s detail=%r",
                *found,
                "the members count; `peers` of the configuration only says where else to dial them",
            )

    def begin_shutdown(self) -> None:
        """Refuse new work; waits in queues and watches end here. What was sent may still finish."""
        self._shut_down()
        self.parts.waiters.fail_all(_left())
        self.parts.events.end()

    def _shut_down(self) -> None:
        self._shutdown.set()
        self.parts.shut_down()

    async def wait_shutdown(self) -> None:
        """Return once this node begins to shut down."""
        await self._shutdown.wait()

    async def hand_over(self) -> None:
        """Make another node lead, if this one does and any can: before clients have to notice anything."""
        await self.parts.handovers.hand_over()

    async def stop(self) -> None:
        """Hand leadership over if leading, finish what is in flight, sync, close. Idempotent.

        Raises NodeFailed if the disk fails at the last write. What broke earlier is in `failure`.
        """
        parts = self._parts
        if parts is None:
            self._is_stopped = True  # a start that reads the state goes no further
            return
        self._shut_down()
        parts.events.end()
        if not parts.loop.has_failed:
            await self.hand_over()
            parts.waiters.fail_all(_left())
            await parts.outbox.drain(DRAIN_S)
        await self._close(parts)

    async def _close(self, parts: Parts) -> None:
        """Sync and close everything. Idempotent."""
        if self._is_stopped:
            return
        self._is_stopped = True
        # From the last to the first, and each of them even if one before it fails.
        with contextlib.ExitStack() as stack:
            stack.callback(self._datadir.close)
            stack.callback(self._syncs.close)
            stack.callback(self._journal.close)
            stack.callback(self._store.close)
            stack.callback(self._work.close)
            stack.callback(parts.replica.close)
            parts.stop()
            for watch in (self._secret_watch, self.peer_tls_watch):
                if watch is not None:
                    await watch.stop()
            await parts.links.stop()

    @property
    def has_secret_file(self) -> bool:
        """Whether this node has read its secret from a file, which can be read again."""
        return self._secret_watch is not None

    def read_secret(self) -> None:
        """Read the secret file again, at once."""
        if self._secret_watch is None:
            logger.warning("event=secret-not-read path=- reason=%r", "this node has no --secret-file")
        else:
            self._secret_watch.read_now()

    async def wait_failed(self) -> BaseException:
        """Return the failure once this node broke. It must be stopped then."""
        return await asyncio.shield(self.parts.loop.failure)

    @property
    def failure(self) -> BaseException | None:
        """Return what broke this node, None if nothing did: also while it was stopping."""
        parts = self._parts
        return parts.loop.failure.result() if parts is not None and parts.loop.failure.done() else None

    @property
    def has_failed(self) -> bool:
        """Whether this node broke: its state may be half-way between two revisions."""
        return self._parts is not None and self._parts.loop.has_failed

    def broke(self, error: BaseException) -> None:
        """Stop taking part: something broke outside of the group's own work."""
        if self._parts is not None:
            self._parts.loop.fail(error)

    @property
    def parts(self) -> Parts:
        """Return the parts of a started node."""
        assert self._parts is not None, "the node has not been started"
        return self._parts

    @property
    def machine(self) -> LockMachine:
        """Return this node's state, which may be stale. To be read only."""
        return self.parts.machine

    @property
    def events(self) -> EventLog:
        """Return what happened lately, as this node applied it."""
        return self.parts.events

    @property
    def channels(self) -> Channels:
        """Return what clients tell each other through this node."""
        return self.parts.peering.channels

    @property
    def metrics(self) -> NodeMetrics:
        """Return this node's counters."""
        return self.parts.metrics

    @property
    def is_shutting_down(self) -> bool:
        """Whether this node refuses new work."""
        return self._shutdown.is_set()

    # -- commands and reads (see ClientRequests) ------------------------------------------------------------

    def submit(self, command: Command, timeout_s: float, principal: str = "") -> Coroutine[Any, Any, Answer]:
        """Replicate one command, of a principal if there is one; return its result and revision."""
        return self.parts.requests.submit(command, timeout_s, principal)

    def begin(
        self, command: Command, timeout_s: float, principal: str = "", lane: str = ""
    ) -> "asyncio.Future[Answer]":
        """Replicate one command that does not wait in a queue; return the future of its answer.

        What is begun in one lane is applied in this order.
        """
        return self.parts.requests.begin(command, timeout_s, principal, lane)

    def abandon(self, command: Command, begun: object, principal: str = "") -> None:
        """Leave what was begun for a client that went away."""
        assert isinstance(begun, asyncio.Future), "that is what `begin` returned"
        self.parts.requests.abandon(command, begun, principal)

    def acquire(
        self, command: MayWait, timeout_s: float, principal: str = "", poll_s: float | None = None
    ) -> Coroutine[Any, Any, Answer]:
        """Replicate a request that may wait in a queue, and wait there, or for `poll_s`."""
        return self.parts.requests.acquire(command, timeout_s, principal, poll_s)

    def withdraw(
        self, scope: str, request_id: str, timeout_s: float, principal: str = ""
    ) -> Coroutine[Any, Any, bool]:
        """Take back a request that waits, or what it was granted; return whether there was anything."""
        return self.parts.requests.withdraw(scope, request_id, timeout_s, principal)

    def read(self, query: Callable[[LockMachine], T], timeout_s: float) -> Coroutine[Any, Any, T]:
        """Answer from a state at least as new as every answer given before this call, anywhere."""
        return self.parts.requests.read(query, timeout_s)

    # -- cluster --------------------------------------------------------------------------------------------

    def status(self) -> ClusterStatus:
        """Return the cluster as this node sees it."""
        parts = self.parts
        leader_id = parts.leadership.leader_id()
        lag_ms = self._lag_ms()
        members = set(parts.replica.membership.latest.nodes) | {self.config.node_id}
        return ClusterStatus(
            node_id=self.config.node_id,
            leader=leader_id,
            term=parts.replica.role.term,
            revision=parts.machine.revision,
            lag_ms=lag_ms,
            ready=self._is_ready(leader_id, lag_ms),
            nodes=tuple(self._peer_status(node_id, leader_id) for node_id in sorted(members)),
            obstacles=obstacles(parts, now_s=asyncio.get_running_loop().time(), monotonic_s=time.monotonic()),
            digest=f"{parts.machine.fingerprint:016x}",
            rules=parts.machine.rules,
            now_ms=parts.machine.now_ms,
            own=self._own_status(),
            rules_hold=self._rules_hold(),
            preferred=self._preferred(),
        )

    def _rules_hold(self) -> RulesHoldStatus | None:
        """Return why the rules stay as they are, None if they may move on."""
        hold, now_ms = self.parts.machine.state.rules_hold, self.parts.group.present_ms
        return None if hold is None else RulesHoldStatus(hold.by, hold.reason, now_ms - hold.since_ms)

    def _preferred(self) -> PreferredLeaderStatus | None:
        """Return who should lead, None if it does not matter."""
        wish = self.parts.machine.state.preferred
        if wish is None:
            return None
        why_not, for_ms = self.parts.preferred.why_not(), self.parts.group.present_ms - wish.since_ms
        return PreferredLeaderStatus(wish.node_id, wish.by, wish.reason, for_ms, why_not)

    def _own_status(self) -> OwnStatus:
        """Return what this node says of itself alone."""
        parts, space = self.parts, self.parts.space.space
        written_s = space.written_s if space is not None else None
        return OwnStatus(
            uptime_ms=int(1000 * (asyncio.get_running_loop().time() - parts.started_s)),
            state_bytes=parts.machine.bytes_count,
            state_bytes_max=parts.machine.bytes_max,
            directory_bytes=space.directory if space is not None else None,
            free_bytes=space.free if space is not None else None,
            snapshot_bytes=space.snapshot if space is not None else None,
            snapshot_age_ms=max(0, int(1000 * (time.time() - written_s))) if written_s is not None else None,
        )

    def troubles(self) -> tuple[str, ...]:
        """Return what is wrong with this node although it runs, in sentences."""
        parts = self.parts
        now_s = asyncio.get_running_loop().time()
        found = troubles(
            parts.replica.engine, parts.clocks, parts.divergence, parts.disk, now_s, room=parts.space
        )
        return tuple(trouble.detail for trouble in found)

    @property
    def is_ready(self) -> bool:
        """Whether this node counts, serves, and has heard from a leader lately."""
        return self._is_ready(self.parts.leadership.leader_id(), self._lag_ms())

    @property
    def is_voter(self) -> bool:
        """Whether this node is one of those of which a majority decides."""
        return self.config.node_id in self.parts.replica.membership.voters

    def _is_ready(self, leader_id: str | None, lag_ms: int | None) -> bool:
        parts = self.parts
        is_apart = parts.divergence.is_in_doubt or bool(parts.peering.shut_out.reason)
        is_broken = self.is_shutting_down or self.has_failed or is_apart
        is_led = leader_id is not None and lag_ms is not None and lag_ms < READY_LAG_MS_MAX
        is_led = is_led and parts.replica.membership.latest.serves
        return not is_broken and self.is_voter and is_led

    def _lag_ms(self) -> int | None:
        """Return for how long this node has heard from no leader, None if it never has since it started."""
        lag_s = self.parts.replica.prevote.lag_s
        return None if math.isinf(lag_s) else int(lag_s * 1000)

    def _peer_status(self, node_id: str, leader_id: str | None) -> PeerStatus:
        parts = self.parts
        member = parts.replica.membership.latest.nodes.get(node_id)
        peer = member.peer if member is not None else str(self.config.peer)
        if node_id == self.config.node_id:
            return PeerStatus(
                node_id,
                self.config.advertise_http,
                peer,
                parts.peering.role(),
                parts.machine.revision,
                parts.build.version,
                parts.peering.rules_newest,
            )
        record = parts.peering.table.records[node_id]
        ping, http, said = record.ping, record.http, record.particulars
        version, rules = (said.version, said.rules) if said is not None else ("", 0)
        if ping is None:
            return PeerStatus(node_id, http, peer, "unreachable", 0, version, rules)
        told = "follower" if ping.state == "leader" else ping.state
        if member is not None and not member.is_voter:
            told = "joining"
        state = "leader" if node_id == leader_id else told
        return PeerStatus(node_id, http, peer, state, ping.revision, version, rules)

    async def backup(self, head: Callable[[Members, int, int, int], bytes]) -> SnapshotReader:
        """Return a backup of this node's state as it is now, which may be stale; the caller closes it.

        `head` makes what stands before the state, in a forked child: of the members, of index and term of an
        entry that is not older than the state, and of its length in bytes. Raises ShuttingDown, Overloaded.
        """
        parts = self.parts
        if not parts.is_open:
            raise ShuttingDown("this node is stopping; ask another")
        engine, members = parts.replica.engine, parts.replica.membership.committed
        place = (engine.applied_index, engine.term)
        try:
            return await self._backups.write(
                lambda state_bytes: head(members, *place, state_bytes), parts.group.encode_state
            )
        except StateDamaged as damage:
            self.broke(damage)
            raise ShuttingDown("this node failed; ask another") from damage

    async def transfer_leadership(self, to: str | None, timeout_s: float) -> str:
        """Hand leadership to `to`, or to the most caught-up follower, from any node; return who leads then.

        Raises NoLeader, TransferFailed.
        """
        parts = self.parts
        if to is not None and to not in parts.replica.membership.voters:
            raise TransferFailed(f"no node that may lead is called {to!r}")
        leader_id = parts.leadership.leader_id()
        if leader_id is None:
            raise NoLeader("no leader can be reached")
        if to is None:
            to = self._successor(leader_id)
        if to is None:
            raise TransferFailed("no other node is connected to the leader")
        if to == leader_id:
            return leader_id
        if not parts.replica.role.is_leader:
            parts.links.send(leader_id, FrameKind.TRANSFER, to)
        elif parts.handovers.begin(to) is None:
            raise TransferFailed(f"{to} is not connected to the leader")
        try:
            async with asyncio.timeout(timeout_s):
                while parts.leadership.leader_id() != to:
                    await parts.leadership.changed.wait()
        except TimeoutError:
            raise TransferFailed(f"{to} did not take over; {parts.leadership.leader_id()} leads") from None
        return to

    def _successor(self, leader_id: str) -> str | None:
        """Return who shall lead next. Only the leader knows who has most; others offer themselves."""
        parts = self.parts
        if parts.replica.role.is_leader:
            return parts.handovers.successor()
        candidates = parts.replica.membership.voters & (parts.links.up() | {self.config.node_id}) - {
            leader_id
        }
        return self.config.node_id if self.config.node_id in candidates else min(candidates, default=None)

    async def members_if_made(
        self, node_id: str, peer: str, timeout_s: float, *, is_move: bool = False
    ) -> Members | None:
        """Return the committed list if a change is made already, None if it is still to be made.

        The change is to add a node at `peer`, to move it there, or, without a `peer`, to remove it. Raises
        what the change would.
        """
        self.parts.requests.check_open()
        if peer:
            peer = str(check_member(node_id, peer))
        return await self.parts.changes.if_made(node_id, peer, timeout_s, is_move=is_move)

    async def add_member(self, node_id: str, peer: str, timeout_s: float) -> Members:
        """Add a node that listens at `peer`; return the committed list. It counts when it has caught up.

        Raises NoLeader, ShuttingDown, MemberChangeRefused, OutcomeUnknown, and ConfigError for what is not an
        id or an address.
        """
        self.parts.requests.check_open()
        return await self.parts.changes.change(node_id, str(check_member(node_id, peer)), timeout_s)

    async def move_member(self, node_id: str, peer: str, timeout_s: float) -> Members:
        """Make the others reach a node at `peer` from now on; return the committed list.

        It keeps its id, its data directory and its vote. Raises NoLeader, ShuttingDown, MemberChangeRefused,
        OutcomeUnknown, and ConfigError for what is not an id or an address.
        """
        self.parts.requests.check_open()
        peer = str(check_member(node_id, peer))
        return await self.parts.changes.change(node_id, peer, timeout_s, is_move=True)

    async def remove_member(self, node_id: str, timeout_s: float) -> Members:
        """Remove a node, which hands leadership over first if it leads; return the committed list.

        Raises NoLeader, ShuttingDown, MemberChangeRefused, OutcomeUnknown.
        """
        self.parts.requests.check_open()
        return await self.parts.changes.change(node_id, "", timeout_s)


def _left() -> OutcomeUnknown:
    """Say that a wait ended here only because this node stops."""
    return OutcomeUnknown("this node is stopping; repeat with the same request_id on another node")
