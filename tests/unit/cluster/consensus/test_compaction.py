"""When a snapshot is due, how long the pause behind a failed one is, and what a long log has room for."""

import pytest

from cluster.consensus.compaction import (
    COMPACT_SECONDS,
    ENTRY_BYTES,
    LOG_BYTES_MAX,
    REPLAYED_BYTES,
    RETRY_SECONDS_MAX,
    SPREAD,
    UNCOMPACTED_ENTRIES,
    Compaction,
    LogSpace,
)

START_S = 5000.0
ENTRIES = 100


@pytest.fixture
def compaction() -> Compaction:
    """Return the compaction of a node whose snapshot ends at entry 10."""
    return Compaction(ENTRIES, 10, START_S)


@pytest.mark.parametrize(
    ("applied", "log_bytes", "passed_s", "is_due"),
    [
        (10 + ENTRIES - 1, 0, 0, False),
        (10 + ENTRIES, 0, 0, True),
        (11, LOG_BYTES_MAX, 0, False),
        (11, LOG_BYTES_MAX + 1, 0, True),
        (11, 0, COMPACT_SECONDS, False),
        (11, 0, COMPACT_SECONDS + 1, True),
        (10, LOG_BYTES_MAX + 1, COMPACT_SECONDS + 1, False),
    ],
)
def test_a_snapshot_is_due_by_count_by_size_and_by_time(
    compaction: Compaction, applied: int, log_bytes: int, passed_s: int, *, is_due: bool
) -> None:
    """Never when nothing has changed since the last one."""
    assert compaction.is_due(applied, log_bytes, START_S + passed_s) is is_due


def test_a_snapshot_of_nothing_new_counts_as_one_of_now(compaction: Compaction) -> None:
    """An idle node looks again ten minutes later; a wish for a snapshot that is here already is forgotten."""
    compaction.force()
    assert not compaction.is_due(10, 0, START_S + COMPACT_SECONDS + 1)
    assert not compaction.is_due(11, 0, START_S + COMPACT_SECONDS + 2)
    assert compaction.is_due(11, 0, START_S + 2 * COMPACT_SECONDS + 2)


def test_what_a_start_would_apply_again_is_bounded(compaction: Compaction) -> None:
    """Whatever the count of entries: a few large batches take as long to apply as many small ones."""
    compaction.applied(0, REPLAYED_BYTES)
    assert not compaction.is_due(11, 0, START_S)
    compaction.applied(0, 1)
    assert compaction.is_due(11, 0, START_S)


