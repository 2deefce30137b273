"""One step of `scripts/bench peers`: a load on one system, in one way, for some seconds."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from lab.loads.load import Tally, percentile_ms
from lab.measuring.used import Used
from lab.peers.closed_loop import begin, end
from lab.peers.system import Way
from scripts.lib import processes

PROGRESS_S: Final = 5.0
CONTENDED: Final = "peers-contended"


class Test(NamedTuple):
    """What was measured: only rows of the same test are compared."""

    is_contended: bool
    workers: int
    is_beside_busy: bool

    @property
    def title(self) -> str:
        """What it is called."""
        if self.is_contended:
            return f"One lock, {self.workers} waiters"
        workers = f"{self.workers} worker{'s' if self.workers > 1 else ''}"
        return f"Own locks, {workers}{', beside a busy processor' if self.is_beside_busy else ''}"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What a step has found."""

    way: str
    title: str
    nodes: int
    is_contended: bool
    workers: int
    is_beside_busy: bool = False
    """Whether another process kept one processor busy meanwhile."""
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
    def test(self) -> Test:
        """What was measured."""
        return Test(self.is_contended, self.workers, self.is_beside_busy)


async def step(
    way: Way,
    nodes: int,
    pids: Sequence[int],
    *,
    workers: int,
    warm_up_s: float,
    seconds: float,
    progress: Callable[[str], None],
    busy: int | None = None,
) -> Row:
    """Run one step, beside the process `busy` if there is one. Raises OSError and StuckError."""
    clients = await way.connect(workers)
    tally = Tally()
    try:
        names = [CONTENDED if way.is_contended else f"peers-{number}" for number in range(workers)]
        running = begin(tally, clients, names)
        await asyncio.sleep(warm_up_s)
        before, busy_before_s = Used.now(pids), _busy_s(busy)
        tally.begin()
        await _pass(seconds, tally, progress)
        # Counted at once: answers that come while /proc is read are not of this step.
        acquires_s, cycles = sorted(tally.acquires_s), len(tally.cycles_s)
        after, busy_after_s = Used.now(pids), _busy_s(busy)
        await end(tally, running)
    finally:
        for client in clients:
            client.close()
    elapsed_s = after.at_s - before.at_s
    nodes_s, client_s = after.nodes_s - before.nodes_s, after.client_s - before.client_s
    return Row(
        way=way.key,
        title=way.title,
        nodes=nodes,
        is_contended=way.is_contended,
        workers=workers,
        is_beside_busy=busy is not None,
        seconds=round(elapsed_s, 3),
        cycles_per_s=cycles / elapsed_s,
        acquire_p50_ms=percentile_ms(acquires_s, 0.50),
        acquire_p99_ms=percentile_ms(acquires_s, 0.99),
        nodes_us_per_cycle=nodes_s / max(1, cycles) * 1e6,
        client_us_per_cycle=client_s / max(1, cycles) * 1e6,
        others_percent=after.others_percent(before, busy_after_s - busy_before_s),
        errors_count=tally.errors_count,
        errors=tally.errors,
    )


def _busy_s(pid: int | None) -> float:
    return 0.0 if pid is None else processes.cpu_s(pid)


async def _pass(seconds: float, tally: Tally, progress: Callable[[str], None]) -> None:
    """Let the time of a step pass, and tell now and then how far it is."""
    began_s = time.perf_counter()
    while (left_s := began_s + seconds - time.perf_counter()) > 0:
        await asyncio.sleep(min(left_s, PROGRESS_S))
        passed_s = time.perf_counter() - began_s
        if passed_s < seconds - 1:
            progress(f"{passed_s:.0f} of {seconds:.0f} s: {len(tally.cycles_s) / passed_s:.0f} a second")
