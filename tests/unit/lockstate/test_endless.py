"""Holds without a deadline: no time ends them, but everything else does."""

from typing import Any

import pytest

from lockstate.machine import LockMachine
from lockstate.reads.listings import Whose, holdings
from lockstate.stored import snapshot
from lockstate.words import limits
from lockstate.words.commands.holds import Acquire, AcquirePermits, Renew, RenewByValue
from lockstate.words.commands.overrides import Revoke
from lockstate.words.events import EventKind
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode
from lockstate.words.refusals import Refused
from lockstate.words.results import Granted, Renewed, Result
from lockstate.words.wanted import Uncommon
from tests.unit.lockstate.cell_driver import CellDriver
from tests.unit.lockstate.machine_driver import EXCLUSIVE, expect, with_uncommon

SEMAPHORE = HoldKind.SEMAPHORE
YEAR_MS = 365 * 24 * 3600 * 1000


class EndlessDriver(CellDriver):
    """A machine of the newest rules that is asked for holds without a deadline."""

    def ask(self, name: str = "a", *, mode: Mode = EXCLUSIVE, at_ms: int = 0, **fields: Any) -> Result:
        """Acquire a lock with the next free ids."""
        number = self._next_id()
        ids = HoldId(f"h{number}"), AttemptId(f"a{number}")
        return self.run(Acquire(name, mode, *ids, **with_uncommon({**fields, "is_endless": True})), at_ms)

    def ask_permits(self, **fields: Any) -> Result:
        """Acquire the only permit of "q"."""
        number = self._next_id()
        ids = HoldId(f"h{number}"), AttemptId(f"a{number}")
        return self.run(AcquirePermits("q", 1, 1, *ids, **with_uncommon({**fields, "is_endless": True})))

    def restored(self) -> "EndlessDriver":
        """Go on from a snapshot: nobody can tell the difference."""
        self.machine = LockMachine(snapshot.decode(snapshot.encode(self.machine.state)))
        return self


@pytest.fixture
def driver() -> EndlessDriver:
    """Return a machine of the newest rules."""
    return EndlessDriver()


def test_there_is_nothing_to_renew(driver: EndlessDriver) -> None:
    """A renewal is answered, also by value and with what was asked back; a ttl it cannot have."""
    held = expect(Granted, driver.ask(value="v"))
    assert driver.run(Renew(held.hold_id), 50) == Renewed(held.token, None)
    assert driver.run(RenewByValue("a", "v", request_id="r"), 60) == Renewed(held.token, None)
    assert driver.run(RenewByValue("a", "v", request_id="r"), 60) == Renewed(held.token, None)
    for command in (Renew(held.hold_id, 5000), RenewByValue("a", "v", 5000)):
        assert expect(Refused, driver.run(command)).detail.startswith("ttl_ms:")
    driver.run(Revoke("a", "x", 1000), 60)
    assert expect(Renewed, driver.run(Renew(held.hold_id))).expires_in_ms is None
    assert driver.pass_to(YEAR_MS) == [EventKind.FORCED]


def test_a_repeated_request_finds_it_again(driver: EndlessDriver) -> None:
    """Without an end as long as it is held, and ended once it is not."""
    command = Acquire(
        "a", EXCLUSIVE, HoldId("h"), AttemptId("t"), request_id="r", uncommon=Uncommon(is_endless=True)
    )
    first = expect(Granted, driver.run(command))
    again = Acquire(
        "a", EXCLUSIVE, HoldId("h2"), AttemptId("t2"), request_id="r", uncommon=Uncommon(is_endless=True)
    )
    assert driver.run(again) == first
    driver.release(first.hold_id)
    assert expect(Granted, driver.run(again)).expires_in_ms == 0


def test_it_can_be_listed(driver: EndlessDriver) -> None:
    """By itself, of every kind; waits for it are not held yet."""
    driver.ask()
    driver.ask_permits()
    driver.granted("b")
    driver.ask("b", wait_ms=500)
    found = holdings(driver.machine.state, Whose(is_endless=True), "", "", limits.LIST_LIMIT_MAX)
    assert ([hold.name for hold in found.holds], found.tickets) == (["a", "q"], ())
    others = holdings(driver.machine.state, Whose(is_endless=False), "", "", limits.LIST_LIMIT_MAX)
    assert ([hold.name for hold in others.holds], [wait.name for wait in others.tickets]) == (["b"], ["b"])


@pytest.mark.parametrize("fields", [{"session_id": SessionId("s")}, {"ttl_ms": 1000}])
def test_it_has_neither_session_nor_ttl(driver: EndlessDriver, fields: dict[str, Any]) -> None:
    """Who gives one of the two besides has made a mistake; who gives none of the three as well."""
    for refused in (driver.ask(**fields), driver.ask_permits(**fields)):
        assert expect(Refused, refused).detail.startswith("no_deadline:")
    neither = Acquire("a", EXCLUSIVE, HoldId("h"), AttemptId("t"))
    assert expect(Refused, driver.run(neither)).detail.startswith("session_id, ttl_ms:")
