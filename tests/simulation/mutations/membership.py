"""Defects of changes of the member list."""

from typing import Any, Final

from cluster.consensus.member_changes import MemberChanges
from cluster.consensus.member_list import Members
from cluster.consensus.membership import FIRST, Membership
from cluster.consensus.replica import Replica
from tests.simulation.mutations.mutation import (
    Mutation,
    Surroundings,
    many_snapshots,
    replaced,
    together,
)

_CHANGING: Final = Surroundings(
    minutes=3.0,
    rates={"grow": 4.0, "shrink": 4.0, "replace": 4.0, "isolate": 4.0, "kill": 2.0, "transfer": 4.0},
    fault_s=(0.5, 6.0),
    settings={"compact_entries": 200},
)


def _may_change_at_once(replica: Replica) -> bool:
    """Whether this node leads: another change may be under way."""
    committed = replica.log.committed
    return replica._may_lead() and replica.log.term_at(committed) == replica.engine.term


def _may_change_unsure(replica: Replica) -> bool:
    """Whether this node leads and no change is under way that it knows of."""
    is_settled = replica._next_members is None and replica.membership.latest_index <= replica.log.committed
    return replica._may_lead() and is_settled


def _count_learners(replica: Replica) -> None:
    """Count the acknowledgements of learners."""
    new = replica.membership.latest
    replica.engine.set_members(frozenset(new.nodes) - {replica._node_id}, frozenset())


def _promote_now_and_then(changes: MemberChanges) -> None:
    """Let learners wait to be promoted. No defect: only then are there two of them at a time."""
    if changes._loop.time() % 12 < 1:
        _promote(changes)


def _encode_first(_membership: Membership, _index: int) -> bytes:
    return FIRST


def _count_committed(membership: Membership, _latest: Members) -> None:
    """Count what is known to be committed."""
    _count(membership, membership.committed)


def _commit_and_count(membership: Membership, index: int) -> None:
    _commit(membership, index)
    _count(membership, membership.committed)


def _wanted_unchecked(changes: MemberChanges, change: Any) -> Members:
    """Remove any node, and several at a time with it."""
    wanted = _wanted(changes, change)
    voters = sorted(wanted.voters - {changes._node_id})
    if change.peer or len(voters) < 2 or wanted is changes._replica.membership.latest:
        return wanted
    nodes = {node_id: member for node_id, member in wanted.nodes.items() if node_id != voters[0]}
    return Members(nodes, {**wanted.removed, f"unknown disk of {voters[0]}": voters[0]}, wanted.version)


_wanted, _promote = MemberChanges._wanted, MemberChanges._promote
_count, _commit = Membership._count, Membership.commit

MEMBERSHIP: Final = (
    Mutation(
        name="two-changes-at-once",
        sentence="A change of the members begins before the one before it is committed.",
        found_by=("one-change",),
        apply=replaced(Replica, "may_change_members", property(_may_change_at_once)),
        surroundings=_CHANGING,
    ),
    Mutation(
        name="two-nodes-in-one-change",
        sentence="One change removes two nodes.",
        found_by=("one-change",),
        apply=replaced(MemberChanges, "_wanted", _wanted_unchecked),
        surroundings=_CHANGING,
    ),
    Mutation(
        name="change-before-noop",
        sentence="A new leader changes the members before it has committed anything in its term.",
        found_by=("sure-leader",),
        apply=replaced(Replica, "may_change_members", property(_may_change_unsure)),
        surroundings=_CHANGING,
    ),
    Mutation(
        name="learner-counts-at-once",
        sentence="Acknowledgements of nodes that are only catching up count for the commit.",
        found_by=("committed-by-majority", "elected-by-majority"),
        apply=replaced(Replica, "_count_members", _count_learners),
        surroundings=Surroundings(
            minutes=3.0,
            rates={"grow": 8.0, "shrink": 6.0, "split": 10.0, "transfer": 4.0},
            fault_s=(2.0, 6.0),
            settings={"compact_entries": 1_000},
            around=together(many_snapshots, replaced(MemberChanges, "_promote", _promote_now_and_then)),
        ),
    ),
    Mutation(
        name="members-count-when-committed",
        sentence="A member list counts only when it is committed, not from when it is in the log.",
        found_by=("lease-late", "committed-by-majority", "elected-by-majority", "election-agreed"),
        apply=together(
            replaced(Membership, "_count", _count_committed),
            replaced(Membership, "commit", _commit_and_count),
        ),
        surroundings=_CHANGING,
    ),
    Mutation(
        name="members-lost-in-snapshot",
        sentence="A restored node counts by the list that the cluster began with.",
        found_by=("elected-by-majority", "committed-by-majority", "election-agreed", "liveness", "node-ends"),
        apply=replaced(Membership, "encoded_at", _encode_first),
        surroundings=Surroundings(
            minutes=3.0,
            rates={"grow": 2.0, "shrink": 1.0, "replace": 2.0, "kill": 8.0, "isolate": 4.0, "transfer": 4.0},
            fault_s=(0.5, 4.0),
            settings={"compact_entries": 10},
        ),
    ),
)
