"""scripts/bench memory: what a held lock takes, and what stops a node's loop while it has very many.

The state machine alone in processes of their own; then one node in this process, with fsync on, its loop
watched from inside.
"""

import argparse
import asyncio
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import uvloop

from lab.bench import options
from lab.bench.events import let_end
from lab.bench.snapshot import COMPACT_ENTRIES, write_under_load
from lab.loads.line_process import environment
from lab.loads.node_load import LOAD_WORKERS, fill, leading_node, single_config
from lab.measuring import bars, state_bytes, this_machine
from lab.measuring.bars import Bar
from lab.measuring.findings import add_check, say
from lab.measuring.pauses import PauseMeter
from lab.measuring.scratch import scratch_directory
from lab.measuring.used import Used
from scripts.lib import processes

LOCKS: Final = 1_000_000
LEASES: Final = 100_000
STATE_BYTES_MAX: Final = 600
"""Bytes of a held lock in the state, at most: a flat name, a lease of its own or on a stream."""
NODE_BYTES_MAX: Final = 1024
"""Bytes of a node for each held lock, all told, at most."""
PAUSE_MS_MAX: Final = 50.0
"""Milliseconds for which the loop of a large node may stop, at most."""
GATHER_S: Final = 15.0
DESCRIPTION: Final = (
    f"What {LOCKS:,} held locks take. First of the state machine alone, in a process of its own for each"
    " kind: flat names with a lease each, flat names on streams, and names of three parts with a lease and an"
    " owner each. Then"
    " of a node (one node, fsync on, in this process) that acquires them; this counts everything that"
    f" the process grew by, its log and its tables included. Meanwhile, and while {LEASES:,} more leases"
    f" end at the same moment and a snapshot is written, both with {LOAD_WORKERS} clients that acquire"
    " and release, the longest pause of its loop: how late it runs what is due every millisecond. The"
    f" bars: {STATE_BYTES_MAX} bytes in the state, {NODE_BYTES_MAX} of the node, no pause over"
    f" {PAUSE_MS_MAX:g} ms. They are judged with as many locks and leases only. It takes about five"
    " minutes and 2 GB of memory."
)
_ROWS: Final = (
    ("state_plain_bytes", "in the state, flat name and lease", "{:.0f} B"),
    ("state_streamed_bytes", "in the state, flat name, on a stream", "{:.0f} B"),
    ("state_owned_bytes", "in the state, three parts, lease, owner", "{:.0f} B"),
    ("node_bytes", "of a node, all told (three parts, lease, owner)", "{:.0f} B"),
    ("grow_worst_ms", "worst pause while it grows", "{:.1f} ms"),
    ("grow_p99_ms", "  99th percentile", "{:.1f} ms"),
    ("load_worst_ms", "worst pause under load, nothing else", "{:.1f} ms"),
    ("write_worst_ms", "worst pause while a snapshot is written", "{:.1f} ms"),
    ("write_s", "  from fork to snapshot in place", "{:.2f} s"),
    ("end_before_ms", "worst pause right before leases end", "{:.1f} ms"),
    ("end_worst_ms", "worst pause while leases end", "{:.1f} ms"),
    ("end_gone_ms", "  all gone after the moment", "{:.0f} ms"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    options.add_number(parser, "--locks", LOCKS, "how many locks", read=_count)
    options.add_number(parser, "--leases", LEASES, "how many leases end at once", read=_count)
    options.add_number(
        parser,
        "--gather",
        GATHER_S,
        "how long under load before the snapshot: a large node gathers its memory meanwhile",
        read=float,
        metavar="S",
    )
    options.add_disk(parser, "the node keeps its data")
    add_check(parser)
    options.add_json(parser)


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be 1 or more")
    return count


def _state_bytes(kind: str, count: int) -> float:
    """Return what a lock takes of the state, found in a process of its own. Raises OSError."""
    command = [sys.executable, "-P", "-m", "lab.measuring.state_bytes", kind, str(count)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command[3:])} ended with {done.returncode}: {done.stderr[-500:]}")
    return float(done.stdout)


async def _node(directory: Path, options: argparse.Namespace) -> dict[str, float]:
    """Fill a node and watch its loop; return the figures."""
    # Else the log is compacted while the snapshot under test is awaited.
    config = dataclasses.replace(single_config(directory / "n1"), compact_entries=COMPACT_ENTRIES)
    async with leading_node(config) as (node, child):
        before_bytes = processes.resident_bytes(os.getpid())
        say(f"a node acquires {options.locks} locks")
        meter = PauseMeter()
        # Few at a time: a turn of the loop with a thousand clients in it would be a pause of their making.
        await fill(node, options.locks, workers=LOAD_WORKERS)
        grown = meter.take()
        meter.stop()
        node_bytes = (processes.resident_bytes(os.getpid()) - before_bytes) / options.locks
        say("it writes a snapshot under load")
        written = await write_under_load(node, child, config, gather_s=options.gather)
        say(f"{options.leases} leases end at once")
        ended = await let_end(node, child, options.leases)
    return {
        "node_bytes": node_bytes,
        "grow_worst_ms": grown.worst_ms,
        "grow_p99_ms": grown.p99_ms,
        "load_worst_ms": written["load_worst_ms"],
        "write_worst_ms": written["write_worst_ms"],
        "write_s": written["write_s"],
        "end_before_ms": ended["before"]["worst_ms"],
        "end_worst_ms": ended["meanwhile"]["worst_ms"],
        "end_gone_ms": ended["gone_ms"],
    }


def _measure(options: argparse.Namespace) -> dict[str, float]:
    """Return all figures."""
    figures = {}
    for kind in (state_bytes.PLAIN, state_bytes.STREAMED, state_bytes.OWNED):
        say(f"the state machine alone, {options.locks} locks, {kind}")
        figures[f"state_{kind}_bytes"] = _state_bytes(kind, options.locks)
    with (
        scratch_directory(options.disk) as directory,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return {**figures, **runner.run(_node(directory, options))}


def _bars(figures: dict[str, float], locks: int, leases: int) -> list[Bar]:
    many, due = locks >= LOCKS, leases >= LEASES
    each, pause = f"each of {LOCKS:,} locks", f"no pause over {PAUSE_MS_MAX:g} ms while"
    rows = (
        (f"{STATE_BYTES_MAX} bytes of state for {each}", "state_plain_bytes", STATE_BYTES_MAX),
        (f"{STATE_BYTES_MAX} bytes of state for {each} on streams", "state_streamed_bytes", STATE_BYTES_MAX),
        (f"{NODE_BYTES_MAX} bytes of a node for {each}", "node_bytes", NODE_BYTES_MAX),
        (f"{pause} a node grows to {LOCKS:,} locks", "grow_worst_ms", PAUSE_MS_MAX),
        (f"{pause} a snapshot of {LOCKS:,} locks is written", "write_worst_ms", PAUSE_MS_MAX),
        (f"{pause} {LEASES:,} leases end at once beside {LOCKS:,} locks", "end_worst_ms", PAUSE_MS_MAX),
    )
    return [
        bars.at_most(title, figures[key], most, is_full=many and (due or key != "end_worst_ms"))
        for title, key, most in rows
    ]


def _children_s() -> float:
    """Return what processes have used that this one has started and that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def run(options: argparse.Namespace) -> int:
    """Measure as `options` say and print; return the exit code."""
    machine: dict[str, Any] = {**this_machine.describe(options.disk), "load_before": this_machine.load()}
    before, children_s = Used.now([]), _children_s()
    try:
        figures = _measure(options)
    except (OSError, AssertionError) as error:
        print(f"scripts/bench: {error}", file=sys.stderr)
        return 1
    machine["load_after"] = this_machine.load()
    machine["others_percent"] = Used.now([]).others_percent(before, _children_s() - children_s)
    judged = _bars(figures, options.locks, options.leases)
    if options.json:
        document = {
            "command": "memory",
            "machine": machine,
            "locks": options.locks,
            "leases": options.leases,
            "figures": figures,
            "bars": judged,
        }
        print(json.dumps(document, indent=2))
    else:
        print(f"{options.locks:,} locks; {options.leases:,} leases that end at once")
        for key, title, form in _ROWS:
            print(f"{title:<50}{form.format(figures[key]):>12}")
        print("\n".join(bars.lines(judged)))
        print(f"the machine: {machine}")
    return 1 if options.check and not bars.are_met(judged) else 0
