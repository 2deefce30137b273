"""scripts/bench peers: Holdfast beside etcd, ZooKeeper, Redis and PostgreSQL, asked by the same load."""

import argparse
import asyncio
import contextlib
import functools
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import uvloop

from lab.bench import options
from lab.measuring import this_machine
from lab.measuring.scratch import scratch_directory
from lab.peers import busy, plot, report, shares
from lab.peers.closed_loop import StuckError
from lab.peers.etcd import Etcd
from lab.peers.measure import Row, step
from lab.peers.ours import Holdfast
from lab.peers.postgresql import PostgreSql
from lab.peers.redis import Redis
from lab.peers.system import Running, System, Way
from lab.peers.zookeeper import ZooKeeper
from scripts.lib.ports import PortsBusyError
from scripts.local_cluster import ClusterFailure

SYSTEMS: Final[tuple[System, ...]] = (Holdfast(), Etcd(), ZooKeeper(), Redis(), PostgreSql())
WORKERS_MAX: Final = 512
"""More do not fit into the window of one stream."""
SHARE_MIN: Final = 0.01
"""The least that the kernel gives: a millisecond of each period."""
DESCRIPTION: Final = (
    "Start Holdfast, etcd, ZooKeeper, Redis and PostgreSQL on loopback, one after the other, and let the same"
    " closed loop acquire and release locks: first each worker one of its own, then a few workers one lock"
    " that is handed on. 'HTTP is' and 'stream is': cycles of Holdfast over each, divided by the row's."
    " Systems whose programs are not installed are left out. The exit code is 1 if any answer was an error."
)


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def _tell(what: str, text: str) -> None:
    _say(f"{what}: {text}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument(
        "--workers",
        type=_workers,
        default=(256,),
        metavar="N,N,...",
        help="workers with a lock each, one step for each number (default: 256)",
    )
    parser.add_argument(
        "--waiters",
        type=_waiters,
        default=16,
        metavar="N",
        help="workers that contend for one lock (default: 16; 0: leave that out)",
    )
    options.add_seconds(parser)
    options.add_number(
        parser,
        "--warm-up",
        3.0,
        "how long before a step is not counted: compilers at run time need it",
        read=float,
        metavar="S",
    )
    options.add_number(parser, "--rounds", 1, "repeat everything N times, and show medians")
    parser.add_argument(
        "--share",
        type=_share,
        metavar="X",
        help="hold each node of every system, with all that it starts, to this share of a processor, such as"
        " 0.3; the client has no limit (needs root and control groups)",
    )
    parser.add_argument(
        "--busy",
        action="store_true",
        help="also measure one worker while another program keeps one processor busy",
    )
    parser.add_argument(
        "--only",
        type=_systems,
        default=SYSTEMS,
        metavar="NAME,NAME,...",
        help=f"of {', '.join(system.name for system in SYSTEMS)} only these",
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures to a file")
    parser.add_argument("--plot", type=Path, metavar="PATH", help="write a plot to a file, as SVG")
    options.add_disk(parser, "all of them keep their data meanwhile")


def _count(text: str) -> int:
    count = int(text)
    if not 1 <= count <= WORKERS_MAX:
        raise argparse.ArgumentTypeError(f"{text}: must be 1 to {WORKERS_MAX}")
    return count


def _workers(text: str) -> tuple[int, ...]:
    return tuple(_count(part) for part in text.split(","))


def _waiters(text: str) -> int:
    return 0 if text == "0" else _count(text)


def _share(text: str) -> float:
    share, most = float(text), os.cpu_count() or 1
    if not SHARE_MIN <= share <= most:
        raise argparse.ArgumentTypeError(f"{text}: must be {SHARE_MIN} to {most} processors")
    return share


def _systems(text: str) -> tuple[System, ...]:
    names = text.split(",")
    known = {system.name: system for system in SYSTEMS}
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name}: there are {', '.join(known)}")
    return tuple(known[name] for name in known if name in names)