def test_small_entries_count_beside_their_bytes(compaction: Compaction) -> None:
    """A start takes its time for each of them, however little is in it."""
    compaction.applied(REPLAYED_BYTES // ENTRY_BYTES, 0)
    assert not compaction.is_due(11, 0, START_S)
    compaction.applied(1, 0)
    assert compaction.is_due(11, 0, START_S)


def test_what_was_applied_while_a_snapshot_was_written_counts_for_the_next(compaction: Compaction) -> None:
    """The file has the state as it was when it was begun."""
    compaction.applied(0, 2 * REPLAYED_BYTES)
    compaction.begun()
    compaction.applied(0, REPLAYED_BYTES)
    compaction.written(12, 0, START_S)
    assert not compaction.is_due(13, 0, START_S)
    compaction.applied(0, 1)
    assert compaction.is_due(13, 0, START_S)


def test_a_failed_snapshot_leaves_all_that_was_applied(compaction: Compaction) -> None:
    """A start would still do all of it again."""
    compaction.applied(0, REPLAYED_BYTES + 1)
    compaction.begun()
    compaction.failed(START_S)
    assert compaction.is_due(11, 0, START_S + RETRY_SECONDS_MAX)


def test_a_large_state_is_not_written_more_often_than_its_own_size_comes_in(compaction: Compaction) -> None:
    """To load it takes longer than to apply so much: and each time, all of it is written."""
    compaction.written(11, 3 * REPLAYED_BYTES, START_S)
    compaction.applied(0, 3 * REPLAYED_BYTES)
    assert not compaction.is_due(12, 0, START_S)
    compaction.applied(0, 1)
    assert compaction.is_due(12, 0, START_S)


@pytest.mark.parametrize(
    ("place", "count", "share"),
    [
        (0, 1, 1),
        (0, 2, 1 - SPREAD / 2),
        (1, 2, 1 + SPREAD / 2),
        (0, 3, 1 - SPREAD / 2),
        (1, 3, 1),
        (2, 3, 1 + SPREAD / 2),
        (1, 5, 1 - SPREAD / 4),
    ],
)
def test_the_nodes_of_a_cluster_write_one_after_the_other(
    compaction: Compaction, place: int, count: int, share: float
) -> None:
    """By the count of entries, by what was applied, by the size of the log and by time."""
    compaction.take_turn(place, count)
    assert not compaction.is_due(9 + int(share * ENTRIES), 0, START_S)
    assert compaction.is_due(10 + int(share * ENTRIES), 0, START_S)
    assert not compaction.is_due(11, int(share * LOG_BYTES_MAX), START_S)
    assert compaction.is_due(11, int(share * LOG_BYTES_MAX) + 2, START_S)
    assert not compaction.is_due(11, 0, START_S + share * COMPACT_SECONDS - 0.1)
    assert compaction.is_due(11, 0, START_S + share * COMPACT_SECONDS + 0.1)
    compaction.applied(0, int(share * REPLAYED_BYTES))
    assert not compaction.is_due(11, 0, START_S)
    compaction.applied(0, 2)
    assert compaction.is_due(11, 0, START_S)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_who_is_told_that_others_write_waits_but_not_for_long(place: int) -> None:
    """Until they have written, or the log is a quarter longer, for each at another length; not for a wish."""
    writing = [True]
    compaction = Compaction(ENTRIES, 10, START_S, lambda: writing[0])
    compaction.take_turn(place, 3)
    bound = 1 + SPREAD * (place / 2 - 0.5) + SPREAD
    late = int(bound * LOG_BYTES_MAX)
    assert not compaction.is_due(11, late, START_S)
    assert compaction.is_due(11, late + 1, START_S)
    assert not compaction.is_due(11, 0, START_S + bound * COMPACT_SECONDS - 0.1)
    assert compaction.is_due(11, 0, START_S + bound * COMPACT_SECONDS + 0.1)
    assert not compaction.is_due(10 + ENTRIES, 0, START_S)
    assert compaction.is_due(10 + int(bound * ENTRIES) + 1, 0, START_S)
    writing[0] = False
    assert compaction.is_due(11, late, START_S)
    writing[0] = True
    compaction.force()
    assert compaction.is_due(11, 0, START_S)


def test_behind_a_received_snapshot_nothing_is_applied_again(compaction: Compaction) -> None:
    """Even if one of this node's own was under way."""
    compaction.applied(0, REPLAYED_BYTES)
    compaction.begun()
    compaction.received(50, START_S)
    compaction.applied(0, REPLAYED_BYTES)
    assert not compaction.is_due(51, 0, START_S)
    compaction.applied(0, 1)
    assert compaction.is_due(51, 0, START_S)


def test_pauses_behind_failures_double_up_to_a_minute(compaction: Compaction) -> None:
    """Also one that is asked for waits. A success makes the next pause short again."""
    now_s, pauses = START_S, []
    for _ in range(9):
        compaction.force()
        compaction.failed(now_s)
        began_s = now_s
        while not compaction.is_due(1000, 0, now_s):
            now_s += 0.5
        pauses.append(now_s - began_s)
    assert pauses == [1, 2, 4, 8, 16, 32, RETRY_SECONDS_MAX, RETRY_SECONDS_MAX, RETRY_SECONDS_MAX]
    assert compaction.failing_s(now_s) == now_s - START_S
    compaction.written(1000, 0, now_s)
    assert compaction.failing_s(now_s + 1) == 0
    compaction.failed(now_s)
    assert compaction.is_due(2000, 0, now_s + 1)


def test_ten_thousand_failures_are_counted_without_an_overflow(compaction: Compaction) -> None:
    """A node may try for a week."""
    for number in range(10_000):
        compaction.failed(START_S + 60 * number)
    assert compaction.failing_s(START_S + 60 * 10_000) == 600_000


def test_a_written_snapshot_ends_what_was_due(compaction: Compaction) -> None:
    """The next one is counted from it."""
    compaction.force()
    assert compaction.is_due(500, 0, START_S)
    compaction.written(500, 0, START_S)
    assert not compaction.is_due(500 + ENTRIES - 1, 0, START_S)
    assert compaction.is_due(500 + ENTRIES, 0, START_S)


@pytest.mark.parametrize(
    ("entries", "log_bytes", "room"),
    [
        (2 * ENTRIES + UNCOMPACTED_ENTRIES, 2 * LOG_BYTES_MAX, LogSpace.ANYTHING),
        (2 * ENTRIES + UNCOMPACTED_ENTRIES + 1, 0, LogSpace.WHAT_FREES),
        (0, 2 * LOG_BYTES_MAX + 1, LogSpace.WHAT_FREES),
        (3 * ENTRIES + UNCOMPACTED_ENTRIES * 3 // 2, 3 * LOG_BYTES_MAX, LogSpace.WHAT_FREES),
        (3 * ENTRIES + UNCOMPACTED_ENTRIES * 3 // 2 + 1, 0, LogSpace.NOTHING),
        (0, 3 * LOG_BYTES_MAX + 1, LogSpace.NOTHING),
    ],
)
def test_a_long_log_has_less_room(
    compaction: Compaction, entries: int, log_bytes: int, room: LogSpace
) -> None:
    """By its entries or by their bytes, whichever comes first."""
    assert compaction.room(entries, log_bytes) is room
