"""Why the leader changed stands in the log: one line on the node that won, one on the node that lost."""

import asyncio
import re

import pytest

from scripts.local_cluster import LocalCluster
from tests.process.nodes import Http, LogSince, bring_all_back, http_to, node_ids, until

pytestmark = pytest.mark.process


def lines(logs: dict[str, LogSince], node_id: str) -> list[str]:
    """Return what a node has said about elections."""
    return logs[node_id].lines("event=election ")


async def new_leader(cluster: LocalCluster, old: str) -> str:
    """Return who leads when that is no longer the same node."""
    others = [node_id for node_id in node_ids(cluster) if node_id != old]

    def led_by() -> str:
        return next((node for node in others if (cluster.view(node) or {}).get("leader") in others), "")

    await until(led_by, f"{old} has a successor")
    return str((cluster.view(led_by()) or {})["leader"])


async def test_the_first_leader_says_that_it_was_a_start(cluster: LocalCluster) -> None:
    """Nobody had led before."""
    await asyncio.to_thread(cluster.leader)
    said = [line for node in node_ids(cluster) for line in cluster.log(node).read_text().splitlines()]
    first = min(line for line in said if "event=election " in line)  # lines begin with the time
    assert re.search(r" result=won leader=(n\d) term=\d+ reason='start' by=- votes=\S*\1", first)


async def test_a_killed_leader(cluster: LocalCluster) -> None:
    """Its connections end, and the winner says so."""
    old = await asyncio.to_thread(cluster.leader)
    logs = {node_id: LogSince(cluster, node_id) for node_id in node_ids(cluster)}
    await asyncio.to_thread(cluster.kill, old)
    new = await new_leader(cluster, old)
    (won,) = lines(logs, new)
    assert f" result=won leader={new} " in won
    assert f" reason='connection lost' by={old} votes=" in won
    await asyncio.to_thread(bring_all_back, cluster)


async def test_a_paused_leader(cluster: LocalCluster) -> None:
    """The winner heard nothing any more; the old leader finds, when it goes on, that it had stood still."""
    old = await asyncio.to_thread(cluster.leader)
    logs = {node_id: LogSince(cluster, node_id) for node_id in node_ids(cluster)}
    await asyncio.to_thread(cluster.pause, old)
    new = await new_leader(cluster, old)
    (won,) = lines(logs, new)
    assert re.search(rf" leader={new} .* reason='silent \d+ ms' by={old} votes=\S*{new}", won)
    cluster.resume(old)
    await until(lambda: lines(logs, old), "the old leader finds out")
    await until(lambda: (cluster.view(old) or {}).get("leader") == new, "it follows")
    (lost,) = lines(logs, old)
    assert re.search(rf" result=lost leader={old} .* reason='own loop stalled \d+\.\d s' by=", lost)
    assert lines(logs, new) == [won]
    async with http_to(cluster) as http:
        short, any_length = [
            await http.metric(old, f'holdfast_loop_stall_seconds_bucket{{le="{bound}"}}')
            for bound in ("0.3", "+Inf")
        ]
        assert any_length > short


async def test_a_leader_that_is_told_to_hand_over(cluster: LocalCluster) -> None:
    """Both say that it was asked for, and the counter of changes counts one on each node."""
    async with http_to(cluster) as http:
        await hand_over(cluster, http)


async def hand_over(cluster: LocalCluster, http: Http) -> None:
    """Hand leadership over, and look at what is told of it."""
    old = await asyncio.to_thread(cluster.leader)
    before = [await http.metric(node, "holdfast_leader_changes_total") for node in node_ids(cluster)]
    logs = {node_id: LogSince(cluster, node_id) for node_id in node_ids(cluster)}
    got = await http.call(old, "POST", "/v1/cluster/transfer-leadership", {"reason": "a test"})
    new = got.body["leader"]
    await until(lambda: lines(logs, old), "the old leader knows")
    (won,), (lost,) = lines(logs, new), lines(logs, old)
    assert f" reason='handed over' by={old} votes=" in won
    assert re.search(rf" result=lost leader={old} .* reason='handed over' by={new} led_ms=\d+", lost)
    await until(
        lambda: all((cluster.view(node) or {}).get("leader") == new for node in node_ids(cluster)), "all know"
    )
    after = [await http.metric(node, "holdfast_leader_changes_total") for node in node_ids(cluster)]
    assert after == [count + 1 for count in before]
