"""One step of a load on a cluster: workers with a lock each, over HTTP or over a stream, for some seconds."""

import asyncio
import functools
import ssl
import time
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from lab.loads.load import Tally, Worker, percentile_ms
from lab.loads.stream_load import StreamLoad, UpgradePending
from lab.measuring.used import Used
from scripts.local_cluster import ClusterFailure, LocalCluster

WARM_UP_S: Final = 1.0
RULES_S: Final = 10.0
"""Within which a new cluster follows the newest rules."""
DRAIN_S: Final = 30.0


async def http_step(
    cluster: LocalCluster, workers: int, seconds: float, *, is_once: bool = False, token: str = ""
) -> dict[str, Any]:
    """Run one step of the load over HTTP, or HTTPS if the cluster has it, and return its figures.

    With `is_once` requests have an id, with a `token` they say who asks.
    """
    tally, trust = Tally(), _trust(cluster)
    nodes = cluster.nodes()
    loop = asyncio.get_running_loop()
    running = []
    prefix = f"bench/{time.monotonic_ns()}"
    for number in range(workers):
        address = urlsplit(nodes[number % len(nodes)].http)
        connect = functools.partial(
            Worker, tally, address.netloc, f"{prefix}/{number}", is_once=is_once, token=token
        )
        _, worker = await loop.create_connection(
            connect, address.hostname or "", address.port or 80, ssl=trust
        )
        running.append(worker.ended)
    return await _measure(cluster, tally, running, workers, seconds)


def _trust(cluster: LocalCluster) -> ssl.SSLContext | None:
    """Return how to speak TLS with the nodes of a cluster that does; None if it does not."""
    told = cluster.client_environment
    if "HOLDFAST_CA" not in told:
        return None
    trust = ssl.create_default_context(cafile=told["HOLDFAST_CA"])
    trust.minimum_version = ssl.TLSVersion.TLSv1_3
    trust.load_cert_chain(told["HOLDFAST_CERT"], told["HOLDFAST_KEY"])
    return trust


async def stream_step(
    cluster: LocalCluster,
    workers: int,
    seconds: float,
    *,
    names: Sequence[str] = (),
    helpers: Sequence[int] = (),
) -> dict[str, Any]:
    """Run one step of the load over a stream and return its figures; a worker has one of the names.

    `helpers` are processes of clients that belong to the step.
    """
    leader = cluster.leader()
    address = urlsplit(cluster.node(leader).http)
    names = names or [f"bench-{time.monotonic_ns()}/{number}" for number in range(workers)]
    deadline_s = time.monotonic() + RULES_S
    while True:
        tally = Tally()
        connect = functools.partial(StreamLoad, tally, address.netloc, names)
        _, load = await asyncio.get_running_loop().create_connection(
            connect, address.hostname or "", address.port or 80
        )
        try:
            await load.welcomed
            break
        except UpgradePending:
            if time.monotonic() > deadline_s:
                raise ClusterFailure("the nodes do not know streams: are all of this version?") from None
            await asyncio.sleep(0.2)
    load.begin()
    return await _measure(cluster, tally, [load.ended], workers, seconds, helpers=helpers)


async def _measure(
    cluster: LocalCluster,
    tally: Tally,
    running: "Sequence[asyncio.Future[None]]",
    workers: int,
    seconds: float,
    *,
    helpers: Sequence[int] = (),
) -> dict[str, Any]:
    """Measure a load that runs, and end it."""
    pids = [node.pid for node in cluster.nodes()]
    await asyncio.sleep(WARM_UP_S)
    before = Used.now(pids, helpers)
    tally.begin()
    await asyncio.sleep(seconds)
    acquires_s, cycles_s = sorted(tally.acquires_s), sorted(tally.cycles_s)
    after = Used.now(pids, helpers)
    tally.is_stopping = True
    if (await asyncio.wait(running, timeout=DRAIN_S))[1]:
        raise ClusterFailure(
            f"requests are still unanswered {DRAIN_S:.0f} s after the step with {workers} workers"
        )
    elapsed_s = after.at_s - before.at_s
    cycles = max(1, len(cycles_s))
    return {
        "workers": workers,
        "seconds": round(elapsed_s, 3),
        "cycles_per_s": len(cycles_s) / elapsed_s,
        "acquire_p50_ms": percentile_ms(acquires_s, 0.50),
        "acquire_p99_ms": percentile_ms(acquires_s, 0.99),
        "cycle_p50_ms": percentile_ms(cycles_s, 0.50),
        "cycle_p99_ms": percentile_ms(cycles_s, 0.99),
        "server_us_per_cycle": (after.nodes_s - before.nodes_s) / cycles * 1e6,
        "client_us_per_cycle": (after.client_s - before.client_s) / cycles * 1e6,
        "others_percent": after.others_percent(before),
        "errors_count": tally.errors_count,
        "errors": tally.errors,
    }
