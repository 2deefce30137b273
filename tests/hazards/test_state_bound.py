"""The bound on the memory of the state: that of the smallest node, and the same refusals on every node."""

from pathlib import Path

import pytest

from cluster import config
from lockstate import invariants
from lockstate.stored import snapshot
from lockstate.words import limits
from lockstate.words.commands.holds import Release
from lockstate.words.ids import HoldId
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted, Released
from tests.hazards.virtual_cluster import Cluster
from tests.hazards.whole_nodes import Clients, WholeNode, whole_cluster

BOUNDS = {"a": 70_000, "b": 40_000, "c": 50_000}
ASKED = 200


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster of nodes with hardly any memory, which a leads."""
    monkeypatch.setattr(limits, "STATE_BYTES_LEAST", 1)
    monkeypatch.setattr(config, "STATE_BYTES_LEAST", 1)
    cluster = whole_cluster(tmp_path, monkeypatch, compact_entries=100, state_bytes_max=BOUNDS)
    cluster.elect("a")
    return cluster


def tell_all(cluster: Cluster) -> None:
    """Let every node tell how it is, as it does once a second."""
    for node in cluster.nodes.values():
        node.loop.call(node.parts.links.ping)
    cluster.run_ms(1000)


def test_the_smallest_node_decides_and_all_refuse_the_same(cluster: Cluster) -> None:
    """Through a restart and a snapshot, too: equal revisions are equal states, and count the same."""
    tell_all(cluster)
    assert {node.machine.bytes_max for node in cluster.nodes.values()} == {BOUNDS["b"]}
    clients = Clients()
    cluster.isolate("c")
    answers = [clients.ask(cluster["ab"[number % 2]]) for number in range(ASKED)]
    cluster.run_ms(5000)
    results = [answer.result().result for answer in answers]
    granted = [result.hold_id for result in results if isinstance(result, Granted)]
    refused = [result for result in results if isinstance(result, Refused)]
    assert 30 < len(granted) < 70
    assert len(refused) == ASKED - len(granted)
    assert {refusal.reason for refusal in refused} == {Reason.OVERLOADED}
    cluster.crash("b")
    cluster.start("b")
    cluster.heal()
    cluster.run_ms(5000)
    release(cluster, granted[0])
    assert isinstance(ask(cluster, clients), Granted), "there is room again"
    assert len({snapshot.digest(node.machine.state) for node in cluster.nodes.values()}) == 1
    for node in cluster.nodes.values():
        invariants.check(node.machine.state)
        assert node.machine.bytes_max == BOUNDS["b"]


def test_a_bound_is_not_raised_while_the_smallest_is_away(cluster: Cluster) -> None:
    """What it said last counts: it comes back with as little memory as it had."""
    tell_all(cluster)
    cluster.crash("b")
    tell_all(cluster)
    cluster.run_ms(3000)
    assert cluster["a"].machine.bytes_max == BOUNDS["b"]


def ask(cluster: Cluster, clients: Clients) -> object:
    """Ask the leader for one more lock."""
    answer = clients.ask(leader(cluster))
    cluster.run_ms(2000)
    return answer.result().result


def release(cluster: Cluster, hold_id: str) -> None:
    """Give a hold back."""
    node = leader(cluster)
    pending = node.loop.call(node.parts.requests._submit, Release(HoldId(hold_id)), 60.0, "")
    cluster.run_ms(2000)
    assert isinstance(pending.future.result().result, Released)


def leader(cluster: Cluster) -> WholeNode:
    """Return who leads."""
    (node_id,) = cluster.leaders()
    node: WholeNode = cluster[node_id]
    return node
