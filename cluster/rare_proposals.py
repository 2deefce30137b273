"""What a leader proposes a few times in the life of a cluster.

It is newer rules, the bound of the state, and the address of a node that is alone.
"""

from collections.abc import Callable

from cluster.commands.batcher import Batcher
from cluster.commands.rules import RulesAdvance
from cluster.commands.state_bound import StateBound, agreed
from cluster.config import NodeConfig
from cluster.consensus import member_list
from cluster.consensus.replica import Replica
from cluster.peers.peering import Peering
from lockstate.machine import LockMachine


class RareProposals:
    """Proposes what is seldom due when this node leads. One thread."""

    def __init__(
        self,
        config: NodeConfig,
        batcher: Batcher,
        replica: Replica,
        peering: Peering,
        *,
        machine: Callable[[], LockMachine],
        state_bytes_max: int,
    ) -> None:
        """Put commands into `batcher`. This node can bear a state of `state_bytes_max` bytes."""
        self._config = config
        self._replica = replica
        self._peering = peering
        self._machine = machine
        self._state_bytes_max = state_bytes_max
        self.rules_advance = RulesAdvance(batcher, self._rules_known_by_all)
        """To be stepped after every tick: all else can wait for the timer."""
        self._bound = StateBound(batcher, self._state_bytes_wanted)

    def role_changed(self) -> None:
        """Forget what was proposed: it may be lost, and a repetition has no effect."""
        self.rules_advance.role_changed()
        self._bound.role_changed()

    def step(self) -> bool:
        """Propose one thing that is due besides rules, and tell whether anything was. Called by a timer."""
        return self._bound.step(self._machine().bytes_max) or self._move_alone()

    def _rules_known_by_all(self) -> int:
        """Return the newest rules that all members know, 0 if this leader cannot be sure of that."""
        replica = self._replica
        if not replica.role.is_leader or replica.membership.learners or not replica.may_change_members:
            return 0
        known = (self._peering.rules_known(node_id) for node_id in replica.membership.latest.nodes)
        return min(known, default=0)

    def _state_bytes_wanted(self) -> int:
        """Return the bound on the state that the cluster should have; 0 if this node does not lead."""
        if not self._replica.role.is_leader:
            return 0
        pings = self._peering.table.pings()
        others = [
            pings[node_id].state_bytes_max if node_id in pings else None
            for node_id in self._replica.membership.latest.nodes
            if node_id != self._config.node_id
        ]
        return agreed(self._state_bytes_max, others, self._machine().bytes_max)

    def _move_alone(self) -> bool:
        """Propose the address that this node is configured with if nobody else is a member; whether it was.

        A node that began as a cluster of its own gets the address by which others can join it.
        """
        membership = self._replica.membership
        if len(membership.latest.nodes) > 1:
            return False
        node_id, replica, config = self._config.node_id, self._replica, self._config
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
