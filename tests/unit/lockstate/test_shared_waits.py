"""Two waits of a session for the same get one hold: acquire is reentrant, whenever the second one comes."""

from collections.abc import Callable

import pytest

from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words.commands import Acquire, OpenSession
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.modes import Mode
from lockstate.words.results import Granted, Queued, Reason
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, MachineDriver, expect, reason, wanted


def _driver() -> MachineDriver:
    driver = MachineDriver()
    driver.open("ann", "bob", ttl_ms=60_000)
    return driver


def _settled(driver: MachineDriver) -> dict[str, Granted]:
    """Return what the waits that ended got."""
    return {hold_id: expect(Granted, result) for hold_id, result in driver.settled.items()}


@pytest.mark.parametrize("mode", [EXCLUSIVE, SHARED])
def test_waits_for_the_same_lock_get_one_hold(mode: Mode) -> None:
    """The second wait gets the hold and the token of the first, and no session waits for itself."""
    driver = _driver()
    driver.granted("a")
    first = driver.queued("a", mode=mode, session_id="ann").hold_id
    second = driver.queued("a", mode=mode, session_id="ann").hold_id
    driver.release("h1")
    got = _settled(driver)
    assert list(got) == [first, second]
    assert got[first].hold_id == got[second].hold_id == first
    assert got[first].token == got[second].token
    assert driver.machine.counts()["holds"] == 1
    assert [kind for kind, _ in driver.happened()] == ["released", "granted", "left"]


WAITS: dict[str, tuple[Callable[[MachineDriver], object], Callable[[MachineDriver], Queued]]] = {
    "several": (
        lambda driver: driver.granted("b"),
        lambda driver: driver.queued(locks=wanted("a", "b"), session_id="ann"),
    ),
    "election": (
        lambda driver: driver.campaign("e", "bob", "x"),
        lambda driver: expect(Queued, driver.campaign("e", "ann", "y", wait_ms=500)),
    ),
}


@pytest.mark.parametrize("kind", WAITS)
def test_waits_of_every_kind_get_one_hold(kind: str) -> None:
    """Several locks and elections are shared like a single lock, also after a restart."""
    hold, wait = WAITS[kind]
    driver = _driver()
    hold(driver)
    first, second = wait(driver).hold_id, wait(driver).hold_id
    driver.machine = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    driver.release("h1")
    got = _settled(driver)
    assert got[first].hold_id == got[second].hold_id == first
    assert driver.machine.counts()["tickets"] == 0
    assert driver.machine.counts()["holds"] == 1


def test_several_locks_in_another_order_are_the_same() -> None:
    """A list names a set; and one lock in a list is that lock."""
    driver = _driver()
    driver.granted("a")
    for locks in (wanted("a", "b"), wanted("b", "a")):
        driver.queued(locks=locks, session_id="ann")
    driver.release("h1")
    assert len(_settled(driver)) == 2
    driver.release("h2")
    for first, again in (({"name": "a"}, {"locks": wanted("a")}), ({"locks": wanted("b")}, {"name": "b"})):
        held = driver.granted(session_id="ann", **first)
        assert driver.granted(session_id="ann", **again).hold_id == held.hold_id


def test_another_owner_mode_or_session_is_another_wait() -> None:
    """Only what would have been the same hold is shared."""
    driver = _driver()
    driver.granted("a")
    driver.queued("a", mode=SHARED, session_id="ann")
    driver.queued("a", mode=SHARED, session_id="ann", owner="thread-2")
    driver.queued("a", mode=SHARED, session_id="bob")
    driver.queued("a", mode=SHARED)
    driver.queued("a", mode=SHARED, owner="ann")
    driver.release("h1")
    assert len({granted.hold_id for granted in _settled(driver).values()}) == 5


def test_permits_of_another_number_are_another_wait() -> None:
    """Three permits are not twice one."""
    driver = _driver()
    driver.permitted("q", 4, 4)
    driver.wanting("q", 4, 1, session_id="ann")
    driver.wanting("q", 4, 3, session_id="ann")
    driver.release("h1")
    assert len({granted.hold_id for granted in _settled(driver).values()}) == 2


