"""Priorities: a queue in another order than that of arrival, in which a wait makes up for a priority."""

from typing import Any

import pytest

from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.tables.rare import Rare
from lockstate.words import limits
from lockstate.words.commands.holds import Acquire, AcquirePermits
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.kinds import IfHeld
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted, Queued, Result
from lockstate.words.wanted import Uncommon
from tests.unit.lockstate.cell_driver import CellDriver
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, expect, reason

STEP_MS = limits.PRIORITY_STEP_MS
LONG_MS = 1_000_000


@pytest.fixture
def driver() -> CellDriver:
    """Return a machine of the newest rules, with two sessions."""
    driver = CellDriver()
    driver.open("ann", "bob", ttl_ms=LONG_MS)
    return driver


def ask(driver: CellDriver, name: str, priority: int, *, at_ms: int = 0, **options: Any) -> Result:
    """Ask for a lock with a priority, with the next free ids, and wait for long."""
    number = driver._next_id()
    fields = {"mode": EXCLUSIVE, "wait_ms": LONG_MS, **options}
    if not fields.get("session_id"):
        fields.setdefault("ttl_ms", LONG_MS)
    command = Acquire(
        name,
        hold_id=HoldId(f"h{number}"),
        attempt_id=AttemptId(f"a{number}"),
        **fields,
        uncommon=Uncommon(priority=priority),
    )
    return driver.run(command, at_ms)


def ask_permits(
    driver: CellDriver, name: str, permits: int, priority: int, *, at_ms: int = 0, **options: Any
) -> Result:
    """Ask for permits likewise; the semaphore has four."""
    number = driver._next_id()
    fields = {"ttl_ms": LONG_MS, "wait_ms": LONG_MS, **options}
    command = AcquirePermits(
        name,
        4,
        permits,
        HoldId(f"h{number}"),
        AttemptId(f"a{number}"),
        **fields,
        uncommon=Uncommon(priority=priority),
    )
    return driver.run(command, at_ms)


def waits(result: Result) -> HoldId:
    """Return the id of a request that must wait."""
    return expect(Queued, result).hold_id


def order(driver: CellDriver, name: str) -> list[tuple[int, int]]:
    """Return place and priority of all who wait for a lock, as a reader sees them."""
    return [(waiter.position, waiter.priority) for waiter in driver.machine.lock(name).queue]


def restart(driver: CellDriver) -> None:
    """Go on from a snapshot, which must say all that there is."""
    data = snapshot.encode(driver.machine.state)
    driver.machine = LockMachine(snapshot.decode(data))
    assert snapshot.encode(driver.machine.state) == data


@pytest.mark.parametrize("restarts", [False, True])
def test_the_highest_priority_goes_first(driver: CellDriver, restarts: bool) -> None:  # noqa: FBT001
    """Of those who come at one time, whatever their order of arrival, also after a restart."""
    driver.granted("a", session_id="ann")
    ids = {priority: waits(ask(driver, "a", priority)) for priority in (5, 0, 9, 4, 6, 8, 1, 3, 7, 2)}
    if restarts:
        restart(driver)
    assert order(driver, "a") == list(enumerate(range(9, -1, -1), 1))
    hold_id = "h1"
    for priority in range(9, -1, -1):
        driver.release(hold_id)
        hold_id = ids[priority]
        assert driver.served() == [hold_id]


def test_with_the_default_it_is_the_order_of_arrival(driver: CellDriver) -> None:
    """A request that gives the default priority is one that gives none, and nothing is stored of it."""
    driver.granted("a", session_id="ann")
    ids = [waits(ask(driver, "a", 5)), driver.queued("a").hold_id, waits(ask(driver, "a", 5))]
    assert not driver.machine.state.rare_count
    assert list(driver.machine.state.tickets) == ids
    assert [waiter.position for waiter in driver.machine.lock("a").queue] == [1, 2, 3]


@pytest.mark.parametrize(("later_ms", "goes_first"), [(0, "high"), (STEP_MS - 1, "high"), (STEP_MS, "low")])
def test_a_wait_makes_up_for_a_priority(driver: CellDriver, later_ms: int, goes_first: str) -> None:
    """One step is worth so much waiting, to the millisecond; at the same place who came first is first."""
    driver.granted("a", session_id="ann")
    low = waits(ask(driver, "a", 6, at_ms=100))
    high = waits(ask(driver, "a", 7, at_ms=100 + later_ms))
    driver.release("h1", at_ms=100 + later_ms)
    assert driver.served() == [low if goes_first == "low" else high]


