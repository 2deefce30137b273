"""Values of holds: who is told them, and the commands that name a hold by its value."""

from typing import Any

import pytest

from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.tables import budget
from lockstate.words import limits
from lockstate.words.commands.entries import Cancel
from lockstate.words.commands.holds import Acquire, AcquirePermits, ReleaseByValue, Renew, RenewByValue
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted, Released, Renewed, Result
from lockstate.words.wanted import Uncommon, Wanted
from tests.unit.lockstate.cell_driver import CellDriver
from tests.unit.lockstate.machine_driver import EXCLUSIVE, expect, reason, with_uncommon

SEMAPHORE = HoldKind.SEMAPHORE


class ValueDriver(CellDriver):
    """A machine of the newest rules that is asked for holds with values."""

    def ask(self, name: str = "a", value: str = "v", *, mode: Mode = EXCLUSIVE, **fields: Any) -> Result:
        """Acquire a lock with the next free ids, for `session_id` or for 1000 ms."""
        number = self._next_id()
        fields.setdefault("ttl_ms", 0 if "session_id" in fields else 1000)
        at_ms = fields.pop("at_ms", 0)
        command = Acquire(
            name,
            mode,
            HoldId(f"h{number}"),
            AttemptId(f"a{number}"),
            **with_uncommon({**fields, "value": value}),
        )
        return self.run(command, at_ms)

    def ask_permits(self, value: str = "v", *, wait_ms: int = 0, is_secret: bool = False) -> Result:
        """Acquire one of the two permits of "q"."""
        number = self._next_id()
        command = AcquirePermits(
            "q",
            2,
            1,
            HoldId(f"h{number}"),
            AttemptId(f"a{number}"),
            ttl_ms=1000,
            wait_ms=wait_ms,
            uncommon=Uncommon(value=value, is_secret=is_secret),
        )
        return self.run(command)

    def restored(self) -> "ValueDriver":
        """Go on from a snapshot: nobody can tell the difference."""
        self.machine = LockMachine(snapshot.decode(snapshot.encode(self.machine.state)))
        return self

    def values_told(self) -> list[str]:
        """Return the values in the events of the last entry."""
        return [event.value for event in self.events]


@pytest.fixture
def driver() -> ValueDriver:
    """Return a machine of the newest rules, with a session."""
    driver = ValueDriver()
    driver.open("ann", ttl_ms=50_000)
    return driver


@pytest.mark.parametrize(
    "command",
    [
        ReleaseByValue("a", "V"),
        ReleaseByValue("a", "v", SEMAPHORE),
        ReleaseByValue("a/b", "v"),
        ReleaseByValue("b", "v"),
        ReleaseByValue("e", "v", HoldKind.LOCK),
        RenewByValue("a", "vv"),
        RenewByValue("q", "v"),
        RenewByValue("a", "e\u0301"),
    ],
)
def test_all_else_is_not_held(driver: ValueDriver, command: ReleaseByValue | RenewByValue) -> None:
    """One refusal for everything: another value, name or kind. It names nobody, and nothing changes."""
    driver.ask(is_secret=True)
    driver.campaign("e", "ann", "v")
    before = driver.machine.fingerprint, driver.machine.revision
    refused = expect(Refused, driver.run(command))
    assert (refused.reason, refused.detail, refused.holders) == (
        Reason.NOT_HOLDER,
        "nobody holds it with this value",
        (),
    )
    assert driver.events == ()
    assert driver.machine.revision == before[1] + 1
    assert len(driver.machine.state.holds) == 2


@pytest.mark.parametrize("locks", [(Wanted("a"),), (Wanted("a"), Wanted("b"))])
def test_a_list_of_locks_is_not_found_by_its_value(driver: ValueDriver, locks: tuple[Wanted, ...]) -> None:
    """Who may use one of the names need not have a right on the others: it would end them all."""
    granted = expect(Granted, driver.ask("", locks=locks))
    assert reason(driver.run(ReleaseByValue("a", "v"))) is Reason.NOT_HOLDER
    assert reason(driver.run(RenewByValue("a", "v", 5000))) is Reason.NOT_HOLDER
    assert driver.events == ()
    assert [holder.token for holder in driver.machine.lock("a").holders] == [granted.token]


def test_a_renewal_by_value_is_a_renewal(driver: ValueDriver) -> None:
    """With its bounds; repeated, it tells what is left to the hold that was renewed, or that it is over."""
    first = expect(Granted, driver.ask(ttl_ms=2000))
    renew = RenewByValue("a", "v", 3000, request_id="r")
    assert driver.run(renew, 100) == Renewed(first.token, 3000)
    assert driver.run(renew, 200) == Renewed(first.token, 2900)
    assert reason(driver.run(RenewByValue("a", "v", 1))) is Reason.TTL_OUT_OF_RANGE
    driver.release(first.hold_id)
    driver.ask(at_ms=200)
    assert reason(driver.run(renew, 200)) is Reason.LEASE_EXPIRED
    driver.run(ReleaseByValue("a", "v"))
    driver.ask(session_id="ann")
    assert reason(driver.run(RenewByValue("a", "v", 3000))) is Reason.INVALID_REQUEST
    assert isinstance(driver.run(RenewByValue("a", "v")), Renewed)


