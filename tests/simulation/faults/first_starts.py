"""A first start in which nodes are killed in handshakes and between steps of the founding, and lose a disk.

When it is over, what docs/operating.md advises is done. The lost directory comes back if the founding names
it; if that names the new one, or neither, the new one stays. Otherwise, as long as no node was founded, all
nodes are stopped, all directories emptied, and the nodes started again.
"""

from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from cluster.errors import IdentityRefused
from tests.simulation.checks.all_checkers import Checkers
from tests.simulation.faults.basic_faults import US, BasicFaults, Fault, Undo
from tests.simulation.faults.lost_disks import FOUNDERS_MIN, ROOT
from tests.simulation.plan import Plan
from tests.simulation.world.disk import Disk
from tests.simulation.world.machine import Machine
from tests.simulation.world.node_observer import NodeObserver, checked_json
from tests.simulation.world.scheduler import Scheduler

FIRST_START: Final = "early-lost-disk"
STORES: Final = "cluster"
"""The moment of a disk at which cluster.json is about to be written."""
HANDLES_MAX: Final = 80
"""A node is killed within so many callbacks, which is in its handshakes if it has just been started."""
OPERATIONS_MAX: Final = 12
"""A node is killed within so many operations of its disk, from a step of the founding on."""
SOON_US: Final = 3_000
"""So long after a step of the founding a disk is lost, often."""


class World(Protocol):
    """What these faults work on."""

    plan: Plan
    scheduler: Scheduler
    machines: dict[str, Machine]
    checkers: Checkers
    watch: NodeObserver


