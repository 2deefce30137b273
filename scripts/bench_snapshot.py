"""What a large state costs: memory, a snapshot of it, the node's pauses meanwhile, and a restart.

Run by `scripts/bench snapshot`. One node in this process, with fsync on, its loop watched from inside; then a
real node process on the directory it left.
"""

import argparse
import asyncio
import gc
import itertools
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import uvloop

from cluster.child import Child
from cluster.config import Address, NodeConfig
from cluster.memory import HugePages
from cluster.node import Node
from cluster.snapshots import SNAPSHOT_NAME, SnapshotStore
from lockstate import snapshot
from lockstate.commands import Acquire, Release
from lockstate.modes import Mode
from lockstate.results import Granted
from scripts.lib import processes

DESCRIPTION: Final = (
    "Fill one node (fsync on, in this process) with holds that have names, owners and leases of their own, "
    "let it write snapshots under load, and start a node process on what it left. A million holds take some "
    "minutes and 4 GiB of memory."
)
COMPACT_ENTRIES: Final = 1_000_000
"""So many that no snapshot is written but the one that is watched."""
TTL_MS: Final = 86_400_000
GATHER_S: Final = 15.0
"""Under load before the snapshot: so long a large node takes to gather its memory after the last one."""
FILL_WORKERS: Final = 1000
LOAD_WORKERS: Final = 64
FORKS: Final = 5
LOOK_S: Final = 0.001
"""How often the watcher wants to run."""
TIMEOUT_S: Final = 180.0
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


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench snapshot",
        description=DESCRIPTION,
    )
    add_arguments(parser)
    return parser


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    parser.add_argument("--holds", type=int, default=1_000_000, metavar="N", help="default: 1000000")
    parser.add_argument(
        "--disk",
        type=Path,
        default=Path("/var/tmp"),  # noqa: S108 - made with mkdtemp; unlike /tmp it is a real disk
        metavar="DIR",
        help="where the node keeps its data meanwhile (default: /var/tmp)",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


class Watcher:
    """Notes how late the loop runs what is due: the pauses that everybody on this node sees."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._due_s = self._loop.time()
        self.worst_ms = 0.0
        self._look()

    def _look(self) -> None:
        now_s = time.monotonic()
        self.worst_ms = max(self.worst_ms, (now_s - self._due_s) * 1000)
        self._due_s = now_s + LOOK_S
        self._loop.call_later(LOOK_S, self._look)

    def take_worst_ms(self) -> float:
        """Return the longest pause since the last call."""
        worst_ms, self.worst_ms = self.worst_ms, 0.0
        return worst_ms


def _acquire(number: int) -> Acquire:
    return Acquire(
        name=f"orders/{number % 1000}/item-{number}",
        mode=Mode.EXCLUSIVE,
        hold_id=secrets.token_hex(16),
        attempt_id=secrets.token_hex(16),
        ttl_ms=TTL_MS,
        owner=f"worker-{number}",
    )


async def _granted(node: Node, command: Acquire) -> None:
    answer = await node.submit(command, TIMEOUT_S)
    assert isinstance(answer.result, Granted), answer.result


async def _fill(node: Node, holds: int) -> None:
    """Acquire `holds` locks."""
    numbers = iter(range(holds))

    async def work() -> None:
        for number in numbers:
            await _granted(node, _acquire(number))

    await asyncio.gather(*[work() for _ in range(FILL_WORKERS)])


async def _load(node: Node, first: int, is_over: asyncio.Event) -> None:
    """Acquire and release, as fast as one client after the other can, until it is over."""
    numbers = itertools.count(first)

    async def work() -> None:
        while not is_over.is_set():
            command = _acquire(next(numbers))
            await _granted(node, command)
            await node.submit(Release(command.hold_id), TIMEOUT_S)

    await asyncio.gather(*[work() for _ in range(LOAD_WORKERS)])


async def _until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError("a snapshot did not begin or end in time")
        await asyncio.sleep(LOOK_S)


async def _under_load(node: Node, holds: int, work: Callable[[Watcher], Awaitable[None]]) -> None:
    """Do `work` while clients acquire and release."""
    is_over = asyncio.Event()
    load = asyncio.create_task(_load(node, holds, is_over))
    watcher = Watcher()
    try:
        await work(watcher)
    finally:
        is_over.set()
        await load


async def _node_figures(config: NodeConfig, holds: int) -> dict[str, float]:
    """Fill a node, watch it write a snapshot, and return what was seen."""
    child = Child()
    node = Node(config, child=child)
    pages = HugePages(child)
    pages.begin()
    await node.start()
    figures: dict[str, float] = {}
    try:
        await _until(lambda: node.core.replica.is_leader)
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 50, 50)  # as a node process does
        before_bytes = processes.resident_bytes(os.getpid())
        await _fill(node, holds)
        figures["bytes_per_hold"] = (processes.resident_bytes(os.getpid()) - before_bytes) / holds

        async def watch(watcher: Watcher) -> None:
            # The fill alone makes the log large enough for a snapshot.
            await _until(lambda: not child.is_running)
            watcher.take_worst_ms()
            await asyncio.sleep(GATHER_S)
            figures["load_worst_ms"] = watcher.take_worst_ms()
            await _until(lambda: not child.is_running)
            file = config.data_dir / SNAPSHOT_NAME
            inode_before = file.stat().st_ino if file.exists() else 0
            watcher.take_worst_ms()
            assert not child.is_running, "a snapshot that was not asked for would hide the pause of the fork"
            node.core.replica._raft.force_compaction()  # noqa: SLF001 - nobody else may ask for one
            await _until(lambda: child.is_running)
            began_s = time.monotonic()
            await asyncio.sleep(0.1)
            figures["write_begin_ms"] = watcher.worst_ms
            await _until(lambda: not child.is_running)
            figures["write_s"] = time.monotonic() - began_s
            await asyncio.sleep(0.5)
            figures["write_worst_ms"] = watcher.take_worst_ms()
            # A child that failed leaves the old file, and pauses that say nothing.
            assert file.stat().st_ino != inode_before, "no new snapshot was put in place"
            figures["file_bytes_per_hold"] = file.stat().st_size / len(node.machine.state.holds)

        await _under_load(node, holds, watch)
        figures |= _machine_figures(node)
        written = SnapshotStore(config.data_dir).load()
        figures["restart_entries"] = node.core.replica.last_index - (written.last[1] if written else 1)
    finally:
        pages.stop()
        await node.stop()
    return figures


def _machine_figures(node: Node) -> dict[str, float]:
    """Measure fork, encode and decode of the node's state."""
    forks_ms = sorted(_fork_ms() for _ in range(FORKS))
    began_s = time.perf_counter()
    data = snapshot.encode(node.machine)
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
    directory = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=arguments.disk))
    nowhere = Address("127.0.0.1", 0)
    config = NodeConfig(
        node_id="n1",
        data_dir=directory / "n1",
        http=nowhere,
        peer=nowhere,
        peers={"n1": nowhere},
        secret=b"",
        advertise_http="http://127.0.0.1:1",
        compact_entries=COMPACT_ENTRIES,
    )
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            figures = runner.run(_node_figures(config, arguments.holds))
        figures["restart_s"] = _restart_s(config)
    except (OSError, AssertionError) as error:
        print(f"scripts/bench: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(directory)
    if arguments.json:
        result: dict[str, Any] = {"command": "snapshot", "holds": arguments.holds, "figures": figures}
        print(json.dumps(result, indent=2))
    else:
        for key, title, form in _ROWS:
            print(f"{title:<50}{form.format(figures[key]):>12}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    return run(build_parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
