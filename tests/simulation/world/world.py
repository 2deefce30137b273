"""What a simulated world is made of: machines, nodes, clients and chaos in one thread, from one plan."""

import contextlib
import itertools
from pathlib import Path
from random import Random
from typing import Any, Final, TextIO

from cluster.config import Address, NodeConfig
from cluster.node import Node
from lockstate.words.versions import RULES_FIRST
from tests.simulation.checks.all_checkers import Checkers, Violation
from tests.simulation.checks.liveness import Vitals
from tests.simulation.faults.hostile_network import Hostile
from tests.simulation.faults.schedule import Chaos
from tests.simulation.plan import Plan
from tests.simulation.workload.any_client import AnyClient
from tests.simulation.workload.call_transport import CallTransport
from tests.simulation.workload.caller import Caller
from tests.simulation.workload.client import Client
from tests.simulation.workload.crowd import Crowd, CrowdSettings
from tests.simulation.workload.history import History
from tests.simulation.workload.redis_client import RedisClient
from tests.simulation.workload.stream_client import StreamClient
from tests.simulation.world.disk import Disk
from tests.simulation.world.event_loop import Current, NodeLoop, make_loop
from tests.simulation.world.machine import Facts, Machine
from tests.simulation.world.network import Network
from tests.simulation.world.node_observer import NodeObserver
from tests.simulation.world.raft_trace import RaftTrace
from tests.simulation.world.redis_face import SimulatedFace
from tests.simulation.world.scheduler import Clock, Scheduler
from tests.simulation.world.stranger import StrangerFacts
from tests.simulation.world.trace import ClientLines, Trace
from tests.support.later_rules import RULES_LATER, later_rules

ROOT: Final = Path("/sim")
PORT: Final = 7800
CROWD: Final = "crowd"
SECRET: Final = b"the secret of a simulated cluster"
US: Final = 1_000_000
WALL_US: Final = 1_800_000_000 * US
"""What the wall clocks show at first."""
CHANGES_OF_MEMBERS: Final = frozenset({"grow", "shrink", "replace", "lost-disk", "early-lost-disk"})
"""Faults after which another node, or none, has a node's name."""
SLICE_US: Final = 250_000
"""How often the world looks at all logs together."""