def test_the_last_value_is_proclaimed() -> None:
    """A session that campaigned twice leads with its last value, as if it had campaigned again."""
    driver = _driver()
    driver.campaign("e", "bob", "x")
    driver.campaign("e", "ann", "first", wait_ms=500)
    driver.campaign("e", "ann", "second", wait_ms=500)
    driver.release("h1")
    assert [kind for kind, _ in driver.happened()] == ["resigned", "elected", "elected", "left"]
    assert driver.machine.election("e").value == "second"


def test_a_shared_hold_belongs_to_the_last_attempt() -> None:
    """The first client that goes away takes nothing from the second; the second wait may end alone, too."""
    driver = _driver()
    driver.granted("a")
    first = Acquire("a", EXCLUSIVE, HoldId("w1"), AttemptId("t1"), session_id=SessionId("ann"), wait_ms=500)
    second = Acquire("a", EXCLUSIVE, HoldId("w2"), AttemptId("t2"), session_id=SessionId("ann"), wait_ms=500)
    third = Acquire("a", EXCLUSIVE, HoldId("w3"), AttemptId("t3"), session_id=SessionId("ann"), wait_ms=500)
    driver.run_all([first, second, third])
    driver.cancel("w3", "t3")
    driver.release("h1")
    assert {waited: got.hold_id for waited, got in _settled(driver).items()} == {"w1": "w1", "w2": "w1"}
    driver.cancel("w1", "t1")
    assert "w1" in driver.machine.state.holds
    driver.cancel("w1", "t2")
    assert driver.machine.counts()["holds"] == 0


def test_sharing_a_hold_does_not_renew() -> None:
    """A session is not renewed because a lock that it waits for twice came free: its client may be dead."""
    driver = _driver()
    driver.granted("a")
    for _ in range(2):
        driver.queued("a", session_id="ann")
    driver.release("h1", at_ms=20_000)
    assert [granted.expires_in_ms for granted in _settled(driver).values()] == [40_000, 40_000]
    assert driver.granted("a", session_id="ann", at_ms=20_000).expires_in_ms == 60_000


def test_the_second_goes_on_when_the_first_leaves() -> None:
    """A wait that would have shared a hold gets one of its own, at its own place."""
    driver = _driver()
    driver.granted("a")
    driver.run(
        Acquire("a", EXCLUSIVE, HoldId("w1"), AttemptId("t1"), session_id=SessionId("ann"), wait_ms=500)
    )
    driver.queued("a", session_id="bob")
    driver.run(
        Acquire("a", EXCLUSIVE, HoldId("w2"), AttemptId("t2"), session_id=SessionId("ann"), wait_ms=500)
    )
    driver.cancel("w1", "t1")
    driver.release("h1")
    assert list(_settled(driver)) == ["h2"]
    driver.release("h2")
    assert {waited: got.hold_id for waited, got in _settled(driver).items()} == {"w2": "w2"}


def test_a_repeated_request_gets_the_shared_hold() -> None:
    """A repeated request that shared a hold gets its first outcome, like any other."""
    driver = _driver()
    driver.granted("a")
    driver.queued("a", session_id="ann")
    driver.queued("a", session_id="ann", request_id="r1", wait_ms=500)
    driver.release("h1")
    again = driver.acquire("a", session_id="ann", request_id="r1", wait_ms=500)
    assert expect(Granted, again).hold_id == "h2"


def test_both_waits_end_with_the_session() -> None:
    """Nothing is left of them, and nobody gets what the session wanted."""
    driver = _driver()
    driver.granted("a")
    for _ in range(2):
        driver.queued("a", session_id="ann")
    driver.close("ann")
    assert [reason(driver.refused(hold_id)) for hold_id in ("h2", "h3")] == [Reason.SESSION_EXPIRED] * 2
    driver.run(OpenSession(SessionId("ann"), 500, {}))
    driver.release("h1")
    assert driver.machine.counts()["holds"] == 0
