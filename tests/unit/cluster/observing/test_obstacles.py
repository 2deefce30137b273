"""What keeps a node from serving is told with its cause, its age and what to do."""

import pytest

from cluster.consensus import member_list
from cluster.observing import obstacles
from cluster.observing.obstacles import Obstacle
from cluster.observing.troubles import Trouble
from cluster.peers import objections
from cluster.peers.absences import Absence, Absences
from cluster.peers.objections_met import Met

NOW_S = 100.0
THREE = frozenset({"n1", "n2", "n3"})


def said(found: Obstacle) -> tuple[str, str | None, int]:
    """Return what programs go by."""
    assert found.detail
    assert found.advice
    return found.kind, found.peer, found.for_ms


def test_the_founding_names_whom_it_waits_for() -> None:
    """And why those who are there do not agree."""
    waiting, refused = obstacles.of_founding(["n2", "n3"], ["`peers` of n2 names nobody"], 7.5)
    assert said(waiting) == ("founding", None, 7_500)
    assert "waits for n2, n3" in waiting.detail
    assert said(refused) == ("founding-refused", None, 7_500)
    assert refused.detail == "`peers` of n2 names nobody"


def test_a_node_that_does_not_count_yet_says_what_is_missing() -> None:
    """To be added, or to catch up."""
    stranger = obstacles.of_joining("n4", 3.0, is_member=False)
    assert said(stranger) == ("joining", None, 3_000)
    assert "holdfast cluster add n4" in stranger.advice
    assert "caught up" in obstacles.of_joining("n4", 3.0, is_member=True).detail


def test_a_restored_cluster_says_how_many_nodes_it_needs() -> None:
    """And which of them are to be started, or taken out."""
    members = member_list.restored("n1", "disk", {"n1": "h:1", "n2": "h:2", "n3": "h:3"}, "c")
    found = obstacles.of_forming(members, 2.0)
    assert said(found) == ("forming", None, 2_000)
    assert "restored on n1 and serves nobody before 2 of 3 nodes vote" in found.detail
    assert found.advice.startswith("start n2 or n3 with --join and an empty data directory; take out ")


@pytest.mark.parametrize(
    ("voters", "since_s", "for_ms"),
    [
        (THREE, {"n2": 90.0, "n3": 97.0}, 3_000),
        ({*THREE, "n4"}, {"n2": 90.0, "n3": 97.0}, 3_000),
        ({*THREE, "n4", "n5"}, {"n2": 90.0, "n3": 92.0, "n4": 95.0, "n5": 99.0}, 5_000),
        ({"n1", "n2"}, {"n2": 90.0}, 10_000),
    ],
)
def test_a_lost_quorum_is_as_old_as_the_absence_that_broke_it(
    voters: set[str], since_s: dict[str, float], for_ms: int
) -> None:
    """The absence that was one too many, and not the first or the last one."""
    absences = {peer_id: Absence(since, "") for peer_id, since in since_s.items()}
    (found,) = obstacles.of_no_leader("n1", voters, absences, NOW_S, 50.0)
    assert said(found) == ("no-quorum", None, for_ms)
    assert all(peer_id in found.advice for peer_id in since_s)


def test_without_a_leader_a_majority_is_told_as_such() -> None:
    """Once an election should be over; a learner that is away does not count."""
    absences = {"n3": Absence(0.0, ""), "n9": Absence(0.0, "")}
    assert not list(obstacles.of_no_leader("n1", THREE, absences, NOW_S, 0.9))
    (found,) = obstacles.of_no_leader("n1", THREE, absences, NOW_S, 2.5)
    assert said(found) == ("no-leader", None, 2_500)


def test_an_objection_says_who_refuses_whom() -> None:
    """With its kind and the reason that the other side gave."""
    theirs = Met(objections.removed("n1"), is_ours=False, since_s=98.0, last_s=99.0)
    ours = Met(objections.duplicate("n3"), is_ours=True, since_s=99.0, last_s=99.5)
    first, second = obstacles.of_objections("n1", {"n3": ours, "n2": theirs}, NOW_S)
    assert said(first) == ("refused-by-peer", "n2", 2_000)
    assert first.detail.startswith("n2 does not let n1 in, for removed: node n1 was removed")
    assert said(second) == ("refuses-peer", "n3", 1_000)
    assert second.detail.startswith("n1 does not let n3 in, for duplicate: another process")


def test_an_absent_peer_is_told_with_the_last_error() -> None:
    """Since when it is away stays the same while the errors change; one that comes is forgotten."""
    clock = [90.0]
    absences = Absences(lambda: clock[0])
    absences.failed("n2", "nobody waits for it")
    absences.expect(["n2", "n3"])
    clock[0] = 95.0
    absences.failed("n2", "refused")
    absences.came("n3")
    absences.left("n4")
    absences.expect(["n2", "n4"])
    absences.failed("n2", "timed out")
    away, left = obstacles.of_absences(absences.all(), NOW_S, has_leader=True)
    assert "holdfast cluster replace" in away.advice
    for each in obstacles.of_absences(absences.all(), NOW_S, has_leader=False):
        assert "holdfast cluster" not in each.advice  # without a leader that is not possible
    assert said(away) == ("unreachable", "n2", 10_000)
    assert away.detail == "n2 is not connected: timed out"
    assert said(left) == ("unreachable", "n4", 5_000)
    assert left.detail == "n4 is not connected: its connection ended, and there is no new one yet"
    absences.expect(["n2", "n5"])
    *_, new = obstacles.of_absences(absences.all(), NOW_S, has_leader=True)
    assert new.detail == "n5 is not connected: there was no connection yet"


@pytest.mark.parametrize(
    "kind",
    [
        "snapshots-failing",
        "log-full",
        "disk-hangs",
        "disk-nearly-full",
        "disk-slow",
        "clock-off",
        "state-differs",
        "in-doubt",
    ],
)
def test_each_trouble_has_an_advice(kind: str) -> None:
    """No trouble is told without what to do."""
    assert said(obstacles.of_trouble(Trouble(kind, 1.5, "it is so"))) == (kind, None, 1_500)
