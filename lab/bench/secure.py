"""scripts/bench secure: what TLS and tokens cost a cluster."""

import argparse
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from holdfast import token_lines
from lab.bench import options
from lab.loads.load_steps import http_step
from lab.measuring import bars
from lab.measuring.bars import Bar
from lab.measuring.findings import Found, Judged, Row, add_check, say, table
from scripts.lib.cluster_file import CLIENT
from scripts.local_cluster import LocalCluster

WORKERS: Final = 256
ROUNDS: Final = 3
SECONDS: Final = 5.0
SHARE_MIN: Final = 85.0
"""Percent of the cycles of a cluster without all that, at least."""
TOKEN: Final = token_lines.TOKEN_PREFIX + "b" * 43
"""Of clusters that live as long as a run, on loopback."""
DESCRIPTION: Final = (
    f"Two clusters on this machine, in turns: one that speaks in the clear and lets everybody do everything,"
    " and one with TLS 1.3 for clients, who show certificates, TLS between its nodes, and a tokens file, by"
    " whose lines each request is judged. Each worker acquires and releases a name of its own over HTTP, on"
    " its own keep-alive connection, in which it shakes hands once. The bar: with all that the medians of"
    f" the rounds are at least {SHARE_MIN:g} % of the cycles without. The cluster that has no turn is idle."
    " The exit code is 1 if any answer was an error."
)
_COLUMNS: Final = (
    ("cycles/s", "cycles_per_s", "{:.0f}"),
    ("acquire p50", "acquire_p50_ms", "{:.2f}"),
    ("p99 ms", "acquire_p99_ms", "{:.2f}"),
    ("nodes us", "server_us_per_cycle", "{:.0f}"),
    ("client us", "client_us_per_cycle", "{:.0f}"),
    ("others %", "others_percent", "{:.0f}"),
)
_PLAIN: Final = "in the clear"
_SECURE: Final = "TLS and tokens"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    options.add_number(parser, "--workers", WORKERS, "how many workers")
    options.add_number(parser, "--rounds", ROUNDS, "turns of each")
    options.add_seconds(parser, SECONDS)
    add_check(parser)


@contextmanager
def _secure_cluster(beside: LocalCluster) -> Iterator[LocalCluster]:
    """Start a cluster with all that, in a folder of another one's, and remove it afterwards."""
    with TemporaryDirectory(prefix="secure-", dir=beside.directory) as folder:
        tokens = Path(folder) / "tokens"
        digest = token_lines.digest(TOKEN.encode()).hex()
        # The second one asks who leads.
        tokens.write_text(f"bench sha256:{digest} read,acquire@bench\nself cert:{CLIENT} read\n")
        tokens.chmod(0o600)
        args = ("--tokens", str(tokens))
        with LocalCluster.up(
            Path(folder) / "cluster", tls=True, peer_tls=True, extra_args=args, progress=say
        ) as cluster:
            yield cluster


async def _measure(cluster: LocalCluster, arguments: argparse.Namespace) -> Found:
    """Measure both in turns."""
    rows: list[Row] = []
    with _secure_cluster(cluster) as secure:
        for number in range(1, arguments.rounds + 1):
            for title, which, token in ((_PLAIN, cluster, ""), (_SECURE, secure, TOKEN)):
                say(f"{title}, {arguments.workers} workers, {arguments.seconds:g} s, round {number}")
                row = await http_step(which, arguments.workers, arguments.seconds, token=token)
                rows.append({"title": title, **row})
    errors = [f"{row['title']}: {text}" for row in rows for text in row["errors"]]
    errors += [f"{row['title']}: nobody got a lock" for row in rows if not row["cycles_per_s"]]
    return Found(rows, _bars(rows), errors)


def _bars(rows: Sequence[Row]) -> list[Bar]:
    plain, secure = (
        statistics.median([row["cycles_per_s"] for row in rows if row["title"] == title])
        for title in (_PLAIN, _SECURE)
    )
    is_full = all(row["workers"] >= WORKERS for row in rows)
    share = secure / plain * 100 if plain else None
    return [bars.at_least(f"{SHARE_MIN:g} % of the cycles: {_SECURE}", share, SHARE_MIN, is_full=is_full)]


def _table(rows: Sequence[Row]) -> list[str]:
    return table(rows, _COLUMNS)


BENCHMARK: Final = Judged(
    "secure",
    "what TLS and tokens cost",
    DESCRIPTION,
    add_arguments,
    _measure,
    _table,
)
