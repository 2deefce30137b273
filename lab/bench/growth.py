"""scripts/bench growth: what a cluster still does when much is held, kept alive, watched or asked for."""

import argparse
import contextlib
import os
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from lab.bench import options
from lab.bench.memory import NODE_BYTES_MAX
from lab.loads import holders
from lab.loads.crowd_members import KEEPALIVES_PER_TTL
from lab.loads.crowd_process import CrowdProcess, Report
from lab.loads.load_steps import http_step, stream_step
from lab.loads.reconnects import reconnects
from lab.measuring import bars, open_files
from lab.measuring.bars import Bar
from lab.measuring.findings import Found, Judged, Row, add_check, say, table
from scripts.lib import processes
from scripts.local_cluster import LocalCluster

LOCKS: Final = 1_000_000
SESSIONS: Final = 10_000
SESSION_TTL_MS: Final = 30_000
SESSION_CONNECTIONS: Final = 64
WATCHERS: Final = 1_000
LOCK_STEPS: Final = 6
"""Steps beside held locks: within them each node writes a snapshot, or is about to."""
STREAMS: Final = 3_000
WORKERS: Final = 256
SHARE_MIN: Final = 70.0
"""Percent of the cycles without anything else that are left beside locks, sessions or watchers, at least."""
NAMES_SHARE_MIN: Final = 80.0
"""Percent of the cycles with flat names that are left with names of four parts, at least."""
ONCE_SHARE_MIN: Final = 90.0
"""Percent of the cycles without request ids that are left with them, at least."""
DESCRIPTION: Final = (
    f"How many cycles of acquire and release a second {WORKERS} workers on one stream to the leader do,"
    " first in a cluster without anything else in it, then beside each of these, and again without:"
    f" {SESSIONS:,} sessions with a ttl of {SESSION_TTL_MS // 1000} s and {KEEPALIVES_PER_TTL} keepalives"
    f" in each over HTTP; {WATCHERS:,} watchers spread over the nodes, each of the names of one worker;"
    " with names of four parts instead of flat ones. Then the same over HTTP with a `request_id` in each"
    " request and without, and how much processor time accepting a stream costs, new and come back. At"
    f" last {LOCKS:,} locks are acquired, each with a lease of its own, and the cycles beside them"
    f" measured in {LOCK_STEPS} steps, whose mean counts, because nodes write long snapshots in some of them:"
    " filling takes some minutes and 1.5 GB of memory for each node. A share is what is left"
    f" of the cycles right before and right after. The bars: {SHARE_MIN:g} % beside locks, sessions and"
    f" watchers each, {NAMES_SHARE_MIN:g} % with names of four parts, {ONCE_SHARE_MIN:g} % with request"
    f" ids, and {NODE_BYTES_MAX} bytes of each node for a held lock. The exit code is 1 if any answer was"
    " an error, a session was lost or a watcher cut off."
)
_COLUMNS: Final = (
    ("before", "before_per_s", "{:.0f}"),
    ("cycles/s", "per_s", "{:.0f}"),
    ("after", "after_per_s", "{:.0f}"),
    ("share %", "share_percent", "{:.0f}"),
    ("worst %", "worst_percent", "{:.0f}"),
    ("p99 ms", "acquire_p99_ms", "{:.1f}"),
    ("nodes us", "nodes_us", "{:.0f}"),
    ("theirs/s", "theirs_per_s", "{:.0f}"),
    ("theirs %", "theirs_percent", "{:.0f}"),
    ("others %", "others_percent", "{:.0f}"),
)
_STREAM_COLUMNS: Final = (
    ("streams/s", "per_s", "{:.0f}"),
    ("nodes us", "nodes_us_each", "{:.0f}"),
    ("client us", "client_us_each", "{:.0f}"),
    ("worst ms", "worst_ms", "{:.0f}"),
    ("others %", "others_percent", "{:.0f}"),
)


class Subject(NamedTuple):
    """One thing that a cluster is measured beside or with."""

    key: str
    least: float
    """What the share has to be at least, in percent."""
    words: str
    """What the bar says of it."""
    full: int
    """How many of it the bar speaks of."""


