"""Holdfast: three nodes, over HTTP and over the stream."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from lab.loads.load import TTL_MS
from lab.peers import redis
from lab.peers.closed_loop import Lean
from lab.peers.connection import Address
from lab.peers.ours_clients import OverHttp, OverStream, UpgradePendingError
from lab.peers.system import Running, Way
from scripts.lib.ports import HOST
from scripts.local_cluster import ClusterFailure, LocalCluster
from scripts.redis_cluster import RedisCluster

NAME: Final = "holdfast"
HTTP, STREAM = "holdfast-http", "holdfast-stream"
NODES: Final = 3
WAIT_MS: Final = 30_000
"""Longer than a turn of all who contend."""
RULES_S: Final = 10.0
"""Within which a new cluster follows the newest rules."""


class Holdfast:
    """Holdfast, three nodes."""

    name: Final = NAME
    nodes: Final = NODES

    def missing(self) -> list[str]:
        """Return nothing: it is here."""
        return []

    @contextmanager
    def running(self, directory: Path, workers: int) -> Iterator[Running]:
        """Start three nodes, as `scripts/cluster up` does."""
        del workers
        with RedisCluster.up_with_redis(directory / "cluster", nodes=NODES) as cluster:
            leader = cluster.leader()
            found = [Address(HOST, port) for _, port in sorted(cluster.redis_ports.items())]
            # The leader comes first: the one connection is with it, as the stream is.
            found.insert(0, found.pop(sorted(cluster.redis_ports).index(leader)))
            as_redis = redis.ways("holdfast-redis", "Holdfast, as Redis", found)
            yield Running([node.pid for node in cluster.nodes()], [*ways(cluster), *as_redis])


def ways(cluster: LocalCluster) -> list[Way]:
    """Return the ways of asking Holdfast."""
    addresses = {node.id: address(node.http) for node in cluster.nodes()}

    def over_http(wait_ms: int) -> Callable[[int], Any]:
        async def connect(workers: int) -> Sequence[Lean]:
            everywhere = list(addresses.values())
            return [
                await OverHttp.open(address, address, wait_ms)
                for address in (everywhere[number % len(everywhere)] for number in range(workers))
            ]

        return connect

    def over_stream(wait_ms: int, *, is_shared: bool) -> Callable[[int], Any]:
        async def connect(workers: int) -> Sequence[Lean]:
            leader = addresses[cluster.leader()]
            if is_shared:
                return [await stream(leader, wait_ms, TTL_MS if wait_ms else 0)]
            return [await stream(leader, wait_ms, 0) for _ in range(workers)]

        return connect

    return [
        Way(HTTP, "Holdfast, HTTP", over_http(0)),
        Way(STREAM, "Holdfast, stream", over_stream(0, is_shared=True)),
        Way(HTTP, "Holdfast, HTTP", over_http(WAIT_MS), is_contended=True),
        Way(STREAM, "Holdfast, a stream each", over_stream(WAIT_MS, is_shared=False), is_contended=True),
        Way(
            "holdfast-shared", "Holdfast, one stream", over_stream(WAIT_MS, is_shared=True), is_contended=True
        ),
    ]


async def stream(node: Address, wait_ms: int, ttl_ms: int, session_id: str = "") -> OverStream:
    """Return a stream, new or of a session; wait for it if the cluster is too new to know streams."""
    deadline_s = time.monotonic() + RULES_S
    while True:
        try:
            return await OverStream.open(node, node, wait_ms, ttl_ms, session_id)
        except UpgradePendingError:
            if time.monotonic() > deadline_s:
                raise ClusterFailure("the nodes do not know streams: are all of this version?") from None
            await asyncio.sleep(0.2)


def address(url: str) -> Address:
    """Return where the node of a URL listens."""
    parts = urlsplit(url)
    assert parts.hostname, url
    assert parts.port, url
    return Address(parts.hostname, parts.port)
