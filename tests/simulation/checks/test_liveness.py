"""The bounds on what takes how long and grows how large object to what is over them, and to nothing else."""

from typing import Any

from tests.simulation.checks.liveness import (
    ALONE_ELECTIONS,
    FILES,
    LEADER_ELECTIONS,
    LEADER_S,
    LOG_COMPACTIONS,
    LOG_ENTRIES,
    SEGMENTS,
    UNKNOWN_MIN,
    Liveness,
    Vitals,
)
from tests.simulation.checks.liveness import (
    LATE_US as LATE_US_MAX,
)
from tests.simulation.checks.report import Report
from tests.simulation.checks.scripted_cluster import objects

US = 1_000_000
ABC = ("a", "b", "c")
LATE_US = int((LEADER_S + LEADER_ELECTIONS + 1) * US)
ALONE_US = (ALONE_ELECTIONS + 2) * US


def bounds() -> Liveness:
    """Return bounds for nodes with a patience of one second."""
    return Liveness(Report(), election_s=1.0, compact_entries=100, segment_bytes=1_000)


def node(node_id: str = "a", leader_id: str | None = "a", **facts: Any) -> Vitals:
    """Return what a well node shows."""
    shown: dict[str, Any] = {
        "voters": ABC,
        "log_entries": 10,
        "log_bytes": 100,
        "segments": 1,
        "files": 5,
        "stood_us": 0,
        "is_removing": False,
        "is_compacting": False,
    }
    return Vitals(node_id=node_id, leader_id=leader_id, is_leader=node_id == leader_id, **{**shown, **facts})


def test_a_leader_in_time_passes() -> None:
    """A leader that all running nodes follow soon is in order, and its time is kept."""
    liveness = bounds()
    liveness.healed(US)
    liveness.look([node("a", None), node("b", None)], ABC, 2 * US)
    liveness.look([node("a"), node("b")], ABC, 3 * US)
    liveness.look([node("a", None)], ("a",), LATE_US + US)
    assert liveness.figures["leader-after-s"] == [2.0]


def test_no_leader_where_few_run() -> None:
    """Nobody has to lead while no majority runs, or while there are faults."""
    liveness = bounds()
    liveness.healed(0)
    liveness.look([node("a", None)], ABC, LATE_US)
    liveness.troubled()
    liveness.look([node(each, None) for each in ABC], ABC, LATE_US)


def test_a_leader_that_is_late() -> None:
    """Nodes that know no leader, or different ones, long after everything was healed are found."""
    for leaders in ((None, None), ("a", "b"), ("a", None), ("c", "c")):
        liveness = bounds()
        liveness.healed(0)
        with objects("leader-late"):
            liveness.look([node("a", leaders[0]), node("b", leaders[1])], ABC, LATE_US)


def test_a_leader_that_is_alone() -> None:
    """A leader that has heard no majority for long is found; one that stood still has its time."""
    liveness = bounds()
    liveness.look([node()], ABC, 0)
    liveness.heard("a", "b", ALONE_US - US)
    liveness.look([node()], ABC, ALONE_US)
    liveness.look([node(stood_us=2 * ALONE_US)], ABC, 2 * ALONE_US)
    with objects("lone-leader"):
        liveness.look([node()], ABC, 2 * ALONE_US)
    liveness.look([node(leader_id="b")], ABC, 3 * ALONE_US)
    liveness.look([node()], ABC, 4 * ALONE_US)


def test_a_call_without_an_end() -> None:
    """A call that is open long after its time, in a stretch without faults, is found."""
    liveness = bounds()
    liveness.begun(1, "n1.1", 2 * US, 0)
    liveness.begun(2, "n1.1", 2 * US, 5 * US)
    liveness.begun(3, "n1.1", 9 * US, 5 * US)
    liveness.ended(2)
    liveness.healthy(US, 12 * US)
    liveness.begun(4, "n1.1", 2 * US, 5 * US)
    with objects("call-ends"):
        liveness.healthy(US, 12 * US)


def test_a_command_that_ends_late() -> None:
    """A command that a node gives up long after its time is found."""
    bounds().ended_late(1, "n1.1", LATE_US_MAX)
    with objects("call-in-time"):
        bounds().ended_late(1, "n1.1", LATE_US_MAX + 1)


def test_calls_without_an_outcome() -> None:
    """Many calls without a certain outcome in a stretch without faults are found."""
    liveness = bounds()
    liveness.outcomes(0, 0)
    liveness.outcomes(UNKNOWN_MIN - 1, UNKNOWN_MIN)
    liveness.outcomes(UNKNOWN_MIN, 10 * UNKNOWN_MIN)
    with objects("outcome-known"):
        liveness.outcomes(UNKNOWN_MIN, 2 * UNKNOWN_MIN)


def test_what_grows() -> None:
    """A log that is not compacted, segments that are not removed and files that pile up are found."""
    longest = LOG_COMPACTIONS * 100 + LOG_ENTRIES
    bounds().sizes([node(log_entries=longest), node(log_entries=longest + 1, is_compacting=True)])
    bounds().sizes([node(segments=SEGMENTS + 3, log_bytes=1_500)])
    bounds().sizes([node(segments=SEGMENTS + 4, log_bytes=1_500, is_removing=True)])
    bounds().sizes([node(segments=SEGMENTS + 11, log_bytes=1_500, log_entries=100)])
    with objects("log-bounded"):
        bounds().sizes([node(log_entries=longest + 1)])
    with objects("disk-bounded"):
        bounds().sizes([node(segments=SEGMENTS + 4, log_bytes=1_500)])
    with objects("disk-bounded"):
        bounds().sizes([node(files=FILES + 1)])
