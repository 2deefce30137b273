"""What is wrong with a node that runs nevertheless, in sentences: for /livez and among the obstacles."""

from typing import NamedTuple

from cluster.commands.clock_watch import ClockWatch
from cluster.consensus.compaction import LogSpace
from cluster.consensus.divergence import Divergence
from cluster.consensus.engine import Engine
from cluster.peers.disk_watch import HANGING_S, DiskWatch
from cluster.peers.space_watch import SpaceWatch


class Trouble(NamedTuple):
    """One thing that is wrong. `for_s` is for how long, in seconds; 0 where that is not known."""

    kind: str
    for_s: float
    detail: str


def troubles(
    engine: Engine,
    clocks: ClockWatch,
    divergence: Divergence,
    disk: DiskWatch,
    now_s: float,
    *,
    room: SpaceWatch | None = None,
) -> list[Trouble]:
    """Return all troubles, none if all is well."""
    found = []
    failing_s, sync_age_s, slow_s = engine.snapshots_failing_s, disk.age_s(now_s), disk.slow_s(now_s)
    if failing_s:
        detail = f"snapshots have been failing for {failing_s:.0f} s"
        found.append(Trouble("snapshots-failing", failing_s, detail))
    if engine.log_room is LogSpace.WHAT_FREES:
        detail = "the log has no room left: only requests that free something are accepted"
        found.append(Trouble("log-full", 0.0, detail))
    elif engine.log_room is LogSpace.NOTHING:
        found.append(Trouble("log-full", 0.0, "the log is full: no requests are accepted"))
    if sync_age_s > HANGING_S:
        detail = f"the disk hangs: a sync has been under way for {sync_age_s:.0f} s"
        found.append(Trouble("disk-hangs", sync_age_s, detail))
    elif slow_s:
        detail = f"the disk is slow: syncs have taken about {disk.sync_ms(now_s)} ms for {slow_s:.0f} s"
        found.append(Trouble("disk-slow", slow_s, detail))
    nearly_full_s = room.nearly_full_s(now_s) if room is not None else None
    if room is not None and room.space is not None and nearly_full_s is not None:
        detail = f"the disk is nearly full: {room.space.free >> 20} MiB are free, and the node stops without"
        found.append(Trouble("disk-nearly-full", nearly_full_s, detail))
    if clocks.is_off:
        detail = f"this machine's clock is off by {clocks.ppm:.0f} ppm: the node should not lead"
        found.append(Trouble("clock-off", 0.0, detail))
    if divergence.differing:
        detail = f"the state of this node is not that of {', '.join(sorted(divergence.differing))}"
        found.append(Trouble("state-differs", divergence.doubted_s, detail))
    if divergence.is_in_doubt:
        detail = "no majority says which state is right: no requests are accepted"
        found.append(Trouble("in-doubt", divergence.doubted_s, detail))
    return found
