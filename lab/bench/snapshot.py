"""What a large state costs: memory, a snapshot of it with the node's pauses, and a restart.

Run by `scripts/bench snapshot`. One node in this process, with fsync on, its loop watched from inside; then a
real node process on the directory it left.
"""

import argparse
import asyncio
import dataclasses
import gc
import json
import os
import subprocess
import sys
import time
from typing import Any, Final

import uvloop

from cluster.config import NodeConfig
from cluster.node import Node
from cluster.storage.forked_child import Child
from cluster.storage.snapshot_store import SNAPSHOT_NAME, SnapshotStore
from lab.bench import options
from lab.loads.node_load import CycleLoad, fill, leading_node, single_config, until
from lab.measuring.pauses import PauseMeter
from lab.measuring.scratch import scratch_directory
from lockstate.stored import snapshot
from scripts.lib import processes

DESCRIPTION: Final = (
    "Fill one node (fsync on, in this process) with holds that have names, owners and leases of their own, "
    "let it write snapshots under load, and start a node process on the files it left. A million holds take "
    "some minutes and 4 GiB of memory."
)
COMPACT_ENTRIES: Final = 1_000_000
"""Entries before a compaction: so many that only the snapshot under test is written."""
GATHER_S: Final = 15.0
"""Seconds under load before the snapshot: a large node needs that to gather its memory after the last one."""
FORKS: Final = 5
RESTART_S_MAX: Final = 120.0

_ROWS: Final = (
    ("bytes_per_hold", "memory per hold", "{:.0f} B"),
    ("file_bytes_per_hold", "snapshot file per hold", "{:.0f} B"),
    ("fork_ms", "fork, median", "{:.1f} ms"),
    ("fork_worst_ms", "fork, worst", "{:.1f} ms"),
    ("encode_s", "encode (in the child)", "{:.2f} s"),
    ("write_s", "fork to snapshot in place", "{:.2f} s"),
    ("load_worst_ms", "worst pause of the loop under load, no snapshot", "{:.1f} ms"),
    ("write_begin_ms", "pause when a write begins (fork)", "{:.1f} ms"),
    ("write_worst_ms", "worst pause of the loop from fork to compaction", "{:.1f} ms"),
    ("decode_s", "decode", "{:.2f} s"),
    ("decode_step_worst_ms", "longest step of decoding", "{:.1f} ms"),
    ("restart_s", "restart of a node until it serves", "{:.2f} s"),
    ("restart_entries", "entries in its journal behind the snapshot", "{:.0f}"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    options.add_number(parser, "--holds", 1_000_000, "how many holds")
    options.add_disk(parser, "the node keeps its data")
    options.add_json(parser)


async def _node_figures(config: NodeConfig, holds: int) -> dict[str, float]:
    """Fill a node, watch it write a snapshot, and return what was seen."""
    figures: dict[str, float] = {}
    async with leading_node(config) as (node, child):
        before_bytes = processes.resident_bytes(os.getpid())
        await fill(node, holds)
        figures["bytes_per_hold"] = (processes.resident_bytes(os.getpid()) - before_bytes) / holds
        figures |= await write_under_load(node, child, config)
        figures |= _machine_figures(node)
        written = SnapshotStore(config.data_dir).load()
        figures["restart_entries"] = node.parts.replica.log.last_index - (written.last[1] if written else 1)
    return figures


async def write_under_load(
    node: Node, child: Child, config: NodeConfig, *, gather_s: float = GATHER_S
) -> dict[str, float]:
    """Let a filled node write a snapshot under load; return how its loop did before and meanwhile."""
    figures: dict[str, float] = {}
    meter = PauseMeter()
    async with CycleLoad(node, len(node.machine.state.holds)).running():
        # The fill alone makes the log large enough for a snapshot.
        await until(lambda: not child.is_running)
        meter.take()
        await asyncio.sleep(gather_s)
        figures["load_worst_ms"] = meter.take().worst_ms
        await until(lambda: not child.is_running)
        file = config.data_dir / SNAPSHOT_NAME
        inode_before = file.stat().st_ino if file.exists() else 0
        meter.take()
        assert not child.is_running, "a snapshot that was not asked for would hide the pause of the fork"
        forks = child.forks_count
        node.parts.replica.engine.force_compaction()
        # Not "is running": the child of a small node may have ended before this loop looks.
        await until(lambda: child.forks_count > forks)
        began_s = time.monotonic()
        await asyncio.sleep(0.1)
        figures["write_begin_ms"] = meter.worst_ms
        await until(lambda: not child.is_running)
        figures["write_s"] = time.monotonic() - began_s
        await asyncio.sleep(0.5)
        figures["write_worst_ms"] = meter.take().worst_ms
        # A child that failed leaves the old file, and pauses that say nothing.
        assert file.stat().st_ino != inode_before, "no new snapshot was put in place"
        figures["file_bytes_per_hold"] = file.stat().st_size / len(node.machine.state.holds)
    meter.stop()
    return figures


def _machine_figures(node: Node) -> dict[str, float]:
    """Measure fork, encode and decode of the node's state."""
    forks_ms = sorted(_fork_ms() for _ in range(FORKS))
    began_s = time.perf_counter()
    data = snapshot.encode(node.machine.state)
    encode_s = time.perf_counter() - began_s
    steps_ms = []
    steps = snapshot.decode_in_steps(data)
    gc.disable()
    began_s = last_s = time.perf_counter()
    try:
        while True:
            next(steps)
            now_s = time.perf_counter()
            steps_ms.append((now_s - last_s) * 1000)
            last_s = now_s
    except StopIteration:
        decode_s = time.perf_counter() - began_s
    gc.enable()
    return {
        "fork_ms": forks_ms[FORKS // 2],
        "fork_worst_ms": forks_ms[-1],
        "encode_s": encode_s,
        "decode_s": decode_s,
        "decode_step_worst_ms": max(steps_ms),
    }


def _fork_ms() -> float:
    """Return how long a fork stops this process."""
    began_s = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    elapsed_s = time.perf_counter() - began_s
    os.waitpid(pid, 0)
    return elapsed_s * 1000


def _restart_s(config: NodeConfig) -> float:
    """Return how long a node process takes from its start until it leads and serves."""
    command = [sys.executable, "-m", "http_api", "--data-dir", str(config.data_dir), "--http", "127.0.0.1:0"]
    began_s = time.monotonic()
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            seen: set[str] = set()
            for line in process.stderr:
                seen |= {word for word in ("event=ready", "is_leader=True") if word in line}
                if len(seen) == 2:  # noqa: PLR2004 - both
                    return time.monotonic() - began_s
                if time.monotonic() - began_s > RESTART_S_MAX:
                    break
        finally:
            process.kill()
    raise TimeoutError("the node did not serve in time")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print; return the exit code."""
    try:
        with scratch_directory(arguments.disk) as directory:
            config = dataclasses.replace(single_config(directory / "n1"), compact_entries=COMPACT_ENTRIES)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                figures = runner.run(_node_figures(config, arguments.holds))
            figures["restart_s"] = _restart_s(config)
    except (OSError, AssertionError) as error:
        print(f"scripts/bench: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        result: dict[str, Any] = {"command": "snapshot", "holds": arguments.holds, "figures": figures}
        print(json.dumps(result, indent=2))
    else:
        for key, title, form in _ROWS:
            print(f"{title:<50}{form.format(figures[key]):>12}")
    return 0
