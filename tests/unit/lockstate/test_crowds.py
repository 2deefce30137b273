"""Names that many hold: a holder is found by its token or its value as if all were looked at."""

from random import Random

import pytest

from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.tables import crowds
from lockstate.words.commands.entries import OfSomebody, OnBehalf
from lockstate.words.commands.holds import (
    Acquire,
    AcquirePermits,
    AddLocks,
    Convert,
    Release,
    ReleaseByValue,
    RenewByValue,
)
from lockstate.words.commands.overrides import ForceRelease, Revoke, WithdrawRevocation
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.kinds import HoldKind, IfHeld
from lockstate.words.modes import Mode
from lockstate.words.results import Result
from lockstate.words.wanted import Uncommon
from tests.unit.lockstate.machine_driver import SHARED, MachineDriver, again, wanted

SEMAPHORE = HoldKind.SEMAPHORE
ATTEMPT = AttemptId("a1")


def _acquisition(chance: Random, hold_id: HoldId) -> OfSomebody:
    """Return a request for one of two names that many can hold, mostly with a value."""
    asked = Uncommon(value=chance.choice(["", "v", "w"]), is_secret=chance.random() < 0.2)
    session_id = chance.choice([SessionId(""), SessionId("ann"), SessionId("bob")])
    ttl_ms = 0 if session_id else 90_000
    if chance.random() < 0.5:
        return AcquirePermits("q", 90, 1, hold_id, ATTEMPT, session_id, ttl_ms, uncommon=asked)
    locks = wanted("a", f"b{hold_id}", mode=Mode.SHARED) if chance.random() < 0.2 else ()
    name = "" if locks else "a"
    return Acquire(name, Mode.SHARED, hold_id, ATTEMPT, session_id, ttl_ms, locks=locks, uncommon=asked)


def _command(chance: Random, number: int) -> OfSomebody:
    """Return the next command of a history."""
    hold_id, value = HoldId(f"h{chance.randrange(max(number, 1))}"), chance.choice(["v", "w", "x"])
    kind, token = chance.choice([HoldKind.LOCK, SEMAPHORE]), chance.randrange(1, number + 2)
    name = "q" if kind is SEMAPHORE else "a"
    return chance.choice(
        [
            *[_acquisition(chance, HoldId(f"h{number}"))] * 8,
            Release(hold_id),
            Convert(hold_id, Mode.UPDATE, HoldId(f"t{number}"), ATTEMPT),
            AddLocks(hold_id, wanted(f"c{number}"), HoldId(f"t{number}"), ATTEMPT),
            ReleaseByValue(name, value, kind),
            RenewByValue(name, value, 80_000, kind),
            ForceRelease(name, "why", kind=kind, token=token),
            Revoke(name, "why", 50_000, kind, token),
            WithdrawRevocation(name, "why", kind, token),
        ]
    )


def _history(seed: int) -> list[Result]:
    """Return the results of a history, in which each state is checked."""
    chance, driver = Random(seed), MachineDriver()
    driver.open("ann", ttl_ms=90_000)
    driver.run(OnBehalf("bob", OpenSession(SessionId("bob"), 90_000)))
    results: list[Result] = []
    for number in range(150):
        command, asking = _command(chance, number), chance.choice(["", "ann", "bob"])
        results.append(driver.run(OnBehalf(asking, command) if asking else command))
        if number % 50 == 49:
            driver.machine = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    return results


@pytest.mark.parametrize("seed", range(6))
def test_a_crowd_changes_no_result(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks, and whatever happens to the holders: to look through all of them gives the same."""
    looked_through = _history(seed)
    monkeypatch.setattr(crowds, "SEARCHED_MAX", 2)
    assert _history(seed) == looked_through


def test_a_name_has_a_crowd_while_many_hold_it() -> None:
    """It comes with the first holder too many to be looked through, and goes when half of these are left."""
    driver = MachineDriver()
    holds = [driver.granted("a", mode=Mode.SHARED) for _ in range(crowds.SEARCHED_MAX)]
    assert not driver.machine.state.crowds
    holds.append(driver.granted("a", mode=Mode.SHARED))
    assert list(driver.machine.state.crowds.rows) == ["a"]
    half = crowds.SEARCHED_MAX // 2
    for hold in holds[:half]:
        driver.release(hold.hold_id)
    assert len(driver.machine.state.crowds) == 1
    driver.release(holds[half].hold_id)
    assert not driver.machine.state.crowds


def test_a_holder_in_a_crowd_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """How often it has the name is noted, and it is found by its token as before."""
    monkeypatch.setattr(crowds, "SEARCHED_MAX", 2)
    driver = MachineDriver()
    driver.open("ann", ttl_ms=90_000)
    tokens = [driver.granted("a", mode=SHARED, session_id=session).token for session in ("ann", "", "")]
    counted = Acquire("a", SHARED, HoldId("h9"), ATTEMPT, SessionId("ann"), if_held=IfHeld.COUNT)
    assert again(driver.run(counted)).depth == 2
    driver.run(ForceRelease("a", "why", token=tokens[0]))
    assert [holder.token for holder in driver.machine.lock("a").holders] == tokens[1:]