class FirstStartFaults:
    """The fault of one world, by its name in `plan.FAULTS`. It begins with the world, and `lasts_us`."""

    def __init__(self, world: World, faults: BasicFaults) -> None:
        self._world = world
        self._start = faults.start
        self._backups = faults.backups
        self._random = random = Random(f"first start {world.plan.seed}")
        self.lasts_us: Final = int((world.plan.start_s + random.uniform(1, 12)) * US)
        self._is_active = False
        self._steps_count = 0
        self._loses_at = random.randrange(1, len(world.plan.node_ids) + 3)
        """At so manieth step of the founding, whoever does it, the disk is lost."""
        self._is_killing = random.random() < 0.8
        self._victim: Machine | None = None
        self._lost: Disk | None = None
        self.by_name: dict[str, Fault] = {FIRST_START: self._first_start}

    def expects_end(self, machine: Machine, exit_code: int) -> bool:
        """Whether it is right that a process ends like this: the founding has another disk of it."""
        is_without_disk = machine is self._victim and self._lost is not None
        return is_without_disk and exit_code == IdentityRefused.exit_code

    def _first_start(self) -> Undo | None:
        """Begin to kill nodes, and wait for the moment at which a disk is lost."""
        machines = list(self._world.machines.values())
        if len(machines) < FOUNDERS_MIN:
            return None
        self._is_active = True
        self._victim = self._random.choice(machines)
        for machine in machines:
            machine.disk.aims[STORES] = self._step_of(machine)
        if self._random.random() < 0.3:
            self._world.scheduler.after(self._random.randrange(self.lasts_us), self._lose)
        self._world.scheduler.after(self._pause_us(), self._churn)
        return self._heal

    def _pause_us(self) -> int:
        return int(10 ** self._random.uniform(4, 6))

    # -- while it lasts -------------------------------------------------------------------------------------

    def _step_of(self, machine: Machine) -> Callable[[], None]:
        """Return what happens when a node is about to store what it knows of the founding."""

        def step() -> None:
            machine.disk.aims[STORES] = step
            self._steps_count += 1
            if self._steps_count == self._loses_at:
                late_us = self._random.choice((1, SOON_US, US))
                self._world.scheduler.after(self._random.randrange(late_us), self._lose)
            if self._is_killing and self._random.random() < 0.4:
                self._kill_soon(machine)

        return step

    def _kill_soon(self, machine: Machine) -> None:
        """Let a node end, or its machine lose power, before, in or after what it stores now."""
        process = machine.process
        if process is None or machine.is_damaged:
            return
        if self._random.random() < 0.5:
            boot_clock_us = self._random.randrange(US, 100 * US)
            process.files.kill_with(lambda: machine.lose_power(boot_clock_us))
        machine.disk.kill_after_operations = self._random.randrange(OPERATIONS_MAX)

    def _churn(self) -> None:
        """Start a node that is down, or let one end in the middle of something, again and again."""
        if not self._is_active:
            return
        machine = self._random.choice(self._machines())
        if machine.process is None:
            self._start(machine)
        if self._is_killing and machine.process is not None and self._random.random() < 0.4:
            machine.process.loop.kill_after_handles = self._random.randrange(1, HANDLES_MAX)
        self._world.scheduler.after(self._pause_us(), self._churn)

    def _machines(self) -> list[Machine]:
        return [self._world.machines[node_id] for node_id in self._world.plan.node_ids]

    def _lose(self) -> None:
        """Take the disk of one node away. It comes back under its name with an empty one."""
        machine = self._victim
        if not self._is_active or machine is None or self._lost is not None:
            return
        is_changed = machine.has_lost_disk or machine.is_misconfigured or machine.is_displaced
        if is_changed or machine.is_damaged or machine.is_lost:
            return
        self._world.watch.add("world", "loses-disk", machine.node_id)
        machine.kill()
        self._lost = machine.disk.copy()
        machine.has_lost_disk = True
        self._replace(machine, Disk(ROOT, self._random))

    def _replace(self, machine: Machine, disk: Disk) -> None:
        machine.disk.restore(disk)
        # What is there now was not damaged.
        self._backups.pop(machine.node_id, None)
        machine.is_damaged = machine.is_lost = False
        self._world.checkers.replaced(machine.node_id)

    # -- healing --------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        """Do what an operator does who knows what the nodes have logged."""
        self._is_active = False
        for machine in self._machines():
            machine.disk.aims.pop(STORES, None)
            machine.disk.kill_after_operations = None
            if machine.process is not None:
                machine.process.loop.kill_after_handles = None
        if self._victim is not None and self._lost is not None:
            self._settle(self._victim, self._lost)
            self._victim.has_lost_disk = False
            self._lost = None
        for machine in self._machines():
            self._start(machine)

    def _settle(self, victim: Machine, lost: Disk) -> None:
        """Decide which disk a node goes on with, or that all begin anew."""
        belonging = self._world.checkers.belonging
        victim.kill()
        if not belonging.founders:
            # Nothing may change while an operator looks.
            for machine in self._machines():
                machine.kill()
        old, new = disk_id_of(lost), disk_id_of(victim.disk)
        if belonging.founders:
            named = {belonging.founders[victim.node_id]}
        else:
            named = {disk_id_in(machine.disk, victim.node_id) for machine in self._machines()} - {""}
        if named <= {new}:
            how = "kept"
        elif named == {old} and (belonging.founders or self._random.random() < 0.5):
            how = "restored"
            self._replace(victim, lost)
        else:
            how = "emptied"
            belonging.founded_anew()
            for machine in self._machines():
                self._replace(machine, Disk(ROOT, self._random))
        self._world.watch.counts[f"first-start-{how}"] += 1
        self._world.watch.add("world", "settles", how)


def disk_id_of(disk: Disk) -> str:
    """Return the id of the directory on a disk, "" if it has none yet."""
    identity = checked_json(disk.record_seen()[0])
    return str(identity["disk_id"]) if identity is not None else ""


def disk_id_in(disk: Disk, node_id: str) -> str:
    """Return the disk that a node has in the founding which is stored on this disk, "" if there is none.

    Also one that is not synced yet: the nodes were killed, and their machines have power.
    """
    record = checked_json(disk.record_seen()[1])
    founding = record["founding"] if record is not None else None
    return str(founding["nodes"].get(node_id, {}).get("disk_id", "")) if founding is not None else ""
