"""What a large state costs: memory, a snapshot of it with the node's pauses, and a restart.

Run by `scripts/bench snapshot`. One node in this process, with fsync on, its loop watched from inside; then a
real node process on the directory it left.
"""

import argparse
import asyncio
import dataclasses
import gc
import http.client
import json
import os
import re
import subprocess
import sys
import time
from http import HTTPStatus
from typing import Any, Final

import uvloop

from cluster.config import NodeConfig
from cluster.node import Node
from cluster.storage.forked_child import Child
from cluster.storage.snapshot_store import SNAPSHOT_NAME, SnapshotStore
from holdfast import wire
from lab.bench import options
from lab.loads.node_load import CycleLoad, fill, leading_node, single_config, until
from lab.measuring.pauses import PauseMeter
from lab.measuring.scratch import scratch_directory
from lockstate.stored import snapshot
from scripts.lib import ports, processes

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
ASK_S: Final = 0.05
"""Seconds between two questions to a node that starts."""

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
    ("livez_first_s", "until it answers /livez", "{:.2f} s"),
    ("livez_worst_s", "longest answer of /livez after that", "{:.2f} s"),
    ("readyz_count", "how many percentages /readyz told meanwhile", "{:.0f}"),
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


def _restart(config: NodeConfig) -> dict[str, float]:
    """Start a node process; return how long it takes until it leads and serves, and how it answers before."""
    (port,) = ports.reserve(1)
    command = [sys.executable, "-m", "http_api", "--data-dir", str(config.data_dir)]
    began_s = time.monotonic()
    answered_s: list[float] = []
    told: set[bytes] = set()
    with subprocess.Popen([*command, "--http", f"{ports.HOST}:{port}"], stderr=subprocess.DEVNULL) as process:
        try:
            while True:
                asked_s = time.monotonic()
                if _answer(port, wire.LIVEZ)[0] == HTTPStatus.OK:
                    answered_s.append(time.monotonic() - (asked_s if answered_s else began_s))
                status, body = _answer(port, wire.READYZ)
                if status == HTTPStatus.OK:  # it leads: it has no others
                    break
                told |= set(re.findall(rb"read (\d+) %", body))
                if process.poll() is not None or asked_s - began_s > RESTART_S_MAX:
                    raise TimeoutError("the node did not serve in time")
                time.sleep(ASK_S)
            return {
                "restart_s": time.monotonic() - began_s,
                "livez_first_s": answered_s[0],
                "livez_worst_s": max(answered_s[1:], default=0.0),
                "readyz_count": len(told),
            }
        finally:
            process.kill()


def _answer(port: int, path: str) -> tuple[int, bytes]:
    """Return status and body of an answer; 0 if there is none."""
    connection = http.client.HTTPConnection(ports.HOST, port, timeout=RESTART_S_MAX)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


def run(arguments: argparse.Namespace) -> int:
    """Measure and print; return the exit code."""
    try:
        with scratch_directory(arguments.disk) as directory:
            config = dataclasses.replace(single_config(directory / "n1"), compact_entries=COMPACT_ENTRIES)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                figures = runner.run(_node_figures(config, arguments.holds))
            figures |= _restart(config)
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
