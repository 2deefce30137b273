"""More that can go wrong: power lost in the middle of a write, and disks that are lost for good.

The faults are undone as all others are; see schedule.py.
"""

from pathlib import Path
from random import Random
from typing import Final, Protocol

from cluster.assembly import Parts
from cluster.errors import IdentityRefused
from tests.simulation.checks.all_checkers import Checkers
from tests.simulation.faults.basic_faults import OPERATIONS_MAX, US, BasicFaults, Fault, Undo
from tests.simulation.world.disk import Disk
from tests.simulation.world.machine import Machine

FOUNDERS_MIN: Final = 3
"""So many nodes began a cluster, at least, where a disk may be lost."""
ROOT: Final = Path("/sim")


class World(Protocol):
    """What these faults work on."""

    machines: dict[str, Machine]
    checkers: Checkers


class LostDiskFaults:
    """Faults of one world, by their names in `plan.FAULTS`."""

    def __init__(self, world: World, faults: BasicFaults, random: Random) -> None:
        self._world = world
        self._backups = faults.backups
        self._start = faults.start
        self._random = random
        self._lost: dict[str, Disk] = {}
        self.by_name: dict[str, Fault] = {
            "power-at-write": self._power_at_write,
            "lost-disk": self._lost_disk,
        }

    def expects_end(self, machine: Machine, exit_code: int) -> bool:
        """Whether it is right that a process ends like this: its peers know another disk of it."""
        return machine.node_id in self._lost and exit_code == IdentityRefused.exit_code

    def _any(self) -> Machine:
        return self._random.choice(list(self._world.machines.values()))

    def _power_at_write(self) -> Undo | None:
        """Let a machine lose its power at one of the next operations of its disk."""
        machine = self._any()
        process, disk = machine.process, machine.disk
        if process is None:
            return None
        boot_clock_us = self._random.randrange(US, 100 * US)
        process.files.kill_with(lambda: machine.lose_power(boot_clock_us))
        disk.kill_after_operations = self._random.randrange(OPERATIONS_MAX)

        def undo() -> None:
            disk.kill_after_operations = None
            self._start(machine)

        return undo

    def _lost_disk(self) -> Undo | None:
        """Let a node come back under its name with an empty disk. Later the old one is found again."""
        machine = self._any()
        is_changed = machine.is_damaged or machine.is_misconfigured or machine.has_lost_disk
        if self._lost or is_changed or not self.is_known(machine):
            return None
        machine.kill()
        self._lost[machine.node_id] = machine.disk.copy()
        machine.has_lost_disk = True
        self._replace(machine, Disk(ROOT, self._random))
        self._start(machine)

        def undo() -> None:
            machine.kill()
            self._replace(machine, self._lost.pop(machine.node_id))
            # The empty disk may have been damaged meanwhile.
            self._backups.pop(machine.node_id, None)
            machine.is_damaged = machine.is_lost = machine.has_lost_disk = False
            self._start(machine)

        return undo

    def _replace(self, machine: Machine, disk: Disk) -> None:
        machine.disk.restore(disk)
        self._world.checkers.replaced(machine.node_id)

    def is_known(self, machine: Machine) -> bool:
        """Whether every other node knows the disk of this one: before that it may come with any.

        Not where one node began: with an empty disk and nobody else in its configuration it is a new cluster.
        """
        if len(machine.config.peers) < FOUNDERS_MIN:
            return False
        others = [other.parts for other in self._world.machines.values() if other is not machine]
        return all(parts is not None and _knows_disk(parts, machine.node_id) for parts in others)


def _knows_disk(parts: Parts, node_id: str) -> bool:
    """Whether a node remembers the disk of another, or has it in the member list of its log."""
    is_listed = bool(parts.replica.membership.latest.disk_id(node_id))
    return is_listed or node_id in parts.peering._datadir.known