def test_nobody_starves(driver: CellDriver) -> None:
    """A request of the lowest priority is served although requests of the highest come without a pause."""
    driver.granted("a", session_id="ann")
    patient = waits(ask(driver, "a", 0))
    served: list[str] = []
    holder, now_ms = "h1", 0
    while patient not in served:
        now_ms += 1000
        waits(ask(driver, "a", 9, at_ms=now_ms))
        driver.release(holder, at_ms=now_ms)
        served += driver.served()
        holder = served[-1]
        assert now_ms <= 10 * STEP_MS, "it waits for ever"
    assert now_ms == 9 * STEP_MS + 1000 - 1000, "nine steps make up for all priorities"


def test_a_hold_keeps_its_priority(driver: CellDriver) -> None:
    """By which waits of a higher one may ask for it; what only waits say is gone."""
    driver.granted("a")
    waiting = waits(ask(driver, "a", 9, session_id="ann", if_held=IfHeld.COUNT))
    assert driver.machine.state.tickets[waiting].rare == Rare(if_held=IfHeld.COUNT, priority=9)
    driver.release("h1")
    assert driver.machine.state.holds[waiting].rare == Rare(priority=9)


def test_a_request_that_passes_takes_a_wait_of_its_session_along(driver: CellDriver) -> None:
    """A session gets the same once, however it asks."""
    driver.granted("a", mode=SHARED)
    driver.queued("a", session_id="bob")
    waiting = driver.queued("a", mode=SHARED, session_id="ann").hold_id
    refused = waits(ask(driver, "a", 5, mode=SHARED, session_id="ann", if_held=IfHeld.REFUSE))
    counted = waits(ask(driver, "a", 5, mode=SHARED, session_id="ann", if_held=IfHeld.COUNT))
    passing = expect(Granted, ask(driver, "a", 6, mode=SHARED, session_id="ann"))
    assert expect(Granted, driver.settled[waiting]).hold_id == passing.hold_id
    assert expect(Granted, driver.settled[counted]).hold_id == passing.hold_id
    assert driver.refused(refused).reason is Reason.ALREADY_HELD
    assert driver.machine.state.holds[passing.hold_id].details.depth == 2
    assert len(driver.machine.lock("a").queue) == 1


# -- semaphores ----------------------------------------------------------------------------------------------


# -- deadlocks -----------------------------------------------------------------------------------------------


# -- bounds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("priority", [-1, 10])
def test_a_priority_out_of_range(driver: CellDriver, priority: int) -> None:
    """Whoever asks with it made a mistake, also with what could be granted."""
    for result in (ask(driver, "a", priority), ask_permits(driver, "q", 1, priority)):
        refused = expect(Refused, result)
        assert refused.reason is Reason.INVALID_REQUEST
        assert refused.detail == f"priority: {priority}; must be 0 to 9"


def test_a_place_ahead_does_not_get_past_the_bounds(
    driver: CellDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full queue is full for all priorities, and nothing is left of who is refused."""
    monkeypatch.setattr(limits, "QUEUE_LENGTH_MAX", 1)
    driver.granted("a", session_id="ann")
    driver.queued("a")
    assert reason(ask(driver, "a", 9)) is Reason.QUEUE_FULL
    driver.permitted("q", 4, 4, session_id="ann")
    driver.wanting("q", 4)
    assert reason(ask_permits(driver, "q", 1, 9)) is Reason.QUEUE_FULL
    assert not driver.machine.state.rare_count


def test_a_snapshot_with_another_priority_is_refused(driver: CellDriver) -> None:
    """Bytes that no node can have written are refused as a snapshot."""
    driver.granted("a", session_id="ann")
    hold_id = waits(ask(driver, "a", 9))
    driver.machine.state.set_rare(driver.machine.state.tickets[hold_id], Rare(priority=77))
    with pytest.raises(snapshot.SnapshotError, match="priority"):
        LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
