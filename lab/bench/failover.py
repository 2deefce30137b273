"""scripts/bench failover: for how long nobody gets a lock when the leader is lost, or changed on purpose."""

import argparse
import asyncio
import http.client
import itertools
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast import wire
from lab.bench import options
from lab.loads.grant_load import GrantLoad, longest_gap_s
from lab.measuring import bars
from lab.measuring.bars import Bar
from lab.measuring.findings import Found, Judged, Row, add_check, say, table
from lab.measuring.used import Used
from scripts.local_cluster import ClusterFailure, LocalCluster

CLIENTS: Final = 16
TIMES: Final = 10
MEDIAN_S_MAX: Final = 0.2
"""Seconds of the median gap after a kill -9 of the leader, at most."""
WORST_S_MAX: Final = 0.4
PLANNED_S_MAX: Final = 0.05
"""Seconds without a grant when the leader is changed on purpose, at most."""
AFTER_GRANTS: Final = 100
AFTER_S: Final = 1.0
"""So much later, and so many grants, a change still belongs to its gap: clients may find out late."""
SETTLE_S: Final = 1.0
"""Seconds for a node that came back to catch up, before the next change."""
EXIT_S: Final = 20.0
TRANSFER_S: Final = 10.0
KILL, STOP, TRANSFER = "kill -9 of the leader", "SIGTERM of the leader", "transfer of leadership"
DESCRIPTION: Final = (
    f"While {CLIENTS} Python clients, spread over three nodes, acquire and release locks of their own,"
    " with a patience of 10 s, the leader is killed with -9, then told to stop with SIGTERM, then asked"
    " to hand over its leadership: each so many times. Measured is the longest time in which nobody was"
    f" granted a lock, from the moment of the change until {AFTER_S:g} s and {AFTER_GRANTS} grants after"
    " it. A node that ended is started again and catches up before the next change; that is not"
    f" measured. The bars: after kill -9 a median of {MEDIAN_S_MAX * 1000:g} ms and"
    f" {WORST_S_MAX * 1000:g} ms at worst, {PLANNED_S_MAX * 1000:g} ms at worst for each planned change."
    f" {TIMES} times each take two to three minutes. The exit code is 1 if any client saw an error."
)
_COLUMNS: Final = (
    ("times", "times", "{}"),
    ("median ms", "median_ms", "{:.0f}"),
    ("worst ms", "worst_ms", "{:.0f}"),
    ("quiet p99", "quiet_p99_ms", "{:.0f}"),
    ("grants/s", "grants_per_s", "{:.0f}"),
    ("errors", "errors_count", "{}"),
    ("others %", "others_percent", "{:.0f}"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    for flag, what in (
        ("--kills", "how often the leader is killed"),
        ("--stops", "how often it is told to stop"),
        ("--transfers", "how often it is asked to hand over"),
    ):
        options.add_number(parser, flag, TIMES, what, more="; 0: leave that out")
    options.add_number(parser, "--clients", CLIENTS, "how many clients")
    add_check(parser)


# -- the changes --------------------------------------------------------------------------------------------


def _kill(cluster: LocalCluster, leader: str) -> None:
    cluster.kill(leader)


def _stop(cluster: LocalCluster, leader: str) -> None:
    cluster.send_signal(leader, signal.SIGTERM)
    if not cluster.wait_exit(leader, EXIT_S):
        raise ClusterFailure(f"{leader} does not end {EXIT_S:.0f} s after SIGTERM")


def _transfer(cluster: LocalCluster, leader: str) -> None:
    connection = cluster.connection(leader, TRANSFER_S)
    try:
        connection.request("POST", wire.CLUSTER_TRANSFER_LEADERSHIP, b'{"reason": "a measurement"}')
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise ClusterFailure(f"{leader} did not hand over: {answer.status} {body[:300].decode()}")


_CHANGES: Final[dict[str, Callable[[LocalCluster, str], None]]] = {
    KILL: _kill,
    STOP: _stop,
    TRANSFER: _transfer,
}


# -- measuring ----------------------------------------------------------------------------------------------


async def _measure(cluster: LocalCluster, arguments: argparse.Namespace) -> Found:
    """Do all changes of one kind after those of the other, each kind with a load of its own."""
    rows: list[Row] = []
    errors: list[str] = []
    wanted = {KILL: arguments.kills, STOP: arguments.stops, TRANSFER: arguments.transfers}
    for what, times in wanted.items():
        if times:
            row = await _row(cluster, what, times, arguments.clients)
            rows.append(row)
            errors += [f"{what}: {text}" for text in row["errors"]]
    return Found(rows, _bars(rows), errors)


async def _row(cluster: LocalCluster, what: str, times: int, clients: int) -> Row:
    """Change the leader so many times under load; return the figures."""
    gaps_s: list[float] = []
    quiet_s: list[float] = []
    others: list[float] = []
    async with GrantLoad([node.http for node in cluster.nodes()], clients) as load:
        began_s = time.monotonic()
        for number in range(1, times + 1):
            leader = await asyncio.to_thread(cluster.leader)
            quiet_s += await _quiet_s(load)
            # What a node that ends has used cannot be read afterwards: then that of the others counts.
            pids = [node.pid for node in cluster.nodes() if node.id != leader or what == TRANSFER]
            before = Used.now(pids)
            gap_s = await _gap_s(cluster, load, leader, what)
            others.append(Used.now(pids).others_percent(before))
            gaps_s.append(gap_s)
            say(f"{what}, {number} of {times}: {gap_s * 1000:.0f} ms without a grant")
            await _bring_back(cluster, leader)
        elapsed_s = time.monotonic() - began_s
    quiet_s.sort()
    return {
        "title": what,
        "times": times,
        "clients": clients,
        "gaps_ms": [gap_s * 1000 for gap_s in gaps_s],
        "median_ms": statistics.median(gaps_s) * 1000,
        "worst_ms": max(gaps_s) * 1000,
        "quiet_p99_ms": quiet_s[int(len(quiet_s) * 0.99)] * 1000,
        "grants_per_s": len(load.grants_s) / elapsed_s,
        "others_percent": max(others),
        "errors_count": load.errors_count,
        "errors": load.errors,
    }


async def _quiet_s(load: GrantLoad) -> list[float]:
    """Return the times between grants while nothing happens: what a gap is to be compared with."""
    began = len(load.grants_s)
    await load.more(AFTER_GRANTS)
    moments_s = load.grants_s[began:]
    return [after - before for before, after in itertools.pairwise(moments_s)]


async def _gap_s(cluster: LocalCluster, load: GrantLoad, leader: str, what: str) -> float:
    """Change the leader; return the longest time without a grant."""
    began_s = time.monotonic()
    change = asyncio.create_task(asyncio.to_thread(_CHANGES[what], cluster, leader))
    try:
        await load.more(AFTER_GRANTS)
        await asyncio.sleep(max(0.0, began_s + AFTER_S - time.monotonic()))
    finally:
        await change
    await load.more(1)  # so that a gap which still lasts is counted
    return longest_gap_s(load.grants_s, began_s, load.grants_s[-1])


async def _bring_back(cluster: LocalCluster, leader: str) -> None:
    """Start a node that has ended, and wait until all is as before."""
    if not await asyncio.to_thread(cluster.is_alive, leader):
        await asyncio.to_thread(cluster.start, leader)
    await asyncio.to_thread(cluster.wait_ready)
    await asyncio.sleep(SETTLE_S)


# -- telling ------------------------------------------------------------------------------------------------


def _bars(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """Judge each kind of change; what happened less often than TIMES times says too little."""
    by_title = {row["title"]: row for row in rows}

    def figure(what: str, key: str) -> tuple[float | None, bool]:
        row = by_title.get(what)
        return (row[key], row["times"] >= TIMES and row["clients"] >= CLIENTS) if row else (None, False)

    found = []
    for what, word, key, most_s in (
        (KILL, "median", "median_ms", MEDIAN_S_MAX),
        (KILL, "worst", "worst_ms", WORST_S_MAX),
        (STOP, "worst", "worst_ms", PLANNED_S_MAX),
        (TRANSFER, "worst", "worst_ms", PLANNED_S_MAX),
    ):
        value, is_full = figure(what, key)
        text = f"{what}, {TIMES} times: at most {most_s * 1000:g} ms without a grant, {word}"
        found.append(bars.at_most(text, value, most_s * 1000, is_full=is_full))
    return found


def _table(rows: Sequence[Row]) -> list[str]:
    return [*table(rows, _COLUMNS), *(_gaps(row) for row in rows)]


def _gaps(row: Row) -> str:
    return f"{row['title']}: {', '.join(f'{gap_ms:.0f}' for gap_ms in sorted(row['gaps_ms']))} ms"


BENCHMARK: Final = Judged(
    "failover",
    "for how long nobody gets a lock when the leader is killed, stopped or changed",
    DESCRIPTION,
    add_arguments,
    _measure,
    _table,
)
