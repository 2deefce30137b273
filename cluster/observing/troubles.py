"""What is wrong with a node that runs nevertheless, in sentences for /livez."""

from cluster.commands.clock_watch import ClockWatch
from cluster.consensus.compaction import LogRoom
from cluster.consensus.divergence import Divergence
from cluster.consensus.engine import Engine
from cluster.peers.disk_watch import HANGING_S


def troubles(
    engine: Engine, clocks: ClockWatch, divergence: Divergence, sync_age_s: float = 0.0
) -> tuple[str, ...]:
    """Return a sentence for each trouble, none if all is well."""
    found = []
    if engine.snapshots_failing_s:
        found.append(f"snapshots have been failing for {engine.snapshots_failing_s:.0f} s")
    if engine.log_room is LogRoom.WHAT_FREES:
        found.append("the log has no room left: only what frees something is taken")
    elif engine.log_room is LogRoom.NOTHING:
        found.append("the log is as long as it may get: nothing is taken")
    if sync_age_s > HANGING_S:
        found.append(f"the disk hangs: a sync has been under way for {sync_age_s:.0f} s")
    if clocks.is_off:
        found.append(f"this machine's clock is off by {clocks.ppm:.0f} ppm: the node should not lead")
    if divergence.differing:
        found.append(f"the state of this node is not that of {', '.join(sorted(divergence.differing))}")
    if divergence.is_in_doubt:
        found.append("no majority says which state is right: no requests are taken")
    return tuple(found)
