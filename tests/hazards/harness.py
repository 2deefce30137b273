"""A cluster in one thread under virtual time: nodes, a network in our hands, crashes, and what must always hold.

Nodes are either ours (`OurNode`: RaftReplica with its guards over a real journal and snapshot store) or the
bare library (`BareNode`), so that a hazard can be shown and shown gone by the same moves. Nothing happens by
itself: time passes in `Cluster.step`, messages arrive when delivered. The same seed gives the same run.

This folder is the one place outside cluster/raft.py that imports pysyncobj: it tests the library itself.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol

import msgspec
import pysyncobj.syncobj as library
import pytest
from pysyncobj import SyncObj, SyncObjConf, replicated
from pysyncobj.node import Node as LibraryNode
from pysyncobj.transport import Transport as LibraryTransport

from cluster.child import Outcome
from cluster.files import Files
from cluster.guards import Message
from cluster.journal import Journal
from cluster.replica import RaftReplica
from cluster.snapshots import SnapshotStore

STEP_MS: Final = 50
"""One step: half a heartbeat, as the nodes' own timer."""
READINGS_MAX: Final = 20_000
"""A node that reads the clock so often while no time passes waits for time in a loop: it spins."""


class Spinning(AssertionError):
    """A node waits for time to pass in a loop, and blocks everything else meanwhile."""


class Clock:
    """Virtual monotonic time. `reading_s` passes at each reading: the bare library spins without."""

    def __init__(self, reading_s: float = 0.0) -> None:
        self.now_s = 1000.0
        self._reading_s = reading_s
        self._readings = 0

    def read(self) -> float:
        """Return the time in seconds."""
        self._readings += 1
        if self._readings > READINGS_MAX:
            raise Spinning(f"{READINGS_MAX} readings of the clock without a message or a step")
        self.now_s += self._reading_s
        return self.now_s

    def pass_ms(self, milliseconds: float) -> None:
        """Let time pass."""
        self.now_s += milliseconds / 1000
        self.rest()

    def rest(self) -> None:
        """Take note that a node has come to the end of its work."""
        self._readings = 0


class Network:
    """Connections between nodes: one first-in-first-out queue per direction, empty after a disconnect."""

    def __init__(self, node_ids: Iterable[str]) -> None:
        self.ids = sorted(node_ids)
        self.queues: dict[tuple[str, str], deque[Message]] = {
            (source, target): deque() for source in self.ids for target in self.ids if source != target
        }
        self.connected: set[tuple[str, str]] = set()
        self.held: set[tuple[str, str]] = set()
        self.on_send: list[Callable[[str, str, Message], None]] = []

    def send(self, source: str, target: str, message: Message) -> None:
        """Queue a message if the two are connected."""
        if (source, target) in self.connected:
            for look in self.on_send:
                look(source, target, message)
            self.queues[source, target].append(message)

    def waiting(self) -> list[tuple[str, str]]:
        """Return the directions in which something may be delivered."""
        return [pair for pair, queue in self.queues.items() if queue and pair not in self.held]


class Node(Protocol):
    """What the cluster asks of a node of either kind."""

    @property
    def is_leader(self) -> bool:
        """Whether it leads, as far as it knows."""

    @property
    def term(self) -> int:
        """Its term."""

    def connect(self, peer_id: str) -> None:
        """Take note of a connection."""

    def disconnect(self, peer_id: str) -> None:
        """Take note of its end."""

    def take(self, peer_id: str, message: Message) -> None:
        """Take a message."""

    def timer(self) -> None:
        """Tick."""

    def work(self) -> bool:
        """Do one due piece of work; False when there is none."""

    def crash(self) -> None:
        """Forget everything that is not on disk."""


