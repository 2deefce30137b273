"""Deadlocks: a request that would wait for ever is refused at once, with the whole cycle; no other is."""

import pytest

from lockstate.words import limits
from lockstate.words.ids import OwnerName
from lockstate.words.refusals import CycleView, Reason, Refused
from lockstate.words.results import Queued, Result
from tests.unit.lockstate.machine_driver import SHARED, MachineDriver, expect, reason


def _driver(*session_ids: str) -> MachineDriver:
    """Return a driver with sessions, each with its id as the owner's name."""
    driver = MachineDriver()
    driver.open(*session_ids)
    return driver


def _cycle(result: Result) -> list[tuple[str, str]]:
    """Return the owners of a deadlock, each with what it waits for."""
    refused = expect(Refused, result)
    assert refused.reason is Reason.DEADLOCK, refused
    return [(step.owner, step.name) for step in refused.cycle]


def test_two_sessions_that_wait_for_each_other() -> None:
    """The request that would close the cycle is refused; the other goes on waiting and is served."""
    driver = _driver("ann", "bob")
    driver.granted("a", session_id="ann")
    driver.granted("b", session_id="bob")
    driver.queued("b", session_id="ann")
    refused = expect(Refused, driver.acquire("a", session_id="bob", wait_ms=500))
    assert refused.reason is Reason.DEADLOCK
    assert refused.cycle == (CycleView(OwnerName("bob"), "a"), CycleView(OwnerName("ann"), "b"))
    assert refused.detail == "would wait for ever: bob waits for a, ann waits for b"
    assert driver.events == ()
    driver.release("h2")
    assert driver.served() == ["h3"]


@pytest.mark.parametrize("first", ["ann", "bob"])
def test_parties_may_stand_in_a_queue_by_turns(first: str) -> None:
    """Threads of two sessions that queue for one lock do not deadlock: the first of each gets it for both."""
    driver = _driver("ann", "bob")
    other = "bob" if first == "ann" else "ann"
    driver.granted("a")
    waiting = [driver.queued("a", session_id=session_id) for session_id in (first, other, first, other)]
    assert [waiter.position for waiter in waiting] == [1, 2, 3, 4]
    driver.release("h1")
    assert driver.served() == ["h2", "h4"]
    driver.release("h2")
    assert driver.served() == ["h3", "h5"]
    assert driver.machine.counts()["tickets"] == 0


def test_a_long_cycle_is_shown_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal names a limited number of steps."""
    monkeypatch.setattr(limits, "CYCLE_SHOWN_MAX", 3)
    driver = _driver(*[f"s{number}" for number in range(5)])
    for number in range(5):
        driver.granted(str(number), session_id=f"s{number}")
    for number in range(4):
        driver.queued(str(number + 1), session_id=f"s{number}")
    steps = _cycle(driver.acquire("0", session_id="s4", wait_ms=500))
    assert steps == [("s4", "0"), ("s0", "1"), ("s1", "2")]


def test_a_search_that_takes_too_long_lets_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit of steps the wait is allowed, and ends with its `wait_ms` like any other."""
    driver = _driver(*[f"s{number}" for number in range(5)])
    for number in range(5):
        driver.granted(str(number), session_id=f"s{number}")
    for number in range(4):
        driver.queued(str(number + 1), session_id=f"s{number}")
    monkeypatch.setattr(limits, "DEADLOCK_STEPS_MAX", 9)
    assert isinstance(driver.acquire("0", session_id="s4", wait_ms=500), Queued)
    driver.pass_to(501)
    assert driver.refused("h10").reason is Reason.LOCK_HELD
    monkeypatch.setattr(limits, "DEADLOCK_STEPS_MAX", 10)
    assert reason(driver.acquire("0", session_id="s4", wait_ms=500)) is Reason.DEADLOCK


def test_a_session_with_many_holds_is_searched() -> None:
    """However many locks a session has, a cycle through one of them is found."""
    driver = _driver("ann", "bob")
    for number in range(70):
        driver.granted(f"a{number}", session_id="ann")
    driver.granted("b", session_id="bob")
    driver.queued("a69", session_id="bob")
    assert _cycle(driver.acquire("b", session_id="ann", wait_ms=500)) == [("ann", "b"), ("bob", "a69")]


def test_a_waiter_behind_a_deadlock_of_others_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadlock is theirs, and one of their waits will end: a waiter outside the cycle may wait."""
    driver = _driver("ann", "bob", "eve")
    for name, session_id in (("a", "ann"), ("b", "bob"), ("c", "eve")):
        driver.granted(name, session_id=session_id)
    driver.queued("c")
    driver.queued("b", session_id="ann")
    with monkeypatch.context() as patch:
        patch.setattr(limits, "DEADLOCK_STEPS_MAX", 0)
        driver.queued("a", session_id="bob")
    driver.queued("a", session_id="eve")


def test_the_waits_of_a_party_are_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session with many waits does not make a search longer than allowed; the newcomer just waits."""
    driver = _driver("ann", "bob")
    driver.granted("c", session_id="ann")
    driver.granted("a", mode=SHARED, session_id="bob")
    driver.granted("f")
    for _ in range(30):
        driver.queued("f", session_id="bob", owner="bob")
    driver.queued("c", session_id="bob", owner="bob")
    monkeypatch.setattr(limits, "DEADLOCK_STEPS_MAX", 20)
    assert isinstance(driver.acquire("a", session_id="ann", wait_ms=500), Queued)
    monkeypatch.setattr(limits, "DEADLOCK_STEPS_MAX", 2000)
    assert reason(driver.acquire("a", session_id="ann", wait_ms=500)) is Reason.DEADLOCK
