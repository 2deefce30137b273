"""The command line of scripts/bench: what a cluster costs and how fast it is, on this machine."""

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

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

WORKERS = (1, 16, 64, 256)
STREAM_WORKERS = (1, 16, 256, 512)
_WITHOUT_CLUSTER = {
    "snapshot": snapshot.run,
    "journal": journal.run,
    "machine": machine.run,
    "events": events.run,
    "memory": memory.run,
    "peers": peers.run,
    "regions": regions.run,
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
    http = commands.add_parser(
        "http",
        help="closed loop of acquire and release over HTTP",
        description="Each worker acquires and releases a name of its own, again and again, on its own "
        "keep-alive connection; workers are spread over the nodes. 'nodes us' and 'client us' are processor "
        "time per cycle, of all nodes together and of this client.",
    )
    http.add_argument(
        "--workers",
        type=_counts,
        default=WORKERS,
        metavar="N,N,...",
        help="how many workers, one step for each number (default: 1,16,64,256)",
    )
    http.add_argument("--seconds", type=float, default=5.0, metavar="S", help="length of a step (default: 5)")
    of_stream = commands.add_parser(
        "stream",
        help="closed loop of acquire and release over one stream",
        description="As `http`, but all workers share one stream to the leader: what they ask at the same"
        " time goes as one message.",
    )
    of_stream.add_argument(
        "--workers",
        type=_counts,
        default=STREAM_WORKERS,
        metavar="N,N,...",
        help="how many workers, at most 512, one step for each number (default: 1,16,256,512)",
    )
    of_stream.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="length of a step (default: 5)"
    )
    idle = commands.add_parser("idle", help="processor time and memory of idle nodes")
    idle.add_argument(
        "--seconds", type=float, default=20.0, metavar="S", help="how long to look (default: 20)"
    )
    of_sdk = commands.add_parser(
        "sdk", help="the Python clients against the lean one", description=sdk.DESCRIPTION
    )
    of_sdk.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="length of a step (default: 5)"
    )
    of_snapshot = commands.add_parser(
        "snapshot",
        help="memory of a large state, pauses while a snapshot of it is written, restart",
        description=snapshot.DESCRIPTION,
    )
    snapshot.add_arguments(of_snapshot)
    of_journal = commands.add_parser(
        "journal",
        help="one sync of the journal, with and without space prepared ahead",
        description=journal.DESCRIPTION,
    )
    journal.add_arguments(of_journal)
    of_machine = commands.add_parser(
        "machine",
        help="the state machine alone: operations a second, pauses",
        description=machine.DESCRIPTION,
    )
    machine.add_arguments(of_machine)
    of_events = commands.add_parser(
        "events",
        help="pauses of a node's loop while many leases end at once, and with many watchers",
        description=events.DESCRIPTION,
    )
    events.add_arguments(of_events)
    of_peers = commands.add_parser(
        "peers",
        help="Holdfast beside etcd, ZooKeeper, Redis and PostgreSQL, where these are installed",
        description=peers.DESCRIPTION,
    )
    peers.add_arguments(of_peers)
    of_regions = commands.add_parser(
        "regions",
        help="three nodes far from each other: an acquire by where client and leader are; elections",
        description=regions.DESCRIPTION,
    )
    regions.add_arguments(of_regions)
    commands.add_parser("smoke", help="a little of everything that is quick", description=smoke.DESCRIPTION)
    of_memory = commands.add_parser(
        "memory",
        help="bytes of a held lock; pauses while a node grows, many leases end, a snapshot is written",
        description=memory.DESCRIPTION,
    )
    memory.add_arguments(of_memory)
    judged = {}
    for name, benchmark in _JUDGED.items():
        judged[name] = commands.add_parser(name, help=benchmark.help, description=benchmark.description)
        benchmark.add_arguments(judged[name])
    for command in (http, of_stream, of_sdk, idle, judged["handoff"], judged["fairness"]):
        command.add_argument(
            "--dir", type=Path, metavar="DIR", help="measure the running cluster of DIR instead"
        )
    for command in (http, of_stream, of_sdk, idle, *judged.values()):
        command.add_argument(
            "--disk",
            type=Path,
            default=Path("/var/tmp"),  # noqa: S108 - made with mkdtemp; unlike /tmp it is a real disk
            metavar="DIR",
            help="where a cluster of its own keeps its data (default: /var/tmp)",
        )
        command.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser


def _counts(text: str) -> tuple[int, ...]:
    """Read numbers of workers."""
    counts = tuple(int(part) for part in text.split(","))
    if min(counts) < 1:
        raise argparse.ArgumentTypeError(f"{text}: each number of workers must be at least 1")
    return counts


def _http(cluster: LocalCluster, arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], int]:
    """Run all steps over HTTP."""
    return _steps(http_step, cluster, arguments)


def _stream(cluster: LocalCluster, arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], int]:
    """Run all steps over a stream."""
    return _steps(stream_step, cluster, arguments)


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


def _sdk(cluster: LocalCluster, arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], int]:
    """Measure the Python clients."""
    return sdk.run(cluster, arguments, http_step)


_OF_CLUSTERS = {"http": _http, "stream": _stream, "idle": _idle, "sdk": _sdk}


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
                return _WITHOUT_CLUSTER[arguments.command](arguments)
        with guardian.guarded(), _cluster(arguments) as cluster:
            machine = this_machine.describe(cluster.directory)
            print(f"bench: {machine}", file=sys.stderr)
            if arguments.command in _JUDGED:
                return findings.run(_JUDGED[arguments.command], cluster, arguments, machine)
            rows, code = _OF_CLUSTERS[arguments.command](cluster, arguments)
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
