"""Everything that can go wrong, each with its undoing. When, how often and to whom is decided elsewhere."""

import contextlib
import itertools
from collections.abc import Callable
from random import Random
from typing import Final

from cluster.errors import ClusterError
from cluster.node import Node
from tests.simulation.faults.tampering import Tampering
from tests.simulation.world.disk import Disk
from tests.simulation.world.machine import Machine
from tests.simulation.world.network import Network
from tests.simulation.world.scheduler import Scheduler

Undo = Callable[[], None]
Fault = Callable[[], Undo | None]
"""Does something and returns how to undo it; None if there was nothing to be done."""

US: Final = 1_000_000
OPERATIONS_MAX: Final = 40
"""A kill comes at one of so many next operations of a disk, or callbacks of a loop."""
LOOKS_MAX: Final = 60
"""A process stalls at one of so many next looks at the clock."""
FILE_KINDS: Final = ("snapshot.", "incoming.tmp", "journal", ".json")
"""What is in the names of files that may have no room alone."""
TRANSFER_S: Final = 5.0


class BasicFaults:
    """The faults of one world, by their names in `plan.FAULTS`."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        machines: dict[str, Machine],
        client_names: list[str],
        *,
        wall_us: dict[str, int],
        drift_ppm_max: int,
        random: Random,
    ) -> None:
        self._scheduler = scheduler
        self._network = network
        self._machines = machines
        self._client_names = client_names
        self._wall_us = wall_us
        self._drift_ppm_max = drift_ppm_max
        self._random = random
        self.backups: dict[str, Disk] = {}
        """The disks of damaged machines, as they were before."""
        self.by_name: dict[str, Fault] = {
            "kill": self._kill,
            "kill-at-write": self._kill_at_write,
            "kill-at-step": self._kill_at_step,
            "kill-all": self._kill_all,
            "power": self._power,
            "power-all": self._power_all,
            "pause": self._pause,
            "suspend": self._suspend,
            "stop": self._stop,
            "transfer": self._transfer,
            "disk-full": self._disk_full,
            "disk-error": self._disk_error,
            "slow-disk": self._slow_disk,
            "bit-flip": self._bit_flip,
            "isolate": self._between_nodes(self._isolate),
            "split": self._between_nodes(self._split),
            "ring": self._between_nodes(self._ring),
            "bridge": self._between_nodes(self._bridge),
            "one-way": self._between_nodes(self._one_way),
            "deaf": self._between_nodes(self._deaf),
            "slow-link": self._between_nodes(self._slow_link),
            "reset": self._between_nodes(self._reset),
            "half-open": self._between_nodes(self._half_open),
            "client-cut": self._client_cut,
            "wall-clock": self._wall_clock,
            "tampered": self._between_nodes(self._tampered),
            "slow-node": self._between_nodes(self._slow_node),
            "slow-child": self._slow_child,
            "stall": self._stall,
            "clock-rate": self._clock_rate,
            "file-full": self._file_full,
        }

    # -- processes ------------------------------------------------------------------------------------------

    def _any(self) -> Machine:
        return self._random.choice(list(self._machines.values()))

    def _kill(self) -> Undo | None:
        machine = self._any()
        machine.kill()
        return lambda: self.start(machine)

    def _kill_all(self) -> Undo | None:
        for machine in self._machines.values():
            machine.kill()
        return self._start_all

    def _kill_at_write(self) -> Undo | None:
        machine = self._any()
        machine.disk.kill_after_operations = self._random.randrange(OPERATIONS_MAX)

        def undo() -> None:
            machine.disk.kill_after_operations = None
            self.start(machine)

        return undo

    def _kill_at_step(self) -> Undo | None:
        machine = self._any()
        if machine.process is None:
            return None
        loop = machine.process.loop
        loop.kill_after_handles = self._random.randrange(1, OPERATIONS_MAX)

        def undo() -> None:
            loop.kill_after_handles = None
            self.start(machine)

        return undo

    def _power(self) -> Undo | None:
        machine = self._any()
        self._lose_power(machine)
        return lambda: self.start(machine)

    def _power_all(self) -> Undo | None:
        for machine in self._machines.values():
            self._lose_power(machine)
        return self._start_all

    def _lose_power(self, machine: Machine) -> None:
        if machine.is_damaged:
            return  # it could take the damaged file away, and the node would rightly start
        machine.lose_power(self._random.randrange(US, 100 * US))

    def _start_all(self) -> None:
        for machine in self._machines.values():
            self.start(machine)

    def start(self, machine: Machine) -> None:
        """Start a node that is down, from its backup if its disk is damaged."""
        if machine.process is not None:
            return
        backup = self.backups.pop(machine.node_id, None) if machine.is_lost else None
        if backup is not None:
            machine.disk.restore(backup)
            machine.is_lost = machine.is_damaged = False
        if not machine.is_lost:
            machine.start()

    def _pause(self) -> Undo | None:
        process = self._any().process
        if process is None or process.loop.is_paused:
            return None
        process.loop.pause()
        return process.loop.resume

    def _suspend(self) -> Undo | None:
        machine = self._any()
        process = machine.process
        if process is None or process.loop.is_paused:
            return None
        process.loop.pause()
        # Not before the end of what it is busy with: its clock was read there, and never goes back.
        machine.clock.stop(process.loop.now_us)

        def undo() -> None:
            machine.clock.go_if_stopped(process.loop.now_us)
            process.loop.resume()

        return undo

    def _stall(self) -> Undo | None:
        process = self._any().process
        if process is None:
            return None
        process.loop.stall_after_looks = self._random.randrange(1, LOOKS_MAX)
        process.loop.stall_us = int(1000 * 10 ** self._random.uniform(0, 3.7))
        return _nothing

    def _clock_rate(self) -> Undo | None:
        clock, drift_ppm_max = self._any().clock, self._drift_ppm_max
        before_ppm = clock.drift_ppm
        clock.set_drift(self._random.randint(-drift_ppm_max, drift_ppm_max), self._scheduler.now_us)
        return lambda: clock.set_drift(before_ppm, self._scheduler.now_us)

    def _stop(self) -> Undo | None:
        machine = self._any()
        if machine.process is None:
            return None
        machine.process.ask_to_stop()
        return lambda: self.start(machine)

    def _transfer(self) -> Undo | None:
        process = self._any().process
        if process is None or not process.is_serving:
            return None
        to = self._random.choice([None, *self._machines])

        async def work(node: Node) -> None:
            with contextlib.suppress(ClusterError):
                await node.transfer_leadership(to, TRANSFER_S)

        process.loop.call_soon(process.serve, work)
        return _nothing

    def _wall_clock(self) -> Undo | None:
        node_id = self._random.choice(list(self._wall_us))
        self._wall_us[node_id] += self._random.randint(-(10**6), 10**6) * US
        return _nothing

    # -- disks ----------------------------------------------------------------------------------------------

    def _disk_full(self) -> Undo | None:
        disk = self._any().disk
        disk.is_full = True

        def undo() -> None:
            disk.is_full = False

        return undo

    def _disk_error(self) -> Undo | None:
        disk = self._any().disk
        if self._random.random() < 0.5:
            disk.fail_writes = 1
        else:
            disk.fail_syncs = 1

        def undo() -> None:
            disk.fail_writes = disk.fail_syncs = 0

        return undo

    def _slow_disk(self) -> Undo | None:
        disk = self._any().disk
        disk.slow_sync_us = self._random.choice([5_000, 50_000, 500_000])

        def undo() -> None:
            disk.slow_sync_us = 0

        return undo

    def _file_full(self) -> Undo | None:
        """Leave no room for one kind of files: the snapshot that is written, or that is received, ..."""
        disk = self._any().disk
        disk.full_names = self._random.choice(FILE_KINDS)

        def undo() -> None:
            disk.full_names = ""

        return undo

    def _slow_child(self) -> Undo | None:
        machine = self._any()
        machine.slow_step_us = self._random.choice([20_000, 300_000, 2_000_000])

        def undo() -> None:
            machine.slow_step_us = 0

        return undo

    def _bit_flip(self) -> Undo | None:
        machine = self._any()
        if machine.is_damaged:
            return None
        machine.kill()
        damaged = machine.disk.flip_bit()
        if damaged is not None:
            machine.is_damaged = True
            self.backups[machine.node_id] = damaged[1]
        return lambda: self.start(machine)

    # -- network --------------------------------------------------------------------------------------------

    def _between_nodes(self, fault: Fault) -> Fault:
        """Return a fault that only happens where there are several nodes."""
        return lambda: fault() if len(self._machines) > 1 else None

    def _cut(self, pairs: list[tuple[str, str]]) -> Undo:
        for source, target in pairs:
            self._network.cut(source, target)

        def undo() -> None:
            for source, target in pairs:
                self._network.repair(source, target)

        return undo

    def _slow_node(self) -> Undo | None:
        one, *others = self._nodes()
        late_us = self._random.choice([2_000, 20_000, 100_000, 300_000])
        paths = [self._network.path(other, one) for other in others]
        for path in paths:
            path.late_us = late_us

        def undo() -> None:
            for path in paths:
                path.late_us = 0

        return undo

    def _nodes(self) -> list[str]:
        """Return the nodes in any order."""
        return self._random.sample(list(self._machines), len(self._machines))

    def _isolate(self) -> Undo | None:
        one, *others = self._nodes()
        return self._cut(_both([one], others))

    def _split(self) -> Undo | None:
        nodes = self._nodes()
        at = self._random.randrange(1, len(nodes))
        return self._cut(_both(nodes[:at], nodes[at:]))

    def _ring(self) -> Undo | None:
        nodes = self._nodes()
        if len(nodes) <= 3:
            return self._cut(_both(nodes[:1], nodes[1:2]))
        chords = [
            (nodes[one], nodes[two])
            for one, two in itertools.permutations(range(len(nodes)), 2)
            if (one - two) % len(nodes) not in (1, len(nodes) - 1)
        ]
        return self._cut(chords)

    def _bridge(self) -> Undo | None:
        _, *nodes = self._nodes()
        half = (len(nodes) + 1) // 2
        return self._cut(_both(nodes[:half], nodes[half:]))

    def _one_way(self) -> Undo | None:
        source, target, *_ = self._nodes()
        return self._cut([(source, target)])

    def _deaf(self) -> Undo | None:
        one, *others = self._nodes()
        return self._cut([(other, one) for other in others])

    def _client_cut(self) -> Undo | None:
        client, node = self._random.choice(self._client_names), self._random.choice(list(self._machines))
        return self._cut(_both([client], [node]))

    def _slow_link(self) -> Undo | None:
        source, target, *_ = self._nodes()
        path = self._network.path(source, target)
        path.late_us = self._random.choice([20_000, 200_000, 2_000_000])
        path.bytes_per_s = self._random.choice([0, 5_000, 100_000])

        def undo() -> None:
            path.late_us = path.bytes_per_s = 0

        return undo

    def _tampered(self) -> Undo | None:
        one, other, *_ = self._nodes()
        path = self._network.path(one, other)
        path.tampering = Tampering(self._random)

        def undo() -> None:
            path.tampering = None

        return undo

    def _reset(self) -> Undo | None:
        one, other, *_ = self._nodes()
        for end in self._network.between(one, other):
            end.break_here()
            end.other.break_here()
        return _nothing

    def _half_open(self) -> Undo | None:
        one, other, *_ = self._nodes()
        for end in self._network.between(one, other):
            end.break_here()
        return _nothing


def _both(ones: list[str], others: list[str]) -> list[tuple[str, str]]:
    """Return all pairs of the two groups, in both directions."""
    return [pair for one in ones for other in others for pair in ((one, other), (other, one))]


def _nothing() -> None:
    """There is nothing to undo."""
