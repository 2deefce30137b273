"""What a session holds already is renewed, counted or refused, as it says; permits are never shared."""

from typing import Any

import pytest

from lockstate import invariants
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words.commands.entries import Cancel
from lockstate.words.commands.holds import Acquire, AcquirePermits, Release
from lockstate.words.commands.overrides import ForceRelease
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.kinds import IfHeld
from lockstate.words.modes import Mode
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Cancelled, Granted, Queued, Released
from lockstate.words.wanted import Wanted
from tests.unit.lockstate.machine_driver import MachineDriver, again, expect, reason, with_uncommon

S1 = SessionId("s1")


@pytest.fixture
def driver() -> MachineDriver:
    """Return a driver with a session."""
    driver = MachineDriver()
    driver.open("s1", ttl_ms=60_000)
    return driver


def ask(number: int, if_held: IfHeld = IfHeld.RENEW, **fields: Any) -> Acquire:
    """Return the acquire of a lock of the session, with new ids."""
    terms = {"name": "a", "mode": Mode.EXCLUSIVE, "session_id": S1} | fields
    return Acquire(
        hold_id=HoldId(f"x{number}"),
        attempt_id=AttemptId(f"t{number}"),
        if_held=if_held,
        **with_uncommon(terms),
    )


def test_counted_acquires_take_as_many_releases(driver: MachineDriver) -> None:
    """A part is not released while there are several; a snapshot keeps the depth, a force ends them all."""
    driver.run(ask(1))
    for depth in (2, 3):
        assert expect(Granted, driver.run(ask(depth, IfHeld.COUNT))).depth == depth
    assert expect(Granted, driver.run(ask(4))).depth == 3, "a renewal does not count"
    assert reason(driver.run(Release(HoldId("x1"), "", ("a",)))) == Reason.INVALID_REQUEST
    restored = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    assert restored.state.holds[HoldId("x1")].details.depth == 3
    assert [expect(Released, driver.run(Release(HoldId("x1")))).depth for _ in range(2)] == [2, 1]
    driver.release("x1")
    assert reason(driver.run(Release(HoldId("x1")))) == Reason.LEASE_EXPIRED
    driver.run(ask(5))
    driver.run(ask(6, IfHeld.COUNT))
    driver.run(ForceRelease("a", "test"))
    assert driver.machine.lock("a").state == "free"
    assert not driver.machine.state.rare_count


@pytest.mark.parametrize("mode", [Mode.EXCLUSIVE, Mode.SHARED], ids=["plain locks", "others"])
def test_of_many_holds_only_what_was_given_back_is_asked_for_anew(driver: MachineDriver, mode: Mode) -> None:
    """A session with more holds than are looked through finds what each owner has, and has no more."""
    asked: dict[str, Any] = {"session_id": "s1", "mode": mode}
    for number in range(70):
        driver.granted(f"n{number}", owner="one", **asked)
    driver.granted("other", owner="two", **asked)
    assert again(driver.acquire("n69", owner="one", **asked)).hold_id == "h70"
    for hold_id, name, owner in (("h70", "n69", "one"), ("h71", "other", "two")):
        driver.release(hold_id)
        assert not driver.granted(name, owner=owner, **asked).depth
    assert again(driver.acquire("n68", owner="one", **asked)).hold_id == "h69"
    released = driver.run_all([Release(HoldId("h68")), Release(HoldId("h69"))])
    assert [one.depth for one in released if isinstance(one, Released)] == [0, 0]
    assert not driver.granted("n68", owner="one", **asked).depth


def test_a_count_that_nobody_heard_of_is_taken_back_alone(driver: MachineDriver) -> None:
    """The client of the second acquire went away: what was counted before stays held."""
    driver.run(ask(1))
    driver.run(ask(2, IfHeld.COUNT))
    assert driver.run(Cancel(HoldId("x1"), AttemptId("t1"))) == Cancelled(undone=False)
    assert driver.run(Cancel(HoldId("x1"), AttemptId("t2"))) == Cancelled(undone=True)
    assert driver.run(Cancel(HoldId("x1"), AttemptId("t2"))) == Cancelled(undone=False)
    assert driver.machine.lock("a").state == "held"
    invariants.check(driver.machine.state)
    restored = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    assert restored.fingerprint == driver.machine.fingerprint
    driver.release("x1")
    assert driver.machine.lock("a").state == "free"


def test_waits_for_the_same_are_shared_as_each_says(driver: MachineDriver) -> None:
    """The first one is granted; of the others one renews, one counts, and one is refused."""
    driver.granted("a", ttl_ms=50_000)
    wishes = (IfHeld.REFUSE, IfHeld.COUNT, IfHeld.REFUSE, IfHeld.RENEW)
    for number, if_held in enumerate(wishes, 1):
        assert type(driver.run(ask(number, if_held, wait_ms=9_000, note=f"n{number}"))) is Queued
    driver.release("h1")
    ends = driver.settled
    assert type(ends["x1"]) is Granted
    assert (expect(Granted, ends["x2"]).depth, expect(Granted, ends["x4"]).depth) == (2, 2)
    assert expect(Refused, ends["x3"]).reason == Reason.ALREADY_HELD
    invariants.check(driver.machine.state)
    holds = driver.machine.state.holds.values()
    assert [(hold.hold_id, hold.details.depth) for hold in holds] == [("x1", 2)]
    assert driver.machine.lock("a").holders[0].note == "n4"


def test_several_locks_are_counted_together(driver: MachineDriver) -> None:
    """A hold of several locks has one depth."""
    several: dict[str, Any] = {"name": "", "locks": (Wanted("b"), Wanted("c"))}
    driver.run(ask(1, **several))
    assert expect(Granted, driver.run(ask(2, IfHeld.COUNT, **several))).depth == 2


def test_a_wait_that_is_refused_leaves_nothing(driver: MachineDriver) -> None:
    """A session that would wait for itself is told so, and nothing is kept of what it said."""
    driver.run(ask(1))
    blocked = ask(2, IfHeld.COUNT, wait_ms=9_000, mode=Mode.SHARED)
    assert reason(driver.run(blocked)) == Reason.DEADLOCK
    assert not driver.machine.state.rare_count


def permits(number: int, wait_ms: int = 0) -> AcquirePermits:
    """Return the acquire of a permit of the session."""
    return AcquirePermits("q", 2, 1, HoldId(f"x{number}"), AttemptId(f"t{number}"), S1, wait_ms=wait_ms)
