"""A long run: rounds of everything, each with a fresh seed, and then a time in which nothing is asked.

What grows under load must go down again without it: memory, open files, remembered requests, the disk. What
does not is a leak, and fails the soak.

Memory is what is in use, as a node tells (/metrics), and not what its process has from the kernel:
allocators keep most of what was freed. Some is meant to stay: the newest events, for watchers that resume,
the log since the last snapshot, and the state. A node tells how much it has of each, and may have the memory
for that, up to the bound that each of them has. Whatever else grows is a leak.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from lab.chaos import schedule
from lab.chaos.history import Operation, read_history
from lab.chaos.run import HISTORY_FILE, Plan, Report, run
from lab.chaos.targets.processes import ProcessTarget
from scripts.lib import processes

ROUND_S: Final = 300.0
"""Seconds of one round: its history is checked by itself, and a clean one is not kept."""
LINE_S: Final = 60.0
BROKEN: Final = 1
"""The exit code of a round that broke a promise."""
FILES_MARGIN: Final = 10
MEMORY_MARGIN_BYTES: Final = 32 * 1024 * 1024
"""Above what a node used before the load and what it keeps on purpose: caches that have filled since."""
BLOCK_BYTES: Final = 88
"""The bytes of one small block of Python's, on average, measured on a node after a load."""
KEPT: Final = {
    "holdfast_history_events": (700, 110_000),
    "holdfast_log_entries": (400, 60_000),
    "holdfast_log_bytes": (1, 128 * 1024 * 1024),
    "holdfast_state_bytes": (1, 128 * 1024 * 1024),
}
"""What a node keeps on purpose, by the metric that tells: the bytes that one takes in memory, and how many
it may have at most. (There are 100,000 events and the last entry as a whole, and twice `compact_entries`.)"""
DISK_BYTES: Final = 512 * 1024 * 1024
"""What a node may have on its disk in the end: snapshots, segments, a log that was written to its bound."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What one node takes at one moment."""

    node: str
    used_bytes: int
    """The memory that is in use."""
    resident_bytes: int
    """What the kernel counts: what is in use, what allocators keep, and programs and libraries."""
    files: int
    disk_bytes: int
    requests: int
    term: int
    kept_bytes: int = 0
    """The memory of what it keeps on purpose."""

    def __str__(self) -> str:
        return (
            f"{self.node}: {self.resident_bytes >> 20} MiB ({self.used_bytes >> 20} in use,"
            f" {self.kept_bytes >> 20} on purpose), {self.files} files, {self.disk_bytes >> 20} MiB of disk"
        )


class Soak:
    """One soak on a target that is open."""

    def __init__(
        self, target: ProcessTarget, plan: Plan, *, quiet_s: float, tell: Callable[[str], None]
    ) -> None:
        """`plan.seconds` is how long the load lasts; `quiet_s` how long nothing is asked afterwards."""
        self._target = target
        self._plan = plan
        self._quiet_s = quiet_s
        self._tell = tell
        self.reports: list[Report] = []

    async def run(self) -> list[str]:
        """Run it; return what is wrong, nothing if all is well.

        Gaps above the budget are told, and stand in the reports; only a broken promise ends it early.
        """
        before = self.samples()
        end_s = time.monotonic() + self._plan.seconds
        number = 0
        while (left_s := end_s - time.monotonic()) > LINE_S / 2 or not self.reports:
            report = await self._round(number, min(left_s, ROUND_S))
            self.reports.append(report)
            if report.exit_code == BROKEN:
                return [f"round {number} with seed {self._plan.seed + number} broke a promise"]
            for problem in report.problems:
                self._tell(f"round {number} with seed {self._plan.seed + number}: {problem}")
            number += 1
        self._tell(f"nothing is asked for {self._quiet_s:.0f} s")
        await asyncio.sleep(self._quiet_s)
        after = self.samples()
        for what, samples in (("in the beginning", before), ("in the end", after)):
            self._tell(f"{what}: {'; '.join(map(str, samples))}")
        return leaks(before, after)

    async def _round(self, number: int, seconds: float) -> Report:
        """Run one round, with a line a minute."""
        seed = self._plan.seed + number
        directory = self._plan.directory / f"round-{number}"
        directory.mkdir(parents=True)
        plan = msgspec.structs.replace(
            self._plan,
            seed=seed,
            seconds=seconds,
            directory=directory,
            steps=schedule.draw(seed, self._plan.faults, seconds),
        )
        teller = asyncio.create_task(self._lines(directory / HISTORY_FILE))
        try:
            report = await run(self._target, plan, lambda _: None)
        finally:
            teller.cancel()
        if report.exit_code == 0:
            (directory / HISTORY_FILE).unlink()
        return report

    async def _lines(self, path: Path) -> None:
        """Tell once a minute how it goes."""
        began_s, seen = time.monotonic(), 0
        while True:
            await asyncio.sleep(LINE_S)
            operations = list(read_history(path).operations[seen:])
            seen += len(operations)
            samples = await asyncio.to_thread(self.samples)
            self._tell(_line(time.monotonic() - began_s, operations, samples))

    def samples(self) -> list[Sample]:
        """Return what each node takes now."""
        return [self._sample(node.id, node.pid) for node in self._target.cluster.nodes()]

    def _sample(self, node_id: str, pid: int) -> Sample:
        """Return what one node takes; zeros for one that is down."""
        answer = self._target.ask_text(node_id, "/metrics") or ""
        try:
            resident_bytes = processes.resident_bytes(pid)
            files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        except OSError:
            resident_bytes = files = 0
        data = self._target.cluster.data_dir(node_id)
        return Sample(
            node=node_id,
            used_bytes=used_bytes(answer),
            resident_bytes=resident_bytes,
            files=files,
            disk_bytes=sum(path.stat().st_blocks * 512 for path in data.glob("*") if path.is_file()),
            requests=round(metric(answer, "holdfast_requests")),
            term=round(metric(answer, "holdfast_term")),
            kept_bytes=kept_bytes(answer),
        )


