"""Disks that do not give back what was written: reads that fail or bring wrong bytes, and bits that change.

The faults are undone as all others are; see schedule.py. What has rotten is repaired when a node refuses it.
"""

from random import Random
from typing import Final

from tests.simulation.faults.basic_faults import US, BasicFaults, Fault, Undo
from tests.simulation.world.bad_reads import BadRead, Kind
from tests.simulation.world.machine import Machine

FILE_KINDS: Final = ("journal", "snapshot", "incoming.tmp", ".json")
"""What is in the names of the files that are misread."""
READS_MAX: Final = 4
"""A bad read is one of so many next reads of such files: a start has about as many."""
WRONG: Final[tuple[Kind, ...]] = ("flip", "zeros", "misdirected")


class BadDiskFaults:
    """Faults of one world, by their names in `plan.FAULTS`."""

    def __init__(self, machines: dict[str, Machine], faults: BasicFaults, random: Random) -> None:
        self._machines = machines
        self._start = faults.start
        self._random = random
        self.by_name: dict[str, Fault] = {
            "read-error": lambda: self._bad_read(("error",)),
            "wrong-read": lambda: self._bad_read(WRONG),
            "rot": self._rot,
        }

    def _any(self) -> Machine:
        return self._random.choice(list(self._machines.values()))

    def _bad_read(self, kinds: tuple[Kind, ...]) -> Undo | None:
        """Let one of the next reads be bad. Most are those of a start, so there often is one now."""
        machine = self._any()
        if machine.is_damaged:
            return None
        disk = machine.disk
        disk.bad_read = bad = BadRead(
            self._random.choice(kinds), self._random.randrange(READS_MAX), self._random.choice(FILE_KINDS)
        )
        if self._random.random() < 0.7:
            self._restart(machine)

        def undo() -> None:
            if disk.bad_read is bad:
                disk.bad_read = None
            self._start(machine)

        return undo

    def _rot(self) -> Undo | None:
        """Change a bit of what is stored, under the running node. Some look at it soon."""
        machine = self._any()
        if machine.is_damaged or not machine.disk.rot():
            return None
        if self._random.random() < 0.5:
            self._restart(machine)
        return lambda: self._start(machine)

    def _restart(self, machine: Machine) -> None:
        """Start a node again, behind a kill or a loss of power."""
        if self._random.random() < 0.5:
            machine.kill()
        else:
            machine.lose_power(self._random.randrange(US, 100 * US))
        self._start(machine)
