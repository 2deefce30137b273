"""Changes of the member list: nodes join, leave and are replaced while everything else goes wrong, too.

What is wanted is decided here, and asked for again and again on any node until the committed list says so.
"""

import contextlib
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final, Protocol

from cluster.consensus.member_list import Members
from cluster.errors import ClusterError, IdentityRefused
from cluster.node import Node
from tests.simulation.faults.basic_faults import US, Fault, Undo
from tests.simulation.plan import Plan
from tests.simulation.workload.any_client import AnyClient
from tests.simulation.world.machine import Machine
from tests.simulation.world.node_observer import NodeObserver
from tests.simulation.world.scheduler import Scheduler

PEER_PORT: Final = 7800
NODES_MIN: Final = 3
NODES_MAX: Final = 5
STEP_US: Final = 500_000
"""So often what is wanted is compared with what is so."""
ASK_S: Final = 3.0
LINGER_US: Final = 15 * US
"""A removed node goes on for so long, if nobody tells it that it was removed."""


class World(Protocol):
    """What these changes work on."""

    plan: Plan
    scheduler: Scheduler
    machines: dict[str, Machine]
    clients: list[AnyClient]
    watch: NodeObserver

    def add_machine(self, node_id: str) -> Machine:
        """Put up a machine whose node joins the cluster."""


class MemberFaults:
    """Changes in one world, by their names in `plan.FAULTS`. Nothing happens before the first of them."""

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._random = random
        self._wanted = list(world.plan.node_ids)
        self._known = Members()
        self._leaving: set[str] = set()
        self._made_count = len(self._wanted)
        self._has_begun = False
        self.by_name: dict[str, Fault] = {
            "grow": self._grow,
            "shrink": self._shrink,
            "replace": self._replace,
        }

    def serving(self) -> list[str]:
        """Return the nodes that must serve when all is well: those that vote and shall stay."""
        if not self._has_begun:
            return list(self._wanted)
        voters = self.committed().voters or frozenset(self._world.plan.node_ids)
        return [node_id for node_id in self._wanted if node_id in voters]

    def expects_end(self, machine: Machine, exit_code: int) -> bool:
        """Whether it is right that a process ends like this: it was removed, and hears so."""
        if machine.node_id in self._wanted or exit_code != IdentityRefused.exit_code:
            return False
        machine.is_lost = True
        return True

    # -- what is wanted -------------------------------------------------------------------------------------

    def _grow(self) -> Undo | None:
        """Add all that there is room for, at once."""
        return self._want(NODES_MAX - len(self._wanted), 0)

    def _shrink(self) -> Undo | None:
        """Remove all that can be spared, at once."""
        return self._want(0, max(0, len(self._wanted) - NODES_MIN))

    def _replace(self) -> Undo | None:
        """Let one node take the place of another."""
        return self._want(1, 1)

    def _want(self, more_count: int, less_count: int) -> Undo | None:
        if self._random.random() < 0.5:
            more_count, less_count = min(more_count, 1), min(less_count, 1)
        if more_count + less_count == 0:
            return None
        for node_id in self._random.sample(self._wanted, less_count):
            self._wanted.remove(node_id)
        for _ in range(more_count):
            self._made_count += 1
            node_id = f"n{self._made_count}"
            self._wanted.append(node_id)
            self._world.add_machine(node_id).start()
        self._world.watch.add("world", "wants", *self._wanted)
        for client in self._world.clients:
            client.told_of_nodes(self._wanted)
        if not self._has_begun:
            self._has_begun = True
            self._step()
        return _nothing

    # -- how it comes about ---------------------------------------------------------------------------------

    def _step(self) -> None:
        """Ask for one change that is still missing, on any node; let those end that were removed."""
        world = self._world
        committed = self.committed()
        for node_id in sorted(set(world.machines) - set(self._wanted) - set(committed.nodes) - self._leaving):
            if node_id in committed.removed.values():
                self._leaving.add(node_id)
                world.scheduler.after(LINGER_US, self._end, world.machines[node_id])
        missing = [node_id for node_id in self._wanted if node_id not in committed.nodes]
        surplus = [node_id for node_id in sorted(committed.nodes) if node_id not in self._wanted]
        for node_id in missing:
            self.ask(adding(node_id, f"{node_id}:{PEER_PORT}"))
        if surplus and len(committed.voters) > NODES_MIN - 1:
            self.ask(removing(self._random.choice(surplus)))
        world.scheduler.after(STEP_US, self._step)

    def ask(self, work: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
        """Ask any node that serves for a change."""
        processes = [machine.process for machine in self._world.machines.values()]
        serving = [process for process in processes if process is not None and process.is_serving]
        if serving:
            process = self._random.choice(serving)
            process.loop.call_soon(process.serve, work)

    def _end(self, machine: Machine) -> None:
        """Switch a removed node off for good."""
        machine.is_lost = True
        machine.kill()

    def committed(self) -> Members:
        """Return the newest committed list that anybody has known. A node that joins knows none at first."""
        for machine in self._world.machines.values():
            parts = machine.parts
            known = parts.replica.membership.committed if parts is not None else Members()
            if known.nodes and known.version >= self._known.version:
                self._known = known
        return self._known


def adding(node_id: str, address: str) -> Callable[[Node], Coroutine[Any, Any, None]]:
    """Return the request to add a node."""

    async def work(node: Node) -> None:
        with contextlib.suppress(ClusterError):
            await node.add_member(node_id, address, ASK_S)

    return work


def removing(node_id: str) -> Callable[[Node], Coroutine[Any, Any, None]]:
    """Return the request to remove a node."""

    async def work(node: Node) -> None:
        with contextlib.suppress(ClusterError):
            await node.remove_member(node_id, ASK_S)

    return work


def _nothing() -> None:
    """A change is not undone: the next one is another change."""
