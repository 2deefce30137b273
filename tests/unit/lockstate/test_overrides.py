"""What operators do to what others have: end a session, lift a delay, forget a fence. And another ttl."""

import pytest

from lockstate.machine import LockMachine
from lockstate.reads import listings
from lockstate.stored import snapshot
from lockstate.tables.delays import set_delay
from lockstate.tables.owners import session_name
from lockstate.words import limits
from lockstate.words.commands.entries import Command
from lockstate.words.commands.overrides import (
    ForceCloseSession,
    ForceRelease,
    ForceWaits,
    ForgetFence,
    LiftDelay,
)
from lockstate.words.commands.primitives import AdvanceFence
from lockstate.words.commands.sessions import KeepAlive
from lockstate.words.events import EventKind
from lockstate.words.ids import SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Scope
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import DelaysLifted, SessionKept
from tests.unit.lockstate.cell_driver import CellDriver
from tests.unit.lockstate.machine_driver import SUBTREE, MachineDriver, expect, reason

ANN = SessionId("ann")


@pytest.fixture
def driver() -> CellDriver:
    """Return a machine of the newest rules, with a session."""
    driver = CellDriver()
    driver.open("ann", ttl_ms=5000)
    return driver


def _name_of(driver: MachineDriver, session_id: str) -> str:
    return session_name(driver.machine.state.sessions[SessionId(session_id)])


# -- sessions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["s-0", "s-99", "s-01", "ann", "", "s-", "s-1 "])
def test_only_the_exact_name_ends_a_session(driver: MachineDriver, name: str) -> None:
    """Neither the secret id nor another spelling of the number will do; nothing happens."""
    assert _name_of(driver, "ann") == "s-1"
    assert reason(driver.run(ForceCloseSession(name, "x"))) is Reason.SESSION_EXPIRED
    assert driver.events == ()
    assert expect(SessionKept, driver.run(KeepAlive(ANN))).expires_in_ms == 5000


def test_a_keepalive_may_change_the_ttl(driver: MachineDriver) -> None:
    """A longer one counts at once. A shorter one counts from the next keepalive on: promised is promised."""
    assert expect(SessionKept, driver.run(KeepAlive(ANN, 9000))).expires_in_ms == 9000
    assert expect(SessionKept, driver.run(KeepAlive(ANN, 1000))).expires_in_ms == 9000
    assert expect(SessionKept, driver.run(KeepAlive(ANN), at_ms=8500)).expires_in_ms == 1000
    assert driver.pass_to(9500) == []
    assert driver.pass_to(9501) == [EventKind.SESSION_EXPIRED]


# -- delays -------------------------------------------------------------------------------------------------


def test_delays_of_both_scopes_are_lifted_in_order(driver: MachineDriver) -> None:
    """One of a name and one of its subtree are two; that of a name above or below stays."""
    driver.granted("a", scope=SUBTREE)
    driver.force("a", 500)
    driver.granted("b", scope=SUBTREE)
    driver.force("b", 2000)
    state = driver.machine.state
    set_delay(state, "b", Scope.NODE, 1000, "")
    assert driver.run(LiftDelay("b/c", "x")) == DelaysLifted(0, 0)
    assert driver.run(LiftDelay("b", "x")) == DelaysLifted(2, 2000)
    assert [event.scope for event in driver.events] == [Scope.SUBTREE, Scope.NODE]
    assert list(state.delays) == [("a", Scope.SUBTREE)]


# -- fences -------------------------------------------------------------------------------------------------


def test_forgotten_and_seen_again_is_one_fence(driver: MachineDriver) -> None:
    """However often it goes and comes between two looks at the sums, it is counted once."""
    driver.draw(9)
    machine = driver.machine
    before = machine.bytes_count
    driver.run_all([AdvanceFence("disk", 9), ForgetFence("disk", ""), AdvanceFence("disk", 2)])
    assert machine.is_sound
    assert [row.name for row in listings.fences(machine.state, "", "", 9)[0]] == ["disk"]
    restored = LockMachine(snapshot.decode(snapshot.encode(machine.state)))
    assert (restored.fingerprint, restored.bytes_count) == (machine.fingerprint, machine.bytes_count)
    driver.run_all([ForgetFence("disk", ""), AdvanceFence("disk", 3), ForgetFence("disk", "")])
    assert machine.is_sound
    assert machine.bytes_count == before


# -- all of them --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (ForceCloseSession("s-1", "be\ncause"), Reason.INVALID_REQUEST),
        (ForceCloseSession("s-1", "w" * 1025), Reason.INVALID_REQUEST),
        (LiftDelay("", "x"), Reason.INVALID_REQUEST),
        (LiftDelay("n" * 513, "x"), Reason.NAME_TOO_LONG),
        (LiftDelay("a", "\n"), Reason.INVALID_REQUEST),
        (LiftDelay("a", "x", HoldKind.ELECTION), Reason.INVALID_REQUEST),
        (ForgetFence("a//b", "x"), Reason.INVALID_REQUEST),
        (ForgetFence("a", "w" * 1025), Reason.INVALID_REQUEST),
    ],
)
def test_a_malformed_override_is_refused(driver: MachineDriver, command: Command, expected: Reason) -> None:
    """It has no effect."""
    driver.draw(1)
    driver.run(AdvanceFence("a", 1))
    assert reason(driver.run(command)) is expected
    assert (driver.events, len(driver.machine.state.fences)) == ((), 1)


def test_without_room_what_freed_something_is_remembered(
    driver: MachineDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What found nothing is not: it would take room for ever. Neither is refused."""
    driver.draw(7)
    driver.run(AdvanceFence("a", 7))
    driver.granted("b", lock_delay_ms=1000)
    driver.force("b")
    monkeypatch.setattr(limits, "REQUESTS_COUNT_MAX", 0)
    nothings = (
        LiftDelay("a", "x", request_id="r"),
        ForgetFence("b", "x", "r"),
        ForceRelease("c", "x", 0, "r"),
        ForceWaits("d", "x", request_id="r"),
    )
    for nothing in nothings:
        assert not isinstance(driver.run(nothing), Refused)
    assert len(driver.machine.state.requests) == 0
    something: list[Command] = [
        LiftDelay("b", "x", request_id="r"),
        ForgetFence("a", "x", "r"),
        ForceCloseSession(_name_of(driver, "ann"), "x", "r"),
    ]
    for count, command in enumerate(something, 1):
        first = driver.run(command)
        assert len(driver.machine.state.requests) == count
        assert driver.run(command) == first
