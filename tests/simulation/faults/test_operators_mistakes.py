"""Mistakes of operators about who belongs to the cluster: they happen in these worlds, and do no harm."""

from collections import Counter

import msgspec
import pytest

from tests.simulation.plan import Plan, make_plan
from tests.simulation.run import run


def plan(seed: int, nodes_count: int = 3, **rates: float) -> Plan:
    """Return a plan with these faults only, which last for seconds."""
    made = make_plan(seed, nodes_count, hostile=False, faults=())
    made = msgspec.structs.replace(made, upgraded_s=0.0, compact_entries=1_000)
    return msgspec.structs.replace(made, rates=rates, fault_s=(2.0, 8.0), quiet_every_s=40.0)


@pytest.mark.parametrize("nodes_count", [1, 3])
def test_wrong_peers_are_refused_or_harmless(nodes_count: int) -> None:
    """A node whose peers contradict its log does not start; others start and serve, also with wrong peers."""
    report = run(plan(2, nodes_count, **{"wrong-peers": 12.0, "kill": 2.0}), 60)
    assert not report.violation, report.violation
    assert report.faults["wrong-peers"] > 3
    assert report.faults["wrong-peers-refused"] > 0
    assert report.faults["quiet-times"] > 0


def test_copies_are_not_let_in() -> None:
    """Copies of a node beside it, elsewhere or under another id neither hear nor harm anybody."""
    report = run(plan(2, copies=20.0), 60)
    assert not report.violation, report.violation
    assert report.faults["copies"] > 3
    assert report.faults["quiet-times"] > 0


@pytest.mark.parametrize("fault", ["all-copied", "older-copy"])
def test_copies_do_not_take_part(fault: str) -> None:
    """Copies of all nodes do not form a second cluster, and a node with an older disk is not let in."""
    made = msgspec.structs.replace(plan(3, 3, **{fault: 10.0}), fault_s=(14.0, 18.0))
    report = run(made, 120)
    assert not report.violation, report.violation
    assert report.faults[fault] > 1
    assert report.faults["quiet-times"] > 0


def test_nodes_of_another_cluster_are_not_let_in() -> None:
    """A node of another cluster at a member's address, or added by mistake, never counts, and goes on."""
    made = msgspec.structs.replace(plan(1, 3, **{"other-cluster": 30.0}), fault_s=(10.0, 14.0))
    report = run(made, 90)
    assert not report.violation, report.violation
    assert report.faults["other-cluster"] > 1
    assert report.counts["member-changes"] > 1, "one is added, and removed again"


@pytest.mark.parametrize("nodes_count", [1, 3])
def test_a_node_that_lost_disk_and_peers_gives_way(nodes_count: int) -> None:
    """A member on an empty disk without peers gives way to its cluster; alone it is another cluster."""
    made = msgspec.structs.replace(plan(1, nodes_count, **{"lost-alone": 30.0}), fault_s=(14.0, 18.0))
    report = run(made, 90)
    assert not report.violation, report.violation
    assert report.faults["lost-alone"] > 1


@pytest.mark.parametrize("nodes_count", [3, 5])
def test_a_disk_is_lost_in_the_first_start(nodes_count: int) -> None:
    """Nodes that are killed while they found their cluster, and lose a disk, serve in the end."""
    settled = Counter[str]()
    for seed in (*range(1, 9), 16):
        made = msgspec.structs.replace(plan(seed, nodes_count, **{"early-lost-disk": 1.0}), clients_count=1)
        report = run(msgspec.structs.replace(made, crowd=None, start_s=1.0), 12)
        assert not report.violation, report.violation
        assert report.counts["leader-changes"] > 0
        settled.update({kind: 1 for kind in report.counts if kind.startswith("first-start-")})
    assert settled["first-start-restored"] > 0
    assert len(settled) > 1, "some disks are lost before anybody has named them, or all begin anew"


def test_a_first_start_alone_loses_no_disk() -> None:
    """Where one node founds a cluster, a node on an empty disk is another cluster: nothing is lost there."""
    report = run(plan(1, 1, **{"early-lost-disk": 1.0}), 5)
    assert not report.violation, report.violation
    assert "early-lost-disk" not in report.faults
