"""Nodes that are not what the others are: the wrong one stops, whoever it is, and the others go on.

Whole nodes. What makes them differ is planted by the test, behind their backs.
"""

from pathlib import Path

import pytest

from cluster.errors import ClusterError, LogDiverged, NoLeader, StateDamaged, StateDiverged
from cluster.observing.troubles import troubles
from lockstate.tables.holds import remove_hold
from lockstate.words import codec
from lockstate.words.commands.holds import Acquire
from lockstate.words.results import Granted
from tests.hazards.virtual_cluster import Cluster
from tests.hazards.whole_nodes import Clients, whole_cluster

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # the library does not close its files

COMMAND = b"\x00"
STOPS_WITHIN_S = 10


def new_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node_ids: str = "abc") -> Cluster:
    """Return a cluster whose nodes judge each other by the virtual clock."""
    cluster = whole_cluster(tmp_path, monkeypatch, node_ids=node_ids)
    take_clock(cluster, monkeypatch)
    return cluster


def take_clock(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all nodes go by the virtual clock when they compare each other."""
    for node in cluster.nodes.values():
        monkeypatch.setattr(node.parts.divergence, "_now_s", lambda: cluster.clock.now_s)


def failure_of(cluster: Cluster, node_id: str) -> BaseException | None:
    """Return why a node has stopped, None if it has not."""
    failure = cluster[node_id].parts.loop.failure
    return failure.result() if failure.done() else None


def run_s(cluster: Cluster, seconds: int) -> None:
    """Let time pass; once a second every node that has not stopped tells the others how it is."""
    for _ in range(seconds):
        cluster.run_ms(1_000)
        for node_id, node in cluster.nodes.items():
            if failure_of(cluster, node_id) is None:
                node.loop.call(node.parts.links.ping)
            else:
                # Its process ends.
                cluster.isolate(node_id)
        cluster.settle()


def asks(cluster: Cluster, clients: Clients, *node_ids: str) -> None:
    """Let clients of these nodes get locks."""
    answers = [clients.ask(cluster[node_id]) for node_id in node_ids]
    cluster.run_ms(1_000)
    for answer in answers:
        assert isinstance(answer.result().result, Granted)


# -- states -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["c", "a"])
def test_a_node_with_another_state_stops_and_the_others_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """Be it a follower or the leader: it names revision and fingerprints, and nothing else happens."""
    cluster = new_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    clients = Clients()
    asks(cluster, clients, *"abc")
    run_s(cluster, 2)
    assert [failure_of(cluster, node_id) for node_id in "abc"] == [None] * 3
    state = cluster[wrong].machine.state
    remove_hold(state, next(iter(state.holds.values())))
    asks(cluster, clients, *"abc")
    run_s(cluster, STOPS_WITHIN_S)
    failure = failure_of(cluster, wrong)
    assert isinstance(failure, StateDiverged)
    assert f"at revision {cluster[wrong].machine.revision}: fingerprint" in str(failure)
    others = [node_id for node_id in "abc" if node_id != wrong]
    assert [failure_of(cluster, node_id) for node_id in others] == [None, None]
    assert f"on {others[0]}, {others[1]}" in str(failure)
    asks(cluster, clients, *others)


def test_a_forgotten_expiry_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose rules are not those of the others, by a bug or a bad installation, does not go on."""
    cluster = new_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    clients = Clients()
    asks(cluster, clients, "a")
    monkeypatch.setattr(cluster["b"].machine._rules.sessions, "expire_due", lambda: None)
    # 700 s later the lock is over, everywhere but there.
    late = COMMAND[1:] + codec.encode_entry(cluster["a"].machine.now_ms + 700_000, [])
    leader = cluster["a"]
    leader.loop.call(leader.parts.loop.run, lambda: leader.parts.replica.engine.append(late))
    run_s(cluster, STOPS_WITHIN_S)
    assert isinstance(failure_of(cluster, "b"), StateDiverged)
    assert [failure_of(cluster, node_id) for node_id in "ac"] == [None, None]
    asks(cluster, clients, "a", "c")


def test_of_two_nodes_that_differ_none_serves_until_the_third_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one node away nobody knows who is right, so no client gets an answer that may be wrong."""
    cluster = new_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    clients = Clients()
    asks(cluster, clients, *"abc")
    cluster.isolate("c")
    cluster["b"].machine.state.set_fence("planted", 5)
    asks(cluster, clients, "a", "b")
    run_s(cluster, STOPS_WITHIN_S)
    for node_id in "ab":
        parts = cluster[node_id].parts
        assert failure_of(cluster, node_id) is None
        assert parts.divergence.is_in_doubt
        with pytest.raises(NoLeader, match="no majority says which"):
            parts.outgoing.check_room(Acquire)
        assert any(
            "no requests are accepted" in trouble.detail
            for trouble in troubles(
                parts.replica.engine, parts.clocks, parts.divergence, parts.disk, cluster.clock.now_s
            )
        )
    cluster.heal()
    run_s(cluster, STOPS_WITHIN_S)
    assert isinstance(failure_of(cluster, "b"), StateDiverged)
    assert [failure_of(cluster, node_id) for node_id in "ac"] == [None, None]
    try:
        cluster["a"].parts.outgoing.check_room(Acquire)
    except ClusterError as error:
        pytest.fail(f"the doubt is over: {error}")
    asks(cluster, clients, "a", "c")


def test_a_damaged_state_is_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bit that flipped in a record is found before a snapshot makes it last; a restart heals the node."""
    cluster = new_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    clients = Clients()
    asks(cluster, clients, *"abc")
    hold = next(iter(cluster["c"].machine.state.holds.values()))
    assert cluster["c"].machine.fingerprint == cluster["a"].machine.fingerprint
    hold.token ^= 4
    run_s(cluster, STOPS_WITHIN_S)
    assert failure_of(cluster, "c") is None, "nobody has touched the record"
    for node_id in "abc":
        cluster[node_id].parts.replica.engine.force_compaction()
    run_s(cluster, 2)
    assert isinstance(failure_of(cluster, "c"), StateDamaged)
    assert [failure_of(cluster, node_id) for node_id in "ab"] == [None, None]
    cluster.crash("c")
    cluster.heal()
    take_clock(cluster, monkeypatch)
    run_s(cluster, 2)
    assert cluster["c"].machine.fingerprint == cluster["a"].machine.fingerprint
    asks(cluster, clients, *"abc")


# -- logs ---------------------------------------------------------------------------------------------------


def with_histories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **times_ms: int) -> Cluster:
    """Return a cluster whose nodes have an entry 3 of term 1 on their disks, each stamped with its own time.

    So do two leaders of one term, as they are possible after a lost disk, leave the disks of their followers.
    """
    cluster = new_cluster(tmp_path, monkeypatch, "".join(times_ms))
    for node_id, time_ms in times_ms.items():
        journal = cluster[node_id].journal
        journal.add(COMMAND + codec.encode_entry(time_ms, []), 3, 1)
        journal.set_vote(1, None)
        journal.sync()
        cluster.crash(node_id)
    cluster.heal()
    take_clock(cluster, monkeypatch)
    return cluster


