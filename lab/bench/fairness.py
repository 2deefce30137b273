"""scripts/bench fairness: how long one client waits while others ask for much."""

import argparse
import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from holdfast import wire
from lab.bench import options
from lab.loads.crowd_process import CrowdProcess
from lab.loads.holders import held_locks
from lab.loads.load import Tally, Worker, percentile_ms
from lab.measuring import bars
from lab.measuring.bars import Bar
from lab.measuring.findings import Found, Judged, Row, add_check, say, table
from lab.measuring.used import Used
from lockstate.words.limits import AUDIT_LIMIT_MAX
from scripts.local_cluster import ClusterFailure, LocalCluster

CONNECTIONS: Final = 16
BUSY: Final = 256
LISTED: Final = 1_000
SLOWER_MAX: Final = 5.0
"""Factor by which the victim's p99 may rise under any of the loads."""
ACQUIRES_MIN: Final = 100
"""Acquires of a step, fewer of which have no 99th percentile that a bar could judge."""
SECONDS: Final = 10.0
WARM_UP_S: Final = 1.0
DRAIN_S: Final = 60.0
PREFIX: Final = "fairness"
DESCRIPTION: Final = (
    "One client, the victim, acquires and releases a lock of its own over HTTP at the leader, again and"
    " again: for `--seconds` alone, then for as long beside clients in a process of their own, and so"
    f" for each kind of them. {CONNECTIONS} connections to the leader, each with a request under way all"
    f" the time: listing {LISTED:,} locks, /metrics, /openapi.json, {AUDIT_LIMIT_MAX:,} events of the"
    f" audit, acquiring 64 locks whose names have 30 parts at once and releasing them; and {BUSY} clients"
    " spread over the nodes that acquire and release single locks. Measured is the victim's acquire. The"
    f" bar: its p99 is at most {SLOWER_MAX:g} times its p99 alone, right before. It takes two and a half"
    " minutes. The exit code is 1 if any answer was an error."
)
_COLUMNS: Final = (
    ("alone p50", "alone_p50_ms", "{:.2f}"),
    ("p99 ms", "alone_p99_ms", "{:.2f}"),
    ("beside p50", "p50_ms", "{:.2f}"),
    ("p99 ms", "p99_ms", "{:.2f}"),
    ("worst ms", "worst_ms", "{:.1f}"),
    ("p99 is", "ratio", "{:.1f}x"),
    ("theirs/s", "theirs_per_s", "{:.0f}"),
    ("others %", "others_percent", "{:.0f}"),
)


class Crowd(NamedTuple):
    """A kind of clients beside the victim."""

    key: str
    title: str
    kind: str
    """What lab/loads/crowd.py calls it."""
    clients: int
    options: dict[str, Any]
    is_everywhere: bool = False
    """Whether they are spread over all nodes; else they ask the leader, as the victim does."""


