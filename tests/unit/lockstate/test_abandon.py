"""Waits for clients of a node process that is gone are ended: nothing is granted that no client hears of."""

import pytest

from lockstate.words import limits
from lockstate.words.commands.entries import AbandonWaits, Batch, Command, Entry
from lockstate.words.commands.holds import Acquire
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.results import Result, WaitsAbandoned
from tests.unit.lockstate.machine_driver import EXCLUSIVE, MachineDriver, expect


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
