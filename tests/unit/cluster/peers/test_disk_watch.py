"""How slow disks are found, and how seldom leadership goes because of one."""

import pytest

from cluster.peers.disk_watch import PAUSE_S, SLOW_S, DiskWatch, is_slow

START_S = 1000.0
OTHERS = {"b": 2, "c": 3}


def slow_disk() -> DiskWatch:
    """Return a disk whose syncs take 100 ms."""
    disk = DiskWatch()
    for _ in range(100):
        disk.begun(START_S)
        disk.ended(0.1)
    return disk


def test_a_sync_that_hangs_counts_as_its_age() -> None:
    """Nothing ends by which its time could be known."""
    disk = DiskWatch()
    disk.begun(START_S)
    assert (disk.age_s(START_S + 3), disk.sync_ms(START_S + 3)) == (3, 3000)
    disk.ended(3.0)
    assert (disk.age_s(START_S + 9), disk.sync_ms(START_S + 9)) == (0, 300)


def test_a_busy_loop_makes_no_slow_disk() -> None:
    """A sync whose end the loop has not heard of for some milliseconds has not taken so long."""
    disk = DiskWatch()
    for tenth in range(200):
        now_s = START_S + tenth / 10
        disk.begun(now_s)
        assert disk.reason_to_hand_over(OTHERS, now_s + 0.09) == ""
        disk.ended(0.001)


def test_a_leader_with_a_slow_disk_has_a_reason_after_a_while_and_once_a_minute() -> None:
    """One slow sync is none; an attempt that failed is not repeated at once."""
    disk, reasons = slow_disk(), []
    for tenth in range(int((SLOW_S + PAUSE_S + 1) * 10)):
        reason = disk.reason_to_hand_over(OTHERS, START_S + tenth / 10)
        if reason:
            reasons.append((tenth / 10, reason))
    assert [at_s for at_s, _ in reasons] == [SLOW_S, SLOW_S + PAUSE_S]
    assert reasons[0][1] == "syncs take 100 ms here, and 2 ms on the other nodes"


@pytest.mark.parametrize("others", [{}, {"b": 100, "c": 90}, {"b": 30, "c": 500}])
def test_without_quicker_disks_there_is_no_reason(others: dict[str, int]) -> None:
    """Alone, or where all are as slow, a handover would help nobody; leadership does not go round."""
    disk = slow_disk()
    assert not any(disk.reason_to_hand_over(others, START_S + second) for second in range(200))


def test_a_disk_that_recovers_begins_anew() -> None:
    """It must be slow for long once more."""
    disk = slow_disk()
    assert disk.reason_to_hand_over(OTHERS, START_S) == ""
    assert disk.reason_to_hand_over({"b": 90}, START_S + SLOW_S - 1) == ""
    assert disk.reason_to_hand_over(OTHERS, START_S + SLOW_S) == ""
    assert disk.reason_to_hand_over(OTHERS, START_S + 2 * SLOW_S) != ""


def test_quick_disks_are_never_slow() -> None:
    """Four times next to nothing is next to nothing."""
    assert not is_slow(20, 0)
    assert is_slow(21, 5)
    assert not is_slow(21, 6)
