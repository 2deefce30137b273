"""What a leader keeps of its log for followers that are getting a snapshot, and for how long."""

import pytest

from cluster.consensus.pinned_log import IDLE_S_MAX, PinnedLog

START_S = 5000.0


@pytest.fixture
def pinned() -> PinnedLog:
    """Return what is kept for b, which gets a snapshot up to entry 100."""
    pinned = PinnedLog()
    pinned.begin("b", 100, START_S)
    return pinned


def nobody_has_anything(_: str) -> int:
    """Return that a peer has acknowledged nothing."""
    return 0


def test_the_log_stays_from_the_end_of_the_snapshot_on(pinned: PinnedLog) -> None:
    """A newer snapshot that the follower is offered changes nothing: it may install the older one."""
    pinned.begin("b", 200, START_S)
    assert pinned.first_needed() == 100
    assert pinned.look(nobody_has_anything, START_S, goal=100) == []


def test_it_moves_on_with_the_follower(pinned: PinnedLog) -> None:
    """What is acknowledged is not needed any more; at the goal nothing is."""
    assert pinned.look(lambda _: 150, START_S + 1, goal=200) == []
    assert pinned.first_needed() == 150
    assert pinned.look(lambda _: 200, START_S + 2, goal=200) == ["b"]
    assert pinned.first_needed() is None
    assert not pinned.pins


def test_the_slowest_of_several_counts(pinned: PinnedLog) -> None:
    """Each is forgotten by itself."""
    pinned.begin("c", 150, START_S)
    assert pinned.first_needed() == 100
    matched = {"b": 300, "c": 0}
    assert pinned.look(matched.__getitem__, START_S, goal=300) == ["b"]
    assert pinned.first_needed() == 150
    pinned.clear()
    assert pinned.first_needed() is None


def test_who_makes_no_progress_is_forgotten(pinned: PinnedLog) -> None:
    """Bytes count once: to send the same again to one that takes nothing brings nothing."""
    pinned.has_sent("b", 1000, START_S + IDLE_S_MAX)
    assert pinned.look(nobody_has_anything, START_S + 2 * IDLE_S_MAX) == []
    pinned.has_sent("b", 1000, START_S + 2 * IDLE_S_MAX)
    pinned.has_sent("b", 10, START_S + 2 * IDLE_S_MAX)
    assert pinned.look(nobody_has_anything, START_S + 2 * IDLE_S_MAX + 1) == ["b"]


def test_entries_that_arrive_are_progress(pinned: PinnedLog) -> None:
    """A follower that is slow for an hour is waited for: what is kept for it has a bound of its own."""
    for minute in range(60):
        matched = 101 + minute
        assert pinned.look(lambda _: matched, START_S + 60 * minute, goal=10_000) == []  # noqa: B023
    assert pinned.first_needed() == 160


def test_what_was_sent_to_somebody_else_is_ignored(pinned: PinnedLog) -> None:
    """A chunk may leave for a peer that was forgotten meanwhile."""
    pinned.has_sent("c", 10, START_S)
    assert len(pinned.pins) == 1


def test_nothing_is_kept_for_who_is_no_member(pinned: PinnedLog) -> None:
    """A follower that was removed will never be sent the rest."""
    pinned.begin("c", 150, START_S)
    pinned.keep({"a", "c"})
    assert pinned.first_needed() == 150
    pinned.keep({"a"})
    assert not pinned.pins
