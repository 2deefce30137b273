"""What a leader proposes a few times in the life of a cluster.

It is newer rules, the bound of the state, and the address of a node that is alone.
"""

from typing import Protocol

from cluster.commands.batcher import Batcher
from cluster.commands.rules import RulesAdvance
from cluster.commands.state_bound import StateBound, agreed
from cluster.config import NodeConfig
from cluster.consensus import member_list
from cluster.consensus.replica import Replica
from cluster.peers.peering import Peering
from lockstate.machine import LockMachine


class Proposing(Protocol):
    """The parts of a node that say what is due."""

    node_id: str
    machine: LockMachine
    replica: Replica
    peering: Peering

    def state_bytes_max(self) -> int:
        """Return how much memory for the state this node can bear."""


class RareProposals:
    """Proposes what is seldom due when this node leads. One thread."""

    def __init__(self, node: Proposing, config: NodeConfig, batcher: Batcher) -> None:
        """Commands are put into `batcher`, lists of members are given to the replica of `node`."""
        self._node = node
        self._config = config
        self.rules_advance = RulesAdvance(batcher, self._rules_known_by_all)
        """To be stepped after every tick: all else can wait for the timer."""
        self._bound = StateBound(batcher, self._state_bytes_wanted)

    def role_changed(self) -> None:
        """Forget what was proposed: it may be lost, and a repetition has no effect."""
        self.rules_advance.role_changed()
        self._bound.role_changed()

    def step(self) -> bool:
        """Propose one thing that is due besides rules, and tell whether anything was. Called by a timer."""
        return self._bound.step(self._node.machine.bytes_max) or self._move_alone()

    def _rules_known_by_all(self) -> int:
        """Return the newest rules that all members know, 0 if this leader cannot be sure of that."""
        replica = self._node.replica
        if not replica.role.is_leader or replica.membership.learners or not replica.may_change_members:
            return 0
        known = (self._node.peering.rules_known(node_id) for node_id in replica.membership.latest.nodes)
        return min(known, default=0)

    def _state_bytes_wanted(self) -> int:
        """Return the bound on the state that the cluster should have; 0 if this node does not lead."""
        node = self._node
        if not node.replica.role.is_leader:
            return 0
        pings = node.peering.pings
        others = [
            pings[node_id].state_bytes_max if node_id in pings else None
            for node_id in node.replica.membership.latest.nodes
            if node_id != node.node_id
        ]
        return agreed(node.state_bytes_max(), others, node.machine.bytes_max)

    def _move_alone(self) -> bool:
        """Propose the address that this node is configured with if nobody else is a member; whether it was.

        A node that began as a cluster of its own gets the address by which others can join it.
        """
        membership = self._node.replica.membership
        if len(membership.latest.nodes) > 1:
            return False
        node_id, replica, config = self._node.node_id, self._node.replica, self._config
        own = membership.latest.nodes.get(node_id)
        address = config.peers.get(node_id, config.peer)
        if (
            own is None
            or own.peer == str(address)
            or not (config.is_peer_given and address.port and replica.may_change_members)
        ):
            return False
        replica.change_members(member_list.moved(membership.latest, node_id, str(address)))
        return True