SUBJECTS: Final = (
    Subject("sessions", SHARE_MIN, f"{SESSIONS:,} sessions with keepalives", SESSIONS),
    Subject("watchers", SHARE_MIN, f"{WATCHERS:,} watchers of prefixes", WATCHERS),
    Subject("names", NAMES_SHARE_MIN, "names of four parts", 0),
    Subject("once", ONCE_SHARE_MIN, "a request_id in each request", 0),
    Subject("locks", SHARE_MIN, f"{LOCKS:,} held locks", LOCKS),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    for flag, default, what in (
        ("--locks", LOCKS, "how many locks are held"),
        ("--sessions", SESSIONS, "how many sessions are kept alive"),
        ("--watchers", WATCHERS, "how many watch"),
        ("--streams", STREAMS, "how many streams begin and come back"),
    ):
        options.add_number(parser, flag, default, what, read=_count, more="; 0: leave that out")
    options.add_number(parser, "--lock-steps", LOCK_STEPS, "how many steps beside held locks")
    options.add_number(parser, "--workers", WORKERS, "how many workers")
    options.add_seconds(parser)
    add_check(parser)


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise argparse.ArgumentTypeError(f"{text}: must be 0 or more")
    return count


class Growth:
    """One run: a cluster, what is asked for, and what was found so far."""

    def __init__(self, cluster: LocalCluster, arguments: argparse.Namespace) -> None:
        self._cluster = cluster
        self._arguments = arguments
        self._flat = [f"growth-{number:03}-lock" for number in range(arguments.workers)]
        self.rows: list[Row] = []
        self.errors: list[str] = []

    async def run(self) -> None:
        """Measure everything that is asked for. What cannot be taken away again comes last."""
        if self._arguments.sessions:
            await self._sessions(self._arguments.sessions)
        if self._arguments.watchers:
            await self._watchers(self._arguments.watchers)
        await self._names()
        await self._once()
        if self._arguments.streams:
            say(f"{self._arguments.streams} streams begin, break and come back")
            self.rows += await reconnects(self._cluster, self._arguments.streams)
        if self._arguments.locks:
            await self._locks(self._arguments.locks)

    # -- the subjects ---------------------------------------------------------------------------------------

    async def _sessions(self, count: int) -> None:
        """Measure beside sessions that are kept alive."""
        crowd = self._crowd("keep", SESSION_CONNECTIONS, sessions=count, ttl_ms=SESSION_TTL_MS)
        await self._beside("sessions", f"{count:,} sessions with keepalives", count, crowd)

    async def _watchers(self, count: int) -> None:
        """Measure beside watchers, each of the names of one worker."""
        prefixes = [name.removesuffix("lock") for name in self._flat]
        crowd = self._crowd("watch", count, prefixes=prefixes)
        await self._beside("watchers", f"{count:,} watchers of prefixes", count, crowd)

    async def _names(self) -> None:
        """Measure names of four parts against flat ones."""
        deep = [f"growth/{number % 16}/names/{number}" for number in range(self._arguments.workers)]
        steps = [
            await self._stream(text, names)
            for text, names in (("flat", self._flat), ("four parts", deep), ("flat", self._flat))
        ]
        self._add("names", "names of four parts, not flat", 0, steps)

    async def _once(self) -> None:
        """Measure requests with an id against such without, over HTTP: a stream has its numbers."""
        steps = []
        for is_once in (False, True, False):
            say(f"HTTP, {'with' if is_once else 'without'} request_id, {self._arguments.seconds:g} s")
            steps.append(
                await http_step(
                    self._cluster, self._arguments.workers, self._arguments.seconds, is_once=is_once
                )
            )
        self._add("once", "HTTP with request_id, not without", 0, steps)

    async def _locks(self, count: int) -> None:
        """Measure beside held locks, and what they take of each node's memory."""
        nodes = self._cluster.nodes()
        before = await self._stream("nothing is held")
        empty_bytes = [processes.resident_bytes(node.pid) for node in nodes]
        leader = self._cluster.node(self._cluster.leader()).http
        names = _Names(count)
        began_s = time.monotonic()
        await holders.hold(leader, names, say)
        say(f"{count} locks are held after {time.monotonic() - began_s:.0f} s")
        steps = [
            await self._stream(f"{count} locks are held, step {number}")
            for number in range(1, self._arguments.lock_steps + 1)
        ]
        full_bytes = [processes.resident_bytes(node.pid) for node in nodes]
        each = [(full - empty) / count for full, empty in zip(full_bytes, empty_bytes, strict=True)]
        self._add("locks", f"{count:,} held locks", count, [before, _mean(steps)])
        self.rows[-1]["node_bytes_per_lock"] = max(each)

    # -- steps ----------------------------------------------------------------------------------------------

    def _crowd(self, kind: str, clients: int, **options: Any) -> contextlib.AbstractAsyncContextManager[Any]:
        urls = [node.http for node in self._cluster.nodes()]
        return CrowdProcess.of(urls, kind, clients, **options)

    async def _stream(self, text: str, names: Sequence[str] = (), helpers: Sequence[int] = ()) -> Row:
        say(f"stream, {text}, {self._arguments.seconds:g} s")
        return await stream_step(
            self._cluster,
            self._arguments.workers,
            self._arguments.seconds,
            names=names or self._flat,
            helpers=helpers,
        )

    async def _beside(
        self, key: str, title: str, count: int, crowd: contextlib.AbstractAsyncContextManager[CrowdProcess]
    ) -> None:
        """Measure before, beside and after a crowd, of which nobody may be lost meanwhile."""
        before = await self._stream("nothing else")
        say(f"beginning {title}")
        async with crowd as process:
            began_s, begun, used_s = time.monotonic(), await process.count(), processes.cpu_s(process.pid)
            step = await self._stream(title, helpers=[process.pid])
            used_s = processes.cpu_s(process.pid) - used_s
            elapsed_s, report = time.monotonic() - began_s, await process.count()
            ended = await process.finish()
        after = await self._stream("nothing else")
        self._add(key, title, count, [before, step, after])
        self.rows[-1]["theirs_per_s"] = (report.done - begun.done) / elapsed_s
        self.rows[-1]["theirs_percent"] = used_s / elapsed_s / (os.cpu_count() or 1) * 100
        self._judge_crowd(title, begun, report, ended)

    def _judge_crowd(self, title: str, begun: Report, report: Report, ended: Report) -> None:
        """Find out whether all clients were there to the end, and had something to do."""
        self.errors += [f"{title}: {text}" for text in ended.errors]
        if report.present < begun.present:
            self.errors.append(f"{title}: {begun.present - report.present} of {begun.present} did not stay")
        if report.done == begun.done:
            self.errors.append(f"{title}: nothing reached them")

    def _add(self, key: str, title: str, count: int, steps: Sequence[Row]) -> None:
        """Add what was found of a subject: steps before, with and, where that could be, after it."""
        before, step, *rest = steps
        after = rest[0] if rest else None
        references = [row["cycles_per_s"] for row in (before, after) if row]
        reference = sum(references) / len(references)
        self.rows.append(
            {
                "key": key,
                "title": title,
                "count": count,
                "before_per_s": before["cycles_per_s"],
                "per_s": step["cycles_per_s"],
                "after_per_s": after["cycles_per_s"] if after else None,
                "share_percent": step["cycles_per_s"] / reference * 100 if reference else None,
                "worst_percent": step["worst_per_s"] / reference * 100
                if reference and "worst_per_s" in step
                else None,
                "acquire_p99_ms": step["acquire_p99_ms"],
                "nodes_us": step["server_us_per_cycle"],
                "others_percent": max(row["others_percent"] for row in steps),
            }
        )
        self.errors += [f"{title}: {error}" for row in steps for error in row["errors"]]


def _mean(steps: Sequence[Row]) -> Row:
    """Return several steps as one: the mean of each figure, the worst of them, and all errors."""
    figures = ("cycles_per_s", "server_us_per_cycle", "others_percent")
    mean = {key: sum(row[key] for row in steps) / len(steps) for key in figures}
    p99_ms = max(row["acquire_p99_ms"] for row in steps)
    errors = [error for row in steps for error in row["errors"]]
    worst_per_s = min(row["cycles_per_s"] for row in steps)
    return {**mean, "worst_per_s": worst_per_s, "acquire_p99_ms": p99_ms, "errors": errors}


class _Names(Sequence[str]):
    """Names of three parts, made when they are needed: a million strings would be memory of the client."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:
        if not 0 <= number < self._count:
            raise IndexError(number)
        return f"orders/{number % 1000}/item-{number}"


async def _measure(cluster: LocalCluster, arguments: argparse.Namespace) -> Found:
    """Measure all subjects."""
    open_files.check_room(arguments.streams)
    growth = Growth(cluster, arguments)
    await growth.run()
    return Found(growth.rows, _bars(growth.rows, arguments.workers), growth.errors)


def _bars(rows: Sequence[Row], workers: int) -> list[Bar]:
    by_key = {row["key"]: row for row in rows if "key" in row}
    found = []
    for subject in SUBJECTS:
        row = by_key.get(subject.key)
        share = row["share_percent"] if row else None
        is_full = workers >= WORKERS and row is not None and row["count"] >= subject.full
        text = f"{subject.least:g} % of the cycles: {subject.words}"
        found.append(bars.at_least(text, share, subject.least, is_full=is_full))
    row = by_key.get("locks")
    each = row["node_bytes_per_lock"] if row else None
    text = f"at most {NODE_BYTES_MAX} bytes of each node for a held lock, {LOCKS:,} of them"
    is_full = row is not None and row["count"] >= LOCKS
    return [*found, bars.at_most(text, each, NODE_BYTES_MAX, is_full=is_full)]


def _table(rows: Sequence[Row]) -> list[str]:
    streams = [row for row in rows if "streams" in row]
    return [
        *table([row for row in rows if "key" in row], _COLUMNS),
        *(table(streams, _STREAM_COLUMNS) if streams else []),
    ]


BENCHMARK: Final = Judged(
    "growth",
    "what a cluster still does when much is held, kept alive, watched or asked for",
    DESCRIPTION,
    add_arguments,
    _measure,
    _table,
)
