"""Changes of the members in the harness: what the leader decides, on every node, as a real node drives it."""

import asyncio

from cluster.consensus.member_changes import Change, Means, MemberChanges, Verdict
from tests.hazards.replica_nodes import OurNode
from tests.hazards.virtual_cluster import STEP_MS, Cluster


def address(node_id: str) -> str:
    """Return where a node of the harness would listen."""
    return f"127.0.0.1:{ord(node_id)}"


def _means(node: OurNode, ids: list[str]) -> Means:
    """Return what changes need of the node around a replica: everybody's disk is known."""

    def send(leader_id: str, change: Change) -> None:
        raise AssertionError(f"{change} is asked for on the leader {leader_id}")

    def answer(peer_id: str, verdict: Verdict) -> None:
        raise AssertionError(f"{peer_id} asked for nothing, and is told {verdict}")

    def hand_over() -> None:
        successor = node.replica.most_caught_up()
        if successor is not None:
            node.transfer(successor)

    return Means(
        leader_id=lambda: node.leader_id,
        send=send,
        answer=answer,
        disk_ids=lambda: {node_id: f"disk-{node_id}" for node_id in ids},
        belongs=lambda _: True,
        why_not_joining=lambda _: "",
        takes_peers=True,
        hand_over=hand_over,
        request_tick=node.request_tick,
    )


class Operators:
    """Asks leaders for changes, and lets leaders promote learners that have caught up."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._loop = asyncio.new_event_loop()
        self._loop.close()  # nobody waits here: it is only passed on
        self._changes: dict[OurNode, MemberChanges] = {}
        self.verdicts: list[Verdict] = []
        self.asked = 0

    def add(self, leader: str, node_id: str) -> None:
        """Ask a leader to add a node."""
        self._ask(leader, node_id, address(node_id))

    def remove(self, leader: str, node_id: str) -> None:
        """Ask a leader to remove a node."""
        self._ask(leader, node_id, "")

    @property
    def codes(self) -> list[str]:
        """Return how the changes so far ended: "" for those that were made."""
        return [verdict.code for verdict in self.verdicts]

    def _ask(self, leader: str, node_id: str, peer: str) -> None:
        self.asked += 1
        node = self._cluster[leader]
        self._of(node).decide(Change(self.asked, node_id, peer), self.verdicts.append)
        node.request_tick()

    def step(self) -> None:
        """Let every node look how its changes stand."""
        for node in self._cluster.nodes.values():
            self._of(node).step()

    def run_ms(self, milliseconds: int) -> None:
        """Let time pass on a network that delivers at once."""
        for _ in range(milliseconds // STEP_MS):
            self._cluster.run_ms(STEP_MS)
            self.step()

    def _of(self, node: OurNode) -> MemberChanges:
        """Return the changes of this run of a node: they do not survive it."""
        if node not in self._changes:
            means = _means(node, self._cluster.ids)
            self._changes[node] = MemberChanges(node.node_id, node.replica, means, self._loop)
        return self._changes[node]


def grow(cluster: Cluster, operators: Operators, leader: str, node_id: str) -> None:
    """Add a node and wait until it counts."""
    operators.add(leader, node_id)
    operators.run_ms(2000)
    assert node_id in cluster[leader].replica.membership.committed.voters