def test_a_follower_with_another_history_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not follow in silence: it acknowledges and applies nothing, and says where the logs part."""
    cluster = with_histories(tmp_path, monkeypatch, a=1_000, b=1_000, c=1_001)
    cluster.elect("a")
    run_s(cluster, STOPS_WITHIN_S)
    failure = failure_of(cluster, "c")
    assert isinstance(failure, LogDiverged)
    assert "entry 3 of term 1: digest" in str(failure)
    assert "on a, b" in str(failure)
    assert cluster["c"].machine.revision == 0
    assert [failure_of(cluster, node_id) for node_id in "ab"] == [None, None]
    asks(cluster, Clients(), "a", "b")


def test_a_leader_with_another_history_stops_and_no_follower_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bad leader ends itself only: the two others go on with each other."""
    cluster = with_histories(tmp_path, monkeypatch, a=1_001, b=1_000, c=1_000)
    cluster.elect("a")
    run_s(cluster, STOPS_WITHIN_S)
    assert isinstance(failure_of(cluster, "a"), LogDiverged)
    assert [failure_of(cluster, node_id) for node_id in "bc"] == [None, None]
    run_s(cluster, 5)
    asks(cluster, Clients(), "b", "c")
    assert cluster["b"].machine.now_ms >= 1_000


def test_of_two_histories_without_a_majority_nothing_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody stops, for nobody knows; and nobody follows the other, so no client is told anything."""
    cluster = with_histories(tmp_path, monkeypatch, a=1_000, b=1_001)
    cluster.elect("a")
    run_s(cluster, STOPS_WITHIN_S)
    assert [failure_of(cluster, node_id) for node_id in "ab"] == [None, None]
    answer = Clients().ask(cluster["a"])
    run_s(cluster, 2)
    assert not answer.done()
    assert {cluster[node_id].machine.revision for node_id in "ab"} == {0}
