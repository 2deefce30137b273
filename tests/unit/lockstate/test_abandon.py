"""Waits for clients of a node process that is gone are ended: nothing is granted that no client hears of."""

import pytest

from lockstate.words import limits
from lockstate.words.commands import AbandonWaits, Acquire, Batch, Command, Entry
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.results import Queued, Reason, Result, WaitsAbandoned
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, MachineDriver, expect, reason


def _run_from(driver: MachineDriver, origin: str, *commands: Command) -> tuple[Result, ...]:
    """Apply commands of another node process."""
    first = driver.machine.applied_seq(origin) + 1
    seqs = tuple(range(first, first + len(commands)))
    return driver.apply(Entry(0, (Batch(origin, seqs, commands),))).batches[0].results


def _wish(hold_id: str, request_id: str = "", name: str = "a") -> Acquire:
    return Acquire(
        name,
        EXCLUSIVE,
        HoldId(hold_id),
        AttemptId(f"{hold_id}-1"),
        ttl_ms=1000,
        wait_ms=5000,
        request_id=request_id,
    )


def test_the_waits_of_one_process_end() -> None:
    """The waits of others stay in their order, and the waiters behind the abandoned ones are served."""
    driver = MachineDriver()
    driver.granted("a", mode=SHARED)
    _run_from(driver, "gone", _wish("x"))
    driver.queued("a", mode=SHARED)
    driver.queued("a")
    assert _run_from(driver, "n2", AbandonWaits("gone")) == (WaitsAbandoned(1, 0),)
    assert driver.refused("x").reason is Reason.LOCK_HELD
    assert driver.served() == ["h2"]
    assert len(driver.machine.lock("a").queue) == 1


def test_holds_stay() -> None:
    """What a client has been granted stays its own, whichever node answered it."""
    driver = MachineDriver()
    _run_from(driver, "gone", _wish("x"))
    assert _run_from(driver, "n2", AbandonWaits("gone")) == (WaitsAbandoned(0, 0),)
    assert driver.machine.lock("a").state == "held"


def test_a_process_that_nobody_knows_has_no_waits() -> None:
    """Abandoning nothing is not a mistake."""
    assert MachineDriver().run(AbandonWaits("nobody")) == WaitsAbandoned(0, 0)


def test_a_repeated_attempt_waits_where_it_was_repeated() -> None:
    """A request that was sent again through another node belongs to that one now."""
    driver = MachineDriver()
    driver.granted("a")
    _run_from(driver, "gone", _wish("x", "r"))
    (again,) = _run_from(driver, "n2", _wish("y", "r"))
    assert again == Queued(HoldId("x"), 1)
    assert driver.run(AbandonWaits("gone")) == WaitsAbandoned(0, 0)
    assert driver.run(AbandonWaits("n2")) == WaitsAbandoned(1, 0)


def test_an_abandoned_request_starts_afresh() -> None:
    """It was undone, so a repetition with the same id is a first one again."""
    driver = MachineDriver()
    driver.granted("a")
    _run_from(driver, "gone", _wish("x", "r"))
    driver.run(AbandonWaits("gone"))
    assert expect(Queued, driver.run(_wish("z", "r"))).hold_id == "z"
    assert reason(driver.acquire("a")) is Reason.LOCK_HELD


def test_many_waits_end_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """One command ends a limited number, the oldest first, and says how many are left."""
    monkeypatch.setattr(limits, "ABANDONED_PER_COMMAND_MAX", 2)
    driver = MachineDriver()
    driver.granted("a")
    _run_from(driver, "gone", *[_wish(f"x{number}") for number in range(5)])
    left = [expect(WaitsAbandoned, driver.run(AbandonWaits("gone"))) for _ in range(3)]
    assert left == [WaitsAbandoned(2, 3), WaitsAbandoned(2, 1), WaitsAbandoned(1, 0)]


def test_waits_for_many_names_end_in_smaller_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand of them, each for two thousand names, would keep every node for seconds."""
    monkeypatch.setattr(limits, "EXPIRIES_PER_ENTRY_MAX", 4)
    driver = MachineDriver()
    driver.granted("a/b/c")
    _run_from(driver, "gone", *[_wish(f"x{number}", name="a/b/c") for number in range(5)])
    assert driver.run(AbandonWaits("gone")) == WaitsAbandoned(2, 3)


def test_conversions_are_abandoned_and_their_holds_kept() -> None:
    """A conversion waits like a request; its hold stays as it was."""
    driver = MachineDriver()
    for _ in range(2):
        driver.granted("a", mode=SHARED)
    driver.converting("h1", EXCLUSIVE)
    assert driver.run(AbandonWaits("n1")) == WaitsAbandoned(1, 0)
    assert [holder.mode for holder in driver.machine.lock("a").holders] == [SHARED, SHARED]
    assert isinstance(driver.converting("h1", EXCLUSIVE), Queued)


def test_the_processes_that_somebody_waits_at_are_known() -> None:
    """A node process is listed as long as somebody waits there, and no longer."""
    driver = MachineDriver()
    driver.granted("a")
    assert driver.machine.waiting_origins() == []
    _run_from(driver, "n5", _wish("x"))
    _run_from(driver, "n4", _wish("y"))
    assert driver.machine.waiting_origins() == ["n5", "n4"]
    driver.run(AbandonWaits("n5"))
    assert driver.machine.waiting_origins() == ["n4"]
    driver.release("h1")
    assert driver.machine.waiting_origins() == []
