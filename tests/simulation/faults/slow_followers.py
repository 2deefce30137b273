"""A follower that is cut off until it needs a snapshot, and gets it over a slow link then."""

import itertools
from random import Random
from typing import Final

from tests.simulation.faults.basic_faults import US, Fault, Undo
from tests.simulation.world.machine import Machine
from tests.simulation.world.network import Network
from tests.simulation.world.scheduler import Scheduler

LOOK_US: Final = US // 4
NODES_MIN: Final = 2


class SlowFollowerFaults:
    """Faults of one world, by their names in `plan.FAULTS`."""

    def __init__(
        self, scheduler: Scheduler, network: Network, machines: dict[str, Machine], random: Random
    ) -> None:
        self._scheduler = scheduler
        self._network = network
        self._machines = machines
        self._random = random
        self.by_name: dict[str, Fault] = {"fall-behind": self._fall_behind}

    def _fall_behind(self) -> Undo | None:
        """Cut a follower off until the leader's log does not reach back to it; then let it be slow."""
        followers = [node_id for node_id in self._machines if not self._leads(node_id)]
        if not followers or len(self._machines) < NODES_MIN:
            return None
        one = self._random.choice(followers)
        pairs = [pair for pair in itertools.permutations(self._machines, NODES_MIN) if one in pair]
        late_us, bytes_per_s = self._random.choice((20_000, 100_000)), self._random.choice((2_000, 20_000))
        for pair in pairs:
            self._network.cut(*pair)
            path = self._network.path(*pair)
            path.late_us, path.bytes_per_s = late_us, bytes_per_s
        undone: list[bool] = []

        def look() -> None:
            if undone:
                return
            if self._is_behind(one):
                self._repair(pairs)
            else:
                self._scheduler.after(LOOK_US, look)

        def undo() -> None:
            undone.append(True)
            for pair in pairs:
                path = self._network.path(*pair)
                path.late_us = path.bytes_per_s = 0
            self._repair(pairs)

        look()
        return undo

    def _repair(self, pairs: list[tuple[str, str]]) -> None:
        for pair in pairs:
            self._network.repair(*pair)

    def _leads(self, node_id: str) -> bool:
        parts = self._machines[node_id].parts
        return parts is not None and parts.replica.role.is_leader

    def _is_behind(self, node_id: str) -> bool:
        """Whether a leader would have to send this node a snapshot."""
        parts = self._machines[node_id].parts
        leaders = [
            leader
            for other, machine in self._machines.items()
            if other != node_id and self._leads(other) and (leader := machine.parts) is not None
        ]
        return parts is not None and any(
            leader.journal.first_index > parts.journal.last_index + 1 for leader in leaders
        )
