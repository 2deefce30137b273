"""Channels of clients of Redis on three nodes: messages reach those that listen on any of them."""

from pathlib import Path

import pytest
import redis

from tests.process.redis_nodes import RedisCluster
from tests.support.processes import wait_until

pytestmark = pytest.mark.process


def heard(listener: redis.client.PubSub) -> list[tuple[str, int | bytes]]:
    """Return what has come: the kind of each message, and what it says."""
    found = []
    while (said := listener.get_message(timeout=0.2)) is not None:
        found.append((said["type"], said["data"]))
    return found


def test_every_node_tells_its_clients(tmp_path: Path) -> None:
    """With both versions of RESP, and also after the leader was killed; nothing is kept for later."""
    with RedisCluster.of(tmp_path / "nodes") as nodes:
        leader = nodes.leader()
        others = [node_id for node_id in ("n1", "n2", "n3") if node_id != leader]
        with nodes.client(others[0], protocol=2) as one, nodes.client(others[1], protocol=3) as two:
            listeners = [one.pubsub(), two.pubsub()]
            listeners[0].subscribe("unlocked")
            listeners[1].psubscribe("un*")
            assert heard(listeners[0]) == [("subscribe", 1)]
            assert heard(listeners[1]) == [("psubscribe", 1)]
            with nodes.client(leader) as speaker:
                assert speaker.publish("unlocked", "1") == 0, "nobody listens on this node"
            assert heard(listeners[0]) == [("message", b"1")]
            assert heard(listeners[1]) == [("pmessage", b"1")]
            nodes.kill(leader)
            assert one.publish("unlocked", "2") == 1
            assert two.publish("unlocked", "3") == 1
            wait_until(lambda: one.set("k", "v", px=5_000, nx=True), "the others have a leader", 30)
            assert heard(listeners[0]) == [("message", b"2"), ("message", b"3")]
            assert heard(listeners[1]) == [("pmessage", b"2"), ("pmessage", b"3")]
            for listener in listeners:
                listener.close()
