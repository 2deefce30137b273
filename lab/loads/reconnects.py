"""Many streams that begin, break and come back: what a node pays for each WebSocket that it accepts."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from lab.measuring.used import Used
from lab.peers import ours
from lab.peers.ours_clients import OverStream
from scripts.local_cluster import LocalCluster

AT_A_TIME: Final = 64
END_S: Final = 0.2
"""For the nodes to see that all connections have ended: that is not part of accepting new ones."""


async def reconnects(cluster: LocalCluster, streams: int) -> list[dict[str, Any]]:
    """Begin so many streams spread over the nodes, break them all, resume them; return figures of both.

    Raises OSError if one cannot be begun or resumed: then a session was lost.
    """
    nodes = [ours.address(node.http) for node in cluster.nodes()]
    opened: dict[int, OverStream] = {}

    async def begin(number: int) -> None:
        opened[number] = await ours.stream(nodes[number % len(nodes)], 0, 0)

    async def resume(number: int) -> None:
        broken = opened[number]
        # To another node than before, as when the old one is lost.
        opened[number] = await ours.stream(nodes[(number + 1) % len(nodes)], 0, 0, broken.session_id)

    try:
        first = await _timed(cluster, streams, begin)
        sessions = {stream.session_id for stream in opened.values()}
        for stream in opened.values():
            stream.close()
        await asyncio.sleep(END_S)
        second = await _timed(cluster, streams, resume)
        if {stream.session_id for stream in opened.values()} != sessions:
            raise OSError("a stream that was resumed has another session")
        for stream in opened.values():
            stream.bye()
        await asyncio.sleep(END_S)
    finally:
        for stream in opened.values():
            stream.close()
    return [
        {"title": f"{streams} streams begin", **first},
        {"title": f"{streams} streams come back", **second},
    ]


async def _timed(cluster: LocalCluster, count: int, one: Callable[[int], Awaitable[None]]) -> dict[str, Any]:
    """Do something for each number, some at a time; return what each cost."""
    numbers = iter(range(count))
    pids = [node.pid for node in cluster.nodes()]
    took_s: list[float] = []

    async def work() -> None:
        for number in numbers:
            began_s = time.perf_counter()
            await one(number)
            took_s.append(time.perf_counter() - began_s)

    before = Used.now(pids)
    await asyncio.gather(*[work() for _ in range(min(AT_A_TIME, count))])
    after = Used.now(pids)
    return {
        "streams": count,
        "per_s": count / (after.at_s - before.at_s),
        "nodes_us_each": (after.nodes_s - before.nodes_s) / count * 1e6,
        "client_us_each": (after.client_s - before.client_s) / count * 1e6,
        "worst_ms": max(took_s) * 1000,
        "others_percent": after.others_percent(before),
    }
