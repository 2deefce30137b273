"""The parts of a node that can be seen from outside."""

from typing import Protocol

from cluster.build import Build
from cluster.commands.clock_watch import ClockWatch
from cluster.commands.outbox import Outbox
from cluster.commands.waiters import Waiters
from cluster.consensus.divergence import Divergence
from cluster.consensus.replica import Replica
from cluster.observing.event_log import EventLog
from cluster.peers.disk_watch import DiskWatch
from cluster.peers.leader_watch import LeaderWatch
from cluster.peers.links import PeerLinks
from cluster.peers.peer_tls_watch import PeerTlsWatch
from cluster.peers.peering import Peering
from cluster.peers.space_watch import SpaceWatch
from lockstate.machine import LockMachine


class Observed(Protocol):
    """A node, as far as it is measured and looked at."""

    node_id: str
    build: Build
    replica: Replica
    links: PeerLinks
    peering: Peering
    leadership: LeaderWatch
    outbox: Outbox
    waiters: Waiters
    events: EventLog
    clocks: ClockWatch
    divergence: Divergence
    disk: DiskWatch
    space: SpaceWatch
    peer_tls_watch: PeerTlsWatch | None
    started_s: float
    """When it started, by the event loop's clock."""

    @property
    def machine(self) -> LockMachine:
        """Return its state."""
