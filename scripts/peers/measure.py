"""One step of `scripts/bench peers`: a load on one system, in one way, for some seconds."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from scripts.lib import processes
from scripts.lib.load import Tally
from scripts.peers.closed_loop import begin, end
from scripts.peers.system import Way

PROGRESS_S: Final = 5.0
CONTENDED: Final = "peers-contended"
_NICE: Final = slice(0, 3)
_IDLE: Final = slice(3, 5)
"""Fields of the line `cpu` of /proc/stat: user, nice, system; idle, iowait; irq, softirq, steal."""
_STEAL: Final = 7
_FIELDS: Final = 8


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What a step has found."""

    way: str
    title: str
    nodes: int
    is_contended: bool
    workers: int
    seconds: float
    cycles_per_s: float
    acquire_p50_ms: float
    acquire_p99_ms: float
    nodes_us_per_cycle: float
    """Processor time of all nodes together."""
    client_us_per_cycle: float
    others_percent: float
    """How much of all processors others used meanwhile: the machine was not ours alone."""
    errors_count: int
    errors: list[str]

    @property
    def test(self) -> tuple[bool, int]:
        """What was measured: only rows of the same test are compared."""
        return self.is_contended, self.workers


class Used(NamedTuple):
    """Processor seconds used up to a moment."""

    at_s: float
    nodes_s: float
    client_s: float
    machine_s: float

    @classmethod
    def now(cls, pids: Iterable[int]) -> "Used":
        """Look at the machine, this process, and these with all that they have started."""
        nodes_s = 0.0
        for pid in processes.family(pids):
            with contextlib.suppress(OSError):  # it has ended since
                nodes_s += processes.cpu_s(pid)
        return cls(time.perf_counter(), nodes_s, time.process_time(), machine_s())


def machine_s() -> float:
    """Return the processor time that this machine has used since its start, or its host has kept from it."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1 : 1 + _FIELDS]]
    return (sum(fields[_NICE]) + fields[_STEAL]) / os.sysconf("SC_CLK_TCK")


async def step(
    way: Way,
    nodes: int,
    pids: Sequence[int],
    *,
    workers: int,
    warm_up_s: float,
    seconds: float,
    progress: Callable[[str], None],
) -> Row:
    """Run one step and return its figures. Raises OSError and StuckError."""
    clients = await way.connect(workers)
    tally = Tally()
    try:
        names = [CONTENDED if way.is_contended else f"peers-{number}" for number in range(workers)]
        running = begin(tally, clients, names)
        await asyncio.sleep(warm_up_s)
        before = Used.now(pids)
        tally.begin()
        await _pass(seconds, tally, progress)
        # Counted at once: answers that come while /proc is read are not of this step.
        acquires_s, cycles = sorted(tally.acquires_s), len(tally.cycles_s)
        after = Used.now(pids)
        await end(tally, running)
    finally:
        for client in clients:
            client.close()
    elapsed_s = after.at_s - before.at_s
    nodes_s, client_s = after.nodes_s - before.nodes_s, after.client_s - before.client_s
    others_s = max(0.0, after.machine_s - before.machine_s - nodes_s - client_s)
    return Row(
        way=way.key,
        title=way.title,
        nodes=nodes,
        is_contended=way.is_contended,
        workers=workers,
        seconds=round(elapsed_s, 3),
        cycles_per_s=cycles / elapsed_s,
        acquire_p50_ms=percentile_ms(acquires_s, 0.50),
        acquire_p99_ms=percentile_ms(acquires_s, 0.99),
        nodes_us_per_cycle=nodes_s / max(1, cycles) * 1e6,
        client_us_per_cycle=client_s / max(1, cycles) * 1e6,
        others_percent=others_s / elapsed_s / (os.cpu_count() or 1) * 100,
        errors_count=tally.errors_count,
        errors=tally.errors,
    )


def percentile_ms(ordered_s: Sequence[float], fraction: float) -> float:
    """Return a percentile of ordered times; 0 if there are none."""
    if not ordered_s:
        return 0.0
    return ordered_s[min(len(ordered_s) - 1, int(len(ordered_s) * fraction))] * 1000


async def _pass(seconds: float, tally: Tally, progress: Callable[[str], None]) -> None:
    """Let the time of a step pass, and tell now and then how far it is."""
    began_s = time.perf_counter()
    while (left_s := began_s + seconds - time.perf_counter()) > 0:
        await asyncio.sleep(min(left_s, PROGRESS_S))
        passed_s = time.perf_counter() - began_s
        if passed_s < seconds - 1:
            progress(f"{passed_s:.0f} of {seconds:.0f} s: {len(tally.cycles_s) / passed_s:.0f} a second")
