"""What happens to containers: all restarted, the network taken away, a volume lost, a further node."""

import time
from typing import ClassVar, Final

from lab.chaos.faults.fault import Fault
from lab.chaos.targets.compose import ComposeTarget
from lab.chaos.targets.compose_project import NODE_IDS, STOP_S
from lab.chaos.targets.target import POLL_S, Ability, LabFailure

CONTAINERS: Final[frozenset[Ability]] = frozenset({"containers"})
HELD: Final = "event=held exit_code=4"
"""What the log of a container says when its node was refused by the others."""
HELD_S: Final = 60.0
"""Seconds within which a node with an empty volume is refused."""


class RestartAll(Fault[ComposeTarget]):
    """Everything is restarted at once, as with new settings or after the machine was down."""

    name = "restart-all"
    text = "`docker compose restart` of all nodes at once"
    needs: ClassVar = CONTAINERS
    lasts_s: ClassVar = (0.0, 0.0)
    gap_s_max = 10.0

    def begin(self) -> list[str]:
        """Stop and start them; returns when the engine has."""
        self.target.project.compose("restart", "--timeout", str(STOP_S), *NODE_IDS)
        return list(NODE_IDS)

    def end(self) -> None:
        """Do nothing: they were started."""


class _NetworkOff(Fault[ComposeTarget]):
    """A container without a network. Its published port goes with it, so its clients lose it, too."""

    needs: ClassVar = CONTAINERS
    lasts_s: ClassVar = (2.0, 6.0)
    _hit: str | None = None

    def node(self) -> str:
        """Return who is to lose its network."""
        raise NotImplementedError

    def begin(self) -> list[str]:
        """Take it away."""
        self._hit = self.node()
        self.target.project.disconnect(self._hit)
        return [self._hit]

    def end(self) -> None:
        """Give it back, perhaps with another address."""
        node_id, self._hit = self._hit, None
        if node_id is not None:
            self.target.project.connect(node_id)


class NetworkOff(_NetworkOff):
    """A follower's container loses its network."""

    name = "network-off"
    text = "a follower's container is taken off its network, with its published port, and put back"
    gap_s_max = 0.5

    def node(self) -> str:
        """Return one follower."""
        return self.chance.choice(self.target.followers())


class NetworkOffLeader(_NetworkOff):
    """The leader's container loses its network."""

    name = "network-off-leader"
    text = "the leader's container is taken off its network, with its published port, and put back"
    gap_s_max = 2.5

    def node(self) -> str:
        """Return the leader."""
        return self.target.leader()


class VolumeLost(Fault[ComposeTarget]):
    """A node dies with its volume; the engine brings it up with an empty one."""

    name = "volume-lost"
    text = "a node dies with its volume; started so it is refused; then it is removed, joins and is added"
    needs: ClassVar = CONTAINERS
    gap_s_max = 1.0
    _hit: str | None = None

    def begin(self) -> list[str]:
        """Lose it, and wait until the node is refused and its container held."""
        node_id = self._hit = self.some_node()
        self.target.lose_volume(node_id)
        deadline_s = time.monotonic() + HELD_S
        while HELD not in self.target.project.logs(node_id):
            if time.monotonic() > deadline_s:
                raise LabFailure(f"{node_id} has an empty volume and was not refused within {HELD_S:.0f} s")
            time.sleep(POLL_S)
        return [node_id]

    def end(self) -> None:
        """Repair it by the recipe of deploy/README.md."""
        node_id, self._hit = self._hit, None
        if node_id is not None:
            self.target.let_join(node_id)


class NodeAdded(Fault[ComposeTarget]):
    """A fourth node comes and goes."""

    name = "node-added"
    text = "the fourth node of deploy/compose.n4.yaml joins, counts, and is removed at the end"
    needs: ClassVar = CONTAINERS
    gap_s_max = 1.0
    _is_there = False

    def begin(self) -> list[str]:
        """Start it and add it."""
        self._is_there = True
        return [self.target.add_fourth()]

    def end(self) -> None:
        """Remove it, and all that is left of it."""
        was_there, self._is_there = self._is_there, False
        if was_there:
            self.target.remove_fourth()