CROWDS: Final = (
    Crowd(
        "listing",
        f"listing {LISTED:,} locks",
        "ask",
        CONNECTIONS,
        {"path": f"{wire.LOCKS}?prefix={PREFIX}/listed/&limit={LISTED}"},
    ),
    Crowd("metrics", wire.METRICS, "ask", CONNECTIONS, {"path": wire.METRICS}),
    Crowd("openapi", wire.OPENAPI, "ask", CONNECTIONS, {"path": wire.OPENAPI}),
    Crowd("audit", "audit", "ask", CONNECTIONS, {"path": f"{wire.AUDIT}?limit={AUDIT_LIMIT_MAX}"}),
    Crowd("deep", "64 deep locks at once", "deep", CONNECTIONS, {"prefix": f"{PREFIX}/deep"}),
    Crowd("busy", f"{BUSY} busy clients", "cycle", BUSY, {"prefix": f"{PREFIX}/busy"}, is_everywhere=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    options.add_seconds(parser, SECONDS, "length of a step, of which there are two for each kind")
    parser.add_argument(
        "--only",
        type=_crowds,
        default=CROWDS,
        metavar="NAME,NAME,...",
        help=f"of {', '.join(crowd.key for crowd in CROWDS)} only these",
    )
    add_check(parser)


def _crowds(text: str) -> tuple[Crowd, ...]:
    known = {crowd.key: crowd for crowd in CROWDS}
    names = text.split(",")
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name}: there are {', '.join(known)}")
    return tuple(known[name] for name in known if name in names)


async def _measure(cluster: LocalCluster, arguments: argparse.Namespace) -> Found:
    """Measure the victim alone and beside each kind of clients, in turns."""
    rows: list[Row] = []
    leader = cluster.leader()
    url = cluster.node(leader).http
    names = [f"{PREFIX}/listed/{number}" for number in range(LISTED)]
    async with held_locks(url, names):
        for crowd in arguments.only:
            say(f"{crowd.title}: the victim alone, then beside {crowd.clients}, {arguments.seconds:g} s each")
            alone = await _victim(cluster, url, arguments.seconds)
            urls = [node.http for node in cluster.nodes()] if crowd.is_everywhere else [url]
            async with CrowdProcess.of(urls, crowd.kind, crowd.clients, **crowd.options) as process:
                beside = await _victim(cluster, url, arguments.seconds, process)
            rows.append(_row(crowd, alone, beside))
    if cluster.leader() != leader:
        raise ClusterFailure(
            f"{leader} led at the beginning, and another node at the end: figures of neither"
        )
    errors = [f"{row['title']}: {text}" for row in rows for text in row["errors"]]
    return Found(rows, _bars(rows), errors)


async def _victim(
    cluster: LocalCluster, url: str, seconds: float, crowd: CrowdProcess | None = None
) -> dict[str, Any]:
    """Let the victim work for a while; return its times, and what the others did meanwhile."""
    tally, address = Tally(), urlsplit(url)
    _, victim = await asyncio.get_running_loop().create_connection(
        lambda: Worker(tally, address.netloc, f"{PREFIX}/victim/{time.monotonic_ns()}"),
        address.hostname or "",
        address.port or 80,
    )
    pids, helpers = [node.pid for node in cluster.nodes()], [crowd.pid] if crowd else []
    await asyncio.sleep(WARM_UP_S)
    done = (await crowd.count()).done if crowd else 0
    tally.begin()
    before = Used.now(pids, helpers)
    await asyncio.sleep(seconds)
    theirs = await crowd.count() if crowd else None
    # A step too short for a slow machine lasts until everybody has had an answer.
    waits_until = time.monotonic() + DRAIN_S
    while (not tally.acquires_s or (theirs and theirs.done == done)) and time.monotonic() < waits_until:
        await asyncio.sleep(0.1)
        theirs = await crowd.count() if crowd else None
    acquires_s, after = sorted(tally.acquires_s), Used.now(pids, helpers)
    tally.is_stopping = True
    if (await asyncio.wait([victim.ended], timeout=DRAIN_S))[1]:
        raise ClusterFailure(f"the victim got no answer for {DRAIN_S:.0f} s")
    ended = await crowd.finish() if crowd else None
    return {
        "acquires": len(acquires_s),
        "p50_ms": percentile_ms(acquires_s, 0.5),
        "p99_ms": percentile_ms(acquires_s, 0.99),
        "worst_ms": percentile_ms(acquires_s, 1.0),
        "theirs_per_s": (theirs.done - done) / (after.at_s - before.at_s) if theirs else 0.0,
        "others_percent": after.others_percent(before),
        "errors": [*tally.errors, *(ended.errors if ended else [])],
    }


def _row(crowd: Crowd, alone: dict[str, Any], beside: dict[str, Any]) -> Row:
    """Put both steps together."""
    errors = [*alone["errors"], *beside["errors"]]
    if not alone["acquires"] or not beside["acquires"]:
        errors.append("the victim got no lock at all in one of its steps: that is too short, or it starved")
    if not beside["theirs_per_s"]:
        errors.append("the clients beside the victim got no answer at all")
    return {
        "key": crowd.key,
        "title": crowd.title,
        "clients": crowd.clients,
        "alone_p50_ms": alone["p50_ms"],
        "alone_p99_ms": alone["p99_ms"],
        "p50_ms": beside["p50_ms"],
        "p99_ms": beside["p99_ms"],
        "worst_ms": beside["worst_ms"],
        "ratio": beside["p99_ms"] / alone["p99_ms"] if alone["acquires"] and beside["acquires"] else None,
        "acquires": min(alone["acquires"], beside["acquires"]),
        "theirs_per_s": beside["theirs_per_s"],
        "others_percent": max(alone["others_percent"], beside["others_percent"]),
        "errors": errors,
    }


def _bars(rows: Sequence[Row]) -> list[Bar]:
    found = {row["key"]: row["ratio"] for row in rows if row["acquires"] >= ACQUIRES_MIN}
    return [
        bars.at_most(
            f"p99 at most {SLOWER_MAX:g} times that alone: {crowd.title}", found.get(crowd.key), SLOWER_MAX
        )
        for crowd in CROWDS
    ]


def _table(rows: Sequence[Row]) -> list[str]:
    return table(rows, _COLUMNS)


BENCHMARK: Final = Judged(
    "fairness",
    "how long one client waits while others ask for much",
    DESCRIPTION,
    add_arguments,
    _measure,
    _table,
)
