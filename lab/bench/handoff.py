"""scripts/bench handoff: how fast one contended lock goes from holder to holder."""

import argparse
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from lab.bench import options
from lab.measuring import bars
from lab.measuring.bars import Bar
from lab.measuring.findings import Found, Judged, Row, add_check, say, table
from lab.peers import measure, ours
from scripts.local_cluster import LocalCluster

WAITERS: Final = 16
WARM_UP_S: Final = 1.0
PER_S_MIN: Final = 900
"""Grants of one lock per second with WAITERS that want it."""
DESCRIPTION: Final = (
    f"{WAITERS} workers want one lock: each acquires it, waiting, and releases it as soon as it has it,"
    " again and again. Measured are grants a second over HTTP (a keep-alive connection for each, spread"
    " over the nodes), with a stream to the leader for each, and with one stream for all; each for"
    f" `--seconds` after {WARM_UP_S:g} s that do not count. The bar is {PER_S_MIN} grants a second in"
    " each of them. The exit code is 1 if any answer was an error."
)
_COLUMNS: Final = (
    ("grants/s", "cycles_per_s", "{:.0f}"),
    ("acquire p50", "acquire_p50_ms", "{:.2f}"),
    ("p99 ms", "acquire_p99_ms", "{:.2f}"),
    ("nodes us", "nodes_us_per_cycle", "{:.0f}"),
    ("client us", "client_us_per_cycle", "{:.0f}"),
    ("others %", "others_percent", "{:.0f}"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    options.add_number(parser, "--waiters", WAITERS, "how many workers")
    options.add_seconds(parser)
    add_check(parser)


async def _measure(cluster: LocalCluster, arguments: argparse.Namespace) -> Found:
    """Run one step for each way."""
    rows: list[Row] = []
    errors: list[str] = []
    for way in [way for way in ours.ways(cluster) if way.is_contended]:
        say(f"{way.title}, {arguments.waiters} waiters, {arguments.seconds:g} s")
        row = await measure.step(
            way,
            len(cluster.nodes()),
            [node.pid for node in cluster.nodes()],
            workers=arguments.waiters,
            warm_up_s=WARM_UP_S,
            seconds=arguments.seconds,
            progress=say,
        )
        rows.append(msgspec.to_builtins(row))
        errors += [f"{row.title}: {text}" for text in row.errors]
        if not row.cycles_per_s:
            errors.append(f"{row.title}: nobody got the lock")
    return Found(rows, _bars(rows), errors)


def _bars(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    return [
        bars.at_least(
            f"{row['title']}: {PER_S_MIN} grants/s of one lock with {WAITERS} waiters",
            row["cycles_per_s"],
            PER_S_MIN,
            is_full=row["workers"] == WAITERS,
        )
        for row in rows
    ]


def _table(rows: Sequence[Row]) -> list[str]:
    return table(rows, _COLUMNS)


BENCHMARK: Final = Judged(
    "handoff",
    "how fast one contended lock goes from holder to holder",
    DESCRIPTION,
    add_arguments,
    _measure,
    _table,
)
