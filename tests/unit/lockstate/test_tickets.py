"""A queue can be followed: events name the public number of the wait, and say why it ends."""

import pytest

from lockstate.reads.views import POSITION_QUEUE_MAX
from lockstate.tables.owners import session_name
from lockstate.words.commands import (
    AbandonWaits,
    AcquireIf,
    Cancel,
    Entry,
    ForceCloseSession,
    IfHeld,
    Wanted,
)
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.results import Event, EventKind, Left
from tests.unit.lockstate.cell_driver import CellDriver
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, MachineDriver


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


def test_a_grant_names_the_wait_that_it_ends(driver: CellDriver) -> None:
    """One that did not wait has no number; a part of a wait for several locks has that of the whole."""
    assert driver.granted("b").token
    assert driver.events[0].ticket == 0
    driver.queued(locks=[Wanted("a"), Wanted("c")])
    assert [event.kind for event in driver.events] == [EventKind.QUEUED] * 2
    (ticket,) = {event.ticket for event in driver.events}
    driver.force("a")
    granted = [event for event in driver.events if event.kind is EventKind.GRANTED]
    assert [(event.name, event.ticket) for event in granted] == [("a", ticket), ("c", ticket)]


def test_conversions_permits_and_elections_have_numbers_as_well(driver: CellDriver) -> None:
    """Each wait has one that no other has, whatever its kind."""
    one = driver.granted("s", mode=SHARED, ttl_ms=90_000)
    two = driver.granted("s", mode=SHARED, ttl_ms=90_000)
    driver.converting(one.hold_id, EXCLUSIVE)
    conversion = number(driver)
    driver.release(two.hold_id)
    assert [(e.kind, e.ticket) for e in driver.events[1:]] == [(EventKind.CONVERTED, conversion)]
    permit = driver.permitted("q", 1)
    driver.wanting("q", 1)
    permits = number(driver)
    driver.release(permit.hold_id)
    assert [(e.kind, e.ticket) for e in driver.events[1:]] == [(EventKind.GRANTED, permits)]
    driver.campaign("e", "ann")
    driver.campaign("e", "bob", wait_ms=1000)
    candidacy = number(driver)
    driver.close("ann")
    assert (EventKind.ELECTED, candidacy) in [(event.kind, event.ticket) for event in driver.events]
    assert len({conversion, permits, candidacy}) == 3


def test_why_a_wait_ends_is_told(driver: CellDriver) -> None:
    """Its time is over, its client left, its node is gone."""
    driver.queued("a", wait_ms=100)
    timed_out = number(driver)
    driver.pass_to(101)
    assert left(driver) == [(timed_out, Left.TIMED_OUT)]
    waiting = driver.queued("a")
    cancelled = number(driver)
    driver.run(Cancel(waiting.hold_id, AttemptId(f"a{driver.ids_made}")))
    assert left(driver) == [(cancelled, Left.CANCELLED)]
    driver.queued("a")
    abandoned = number(driver)
    driver.run(AbandonWaits("n1"))
    assert left(driver) == [(abandoned, Left.ABANDONED)]


def test_a_session_takes_its_waits_with_it(driver: CellDriver) -> None:
    """However it ends."""
    name = session_name(driver.machine.state.sessions[SessionId("bob")])
    driver.queued("a", session_id="ann")
    closed = number(driver)
    driver.close("ann")
    assert left(driver) == [(closed, Left.SESSION_CLOSED)]
    driver.queued("a", session_id="bob")
    forced = number(driver)
    driver.run(ForceCloseSession(name, "x"))
    assert left(driver) == [(forced, Left.SESSION_FORCED)]
    driver.open("eve", ttl_ms=100)
    driver.queued("a", session_id="eve")
    expired = number(driver)
    driver.pass_to(101)
    assert left(driver) == [(expired, Left.SESSION_EXPIRED)]


def test_what_became_of_the_hold_or_the_semaphore_ends_a_wait(driver: CellDriver) -> None:
    """A conversion goes with its hold; a resize leaves out who wants more than there is."""
    hold = driver.granted("s", mode=SHARED, ttl_ms=90_000)
    driver.granted("s", mode=SHARED, ttl_ms=90_000)
    driver.converting(hold.hold_id, EXCLUSIVE)
    conversion = number(driver)
    driver.release(hold.hold_id)
    assert left(driver) == [(conversion, Left.LEASE_EXPIRED)]
    driver.permitted("q", 3, 3)
    driver.wanting("q", 3, 2)
    permits = number(driver)
    driver.resize("q", 1)
    assert left(driver) == [(permits, Left.LIMIT_MISMATCH)]


def test_a_wait_that_shares_a_hold_leaves(driver: CellDriver) -> None:
    """Two of one session ask for the same: one is granted, the other has it too, or wanted nothing of it."""
    driver.queued("a", session_id="ann")
    first = number(driver)
    driver.queued("a", session_id="ann")
    second = number(driver)
    ids = HoldId("hx"), AttemptId("ax")
    driver.run(AcquireIf("a", EXCLUSIVE, *ids, SessionId("ann"), wait_ms=1000, if_held=IfHeld.REFUSE))
    third = number(driver)
    driver.force("a")
    granted = [event.ticket for event in driver.events if event.kind is EventKind.GRANTED]
    assert granted == [first]
    assert left(driver) == [(second, Left.SHARED), (third, Left.ALREADY_HELD)]


def test_the_audit_has_the_numbers_of_grants(driver: CellDriver) -> None:
    """Queues change too often for it; who was granted what he waited for is kept."""
    driver.queued("a")
    ticket = number(driver)
    driver.force("a")
    newest: Event = driver.machine.audit(limit=1)[0]
    assert (newest.kind, newest.ticket) == (EventKind.GRANTED, ticket)


def test_a_wait_whose_time_is_over_says_where_it_stood() -> None:
    """The end of a wait tells its place and how long it took; in a very long queue, no place."""
    driver = MachineDriver()
    driver.granted("a", ttl_ms=60_000)
    driver.queued("a", wait_ms=5000)
    driver.queued("a", wait_ms=100)
    driver.queued("a", wait_ms=100)
    ends = driver.apply(Entry(101)).settled
    assert [(end.hold_id, end.waited_ms, end.position) for end in ends] == [("h3", 101, 2), ("h4", 101, 2)]
    for _ in range(POSITION_QUEUE_MAX):
        driver.queued("a", wait_ms=9000)
    driver.queued("a", wait_ms=10)
    (end,) = driver.apply(Entry(200)).settled
    assert (end.waited_ms, end.position) == (99, 0)
