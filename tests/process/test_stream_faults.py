"""Busy clients of both kinds over streams that break at random, to nodes that fail: all promises hold.

A seed decides what is asked and what goes wrong; real nodes and sockets decide what meets what. To look for
longer: HOLDFAST_STREAM_SEEDS=1-50 scripts/test tests/process/test_stream_faults.py
"""

import asyncio
import contextlib
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Final, cast

import pytest

import holdfast
from holdfast.stream import stream_link, stream_socket, streams
from scripts.local_cluster import LocalCluster
from tests.process import belief_checkers
from tests.process.faulty_paths import Mishaps, faulty_paths
from tests.process.nodes import http_to, until, urls
from tests.process.stream_load import TIMEOUT_S, TTLS_S, Load
from tests.support.both_clients import Threaded, client_of, is_streaming

pytestmark = pytest.mark.process

_FIRST, _, _LAST = os.environ.get("HOLDFAST_STREAM_SEEDS", "1").partition("-")
SEEDS: Final = range(int(_FIRST), int(_LAST or _FIRST) + 1)
FAULTS_S: Final = 6.0
"""Seconds in which things go wrong."""
BELIEFS_AFTERWARDS: Final = 30
"""How often something is held when all is well again, before it ends."""
CLIENTS: Final = ("asyncio", "asyncio", "threads")
TASKS, THREADS = 8, 4
"""Workers of each client."""
AUDIT_LIMIT: Final = 1000
GONE_S: Final = max(TTLS_S) + 27
"""Seconds after which the longest lease has ended on a slow machine, too."""


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients come back to the stream soon: it is what is tested here."""
    monkeypatch.setattr(streams, "BUSY_COUNT", 2)
    monkeypatch.setattr(streams, "PAUSE_S_MAX", 0.2)
    monkeypatch.setattr(stream_link, "FAILED_PAUSE_S", 0.05)
    monkeypatch.setattr(stream_link, "REFUSED_PAUSE_S", 0.05)
    monkeypatch.setattr(stream_socket, "REFUSED_PAUSE_S", 0.05)


async def _run(load: Load, cluster: LocalCluster, seed: int) -> None:
    """Let all clients work while things go wrong, and close them when all is well again."""
    async with contextlib.AsyncExitStack() as stack:
        http = await stack.enter_async_context(http_to(cluster))
        paths = await stack.enter_async_context(faulty_paths(cluster, seed))
        nodes = [url for _, url in paths]
        clients = [
            await stack.enter_async_context(client_of(kind, nodes, way="stream", timeout=TIMEOUT_S))
            for kind in CLIENTS
        ]
        mishaps = Mishaps(cluster, http, [path for path, _ in paths], clients, seed)
        async with asyncio.TaskGroup() as group:
            for number, client in enumerate(clients):
                for index in range(THREADS if isinstance(client, Threaded) else TASKS):
                    group.create_task(load.work(_alone(client, stack), f"{number}/{index}"))
            await mishaps.happen_for(FAULTS_S)
            enough = len(load.beliefs) + BELIEFS_AFTERWARDS
            await until(lambda: len(load.beliefs) >= enough and all(map(is_streaming, clients)), "all go on")
            load.end()
        load.counts += mishaps.counts
        for path, _ in paths:
            load.counts += path.counts
            load.counts["streams"] += bytes(path.seen).count(b"GET /v1/stream")
            load.counts["over HTTP"] += bytes(path.seen).count(b"/acquire HTTP/1.1")


def _alone(client: holdfast.Client, stack: contextlib.AsyncExitStack) -> holdfast.Client:
    """Return a client with a thread of its own, if it is one for threads."""
    if not isinstance(client, Threaded):
        return client
    return cast("holdfast.Client", Threaded(client.thing, stack.enter_context(ThreadPoolExecutor(1))))


# Some of what it acquires is not given back, and collected.
@pytest.mark.filterwarnings("ignore:hold .* was never released:ResourceWarning")
@pytest.mark.parametrize("seed", SEEDS)
async def test_promises_hold_whatever_happens_to_streams(
    cluster: LocalCluster, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody relies on what somebody else has, nothing is granted twice or left behind, no call hangs."""
    caplog.set_level(logging.WARNING)
    load = Load(f"stream-faults/{os.getpid()}/{seed}", seed)
    await _run(load, cluster, seed)
    print(f"seed {seed}:", dict(sorted(load.counts.items())))
    async with holdfast.Client(urls(cluster)) as reader:

        async def is_free() -> bool:
            held = [info.name async for info in reader.list(load.prefix) if info.holders or info.queue]
            permits = await reader.get_semaphore(f"{load.prefix}/permits")
            return not held and not permits.holders

        await until(is_free, "nothing is held", GONE_S)
        told = [await reader.audit(name, limit=AUDIT_LIMIT) for name in load.names()]
    assert max(map(len, told)) < AUDIT_LIMIT, "the audit has more than can be read"
    events = [event for newest_first in told for event in reversed(newest_first)]
    tokens = {belief.call: belief.token for belief in load.beliefs}
    assert load.wrong == []
    assert belief_checkers.too_many_believers(load.beliefs) == []
    assert belief_checkers.wrong_tokens(load.beliefs) == []
    assert belief_checkers.wrong_grants(events, tokens, load.prompt) == []
    assert load.counts["streams"] > len(CLIENTS), "no stream was ever broken"
