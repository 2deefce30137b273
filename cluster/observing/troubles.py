"""What is wrong with a node that runs nevertheless, in sentences for /livez."""

from cluster.consensus.compaction import LogRoom
from cluster.consensus.engine import Engine


def troubles(engine: Engine) -> tuple[str, ...]:
    """Return a sentence for each trouble, none if all is well."""
    found = []
    if engine.snapshots_failing_s:
        found.append(f"snapshots have been failing for {engine.snapshots_failing_s:.0f} s")
    if engine.log_room is LogRoom.WHAT_FREES:
        found.append("the log has no room left: only what frees something is taken")
    elif engine.log_room is LogRoom.NOTHING:
        found.append("the log is as long as it may get: nothing is taken")
    return tuple(found)
