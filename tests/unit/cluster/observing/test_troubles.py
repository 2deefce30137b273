"""What is wrong with a node that runs nevertheless."""

from types import SimpleNamespace
from typing import cast

from cluster.commands.clock_watch import ClockWatch
from cluster.consensus.compaction import LogSpace
from cluster.consensus.divergence import Divergence
from cluster.consensus.engine import Engine
from cluster.observing.troubles import troubles
from cluster.peers.disk_watch import WEIGHT, DiskWatch
from cluster.peers.space_watch import SpaceWatch
from cluster.storage.disk_space import DiskSpace

NOW_S = 100.0


def told(
    *,
    failing_s: float = 0.0,
    room: LogSpace = LogSpace.ANYTHING,
    is_off: bool = False,
    differing: frozenset[str] = frozenset(),
    is_in_doubt: bool = False,
    sync_age_s: float = 0.0,
    syncs_ms: tuple[int, int] = (1, 1),
    free_bytes: int | None = None,
) -> tuple[str, ...]:
    """Return the sentences for a node."""
    engine = SimpleNamespace(snapshots_failing_s=failing_s, log_room=room)
    clocks = SimpleNamespace(is_off=is_off, ppm=100_000.0)
    divergence = SimpleNamespace(differing=differing, is_in_doubt=is_in_doubt, doubted_s=1.0)
    disk = DiskWatch()
    own_ms, others_ms = syncs_ms
    disk.ended(own_ms / 1000 / WEIGHT)
    disk.reason_to_hand_over({"n2": others_ms}, NOW_S - 12)
    if sync_age_s:
        disk.begun(NOW_S - sync_age_s)
    space = SpaceWatch()
    if free_bytes is not None:
        space.found(DiskSpace(free=free_bytes), NOW_S)
    found = troubles(
        cast("Engine", engine),
        cast("ClockWatch", clocks),
        cast("Divergence", divergence),
        disk,
        NOW_S,
        room=space,
    )
    return tuple(trouble.detail for trouble in found)


def test_a_disk_that_is_nearly_full_is_told() -> None:
    """With how much is left."""
    assert told(free_bytes=1 << 40) == ()
    (sentence,) = told(free_bytes=3 << 20)
    assert sentence == "the disk is nearly full: 3 MiB are free, and the node stops without"


def test_a_disk_that_hangs_is_told() -> None:
    """With how long it has done so, and not for a second."""
    assert told(sync_age_s=0.9) == ()
    assert told(sync_age_s=7.2) == ("the disk hangs: a sync has been under way for 7 s",)


def test_a_slow_disk_is_told() -> None:
    """If it is much slower than those of the others, and has been for a while."""
    assert told(syncs_ms=(90, 80)) == ()
    (sentence,) = told(syncs_ms=(90, 2))
    assert sentence == "the disk is slow: syncs have taken about 90 ms for 12 s"


def test_a_healthy_node_has_no_troubles() -> None:
    """There is nothing to say."""
    assert told() == ()


def test_each_trouble_has_a_sentence() -> None:
    """With the figure that matters."""
    assert told(failing_s=12.3) == ("snapshots have been failing for 12 s",)
    assert told(room=LogSpace.WHAT_FREES) == (
        "the log has no room left: only requests that free something are accepted",
    )
    assert told(room=LogSpace.NOTHING) == ("the log is full: no requests are accepted",)
    assert told(differing=frozenset({"n3", "n2"})) == ("the state of this node is not that of n2, n3",)
    assert told(is_in_doubt=True) == ("no majority says which state is right: no requests are accepted",)
    assert told(is_off=True) == ("this machine's clock is off by 100000 ppm: the node should not lead",)
