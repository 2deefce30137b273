"""Semaphores: permits with weight and lease, given in order of arrival, with a limit that can change."""

from typing import Any

import pytest

from lockstate.words import limits
from lockstate.words.commands.holds import AcquirePermits
from lockstate.words.commands.primitives import ResizeSemaphore
from lockstate.words.ids import NO_HOLD, AttemptId, HoldId, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted, Resized, Result
from lockstate.words.wanted import Uncommon
from tests.unit.lockstate.cell_driver import CellDriver
from tests.unit.lockstate.machine_driver import EXCLUSIVE, MachineDriver, expect, reason


def test_permits_are_given_while_they_last() -> None:
    """Each grant says how many permits are left; a request that comes too late learns who has them."""
    driver = MachineDriver()
    assert driver.permitted("q", 3, 2, owner="ann").available == 1
    second = driver.permitted("q", 3, owner="bob", ttl_ms=400)
    assert (second.permits, second.available, second.token, second.mode) == (1, 0, 2, EXCLUSIVE)
    refused = expect(Refused, driver.permits("q", 3))
    assert (refused.reason, refused.detail) == (Reason.NO_PERMITS, "0 of 3 permits are available")
    assert [(holder.owner, holder.permits, holder.token) for holder in refused.holders] == [
        ("ann", 2, 1),
        ("bob", 1, 2),
    ]
    assert refused.facts == {"available": 0, "limit": 3}
    assert refused.retry_after_ms == 400
    assert refused.queue_length == 0


def test_no_more_than_sixteen_holders_are_shown() -> None:
    """A refusal by a crowd names the oldest sixteen."""
    driver = MachineDriver()
    for _ in range(17):
        driver.permitted("q", 17)
    refused = expect(Refused, driver.permits("q", 17))
    assert [holder.token for holder in refused.holders] == list(range(1, 17))


def test_a_waiting_session_sees_its_place() -> None:
    """A session shows its permits and its waits for some."""
    driver = MachineDriver()
    driver.open("s1")
    driver.permitted("q", 2, session_id="s1")
    driver.permitted("q", 2)
    driver.wanting("q", 2, 2)
    driver.wanting("q", 2, session_id="s1", owner="bob")
    view = driver.machine.session(SessionId("s1"))
    assert view is not None
    assert [(holder.name, holder.permits, holder.kind) for holder in view.holds] == [
        ("q", 1, HoldKind.SEMAPHORE)
    ]
    assert [(waiter.name, waiter.permits, waiter.position) for waiter in view.tickets] == [("q", 1, 2)]
    attempt = driver.machine.attempt(HoldId("h4"))
    assert attempt is not None
    assert attempt.hold_id == "h4"


LARGEST = limits.SEMAPHORE_LIMIT_MAX


@pytest.mark.parametrize(
    ("limit", "permits", "detail"),
    [
        (0, 1, "limit: 0; must be 1 to 1000000"),
        (-1, 1, "limit: -1; must be 1 to 1000000"),
        (LARGEST + 1, 1, "limit: 1000001; must be 1 to 1000000"),
        (3, 0, "permits: 0; must be 1 to the limit, 3"),
        (3, 4, "permits: 4; must be 1 to the limit, 3"),
        (1, 1, ""),
        (3, 3, ""),
        (LARGEST, LARGEST, ""),
    ],
)
def test_limit_and_permits_have_bounds(limit: int, permits: int, detail: str) -> None:
    """A limit is 1 to a million, and nobody can ask for more permits than there are."""
    result = MachineDriver().permits("q", limit, permits)
    if detail:
        assert (reason(result), expect(Refused, result).detail) == (Reason.INVALID_REQUEST, detail)
    else:
        assert expect(Granted, result).available == limit - permits


@pytest.mark.parametrize("limit", [0, LARGEST + 1])
def test_a_resize_has_the_same_bounds(limit: int) -> None:
    """The new limit is checked like the first one."""
    driver = MachineDriver()
    driver.permitted("q", 3)
    assert reason(driver.resize("q", limit)) is Reason.INVALID_REQUEST
    assert reason(driver.run(ResizeSemaphore("", 5))) is Reason.INVALID_REQUEST
    assert driver.resize("q", LARGEST) == Resized(LARGEST, LARGEST - 1)


@pytest.mark.parametrize(
    "command",
    [
        AcquirePermits("", 3, 1, HoldId("h9"), AttemptId("a9"), ttl_ms=50),
        AcquirePermits("q", 3, 1, NO_HOLD, AttemptId("a9"), ttl_ms=50),
        AcquirePermits("q", 3, 1, HoldId("h1"), AttemptId("a9"), ttl_ms=50),
        AcquirePermits("q", 3, 1, HoldId("h9"), AttemptId("a9")),
        AcquirePermits("q", 3, 1, HoldId("h9"), AttemptId("a9"), SessionId("s1"), 50),
        AcquirePermits(
            "q", 3, 1, HoldId("h9"), AttemptId("a9"), ttl_ms=50, uncommon=Uncommon(note="x" * 1025)
        ),
    ],
    ids=str,
)
def test_a_malformed_request_has_no_effect(command: AcquirePermits) -> None:
    """What is checked of a lock is checked of permits."""
    driver = MachineDriver()
    driver.permitted("q", 3)
    assert reason(driver.run(command)) is Reason.INVALID_REQUEST
    assert driver.machine.semaphore("q").available == 2


def test_an_unknown_session_gets_no_permits() -> None:
    """What is asked for a session that has expired is refused."""
    assert reason(MachineDriver().permits("q", 3, session_id="s1")) is Reason.SESSION_EXPIRED


def test_a_full_table_of_semaphores_takes_no_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that exist go on giving their permits."""
    driver = MachineDriver()
    monkeypatch.setattr(limits, "SEMAPHORES_COUNT_MAX", 1)
    assert isinstance(driver.permits("q", 2), Granted)
    assert isinstance(driver.permits("q", 2), Granted)
    assert reason(driver.permits("r", 2)) is Reason.OVERLOADED


# -- a limit that need not be known --------------------------------------------------------------------------


def open_permits(driver: MachineDriver, limit: int, permits: int = 1, **options: Any) -> Result:
    """Ask for permits of "q", whatever limit it has."""
    number = driver._next_id()
    ids = HoldId(f"h{number}"), AttemptId(f"a{number}")
    return driver.run(AcquirePermits("q", limit, permits, *ids, ttl_ms=1000, **options))


def test_more_than_there_ever_is_is_refused_at_once() -> None:
    """Nobody waits for what cannot come; a resize makes it possible."""
    driver = CellDriver()
    driver.permitted("q", 2)
    refused = expect(Refused, open_permits(driver, 0, 3, wait_ms=1000))
    assert (refused.reason, refused.facts) == (Reason.LIMIT_MISMATCH, {"limit": 2})
    driver.resize("q", 4)
    assert expect(Granted, open_permits(driver, 0, 3)).limit == 4
    assert reason(open_permits(driver, 0, limits.SEMAPHORE_LIMIT_MAX + 1)) is Reason.INVALID_REQUEST
