"""A queue can be followed: events name the public number of the wait, and say why it ends."""

import pytest

from lockstate.reads import places
from lockstate.words.commands.entries import Entry
from lockstate.words.events import EventKind
from tests.unit.lockstate.cell_driver import CellDriver
from tests.unit.lockstate.machine_driver import MachineDriver


@pytest.fixture
def driver() -> CellDriver:
    """Return a machine of the newest rules, with two sessions and a lock that somebody holds."""
    driver = CellDriver()
    driver.open("ann", ttl_ms=5000)
    driver.open("bob", ttl_ms=5000)
    driver.granted("a", ttl_ms=90_000)
    return driver


def left(driver: MachineDriver) -> list[tuple[int, str]]:
    """Return the tickets that left in the last entry, and why."""
    return [(event.ticket, event.reason) for event in driver.events if event.kind is EventKind.LEFT]


def number(driver: MachineDriver) -> int:
    """Return the number of the ticket that the last entry queued."""
    (event,) = [event for event in driver.events if event.kind is EventKind.QUEUED]
    assert event.ticket
    return event.ticket


def test_a_wait_whose_time_is_over_says_where_it_stood(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a wait tells its place and how long it took; in a very long queue, no place."""
    monkeypatch.setattr(places, "POSITION_QUEUE_MAX", 3)
    driver = MachineDriver()
    driver.granted("a", ttl_ms=60_000)
    driver.queued("a", wait_ms=5000)
    driver.queued("a", wait_ms=100)
    driver.queued("a", wait_ms=100)
    ends = driver.apply(Entry(101)).settled
    assert [(end.hold_id, end.waited_ms, end.position) for end in ends] == [("h3", 101, 2), ("h4", 101, 2)]
    for _ in range(3):
        driver.queued("a", wait_ms=9000)
    driver.queued("a", wait_ms=10)
    (end,) = driver.apply(Entry(200)).settled
    assert (end.waited_ms, end.position) == (99, 0)
