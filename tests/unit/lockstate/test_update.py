"""Update locks: read now, perhaps write later; beside readers, but not beside another that may write."""

from itertools import product

import pytest

from lockstate.modes import COMPATIBLE, Mode
from lockstate.results import Granted, Reason, Refused
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, UPDATE, MachineDriver, expect, reason


@pytest.mark.parametrize(("held", "asked"), list(product(Mode, Mode)))
def test_the_table_decides(held: Mode, asked: Mode) -> None:
    """A request is granted beside a holder exactly if the table of modes says so."""
    driver = MachineDriver()
    driver.granted("a", mode=held)
    result = driver.acquire("a", mode=asked)
    assert isinstance(result, Granted) == (asked in COMPATIBLE[held])
    if isinstance(result, Refused):
        assert result.reason is Reason.LOCK_HELD
        assert [(holder.mode, holder.token) for holder in result.holders] == [(held, 1)]


@pytest.mark.parametrize(("waiting", "asked"), list(product((EXCLUSIVE, UPDATE), Mode)))
def test_a_waiter_is_in_the_way_like_a_holder(waiting: Mode, asked: Mode) -> None:
    """No request overtakes a waiter that it conflicts with; other requests go past it."""
    driver = MachineDriver()
    driver.granted("a", mode=UPDATE)
    driver.queued("a", mode=waiting)
    result = driver.acquire("a", mode=asked)
    allowed = asked in COMPATIBLE[UPDATE] and asked in COMPATIBLE[waiting]
    assert isinstance(result, Granted) == allowed


def test_readers_join_an_update_lock() -> None:
    """Readers come and go beside an update lock; another update lock has to wait."""
    driver = MachineDriver()
    driver.granted("a", mode=UPDATE, owner="writer to be")
    for _ in range(2):
        driver.granted("a", mode=SHARED)
    refused = expect(Refused, driver.acquire("a", mode=UPDATE))
    assert [holder.owner for holder in refused.holders] == ["writer to be"]


def test_an_update_lock_is_passed_on() -> None:
    """When it is released, the next update lock in the queue is granted, though readers still hold."""
    driver = MachineDriver()
    driver.granted("a", mode=UPDATE)
    driver.granted("a", mode=SHARED)
    for _ in range(2):
        driver.queued("a", mode=UPDATE)
    driver.release("h1")
    assert driver.served() == ["h3"]
    assert [holder.mode for holder in driver.machine.lock("a").holders] == [SHARED, UPDATE]


def test_a_reader_joins_a_waiting_update() -> None:
    """A reader goes past a waiting update lock, for they are compatible."""
    driver = MachineDriver()
    driver.granted("a", mode=UPDATE)
    driver.queued("a", mode=UPDATE)
    assert driver.granted("a", mode=SHARED).token == 2
    assert reason(driver.acquire("a", mode=EXCLUSIVE)) is Reason.LOCK_HELD


def test_a_writer_that_leaves_lets_all_through_that_go_together() -> None:
    """After a writer, readers and one update lock come in together; the second update waits on."""
    driver = MachineDriver()
    driver.granted("a")
    for mode in (SHARED, UPDATE, SHARED, UPDATE, SHARED):
        driver.queued("a", mode=mode)
    driver.release("h1")
    assert driver.served() == ["h2", "h3", "h4", "h6"]
    driver.release("h3")
    assert driver.served() == ["h5"]


def test_the_classic_upgrade() -> None:
    """Read under an update lock, convert to write when the readers are gone: no deadlock is possible."""
    driver = MachineDriver()
    driver.granted("a", mode=UPDATE)
    driver.granted("a", mode=SHARED)
    driver.converting("h1", EXCLUSIVE)
    assert reason(driver.acquire("a", mode=SHARED)) is Reason.LOCK_HELD
    driver.release("h2")
    assert expect(Granted, driver.settled["t3"]).mode is EXCLUSIVE