class World:
    """Everything there is. Made and run within `simulated`."""

    def __init__(self, plan: Plan, file: TextIO | None = None, raft_file: TextIO | None = None) -> None:
        self.plan = plan
        self.scheduler = Scheduler()
        self.current = Current()
        self.trace = Trace(file)
        self.random = Random(f"product {plan.seed}")
        self.history = History()
        self.history.watchers.append(ClientLines(self.trace, self.now_us))
        self.checkers = Checkers(
            plan.node_ids,
            self.history,
            self.now_us,
            election_s=plan.election_ms_max / 1000,
            compact_entries=plan.compact_entries,
            segment_bytes=plan.segment_bytes,
            latency_us=12 * (plan.latency_us + plan.jitter_us + plan.far_us) + 20 * plan.sync_us,
        )
        self.checkers.turns.are_kept = plan.limits.are_turns_kept
        self._stop_at_violation()
        raft = RaftTrace(self.checkers.raft.event, raft_file)
        self.watch = NodeObserver(self.checkers, self.trace, raft, self.now_us)
        self.network = Network(self.scheduler, Random(f"network {plan.seed}"))
        self.network.split_chance = plan.split_chance
        random = Random(f"machines {plan.seed}")
        self.hostile = self._hostile()
        self.network.hostile = self.hostile
        self.machines = {node_id: self._machine(node_id, random) for node_id in plan.node_ids}
        self.strangers: dict[str, Machine] = {}
        """Machines that do not belong to the cluster, by the address that they have at present."""
        self.machines[plan.node_ids[0]].usual_step_us = plan.child_step_us
        self._set_paths()
        self.transport = CallTransport(self.network, self.machines, self.checkers)
        for machine in self.machines.values():
            machine.on_end = _Ended(self.transport, machine)
        self.clients: list[AnyClient] = [
            self._client(number, random) for number in range(1, plan.clients_count + 1)
        ]
        self.clients += [self._stream_client(name, random) for name in self._stream_names()]
        self.clients += [self._redis_client(number, random) for number in range(1, plan.redis_count + 1)]
        if plan.crowd is not None:
            self.clients.append(self._crowd(plan.crowd, random))
        self.wall_us = dict.fromkeys(plan.node_ids, WALL_US)
        self.chaos = Chaos(self)

    # -- patches.Machine ------------------------------------------------------------------------------------

    def now_us(self) -> int:
        """Return the true time of whoever runs now."""
        loop = self.current.loop
        return loop.now_us if loop is not None else self.scheduler.now_us

    def monotonic_us(self) -> int:
        """Return the monotonic clock of the process that runs now."""
        loop = self.current.loop
        assert loop is not None, "nobody runs"
        return loop.look_at_clock()

    def wall_s(self) -> float:
        """Return its wall clock."""
        loop = self.current.loop
        name = loop.name if loop is not None else ""
        return (self.wall_us.get(name, 0) + self.scheduler.now_us) / US

    def pid(self) -> int:
        """Return its pid, or its child's while that works."""
        machine = self._present_machine()
        process = machine.process if machine is not None else None
        if process is None:
            return 1
        return process.child.encoding_pid or process.pid

    def facts(self) -> Facts:
        """Return who is told of what the process does that runs now."""
        machine = self._present_machine()
        return machine.facts if machine is not None else self.watch

    def _present_machine(self) -> Machine | None:
        """Return whose process runs now."""
        loop = self.current.loop
        if loop is None:
            return None
        return self.strangers.get(loop.name) or self.machines.get(loop.name)

    def _hostile(self) -> Hostile | None:
        chances = self.plan.hostile
        if chances is None:
            return None
        return Hostile(self.network, chances, Random(f"hostile {self.plan.seed}"))

    # -- how it is made -------------------------------------------------------------------------------------

    def add_machine(self, node_id: str) -> Machine:
        """Put up a machine whose node joins the cluster."""
        random = Random(f"machine {node_id} {self.plan.seed}")
        machine = self.machines[node_id] = self._machine(node_id, random, joins=True)
        machine.on_end = _Ended(self.transport, machine)
        self.wall_us[node_id] = WALL_US
        self._set_paths()
        return machine

    def add_stranger(self, config: NodeConfig, disk: Disk, facts: StrangerFacts) -> Machine:
        """Put up a machine that does not belong to the cluster, at the peer address of `config`."""
        host = config.peer.host
        clock = Clock(US + self.scheduler.now_us, 0)
        machine = self.strangers[host] = Machine(
            config,
            self.scheduler,
            self.network,
            self.current,
            disk=disk,
            clock=clock,
            facts=facts,
            host=host,
        )
        return machine

    def remove_stranger(self, machine: Machine) -> None:
        """Switch such a machine off for good."""
        machine.kill()
        if self.strangers.get(machine.host) is machine:
            del self.strangers[machine.host]

    def _machine(self, node_id: str, random: Random, *, joins: bool = False) -> Machine:
        plan = self.plan
        config = NodeConfig(
            node_id=node_id,
            data_dir=ROOT / node_id,
            http=Address(node_id, 7700),
            peer=Address(node_id, PORT),
            peers={peer_id: Address(peer_id, PORT) for peer_id in plan.node_ids},
            secret=SECRET,
            advertise_http=f"http://{node_id}:7700",
            heartbeat_ms=plan.heartbeat_ms,
            election_ms_min=plan.election_ms_min,
            election_ms_max=plan.election_ms_max,
            compact_entries=plan.compact_entries,
            join=joins,
            # Hosts of the simulated network are names: nobody knows how far they can be reached.
            insecure_peers=True,
        )
        disk = Disk(ROOT, Random(f"disk {node_id} {plan.seed}"))
        disk.sync_us = plan.sync_us
        clock = self._clock(random)
        machine = Machine(
            config, self.scheduler, self.network, self.current, disk=disk, clock=clock, facts=self.watch
        )
        if plan.redis_count:
            machine.make_face = self._face
        return machine

    def _clock(self, random: Random) -> Clock:
        drift_ppm_max = self.plan.drift_ppm_max
        return Clock(random.randrange(US, 10**6 * US), random.randint(-drift_ppm_max, drift_ppm_max))

    def _client(self, number: int, random: Random) -> Client:
        loop = make_loop(self.scheduler, self._clock(random), f"c{number}", self.current, self.watch.uncaught)
        return Client(
            loop,
            self.transport,
            list(self.plan.node_ids),
            self.history,
            settings=self.plan.client_settings,
            random=Random(f"client {number} {self.plan.seed}"),
        )

    def _stream_names(self) -> list[str]:
        return [f"s{number}" for number in range(1, self.plan.streams_count + 1)]

    def _stream_client(self, name: str, random: Random) -> StreamClient:
        loop = make_loop(self.scheduler, self._clock(random), name, self.current, self.watch.uncaught)
        return StreamClient(
            loop,
            self.transport,
            list(self.plan.node_ids),
            self.history,
            settings=self.plan.client_settings,
            random=Random(f"{name} {self.plan.seed}"),
        )

    def _face(self, node: Node, loop: NodeLoop, process: str) -> SimulatedFace:
        timeout_s = self.plan.client_settings.timeout_s[1]
        return SimulatedFace(node, loop, process, self.history, self.checkers.redis, timeout_s=timeout_s)

    def _redis_names(self) -> list[str]:
        return [f"r{number}" for number in range(1, self.plan.redis_count + 1)]

    def _redis_client(self, number: int, random: Random) -> RedisClient:
        name, plan = self._redis_names()[number - 1], self.plan
        loop = make_loop(
            self.scheduler, self._clock(random), name, self.current, self.watch.uncaught, wires=self.network
        )
        own = Random(f"{name} {plan.seed}")
        timeout_s = plan.client_settings.timeout_s
        caller = Caller(
            loop, self.transport, list(plan.node_ids), self.history, timeout_s=timeout_s, random=own
        )
        return RedisClient(loop, caller, self.checkers.redis, number=number, random=own)

    def _crowd(self, settings: CrowdSettings, random: Random) -> Crowd:
        loop = make_loop(self.scheduler, self._clock(random), CROWD, self.current, self.watch.uncaught)
        return Crowd(
            loop,
            self.transport,
            list(self.plan.node_ids),
            self.history,
            settings=settings,
            client_settings=self.plan.client_settings,
            random=Random(f"crowd {self.plan.seed}"),
        )

    def make_loop(self, name: str) -> NodeLoop:
        """Return a loop of the world's own, on a true clock."""
        return make_loop(self.scheduler, Clock(0, 0), name, self.current, self.watch.uncaught)

    def _set_paths(self) -> None:
        clients = [f"c{number}" for number in range(1, self.plan.clients_count + 1)]
        names = [*self.machines, *clients, *self._stream_names(), *self._redis_names(), CROWD]
        for source, target in itertools.permutations(names, 2):
            path = self.network.path(source, target)
            path.latency_us, path.jitter_us = self.plan.latency_us, self.plan.jitter_us
            if target == self.plan.node_ids[-1] and source in self.machines:
                path.latency_us += self.plan.far_us

    def _stop_at_violation(self) -> None:
        report = self.checkers.report
        fail = report.fail

        def stop_and_fail(checker: str, sentence: str, **facts: Any) -> None:
            self.scheduler.is_stopped = True
            fail(checker, sentence, **facts)

        report.fail = stop_and_fail  # type: ignore[method-assign,assignment]

    # -- how it runs ----------------------------------------------------------------------------------------

    def run(self, simulated_s: float) -> None:
        """Let everything happen; ends early at a violation."""
        with contextlib.suppress(Violation), later_rules():
            self._begin_upgrade()
            starts = Random(f"starts {self.plan.seed}")
            for machine in self.machines.values():
                self.scheduler.after(int(starts.random() * self.plan.start_s * US), machine.start)
            self.chaos.begin()
            while self.scheduler.now_us < simulated_s * US and not self.scheduler.is_stopped:
                self.run_slice()
            if not self.scheduler.is_stopped:
                self.chaos.end()
            if not self.scheduler.is_stopped:
                self._finish()

    def _begin_upgrade(self) -> None:
        """Let the last node run a release for a while that knows no later rules than the first ones.

        So it is where no other node may take its place.
        """
        if self.plan.upgraded_s and not CHANGES_OF_MEMBERS & self.plan.rates.keys():
            node_id = self.plan.node_ids[-1]
            self.watch.rules_old[node_id] = RULES_FIRST
            self.watch.rules_newest = RULES_LATER
            self.scheduler.after(int(self.plan.upgraded_s * US), self._upgrade, node_id)

    def _upgrade(self, node_id: str) -> None:
        """Install the newest release on a node, and restart it if it runs."""
        self.watch.add("world", "upgrade", node_id)
        del self.watch.rules_old[node_id]
        machine = self.machines[node_id]
        if machine.process is not None:
            machine.kill()
            machine.start()

    def run_slice(self) -> None:
        """Let a little time pass, and compare all logs."""
        self.scheduler.run_until(self.scheduler.now_us + SLICE_US)
        groups = {node_id: machine.parts for node_id, machine in self.machines.items()}
        self.checkers.compare_logs(
            {node_id: parts.journal for node_id, parts in groups.items() if parts is not None}
        )
        self.checkers.liveness.look(self.vitals(), self.chaos.serving(), self.scheduler.now_us)

    def vitals(self) -> list[Vitals]:
        """Return what all nodes that run show."""
        return [each for machine in self.machines.values() if (each := machine.vitals()) is not None]

    def _finish(self) -> None:
        machines = {
            node_id: machine.parts.machine
            for node_id, machine in self.machines.items()
            if machine.parts is not None
        }
        self.checkers.finish(machines)

    def figures(self) -> dict[str, list[float]]:
        """Return what took how long, or became how large."""
        minutes = max(self.scheduler.now_us / (60 * US), 1 / 60)
        forks = self.watch.counts["forks"] / len(self.machines) / minutes
        return {**self.checkers.liveness.figures, "forks-per-node-minute": [forks]}

    def close(self) -> None:
        """End all processes, so that nothing of them runs any more."""
        for machine in [*self.machines.values(), *self.strangers.values()]:
            machine.kill()
        for client in self.clients:
            client.leave()


class _Ended:
    """Breaks the calls that a machine's process had open when it ended."""

    def __init__(self, transport: CallTransport, machine: Machine) -> None:
        self._transport = transport
        self._machine = machine

    def __call__(self, is_silent: bool) -> None:  # noqa: FBT001 - a callback
        self._transport.process_ended(self._machine, is_silent=is_silent)