def test_what_is_added_to_a_lease_comes_on_top_of_what_is_left(driver: ValueDriver) -> None:
    """Each addition counts, also to a lease that it shortens; the sum has the bounds of a lease."""
    token = expect(Granted, driver.ask(ttl_ms=2000)).token
    add = RenewByValue("a", "v", 3000, exact=True, adds=True)
    assert driver.run(add, 100) == Renewed(token, 4900)
    assert driver.run(add, 100) == Renewed(token, 7900)
    less = RenewByValue("a", "v", -7000, exact=True, adds=True)
    assert driver.run(less, 200) == Renewed(token, 800)
    assert reason(driver.run(less, 200)) is Reason.TTL_OUT_OF_RANGE
    assert reason(driver.run(RenewByValue("a", "w", 3000, exact=True, adds=True))) is Reason.NOT_HOLDER


def test_a_long_value_is_remembered_like_a_short_one(driver: ValueDriver) -> None:
    """A repeated release has its first outcome, whatever the length of what it names."""
    value = "v" * limits.HOLD_VALUE_BYTES_MAX
    driver.ask(value=value)
    release = ReleaseByValue("a", value, request_id="r")
    assert driver.run(release) == driver.run(release) == Released()
    other = ReleaseByValue("a", "another", request_id="r")
    assert reason(driver.run(other)) is Reason.NOT_HOLDER


@pytest.mark.parametrize(
    ("value", "is_secret", "field"),
    [
        ("", True, "value_secret"),
        ("x" * 1025, False, "value"),
        ("é" * 513, True, "value"),
        ("\n", False, "value"),
    ],
)
def test_what_cannot_be_a_value_is_refused(
    driver: ValueDriver,
    value: str,
    is_secret: bool,  # noqa: FBT001 - a case
    field: str,
) -> None:
    """Of a lock, of permits, and in the commands that name it."""
    refusals = [driver.ask(value=value, is_secret=is_secret), driver.ask_permits(value, is_secret=is_secret)]
    assert {expect(Refused, each).detail.partition(":")[0] for each in refusals} == {field}
    for command in (ReleaseByValue("a", value), RenewByValue("a", value)):
        assert expect(Refused, driver.run(command)).detail.partition(":")[0] == "value"
    assert driver.machine.state.holds == {}


def test_a_name_that_cannot_be_is_refused(driver: ValueDriver) -> None:
    """Before anybody looks for it."""
    assert reason(driver.run(ReleaseByValue("a//b", "v"))) is Reason.INVALID_REQUEST
    assert reason(driver.run(RenewByValue("", "v"))) is Reason.INVALID_REQUEST


def test_an_attempt_that_is_undone_takes_its_value_along(driver: ValueDriver) -> None:
    """Nothing is left of a secret, and nobody is told it."""
    granted = expect(Granted, driver.ask(is_secret=True))
    driver.run(Cancel(granted.hold_id, AttemptId("a1")))
    assert driver.values_told() == [""]
    assert driver.machine.state.rare_count == 0


def test_a_refused_wait_leaves_no_secret(driver: ValueDriver) -> None:
    """A wait that is refused at once was never there."""
    driver.granted("q")
    driver.permitted("q", 2, 2)
    refused = driver.ask("q", is_secret=True)
    assert reason(refused) is Reason.LOCK_HELD
    assert reason(driver.ask_permits(is_secret=True)) is Reason.NO_PERMITS
    assert driver.machine.state.rare_count == 0


def test_a_value_is_counted(driver: ValueDriver) -> None:
    """Two bytes for each of its bytes, as any text, and what a hold that has anything rare takes beside."""
    before = driver.machine.bytes_count
    driver.granted("a", ttl_ms=50_000)
    plain = driver.machine.bytes_count - before
    driver.ask("b", "v" * 1000, ttl_ms=50_000)
    marked = driver.machine.bytes_count - before - plain
    driver.ask("c", "v" * 1000, ttl_ms=50_000, is_secret=True)
    secret = driver.machine.bytes_count - before - plain - marked
    assert 2150 <= marked - plain <= 2200
    assert 0 < secret - marked <= 30
    assert budget.bytes_of(driver.machine.state) == budget.recounted(driver.machine.state)


def test_a_session_that_renews_by_value_lives_on(driver: ValueDriver) -> None:
    """A hold lives as long as its session: renewing either renews both."""
    held = expect(Granted, driver.ask(session_id="ann"))
    assert driver.run(RenewByValue("a", "v"), 40_000) == Renewed(held.token, 50_000)
    assert driver.run(Renew(held.hold_id), 80_000) == Renewed(held.token, 50_000)
