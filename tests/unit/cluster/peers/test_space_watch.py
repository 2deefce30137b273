"""A disk that is nearly full is told before a write fails, once, and until there is room again."""

import logging

import pytest

from cluster.peers.space_watch import LOOK_S, SPARE_BYTES, SpaceWatch, needed_bytes
from cluster.storage.disk_space import DiskSpace
from cluster.storage.disk_work import Job, WorkInPlace

SNAPSHOT = 1 << 20
NEEDED = SNAPSHOT + SPARE_BYTES


def space(free: int) -> DiskSpace:
    """Return a disk with so many free bytes."""
    return DiskSpace(snapshot=SNAPSHOT, free=free)


def test_the_next_snapshot_and_the_journal_need_room() -> None:
    """The larger the state, the more has to be free."""
    assert needed_bytes(space(0)) == NEEDED


def test_a_nearly_full_disk_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """A line when it begins, and one when there is clearly more room than is needed."""
    caplog.set_level(logging.INFO)
    watch = SpaceWatch("/data")
    said = []
    for at_s, free in enumerate([NEEDED, NEEDED - 1, NEEDED - 2, NEEDED + 1, 2 * NEEDED, 2 * NEEDED]):
        watch.found(space(free), float(at_s))
        said.append(watch.nearly_full_s(float(at_s)))
    assert said == [None, 0.0, 1.0, 2.0, None, None]
    assert [text.split()[0] for text in caplog.messages] == ["event=disk-nearly-full", "event=disk-has-room"]
    assert f"directory='/data' free_bytes={NEEDED - 1} needed_bytes={NEEDED} " in caplog.messages[0]


def test_it_looks_now_and_then() -> None:
    """Not at every call, and not while the look before has not ended."""
    started: list[Job] = []

    class Work(WorkInPlace):
        def start(self, job: Job) -> None:
            """Keep it."""
            started.append(job)

    watch = SpaceWatch("/data", lambda: space(2 * NEEDED), Work())
    watch.look(0.0)
    watch.look(100.0)
    assert (len(started), watch.space) == (1, None)
    started[0].do()
    started[0].ended()
    assert watch.space == space(2 * NEEDED)
    watch.look(LOOK_S - 0.1)
    assert len(started) == 1
    watch.look(LOOK_S)
    assert len(started) == 2


def test_a_disk_that_cannot_be_measured_is_not_known() -> None:
    """The directory may have gone: that is found out by those that write."""

    def fail() -> DiskSpace:
        raise PermissionError

    watch = SpaceWatch("/data", fail, WorkInPlace())
    watch.look(0.0)
    assert (watch.space, watch.nearly_full_s(0.0)) == (None, None)


def test_without_a_disk_nothing_is_looked_at() -> None:
    """As in simulations."""
    watch = SpaceWatch()
    watch.look(0.0)
    assert watch.space is None
