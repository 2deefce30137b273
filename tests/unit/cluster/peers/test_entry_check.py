"""Whom a node lets in: the disk counts, and whoever knows more must prove that it knows this cluster."""

from itertools import product

import pytest
from msgspec.structs import replace

from cluster.consensus import member_list
from cluster.consensus.member_list import MemberRecord, Members
from cluster.peers.entry_check import check, is_displacing
from cluster.peers.handshake import LogPosition, Objection, Particulars
from cluster.peers.peer_table import View

OURS, OTHERS = "c" * 32, "d" * 32
THREE = Members(
    {
        node_id: MemberRecord(f"h:{node_id}", is_voter=True, disk_id=f"disk-{node_id}")
        for node_id in ("n1", "n2", "n3")
    },
    version=4,
    cluster_id=OURS,
)
N1 = View(
    disk_id="disk-n1",
    cluster_id=OURS,
    committed=THREE,
    latest=THREE,
    remembered={},
    rules=3,
)
JOINING = replace(N1, disk_id="disk-n4", cluster_id="", committed=Members(), latest=Members(), rules=1)


def says(
    disk_id: str, version: int = 4, cluster_id: str = OURS, *, rules: int = 3, your_disk_id: str = ""
) -> Particulars:
    """Return what a peer says of itself."""
    return Particulars(disk_id, "", version, rules=rules, cluster_id=cluster_id, your_disk_id=your_disk_id)


def kind(view: View, peer_id: str, theirs: Particulars, *, is_known: bool = True) -> str:
    """Return the kind of the objection, or the standing."""
    found = check(view, peer_id, theirs, is_known=is_known)
    return found.kind if isinstance(found, Objection) else found.value


def test_a_member_with_its_disk_is_let_in() -> None:
    """Whatever list it knows, with or without a cluster id of its own."""
    for version, cluster_id in product((0, 4, 9), (OURS, "")):
        assert kind(N1, "n3", says("disk-n3", version, cluster_id)) == "member"


@pytest.mark.parametrize("version", [0, 4, 5, 1 << 60])
@pytest.mark.parametrize("cluster_id", ["", OTHERS])
def test_no_list_switches_off_the_check_of_the_disk(version: int, cluster_id: str) -> None:
    """A member's id with another disk is refused, whatever list it says it knows, if it proves nothing."""
    expected = "other-disk" if not cluster_id else "other-cluster"
    assert kind(N1, "n3", says("disk-new", version, cluster_id)) == expected
    assert kind(N1, "n3", says("disk-new", version, cluster_id, your_disk_id="another")) == expected


def test_another_cluster_is_seen_first() -> None:
    """Even with the right disk, or a removed one, or as a stranger."""
    gone = member_list.without(THREE, "n3", "disk-n3", THREE.nodes)
    assert kind(N1, "n3", says("disk-n3", 9, OTHERS)) == "other-cluster"
    assert kind(replace(N1, committed=gone), "n3", says("disk-n3", 9, OTHERS)) == "other-cluster"
    assert kind(N1, "n9", says("disk-n9", 9, OTHERS), is_known=False) == "other-cluster"
    assert kind(replace(JOINING, cluster_id=OURS), "n3", says("disk-n3", 9, OTHERS)) == "other-cluster"


def test_who_was_added_again_without_our_knowing_may_only_lead() -> None:
    """Of this cluster, with a newer list: it is listened to, and nothing of it is counted."""
    assert kind(N1, "n3", says("disk-new", 5)) == "leader-only"
    assert kind(N1, "n3", says("disk-new", 4)) == "other-disk", "its list is not newer"
    assert kind(N1, "n3", says("disk-new", 5, "")) == "other-disk", "nothing proves that it is of ours"
    assert kind(N1, "n3", says("disk-new", 5, "", your_disk_id="disk-n1")) == "other-disk"
    assert kind(replace(N1, cluster_id=""), "n3", says("disk-new", 5, "")) == "other-disk"
    assert kind(N1, "n3", says("disk-new", 5, OTHERS, your_disk_id="disk-n1")) == "other-cluster"


def test_both_lists_count_while_one_is_not_committed() -> None:
    """The newest list counts from when it is in the log, and may be cut off again."""
    back = replace(
        THREE, nodes={**THREE.nodes, "n3": MemberRecord("h:n3", is_voter=True, disk_id="disk-new")}
    )
    view = replace(N1, latest=back)
    for disk_id in ("disk-n3", "disk-new"):
        assert kind(view, "n3", says(disk_id)) == "member"
    assert kind(view, "n3", says("disk-third")) == "other-disk"


def test_a_disk_that_was_met_counts_where_no_list_has_one() -> None:
    """A learner, and founders that no list describes yet, are known by the disk they came with first."""
    learning = member_list.with_learner(THREE, "n4", "h:n4")
    view = replace(N1, committed=learning, latest=learning)
    assert kind(view, "n4", says("disk-n4", 0, "")) == "member"
    met = replace(view, remembered={"n4": "disk-n4", "n3": "an older one of n3"})
    assert kind(met, "n4", says("disk-n4", 0, "")) == "member"
    assert kind(met, "n4", says("disk-other", 0, "")) == "other-disk"
    assert kind(met, "n3", says("disk-n3")) == "member", "the list comes first"


