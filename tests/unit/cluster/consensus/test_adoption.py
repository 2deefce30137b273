"""A cluster of an earlier release gets its cluster id when everybody can read it, and not before."""

from types import SimpleNamespace
from typing import cast

import pytest

from cluster.consensus import member_list
from cluster.consensus.adoption import RULES_WITH_CLUSTER, Adoption
from cluster.consensus.member_list import FORMAT_WITH_CLUSTER, Members
from cluster.consensus.replica import Replica, Role

FIRST = member_list.founders({"n1": "h:1", "n2": "h:2", "n3": "h:3"})
DISKS = {"n1": "disk-1", "n2": "disk-2", "n3": "disk-3"}


class Leader:
    """What an adoption asks of a replica."""

    def __init__(self, members: Members = FIRST) -> None:
        self.membership = SimpleNamespace(latest=members)
        self.role = Role("n1", 1, is_leader=True, is_candidate=False)
        self.may_change_members = True
        self.connected = frozenset(members.nodes)
        self.proposed: list[Members] = []

    def reachable(self) -> frozenset[str]:
        """Return who answers."""
        return self.connected

    def change_members(self, new: Members) -> None:
        """Take the proposal."""
        self.proposed.append(new)


def step(leader: Leader, *, rules: int = RULES_WITH_CLUSTER, disk_ids: dict[str, str] = DISKS) -> bool:
    """Do one step of the adoption."""
    return Adoption(cast("Replica", leader), lambda: disk_ids, lambda: rules).step()


def test_the_list_gets_a_cluster_id_and_all_disks() -> None:
    """The nodes stay the same; the version counts the change, so who has missed it is behind."""
    leader = Leader()
    assert step(leader)
    (named,) = leader.proposed
    assert (named.format, len(named.cluster_id), named.version) == (FORMAT_WITH_CLUSTER, 32, 1)
    assert {node_id: member.disk_id for node_id, member in named.nodes.items()} == DISKS
    assert named.voters == FIRST.voters
    assert member_list.decode(member_list.encode(named)) == named
    assert not step(Leader(named)), "it has one"


def test_two_clusters_get_two_ids() -> None:
    """An id is random."""
    one, other = Leader(), Leader()
    step(one)
    step(other)
    assert one.proposed[0].cluster_id != other.proposed[0].cluster_id


@pytest.mark.parametrize(
    "why", ["rules", "follows", "unsettled", "a learner", "a disk", "a connection", "no list"]
)
def test_it_waits_until_everybody_is_there(why: str) -> None:
    """Older rules, another change, a node that is away or of whom no disk is known: not now."""
    leader, rules, disk_ids = Leader(), RULES_WITH_CLUSTER, DISKS
    match why:
        case "rules":
            rules -= 1
        case "follows":
            leader.role = Role("n2", 1, is_leader=False, is_candidate=False)
        case "unsettled":
            leader.may_change_members = False
        case "a learner":
            leader = Leader(member_list.with_learner(FIRST, "n4", "h:4"))
            disk_ids = {**DISKS, "n4": "disk-4"}
        case "a disk":
            disk_ids = {"n1": "disk-1", "n2": "disk-2"}
        case "a connection":
            leader.connected -= {"n3"}
        case "no list":
            leader = Leader(Members())
            leader.role = Role(None, 0, is_leader=False, is_candidate=False)
    assert not step(leader, rules=rules, disk_ids=disk_ids)
    assert not leader.proposed
