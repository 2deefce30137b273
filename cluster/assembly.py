"""Every part of a node, made and tied together. The only place that gives one part's method to another later.

The parts form circles: a frame that comes leads to a tick, which sends frames. Each circle is closed here.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from cluster.build import UNKNOWN, Build
from cluster.commands.abandoned_waits import AbandonedWaits
from cluster.commands.batcher import Batcher
from cluster.commands.client_requests import ClientRequests
from cluster.commands.clock import STALL_COUNTED_MS_MAX, ClusterClock, SystemClock
from cluster.commands.clock_watch import ClockWatch
from cluster.commands.expiry import Alarms
from cluster.commands.forwarded import new_origin
from cluster.commands.outbox import Outbox
from cluster.commands.pace import Pace
from cluster.commands.patience import Patience
from cluster.commands.rules import decode_state
from cluster.commands.timers import GuardedTimers
from cluster.commands.traces import Traces
from cluster.commands.waiters import Waiters
from cluster.config import NodeConfig
from cluster.consensus import member_list
from cluster.consensus.beginning import beginning_of
from cluster.consensus.divergence import Divergence
from cluster.consensus.handover import Handovers
from cluster.consensus.library_words import EngineJournal
from cluster.consensus.member_changes import Means, MemberChanges
from cluster.consensus.member_list import Members
from cluster.consensus.ready import Ready
from cluster.consensus.replica import Replica
from cluster.group import Group
from cluster.loop import Loop, LoopWork
from cluster.observing.audit_log import AuditLog
from cluster.observing.endless_log import EndlessLog
from cluster.observing.event_log import EventLog, events_count_max
from cluster.observing.gauges import gauges
from cluster.observing.metrics import NodeMetrics
from cluster.outgoing import Outgoing
from cluster.peers import first_start
from cluster.peers.channels import Channels
from cluster.peers.disk_watch import DiskWatch
from cluster.peers.fitness import Fitness
from cluster.peers.leader_watch import LeaderWatch
from cluster.peers.link import FrameKind
from cluster.peers.links import PeerLinks
from cluster.peers.peer_tls_watch import PeerTlsWatch
from cluster.peers.peering import Handlers, Peering
from cluster.peers.preferred_leader import PreferredLeader
from cluster.peers.refusal_watch import RefusalWatch
from cluster.peers.space_watch import SpaceWatch
from cluster.rare_proposals import RareProposals
from cluster.storage.cluster_record import Founding
from cluster.storage.data_directory import DataDir
from cluster.storage.snapshot_store import Snapshot, SnapshotStore
from cluster.storage.sync_runner import InPlace, SyncRunner
from cluster.tracing import Tracer
from cluster.upkeep import Upkeep
from lockstate.machine import LockMachine
from lockstate.words import limits

_TICKS_PER_HEARTBEAT: Final = 2
"""Ticks per heartbeat on an idle node. Two, so that an election starts at most half a heartbeat late."""
_TICK_MS_MAX: Final = STALL_COUNTED_MS_MAX / 2
"""The longest time, in ms, between two looks at the clock: cluster time counts no longer gap."""


class Parts:
    """What one node consists of. Made inside the running event loop; `start` makes it take part."""

    def __init__(
        self,
        config: NodeConfig,
        datadir: DataDir,
        journal: EngineJournal,
        store: SnapshotStore,
        links: PeerLinks,
        *,
        syncs: SyncRunner | None = None,
        peer_tls_watch: PeerTlsWatch | None = None,
        build: Build = UNKNOWN,
        space: SpaceWatch | None = None,
        loaded: Snapshot | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        """Recover from journal and snapshot. Raises DataDirError, SnapshotError.

        `syncs` runs the syncs of the journal; without it they are run in place. `loaded` is the snapshot of
        `store`, if it was read before. With a `tracer` commands of recorded calls are recorded.
        """
        self.node_id = config.node_id
        self.build = build
        self.space = space or SpaceWatch()
        self.journal = journal
        self.links = links
        self.peer_tls_watch = peer_tls_watch
        self.is_shutting_down = False
        self._config = config
        self._beginning = beginning_of(datadir.cluster, joins=datadir.identity.joins)
        self._state_bytes_max = config.state_bytes_max or limits.STATE_BYTES_MAX
        self._loop = asyncio.get_running_loop()
        self._now_s = self._loop.time
        self.started_s = self._now_s()
        """When this node started, by the event loop's clock."""
        self._tracer = tracer
        self._make_log(store, loaded)
        self._make_peers(datadir)
        self._make_clients()
        self._make_loop(syncs or InPlace())
        self._close_circles(store)
        self._join_peers()

    @property
    def machine(self) -> LockMachine:
        """Return the state, which is another object after a snapshot."""
        return self.group.machine

    @property
    def is_open(self) -> bool:
        """Whether this node takes requests."""
        return not self.is_shutting_down and not self.loop.has_failed

    def start(self) -> None:
        """Begin to tick. A node that is to be a cluster of its own founds it, unless somebody knows it."""
        founding = self.peering.founding
        if founding.is_alone and self._config.takes_peers:
            self._loop.call_later(first_start.LONELY_S, founding.begin)
        else:
            founding.begin()
        self.loop.start()

    def shut_down(self) -> None:
        """Take no more requests; what was sent may still finish."""
        self.is_shutting_down = True

    def stop(self) -> None:
        """Stop all timers and end all requests. Idempotent."""
        self.loop.stop()
        self.group.stop()

    # -- what is used before it is there --------------------------------------------------------------------

    def _machine(self) -> LockMachine:
        return self.group.machine

    def _run(self, work: Callable[[], None]) -> None:
        self.loop.run(work)

    def _act(self, ready: Ready) -> None:
        self.loop.act(ready)

    def _fail(self, error: BaseException) -> None:
        self.loop.fail(error)

    def _request_tick(self) -> None:
        self.loop.request_tick()

    def _request_flush(self) -> None:
        self.outgoing.request_flush()

    def _pass_time(self) -> None:
        self.group.pass_time()

    def _voters(self) -> frozenset[str]:
        return self.replica.membership.voters

    # -- the parts ------------------------------------------------------------------------------------------

    def _make_log(self, store: SnapshotStore, loaded: Snapshot | None) -> None:
        """Make the log, its state machine, and what waits for either."""
        config, loop = self._config, self._loop
        self.replica = Replica(
            config,
            Members(),
            self.journal,
            store,
            room_bytes=self.links.room_bytes,
            decode_state=decode_state,
            founded=self._beginning.founded,
            loaded=loaded,
        )
        self._timers = GuardedTimers(loop, self._run)
        self._clock = ClusterClock(SystemClock())
        self.outbox = Outbox(new_origin(self.node_id), loop)
        self._traces = None if self._tracer is None else Traces(self._tracer, self.outbox.origin)
        self.waiters = Waiters(loop)
        self.events = EventLog(loop, events_count_max(self._state_bytes_max))
        self.metrics = NodeMetrics(lambda: gauges(self))
        self.outbox.failures = self.metrics.failures
        self._batcher = Batcher()
        self._audit_log, self._endless_log = AuditLog(self._now_s), EndlessLog(self._now_s)
        self.divergence = Divergence(
            self.node_id,
            self.replica.log,
            self._voters,
            self._now_s,
            newest=lambda: self.machine.fingerprint,
            stop=self._fail,
            tell=self.links.ping,
        )
        timers, clock = self._timers, self._clock
        self.group = Group(
            self.replica,
            self.outbox,
            self.waiters,
            self.events,
            metrics=self.metrics,
            divergence=self.divergence,
            clock=clock,
            batcher=self._batcher,
            pace=Pace(),
            patience=Patience(loop, self._request_flush),
            alarms=Alarms(timers, clock, self._pass_time),
            abandoned=AbandonedWaits(
                self.outbox,
                timers,
                clock,
                lambda: self.group.machine.waiting_origins(),  # noqa: PLW0108 - of the machine then
                self._request_flush,
            ),
            audit_log=self._audit_log,
            endless_log=self._endless_log,
            traces=self._traces,
        )
        self.group.recover()

    def _make_peers(self, datadir: DataDir) -> None:
        """Make what speaks with the other nodes, and knows what is true of them."""
        config, replica, links = self._config, self.replica, self.links
        self.disk = DiskWatch()
        self.clocks = ClockWatch(self.node_id, self._clock.reading_us, self._voters)
        self.leadership = LeaderWatch(replica, links, config.election_ms_max)
        self.peering = Peering(
            datadir,
            self._founding(datadir),
            config.advertise_http,
            replica,
            machine=self._machine,
            sync_ms=lambda: self.disk.sync_ms(self._now_s()),
            state_bytes_max=self._state_bytes_max,
            is_alive=links.is_alive,
            dialed=links.dialed,
            clocks=self.clocks,
            divergence=self.divergence,
            version=self.build.version,
            channels=Channels(links.publish),
        )
        self._refusals = RefusalWatch(
            config,
            replica,
            self.peering,
            joins=self._beginning.joins,
            broke=self._fail,
            now_s=self._now_s,
        )
        self.handovers = Handovers(
            replica, links.is_up, self._act, self._request_tick, config.election_ms_max / 1000
        )
        self.changes = MemberChanges(
            self.node_id,
            replica,
            Means(
                leader_id=self.leadership.leader_id,
                send=lambda peer_id, change: links.send(peer_id, FrameKind.CHANGE, change),
                answer=lambda peer_id, verdict: links.send(peer_id, FrameKind.CHANGED, verdict),
                disk_ids=self.peering.table.disk_ids,
                belongs=self.peering.table.belongs,
                why_not_joining=self.peering.objections_met.why_not_joining,
                takes_peers=config.takes_peers,
                hand_over=self.handovers.begin_with_most_caught_up,
                request_tick=self._request_tick,
            ),
            self._loop,
        )

    def _founding(self, datadir: DataDir) -> first_start.FirstStart:
        """Return this node's part in the founding of its cluster."""
        means = first_start.FoundingMeans(
            send=lambda peer_id, news: self.links.send(peer_id, FrameKind.FOUNDING, news),
            founded=self._founded,
            run=self._run,
        )
        founders = {node_id: str(address) for node_id, address in self._config.founders.items()}
        return first_start.FirstStart(datadir, founders, means, joins=self._beginning.joins)

    def _make_clients(self) -> None:
        """Make what takes commands, and sends them to the leader."""
        self.outgoing = Outgoing(
            self.outbox,
            self.replica,
            self.links,
            self.peering.table,
            leadership=self.leadership,
            divergence=self.divergence,
            shut_out=self.peering.shut_out,
            request_entry=self.group.request_entry,
            count_resent=self._count_resent,
            traces=self._traces,
        )
        self.requests = ClientRequests(
            self.outbox,
            self.metrics.failures,
            self.outgoing.request_flush,
            lambda: self.is_open,
            self.outgoing.check_room,
            answered=self.metrics.answered,
            machine=self._machine,
            traces=self._traces,
        )

    def _make_loop(self, syncs: SyncRunner) -> None:
        """Make what drives all others, and what is looked at with its timer."""
        config, replica, links, peering = self._config, self.replica, self.links, self.peering
        self._rare = RareProposals(
            config,
            self._batcher,
            replica,
            peering,
            machine=self._machine,
            state_bytes_max=self._state_bytes_max,
        )
        self.preferred = PreferredLeader(
            config,
            replica,
            peering.table,
            is_alive=links.is_alive,
            leader_id=self.leadership.leader_id,
            handovers=self.handovers,
            divergence=self.divergence,
            clocks=self.clocks,
            disk=self.disk,
            machine=self._machine,
            now_s=self._now_s,
        )
        self.upkeep = Upkeep(
            config,
            replica,
            links,
            peering,
            leadership=self.leadership,
            outbox=self.outbox,
            waiters=self.waiters,
            machine=self._machine,
            outgoing=self.outgoing,
            handovers=self.handovers,
            changes=self.changes,
            rare=self._rare,
            refusals=self._refusals,
            divergence=self.divergence,
            fitness=Fitness(
                replica,
                self.handovers,
                peering.table,
                clocks=self.clocks,
                disk=self.disk,
                now_s=self._now_s,
            ),
            preferred=self.preferred,
            space=self.space,
            clock=self._clock,
            audit_log=self._audit_log,
            endless_log=self._endless_log,
            request_tick=self._request_tick,
            now_s=self._now_s,
        )
        period_ms = min(config.heartbeat_ms / _TICKS_PER_HEARTBEAT, _TICK_MS_MAX)
        self.loop = Loop(
            replica,
            self.journal,
            links,
            self._loop_work(),
            period_s=period_ms / 1000,
            on_sync_begun=self.disk.begun,
            on_sync=self._synced,
            on_timer=self.metrics.loop_stall_seconds.observe,
            syncs=syncs,
        )

    def _loop_work(self) -> LoopWork:
        """Return what the loop does around the log."""
        group, upkeep, peering = self.group, self.upkeep, self.peering

        def role_changed() -> None:
            group.role_changed()
            upkeep.role_changed()

        def members_changed() -> None:
            group.members_changed()
            upkeep.members_changed()

        return LoopWork(
            has_entry=group.has_entry,
            entries=group.entries,
            restore=group.restore,
            apply=group.apply,
            encode_state=group.encode_state,
            parted=self.divergence.parted,
            role_changed=role_changed,
            members_changed=members_changed,
            greet=self.outgoing.greet,
            lost=group.lost,
            ticked=upkeep.ticked,
            look=upkeep.look,
            takes_part=lambda: peering.is_established,
            failed=group.failed,
        )

    def _count_resent(self, count: int) -> None:
        """Count commands that are sent again."""
        self.metrics.commands_resent += count

    def _synced(self, took_s: float) -> None:
        """Record how long a sync took."""
        self.disk.ended(took_s)
        self.metrics.sync_seconds.observe(took_s)

    def _close_circles(self, store: SnapshotStore) -> None:
        """Give parts what they call of others that were made after them."""
        loop, group, peering, watch = self.loop, self.group, self.peering, self.peer_tls_watch
        self.outbox.later, self.outbox.on_rested = self._timers.call_later, self.outgoing.request_flush
        group.request_tick = loop.request_tick
        self.outgoing.run = loop.run
        self.replica.engine.may_wait = group.may_wait
        self.replica.engine.do_others_write = peering.do_others_write
        self.handovers.is_fit = self.clocks.is_fit
        store.woken = loop.request_tick
        if watch is not None:
            watch.plain_count = self.links.plain_count
            watch.tls.revoked = self.links.end_revoked
        self.links.host = peering
        peering.handlers = Handlers(
            raft=loop.receive,
            forwarded=group.forwarded,
            transfer_asked=self.handovers.begin,
            change_asked=self.changes.asked,
            change_decided=self.changes.decided,
            peer_up=loop.peer_up,
            peer_down=loop.peer_down,
            refused=self._refusals.refused,
            let_in=self._refusals.let_in,
            broke=loop.fail,
        )

    def _join_peers(self) -> None:
        """Link those who belong to the cluster, or are to found it."""
        membership = self.replica.membership
        self.peering.set_members(membership.committed, membership.latest)
        self.links.set_peers(self.peering.addresses())

    def _founded(self, founding: Founding) -> None:
        """Take part from now on: the cluster of this node is founded."""
        self.loop.act(self.replica.begin_founded(member_list.founded(founding)))
