"""The warnings about holds without a deadline: one for each grant, and one in every hour."""

import logging

import pytest

from cluster.observing import endless_log
from cluster.observing.endless_log import PERIOD_S, EndlessLog
from lockstate.words.commands.holds import Acquire, Release
from lockstate.words.ids import AttemptId, HoldId, OwnerName
from lockstate.words.wanted import Uncommon
from tests.unit.lockstate.cell_driver import CellDriver
from tests.unit.lockstate.machine_driver import EXCLUSIVE

HOLD = HoldId("5ec4e75ec4e75ec4e75ec4e75ec4e75e")


def driver_with_one() -> CellDriver:
    """Return a machine that has just granted one, and another hold besides."""
    driver = CellDriver()
    driver.granted("b")
    owner = OwnerName("ann")
    driver.run(
        Acquire(
            "a/b",
            EXCLUSIVE,
            HOLD,
            AttemptId("t"),
            owner=owner,
            uncommon=Uncommon(is_endless=True, value="v", is_secret=True),
        )
    )
    return driver


def test_a_grant_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """With all that one needs to look into it, and no secret; other events are not."""
    caplog.set_level(logging.INFO, logger=endless_log.logger.name)
    driver, log = driver_with_one(), EndlessLog(lambda: 0.0)
    log.tell(driver.events, driver.machine)
    driver.granted("c")
    log.tell(driver.events, driver.machine)
    driver.release("h2")
    log.tell(driver.events, driver.machine)
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == (
        "WARNING",
        "event=granted-without-deadline kind=lock name='a/b' token=2 owner='ann' revision=2",
    )


def test_once_an_hour_it_says_how_many_there_are(caplog: pytest.LogCaptureFixture) -> None:
    """Only the leader, for as long as there are any."""
    caplog.set_level(logging.INFO, logger=endless_log.logger.name)
    now_s = [0.0]
    driver, log = driver_with_one(), EndlessLog(lambda: now_s[0])
    for hour in range(3):
        now_s[0] = hour * PERIOD_S
        log.look(driver.machine, is_leader=True)
        log.look(driver.machine, is_leader=True)
    assert [record.getMessage() for record in caplog.records] == ["event=held-without-deadline count=1"] * 2
    log.look(driver.machine, is_leader=False)
    now_s[0] += PERIOD_S
    log.look(driver.machine, is_leader=True)
    driver.run(Release(HOLD))
    log.tell(driver.events, driver.machine)
    now_s[0] += PERIOD_S
    log.look(driver.machine, is_leader=True)
    assert len(caplog.records) == 2
