"""scripts/bench sizing: what nodes of a cluster take when so much is held, kept alive and waited for."""

import argparse
import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NamedTuple

import holdfast
from lab.bench import options
from lab.loads import holders
from lab.loads.crowd_process import CrowdProcess
from lab.loads.load_steps import stream_step
from lab.measuring.findings import Found, Judged, Row, add_check, say, table
from scripts.lib import processes
from scripts.local_cluster import ClusterFailure, LocalCluster


class Size(NamedTuple):
    """How much there is at the same time."""

    locks: int
    """Held without a session, each with a lease of its own."""
    sessions: int
    """Kept alive."""
    waiters: int
    """Requests that wait for a lock."""


SIZES: Final = (
    Size(1_000, 100, 100),
    Size(10_000, 1_000, 1_000),
    Size(100_000, 5_000, 2_000),
    Size(1_000_000, 10_000, 5_000),
)
QUICK: Final = (Size(100, 10, 10), Size(1_000, 50, 50))
SESSION_TTL_MS: Final = 30_000
SESSION_CONNECTIONS: Final = 16
WAITERS_OF_LOCK: Final = 10
WORKERS: Final = 64
READY_S: Final = 300.0
POLL_S: Final = 0.02
_MIB: Final = 1 << 20
DESCRIPTION: Final = (
    "Fill a cluster step by step, and measure at each size, while all of it is there: the memory of the node"
    f" that takes most, the largest data directory, and what {WORKERS} workers on one stream to the leader do"
    " besides: requests a second, the 99th percentile of an acquire, and the processor time of all nodes for"
    " one request. Then a follower is stopped and started: 'restart s' is from its start until it serves."
    f" Locks stay held from size to size; sessions have a ttl of {SESSION_TTL_MS // 1000} s and are kept"
    f" alive; {WAITERS_OF_LOCK} requests wait for each lock that is waited for. The largest size takes some"
    " minutes, and 1.5 GB of memory for each node."
)
_COLUMNS: Final = (
    ("memory MiB", "memory_mib", "{:.0f}"),
    ("disk MiB", "disk_mib", "{:.0f}"),
    ("requests/s", "requests_per_s", "{:.0f}"),
    ("p99 ms", "acquire_p99_ms", "{:.1f}"),
    ("us/request", "us_per_request", "{:.0f}"),
    ("cores/node", "cores_per_node", "{:.2f}"),
    ("restart s", "restart_s", "{:.1f}"),
    ("others %", "others_percent", "{:.0f}"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    parser.add_argument("--quick", action="store_true", help="two small sizes only, to see that it runs")
    parser.add_argument(
        "--sizes",
        type=_sizes,
        metavar="L/S/W,...",
        help="so many locks, sessions and waiters, in rising order (default: "
        + ",".join("/".join(map(str, size)) for size in SIZES)
        + ")",
    )
    options.add_seconds(parser)
    add_check(parser)


def _sizes(text: str) -> tuple[Size, ...]:
    """Read sizes, each at least as large as the one before."""
    try:
        sizes = tuple([Size(*map(int, part.split("/"))) for part in text.split(",")])
    except (TypeError, ValueError):
        raise argparse.ArgumentTypeError(f"{text}: say locks/sessions/waiters, such as 1000/100/10") from None
    if any(min(size) < 0 or size.locks < 1 for size in sizes):
        raise argparse.ArgumentTypeError(f"{text}: each size has at least one lock, and nothing below 0")
    if list(sizes) != sorted(sizes, key=lambda size: size.locks):
        raise argparse.ArgumentTypeError(f"{text}: locks stay held, so each size must have at least as many")
    return sizes


async def _measure(cluster: LocalCluster, arguments: argparse.Namespace) -> Found:
    """Measure all sizes."""
    rows: list[Row] = []
    errors: list[str] = []
    held = 0
    for size in arguments.sizes or (QUICK if arguments.quick else SIZES):
        say(f"{size.locks} locks, {size.sessions} sessions, {size.waiters} waiters")
        names = [f"sizing/{number % 1000}/item-{number}" for number in range(held, size.locks)]
        if names:
            await holders.hold(cluster.node(cluster.leader()).http, names, say)
        held = size.locks
        row = await _at(cluster, size, arguments.seconds)
        errors += row.pop("errors")
        rows.append({**row, "restart_s": await asyncio.to_thread(_restart, cluster)})
    return Found(rows, [], errors)


async def _at(cluster: LocalCluster, size: Size, seconds: float) -> dict[str, Any]:
    """Measure one size, of which the locks are there."""
    nodes = cluster.nodes()
    urls = [node.http for node in nodes]
    async with contextlib.AsyncExitStack() as stack:
        helpers = []
        if size.sessions:
            connections = min(SESSION_CONNECTIONS, size.sessions)
            crowd = CrowdProcess.of(urls, "keep", connections, sessions=size.sessions, ttl_ms=SESSION_TTL_MS)
            helpers.append((await stack.enter_async_context(crowd)).pid)
        await stack.enter_async_context(_waiters(urls, size.waiters))
        step = await stream_step(cluster, WORKERS, seconds, helpers=helpers)
        memory = max(processes.resident_bytes(node.pid) for node in nodes)
        views = [await asyncio.to_thread(cluster.view, node.id) for node in nodes]
    disks = [(view or {}).get("own", {}).get("directory_bytes") for view in views]
    if None in disks:
        raise ClusterFailure("a node does not say how much its data directory takes")
    requests_per_s, us_per_request = 2 * step["cycles_per_s"], step["server_us_per_cycle"] / 2
    return {
        "title": f"{size.locks:,} locks, {size.sessions:,} sessions, {size.waiters:,} waiters",
        **size._asdict(),
        "memory_mib": memory / _MIB,
        "disk_mib": max(disks) / _MIB,
        "requests_per_s": requests_per_s,
        "acquire_p99_ms": step["acquire_p99_ms"],
        "us_per_request": us_per_request,
        "cores_per_node": requests_per_s * us_per_request / 1e6 / len(nodes),
        "others_percent": step["others_percent"],
        "errors": step["errors"],
    }


@contextlib.asynccontextmanager
async def _waiters(urls: Sequence[str], count: int) -> AsyncIterator[None]:
    """Let so many requests wait meanwhile, WAITERS_OF_LOCK for each lock. Raises ClusterFailure."""
    locks = -(-count // WAITERS_OF_LOCK)
    async with holdfast.Client(urls, owner="sizing", timeout=READY_S) as client:
        began = time.monotonic_ns()
        names = [f"sizing-wait-{began}/{number}" for number in range(locks)]
        holds = [await client.lock(name, ttl=READY_S).acquire() for name in names]
        waiting = [
            asyncio.create_task(client.lock(names[number % locks], ttl=READY_S).acquire())
            for number in range(count)
        ]
        try:
            deadline_s = time.monotonic() + READY_S
            for number, name in enumerate(names):
                while len((await client.inspect(name)).queue) < len(range(number, count, locks)):
                    if time.monotonic() > deadline_s:
                        raise ClusterFailure(f"{count} requests do not wait after {READY_S:.0f} s")
                    await asyncio.sleep(POLL_S)
            yield
            gone = [str(task.exception() or "granted") for task in waiting if task.done()]
            if gone:
                raise ClusterFailure(f"{len(gone)} of {count} requests did not wait on: {gone[0]}")
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        for hold in holds:
            await hold.release()


def _restart(cluster: LocalCluster) -> float:
    """Stop a follower and start it; return how many seconds it takes from then on until it serves."""
    leader = cluster.leader()
    follower = next(node.id for node in cluster.nodes() if node.id != leader)
    cluster.terminate(follower)
    began_s = time.monotonic()
    cluster.start(follower)
    while True:
        answer = cluster.ask(follower, "/readyz")
        if answer is not None and answer[0] == 200:  # noqa: PLR2004 - a status of HTTP
            break
        if time.monotonic() - began_s > READY_S:
            raise ClusterFailure(f"{follower} does not serve {READY_S:.0f} s after its start")
        time.sleep(POLL_S)
    restart_s = time.monotonic() - began_s
    cluster.wait_ready()
    return restart_s


BENCHMARK: Final = Judged(
    "sizing",
    "memory, disk, processor and restart of nodes with few locks, sessions and waiters, and with very many",
    DESCRIPTION,
    add_arguments,
    _measure,
    lambda rows: table(rows, _COLUMNS),
)
