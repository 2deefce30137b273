"""Paths between clients and nodes on which everything goes wrong, and nodes that do not stay, by a seed."""

import asyncio
import collections
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Final
from urllib.parse import urlsplit

import aiohttp

import holdfast
from cluster.config import Address
from scripts.local_cluster import LocalCluster
from tests.process.nodes import Http, bring_all_back, node_ids, urls
from tests.support.both_clients import stream_of
from tests.support.tap import Tap, listening

STALL_S_MAX: Final = 1.5
"""Seconds for which bytes are held back, at the most: longer than clients give a node for an answer."""
DELAY_S_MAX: Final = 0.03
PAUSE_S_MAX: Final = 0.5
"""Seconds between two things that happen to nodes and sessions, at the most."""

ANSWERS_S_MAX: Final = 0.2
"""Seconds of answers that are lost with a session, at the most."""

_FAULTS: Final = {"pass": 200, "delay": 16, "cut": 3, "close": 3, "stall": 2, "stall and cut": 2}
"""What happens to a piece of what is said, with its weight."""
_MISHAPS: Final = {"cut all": 3, "end a session": 2, "lose a session": 6, "kill": 1, "stop": 1, "pause": 1}
"""What happens to the nodes, and to the sessions of streams."""


def chosen(weights: dict[str, int], choices: random.Random) -> str:
    """Return one of several things, by their weights."""
    (one,) = choices.choices(list(weights), list(weights.values()))
    return one


class FaultyPath(Tap):
    """Breaks, closes, delays and holds back connections, each at points of its own, while it `is_faulty`."""

    def __init__(self, target: Address, seed: str) -> None:
        super().__init__(target)
        self._seed = seed
        self._choices: dict[asyncio.StreamWriter, random.Random] = {}
        self.is_faulty = False
        self.counts: collections.Counter[str] = collections.Counter()

    async def pass_on(self, data: bytes, sink: asyncio.StreamWriter) -> None:
        """Hand over a piece, some of it, late, or not at all."""
        if not self.is_faulty:
            return await super().pass_on(data, sink)
        choices = self._choices.setdefault(sink, random.Random(f"{self._seed}/{len(self._choices)}"))
        fault = chosen(_FAULTS, choices)
        self.counts[fault] += 1
        if fault == "delay":
            await asyncio.sleep(choices.uniform(0, DELAY_S_MAX))
        if "stall" in fault:
            await asyncio.sleep(choices.uniform(0, STALL_S_MAX))
        if "cut" in fault or fault == "close":
            sink.write(data[: choices.randrange(len(data) + 1)])
            if fault != "close":
                sink.transport.abort()
            raise ConnectionAbortedError
        return await super().pass_on(data, sink)


@contextlib.asynccontextmanager
async def faulty_paths(cluster: LocalCluster, seed: int) -> AsyncIterator[list[tuple[FaultyPath, str]]]:
    """Give a path to each node, and the URL at which it begins."""
    paths: list[tuple[FaultyPath, str]] = []
    async with AsyncExitStack() as stack:
        for url in urls(cluster):
            parts = urlsplit(url)
            assert parts.hostname is not None
            assert parts.port is not None
            path = FaultyPath(Address(parts.hostname, parts.port), f"{seed}/{len(paths)}")
            address = await stack.enter_async_context(listening(path))
            paths.append((path, f"http://{address.host}:{address.port}"))
        yield paths


class Mishaps:
    """Ends sessions of streams, cuts all connections to a node, kills, stops and pauses nodes."""

    def __init__(
        self,
        cluster: LocalCluster,
        http: Http,
        paths: Sequence[FaultyPath],
        clients: Sequence[holdfast.Client],
        seed: int,
    ) -> None:
        self._cluster, self._http, self._paths, self._clients = cluster, http, paths, clients
        self._choices = random.Random(f"{seed}/mishaps")
        self.counts: collections.Counter[str] = collections.Counter()

    async def happen_for(self, seconds: float) -> None:
        """Let one thing go wrong after the other, and all be well in the end."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        for path in self._paths:
            path.is_faulty = True
        while loop.time() < end_s:
            await asyncio.sleep(self._choices.uniform(0, PAUSE_S_MAX))
            mishap = chosen(_MISHAPS, self._choices)
            self.counts[mishap] += 1
            await self._happen(mishap)
        for path in self._paths:
            path.is_faulty = False
        await asyncio.to_thread(bring_all_back, self._cluster)

    async def _happen(self, mishap: str) -> None:
        node_id = self._choices.choice(node_ids(self._cluster))
        match mishap:
            case "cut all":
                self._choices.choice(self._paths).cut()
            case "end a session":
                await self._end_session(node_id, self._choices.choice(self._clients))
            case "lose a session":
                await self._lose_session(node_id, self._choices.choice(self._clients))
            case "pause":
                await asyncio.to_thread(self._cluster.pause, node_id)
                await asyncio.sleep(self._choices.uniform(0, STALL_S_MAX))
                await asyncio.to_thread(self._cluster.resume, node_id)
            case _:
                await asyncio.to_thread(
                    self._cluster.kill if mishap == "kill" else self._cluster.terminate, node_id
                )
                await asyncio.sleep(self._choices.uniform(0, STALL_S_MAX))
                await asyncio.to_thread(self._cluster.start, node_id)

    async def _lose_session(self, node_id: str, client: holdfast.Client) -> None:
        """End the session of a stream with answers on their way, which never arrive."""
        for path in self._paths:
            path.stall("acceptor")
        await asyncio.sleep(self._choices.uniform(0, ANSWERS_S_MAX))
        await self._end_session(node_id, client)
        for path in self._paths:
            path.cut()

    async def _end_session(self, node_id: str, client: holdfast.Client) -> None:
        """End the session of a stream, as its ttl would. The node may be without a leader."""
        link = stream_of(client)
        if link is not None and link._numbers.session_id:
            path = f"/v1/sessions/{link._numbers.session_id}"
            with contextlib.suppress(aiohttp.ClientError):
                await self._http.call(node_id, "DELETE", path, timeout_ms=500)
