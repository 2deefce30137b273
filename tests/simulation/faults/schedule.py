"""When which fault happens, and to whom; quiet times in between, in which the cluster must serve; the end.

Faults of each kind come at random, at the rates of the plan, and are undone after a while.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final, Protocol

from cluster.config import NodeConfig
from cluster.node import Node
from tests.simulation.checks.all_checkers import Checkers
from tests.simulation.checks.liveness import Vitals
from tests.simulation.faults.bad_disks import BadDiskFaults
from tests.simulation.faults.basic_faults import BasicFaults, Undo
from tests.simulation.faults.first_starts import FIRST_START, FirstStartFaults
from tests.simulation.faults.hostile_network import Hostile
from tests.simulation.faults.lost_disks import LostDiskFaults
from tests.simulation.faults.member_changes import MemberFaults
from tests.simulation.faults.moments import MomentFaults
from tests.simulation.faults.slow_followers import SlowFollowerFaults
from tests.simulation.faults.strangers import StrangerFaults
from tests.simulation.faults.wrong_peers import WrongPeersFaults
from tests.simulation.plan import Plan
from tests.simulation.workload.any_client import AnyClient
from tests.simulation.workload.call_transport import CallTransport
from tests.simulation.world.disk import Disk
from tests.simulation.world.event_loop import NodeLoop
from tests.simulation.world.machine import Machine, Process
from tests.simulation.world.network import Network
from tests.simulation.world.node_observer import NodeObserver
from tests.simulation.world.scheduler import Scheduler
from tests.simulation.world.stranger import StrangerFacts

US: Final = 1_000_000
SERVE_S: Final = 20
SERVE_ELECTIONS: Final = 6
"""A healed cluster serves again within SERVE_S and so many longest elections."""
SETTLED_US: Final = 1_000_000
"""Calls that begin so long after everything works count for what is uncertain."""
HEALTHY_S: Final = 8
"""How long it is left in peace then."""
AGREE_S: Final = 120
TO_THE_CALM: Final = frozenset({"copies", "all-copied", "older-copy"})
"""Faults that come to clusters only in which nothing else is wrong. They would be rare otherwise."""
TRY_US: Final = 500_000
TRIES: Final = 60
PROBE_S: Final = 3.0
REFUSED_DAMAGE: Final = 3
"""The exit code of a node whose data directory is damaged."""


class World(Protocol):
    """What chaos works on."""

    plan: Plan
    scheduler: Scheduler
    network: Network
    machines: dict[str, Machine]
    strangers: dict[str, Machine]
    clients: list[AnyClient]
    checkers: Checkers
    watch: NodeObserver
    transport: CallTransport
    wall_us: dict[str, int]

    def make_loop(self, name: str) -> NodeLoop:
        """Return a loop of the world's own, on a true clock."""

    def add_machine(self, node_id: str) -> Machine:
        """Put up a machine whose node joins the cluster."""

    def add_stranger(self, config: NodeConfig, disk: Disk, facts: StrangerFacts) -> Machine:
        """Put up a machine that does not belong to the cluster, at the peer address of `config`."""

    def remove_stranger(self, machine: Machine) -> None:
        """Switch such a machine off for good."""

    def vitals(self) -> list[Vitals]:
        """Return what all nodes that run show."""

    def run_slice(self) -> None:
        """Let a little time pass."""


