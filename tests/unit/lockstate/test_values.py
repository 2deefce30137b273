"""Values of holds: who is told them, and the commands that name a hold by its value."""

from typing import Any

import pytest

from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.tables import budget
from lockstate.words import limits
from lockstate.words.commands import (
    AcquireAs,
    AcquirePermitsAs,
    Cancel,
    ForceRelease,
    IfHeld,
    ReleaseByValue,
    RenewByValue,
    RenewOf,
    Wanted,
)
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode
from lockstate.words.results import (
    EventKind,
    Granted,
    GrantedAgainAs,
    GrantedAs,
    GrantedPermitsAs,
    Queued,
    Reason,
    Refused,
    Released,
    ReleasedOnce,
    Renewed,
    Result,
)
from tests.unit.lockstate.cell_driver import CellDriver
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, expect, reason

SEMAPHORE = HoldKind.SEMAPHORE


class ValueDriver(CellDriver):
    """A machine of the newest rules that is asked for holds with values."""

    def ask(self, name: str = "a", value: str = "v", *, mode: Mode = EXCLUSIVE, **fields: Any) -> Result:
        """Acquire a lock with the next free ids, for `session_id` or for 1000 ms."""
        number = self._next_id()
        fields.setdefault("ttl_ms", 0 if "session_id" in fields else 1000)
        at_ms = fields.pop("at_ms", 0)
        command = AcquireAs(name, mode, HoldId(f"h{number}"), AttemptId(f"a{number}"), value=value, **fields)
        return self.run(command, at_ms)

    def ask_permits(self, value: str = "v", *, wait_ms: int = 0, is_secret: bool = False) -> Result:
        """Acquire one of the two permits of "q"."""
        number = self._next_id()
        command = AcquirePermitsAs(
            "q",
            2,
            1,
            HoldId(f"h{number}"),
            AttemptId(f"a{number}"),
            ttl_ms=1000,
            wait_ms=wait_ms,
            value=value,
            is_secret=is_secret,
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


def test_a_value_is_told_to_its_holder_and_to_all_readers(driver: ValueDriver) -> None:
    """In the answer, in the events of the hold, and in reads; refusals do not name it."""
    granted = expect(GrantedAs, driver.ask())
    assert (granted.value, driver.values_told()) == ("v", ["v"])
    assert driver.restored().machine.lock("a").holders[0].value == "v"
    assert "v" not in [
        str(part) for part in expect(Refused, driver.ask(value="w")).holders[0].__rich_repr__()
    ]
    driver.release(granted.hold_id)
    assert driver.values_told() == ["v"]


def test_a_secret_is_told_to_its_holder_alone(driver: ValueDriver) -> None:
    """Not in any event of a hold of one lock or of several, nor in any read, however it ends."""
    for locks in ((), (Wanted("a"), Wanted("b"))):
        granted = expect(GrantedAs, driver.ask("" if locks else "a", is_secret=True, locks=locks))
        assert (granted.value, set(driver.values_told())) == ("v", {""})
        assert driver.restored().machine.lock("a").holders[0].value == ""
        driver.run(ForceRelease("a", "x"))
        assert [event.kind for event in driver.events] == [EventKind.FORCED] * max(1, len(locks))
        assert set(driver.values_told()) == {""}
    assert {event.value for event in driver.machine.audit()} == {""}


def test_a_part_of_a_hold_with_a_secret_is_given_back_in_silence(driver: ValueDriver) -> None:
    """And so is the change of its mode."""
    granted = expect(
        Granted,
        driver.ask("", is_secret=True, locks=(Wanted("a", SHARED), Wanted("b", SHARED)), session_id="ann"),
    )
    driver.convert(granted.hold_id, EXCLUSIVE)
    assert set(driver.values_told()) == {""}
    driver.release(granted.hold_id, "a")
    assert driver.values_told() == [""]


@pytest.mark.parametrize("is_secret", [False, True])
def test_a_wait_brings_the_value(driver: ValueDriver, is_secret: bool) -> None:  # noqa: FBT001 - a case
    """Nobody is told of it while it waits; the hold has it, and keeps the secret, also after a restart."""
    first = driver.granted("a")
    waiting = expect(Queued, driver.ask(wait_ms=500, is_secret=is_secret))
    assert driver.values_told() == [""]
    driver.restored().release(first.hold_id)
    assert expect(GrantedAs, driver.settled[waiting.hold_id]).value == "v"
    shown = "" if is_secret else "v"
    assert driver.values_told() == ["", shown]
    assert driver.machine.lock("a").holders[0].value == shown


def test_a_wait_that_ends_tells_nothing(driver: ValueDriver) -> None:
    """Whatever would have been told of the hold."""
    driver.granted("a", ttl_ms=9000)
    driver.ask(wait_ms=100)
    driver.pass_to(101)
    assert [(event.kind, event.value) for event in driver.events] == [(EventKind.LEFT, "")]


def test_permits_have_values_too(driver: ValueDriver) -> None:
    """Those that wait for them as well."""
    granted = expect(GrantedPermitsAs, driver.ask_permits("one"))
    assert (granted.value, granted.limit, driver.values_told()) == ("one", 2, ["one"])
    assert expect(GrantedPermitsAs, driver.ask_permits("two", is_secret=True)).value == "two"
    assert driver.values_told() == [""]
    waiting = expect(Queued, driver.ask_permits("three", wait_ms=900, is_secret=True))
    assert [holder.value for holder in driver.restored().machine.semaphore("q").holders] == ["one", ""]
    assert driver.run(ReleaseByValue("q", "two", SEMAPHORE)) == Released()
    assert set(driver.values_told()) == {""}
    assert expect(GrantedPermitsAs, driver.settled[waiting.hold_id]).value == "three"


def test_a_hold_ends_by_its_value(driver: ValueDriver) -> None:
    """Whoever waits for it goes on; a second time there is nothing to end, unless it is the same request."""
    driver.ask(session_id="ann")
    waiting = driver.queued("a")
    by_value = ReleaseByValue("a", "v", request_id="r")
    assert driver.run(by_value) == Released()
    assert driver.served() == [waiting.hold_id]
    assert driver.run(ReleaseByValue("a", "v")) == Refused(
        Reason.NOT_HOLDER, "nobody holds it with this value"
    )
    assert driver.restored().run(by_value) == Released()


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


def test_of_several_with_one_value_the_oldest_is_meant(driver: ValueDriver) -> None:
    """The one with the lowest token."""
    first = expect(Granted, driver.ask(mode=SHARED))
    second = expect(Granted, driver.ask(mode=SHARED))
    assert driver.run(RenewByValue("a", "v", 5000)) == Renewed(first.token, 5000)
    driver.run(ReleaseByValue("a", "v"))
    assert [holder.token for holder in driver.machine.lock("a").holders] == [second.token]


@pytest.mark.parametrize("locks", [(Wanted("a"),), (Wanted("a"), Wanted("b"))])
def test_a_list_of_locks_is_not_found_by_its_value(driver: ValueDriver, locks: tuple[Wanted, ...]) -> None:
    """Who may use one of the names need not have a right on the others: it would end them all."""
    granted = expect(Granted, driver.ask("", locks=locks))
    assert reason(driver.run(ReleaseByValue("a", "v"))) is Reason.NOT_HOLDER
    assert reason(driver.run(RenewByValue("a", "v", 5000))) is Reason.NOT_HOLDER
    assert driver.events == ()
    assert [holder.token for holder in driver.machine.lock("a").holders] == [granted.token]


def test_behind_a_list_of_locks_the_next_one_is_meant(driver: ValueDriver) -> None:
    """One with the same value that shares the name, and is of this name alone."""
    first = expect(Granted, driver.ask("", locks=(Wanted("a", SHARED), Wanted("b"))))
    driver.ask(mode=SHARED)
    assert driver.run(ReleaseByValue("a", "v")) == Released()
    assert [holder.token for holder in driver.machine.lock("a").holders] == [first.token]


def test_a_counted_hold_ends_with_as_many_releases(driver: ValueDriver) -> None:
    """By value as by id. A value that another acquire gives is taken, and keeps the secret or not."""
    first = expect(Granted, driver.ask(session_id="ann", is_secret=True))
    again = expect(GrantedAgainAs, driver.ask(value="w", session_id="ann", if_held=IfHeld.COUNT))
    assert (again.hold_id, again.value, again.depth) == (first.hold_id, "w", 2)
    assert driver.machine.lock("a").holders[0].value == "w"
    assert reason(driver.run(ReleaseByValue("a", "v"))) is Reason.NOT_HOLDER
    assert driver.run(ReleaseByValue("a", "w")) == ReleasedOnce((), 1)
    assert driver.run(ReleaseByValue("a", "w")) == Released()


def test_another_acquire_without_a_value_leaves_it(driver: ValueDriver) -> None:
    """And is told it; one that must not find it held changes nothing."""
    driver.ask(session_id="ann", is_secret=True)
    assert expect(GrantedAgainAs, driver.acquire("a", session_id="ann")).value == "v"
    assert driver.events == ()
    refused = driver.ask(value="w", session_id="ann", if_held=IfHeld.REFUSE)
    assert reason(refused) is Reason.ALREADY_HELD
    assert expect(GrantedAgainAs, driver.ask(value="", session_id="ann")).value == "v"


def test_waits_that_share_a_hold_give_it_their_value(driver: ValueDriver) -> None:
    """The last that gives one counts, with its secrecy."""
    first = driver.granted("a")
    one = expect(Queued, driver.ask(value="one", session_id="ann", wait_ms=900))
    two = expect(Queued, driver.ask(value="two", session_id="ann", wait_ms=900, is_secret=True))
    driver.restored().release(first.hold_id)
    assert expect(GrantedAs, driver.settled[one.hold_id]).value == "one"
    assert expect(GrantedAgainAs, driver.settled[two.hold_id]).value == "two"
    assert driver.machine.lock("a").holders[0].value == ""


def test_a_renewal_by_value_is_a_renewal(driver: ValueDriver) -> None:
    """With its bounds; repeated, it tells what is left to the hold that was renewed, and to no other."""
    first = expect(Granted, driver.ask(ttl_ms=2000))
    renew = RenewByValue("a", "v", 3000, request_id="r")
    assert driver.run(renew, 100) == Renewed(first.token, 3000)
    assert driver.run(renew, 200) == Renewed(first.token, 2900)
    assert reason(driver.run(RenewByValue("a", "v", 1))) is Reason.TTL_OUT_OF_RANGE
    driver.release(first.hold_id)
    driver.ask(at_ms=200)
    assert driver.run(renew, 200) == Renewed(first.token, 0)
    driver.run(ReleaseByValue("a", "v"))
    driver.ask(session_id="ann")
    assert reason(driver.run(RenewByValue("a", "v", 3000))) is Reason.INVALID_REQUEST
    assert isinstance(driver.run(RenewByValue("a", "v")), Renewed)


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
    assert len(driver.machine.state.extras) == 0


def test_a_refused_wait_leaves_no_secret(driver: ValueDriver) -> None:
    """A wait that is refused at once was never there."""
    driver.granted("q")
    driver.permitted("q", 2, 2)
    refused = driver.ask("q", is_secret=True)
    assert reason(refused) is Reason.LOCK_HELD
    assert reason(driver.ask_permits(is_secret=True)) is Reason.NO_PERMITS
    assert len(driver.machine.state.extras) == 0


def test_a_value_is_counted(driver: ValueDriver) -> None:
    """Two bytes for each of its bytes, as any text; a secret one has an entry of its own beside the hold."""
    before = driver.machine.bytes_count
    driver.granted("a", ttl_ms=50_000)
    plain = driver.machine.bytes_count - before
    driver.ask("b", "v" * 1000, ttl_ms=50_000)
    marked = driver.machine.bytes_count - before - plain
    driver.ask("c", "v" * 1000, ttl_ms=50_000, is_secret=True)
    secret = driver.machine.bytes_count - before - plain - marked
    assert 2000 <= marked - plain <= 2010
    assert 0 < secret - marked <= 400
    assert budget.bytes_of(driver.machine.state) == budget.recounted(driver.machine.state)


def test_a_session_that_renews_by_value_lives_on(driver: ValueDriver) -> None:
    """A hold lives as long as its session: renewing either renews both."""
    held = expect(Granted, driver.ask(session_id="ann"))
    assert driver.run(RenewByValue("a", "v"), 40_000) == Renewed(held.token, 50_000)
    assert driver.run(RenewOf(held.hold_id), 80_000) == Renewed(held.token, 50_000)
