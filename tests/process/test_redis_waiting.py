"""Clients of Redis that wait in the queue of a lock, on three nodes: in order, also when something fails."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import redis

from tests.process.redis_nodes import RedisCluster
from tests.support.processes import wait_until

pytestmark = pytest.mark.process

LEASE_MS = 60_000
WAIT_MS = 60_000


def acquire(client: redis.Redis, name: str, value: str, wait_ms: int = WAIT_MS) -> int | None:
    """Take a lock, and wait for it; return its token."""
    ask: Any = client.execute_command
    token: int | None = ask("HF.ACQUIRE", name, value, LEASE_MS, wait_ms)
    return token


def queue_length(nodes: RedisCluster, node_id: str, name: str) -> int:
    """Return how many wait for a lock, as one node sees it."""
    seen = nodes.ask(node_id, f"/v1/locks/redis/0/{name}")
    assert seen is not None, f"{node_id} does not answer"
    return len(seen[1].get("queue", ()))


def test_the_queue_is_one_for_all_nodes(nodes: RedisCluster) -> None:
    """Whoever asked first gets the lock first, whichever node they asked; tokens rise in that order."""
    order = ["n2", "n3", "n1", "n3", "n2"]
    with nodes.client("n1") as holder, ThreadPoolExecutor(len(order)) as pool:
        tokens = [acquire(holder, "queue", "holder")]
        waiting: list[Future[int | None]] = []
        for number, node_id in enumerate(order):
            waiting.append(pool.submit(acquire_and_give_back, nodes, node_id, "queue", f"waiter {number}"))
            wait_until(lambda: queue_length(nodes, "n1", "queue") == len(waiting), "it waits")
        assert acquire(holder, "queue", "too late", 100) is None
        assert holder.delete("queue") == 1
        tokens += [each.result() for each in waiting]
    assert all(tokens)
    assert tokens == sorted(tokens, key=lambda token: token or 0)


def acquire_and_give_back(nodes: RedisCluster, node_id: str, name: str, value: str) -> int | None:
    """Wait for a lock through one node, and release it; return its token."""
    with nodes.client(node_id) as client:
        token = acquire(client, name, value)
        assert client.delete(name) == 1
        return token


def test_a_client_that_is_gone_is_out_of_the_queue(nodes: RedisCluster) -> None:
    """Nobody waits behind a connection that ended."""
    with nodes.client("n1") as holder, ThreadPoolExecutor(1) as pool:
        assert acquire(holder, "gone", "holder")
        leaver = nodes.client("n2", socket_timeout=1, retry=None)
        with pytest.raises(redis.TimeoutError):
            acquire(leaver, "gone", "leaver")
        leaver.close()
        wait_until(lambda: queue_length(nodes, "n2", "gone") == 0, "nobody waits")
        waiting = pool.submit(acquire_and_give_back, nodes, "n3", "gone", "next")
        wait_until(lambda: queue_length(nodes, "n3", "gone") == 1, "it waits")
        assert holder.delete("gone") == 1
        assert waiting.result()


def test_a_wait_outlives_the_leader(nodes: RedisCluster) -> None:
    """It keeps its place when the leader is killed, and gets the lock through its own node."""
    leader = nodes.leader()
    one, two = [node_id for node_id in ("n1", "n2", "n3") if node_id != leader]
    with nodes.client(one) as holder, ThreadPoolExecutor(2) as pool:
        first = acquire(holder, "kept", "holder")
        waiting = [pool.submit(acquire_and_give_back, nodes, two, "kept", "first")]
        wait_until(lambda: queue_length(nodes, one, "kept") == 1, "the first one waits")
        waiting.append(pool.submit(acquire_and_give_back, nodes, one, "kept", "second"))
        wait_until(lambda: queue_length(nodes, one, "kept") == 2, "the second one waits")
        nodes.kill(leader)
        assert holder.delete("kept") == 1
        second, third = [each.result() for each in waiting]
    assert first
    assert second
    assert third
    assert first < second < third


def test_a_node_that_stops_leaves_no_wait_behind(nodes: RedisCluster) -> None:
    """Its clients hear that the connection ended, and nobody stands behind them in the queue."""
    with nodes.client("n1") as holder, ThreadPoolExecutor(1) as pool:
        assert acquire(holder, "restarted", "holder")
        leaver = nodes.client("n2", retry=None)
        waiting = pool.submit(acquire, leaver, "restarted", "leaver")
        wait_until(lambda: queue_length(nodes, "n1", "restarted") == 1, "it waits")
        nodes.terminate("n2")
        with pytest.raises(redis.ConnectionError):
            waiting.result()
        wait_until(lambda: queue_length(nodes, "n1", "restarted") == 0, "nobody waits")
        assert holder.delete("restarted") == 1