class Chaos:
    """The faults of one world, in time."""

    def __init__(self, world: World) -> None:
        self.counts: Counter[str] = Counter()
        self._world = world
        self._random = Random(f"chaos {world.plan.seed}")
        self._faults = BasicFaults(
            world.scheduler,
            world.network,
            world.machines,
            [client.name for client in world.clients],
            wall_us=world.wall_us,
            drift_ppm_max=world.plan.drift_ppm_max,
            random=self._random,
        )
        self._more = LostDiskFaults(world, self._faults, self._random)
        self._members = MemberFaults(world, self._random)
        self._peers = WrongPeersFaults(world, self._faults, self._random)
        bad_disks = BadDiskFaults(world.machines, self._faults, self._random)
        moments = MomentFaults(world.scheduler, world.machines, self._faults, self._random)
        slow = SlowFollowerFaults(world.scheduler, world.network, world.machines, self._random)
        self._active: dict[int, Undo] = {}
        self._strangers = StrangerFaults(
            world, self._faults, self._more, self._members, lambda: not self._active, self._random
        )
        self._first_start = FirstStartFaults(world, self._faults)
        more = (
            self._more,
            self._members,
            self._peers,
            bad_disks,
            moments,
            slow,
            self._strangers,
            self._first_start,
        )
        for faults in more:
            self._faults.by_name.update(faults.by_name)
        self._active_count = 0
        self._is_quiet = False
        self._hostile: Hostile | None = None
        self._probe = world.make_loop("probe")
        self._served: set[str] = set()
        self._probes: set[asyncio.Task[None]] = set()
        world.watch.on_end = self._process_ended

    # -- faults ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Plan the first fault of each kind, and the first quiet time."""
        self._hostile = self._world.network.hostile
        for kind in self._world.plan.rates:
            if kind == FIRST_START:
                self._do(kind, self._first_start.lasts_us)
            else:
                self._plan_next(kind)
        self._world.scheduler.after(self._quiet_us(), self._begin_quiet)

    def _plan_next(self, kind: str) -> None:
        pause_us = int(self._random.expovariate(self._world.plan.rates[kind] / 60) * US)
        self._world.scheduler.after(pause_us, self._strike, kind)

    def _strike(self, kind: str, tries_left: int = TRIES) -> None:
        """Let one fault happen; one that comes to a calm cluster only waits until it is."""
        is_done = not self._is_quiet and self._do(kind)
        if is_done or kind not in TO_THE_CALM or tries_left == 0:
            self._plan_next(kind)
        else:
            self._world.scheduler.after(TRY_US, self._strike, kind, tries_left - 1)

    def _do(self, kind: str, lasts_us: int | None = None) -> bool:
        """Let one fault happen now, and plan its end; whether there was anything to be done."""
        if kind not in TO_THE_CALM:
            self._strangers.disturbed()
        self._world.watch.add("world", "fault", kind)
        undo = self._faults.by_name[kind]()
        if undo is None:
            return False
        self.counts[kind] += 1
        self._active_count += 1
        self._active[self._active_count] = undo
        shortest_s, longest_s = self._world.plan.fault_s
        if lasts_us is None:
            lasts_us = int(self._random.uniform(shortest_s, longest_s) * US)
        self._world.scheduler.after(lasts_us, self._undo, self._active_count)
        return True

    def _undo(self, number: int) -> None:
        undo = self._active.pop(number, None)
        if undo is not None:
            self._world.watch.add("world", "undo", number)
            undo()

    def _process_ended(self, process: Process, reason: str, exit_code: int) -> None:
        """Judge a process that ended by itself, and start it again later, as a supervisor would."""
        machine = process.machine
        self._strangers.disturbed()
        if exit_code != 0:
            self.counts["ended-by-itself"] += 1
        if exit_code == REFUSED_DAMAGE and machine.is_damaged:
            machine.is_lost = True
            self.counts["damage-refused"] += 1
        elif exit_code == REFUSED_DAMAGE and process.files.misled:
            machine.disk.repair()
            self.counts["misread-refused"] += 1
        elif self._more.expects_end(machine, exit_code) or self._first_start.expects_end(machine, exit_code):
            self.counts["lost-disk-refused"] += 1
            if process.files.errors_count == 0:
                self._world.checkers.belonging.refused(machine.node_id)
        elif self._peers.expects_end(machine, exit_code):
            self.counts["wrong-peers-refused"] += 1
        elif self._members.expects_end(machine, exit_code):
            self.counts["removed-node-ended"] += 1
        elif exit_code != 0 and process.files.errors_count == 0:
            self._world.watch.fail(
                "node-ends", f"{machine.node_id} ends by itself, code {exit_code}: {reason}"
            )
        self._active_count += 1
        self._active[self._active_count] = lambda: self._faults.start(machine)
        self._world.scheduler.after(int(self._random.uniform(0.1, 5) * US), self._undo, self._active_count)

    # -- quiet times ----------------------------------------------------------------------------------------

    def _quiet_us(self) -> int:
        return int(self._world.plan.quiet_every_s * self._random.uniform(0.5, 1.5) * US)

    def heal(self) -> None:
        """Undo everything; all nodes run."""
        self._is_quiet = True
        self._world.watch.add("world", "heal")
        self._world.network.hostile = None
        while self._active:
            self._undo(min(self._active))
        for machine in self._world.machines.values():
            if self._waits_for_a_removed_node(machine):
                machine.kill()
            self._faults.start(machine)
        self._world.checkers.liveness.healed(self._world.scheduler.now_us)

    def _waits_for_a_removed_node(self, machine: Machine) -> bool:
        """Whether it was shut out by a node that can never let it in again: operators start it once more."""
        parts = machine.parts
        by, _, reason = ("", "", "") if parts is None else parts.peering.shut_out.reason.partition(" says: ")
        return bool(reason) and by not in self._members.serving()

    def serving(self) -> list[str]:
        """Return the nodes that must serve when all is well."""
        return self._members.serving()

    def _begin_quiet(self) -> None:
        self.heal()
        deadline_us = self._standing_until_us() + self._patience_us()
        self._served.clear()
        self._look(deadline_us, self._begin_healthy)

    def _standing_until_us(self) -> int:
        """Return until when a process stands in what a fault made long, as a start on a slow disk; or now."""
        processes = [machine.process for machine in self._world.machines.values()]
        now_us = self._world.scheduler.now_us
        return max([now_us, *[process.loop.now_us for process in processes if process is not None]])

    def _patience_us(self) -> int:
        return SERVE_S * US + SERVE_ELECTIONS * self._world.plan.election_ms_max * 1000

    def _look(self, deadline_us: int, then: Callable[[], None]) -> None:
        """Ask every node until all have answered; object when it takes too long."""
        world = self._world
        waiting = [node_id for node_id in self._members.serving() if node_id not in self._served]
        if self._served and not waiting:
            # While all nodes start nobody knows who should serve: somebody has to.
            then()
            return
        if world.scheduler.now_us > deadline_us:
            world.watch.fail("liveness", f"all is well again, and {', '.join(waiting) or 'all'} do not serve")
        for node_id in waiting:
            task = self._probe.create_task(self._ask(node_id))
            self._probes.add(task)
            task.add_done_callback(self._probes.discard)
        world.scheduler.after(int((PROBE_S + 0.5) * US), self._look, deadline_us, then)

    async def _ask(self, node_id: str) -> None:
        """Ask one node for a linearizable read."""

        async def work(node: Node) -> Any:
            return await node.read(lambda machine: machine.revision, PROBE_S)

        asked = self._world.transport.ask(self._probe, node_id, work, PROBE_S)
        asked.future.add_done_callback(_look_at)
        await asyncio.wait({asked.future}, timeout=PROBE_S)
        if asked.future.done() and asked.future.exception() is None:
            self._served.add(node_id)

    def _begin_healthy(self) -> None:
        now_us = self._world.scheduler.now_us
        self._world.transport.begin_count(now_us + SETTLED_US)
        self._world.scheduler.after(HEALTHY_S * US, self._end_quiet, now_us, self._runs())

    def _runs(self) -> set[str]:
        """Return the origins of all node processes that run now."""
        groups = [machine.parts for machine in self._world.machines.values()]
        return {parts.outbox.origin for parts in groups if parts is not None}

    def _end_quiet(self, healthy_from_us: int, runs: set[str]) -> None:
        world = self._world
        world.checkers.healthy(healthy_from_us, world.scheduler.now_us, runs | self._runs())
        self.counts["quiet-times"] += 1
        liveness = world.checkers.liveness
        liveness.sizes(world.vitals())
        if not world.plan.is_slow:
            liveness.outcomes(*world.transport.end_count())
        liveness.troubled()
        world.network.hostile = self._hostile
        self._is_quiet = False
        world.scheduler.after(self._quiet_us(), self._begin_quiet)

    # -- the end --------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Heal everything; see the cluster serve, and all nodes agree."""
        world = self._world
        self.heal()
        for client in world.clients:
            client.is_active = False
        self._served.clear()
        is_serving: list[bool] = []
        patient_until_us = self._standing_until_us() + self._patience_us()
        self._look(patient_until_us, lambda: is_serving.append(True))
        deadline_us = world.scheduler.now_us + AGREE_S * US
        while not world.scheduler.is_stopped:
            world.run_slice()
            if is_serving and self._agree():
                return
            if world.scheduler.now_us > deadline_us:
                told = {node_id: _revision(machine) for node_id, machine in world.machines.items()}
                world.watch.fail("agreement", f"the nodes do not come to the same revision: {told}")

    def _agree(self) -> bool:
        machines = self._world.machines
        return len({_revision(machines[node_id]) for node_id in self._members.serving()}) == 1


def _look_at(future: "asyncio.Future[Any]") -> None:
    """Look at a failure that comes too late for anybody."""
    if not future.cancelled():
        future.exception()


def _revision(machine: Machine) -> int:
    parts = machine.parts
    return parts.machine.revision if parts is not None else -1
