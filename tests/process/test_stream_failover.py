"""Streams over three real nodes whose leader is killed: numbers are applied once, and waits are told."""

import asyncio
import contextlib
from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast.values.clock import now_s
from scripts.local_cluster import LocalCluster
from tests.process.nodes import bring_all_back, node_ids
from tests.support.stream_client import GRANTED, PUT_CELL, QUEUED, RELEASE, RELEASED, Closed, Stream, acquire

pytestmark = pytest.mark.process

KILLS = 3
PATIENCE_S = 30.0
CELL = b"stream/steps"


def port_of(cluster: LocalCluster, node_id: str) -> int:
    """Return where a node answers clients."""
    port = urlsplit(cluster.node(node_id).http).port
    assert port is not None
    return port


class Steps:
    """A client that takes steps, a few in each message, and never gives one twice or leaves one out.

    A step writes a cell, which counts how often it was written: each step is told its own number.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._stream: Stream | None = None
        self.results: dict[int, Any] = {}
        self.resumed = 0

    async def go_to(self, last: int) -> None:
        """Take all steps up to `last`, over whichever nodes answer."""
        deadline_s = now_s() + PATIENCE_S
        nodes = node_ids(self._cluster)
        while len(self.results) < last:
            assert now_s() < deadline_s, f"{len(self.results)} of {last} steps"
            node_id = nodes[self.resumed % len(nodes)]
            with contextlib.suppress(Closed, ConnectionError, EOFError, TimeoutError, AssertionError):
                async with asyncio.timeout(5):
                    await self._go_on(node_id, last)
            self.resumed += 1

    async def _go_on(self, node_id: str, last: int) -> None:
        stream = Stream(port_of(self._cluster, node_id))
        if self._stream is not None:
            stream.session_id = self._stream.session_id
        async with stream:
            self._stream = stream
            while (first := len(self.results) + 1) <= last:
                numbers = range(first, min(first + 5, last + 1))
                stream.acked = [(1, first - 1)] if first > 1 else []
                stream.ask(*[[PUT_CELL, CELL, b""] for _ in numbers], first=first)
                for number in numbers:
                    self.results[number] = await stream.answer(number)


async def test_every_number_is_applied_once_while_leaders_die(cluster: LocalCluster) -> None:
    """A client goes on over other nodes; no step is refused, and the fence is where it must be."""
    steps = Steps(cluster)
    await steps.go_to(20)
    for kill in range(1, KILLS + 1):
        going = asyncio.create_task(steps.go_to(20 + kill * 60))
        await asyncio.sleep(0.05)
        leader = await asyncio.to_thread(cluster.leader)
        await asyncio.to_thread(cluster.kill, leader)
        await going
        await asyncio.to_thread(bring_all_back, cluster)
    versions = [result[3] for result in steps.results.values()]
    assert list(steps.results) == versions == list(range(1, 20 + KILLS * 60 + 1))


async def test_a_wait_goes_on_over_another_node(cluster: LocalCluster) -> None:
    """The node of a waiting client is killed; over another one it is told that the lock is its."""
    first, second, third = node_ids(cluster)
    async with Stream(port_of(cluster, first)) as holder, asyncio.timeout(PATIENCE_S):
        held = await holder.acquire("stream/wait")
        assert held[0] == GRANTED
        waiter = Stream(port_of(cluster, second))
        async with waiter:
            assert (await waiter.acquire("stream/wait", 60_000))[0] == QUEUED
            await asyncio.to_thread(cluster.kill, second)
        again = Stream(port_of(cluster, third))
        again.session_id = waiter.session_id
        while True:
            with contextlib.suppress(Closed, AssertionError, ConnectionError):
                await again.connect()
                await again.greet()
                break
            await again.drop()
            await asyncio.sleep(0.1)
        again.ask(acquire("stream/wait", 60_000), first=1)
        assert (await again.answer(1))[0] == QUEUED
        assert (await holder.call(RELEASE, held[1]))[0] == RELEASED
        assert (await again.answer(1))[0] == GRANTED
        await again.drop()
