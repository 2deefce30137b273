"""Operators' mistakes that bring strangers: copies of a directory, nodes of another cluster, lost `peers`.

All of them know the secret and have a member's id. The cluster must take nothing from them, tell them nothing
of its log, and go on as if they were not there.
"""

import dataclasses
from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from cluster.config import Address, NodeConfig
from cluster.errors import DataDirError, IdentityRefused
from tests.simulation.checks.all_checkers import Checkers
from tests.simulation.faults.basic_faults import US, BasicFaults, Fault, Undo
from tests.simulation.faults.lost_disks import FOUNDERS_MIN, ROOT, LostDiskFaults
from tests.simulation.faults.member_changes import PEER_PORT, STEP_US, MemberFaults, adding, removing
from tests.simulation.world.disk import Disk
from tests.simulation.world.machine import Machine
from tests.simulation.world.network import Network
from tests.simulation.world.node_observer import NodeObserver
from tests.simulation.world.scheduler import Scheduler
from tests.simulation.world.stranger import StrangerFacts

ELSEWHERE: Final = "elsewhere"
"""The address of machines that no member has."""
AGAIN_US: Final = US
"""After so long a supervisor starts a process again."""
GROWN_US: Final = 4 * US
"""So long after it was copied a disk has more in it, where clients work."""
TOLD_US: Final = 4 * US
"""Within so long everybody has heard how far a disk has come."""
ADDED: Final = "n90"
"""The id under which a node of another cluster is added."""
FOUNDS_US: Final = 8 * US
"""Within so long a node founds a cluster alone: it listens for five seconds first."""
GIVES_WAY_US: Final = 12 * US
"""Within so long a member that came back without disk and peers is found by the others, where all is well."""


class World(Protocol):
    """What these faults work on."""

    scheduler: Scheduler
    network: Network
    machines: dict[str, Machine]
    strangers: dict[str, Machine]
    checkers: Checkers
    watch: NodeObserver

    def add_stranger(self, config: NodeConfig, disk: Disk, facts: StrangerFacts) -> Machine:
        """Put up a machine that does not belong to the cluster, at the peer address of `config`."""

    def remove_stranger(self, machine: Machine) -> None:
        """Switch such a machine off for good."""


