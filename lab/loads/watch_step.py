"""One step of scripts/bench events: clients that watch everything, under load."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from aiohttp import web

from cluster.node import Node
from cluster.observing.event_log import WatchCut
from http_api.__main__ import _connections_count_max
from http_api.app import build_server
from http_api.server.connection_limits import PlaceLimits
from http_api.v1.event_feeds import FED_COUNT_MAX
from http_api.v1.event_text import PIECE_BYTES_MAX
from http_api.v1.watch import BUFFERED_BYTES_MAX, CLOSING_S
from lab.loads.node_load import LOAD_WORKERS, PREFIX, CycleLoad, leading_node, single_config, until
from lab.loads.transcript import Told, check, shown
from lab.loads.watcher_process import WatcherProcess
from lab.measuring.pauses import PauseMeter

WARM_UP_S: Final = 1.0
DRAIN_S: Final = 120.0
"""So long watchers that are behind at the end of the load may take for the rest."""
MUTE_DRAIN_S: Final = CLOSING_S + 3
"""Seconds after the load in which watchers that read nothing read what was sent to them."""
CUT: Final = "cut: "
"""So begin the outcomes of watches that the node ended."""
LOOK_S: Final = 0.25
"""How often to look at what the connections have buffered."""
REQUEST_TIMEOUT_MS: Final = 5_000
EVENT_BYTES_MAX: Final = 400
"""No event of this load takes more, as it stands in the stream."""
PIECE_LONGEST_BYTES: Final = PIECE_BYTES_MAX + (FED_COUNT_MAX + 2 * LOAD_WORKERS) * EVENT_BYTES_MAX
"""A piece that is not quite full, and one turn of sorting more."""
BUFFER_BYTES_MAX: Final = BUFFERED_BYTES_MAX + PIECE_LONGEST_BYTES
"""What may wait for one watcher: all that lets it be fed once more, and what it is fed then."""


class Step(NamedTuple):
    """How many watchers there are, whether they read, and under which load."""

    watchers: int
    is_mute: bool
    seconds: float
    rate: float


@contextlib.asynccontextmanager
async def _served(node: Node) -> AsyncIterator[tuple[web.Server, int]]:
    """Serve the node's HTTP front end on loopback; give the server and its port."""
    server = build_server(node, REQUEST_TIMEOUT_MS, PlaceLimits(count_max=_connections_count_max()))
    runner = web.ServerRunner(server, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        yield server, runner.addresses[0][1]
    finally:
        node.begin_shutdown()
        await runner.cleanup()


async def watch(directory: Path, step: Step) -> dict[str, Any]:
    """Run one step: a node of its own, its watchers, and the load."""
    watchers, is_mute = step.watchers, step.is_mute
    told: list[Told] = []
    transcript = directory / "transcript"
    async with (
        leading_node(single_config(directory / "n1")) as (node, child),
        _served(node) as (server, port),
        WatcherProcess.of(watchers, port, PREFIX, transcript, is_mute=is_mute) as process,
    ):
        meter, load, buffers = PauseMeter(), CycleLoad(node, 0, told, step.rate), BufferMeter(server)
        async with load.running():
            await asyncio.sleep(WARM_UP_S)
            await process.count()
            cycles, forks, began_s = load.cycles, child.forks_count, time.perf_counter()
            meter.take()
            await asyncio.sleep(step.seconds)
            await until(lambda: load.cycles > cycles)  # a disk may take longer than a short step
            pauses, cycles = meter.take(), load.cycles - cycles
            elapsed_s, watching = time.perf_counter() - began_s, node.events.watchers
            await process.count()
        report = await process.finish(max(one.revision for one in told), MUTE_DRAIN_S if is_mute else DRAIN_S)
        cuts = {reason.value: count for reason, count in node.events.cuts.items() if count}
        meter.stop()
        buffers.stop()
    (first_s, first), (last_s, last) = [(count["at_s"], count["events"]) for count in report["counts"][:2]]
    return {
        "watchers": watchers,
        "is_mute": is_mute,
        "cycles_per_s": cycles / elapsed_s,
        "pauses": pauses._asdict(),
        "watching_at_end": watching,
        "watched_per_s": (last - first) / (last_s - first_s),
        "snapshots": child.forks_count - forks,
        "outcomes": report["outcomes"],
        "cuts": cuts,
        "drain_s": report["drain_s"],
        "buffer_bytes_max": buffers.worst_bytes,
        "events": report["events"],
        "faults": [
            *report["faults"],
            *shown(check(transcript.read_bytes(), told, is_whole=report["is_whole"])),
            *endings(report["outcomes"], cuts, is_mute=is_mute),
            *buffers.faults(),
        ],
    }


class BufferMeter:
    """Looks now and then at what waits in this process for each client of `server`."""

    def __init__(self, server: web.Server) -> None:
        self._server = server
        self.worst_bytes = 0
        self._look()

    def _look(self) -> None:
        for connection in self._server.connections:
            if connection.transport is not None:
                self.worst_bytes = max(self.worst_bytes, connection.transport.get_write_buffer_size())
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def stop(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def faults(self) -> list[str]:
        """Say so if more was kept for a client than may be."""
        is_good = self.worst_bytes <= BUFFER_BYTES_MAX
        return [] if is_good else [f"{self.worst_bytes} bytes waited for one client, not {BUFFER_BYTES_MAX}"]


def endings(outcomes: dict[str, int], cuts: dict[str, int], *, is_mute: bool) -> list[str]:
    """Return what is wrong with how watches ended: a watcher that missed something must have been told why.

    One that reads nothing may not hear it, because the node drops its connection; it may resume from the log.
    """
    told = Counter(
        {outcome.removeprefix(CUT): n for outcome, n in outcomes.items() if outcome.startswith(CUT)}
    )
    lost, behind = outcomes.get("lost", 0), outcomes.get("behind", 0)
    faults = []
    if is_mute:
        told[WatchCut.SLOW_READER] += lost
    elif lost:
        faults.append(f"{lost} connections ended without a word")
    # A watcher that is behind may be cut just now.
    if told - Counter(cuts) or sum(cuts.values()) > told.total() + behind:
        faults.append(f"the node cut {cuts}, and the watchers were cut {dict(told)}")
    if set(cuts) - {WatchCut.SLOW_READER}:
        faults.append(f"cut for another reason than slow-reader: {cuts}")
    if behind and not is_mute:
        faults.append(f"{behind} watchers were still behind {DRAIN_S:g} s after the load")
    return faults
