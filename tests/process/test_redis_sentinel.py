"""Clients of Redis that find a node that serves by Sentinel, while nodes are killed one after the other."""

import asyncio
import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import redis
import redis.asyncio.sentinel
import redis.sentinel
from redis.sentinel import MasterNotFoundError

from scripts.lib import ports
from tests.process.nodes import bring_all_back
from tests.process.redis_nodes import RedisCluster
from tests.support import servers
from tests.support.processes import wait_until

pytestmark = pytest.mark.process

MANUAL: Final = Path(__file__).parents[2] / "docs" / "faces.md"
NODES = ("n1", "n2", "n3")


def sentinel_of(module: Any, nodes: RedisCluster, **options: Any) -> Any:
    """Return redis-py's Sentinel, or its twin for tasks, with the addresses of all nodes."""
    return module.Sentinel([(ports.HOST, nodes.port(node_id)) for node_id in NODES], **options)


def test_redis_py_follows_without_a_proxy(nodes: RedisCluster) -> None:
    """One client, one lock after the other, each node killed once; no call of the program fails."""
    sentinel = sentinel_of(redis.sentinel, nodes, sentinel_kwargs={"protocol": 2}, protocol=2)
    client = sentinel.master_for("holdfast")
    served_by = set()
    for victim in NODES:
        with client.lock(f"before-{victim}", timeout=30):
            pass
        nodes.kill(victim)
        with client.lock(f"after-{victim}", timeout=30) as lock:
            assert lock.owned()
            served_by.add(sentinel.discover_master("holdfast")[1])
        bring_all_back(nodes)
    assert len(served_by) > 1
    assert sentinel.discover_slaves("holdfast") == []
    client.close()
    sentinel.close()


async def test_redis_asyncio_follows_without_a_proxy(nodes: RedisCluster) -> None:
    """As its twin does."""
    options = {"protocol": 3}
    sentinel = sentinel_of(redis.asyncio.sentinel, nodes, sentinel_kwargs=options, **options)
    client = sentinel.master_for("holdfast")
    for victim in NODES:
        async with client.lock(f"tasks-{victim}", timeout=30):
            await asyncio.to_thread(nodes.kill, victim)
            assert await client.exists(f"tasks-{victim}") == 1
        await asyncio.to_thread(bring_all_back, nodes)
    for one in (client, *sentinel.sentinels):
        await one.aclose(close_connection_pool=True)


def test_no_node_of_a_minority_is_named(nodes: RedisCluster) -> None:
    """It is there, but it does not serve; once it does again, the same client goes on."""
    sentinel = sentinel_of(redis.sentinel, nodes, socket_timeout=5)
    nodes.kill("n1")
    nodes.kill("n2")

    def is_found() -> bool:
        try:
            return bool(sentinel.discover_master("holdfast"))
        except MasterNotFoundError:
            return False

    wait_until(lambda: not is_found(), "the node that is left has noticed that it is alone")
    bring_all_back(nodes)
    assert is_found()
    sentinel.close()


@pytest.mark.parametrize("victim", ["n1", "n3"])
def test_the_proxy_of_the_manual_goes_to_a_node_that_serves(nodes: RedisCluster, victim: str) -> None:
    """Without its client noticing more than a pause."""
    found = re.search(r"```haproxy\n(.*?)```", MANUAL.read_text("utf-8"), re.DOTALL)
    assert found is not None
    (port,) = ports.reserve(1)
    text = found[1].replace("bind :6379", f"bind {ports.HOST}:{port}")
    for node in nodes.nodes():
        there = f"{ports.HOST}:{nodes.port(node.id)} port {urlsplit(node.http).port}"
        text, count = re.subn(rf"{node.id}\.example\.com:6379 port 7700", there, text)
        assert count == 1
    with servers.haproxy(text, port), redis.Redis(host=ports.HOST, port=port, socket_timeout=10) as client:
        with client.lock(f"before-{victim}", timeout=30):
            pass
        nodes.kill(victim)
        for number in range(6):
            with client.lock(f"after-{victim}-{number}", timeout=30) as lock:
                assert lock.owned()
