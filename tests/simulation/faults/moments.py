"""Faults that come at chosen moments of a disk: in the middle of a start, a snapshot, a cut; and late terms.

At random, most kills and errors come while nothing but the end of the log is written. The disk tells when
such a moment has come (`Disk.reach`). The faults are undone as all others are; see schedule.py.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from tests.simulation.faults.basic_faults import US, BasicFaults, Fault, Undo
from tests.simulation.world.bad_reads import BadRead
from tests.simulation.world.disk import MOMENTS
from tests.simulation.world.machine import Machine
from tests.simulation.world.scheduler import Scheduler

OPERATIONS_MAX: Final = 6
"""What comes at a moment comes at one of so many operations from it on."""
LATE_US: Final = (100_000, 500_000, 2_000_000)
AT_STARTS: Final = frozenset({"recovery", "torn"})
"""Moments that come when a node starts."""


class MomentFaults:
    """Faults of one world, by their names in `plan.FAULTS`."""

    def __init__(
        self, scheduler: Scheduler, machines: dict[str, Machine], faults: BasicFaults, random: Random
    ) -> None:
        self._scheduler = scheduler
        self._machines = machines
        self._start = faults.start
        self._random = random
        self.by_name: dict[str, Fault] = {"aimed": self._aimed, "late-terms": self._late_terms}

    def _any(self) -> Machine:
        return self._random.choice(list(self._machines.values()))

    def _aimed(self) -> Undo | None:
        """Let a kill, a loss of power or an error come when a disk has reached a moment."""
        machine = self._any()
        if machine.is_damaged:
            return None
        disk = machine.disk
        moment = self._random.choice(MOMENTS)
        strike = self._random.choice(
            (self._kill_soon, self._power_soon, self._fail_write, self._fail_sync, self._fail_read)
        )
        aim = disk.aims[moment] = lambda: strike(machine)
        if moment in AT_STARTS:
            self._lose_power(machine)
            self._start(machine)

        def undo() -> None:
            if disk.aims.get(moment) is aim:
                del disk.aims[moment]
            disk.kill_after_operations = disk.bad_read = None
            disk.fail_writes = disk.fail_syncs = 0
            self._start(machine)

        return undo

    def _kill_soon(self, machine: Machine) -> None:
        machine.disk.kill_after_operations = self._random.randrange(OPERATIONS_MAX)

    def _power_soon(self, machine: Machine) -> None:
        process = machine.process
        if process is not None and not machine.is_damaged:
            process.files.kill_with(lambda: self._lose_power(machine))
            self._kill_soon(machine)

    def _fail_write(self, machine: Machine) -> None:
        machine.disk.fail_writes = 1

    def _fail_sync(self, machine: Machine) -> None:
        machine.disk.fail_syncs = 1

    def _fail_read(self, machine: Machine) -> None:
        machine.disk.bad_read = BadRead("error", self._random.randrange(OPERATIONS_MAX))

    def _lose_power(self, machine: Machine) -> None:
        machine.lose_power(self._random.randrange(US, 100 * US))

    def _late_terms(self) -> Undo | None:
        """Let the disk be slow whenever it has to store a term or a vote; half of all times power is lost."""
        machine = self._any()
        if machine.is_damaged:
            return None
        disk, late_us = machine.disk, self._random.choice(LATE_US)
        again: list[Callable[[], None]] = []

        def strike() -> None:
            disk.slow_sync_us = late_us
            process = machine.process
            self._scheduler.after(late_us, be_quick)
            if self._random.random() < 0.5:
                self._scheduler.after(self._random.randrange(late_us), lose_power, process)

        def be_quick() -> None:
            disk.slow_sync_us = 0
            if again:
                disk.aims["term"] = strike

        def lose_power(process: object) -> None:
            if again and machine.process is process and process is not None and not machine.is_damaged:
                self._lose_power(machine)
                self._start(machine)

        again.append(strike)
        disk.aims["term"] = strike

        def undo() -> None:
            again.clear()
            disk.slow_sync_us = 0
            if disk.aims.get("term") is strike:
                del disk.aims["term"]
            self._start(machine)

        return undo
