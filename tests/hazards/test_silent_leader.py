"""A connection that stalls and goes on: the leader stays, the connection stays, and clients wait behind it."""

from pathlib import Path

import pytest

from tests.hazards.whole_nodes import Clients, elect, run_callbacks, run_well, settle, whole_cluster

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # the library does not close its files

STALL_MS = 2000
"""The length of the stall: beyond the patience of a follower, below the silence that ends a connection."""


async def test_a_command_given_to_a_follower_in_a_stall_is_sent_when_its_leader_speaks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked while the leader is silent leaves with the leader's next word, without another event."""
    cluster = whole_cluster(tmp_path, monkeypatch)
    await elect(cluster, "a")
    clients = Clients()
    # Between a and c nothing arrives for a while; b keeps a leading, and refuses c its pre-vote.
    stalled = {("a", "c")}
    cluster.network.held |= stalled
    await run_well(cluster, STALL_MS)
    assert cluster["a"].is_leader
    assert cluster["c"].leader_id == "a"
    answer = clients.ask(cluster["c"])
    await run_callbacks()
    assert not answer.done()
    term = cluster["a"].term
    cluster.network.held -= stalled
    await settle(cluster)
    await run_well(cluster, 500)
    assert (cluster["a"].is_leader, cluster["a"].term) == (True, term), "nothing else brings the command on"
    assert answer.done(), "the leader speaks, and the command still waits at the follower"