class Cluster:
    """Nodes and what happens to them. `make` makes the node of an id, again after a crash."""

    def __init__(self, clock: Clock, network: Network, make: "Callable[[str], Any]") -> None:
        self.clock = clock
        self.network = network
        self._make = make
        self.ids = network.ids
        self.nodes: dict[str, Any] = {}
        for node_id in self.ids:
            self.start(node_id)

    def __getitem__(self, node_id: str) -> Any:
        return self.nodes[node_id]

    # -- faults ---------------------------------------------------------------------------------------------

    def start(self, node_id: str) -> None:
        """Start a node from its disk; it is connected to nobody."""
        self.nodes[node_id] = self._make(node_id)
        self.clock.rest()

    def crash(self, node_id: str) -> None:
        """Kill a node: its connections break, what it had not synced is lost."""
        for peer_id in self.ids:
            if peer_id != node_id:
                self.disconnect(node_id, peer_id)
        self.nodes.pop(node_id).crash()

    def disconnect(self, one: str, other: str) -> None:
        """Break a connection with what is on its way in both directions."""
        for source, target in ((one, other), (other, one)):
            self.network.queues[source, target].clear()
            if (source, target) in self.network.connected:
                self.network.connected.discard((source, target))
                self.nodes[source].disconnect(target)

    def connect(self, one: str, other: str) -> None:
        """Connect two nodes that are up and not connected."""
        for source, target in ((one, other), (other, one)):
            if source in self.nodes and target in self.nodes:
                self.network.connected.add((source, target))
        for source, target in ((one, other), (other, one)):
            if (source, target) in self.network.connected:
                self.nodes[source].connect(target)

    def isolate(self, node_id: str) -> None:
        """Disconnect a node from all others."""
        for peer_id in self.ids:
            if peer_id != node_id:
                self.disconnect(node_id, peer_id)

    def heal(self) -> None:
        """Start what is down, deliver what is held, connect everybody."""
        self.network.held.clear()
        for node_id in self.ids:
            if node_id not in self.nodes:
                self.start(node_id)
        for one in self.ids:
            for other in self.ids:
                if one < other and (one, other) not in self.network.connected:
                    self.connect(one, other)

    # -- progress -------------------------------------------------------------------------------------------

    def deliver(self, source: str, target: str) -> Message:
        """Deliver the next message of one direction."""
        message = self.network.queues[source, target].popleft()
        self.clock.rest()
        self.nodes[target].take(source, message)
        return message

    def settle(self) -> None:
        """Deliver and work until nothing is left to do without time passing."""
        is_busy = True
        while is_busy:
            is_busy = False
            for node in list(self.nodes.values()):
                while node.work():
                    is_busy = True
            for source, target in self.network.waiting():
                self.deliver(source, target)
                is_busy = True

    def settle_but(self, pair: tuple[str, str], kind: str) -> None:
        """Settle, but hold a direction from its first message of a kind on."""
        is_busy = True
        while is_busy:
            is_busy = any([node.work() for node in list(self.nodes.values())])
            for source, target in self.network.waiting():
                if (source, target) == pair and self.network.queues[pair][0]["type"] == kind:
                    self.network.held.add(pair)
                else:
                    self.deliver(source, target)
                    is_busy = True

    def step(self) -> None:
        """Let half a heartbeat pass: every node ticks."""
        self.clock.pass_ms(STEP_MS)
        for node in list(self.nodes.values()):
            node.timer()
            self.clock.rest()

    def run_ms(self, milliseconds: int) -> None:
        """Let time pass on a network that delivers at once."""
        for _ in range(milliseconds // STEP_MS):
            self.step()
            self.settle()

    def run_until(self, condition: Callable[[], object], limit_ms: int = 10_000) -> None:
        """Let time pass until something is true; fail after `limit_ms`."""
        self.settle()
        for _ in range(limit_ms // STEP_MS):
            if condition():
                return
            self.step()
            self.settle()
        assert condition(), f"did not come true within {limit_ms} ms"

    # -- questions ------------------------------------------------------------------------------------------

    def leaders(self) -> list[str]:
        """Return who believes to lead."""
        return [node_id for node_id, node in self.nodes.items() if node.is_leader]

    def leader_of(self, followers: Iterable[str]) -> str | None:
        """Return who leads `followers` as they all see it, None if they do not agree."""
        leaders = {self.nodes[node_id].leader_id for node_id in followers}
        return leaders.pop() if len(leaders) == 1 else None

    def elect(self, node_id: str) -> None:
        """Make `node_id` the leader: the others have to wait."""
        for other in self.ids:
            if other != node_id and other in self.nodes:
                self.nodes[other].be_patient()
        self.run_until(lambda: self.nodes[node_id].is_leader)
        self.run_ms(200)


class Checker:
    """What must hold in every run of our nodes, whatever happens. Told of every fact as it comes about."""

    def __init__(self) -> None:
        self.committed: dict[int, bytes] = {}
        self._leaders: dict[int, str] = {}
        self._votes: dict[tuple[str, int], str] = {}
        self._terms_on_disk: dict[str, int] = {}

    def applied(self, node_id: str, index: int, entry: bytes) -> None:
        """Same index, same bytes, on every node and for ever."""
        known = self.committed.setdefault(index, entry)
        assert known == entry, f"{node_id} applied {entry!r} at {index}, somebody applied {known!r} there"

    def leads(self, node_id: str, term: int) -> None:
        """At most one leader per term."""
        known = self._leaders.setdefault(term, node_id)
        assert known == node_id, f"{node_id} and {known} both lead in term {term}"

    def sent(self, source: str, target: str, message: Message) -> None:
        """One vote per node and term, whatever it forgot."""
        if message["type"] == "response_vote":
            known = self._votes.setdefault((source, message["term"]), target)
            assert known == target, f"{source} voted for {known} and {target} in term {message['term']}"

    def stored(self, node_id: str, term: int) -> None:
        """Take note of the term on a disk."""
        self._terms_on_disk[node_id] = max(term, self._terms_on_disk.get(node_id, 0))

    def recovered(self, node_id: str, term: int) -> None:
        """Terms never go back on disk."""
        assert term >= self._terms_on_disk.get(node_id, 0), f"{node_id} came back in the past: term {term}"


# -- our nodes ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Config:
    """What RaftReplica needs of a configuration; the defaults are those of a real node."""

    node_id: str
    heartbeat_ms: int = 100
    election_ms_min: int = 500
    election_ms_max: int = 1000
    compact_entries: int = 20_000


class _MemoryFiles(Files):
    """Real files, without waiting for the disk: a crash here is a kill, which keeps the page cache."""

    def fdatasync(self, fd: int) -> None:
        """Do not wait."""

    def fsync_dir(self, directory: Path) -> None:
        """Do not wait."""


class _InlineChild:
    """Writes the snapshot at once, so that runs repeat; `poll` tells it later, as for a real child."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._outcome: Outcome = "idle"

    @property
    def is_running(self) -> bool:
        """Whether the end has not been told yet."""
        return self._outcome != "idle"

    def start(self, work: Callable[[], None]) -> None:
        """Work."""
        work()
        self._outcome = "done"

    def poll(self) -> Outcome:
        """Tell the outcome once."""
        outcome, self._outcome = self._outcome, "idle"
        return outcome

    def kill(self) -> None:
        """Fail, though all is written."""
        self._outcome = "failed"

    def stop(self) -> None:
        """Forget it."""
        self._outcome = "idle"


class OurNode:
    """RaftReplica as a node drives it, with a list of applied entries for a state machine."""

    def __init__(
        self,
        directory: Path,
        network: Network,
        checker: Checker,
        config: Config,
        in_flight_max: int = 1,
    ) -> None:
        directory.mkdir(exist_ok=True)
        self.node_id = config.node_id
        self.queue: deque[bytes] = deque()
        self.entries: list[tuple[int, bytes]] = []
        self.room = 1_000_000
        self.is_broken = False
        self._network = network
        self._checker = checker
        self._sync_is_due = False
        files = _MemoryFiles()
        self.journal = Journal.open(directory, files=files)
        checker.recovered(self.node_id, self.journal.getCurrentTerm())
        self.store = SnapshotStore(directory, files)
        self.store._child = _InlineChild()  # type: ignore[assignment]
        peer_ids = set(network.ids) - {self.node_id}
        self.replica = RaftReplica(config, peer_ids, self.journal, self.store, self)
        self.replica.in_flight_max = in_flight_max
        self.journal.sync()
        self._wants_tick = False

    @property
    def is_leader(self) -> bool:
        """Whether it leads, as far as it knows."""
        return self.replica.is_leader

    @property
    def leader_id(self) -> str | None:
        """Whom it follows, or itself."""
        return self.replica.leader_id

    @property
    def term(self) -> int:
        """Its term."""
        return self.replica.term

    @property
    def values(self) -> list[bytes]:
        """The applied entries."""
        return [entry for _, entry in self.entries]

    def propose(self, *entries: bytes) -> None:
        """Hand entries to the node, as its clients do."""
        self.queue.extend(entries)
        self._wants_tick = True

    def be_patient(self) -> None:
        """Start no election soon."""
        self.replica._raft.election_deadline_s = self.replica._raft.now_s() + 5

    # -- cluster --------------------------------------------------------------------------------------------

    def connect(self, peer_id: str) -> None:
        """Take note of a connection."""
        self.replica.peer_up(peer_id)

    def disconnect(self, peer_id: str) -> None:
        """Take note of its end."""
        self.replica.peer_down(peer_id)

    def take(self, peer_id: str, message: Message) -> None:
        """Take a message as it comes from the wire."""
        self.replica.receive(peer_id, msgspec.msgpack.decode(msgspec.msgpack.encode(message)))

    def timer(self) -> None:
        """Tick, because time has passed."""
        self._tick()

    def work(self) -> bool:
        """Tick or sync if it is due."""
        if self.replica.wants_tick or self._wants_tick:
            self._tick()
            return True
        if self._sync_is_due:
            self.sync()
            return True
        return False

    def sync(self) -> None:
        """Sync, which lets promises out."""
        self._sync_is_due = False
        self.replica.sync()
        self._checker.stored(self.node_id, self.journal.getCurrentTerm())

    def crash(self) -> None:
        """Let go of the disk without writing anything."""
        os.close(self.journal._fd)
        self.store.abort_receive()
        self.replica.close()

    def _tick(self) -> None:
        self._wants_tick = False
        self.replica.tick()
        if self.replica.is_leader:
            self._checker.leads(self.node_id, self.replica.term)

    # -- replica.Host ---------------------------------------------------------------------------------------

    def send(self, peer_id: str, message: Message) -> None:
        """Send."""
        self._checker.sent(self.node_id, peer_id, message)
        self._network.send(self.node_id, peer_id, message)

    def link_has_room(self, peer_id: str) -> bool:
        """Whether few messages wait in the queue."""
        return len(self._network.queues[self.node_id, peer_id]) < self.room

    def has_entry(self) -> bool:
        """Whether there is something to propose."""
        return bool(self.queue)

    def next_entry(self) -> bytes | None:
        """Return what is to be proposed."""
        return self.queue.popleft() if self.queue else None

    def apply(self, entry: bytes) -> None:
        """Apply an entry, or break."""
        if self.is_broken:
            raise RuntimeError("a bug in apply")
        index = self.replica._raft.applied_index + 1
        self._checker.applied(self.node_id, index, entry)
        self.entries.append((index, entry))

    def encode_state(self) -> bytes:
        """Return the applied entries."""
        return msgspec.msgpack.encode(self.entries)

    def restore_state(self, state: bytes) -> None:
        """Take over the applied entries."""
        self.entries = msgspec.msgpack.decode(state, type=list[tuple[int, bytes]])
        for index, entry in self.entries:
            self._checker.applied(self.node_id, index, entry)

    def leadership_changed(self) -> None:
        """Take note."""
        if self.replica.is_leader:
            self._checker.leads(self.node_id, self.replica.term)

    def tick_ended(self) -> None:
        """Sync later: messages may come in between."""
        self._sync_is_due = self._sync_is_due or self.replica.needs_sync


def our_cluster(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int = 1,
    node_ids: str = "abc",
    compact_entries: int = 20_000,
    in_flight_max: int = 1,
) -> tuple[Cluster, Checker]:
    """Return a cluster of our nodes, connected, and its checker."""
    clock, network, checker = Clock(), Network(node_ids), Checker()
    monkeypatch.setattr(library, "monotonicTime", clock.read)
    monkeypatch.setattr(library, "random", Random(seed))

    def make(node_id: str) -> OurNode:
        config = Config(node_id, compact_entries=compact_entries)
        return OurNode(directory / node_id, network, checker, config, in_flight_max)

    cluster = Cluster(clock, network, make)
    cluster.heal()
    return cluster, checker


# -- the bare library ---------------------------------------------------------------------------------------


class _BareTransport(LibraryTransport):  # type: ignore[misc]
    """The library's messages, into our network."""

    def __init__(self, node_id: str, network: Network) -> None:
        super().__init__(None, None, [])
        self._node_id = node_id
        self._network = network

    @property
    def ready(self) -> bool:
        """Always."""
        return True

    def send(self, node: LibraryNode, message: Message) -> bool:
        """Send."""
        self._network.send(self._node_id, node.id, message)
        return True

    def destroy(self) -> None:
        """Do nothing."""


class BareNode(SyncObj):  # type: ignore[misc]
    """The unmodified library with a list for a state machine."""

    def __init__(self, node_id: str, network: Network, conf: SyncObjConf) -> None:
        self.node_id = node_id
        self.outcomes: list[int] = []
        self._wire = _BareTransport(node_id, network)
        peers = [LibraryNode(peer_id) for peer_id in network.ids if peer_id != node_id]
        super().__init__(LibraryNode(node_id), peers, conf, transport=self._wire)
        self.values: list[Any] = []

    @replicated
    def note(self, value: Any) -> None:
        """Append a value, or break."""
        if value == "break":
            raise RuntimeError("a bug in apply")
        self.values.append(value)

    def propose(self, *values: Any) -> None:
        """Propose values; `outcomes` gets the library's answers."""
        for value in values:
            self.note(value, callback=lambda _, outcome: self.outcomes.append(outcome))

    @property
    def is_leader(self) -> bool:
        """Whether it leads, as far as it knows."""
        return bool(self._isLeader())

    @property
    def leader_id(self) -> str | None:
        """Whom it follows, or itself."""
        leader = self._getLeader()
        return None if leader is None else str(leader.id)

    @property
    def term(self) -> int:
        """Its term."""
        return int(self._getTerm())

    def be_patient(self) -> None:
        """Start no election soon."""
        self._SyncObj__raftElectionDeadline = library.monotonicTime() + 5

    def connect(self, peer_id: str) -> None:
        """Take note of a connection."""
        self._wire._onNodeConnected(LibraryNode(peer_id))

    def disconnect(self, peer_id: str) -> None:
        """Take note of its end."""
        self._wire._onNodeDisconnected(LibraryNode(peer_id))

    def take(self, peer_id: str, message: Message) -> None:
        """Take a message."""
        self._wire._onMessageReceived(LibraryNode(peer_id), message)

    def timer(self) -> None:
        """Tick."""
        self.doTick(0.0)

    def work(self) -> bool:
        """Never on its own: the library works in its ticks."""
        return False

    def crash(self) -> None:
        """Be forgotten."""


def bare_cluster(
    monkeypatch: pytest.MonkeyPatch, seed: int = 1, node_ids: str = "abc", **conf: Any
) -> Cluster:
    """Return a connected cluster of bare library nodes."""
    clock, network = Clock(reading_s=0.0005), Network(node_ids)
    monkeypatch.setattr(library, "monotonicTime", clock.read)
    monkeypatch.setattr(library, "random", Random(seed))
    monkeypatch.setattr(library, "PIPE_NOTIFIER_ENABLED", False)

    def make(node_id: str) -> BareNode:
        return BareNode(node_id, network, SyncObjConf(autoTick=False, **conf))

    cluster = Cluster(clock, network, make)
    cluster.heal()
    return cluster
