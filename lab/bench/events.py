"""What stops a node's loop: leases that end all at once, and watchers of everything that happens.

Run by `scripts/bench events`. One node in this process, with fsync on, and its HTTP front end in the same
loop; the watchers are in a process of their own.
"""

import argparse
import asyncio
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import uvloop

from cluster.node import Node
from cluster.storage.forked_child import Child
from http_api.v1.event_feeds import WATCHERS_COUNT_MAX
from lab.bench import options
from lab.loads.node_load import LOAD_WORKERS, CycleLoad, fill, leading_node, single_config, until
from lab.loads.watch_step import Step, watch
from lab.measuring import bars, open_files
from lab.measuring.pauses import PauseMeter
from lab.measuring.scratch import scratch_directory

DESCRIPTION: Final = (
    "Show what stops the loop of a node: one node (fsync on, in this process, its HTTP front end in the same "
    "loop) while 64 clients acquire and release. First many leases end at the same moment. Then clients in a "
    "process of their own watch everything that happens, and at last as many watch but read nothing. A pause "
    "is how late the loop runs a callback that is due every millisecond. 'at the end' is how many clients "
    "still watch at the end of a step: if the node cut some of them off, the figures are those of fewer. "
    "'watched/s' is how many events reached all watchers together, 'rest s' how long the remaining ones took "
    "after the load, 'KiB waiting' the most that the node kept for one watcher. The exit code is 1 if a "
    "watcher neither got every event once and in order nor was cut off with a reason."
)
PAUSE_MS_MAX: Final = 100.0
"""Milliseconds for which the loop may stop when many leases end: the followers wait for a heartbeat."""
LEASES: Final = 100_000
WATCHERS: Final = (0, 100, 1_000)
SECONDS: Final = 15.0
"""Length of a step in seconds: long enough for watchers that read nothing to be cut off."""
WARM_UP_S: Final = 1.0
LEASES_S: Final = (2.0, 8.0, 32.0)
"""How much longer leases last than acquiring them should take; the next one if that was too short."""
FILLED_PER_S: Final = 4_000
"""Leases acquired per second, at least: they last until the last of them has been acquired."""
NEAR_S: Final = 0.2
"""How many seconds before the leases end, and after all have ended, belong to what they cost."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    parser.add_argument(
        "--leases",
        type=_count,
        default=LEASES,
        metavar="N",
        help="how many leases end at once; 0: leave that out (default: 100000)",
    )
    parser.add_argument(
        "--watchers",
        type=_watchers,
        default=WATCHERS,
        metavar="N,N,...",
        help="how many watchers, one step for each number, and one more step in which as many as the "
        "largest number read nothing (default: 0,100,1000)",
    )
    options.add_seconds(parser, SECONDS)
    parser.add_argument(
        "--rate",
        type=float,
        default=0.0,
        metavar="N",
        help="no more than N cycles a second while there are watchers (default: as many as the node does; it "
        "cuts off watchers that cannot keep up)",
    )
    options.add_disk(parser, "the node keeps its data")
    parser.add_argument(
        "--check", action="store_true", help=f"exit code 1 if leases stop the loop for {PAUSE_MS_MAX:g} ms"
    )
    options.add_json(parser)


def _count(text: str) -> int:
    """Read a number."""
    count = int(text)
    if count < 0:
        raise argparse.ArgumentTypeError(f"{text}: must be 0 or more")
    return count


def _watchers(text: str) -> tuple[int, ...]:
    """Read numbers of watchers."""
    counts = tuple(_count(part) for part in text.split(","))
    if max(counts) > WATCHERS_COUNT_MAX:
        raise argparse.ArgumentTypeError(f"{text}: a node takes no more than {WATCHERS_COUNT_MAX} watchers")
    return counts


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


# -- leases that end at once --------------------------------------------------------------------------------


async def _leases(directory: Path, leases: int) -> dict[str, Any]:
    """Let many leases end at once in a node of its own."""
    async with leading_node(single_config(directory)) as (node, child):
        return await let_end(node, child, leases)


async def let_end(node: Node, child: Child, leases: int) -> dict[str, Any]:
    """Let many leases end at once, under load, beside what the node holds already.

    Return how its loop did before and while they ended. Raises OSError.
    """
    held = len(node.machine.state.holds)
    ends_s, ends_ms = await _fill(node, leases, held)
    left_s = ends_s - time.monotonic() - NEAR_S
    _say(f"{leases} leases are held, and end in {left_s:.1f} s")
    meter, load = PauseMeter(), CycleLoad(node, held + leases)
    async with load.running():
        await asyncio.sleep(min(WARM_UP_S, left_s / 2))
        meter.take()
        await asyncio.sleep(ends_s - time.monotonic() - NEAR_S)
        before, cycles, forks = meter.take(), load.cycles, child.forks_count
        await until(lambda: len(node.machine.state.holds) <= held + LOAD_WORKERS)
        gone_s = time.monotonic() - ends_s
        await asyncio.sleep(NEAR_S)
        meanwhile = meter.take()
    meter.stop()
    return {
        "leases": leases,
        "spread_ms": max(ends_ms) - min(ends_ms),
        "before": before._asdict(),
        "meanwhile": meanwhile._asdict(),
        "gone_ms": gone_s * 1000,
        "cycles_per_s": (load.cycles - cycles) / (gone_s + 2 * NEAR_S),
        "snapshots": child.forks_count - forks,
    }


async def _fill(node: Node, leases: int, held: int) -> tuple[float, list[int]]:
    """Acquire so many leases that end together; return when, by the monotonic clock and by cluster time."""
    holds = node.machine.state.holds
    for lease_s in LEASES_S:
        ends_s = time.monotonic() + lease_s + leases / FILLED_PER_S
        await fill(node, leases, ends_s, first=held)
        if len(holds) == held + leases:
            # What was held before lasts for a day.
            return ends_s, sorted(hold.expires_at_ms for hold in holds.values())[:leases]
        _say("the first lease ended before the last began; trying again with longer ones")
        await until(lambda: len(holds) <= held)
    raise OSError(f"this machine takes too long for {leases} leases: the first ended before the last began")


# -- the whole ----------------------------------------------------------------------------------------------


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    """Do one part after the other, each in a directory of its own, which is gone afterwards."""
    steps = [Step(count, False, options.seconds, options.rate) for count in options.watchers]
    most = max(options.watchers)
    steps += [Step(most, True, options.seconds, options.rate)] if most else []
    found: dict[str, Any] = {"leases": None, "steps": []}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if options.leases:
            with scratch_directory(options.disk) as directory:
                found["leases"] = runner.run(_leases(directory, options.leases))
        for step in steps:
            _say(
                f"{step.watchers} watchers{' that read nothing' if step.is_mute else ''}, {step.seconds:g} s"
            )
            with scratch_directory(options.disk) as directory:
                found["steps"].append(runner.run(watch(directory, step)))
    return found


def _bar(found: dict[str, Any]) -> dict[str, Any]:
    """Say whether the bar is met; None if it was not measured."""
    leases = found["leases"]
    count, worst_ms = (leases["leases"], leases["meanwhile"]["worst_ms"]) if leases else (0, None)
    return bars.at_most(
        f"no pause over {PAUSE_MS_MAX:g} ms while {count} leases end at once", worst_ms, PAUSE_MS_MAX
    )


def _print(found: dict[str, Any]) -> None:
    leases = found["leases"]
    if leases:
        print(f"{leases['leases']} leases, all due within {leases['spread_ms']} ms, under load")
        print(f"  before:    {_pauses(leases['before'])}")
        print(f"  meanwhile: {_pauses(leases['meanwhile'])}, {leases['cycles_per_s']:.0f} cycles/s")
        snapshots = f"snapshots begun meanwhile: {leases['snapshots']}"
        print(f"  all gone {leases['gone_ms']:.0f} ms after the moment; {snapshots}")
    print("  ".join(f"{title:>11}" for title, _ in _COLUMNS))
    for step in found["steps"]:
        print("  ".join(f"{text(step):>11}" for _, text in _COLUMNS))
    print("\n".join(bars.lines([found["bar"]])))


def _pauses(pauses: dict[str, float]) -> str:
    return f"worst pause {pauses['worst_ms']:.1f} ms, 99th percentile {pauses['p99_ms']:.1f} ms"


_COLUMNS: Final[tuple[tuple[str, Callable[[dict[str, Any]], str]], ...]] = (
    ("watchers", lambda step: f"{step['watchers']}{' mute' if step['is_mute'] else ''}"),
    ("cycles/s", lambda step: f"{step['cycles_per_s']:.0f}"),
    ("worst ms", lambda step: f"{step['pauses']['worst_ms']:.1f}"),
    ("p99 ms", lambda step: f"{step['pauses']['p99_ms']:.1f}"),
    ("at the end", lambda step: f"{step['watching_at_end']}"),
    ("watched/s", lambda step: f"{step['watched_per_s']:.0f}"),
    ("complete", lambda step: f"{step['outcomes'].get('complete', 0)}"),
    ("cut", lambda step: f"{sum(step['cuts'].values())}"),
    ("rest s", lambda step: f"{step['drain_s']:.1f}"),
    ("KiB waiting", lambda step: f"{step['buffer_bytes_max'] / 1024:.0f}"),
)


def run(options: argparse.Namespace) -> int:
    """Measure as `options` say and print; return the exit code."""
    try:
        open_files.check_room(max(options.watchers))
        found = _measure(options)
    except (OSError, AssertionError) as error:
        print(f"scripts/bench: {error}", file=sys.stderr)
        return 1
    machine = {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "python": platform.python_version()}
    found = {"command": "events", "machine": machine, **found, "bar": _bar(found)}
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        _print(found)
    faults = [fault for step in found["steps"] for fault in step["faults"]]
    for fault in faults:
        print(f"scripts/bench: {fault}", file=sys.stderr)
    return 1 if faults or (options.check and not found["bar"]["is_met"]) else 0
