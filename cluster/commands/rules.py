"""The rules of the cluster on one node: what it can apply, and when the leader moves them on.

Rules are what commands do (lockstate/versions.py). All nodes must follow the same ones, so they move by an
entry of the log, and only when nobody is left behind: every member is connected and said in its handshake
that it knows the next rules, and nobody joins or leaves.
"""

import logging
from collections.abc import Generator, Mapping
from typing import Protocol

from cluster.commands.batcher import Batcher
from cluster.errors import NodeFailed
from lockstate import codec, snapshot
from lockstate.commands import Entry
from lockstate.machine import LockMachine
from lockstate.versions import RULES_NEWEST, UnknownVersionError

logger = logging.getLogger(__name__)


class Members(Protocol):
    """What the advance needs to know of the member list."""

    @property
    def nodes(self) -> Mapping[str, object]:
        """Return all members by id."""

    @property
    def learners(self) -> frozenset[str]:
        """Return the nodes that are joining."""


class Membership(Protocol):
    """What the advance needs to know of the lists on this node."""

    @property
    def latest(self) -> Members:
        """Return the member list that counts."""


class Role(Protocol):
    """What the advance needs to know of this node's role."""

    @property
    def is_leader(self) -> bool:
        """Whether this node leads."""


class Replica(Protocol):
    """What the advance needs to know of the replica."""

    @property
    def role(self) -> Role:
        """Return what this node is."""

    @property
    def may_change_members(self) -> bool:
        """Whether the leader is sure of its log, and no change of the members is under way."""

    @property
    def membership(self) -> Membership:
        """Return the lists."""


class Peering(Protocol):
    """What the advance needs to know of the peers."""

    def rules_known(self, node_id: str) -> int:
        """Return the newest rules that a connected node, or this one, knows; 0 if it is not connected."""


class Host(Protocol):
    """The parts of a node that the rules depend on."""

    machine: LockMachine

    @property
    def replica(self) -> Replica:
        """Return its part in Raft."""

    @property
    def peering(self) -> Peering:
        """Return what it knows of its peers."""

    def request_tick(self) -> None:
        """Tick soon: there is something to propose."""


class RulesAdvance:
    """Decodes by the active rules, and moves them on when this node leads. One thread."""

    def __init__(self, host: Host, batcher: Batcher) -> None:
        self._host = host
        self._batcher = batcher
        self._proposed_to = 0

    # -- on any node ----------------------------------------------------------------------------------------

    def decode_entry(self, data: bytes) -> Entry:
        """Return a committed entry, ready to be applied. Raises NodeFailed if this release must not."""
        rules = self._host.machine.rules
        try:
            entry = codec.decode_entry(data, rules)
        except UnknownVersionError as error:
            raise NodeFailed(str(error)) from error
        if entry.advance is not None:
            logger.info("event=rules-advance from=%d to=%d", rules, entry.advance.to)
        return entry

    @staticmethod
    def decode_state(state: bytearray) -> Generator[None, None, LockMachine]:
        """Decode a received snapshot in steps. Raises SnapshotError, or NodeFailed if it is a newer one."""
        try:
            return (yield from snapshot.decode_in_steps(state))
        except snapshot.SnapshotTooNewError as error:
            raise NodeFailed(str(error)) from error

    # -- on the leader --------------------------------------------------------------------------------------

    def role_changed(self) -> None:
        """Forget what was proposed: it may be lost, and a repetition has no effect."""
        self._proposed_to = 0

    def step(self) -> None:
        """Propose the next rules once every member knows them. Called after ticks."""
        following = self._host.machine.rules + 1
        if (
            following > RULES_NEWEST
            or following == self._proposed_to
            or not self._host.replica.role.is_leader
        ):
            return
        if self._all_know(following):
            logger.info("event=rules-proposed to=%d", following)
            self._proposed_to = following
            self._batcher.add_advance(following)
            self._host.request_tick()

    def _all_know(self, rules: int) -> bool:
        replica, known = self._host.replica, self._host.peering.rules_known
        members = replica.membership.latest
        is_settled = replica.may_change_members and not members.learners
        return is_settled and all(known(node_id) >= rules for node_id in members.nodes)