def test_a_stranger_must_know_a_newer_list_of_this_cluster() -> None:
    """It may have joined since; else it is told to be added, or that it was removed."""
    assert kind(N1, "n4", says("disk-n4", 5), is_known=False) == "member"
    assert kind(N1, "n4", says("disk-n4", 4), is_known=False) == "not-a-member"
    assert kind(N1, "n4", says("disk-n4", 5, ""), is_known=False) == "not-a-member"
    gone = replace(N1, committed=member_list.without(THREE, "n3", "disk-n3", THREE.nodes))
    assert kind(gone, "n3", says("disk-n3", 9), is_known=False) == "removed"
    assert kind(gone, "n3", says("disk-new", 4), is_known=False) == "not-a-member"


def test_rules_that_are_too_old_are_told_last() -> None:
    """Only who would be let in hears of it."""
    assert kind(N1, "n3", says("disk-n3", rules=2)) == "rules"
    assert kind(N1, "n3", says("disk-new", rules=2)) == "other-disk"


def test_a_joining_node_with_an_empty_log_takes_members_as_they_come() -> None:
    """It knows nobody, and has nothing to lose; strangers without a list are nobody's members."""
    for cluster_id, is_known in product((OURS, OTHERS, ""), (True, False)):
        assert kind(JOINING, "n1", says("disk-n1", 4, cluster_id), is_known=is_known) == "member"
    assert kind(JOINING, "n1", says("disk-n1", 0), is_known=True) == "member"
    assert kind(JOINING, "n1", says("disk-n1", 0), is_known=False) == "not-a-member"


def test_a_joining_node_that_has_adopted_a_cluster_joins_no_other() -> None:
    """It belongs to the one of the first leader, before it has that one's list."""
    adopted = replace(JOINING, cluster_id=OURS)
    assert kind(adopted, "n1", says("disk-n1", 4, OURS)) == "member"
    assert kind(adopted, "n1", says("disk-n1", 4, OURS), is_known=False) == "member"
    assert kind(adopted, "n1", says("disk-n1", 4, OTHERS)) == "other-cluster"


ALONE = Members(
    {"n1": MemberRecord("h:n1", is_voter=True, disk_id="disk-new")},
    version=1,
    cluster_id=OTHERS,
)
NEW_N1 = replace(N1, disk_id="disk-new", cluster_id=OTHERS, committed=ALONE, latest=ALONE)
"""n1, which lost its disk and began again as a cluster of its own: its `peers` named nobody else."""


def test_a_cluster_of_one_in_the_place_of_a_member_is_told_so() -> None:
    """Another cluster counts on a node with this id, at this address, with another disk."""
    theirs = says("disk-n2", your_disk_id="disk-n1")
    assert is_displacing(NEW_N1, theirs, began_alone=True)
    assert not is_displacing(NEW_N1, theirs, began_alone=False), "an old cluster, at a wrong address"


@pytest.mark.parametrize(
    ("view", "theirs"),
    [
        (NEW_N1, says("disk-n2", your_disk_id="")),
        (NEW_N1, says("disk-n2", your_disk_id="disk-new")),
        (NEW_N1, says("disk-n2", cluster_id=OTHERS, your_disk_id="disk-n1")),
        (NEW_N1, says("disk-n2", cluster_id="", your_disk_id="disk-n1")),
        (N1, says("disk-n2", cluster_id=OTHERS, your_disk_id="another")),
    ],
    ids=["joins-there", "its-own-disk", "same-cluster", "no-cluster", "not-alone"],
)
def test_nobody_else_is(view: View, theirs: Particulars) -> None:
    """A wrong address in `cluster add` names no disk, and one word does not stop a node among others."""
    assert not is_displacing(view, theirs, began_alone=True)


def test_a_node_about_to_be_a_cluster_of_one_is_told_so_too() -> None:
    """Before it has served anybody; one that waits for other founders is refused by its disk."""
    view = replace(NEW_N1, cluster_id="", committed=Members(), latest=Members())
    theirs = says("disk-n2", your_disk_id="disk-n1")
    assert is_displacing(view, theirs, began_alone=True)
    assert not is_displacing(view, theirs, began_alone=False)
    assert not is_displacing(view, says("disk-n2"), began_alone=True)


@pytest.mark.parametrize(
    ("term", "last_index", "expected"),
    [(7, 40, "member"), (9, 90, "member"), (6, 90, "older-copy"), (7, 39, "older-copy")],
)
def test_a_disk_that_had_come_further_is_an_older_copy(term: int, last_index: int, expected: str) -> None:
    """Terms and what is committed never become less on a disk; what was heard of another disk is nothing."""
    view = replace(N1, heard={"disk-n3": (7, 40), "disk-n2": (99, 999)})
    theirs = replace(says("disk-n3"), term=term, last_index=last_index)
    assert kind(view, "n3", theirs) == expected


@pytest.mark.parametrize(
    ("term", "last_index", "expected"),
    [(7, 40, "member"), (7, 39, "older-copy"), (6, 90, "older-copy"), (8, 1, "member")],
)
def test_a_leader_knows_what_was_acknowledged_to_it(term: int, last_index: int, expected: str) -> None:
    """Also where it is not committed; a newer leader may have replaced that."""
    view = replace(N1, acknowledged=LogPosition(7, 40))
    theirs = replace(says("disk-n3"), term=term, last_index=last_index)
    assert kind(view, "n3", theirs) == expected
    assert kind(replace(view, acknowledged=LogPosition(7, 0)), "n3", theirs) == "member"


def test_an_older_copy_is_told_what_else_is_wrong_with_it() -> None:
    """A removal is final, and comes first."""
    view = replace(N1, heard={"disk-n9": (7, 40)}, committed=replace(THREE, removed={"disk-n9": "n9"}))
    assert kind(view, "n9", says("disk-n9")) == "removed"
