"""A leader that loses its majority (H11): it leads no more after election_ms_max, and answers nothing."""

import logging
from pathlib import Path

import pytest

from tests.hazards.bare_library import bare_cluster
from tests.hazards.replica_nodes import our_cluster
from tests.hazards.virtual_cluster import STEP_MS, Cluster
from tests.hazards.whole_nodes import Clients, whole_cluster

ELECTION_MS_MAX = 1000
ALONE_MS = 20_000
"""A leader of the bare library believes in itself for 30 s, by default."""

CUT_OFF = {("a", "b"), ("a", "c"), ("b", "a"), ("c", "a")}
DEAF = {("b", "a"), ("c", "a")}
"""The leader a is heard, and hears nobody."""
MUTE = {("a", "b"), ("a", "c")}
"""The leader a hears all, and nobody hears it."""
CUTS = pytest.mark.parametrize("cut", [CUT_OFF, DEAF, MUTE], ids=["cut off", "hears nobody", "is not heard"])


def lose_majority(cluster: Cluster, cut: set[tuple[str, str]]) -> None:
    """Make a lead, then cut its ways without anybody noticing."""
    cluster.elect("a")
    cluster.network.held |= cut


def test_the_bare_library_leads_on_alone_for_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """H11: a leader of the bare library that is cut off keeps its role while another one leads."""
    cluster = bare_cluster(monkeypatch)
    lose_majority(cluster, CUT_OFF)
    cluster.run_ms(ALONE_MS)
    assert cluster["a"].is_leader
    assert cluster.leader_of("bc") in ("b", "c")


def test_a_deaf_leader_of_the_bare_library_stops_the_cluster_for_half_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """H11: nobody else is elected while its heartbeats come, and it commits nothing."""
    cluster = bare_cluster(monkeypatch)
    lose_majority(cluster, DEAF)
    cluster["a"].propose("a lock")
    cluster.run_ms(ALONE_MS)
    assert cluster.leader_of("abc") == "a"
    assert cluster["a"].outcomes == []


@CUTS
def test_a_leader_without_a_majority_steps_down(
    cut: set[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H11: whichever way is cut, it leads no more after election_ms_max, and soon another one does."""
    cluster, _ = our_cluster(tmp_path, monkeypatch)
    lose_majority(cluster, cut)
    cluster.run_ms(ELECTION_MS_MAX + 2 * STEP_MS)
    assert not cluster["a"].is_leader
    cluster.run_until(lambda: cluster.leader_of("bc") in ("b", "c"), 3 * ELECTION_MS_MAX)


@CUTS
def test_the_next_leader_stays_while_the_old_one_is_half_cut_off(
    cut: set[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H11: what the old leader goes on saying, or hearing, deposes nobody; nor does its return."""
    cluster, _ = our_cluster(tmp_path, monkeypatch)
    lose_majority(cluster, cut)
    cluster.run_until(lambda: cluster.leader_of("bc") in ("b", "c"), 4 * ELECTION_MS_MAX)
    leader_id = cluster.leader_of("bc")
    term = cluster["b"].term
    cluster.run_ms(10_000)
    assert (cluster.leader_of("bc"), cluster["b"].term) == (leader_id, term)
    cluster.network.held.clear()
    cluster.run_ms(3000)
    assert (cluster.leader_of("abc"), cluster["a"].term) == (leader_id, term)


@CUTS
def test_a_node_without_a_majority_serves_nothing(
    cut: set[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole node answers no write and no read from the moment of the cut on, and soon knows no leader."""
    cluster, clients = whole_cluster(tmp_path, monkeypatch), Clients()
    cluster.elect("a")
    cluster.network.held |= cut
    core = cluster["a"].parts
    answers, reads = [], []
    for _ in range(ELECTION_MS_MAX // STEP_MS + 2):
        answers.append(clients.ask(cluster["a"]))
        reads.append(core.outbox.read(lambda machine: machine.revision, 3600))
        cluster.run_ms(STEP_MS)
    assert core.peering.role() != "leader"
    assert core.leadership.leader_id() != "a"
    assert not [future for future in (*answers, *reads) if future.done()]
    cluster.network.held.clear()
    cluster.run_ms(5000)
    assert all(future.done() for future in (*answers, *reads))


def test_every_change_of_leadership_is_logged_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Operators see it: a line with leader and term on each node, and a counter that rises."""
    caplog.set_level(logging.INFO)
    cluster = whole_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    before = {node_id: cluster[node_id].parts.metrics.leader_changes for node_id in "abc"}
    caplog.clear()
    cluster.network.held |= CUT_OFF
    cluster.run_ms(4000)
    leader_id = cluster.leader_of("bc")
    term = cluster[leader_id or ""].term
    after = {node_id: cluster[node_id].parts.metrics.leader_changes for node_id in "abc"}
    assert after == {"a": before["a"], "b": before["b"] + 1, "c": before["c"] + 1}
    assert f"event=leadership leader={leader_id} term={term} is_leader=True" in caplog.text
    assert f"event=leadership leader={leader_id} term={term} is_leader=False" in caplog.text
    won, lost = elections(caplog, "won"), elections(caplog, "lost")
    assert [line.partition(" led_ms=")[0] for line in lost] == [
        "event=election result=lost leader=a term=1 reason='stood down' by=a"
    ]
    assert len(won) == 1
    assert f"leader={leader_id} term={term} reason='silent " in won[0]
    assert " by=a votes=b,c took_ms=" in won[0]


def elections(caplog: pytest.LogCaptureFixture, result: str) -> list[str]:
    """Return the lines about elections with this result."""
    return [text for text in caplog.messages if text.startswith(f"event=election result={result} ")]


def test_a_handover_for_a_slow_disk_is_told_on_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The leader says whom it has asked, and the winner who has asked it; why stands in the line before."""
    caplog.set_level(logging.INFO)
    cluster = whole_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    cluster.run_ms(1500)
    caplog.clear()
    for node_id in "bc":
        cluster[node_id].parts.links.ping()
    cluster.run_ms(STEP_MS)
    disk = cluster["a"].parts.disk
    monkeypatch.setattr(disk, "sync_ms", lambda _now_s: 400)
    monkeypatch.setattr(disk, "reason_to_hand_over", lambda *_: "syncs take 400 ms here")
    cluster.run_ms(1000)
    leader_id = cluster.leader_of("bc")
    (won,), (lost,) = elections(caplog, "won"), elections(caplog, "lost")
    assert "event=unfit-leader-hands-over" in caplog.text
    assert f"leader={leader_id} term=2 reason='handed over' by=a votes=" in won
    assert f"leader=a term=2 reason='handed over' by={leader_id} led_ms=" in lost


def test_a_leader_that_stepped_down_knows_since_when(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a node has that led and never followed is as old as the end of its leadership."""
    cluster, _ = our_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    cluster.isolate("a")
    cluster.run_until(lambda: not cluster["a"].is_leader)
    cluster.run_ms(500)
    assert 0.4 < cluster["a"].replica.prevote.lag_s < 2
