"""Lost disks, power lost at a write, and changes of the members: they happen, and the cluster bears them."""

import msgspec
import pytest

from tests.simulation.plan import CROWDS, Plan, make_plan
from tests.simulation.run import run

MEMBER_FAULTS = ("grow", "shrink", "replace")


def plan(seed: int, **rates: float) -> Plan:
    """Return a plan with these faults only, which last for seconds."""
    made = make_plan(seed, 3, hostile=False, faults=())
    return msgspec.structs.replace(made, rates=rates, fault_s=(1.0, 4.0), quiet_every_s=40.0)


def test_nodes_come_and_go() -> None:
    """Nodes join, leave and replace each other while others fail, and no promise is broken."""
    report = run(plan(1, **dict.fromkeys(MEMBER_FAULTS, 6.0), kill=2.0, isolate=2.0), 60)
    assert not report.violation, report.violation
    assert report.counts["member-changes"] >= 10
    assert report.faults["removed-node-ended"] > 0
    assert all(report.faults[kind] > 0 for kind in MEMBER_FAULTS)


@pytest.mark.parametrize("seed", [1, 2])
def test_lost_disk_is_refused(seed: int) -> None:
    """A node that comes back with an empty disk is refused; with its old disk it is welcome again."""
    # A refused node stops when it has heard no leader for three election timeouts.
    made = msgspec.structs.replace(plan(seed, **{"lost-disk": 10.0, "kill": 2.0}), fault_s=(8.0, 16.0))
    report = run(made, 60)
    assert not report.violation, report.violation
    assert report.faults["lost-disk"] > 0
    assert report.faults["lost-disk-refused"] > 0


def test_writers_of_snapshots_meet_snapshots_that_arrive() -> None:
    """Slow children, late nodes, stalls and files without room do no harm, also when snapshots cross."""
    made = msgspec.structs.replace(
        plan(2, **{"slow-child": 10.0, "isolate": 6.0, "stall": 6.0, "file-full": 3.0, "clock-rate": 6.0}),
        compact_entries=10,
        crowd=CROWDS[-3],
    )
    report = run(made, 60)
    assert not report.violation, report.violation
    assert all(report.faults[kind] > 0 for kind in made.rates)
    assert report.counts["snapshots-installed"] > 0
    assert report.counts["forks"] > 20
    assert report.commands["read"] > 100


def test_links_are_tampered_with() -> None:
    """What somebody without keys does to the bytes between two nodes ends connections, and no promise."""
    report = run(plan(1, tampered=20.0), 60)
    assert not report.violation, report.violation
    assert report.faults["tampered"] > 5
    assert sum(report.commands.values()) > 50


def test_power_is_lost_at_writes() -> None:
    """Machines that lose their power in the middle of what they write come back with all they promised."""
    report = run(plan(1, **{"power-at-write": 20.0}), 60)
    assert not report.violation, report.violation
    assert report.faults["power-at-write"] > 5
    assert report.counts["starts"] > 5


def test_disks_misread() -> None:
    """Wrong bytes and errors of reads end nodes, which come back with all they promised."""
    made = plan(3, **{"wrong-read": 20.0, "read-error": 8.0})
    report = run(msgspec.structs.replace(made, compact_entries=30), 60)
    assert not report.violation, report.violation
    assert report.faults["misread-refused"] > 0
    assert report.faults["ended-by-itself"] > report.faults["misread-refused"]
    assert sum(report.commands.values()) > 50


def test_disks_rot() -> None:
    """Bits that change on the platter are found by the next start that sees them; nothing is lost."""
    report = run(plan(1, rot=12.0, power=6.0), 60)
    assert not report.violation, report.violation
    assert report.faults["misread-refused"] > 2
    assert sum(report.commands.values()) > 50


def test_faults_are_aimed_at_moments() -> None:
    """Kills, losses of power and errors in the middle of starts, snapshots and cuts cost no promise."""
    made = msgspec.structs.replace(plan(2, aimed=30.0, isolate=4.0, transfer=4.0), compact_entries=10)
    report = run(made, 60)
    assert not report.violation, report.violation
    assert report.faults["aimed"] > 10
    assert report.faults["ended-by-itself"] > 0
    assert report.counts["starts"] > 10


def test_terms_come_late_to_a_disk() -> None:
    """A node that is slow to store its term or vote, and loses its power meanwhile, votes once in a term."""
    report = run(plan(1, **{"late-terms": 10.0, "isolate": 6.0, "transfer": 6.0}), 60)
    assert not report.violation, report.violation
    assert report.faults["late-terms"] > 3
    assert report.counts["leader-changes"] > 3


def test_followers_fall_behind() -> None:
    """Followers that need a snapshot, and are slow when it comes, get there under load."""
    installed = 0
    for seed in (3, 4):
        made = msgspec.structs.replace(
            plan(seed, **{"fall-behind": 8.0}), fault_s=(8.0, 20.0), compact_entries=10, crowd=CROWDS[-3]
        )
        report = run(made, 90)
        assert not report.violation, report.violation
        assert report.faults["fall-behind"] > 3
        installed += report.counts.get("snapshots-installed", 0)
    assert installed > 0
