"""Founders without sockets or disks: every state that a founding can come to, one small move at a time.

A move is what can happen at once: a connection opens, a message arrives, a node reboots, or it comes back
with an empty disk. A node that takes a message stores what follows from it and sends it within one move; a
crash before or after the store is a reboot of which the message is lost, so a reboot between any two moves
stands for a crash between any two lines. Nobody is refused at the links here: the founding has to be safe
without that.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from cluster.consensus import founding
from cluster.consensus.founding import News, Own, Peer, Progress
from cluster.storage.cluster_record import Founding

Told = tuple[str, frozenset[str], bool]
"""What changes in News: the cluster id of the founding, "" if none, who has stored it, whether complete."""
Advance = Callable[[Own, Progress, Mapping[str, Peer], str], Progress]


class NodeState(NamedTuple):
    """One node: how many disks it has lost, what it knows, and what its connected peers told last."""

    lost_count: int = 0
    known: Told = ("", frozenset(), False)
    peers: tuple[tuple[str, str, Told | None], ...] = ()


class State(NamedTuple):
    """All nodes, what is on its way on each connection, and which foundings were ever complete anywhere."""

    nodes: tuple[NodeState, ...]
    queues: tuple[tuple[int, int, tuple[Told, ...]], ...] = ()
    completed: frozenset[str] = frozenset()
    reboots_left: int = 0
    losses_left: int = 0


class FoundingModel:
    """All moves of founders with these configurations, by id."""

    def __init__(self, configured: Mapping[str, str], *, advance: Advance = founding.advance) -> None:
        """`configured` maps each node to the ids in its configuration, as one letter each."""
        self.ids = sorted(configured)
        self._configured = configured
        self._advance = advance
        self.foundings: dict[str, Founding] = {}

    def disk(self, number: int, node: NodeState) -> str:
        """Return the disk id of a node."""
        return f"{self.ids[number]}{node.lost_count}"

    def start(self, *, reboots: int, losses: int) -> State:
        """Return the state before the first start. A node alone founds its cluster at once."""
        state = State(tuple(NodeState() for _ in self.ids), (), frozenset(), reboots, losses)
        for number in range(len(self.ids)):
            state = self._gone_on(state, number)
        return state

    def moves(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield all that can happen next, with its name."""
        open_links = {(source, target) for source, target, _ in state.queues}
        for one in range(len(self.ids)):
            for other in range(one + 1, len(self.ids)):
                if (one, other) not in open_links:
                    yield f"connect {self.ids[one]} {self.ids[other]}", self.connected(state, one, other)
        for source, target, queue in state.queues:
            if queue:
                yield f"deliver {self.ids[source]} {self.ids[target]}", self.delivered(state, source, target)
        for number in range(len(self.ids)):
            if state.reboots_left:
                fewer = state._replace(reboots_left=state.reboots_left - 1)
                yield f"reboot {self.ids[number]}", self.rebooted(fewer, number)
            if state.losses_left:
                fewer = state._replace(losses_left=state.losses_left - 1)
                yield f"lose {self.ids[number]}", self.rebooted(fewer, number, is_lost=True)

    def connected(self, state: State, one: int, other: int) -> State:
        """Open a connection: each knows the other's disk, and tells what it knows."""
        for number, peer in ((one, other), (other, one)):
            node = state.nodes[number]
            peers = (*node.peers, (self.ids[peer], self.disk(peer, state.nodes[peer]), None))
            state = self._with(state, number, node._replace(peers=tuple(sorted(peers, key=str))))
            state = state._replace(queues=(*state.queues, (number, peer, (node.known,))))
        return state._replace(queues=tuple(sorted(state.queues, key=lambda queue: queue[:2])))

    def delivered(self, state: State, source: int, target: int) -> State:
        """Take the next message of a connection, and do what follows from it."""
        told = next(queue[0] for one, other, queue in state.queues if (one, other) == (source, target))
        queues = tuple(
            (one, other, queue[1:] if (one, other) == (source, target) else queue)
            for one, other, queue in state.queues
        )
        node = state.nodes[target]
        peers = tuple(
            (peer, disk, told if peer == self.ids[source] else last) for peer, disk, last in node.peers
        )
        state = self._with(state._replace(queues=queues), target, node._replace(peers=peers))
        return self._gone_on(state, target)

    def rebooted(self, state: State, number: int, *, is_lost: bool = False) -> State:
        """Let a node start again: its connections break, and what it knows is what it has stored, if that."""
        node_id, node = self.ids[number], state.nodes[number]
        cluster_id, _, is_complete = node.known
        if is_lost:
            node = NodeState(node.lost_count + 1)
        else:
            stored_by = frozenset({node_id} if cluster_id else ())
            node = NodeState(node.lost_count, (cluster_id, stored_by, is_complete))
        queues = tuple(queue for queue in state.queues if number not in queue[:2])
        state = self._with(state._replace(queues=queues), number, node)
        for other, peer in enumerate(state.nodes):
            peers = tuple(known for known in peer.peers if known[0] != node_id)
            state = self._with(state, other, peer._replace(peers=peers))
        return self._gone_on(state, number)

    def _gone_on(self, state: State, number: int) -> State:
        """Do what a node does with what it knows: store, then tell everybody."""
        node = state.nodes[number]
        own = Own(
            self.ids[number],
            self.disk(number, node),
            {node_id: f"h:{ord(node_id)}" for node_id in self._configured[self.ids[number]]},
        )
        cluster_id, stored_by, is_complete = node.known
        before = Progress(self.foundings.get(cluster_id), stored_by, is_complete)
        peers = {peer: Peer(disk, self._news(peer, told)) for peer, disk, told in node.peers}
        disks = "-".join(sorted([own.disk_id, *(peer.disk_id for peer in peers.values())]))
        after = self._advance(own, before, peers, f"of-{own.disk_id}-{disks}")
        if after == before:
            return state
        assert after.founding is not None
        new_id = after.founding.cluster_id
        assert self.foundings.setdefault(new_id, after.founding) == after.founding, "one id, two foundings"
        told = (new_id, after.stored_by, after.is_complete)
        queues = tuple(
            (source, target, (*queue, told) if source == number else queue)
            for source, target, queue in state.queues
        )
        completed = state.completed | ({new_id} if after.is_complete else set())
        state = state._replace(queues=queues, completed=frozenset(completed))
        return self._with(state, number, node._replace(known=told))

    def _news(self, peer: str, told: Told | None) -> News | None:
        if told is None:
            return None
        cluster_id, stored_by, is_complete = told
        configured = tuple(self._configured[peer])
        stored = tuple(sorted(stored_by))
        return News(configured, self.foundings.get(cluster_id), stored, is_complete, cluster_id)

    @staticmethod
    def _with(state: State, number: int, node: NodeState) -> State:
        return state._replace(nodes=(*state.nodes[:number], node, *state.nodes[number + 1 :]))

    # -- what must hold -------------------------------------------------------------------------------------

    def check(self, state: State) -> None:
        """If any node takes part, every founder has stored all disk ids, and there is one cluster only."""
        assert len(state.completed) <= 1, f"two clusters: {sorted(state.completed)}"
        for cluster_id in state.completed:
            for node_id, founder in self.foundings[cluster_id].nodes.items():
                number = self.ids.index(node_id)
                node = state.nodes[number]
                if self.disk(number, node) == founder.disk_id:
                    assert node.known[0] == cluster_id, f"{node_id} has not stored what is complete"
                else:
                    assert not node.known[2], f"{node_id} takes part with another disk"


def explore(model: FoundingModel, state: State, limit: int) -> set[State]:
    """Return all states that can be reached; fail if there are more than `limit`."""
    seen, waiting = {state}, [state]
    while waiting:
        present = waiting.pop()
        model.check(present)
        for _, following in model.moves(present):
            if following not in seen:
                seen.add(following)
                waiting.append(following)
        assert len(seen) <= limit, "more states than expected: the test would take too long"
    return seen
