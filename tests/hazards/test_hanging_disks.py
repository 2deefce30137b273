"""A disk that hangs: nobody waits for it but what it was to promise, and nothing counts that is not on it."""

from pathlib import Path

import pytest

from cluster.peers import disk_watch
from tests.hazards.replica_nodes import our_cluster
from tests.hazards.virtual_cluster import Checker, Cluster
from tests.hazards.whole_nodes import whole_cluster


def led_by_a(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Cluster, Checker]:
    """Return three nodes that a leads, and that agree."""
    cluster, checker = our_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    cluster["a"].propose(b"before")
    cluster.run_until(lambda: all(cluster[node_id].values == [b"before"] for node_id in "abc"))
    return cluster, checker


def test_a_leader_whose_disk_hangs_goes_on_by_the_disks_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three disks are a majority; its heartbeats keep the others from an election."""
    cluster, checker = led_by_a(tmp_path, monkeypatch)
    term = cluster["a"].term
    cluster["a"].is_disk_hanging = True
    for number in range(20):
        cluster["a"].propose(b"%d" % number)
        cluster.run_ms(500)
    assert len(checker.committed) == 21
    assert (cluster["a"].is_leader, cluster["a"].term) == (True, term)
    assert cluster["a"].journal.synced_index < cluster["a"].journal.last_index - 10
    cluster["a"].is_disk_hanging = False
    cluster.run_ms(1_000)
    assert cluster["a"].journal.synced_index == cluster["a"].journal.last_index


def test_a_leader_does_not_count_its_own_copy_while_its_disk_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one follower left, whose disk has the entry, one disk of three has it: it waits for the second."""
    cluster, checker = led_by_a(tmp_path, monkeypatch)
    cluster.isolate("c")
    cluster["a"].is_disk_hanging = True
    cluster["a"].propose(b"one")
    cluster.run_ms(2_000)
    assert cluster["b"].journal.synced_index == cluster["a"].journal.last_index
    assert cluster["a"].is_leader
    assert len(checker.committed) == 1, "nothing is told that two disks do not have"
    cluster["a"].is_disk_hanging = False
    cluster.run_until(lambda: len(checker.committed) == 2)


def test_what_a_leader_with_a_hanging_disk_has_not_stored_may_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It crashes with entries that only it knew of: they were not told, and another leader goes on."""
    cluster, checker = led_by_a(tmp_path, monkeypatch)
    cluster["a"].is_disk_hanging = True
    cluster["a"].propose(b"stored by two")
    cluster.run_until(lambda: len(checker.committed) == 2)
    cluster.isolate("a")
    cluster["a"].propose(b"known to one")
    cluster.run_ms(300)
    cluster.crash("a")
    cluster.run_until(lambda: cluster.leader_of("bc") in ("b", "c"))
    cluster.heal()
    cluster[cluster.leader_of("bc") or ""].propose(b"after")
    cluster.run_until(lambda: cluster["a"].values == [b"before", b"stored by two", b"after"])


def test_a_follower_whose_disk_hangs_promises_nothing_and_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It applies what others have stored, votes for nobody, and acknowledges all when the disk is back."""
    cluster, checker = led_by_a(tmp_path, monkeypatch)
    cluster["b"].is_disk_hanging = True
    for number in range(10):
        cluster["a"].propose(b"%d" % number)
        cluster.run_ms(200)
    assert len(checker.committed) == 11
    assert len(cluster["b"].values) == 11, "it hears what is committed"
    assert cluster["a"].replica.engine.match_index("b") < cluster["a"].journal.last_index - 8
    cluster.crash("a")
    cluster.run_ms(5_000)
    assert cluster["c"].term == cluster["b"].term or not cluster["c"].is_leader, "one vote is not enough"
    assert not cluster["c"].is_leader
    cluster["b"].is_disk_hanging = False
    cluster.run_until(lambda: cluster.leader_of("bc") in ("b", "c"))
    cluster.heal()
    cluster.run_until(lambda: all(len(cluster[node_id].values) == 11 for node_id in "abc"))


def test_a_crash_takes_what_was_in_a_hanging_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that was killed with its disk hanging comes back behind, and gets everything again."""
    cluster, checker = led_by_a(tmp_path, monkeypatch)
    cluster["b"].is_disk_hanging = True
    for number in range(10):
        cluster["a"].propose(b"%d" % number)
        cluster.run_ms(100)
    cluster.crash("b")
    cluster.heal()
    assert cluster["b"].journal.last_index < cluster["a"].journal.last_index - 5
    cluster.run_until(lambda: len(cluster["b"].values) == 11)
    assert dict(cluster["b"].entries) == checker.committed


def test_a_log_that_is_cut_while_its_sync_hangs_does_not_count_as_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old leader's tail is on its way to the disk when the new leader's entries come in its place."""
    cluster, checker = led_by_a(tmp_path, monkeypatch)
    cluster.isolate("a")
    cluster["a"].is_disk_hanging = True
    cluster["a"].propose(*[b"tail %d" % number for number in range(5)])
    cluster["a"].timer()
    cluster.run_until(lambda: cluster.leader_of("bc") in ("b", "c"))
    cluster[cluster.leader_of("bc") or ""].propose(b"new")
    cluster.run_until(lambda: len(checker.committed) == 2)
    cluster.heal()
    cluster.run_ms(1_000)
    assert cluster["a"].values == [b"before", b"new"]
    synced = cluster["a"].journal.synced_index
    cluster["a"].is_disk_hanging = False
    cluster.run_ms(1_000)
    assert synced <= 4, "what hangs does not count"
    assert cluster["a"].journal.synced_index == cluster["a"].journal.last_index
    cluster.crash("a")
    cluster.heal()
    cluster.run_until(lambda: cluster["a"].values == [b"before", b"new"])


def test_a_leader_with_a_slow_disk_hands_over_and_does_not_get_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others' disks are quicker; the new leader has no reason to hand over in its turn."""
    monkeypatch.setattr(disk_watch, "SLOW_S", 0.0)
    cluster = whole_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    cluster.run_ms(1_000)
    for node_id in "abc":
        parts = cluster[node_id].parts
        parts.disk._average_s = 0.2 if node_id == "a" else 0.001
        cluster[node_id].loop.call(parts.links.ping)
    cluster.run_until(lambda: cluster.leader_of("abc") in ("b", "c"), 5_000)
    leader, term = cluster.leader_of("abc") or "", cluster["b"].term
    cluster["a"].parts.disk._average_s = 0.2
    cluster.run_ms(10_000)
    assert (cluster.leader_of("abc"), cluster[leader].term) == (leader, term)
