"""A cluster in one thread under virtual time: nodes, a network in our hands, crashes, and a checker.

Nodes are ours (replica_nodes.py, whole_nodes.py) or those of the bare library (bare_library.py): the same
moves show a hazard, and show that it is gone. Nothing happens by itself: time passes in `Cluster.step`,
messages arrive when they are delivered. The same seed gives the same run.

This folder is the one place beside the engine that imports pysyncobj: it tests the library itself.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from tests.support.replica_parts import LibraryClock

WireMessage = dict[str, Any]
"""A Raft message as it is on the wire: the bare library's, or one of ours."""

STEP_MS: Final = 50
"""One step: half a heartbeat, as the nodes' own timer."""


class Network:
    """Connections between nodes: one first-in-first-out queue per direction, empty after a disconnect."""

    def __init__(self, node_ids: Iterable[str]) -> None:
        self.ids = sorted(node_ids)
        self.queues: dict[tuple[str, str], deque[WireMessage]] = {
            (source, target): deque() for source in self.ids for target in self.ids if source != target
        }
        self.connected: set[tuple[str, str]] = set()
        self.held: set[tuple[str, str]] = set()
        self.on_send: list[Callable[[str, str, WireMessage], None]] = []

    def send(self, source: str, target: str, message: WireMessage) -> None:
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
        """Record a connection."""

    def disconnect(self, peer_id: str, *, is_replaced: bool = False) -> None:
        """Record its end; `is_replaced` if there is another one already."""

    def take(self, peer_id: str, message: WireMessage) -> None:
        """Take a message."""

    def timer(self) -> None:
        """Tick."""

    def work(self) -> bool:
        """Do one due piece of work; False when there is none."""

    def crash(self) -> None:
        """Forget everything that is not on disk."""


class Cluster:
    """Nodes and what happens to them. `make` makes the node of an id, again after a crash."""

    def __init__(self, clock: LibraryClock, network: Network, make: "Callable[[str], Any]") -> None:
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

    def disconnect(self, one: str, other: str, *, is_replaced: bool = False) -> None:
        """Break a connection with what is on its way in both directions."""
        for source, target in ((one, other), (other, one)):
            self.network.queues[source, target].clear()
            if (source, target) in self.network.connected:
                self.network.connected.discard((source, target))
                self.nodes[source].disconnect(target, is_replaced=is_replaced)

    def lose_sight(self, node_id: str, peer_id: str) -> None:
        """Let one side find its connection broken.

        The other goes on sending into it, and hears what was sent.
        """
        if (node_id, peer_id) in self.network.connected:
            self.network.connected.discard((node_id, peer_id))
            self.network.queues[peer_id, node_id].clear()
            self.nodes[node_id].disconnect(peer_id)

    def connect(self, one: str, other: str) -> None:
        """Connect two nodes if both are up; a connection that one side still believes in is replaced."""
        self.disconnect(one, other, is_replaced=True)
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
                if one < other and not {(one, other), (other, one)} <= self.network.connected:
                    self.connect(one, other)

    # -- progress -------------------------------------------------------------------------------------------

    def deliver(self, source: str, target: str) -> WireMessage:
        """Deliver the next message of one direction, unless the receiver has left the connection."""
        message = self.network.queues[source, target].popleft()
        self.clock.rest()
        if (target, source) in self.network.connected:
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
            is_busy = False
            for node in list(self.nodes.values()):
                is_busy = node.work() or is_busy
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
        """Return the nodes that believe to lead."""
        return [node_id for node_id, node in self.nodes.items() if node.is_leader]

    def leader_of(self, followers: Iterable[str]) -> str | None:
        """Return the leader of `followers` as they all see it, None if they do not agree."""
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

    def sent(self, source: str, target: str, message: WireMessage) -> None:
        """One vote per node and term, whatever it forgot."""
        if message["type"] == "response_vote":
            known = self._votes.setdefault((source, message["term"]), target)
            assert known == target, f"{source} voted for {known} and {target} in term {message['term']}"

    def stored(self, node_id: str, term: int) -> None:
        """Record the term on a disk."""
        self._terms_on_disk[node_id] = max(term, self._terms_on_disk.get(node_id, 0))

    def recovered(self, node_id: str, term: int) -> None:
        """Terms never go back on disk."""
        assert term >= self._terms_on_disk.get(node_id, 0), f"{node_id} came back in the past: term {term}"
