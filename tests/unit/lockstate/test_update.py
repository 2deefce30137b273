"""Update locks beside every other mode. Their stories are told in tests/scenarios/update_locks.txt."""

from itertools import product

import pytest

from lockstate.words.modes import COMPATIBLE, Mode
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted
from tests.unit.lockstate.machine_driver import EXCLUSIVE, UPDATE, MachineDriver


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
