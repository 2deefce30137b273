"""Three real nodes of which one is preferred: it leads whenever it can, and clients notice nothing of it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from scripts.local_cluster import LocalCluster
from tests.process.nodes import LogSince, followers, http_to, until, urls
from tests.process.releases import MixedCluster, patched_release

pytestmark = pytest.mark.process

HURRIED = ("cluster/peers/preferred_leader.py", "\nSTEADY_S = 1.0\n")
"""A preferred node need not be well for half a minute before it leads."""


@pytest.fixture
def hurried(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three nodes that hand leadership over as they are made to, but sooner."""
    with MixedCluster.of(tmp_path / "cluster", patched_release(tmp_path / "release", [HURRIED])) as cluster:
        yield cluster


async def count_up(client: holdfast.Client, worker: int, stop: asyncio.Event) -> int:
    """Take a lock and give it back until `stop`; return how often. Raises what clients are told."""
    count = 0
    while not stop.is_set():
        async with client.lock(f"preferred/{worker}", ttl=30, wait=30):
            count += 1
    return count


async def test_the_preferred_node_leads_whenever_it_can(hurried: LocalCluster) -> None:
    """It is handed leadership, loses it when it dies, and has it again after it has come back."""

    def leads(node_id: str, asked: str) -> bool:
        return (hurried.view(asked) or {}).get("leader") == node_id

    chosen, other = followers(hurried)
    logs = {node_id: LogSince(hurried, node_id) for node_id in (chosen, other)}
    stop = asyncio.Event()
    async with (
        http_to(hurried) as http,
        holdfast.Client(urls(hurried), owner="A", timeout=30) as client,
        asyncio.TaskGroup() as load,
    ):
        workers = [load.create_task(count_up(client, number, stop)) for number in range(3)]
        assert await client.admin.prefer_leader(chosen, reason="it is near") is None
        await until(lambda: leads(chosen, other), "the preferred node leads")
        (elected,) = logs[chosen].lines("event=election ")
        assert " reason='handed over' " in elected
        await asyncio.to_thread(hurried.kill, chosen)
        await until(lambda: not leads(chosen, other), "its death is noticed")
        await until(lambda: (hurried.view(other) or {}).get("leader"), "another node leads")
        await asyncio.to_thread(hurried.restart, chosen)
        await until(lambda: leads(chosen, other), "it leads again")
        stop.set()
        assert min(await asyncio.gather(*workers)) > 0
        assert await client.admin.prefer_nobody(reason="all are near") == chosen
        view: dict[str, Any] = (await http.call(other, "GET", "/v1/cluster")).body
        assert view["preferred"] is None


async def test_a_node_is_preferred_and_another_one_instead(cluster: LocalCluster) -> None:
    """Everybody is shown which, and the leader says why it leads still; what is not a member is refused."""
    leader, (chosen, _) = cluster.leader(), followers(cluster)
    async with holdfast.Client(urls(cluster), owner="A") as client:
        with pytest.raises(holdfast.InvalidRequest, match="id: 'n9'; must be one of n1, n2, n3"):
            await client.admin.prefer_leader("n9", reason="it is near")
        await client.admin.prefer_leader(leader, reason="it is quick")
        assert await client.admin.prefer_leader(chosen, reason="it is near") == leader
        info = (await client.cluster()).preferred
        assert info is not None
        assert (info.id, info.reason) == (chosen, "it is near")
        at_leader = (cluster.view(leader) or {})["preferred"]
        assert at_leader["why_not"].startswith("it takes over in ")
        await client.admin.prefer_nobody(reason="it was a test")
