"""The command line of scripts/bench: what a cluster costs and how fast it is, on this machine."""

import argparse
import asyncio
import contextlib
import functools
import json
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import uvloop

from http_api.__main__ import calm_collector
from lab.bench import (
    events,
    failover,
    fairness,
    growth,
    handoff,
    journal,
    machine,
    memory,
    options,
    peers,
    regions,
    sdk,
    secure,
    sizing,
    smoke,
    snapshot,
)
from lab.loads.load_steps import http_step, stream_step
from lab.measuring import findings, this_machine
from lab.measuring.findings import Judged
from lab.measuring.scratch import scratch_directory
from lab.peers.closed_loop import StuckError
from scripts.lib import guardian, processes
from scripts.lib.ports import PortsBusyError
from scripts.local_cluster import ClusterFailure, LocalCluster


class _Alone(NamedTuple):
    """A benchmark that starts what it measures by itself."""

    help: str
    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


_WITHOUT_CLUSTER: Final = {
    "snapshot": _Alone(
        "memory of a large state, pauses while a snapshot of it is written, restart",
        *(snapshot.DESCRIPTION, snapshot.add_arguments, snapshot.run),
    ),
    "journal": _Alone(
        "one sync of the journal, with and without space prepared ahead",
        *(journal.DESCRIPTION, journal.add_arguments, journal.run),
    ),
    "machine": _Alone(
        "the state machine alone: operations a second, pauses",
        *(machine.DESCRIPTION, machine.add_arguments, machine.run),
    ),
    "events": _Alone(
        "pauses of a node's loop while many leases end at once, and with many watchers",
        *(events.DESCRIPTION, events.add_arguments, events.run),
    ),
    "peers": _Alone(
        "Holdfast beside etcd, ZooKeeper, Redis and PostgreSQL, where these are installed",
        *(peers.DESCRIPTION, peers.add_arguments, peers.run),
    ),
    "regions": _Alone(
        "three nodes far from each other: an acquire by where client and leader are; elections",
        *(regions.DESCRIPTION, regions.add_arguments, regions.run),
    ),
    "memory": _Alone(
        "bytes of a held lock; pauses while a node grows, many leases end, a snapshot is written",
        *(memory.DESCRIPTION, memory.add_arguments, memory.run),
    ),
}
_JUDGED: dict[str, Judged] = {
    "handoff": handoff.BENCHMARK,
    "failover": failover.BENCHMARK,
    "growth": growth.BENCHMARK,
    "fairness": fairness.BENCHMARK,
    "secure": secure.BENCHMARK,
    "sizing": sizing.BENCHMARK,
}

_COLUMNS = (
    ("workers", "workers", "{}"),
    ("cycles_per_s", "cycles/s", "{:.0f}"),
    ("acquire_p50_ms", "acquire p50", "{:.2f}"),
    ("acquire_p99_ms", "p99 ms", "{:.2f}"),
    ("cycle_p50_ms", "cycle p50", "{:.2f}"),
    ("cycle_p99_ms", "p99 ms", "{:.2f}"),
    ("server_us_per_cycle", "nodes us", "{:.0f}"),
    ("client_us_per_cycle", "client us", "{:.0f}"),
    ("others_percent", "others %", "{:.0f}"),
    ("errors_count", "errors", "{}"),
)


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measure a cluster of three nodes on this machine, with fsync on. Client and nodes share "
        "its processors. The exit code is 1 if any answer was an error. 'others %' is the share of all "
        "processors that other programs took meanwhile.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, one in _OF_CLUSTERS.items():
        of_one = commands.add_parser(name, help=one.help, description=one.description)
        if one.workers:
            of_one.add_argument(
                "--workers",
                type=_counts,
                default=one.workers,
                metavar="N,N,...",
                help="how many workers, one step for each number (default:"
                f" {','.join(map(str, one.workers))})",
            )
        options.add_seconds(of_one, one.seconds)
        _add_cluster(of_one, is_running_allowed=True)
    for name, alone in _WITHOUT_CLUSTER.items():
        alone.add_arguments(commands.add_parser(name, help=alone.help, description=alone.description))
    commands.add_parser("smoke", help="a little of everything that is quick", description=smoke.DESCRIPTION)
    for name, judged in _JUDGED.items():
        of_judged = commands.add_parser(name, help=judged.help, description=judged.description)
        judged.add_arguments(of_judged)
        _add_cluster(of_judged, is_running_allowed=name in ("handoff", "fairness"))
    return parser


def _add_cluster(parser: argparse.ArgumentParser, *, is_running_allowed: bool) -> None:
    """Add which cluster is measured."""
    if is_running_allowed:
        parser.add_argument(
            "--dir", type=Path, metavar="DIR", help="measure the running cluster of DIR instead"
        )
    options.add_disk(parser, "a cluster of its own keeps its data")
    options.add_json(parser)


def _counts(text: str) -> tuple[int, ...]:
    """Read numbers of workers."""
    counts = tuple(int(part) for part in text.split(","))
    if min(counts) < 1:
        raise argparse.ArgumentTypeError(f"{text}: each number of workers must be at least 1")
    return counts