def metric(text: str, name: str) -> float:
    """Return the value of a metric without labels in the text of /metrics; 0 if it is not there."""
    for line in text.splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[1])
    return 0.0


def kept_bytes(text: str) -> int:
    """Return the memory of what a node keeps on purpose, as the text of its /metrics tells."""
    return sum(round(each * min(metric(text, name), count_max)) for name, (each, count_max) in KEPT.items())


def used_bytes(text: str) -> int:
    """Return the memory that a node uses, as the text of its /metrics tells."""
    blocks = metric(text, "holdfast_memory_blocks")
    return round(blocks * BLOCK_BYTES + metric(text, "holdfast_memory_malloc_bytes"))


def leaks(before: Sequence[Sample], after: Sequence[Sample]) -> list[str]:
    """Return what has not gone down again, in sentences."""
    first = {sample.node: sample for sample in before}
    found = []
    for sample in after:
        was = first.get(sample.node)
        if was is None:
            continue
        if not sample.used_bytes:
            found.append(f"{sample.node} does not tell how much memory it uses")
        used_bytes_max = was.used_bytes + MEMORY_MARGIN_BYTES + sample.kept_bytes
        for what, value, bound in (
            ("open files", sample.files, was.files + FILES_MARGIN),
            ("bytes of memory in use", sample.used_bytes, used_bytes_max),
            ("remembered requests", sample.requests, was.requests),
            ("bytes on the disk", sample.disk_bytes, max(was.disk_bytes, DISK_BYTES)),
        ):
            if value > bound:
                found.append(f"{sample.node} has {value} {what} without load, and may have {bound}")
    return found


def _line(elapsed_s: float, operations: Sequence[Operation], samples: Sequence[Sample]) -> str:
    """Return the line of a minute."""
    times = sorted(item.return_ns for item in operations if item.outcome == "ok")
    gap_s = max((b - a for a, b in itertools.pairwise(times)), default=0) / 1e9
    parts = [
        f"{elapsed_s:6.0f} s",
        f"{len(operations)} operations",
        f"{sum(item.outcome == 'unknown' for item in operations)} unknown",
        f"longest gap {gap_s:.2f} s",
        f"term {max((sample.term for sample in samples), default=0)}",
    ]
    for sample in samples:
        latencies = sorted(
            item.return_ns - item.call_ns
            for item in operations
            if item.node == sample.node and item.attempts == 1 and not item.arguments.get("wait_ms")
        )
        p99_ms = latencies[int(len(latencies) * 0.99)] / 1e6 if latencies else 0.0
        parts.append(f"{sample}, p99 {p99_ms:.0f} ms")
    return "; ".join(parts)