class StrangerFaults:
    """Faults of one world, by their names in `plan.FAULTS`.

    `is_alone` tells whether there is no other fault at present.
    """

    def __init__(  # noqa: PLR0917 - other faults, and what they know
        self,
        world: World,
        faults: BasicFaults,
        disks: LostDiskFaults,
        members: MemberFaults,
        is_alone: Callable[[], bool],
        random: Random,
    ) -> None:
        self._world = world
        self._start = faults.start
        self._disks = disks
        self._members = members
        self._is_alone = is_alone
        self._random = random
        self._is_one_here = False
        self._copies: list[Machine] = []
        self._disturbed_us = 0
        self._is_added = False
        """Whether a node of another cluster shall be in the list."""
        self._takes_out = False
        self.by_name: dict[str, Fault] = {
            "copies": self._one_of(self._copied),
            "all-copied": self._one_of(self._all_copied),
            "older-copy": self._one_of(self._older_copy),
            "other-cluster": self._one_of(self._other_cluster),
            "lost-alone": self._one_of(self._lost_alone),
        }

    def disturbed(self) -> None:
        """Record that something else goes wrong now.

        Copies end before it: one that runs when nobody hears its original is let in, and nobody can know.
        """
        self._disturbed_us = self._world.scheduler.now_us
        self._remove_copies()

    def _one_of(self, fault: Fault) -> Fault:
        """Return a fault that happens while none of the others here does."""

        def do() -> Undo | None:
            undo = None if self._is_one_here else fault()
            if undo is None:
                return None
            self._is_one_here = True

            def end() -> None:
                self._is_one_here = False
                undo()

            return end

        return do

    # -- copies ---------------------------------------------------------------------------------------------

    def _copied(self) -> Undo | None:
        """Start copies of a node: beside it, at the address of another one, or under the id of another."""
        if len(self._world.machines) < FOUNDERS_MIN or not self._is_calm():
            return None
        original, other, *_ = self._random.sample(list(self._world.machines.values()), 3)
        way = self._random.choice(("beside", "twice", "in-place", "renamed"))
        if way in ("in-place", "renamed"):
            self._displace(other)
        hosts = {"beside": [ELSEWHERE], "twice": [ELSEWHERE, f"{ELSEWHERE}-2"]}.get(way, [other.host])
        config = original.config
        if way == "renamed":
            # What was in the other's directory is gone, and the files of the copied one are there.
            config = dataclasses.replace(other.config, data_dir=original.config.data_dir)
        for host in hosts:
            facts = StrangerFacts(f"copy-of-{original.node_id}", self._world.watch)
            facts.on_end = self._copy_ended(facts, is_renamed=way == "renamed")
            facts.may_start = way != "renamed"
            self._copies.append(self._put_up(config, original.disk.copy(), facts, host))

        def undo() -> None:
            self._remove_copies()
            if way in ("in-place", "renamed"):
                self._let_back(other)

        return undo

    def _all_copied(self) -> Undo | None:
        """Start copies of all nodes beside them, whose `peers` name the copies."""
        machines = self._world.machines
        if len(machines) < FOUNDERS_MIN or not self._is_calm() or not self._are_members_stored():
            return None
        peers = {node_id: Address(f"{ELSEWHERE}-{node_id}", PEER_PORT) for node_id in machines}
        for node_id, original in machines.items():
            facts = StrangerFacts(f"copy-of-{node_id}", self._world.watch)
            facts.has_company = True
            facts.on_end = self._copy_ended(facts, is_renamed=False)
            config = dataclasses.replace(original.config, peers=peers)
            self._copies.append(self._put_up(config, original.disk.copy(), facts, peers[node_id].host))
        return self._remove_copies

    def _older_copy(self) -> Undo | None:
        """Let a node come back with what it had seconds ago, as a restored machine does; later with all."""
        original = self._random.choice(list(self._world.machines.values()))
        if len(self._world.machines) < FOUNDERS_MIN or not self._is_calm():
            return None
        parts, copied_us = original.parts, self._world.scheduler.now_us
        assert parts is not None, "all run"
        disk, ends = original.disk.copy(), parts.replica.log.last_index
        here: list[Machine] = []
        told_index, is_over = 0, False

        def come_back() -> None:
            is_same = self._do_all_hear() and original.parts is parts and self._disturbed_us <= copied_us
            if is_over or not is_same or told_index <= ends:
                return
            facts = StrangerFacts(f"older-{original.node_id}", self._world.watch)
            facts.is_dialed = True
            facts.on_end = self._copy_ended(facts, is_renamed=False)
            self._displace(original)
            here.append(self._put_up(original.config, disk, facts, original.host))
            self._copies.append(here[0])

        def look() -> None:
            nonlocal told_index
            told_index = parts.replica.log.committed
            self._world.scheduler.after(TOLD_US, come_back)

        self._world.scheduler.after(GROWN_US, look)

        def undo() -> None:
            nonlocal is_over
            is_over = True
            self._remove_copies()
            if here:
                self._let_back(original)

        return undo

    def _remove_copies(self) -> None:
        while self._copies:
            self._world.remove_stranger(self._copies.pop())

    def _copy_ended(self, facts: StrangerFacts, *, is_renamed: bool) -> Callable[[int], None]:
        """Return what judges the end of a copy: it hears of a removal, or has the directory of another."""
        right = DataDirError.exit_code if is_renamed else IdentityRefused.exit_code

        def judge(exit_code: int) -> None:
            if exit_code != right:
                self._world.watch.fail("node-ends", f"{facts.name} ends by itself, code {exit_code}")

        return judge

    def _is_calm(self) -> bool:
        """Whether all nodes run, and hear each other: then every copy is known for one."""
        world = self._world
        if not self._is_alone() or world.network.hostile is not None or world.watch.rules_old:
            return False
        return self._do_all_hear()

    def _are_members_stored(self) -> bool:
        """Whether each disk has its node's newest list: a copy without it refuses `peers` with one more."""
        all_parts = [machine.parts for machine in self._world.machines.values()]
        return all(
            parts is not None and parts.journal.synced_index >= parts.replica.membership.latest_index
            for parts in all_parts
        )

    def _do_all_hear(self) -> bool:
        """Whether all nodes run, and are connected."""
        world = self._world
        groups = {node_id: machine.parts for node_id, machine in world.machines.items()}
        stalls = [
            machine.process.loop.stall_after_looks for machine in world.machines.values() if machine.process
        ]
        return not any(stalls) and all(
            parts is not None
            and parts.peering.is_established
            and all(parts.peering.table.records[other].is_up for other in groups.keys() - {node_id})
            for node_id, parts in groups.items()
        )

    # -- other clusters -------------------------------------------------------------------------------------

    def _other_cluster(self) -> Undo | None:
        """Let a node of another cluster with the same secret have a member's address, or add it."""
        if self._random.random() < 0.5:
            return self._added()
        victim = self._any_known()
        if victim is None or len(self._world.machines) < FOUNDERS_MIN:
            return None
        stranger = self._found_elsewhere(victim.config)
        here = [stranger]

        def move() -> None:
            # Its node may have been removed meanwhile, or the fault be over.
            if here and self._is_sound(victim):
                facts, disk = stranger.facts, stranger.disk
                self._world.remove_stranger(here.pop())
                self._displace(victim)
                assert isinstance(facts, StrangerFacts)
                here.append(self._put_up(alone(victim.config, victim.host), disk, facts, victim.host))

        self._world.scheduler.after(FOUNDS_US, move)

        def undo() -> None:
            while here:
                self._world.remove_stranger(here.pop())
            self._let_back(victim)

        return undo

    def _added(self) -> Undo | None:
        """Add a node of another cluster, as if by a wrong address; later take it out of the list again."""
        machine = self._random.choice(list(self._world.machines.values()))
        config = dataclasses.replace(
            machine.config, node_id=ADDED, data_dir=ROOT / ADDED, peers={}, join=False
        )
        stranger = self._found_elsewhere(config)
        self._is_added = True

        def add() -> None:
            if self._world.strangers.get(ELSEWHERE) is stranger:
                if ADDED not in self._members.committed().nodes:
                    self._members.ask(adding(ADDED, f"{ELSEWHERE}:{PEER_PORT}"))
                self._world.scheduler.after(4 * STEP_US, add)

        self._world.scheduler.after(FOUNDS_US, add)
        if not self._takes_out:
            self._takes_out = True
            self._take_out()

        def undo() -> None:
            self._world.remove_stranger(stranger)
            self._is_added = False

        return undo

    def _take_out(self) -> None:
        """Ask for the removal of a node that was added by mistake; an addition may still be under way."""
        if not self._is_added and ADDED in self._members.committed().nodes:
            self._members.ask(removing(ADDED))
        self._world.scheduler.after(STEP_US, self._take_out)

    def _found_elsewhere(self, config: NodeConfig) -> Machine:
        """Start a node with an empty disk that founds a cluster alone."""
        facts = StrangerFacts(f"other-{config.node_id}", self._world.watch)
        facts.on_end = self._other_ended(facts)
        facts.on_start = self._is_strange(facts)
        disk = Disk(ROOT, self._random)
        return self._put_up(alone(config, ELSEWHERE), disk, facts, ELSEWHERE)

    def _other_ended(self, facts: StrangerFacts) -> Callable[[int], None]:
        """Return what objects when a node of another cluster ends, whatever ours says of it."""

        def judge(exit_code: int) -> None:
            self._world.watch.fail("node-ends", f"{facts.name} ends by itself, code {exit_code}")

        return judge

    def _is_strange(self, facts: StrangerFacts) -> Callable[[str], None]:
        """Return what tells the checkers that a disk does not belong to this cluster."""
        return lambda disk_id: self._world.checkers.belonging.strange_disk(disk_id, facts.name)

    # -- a member without its disk and its peers ------------------------------------------------------------

    def _lost_alone(self) -> Undo | None:
        """Start a member on an empty disk and without its peers; later with what it had.

        The others find it, and it gives way. Where it was the only one, it is a new cluster, to which no
        client is led here; what the old one promised is on the old disk.
        """
        victim = self._any_known()
        if victim is None:
            return None
        began_us, is_only = self._world.scheduler.now_us, len(self._world.machines) == 1
        was_calm = self._is_calm()
        facts = StrangerFacts(f"empty-{victim.node_id}", self._world.watch)
        facts.on_start = self._is_strange(facts)
        facts.on_end = self._empty_ended(facts, victim.host, is_only=is_only)
        self._displace(victim)
        disk = Disk(ROOT, self._random)
        stranger = self._put_up(alone(victim.config, victim.host), disk, facts, victim.host)

        def undo() -> None:
            is_calm = was_calm and self._disturbed_us <= began_us
            is_found = not is_only and self._world.scheduler.now_us > began_us + GIVES_WAY_US
            if is_calm and is_found and IdentityRefused.exit_code not in facts.exit_codes:
                sentence = f"{facts.name} has the place of a member that lost its disk, and stays"
                self._world.watch.fail("gives-way", sentence)
            self._world.remove_stranger(stranger)
            self._let_back(victim)

        return undo

    def _empty_ended(self, facts: StrangerFacts, host: str, *, is_only: bool) -> Callable[[int], None]:
        """Return what judges the end of a member without its disk: it is started again, and stays out."""

        def judge(exit_code: int) -> None:
            if is_only or exit_code != IdentityRefused.exit_code:
                self._world.watch.fail("node-ends", f"{facts.name} ends by itself, code {exit_code}")
            facts.may_start = False
            self._world.scheduler.after(AGAIN_US, again)

        def again() -> None:
            stranger = self._world.strangers.get(host)
            if stranger is not None and stranger.facts is facts:
                stranger.start()

        return judge

    # -- machines -------------------------------------------------------------------------------------------

    def _any_known(self) -> Machine | None:
        """Return any member that all others know with its disk; of a cluster of one, that which runs."""
        machine = self._random.choice(list(self._world.machines.values()))
        if not self._is_sound(machine) or self._world.watch.rules_old:
            return None
        if len(self._world.machines) == 1:
            is_known = machine.parts is not None and machine.parts.peering.is_established
        else:
            is_known = self._disks.is_known(machine)
        return machine if is_known else None

    def _is_sound(self, machine: Machine) -> bool:
        is_changed = machine.has_lost_disk or machine.is_misconfigured or machine.is_displaced
        return not (machine.is_lost or machine.is_damaged or is_changed)

    def _put_up(self, config: NodeConfig, disk: Disk, facts: StrangerFacts, host: str) -> Machine:
        """Start a stranger at an address."""
        config = dataclasses.replace(config, peer=Address(host, PEER_PORT))
        machine = self._world.add_stranger(config, disk, facts)
        machine.start()
        return machine

    def _displace(self, machine: Machine) -> None:
        """Switch a member's machine off: another has its address."""
        machine.kill()
        machine.is_displaced = True

    def _let_back(self, machine: Machine) -> None:
        machine.is_displaced = False
        self._start(machine)


def alone(config: NodeConfig, host: str) -> NodeConfig:
    """Return the configuration of a node that is a cluster of its own, which others can reach."""
    address = Address(host, PEER_PORT)
    return dataclasses.replace(config, peer=address, peers={config.node_id: address}, join=False)
