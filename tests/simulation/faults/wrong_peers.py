"""Operators' mistakes in `peers`: a node restarts with others or other addresses, and is put right later.

The log decides who belongs to the cluster. So peers that contradict it must keep the node from starting, and
all others must do no harm: some of those stay, also while the cluster has to serve.
"""

import dataclasses
from collections.abc import Collection
from random import Random
from typing import Final, Protocol

from cluster.assembly import Parts
from cluster.config import Address, NodeConfig
from cluster.consensus.member_list import Members
from cluster.errors import ConfigError
from tests.simulation.checks.all_checkers import Checkers
from tests.simulation.faults.basic_faults import BasicFaults, Fault, Undo
from tests.simulation.plan import Plan
from tests.simulation.world.machine import Machine

UNKNOWN: Final = "n99"
"""A node that there never was."""
NOWHERE: Final = Address("nowhere", 7800)
PEERS_MAX: Final = 7
KEPT_CHANCE: Final = 0.5
"""How often peers that do no harm are left as they are."""
Peers = dict[str, Address]


class World(Protocol):
    """What these faults work on."""

    plan: Plan
    machines: dict[str, Machine]
    checkers: Checkers


class WrongPeersFaults:
    """Faults of one world, by their names in `plan.FAULTS`."""

    def __init__(self, world: World, faults: BasicFaults, random: Random) -> None:
        self._world = world
        self._start = faults.start
        self._random = random
        self._founders: Final = frozenset(world.plan.node_ids)
        self._is_one_wrong = False
        self._right: dict[str, NodeConfig] = {}
        self.by_name: dict[str, Fault] = {"wrong-peers": self._wrong_peers}

    def expects_end(self, machine: Machine, exit_code: int) -> bool:
        """Whether it is right that a process ends like this: its configuration is wrong."""
        return exit_code == ConfigError.exit_code and machine.is_misconfigured

    def _wrong_peers(self) -> Undo | None:
        """Restart a node with wrong peers."""
        machine = self._random.choice(list(self._world.machines.values()))
        # A node on an empty disk that is told of nobody else would rightly be a cluster of its own.
        is_sound = not (machine.is_lost or machine.is_damaged or machine.has_lost_disk)
        if self._is_one_wrong or machine.is_misconfigured or not is_sound:
            return None
        right = self._right.setdefault(machine.node_id, machine.config)
        peers = self._any_wrong(machine, right)
        if peers is None:
            return None
        is_contradicting = self._is_contradicting(machine, peers)
        self._world.checkers.belonging.configured(machine.node_id, peers, is_contradicting=is_contradicting)
        machine.kill()
        machine.config = dataclasses.replace(right, peers=peers)
        machine.is_misconfigured = self._is_one_wrong = True
        self._start(machine)

        def undo() -> None:
            self._is_one_wrong = False
            is_kept = machine.process is not None and machine.process.is_serving and self._may_stay(machine)
            if not is_kept or self._random.random() > KEPT_CHANCE:
                self._world.checkers.belonging.configured(machine.node_id, (), is_contradicting=False)
                machine.kill()
                machine.config = right
            machine.is_misconfigured = False
            self._start(machine)

        return undo

    def _may_stay(self, machine: Machine) -> bool:
        """Whether a node that has started with wrong peers may start with them again.

        One that joins learns only then whom they contradict.
        """
        parts = machine.parts
        if parts is None or not is_harmless(machine):
            return False
        membership = parts.replica.membership
        lists = (membership.latest, membership.committed)
        return not any(self._contradicts(machine.config.peers, members) for members in lists)

    def _any_wrong(self, machine: Machine, right: NodeConfig) -> Peers | None:
        """Return other peers than the right ones, as far as there are any."""
        parts, node_id = machine.parts, machine.node_id
        peers = dict(right.peers)
        others = sorted(peers.keys() - {node_id})
        wrong: list[Peers] = []
        if len(peers) < PEERS_MAX:
            wrong.append({**peers, UNKNOWN: Address(UNKNOWN, 7800)})
        if parts is not None and _has_part(parts) and not right.join:
            # Before that, such a node would rightly be a cluster of its own.
            wrong += [{}, {node_id: right.peer}]
        if others:
            one = self._random.choice(others)
            address = peers.pop(one)
            wrong += [{**peers, one: NOWHERE}, {**peers, UNKNOWN: address}]
            if len(others) > 1:
                other = self._random.choice([each for each in others if each != one])
                wrong += [dict(peers), {**peers, one: peers[other], other: address}]
        wrong = [each for each in wrong if each not in (right.peers, machine.config.peers)]
        return self._random.choice(wrong) if wrong else None

    def _is_contradicting(self, machine: Machine, peers: Collection[str]) -> bool:
        """Whether a node must not start with these peers, by what its log says when it is killed."""
        parts = machine.parts
        if parts is None or machine.config.join or not _has_part(parts):
            return False
        membership = parts.replica.membership
        lists = (membership.latest, membership.committed)
        return all(self._contradicts(peers, members) for members in lists)

    def _contradicts(self, peers: Collection[str], members: Members) -> bool:
        """Peers may be the founders, or all members and besides them nodes that were members once."""
        ids, present = set(peers), set(members.nodes)
        known = present | self._founders | set(members.removed.values())
        return bool(ids) and ids != self._founders and not present <= ids <= known


def _has_part(parts: Parts) -> bool:
    """Whether the disk of a node says who belongs to its cluster."""
    return parts.peering.is_established and bool(parts.peering._datadir.cluster_id)


def is_harmless(machine: Machine) -> bool:
    """Whether a node that has started with these peers may be left with them.

    One that was founded without a log may start once, and not again.
    """
    parts = machine.parts
    return parts is not None and parts.peering.is_established and parts.replica.membership.is_listed
