"""The checker of who belongs to the cluster objects to each broken promise, and to nothing else."""

import pytest

from tests.simulation.checks.belonging import Belonging
from tests.simulation.checks.report import Report, Violation

OURS = "c" * 32
THEIRS = "d" * 32


@pytest.fixture
def belonging() -> Belonging:
    """Return a checker that knows of our cluster."""
    made = Belonging(Report())
    made.listed("n1", OURS, ["disk 1", "disk 2"])
    return made


def test_all_nodes_are_of_one_cluster(belonging: Belonging) -> None:
    """A list of another cluster is objected to; one of no cluster, of an earlier release, is not."""
    belonging.listed("n2", "", ["disk 1"])
    with pytest.raises(Violation, match="one-cluster: n2 is of cluster ddd"):
        belonging.listed("n2", THEIRS, ["disk 1"])


def test_an_emptied_cluster_may_begin_anew(belonging: Belonging) -> None:
    """When all directories were emptied, the cluster has another id."""
    belonging.founded_anew()
    belonging.listed("n1", THEIRS, ["disk 3"])
    with pytest.raises(Violation, match="one-cluster"):
        belonging.listed("n2", OURS, ["disk 1"])


def test_a_refused_directory_stays_out(belonging: Belonging) -> None:
    """A node may not start on a directory that was refused; on another one it may."""
    belonging.refused("n3")
    belonging.started("n2")
    with pytest.raises(Violation, match="refused-returns: n3 "):
        belonging.started("n3")
    belonging.replaced("n3")
    belonging.started("n3")


def test_contradicting_peers_keep_a_node_from_starting(belonging: Belonging) -> None:
    """A node may not start with peers that contradict its log; with others it may."""
    belonging.configured("n1", ["n1", "n99"], is_contradicting=True)
    with pytest.raises(Violation, match="peers-refused: n1 starts, and its peers, n1,n99, contradict"):
        belonging.started("n1")
    belonging.configured("n1", ["n1", "n2"], is_contradicting=False)
    belonging.started("n1")


def test_disks_of_another_cluster_are_never_listed(belonging: Belonging) -> None:
    """A member list with the disk of another cluster's node is objected to."""
    belonging.strange_disk("disk 9", "x1")
    belonging.listed("n1", OURS, ["disk 1", "disk 2"])
    with pytest.raises(Violation, match="stranger-listed: n1 has the disk of x1"):
        belonging.listed("n1", OURS, ["disk 1", "disk 9"])


DISKS = {"n1": "disk 1", "n2": "disk 2"}


@pytest.fixture
def founding() -> Belonging:
    """Return a checker of a founding that both founders have stored, and n1 knows to be complete."""
    made = Belonging(Report())
    for node_id, disk_id in DISKS.items():
        made.stored(node_id, disk_id, OURS, DISKS, is_complete=False)
    made.stored("n1", "disk 1", OURS, DISKS, is_complete=True)
    return made


def test_a_founding_is_true(founding: Belonging) -> None:
    """A node may not store a founding that names another disk than it has."""
    with pytest.raises(Violation, match="founding-true: n2 stores the founding of cluster ccc"):
        founding.stored("n2", "disk 3", OURS, DISKS, is_complete=False)


@pytest.mark.parametrize(("cluster_id", "is_complete"), [(THEIRS, True), (OURS, False)])
def test_a_founding_is_kept(founding: Belonging, cluster_id: str, *, is_complete: bool) -> None:
    """A disk has one founding, and it stays complete."""
    founding.stored("n1", "disk 1", OURS, DISKS, is_complete=True)
    with pytest.raises(Violation, match="founding-kept: n1 "):
        founding.stored("n1", "disk 1", cluster_id, DISKS, is_complete=is_complete)


def test_all_founders_have_stored_a_founding() -> None:
    """It is complete when each founder has stored the same one, and not before."""
    made = Belonging(Report())
    made.stored("n1", "disk 1", OURS, DISKS, is_complete=False)
    with pytest.raises(Violation, match=r"founded-by-all: n1 takes part .*, not stored by n2"):
        made.stored("n1", "disk 1", OURS, DISKS, is_complete=True)


def test_two_foundings_are_never_complete(founding: Belonging) -> None:
    """Other disks of the same nodes do not found another cluster."""
    others = {"n1": "disk 3", "n2": "disk 4"}
    for node_id, disk_id in others.items():
        founding.stored(node_id, disk_id, THEIRS, others, is_complete=False)
    with pytest.raises(Violation, match="one-cluster: n2 completes"):
        founding.stored("n2", "disk 4", THEIRS, others, is_complete=True)


def test_founders_take_part_after_the_founding_and_with_their_disks(founding: Belonging) -> None:
    """Who joined later may have any disk; nobody speaks before the founding is complete."""
    founding.speaks("n2", "disk 2")
    founding.speaks("n9", "disk 9")
    with pytest.raises(Violation, match="founder-stays-out: n2 "):
        founding.speaks("n2", "disk 3")
    with pytest.raises(Violation, match="founded-first: n1 "):
        Belonging(Report()).speaks("n1", "disk 1")