def _steps(
    step: Callable[[LocalCluster, int, float], Coroutine[Any, Any, dict[str, Any]]],
    cluster: LocalCluster,
    arguments: argparse.Namespace,
) -> tuple[list[dict[str, Any]], int]:
    """Run all steps; print the table as it grows."""
    rows = []
    if not arguments.json:
        print("  ".join(f"{title:>11}" for _, title, _ in _COLUMNS))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for workers in arguments.workers:
            row = runner.run(step(cluster, workers, arguments.seconds))
            rows.append(row)
            if not arguments.json:
                print("  ".join(f"{form.format(row[key]):>11}" for key, _, form in _COLUMNS), flush=True)
            for error in row["errors"]:
                print(f"scripts/bench: error: {error}", file=sys.stderr)
    is_clean = all(row["errors_count"] == 0 and row["cycles_per_s"] > 0 for row in rows)
    return rows, 0 if is_clean else 1


def _idle(cluster: LocalCluster, arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], int]:
    """Watch the nodes do nothing."""
    nodes = cluster.nodes()
    before_s = [processes.cpu_s(node.pid) for node in nodes]
    began_s = time.perf_counter()
    time.sleep(arguments.seconds)
    elapsed_s = time.perf_counter() - began_s
    rows = [
        {
            "node": node.id,
            "cpu_percent": (processes.cpu_s(node.pid) - node_before_s) / elapsed_s * 100,
            "rss_mib": processes.resident_bytes(node.pid) / 2**20,
        }
        for node, node_before_s in zip(nodes, before_s, strict=True)
    ]
    if not arguments.json:
        print(f"{'node':<6}{'% of a core':>12}{'RSS MiB':>10}")
        for row in rows:
            print(f"{row['node']:<6}{row['cpu_percent']:>12.2f}{row['rss_mib']:>10.1f}")
    return rows, 0


class _OfCluster(NamedTuple):
    """A benchmark of a cluster whose figures nobody judges."""

    help: str
    description: str
    run: Callable[[LocalCluster, argparse.Namespace], tuple[list[dict[str, Any]], int]]
    workers: tuple[int, ...] = ()
    """How many workers, one step for each number; none: the benchmark says itself."""
    seconds: float = 5.0


_OF_CLUSTERS: Final = {
    "http": _OfCluster(
        "closed loop of acquire and release over HTTP",
        "Each worker acquires and releases a name of its own, again and again, on its own keep-alive"
        " connection; workers are spread over the nodes. 'nodes us' and 'client us' are processor time per"
        " cycle, of all nodes together and of this client.",
        functools.partial(_steps, http_step),
        (1, 16, 64, 256),
    ),
    "stream": _OfCluster(
        "closed loop of acquire and release over one stream",
        "As `http`, but all workers, at most 512, share one stream to the leader: what they ask at the same"
        " time goes as one message.",
        functools.partial(_steps, stream_step),
        (1, 16, 256, 512),
    ),
    "sdk": _OfCluster(
        "the Python clients against the lean one",
        sdk.DESCRIPTION,
        functools.partial(sdk.run, http_step),
    ),
    "idle": _OfCluster(
        "processor time and memory of idle nodes",
        "Watch the nodes of a cluster do nothing.",
        _idle,
        seconds=20.0,
    ),
}


@contextlib.contextmanager
def _cluster(arguments: argparse.Namespace) -> Iterator[LocalCluster]:
    """Give the cluster to measure: a running one, or an own one that is gone afterwards."""
    if getattr(arguments, "dir", None) is not None:
        yield LocalCluster(arguments.dir)
        return
    with (
        scratch_directory(arguments.disk) as directory,
        LocalCluster.up(directory, progress=lambda text: print(f"bench: {text}", file=sys.stderr)) as cluster,
    ):
        yield cluster


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = build_parser().parse_args(argv)
    # So that a terminated run cleans up like an interrupted one. Not by raising KeyboardInterrupt here: a
    # callback of the event loop could swallow that, and its runner knows what to do about SIGINT.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    if arguments.command != "sdk":  # whose clients are ours, in programs that leave the collector alone
        calm_collector()
    try:
        if arguments.command == "smoke":
            return smoke.run(main)
        if arguments.command in _WITHOUT_CLUSTER:
            with guardian.guarded():
                return _WITHOUT_CLUSTER[arguments.command].run(arguments)
        with guardian.guarded(), _cluster(arguments) as cluster:
            machine = this_machine.describe(cluster.directory)
            print(f"bench: {machine}", file=sys.stderr)
            if arguments.command in _JUDGED:
                return findings.run(_JUDGED[arguments.command], cluster, arguments, machine)
            rows, code = _OF_CLUSTERS[arguments.command].run(cluster, arguments)
            if arguments.json:
                print(json.dumps({"command": arguments.command, "machine": machine, "rows": rows}, indent=2))
            return code
    except (ClusterFailure, PortsBusyError, StuckError, OSError) as error:
        print(f"scripts/bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
