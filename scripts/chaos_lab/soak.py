"""A long run: rounds of everything, each with a fresh seed, and then a time in which nothing is asked.

What grows under load must go down again without it: memory, open files, remembered requests, the disk. What
does not is a leak, and fails the soak.

Some memory is meant to stay: the newest events, for watchers that resume, the log since the last snapshot,
and the state. A node tells how much it has of each (/metrics), and may have the memory for that, up to the
bound that each of them has. And some is kept by Python's allocator, which gives back only whole blocks of a
mebibyte: of what the load took at its height it may keep half. Whatever else grows has no such excuse.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from scripts.chaos_lab import schedule
from scripts.chaos_lab.history import Operation, read_history
from scripts.chaos_lab.run import HISTORY_FILE, Plan, Report, run
from scripts.chaos_lab.targets.processes import ProcessTarget
from scripts.lib import processes

ROUND_S: Final = 300.0
"""Seconds of one round: its history is checked by itself, and a clean one is not kept."""
LINE_S: Final = 60.0
BROKEN: Final = 1
"""The exit code of a round that broke a promise."""
FILES_MARGIN: Final = 10
MEMORY_MARGIN_BYTES: Final = 32 * 1024 * 1024
"""Above what a node had before the load and what it keeps on purpose: an allocator keeps some."""
HEIGHT_PART: Final = 2
"""One in so many bytes of what the load took at its height may be kept instead, if that is more."""
KEPT: Final = {
    "holdfast_history_events": (700, 110_000),
    "holdfast_log_entries": (400, 60_000),
    "holdfast_log_bytes": (1, 128 * 1024 * 1024),
    "holdfast_state_bytes": (1, 128 * 1024 * 1024),
}
"""What a node keeps on purpose, by the metric that tells: the bytes that one takes in memory, and how many
it may have at most. (There are 100,000 events and the last entry as a whole, and twice `compact_entries`.)"""
_NO_HEIGHT: Final[Mapping[str, int]] = {}
DISK_BYTES: Final = 512 * 1024 * 1024
"""What a node may have on its disk in the end: snapshots, segments, a log that was written to its bound."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What one node takes at one moment."""

    node: str
    resident_bytes: int
    files: int
    disk_bytes: int
    requests: int
    term: int
    kept_bytes: int = 0
    """The memory of what it keeps on purpose."""

    def __str__(self) -> str:
        return (
            f"{self.node}: {self.resident_bytes >> 20} MiB ({self.kept_bytes >> 20} kept on purpose),"
            f" {self.files} files, {self.disk_bytes >> 20} MiB of disk"
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
        self._height_bytes: dict[str, int] = {}
        """The most that each node was seen to take."""

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
        return leaks(before, after, self._height_bytes)

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
        samples = [self._sample(node.id, node.pid) for node in self._target.cluster.nodes()]
        for sample in samples:
            height_bytes = max(self._height_bytes.get(sample.node, 0), sample.resident_bytes)
            self._height_bytes[sample.node] = height_bytes
        return samples

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


def leaks(
    before: Sequence[Sample], after: Sequence[Sample], height_bytes: Mapping[str, int] = _NO_HEIGHT
) -> list[str]:
    """Return what has not gone down again, in sentences; `height_bytes` is the most that each node took."""
    first = {sample.node: sample for sample in before}
    found = []
    for sample in after:
        was = first.get(sample.node)
        if was is None:
            continue
        taken_bytes = height_bytes.get(sample.node, 0) - was.resident_bytes
        margin_bytes = max(MEMORY_MARGIN_BYTES, taken_bytes // HEIGHT_PART)
        resident_bytes_max = was.resident_bytes + margin_bytes + sample.kept_bytes
        for what, value, bound in (
            ("open files", sample.files, was.files + FILES_MARGIN),
            ("bytes of memory", sample.resident_bytes, resident_bytes_max),
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
