"""The first start of whole nodes: a disk is lost, and nodes reboot, at any moment of it.

No leader may ever be elected with a node that lost its disk, whoever else is away.
"""

import contextlib
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from unittest import mock

import msgspec
import pytest

import cluster.assembly
import cluster.node
from cluster.peers.link import Link
from cluster.storage.data_directory import DataDir
from tests.simulation.plan import make_plan
from tests.simulation.world.disk import Disk
from tests.simulation.world.machine import Machine, watched_loop, watched_parts
from tests.simulation.world.patches import simulated
from tests.simulation.world.world import ROOT, US, World

STORES_A_DISK = ("remember", "store_cluster")
"""What a data directory does when the disk of another is remembered: before and since foundings."""
NODE_IDS = ("n1", "n2", "n3")


class FirstStart:
    """A world in which nothing happens but what a test does."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.machines = world.machines

    def start(self, *node_ids: str) -> None:
        """Start nodes."""
        for node_id in node_ids:
            self.machines[node_id].start()

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.world.scheduler.run_until(self.world.scheduler.now_us + int(seconds * US))
        assert self.world.checkers.violation is None, str(self.world.checkers.violation)

    def lose_disk(self, node_id: str) -> None:
        """Let a node's disk be an empty one, and the node be down."""
        machine = self.machines[node_id]
        machine.kill()
        machine.disk.restore(Disk(ROOT, Random(5)))
        self.world.checkers.replaced(node_id)

    def isolate(self, node_id: str) -> None:
        """Let nothing through to a node and from it."""
        for other in NODE_IDS:
            if other != node_id:
                self.world.network.cut(node_id, other)
                self.world.network.cut(other, node_id)

    def established(self) -> set[str]:
        """Return the nodes that take part."""
        return {node_id for node_id, machine in self.machines.items() if _takes_part(machine)}

    def leaders(self) -> set[str]:
        """Return the nodes that lead."""
        return {
            node_id
            for node_id, machine in self.machines.items()
            if machine.parts is not None and machine.parts.replica.role.is_leader
        }


def _takes_part(machine: Machine) -> bool:
    parts = machine.parts
    return parts is not None and parts.peering.is_established


def _method(spy: Callable[..., None], stores: Callable[..., None]) -> Callable[..., None]:
    """Return a method that lets `spy` call the original one, `stores`."""
    return lambda directory, *what: spy(stores, directory, *what)


def _numbers() -> Callable[[Link], int]:
    numbers = itertools.count()
    return lambda link: int(link.__dict__.setdefault("_number", next(numbers)))


@contextlib.contextmanager
def first_start(seed: int = 1) -> Iterator[FirstStart]:
    """Make a world of three nodes that were never started."""
    plan = msgspec.structs.replace(make_plan(seed, 3, hostile=False, faults=()), clients_count=0, crowd=None)
    plan = msgspec.structs.replace(plan, upgraded_s=0, compact_entries=1000)
    with contextlib.ExitStack() as stack:
        world = World(plan)
        stack.enter_context(simulated(world, world.random))
        stack.callback(world.close)
        stack.enter_context(mock.patch.object(Link, "__hash__", _numbers()))
        stack.enter_context(mock.patch.object(cluster.node, "Parts", watched_parts(world.facts)))
        stack.enter_context(mock.patch.object(cluster.assembly, "Loop", watched_loop(world.facts)))
        # Nodes that are refused end by themselves.
        stack.enter_context(mock.patch.object(world.watch, "ended", _ignore))
        world.watch.on_end = _ignore
        yield FirstStart(world)


def _ignore(*_: object) -> None:
    """Nodes end here as they are meant to."""


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_lost_disk_is_recognised_by_every_survivor(*, is_killed: bool) -> None:
    """n1 dies in its first handshake with n3; n3 loses its disk; then n1 meets n3 while n2 is away.

    In earlier releases n3 had met n1, and n1 not yet n3: so n1 took the empty disk for the first one, and the
    two of them elected a second leader in the term of the first.
    """
    with first_start() as world, contextlib.ExitStack() as stack:
        killed: list[str] = []

        def spy(stores: Callable[..., None], directory: DataDir, *what: object) -> None:
            stores(directory, *what)
            if directory.identity.node_id == "n3" and "n2" not in what and not killed:
                killed.append("n1")
                world.world.scheduler.after(1, world.machines["n1"].kill)

        for name in STORES_A_DISK:
            stores = getattr(DataDir, name)
            stack.enter_context(mock.patch.object(DataDir, name, _method(spy, stores)))
        world.start("n1", "n2")
        world.run(1)
        world.start("n3")
        world.run(5)
        world.machines["n1"].kill()
        world.run(1)
        assert killed
        world.lose_disk("n3")
        world.start("n3")
        world.run(3)
        if is_killed:
            world.machines["n2"].kill()
        else:
            world.isolate("n2")
        world.start("n1", "n3")
        world.run(20)
        assert "n3" not in world.established(), "a node with an empty disk takes part"
        assert world.leaders() <= {"n2"}
        assert world.machines["n1"].parts is not None, "the disk of n1 is what it was"


@functools.cache
def steps_of_a_first_start() -> int:
    """Return after how many steps of the scheduler all three nodes take part."""
    with first_start() as world:
        world.start(*NODE_IDS)
        while len(world.established()) < len(NODE_IDS):
            _step(world, world.world.scheduler.steps + 1)
        return world.world.scheduler.steps


def _step(world: FirstStart, steps: int) -> None:
    """Run until the scheduler has done so many steps."""
    scheduler = world.world.scheduler
    while scheduler.steps < steps:
        scheduler.run_until(scheduler.now_us + 200)
        assert scheduler.now_us < 60 * US, "the first start does not end"


@pytest.mark.parametrize("lost", NODE_IDS)
@pytest.mark.parametrize("killed", NODE_IDS)
def test_a_disk_is_lost_at_any_moment_of_the_first_start(killed: str, lost: str) -> None:
    """A node reboots somewhere in the first start and another, or the same, loses its disk there.

    Either nobody had taken part, and whoever begins afterwards begins one cluster; or the lost disk is
    recognised by each of the others alone. The third node is away when the two meet.
    """
    third = min(set(NODE_IDS) - {lost, killed})
    counts = Counter[bool]()
    for steps in range(1, steps_of_a_first_start() + 20, 4):
        with first_start() as world:
            world.start(*NODE_IDS)
            _step(world, steps)
            world.machines[killed].kill()
            world.run(0.5)
            had_part = world.established()
            world.lose_disk(lost)
            world.isolate(third)
            world.start(killed, lost)
            world.run(6)
            counts[bool(had_part - {lost})] += 1
            if had_part - {lost}:
                assert lost not in world.established(), steps
                assert not world.leaders() & {killed, lost}, steps

    assert len(counts) == 2, "before anybody took part, and after that"


@pytest.mark.parametrize("seed", range(1, 4))
def test_reboots_only_delay_the_first_start(seed: int) -> None:
    """Nodes that are killed again and again while they found their cluster found one in the end."""
    random = Random(seed)
    with first_start(seed) as world:
        for _ in range(12):
            world.start(*NODE_IDS)
            _step(world, world.world.scheduler.steps + random.randrange(1, 60))
            world.machines[random.choice(NODE_IDS)].kill()
        world.start(*NODE_IDS)
        world.run(10)
        assert world.established() == set(NODE_IDS)
        assert len(world.leaders()) == 1
        ids = {machine.parts.peering.table.cluster_id for machine in world.machines.values() if machine.parts}
        assert len(ids) == 1
        assert ids != {""}
