"""One run of a simulated world: from a plan to a report, with what of the product is patched for it."""

import contextlib
import functools
import gc
import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TextIO
from unittest import mock

import msgspec

import cluster.assembly
import cluster.commands.batcher
import cluster.commands.encoded_command
import cluster.commands.outbox
import cluster.config
import cluster.consensus.snapshot_transfer
import cluster.node
import cluster.peers.preferred_leader
import cluster.storage.journal
import lockstate.words.limits
from cluster.peers.link import Link
from cluster.storage.segment_writer import Sizes
from redis_api.connection import RedisConnection
from tests.simulation.plan import Plan
from tests.simulation.world.machine import watched_loop, watched_parts
from tests.simulation.world.patches import simulated
from tests.simulation.world.world import US, World

STEADY_S = 2.0
"""For how long a preferred node is well before it leads: in a world of a minute that shall happen often."""


class Report(msgspec.Struct, kw_only=True):
    """What came of one run."""

    seed: int
    nodes: int
    simulated_s: float
    real_s: float
    processor_s: float
    steps: int
    faults: dict[str, int]
    commands: dict[str, int]
    counts: dict[str, int]
    """Entries, leader changes, snapshots installed, starts of nodes."""
    figures: dict[str, list[float]] = {}
    """What took how long, or became how large."""
    trace_hash: str
    violation: str = ""
    checker: str = ""
    last_lines: list[str] = []


def run(
    plan: Plan,
    simulated_s: float,
    file: TextIO | None = None,
    *,
    raft_file: TextIO | None = None,
    mutation: contextlib.AbstractContextManager[object] | None = None,
) -> Report:
    """Run one world for so much simulated time; `mutation` makes the product wrong meanwhile.

    `file` gets the trace, `raft_file` that of Raft.
    """
    began_s, began_processor_s = time.perf_counter(), time.process_time()
    with contextlib.ExitStack() as stack:
        # What a world keeps has few cycles, and a full collection looks at all of it.
        gc.collect()
        stack.callback(gc.set_threshold, *gc.get_threshold())
        gc.set_threshold(50_000, 50, 50)
        stack.enter_context(_logging_to(file))
        patch = stack.enter_context
        # No user would want a log that is compacted so soon: here snapshots shall travel often.
        patch(mock.patch.dict(cluster.config._RANGES, {"compact_entries": (1, 10_000_000)}))
        # The model looks at the whole graph of waits, however large; so does the product here.
        patch(mock.patch.object(lockstate.words.limits, "DEADLOCK_STEPS_MAX", 1_000_000))
        world = World(plan, file, raft_file)
        patch(simulated(world, world.random))
        stack.callback(world.close)
        for of_sets in (Link, RedisConnection):
            patch(mock.patch.object(of_sets, "__hash__", _numbered()))
        patch(mock.patch.object(cluster.node, "Parts", watched_parts(world.facts)))
        patch(mock.patch.object(cluster.assembly, "Loop", watched_loop(world.facts)))
        patch(mock.patch.object(cluster.consensus.snapshot_transfer, "CHUNK_BYTES", plan.chunk_bytes))
        sizes = functools.partial(Sizes, plan.segment_bytes, plan.prepared_bytes)
        patch(mock.patch.object(cluster.storage.journal, "Sizes", sizes))
        limits = plan.limits
        for module, name, value in (
            (cluster.peers.preferred_leader, "STEADY_S", STEADY_S),
            (cluster.commands.outbox, "PENDING_COUNT_MAX", limits.pending_count),
            (cluster.commands.outbox, "SEND_BYTES_MAX", limits.send_bytes),
            (lockstate.words.limits, "STREAM_KEPT_MAX", limits.kept_count),
            (cluster.commands.batcher, "ENTRY_BYTES_MAX", limits.entry_bytes),
            (cluster.commands.batcher, "ENTRY_COMMANDS_MAX", limits.entry_commands),
            (cluster.commands.batcher, "ENTRY_LOAD_MAX", limits.entry_load),
            (cluster.commands.outbox, "UNDER_WAY_LOAD_MAX", limits.under_way_load),
            (cluster.commands.encoded_command, "FREE", limits.free_load),
        ):
            assert hasattr(module, name), name
            patch(mock.patch.object(module, name, value))
        if mutation is not None:
            patch(mutation)
        world.run(simulated_s)
        violation = world.checkers.violation
        faults = Counter(world.chaos.counts)
        if world.hostile is not None:
            faults.update(world.hostile.counts)
        counts = Counter(world.watch.counts)
        counts.update(world.checkers.redis.counts)
        counts["starts"] = sum(machine.starts_count for machine in world.machines.values())
        return Report(
            seed=plan.seed,
            nodes=len(plan.node_ids),
            simulated_s=world.scheduler.now_us / US,
            real_s=time.perf_counter() - began_s,
            processor_s=time.process_time() - began_processor_s,
            steps=world.scheduler.steps,
            faults=dict(sorted(faults.items())),
            commands=dict(sorted(world.history.outcomes.items())),
            counts=dict(sorted(counts.items())),
            figures=world.figures(),
            trace_hash=world.trace.hash,
            violation=str(violation) if violation is not None else "",
            checker=violation.checker if violation is not None else "",
            last_lines=list(world.trace.last) if violation is not None else [],
        )


def _numbered() -> Callable[[Any], int]:
    """Return a hash for connections that is the same in every run: sets of them are walked in its order."""
    numbers = itertools.count()
    return lambda one: int(one.__dict__.setdefault("_number", next(numbers)))


class _LogLines(logging.Handler):
    """Writes what the nodes log between the lines of the trace. It does not count for the hash."""

    def __init__(self, file: TextIO) -> None:
        super().__init__()
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        self._file.write(f"    log {record.levelname} {record.name} {record.getMessage()}\n")


@contextlib.contextmanager
def _logging_to(file: TextIO | None) -> Iterator[None]:
    """Send the log of all nodes to `file`, or nowhere."""
    root = logging.getLogger()
    handlers, level, disabled = root.handlers, root.level, logging.root.manager.disable
    if file is None:
        logging.disable(logging.CRITICAL)
    else:
        root.handlers = [_LogLines(file)]
        root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.handlers = handlers
        root.setLevel(level)
        logging.disable(disabled)
