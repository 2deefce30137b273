"""A connection that stalls and goes on: leader and connection stay, and clients wait behind it."""

from pathlib import Path

import pytest

from tests.hazards.whole_nodes import Clients, whole_cluster

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # the library does not close its files

STALL_MS = 2000
"""The length of the stall: beyond the patience of a follower, below the silence that ends a connection."""


def test_a_command_given_to_a_follower_in_a_stall_is_sent_when_its_leader_speaks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked while the leader is silent leaves soon after the leader's next word, by itself."""
    cluster = whole_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    clients = Clients()
    # From a to c nothing arrives for a while; b goes on to follow a, and refuses c its pre-vote.
    stalled = ("a", "c")
    cluster.network.held.add(stalled)
    cluster.run_ms(STALL_MS)
    assert cluster["a"].is_leader
    assert cluster["c"].leader_id == "a"
    term = cluster["a"].term
    answer = clients.ask(cluster["c"])
    cluster.settle()
    assert not answer.done()
    cluster.network.held.discard(stalled)
    cluster.settle()
    cluster.run_ms(500)
    assert (cluster["a"].is_leader, cluster["a"].term) == (True, term), "nothing else brings the command on"
    assert answer.done(), "the leader speaks, and the command still waits at the follower"
