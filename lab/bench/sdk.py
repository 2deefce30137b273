"""scripts/bench sdk: what the Python clients cost, against the lean client of the other commands."""

import argparse
import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

import holdfast
from scripts.local_cluster import LocalCluster

THREADS = 16
TASKS = 256
WARM_UP_S = 1.0
DESCRIPTION = (
    "Each thread or task enters and leaves a block under a lock of its own, again and again, with"
    f" SyncClient ({THREADS} threads) and Client ({TASKS} tasks, on asyncio's loop). Before each, the lean"
    " client does the same with as many connections. 'ratio' is cycles/s against the lean client, 'client us'"
    " processor time of the client per cycle."
)

Lean = Callable[[LocalCluster, int, float], Awaitable[dict[str, Any]]]
"""Runs one step of the lean client: with so many workers, for so many seconds."""


class Count:
    """Cycles that were made, and since when."""

    def __init__(self) -> None:
        self.cycles = 0
        self.is_over = False
        self._began = (0.0, 0.0)

    def begin(self) -> None:
        """Count from now on."""
        self.cycles = 0
        self._began = time.perf_counter(), time.process_time()

    def row(self, client: str, lean: dict[str, Any]) -> dict[str, Any]:
        """Return the figures of what was counted since `begin`."""
        began_s, began_cpu_s = self._began
        per_s = self.cycles / (time.perf_counter() - began_s)
        return {
            "client": client,
            "cycles_per_s": per_s,
            "lean_cycles_per_s": lean["cycles_per_s"],
            "ratio": per_s / max(lean["cycles_per_s"], 1),
            "client_us_per_cycle": (time.process_time() - began_cpu_s) / max(self.cycles, 1) * 1e6,
            "lean_us_per_cycle": lean["client_us_per_cycle"],
        }


def threads(nodes: list[str], seconds: float, lean: dict[str, Any]) -> dict[str, Any]:
    """Measure SyncClient."""
    count = Count()
    with holdfast.SyncClient(nodes) as client:

        def work(index: int) -> None:
            lock = client.lock(("bench", "sdk", "thread", index))
            while not count.is_over:
                with lock:
                    """Held."""
                count.cycles += 1  # what two threads lose here by chance is far less than a hundredth

        workers = [threading.Thread(target=work, args=(index,)) for index in range(THREADS)]
        for worker in workers:
            worker.start()
        time.sleep(WARM_UP_S)
        count.begin()
        time.sleep(seconds)
        row = count.row(f"SyncClient, {THREADS} threads", lean)
        count.is_over = True
        for worker in workers:
            worker.join()
    return row


async def tasks(nodes: list[str], seconds: float, lean: dict[str, Any]) -> dict[str, Any]:
    """Measure Client."""
    count = Count()
    async with holdfast.Client(nodes) as client:

        async def work(index: int) -> None:
            lock = client.lock(("bench", "sdk", "task", index))
            while not count.is_over:
                async with lock:
                    """Held."""
                count.cycles += 1

        async with asyncio.TaskGroup() as group:
            for index in range(TASKS):
                group.create_task(work(index))
            await asyncio.sleep(WARM_UP_S)
            count.begin()
            await asyncio.sleep(seconds)
            row = count.row(f"Client, {TASKS} tasks", lean)
            count.is_over = True
    return row


def run(lean: Lean, cluster: LocalCluster, arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], int]:
    """Measure both clients; print the table as it grows."""
    nodes = [node.http for node in cluster.nodes()]
    rows = []
    if not arguments.json:
        print(f"{'':<24}{'cycles/s':>10}{'lean':>10}{'ratio':>8}{'client us':>11}{'lean us':>9}")
    for workers in (THREADS, TASKS):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            reference = runner.run(_measured(lean(cluster, workers, arguments.seconds)))
        if workers == THREADS:
            row = threads(nodes, arguments.seconds, reference)
        else:
            row = asyncio.run(tasks(nodes, arguments.seconds, reference))
        rows.append(row)
        if not arguments.json:
            print(
                f"{row['client']:<24}{row['cycles_per_s']:>10.0f}{row['lean_cycles_per_s']:>10.0f}"
                f"{row['ratio']:>8.2f}{row['client_us_per_cycle']:>11.0f}{row['lean_us_per_cycle']:>9.0f}",
                flush=True,
            )
    return rows, 0 if all(row["cycles_per_s"] > 0 for row in rows) else 1


async def _measured(step: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    return await step