def run(arguments: argparse.Namespace) -> int:
    """Measure what is there; return the exit code. To be called inside `guardian.guarded()`."""
    if arguments.share is not None:
        shares.try_out(arguments.share)
    machine = {**this_machine.describe(arguments.disk), "share": arguments.share}
    machine["load_before"] = this_machine.load()
    _say(f"{machine}")
    skipped = {system.name: packages for system in arguments.only if (packages := system.missing())}
    for name, packages in skipped.items():
        _say(f"{name} is skipped: it is not installed; apt-get install {' '.join(packages)}")
    rounds: list[Row] = []
    failures_count = 0
    for number in range(1, arguments.rounds + 1):
        for system in arguments.only:
            if system.name in skipped:
                continue
            where = f"round {number}: " if arguments.rounds > 1 else ""
            try:
                _measure(system, arguments, where, rounds)
            except (ClusterFailure, PortsBusyError, StuckError, OSError) as error:
                failures_count += 1
                print(f"scripts/bench: {where}{system.name}: {error}", file=sys.stderr)
    machine["load_after"] = this_machine.load()
    rows = report.medians(rounds)
    print("\n".join([*report.table(rows), "", *_circumstances(machine)]))
    print(f"load of the machine: {machine['load_before']} before, {machine['load_after']} after")
    for name, packages in skipped.items():
        print(f"skipped: {name}, not installed (Debian's packages: {' '.join(packages)})")
    _write(arguments, rows, rounds, machine, skipped)
    for row in rows:
        for text in row.errors:
            print(f"scripts/bench: error: {row.title}: {text}", file=sys.stderr)
    is_clean = all(row.errors_count == 0 and row.cycles_per_s > 0 for row in rows)
    return 0 if is_clean and rows and not failures_count else 1


def _measure(system: System, arguments: argparse.Namespace, where: str, found: list[Row]) -> None:
    """Start a system, ask it in all its ways, and end it; add to `found`."""
    _say(f"{where}starting {system.name}, {system.nodes} node{'s' if system.nodes > 1 else ''}")
    most = max(*arguments.workers, arguments.waiters)
    with (
        own_directory(arguments.disk) as directory,
        shares.held(arguments.share) as hold,
        system.running(directory, most) as running,
    ):
        hold(running.pids)
        measured = functools.partial(_step, system, running, arguments=arguments, where=where)
        for way in running.ways:
            counts = [arguments.waiters] if way.is_contended else arguments.workers
            found += [measured(way, workers=workers) for workers in counts if workers]
        if arguments.busy:
            with busy.processor(directory) as pid:
                found += [measured(way, workers=1, pid=pid) for way in running.ways if not way.is_contended]


def _step(
    system: System,
    running: Running,
    way: Way,
    *,
    workers: int,
    arguments: argparse.Namespace,
    where: str,
    pid: int | None = None,
) -> Row:
    """Run one step, beside the busy process `pid` if there is one, and say so."""
    what = f"{where}{way.title}, {'one lock' if way.is_contended else 'own locks'}"
    what += "" if pid is None else ", beside a busy processor"
    _tell(what, f"{workers} workers, {arguments.warm_up + arguments.seconds:.0f} s")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        row = runner.run(
            step(
                way,
                system.nodes,
                running.pids,
                workers=workers,
                warm_up_s=arguments.warm_up,
                seconds=arguments.seconds,
                progress=functools.partial(_tell, what),
                busy=pid,
            )
        )
    _tell(what, f"{row.cycles_per_s:.0f} a second")
    return row


@contextlib.contextmanager
def own_directory(disk: Path) -> Iterator[Path]:
    """Give a directory that is gone afterwards, also if this program is killed."""
    with scratch_directory(disk, "holdfast-peers-") as directory:
        directory.chmod(0o711)  # PostgreSQL runs as another user, who must find what is its own
        yield directory


def _circumstances(machine: dict[str, Any]) -> list[str]:
    """Say on what, and under which limits, figures were measured: one line each."""
    held = [] if machine["share"] is None else [f"each node is held to {machine['share']:g} of a processor"]
    return [*held, f"Holdfast's nodes and all clients run on Python {machine['python']}"]


def _write(
    arguments: argparse.Namespace,
    rows: Sequence[Row],
    rounds: Sequence[Row],
    machine: dict[str, Any],
    skipped: dict[str, list[str]],
) -> None:
    """Write the files that were asked for."""
    if arguments.json is not None:
        found = report.document(rows, rounds, machine, skipped)
        arguments.json.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    if arguments.plot is not None:
        others = max((row.others_percent for row in rows), default=0.0)
        notes = [
            f"scripts/bench peers: client and nodes share {machine['cpus']} processors; all sync to disk.",
            f"Load of the machine before: {machine['load_before']}; others took up to {others:.0f} % of it.",
            *(f"{line[0].upper()}{line[1:]}." for line in _circumstances(machine)),
        ]
        arguments.plot.write_text(plot.svg(rows, notes), "utf-8")
