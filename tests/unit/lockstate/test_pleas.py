"""Revocation: holders are asked to give up, may put that off once, and are forced when the grace is over."""

import pytest

from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words import limits
from lockstate.words.commands.entries import Command
from lockstate.words.commands.holds import PutOff, Renew
from lockstate.words.commands.overrides import Revoke, WithdrawRevocation
from lockstate.words.commands.sessions import KeepAlive
from lockstate.words.events import EventKind
from lockstate.words.ids import HoldId, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import PutOffTo, Renewed, RevocationsWithdrawn, Revoked, SessionKept
from lockstate.words.wanted import Wanted
from tests.unit.lockstate.cell_driver import CellDriver
from tests.unit.lockstate.machine_driver import SHARED, expect, reason

ANN = SessionId("ann")


@pytest.fixture
def driver() -> CellDriver:
    """Return a machine of the newest rules, with a session."""
    driver = CellDriver()
    driver.open("ann", ttl_ms=50_000)
    return driver


def asked(
    driver: CellDriver, name: str, grace_ms: int = 1000, *, token: int = 0, ticket: int = 0, at_ms: int = 0
) -> Revoked:
    """Ask the holders of a lock to give up, and expect that they are asked."""
    command = Revoke(name, "maintenance", grace_ms, token=token, ticket=ticket)
    return expect(Revoked, driver.run(command, at_ms))


def test_a_keepalive_names_a_limited_number(driver: CellDriver) -> None:
    """In the order in which they were asked."""
    for number in range(limits.HOLDERS_SHOWN_MAX + 3):
        driver.granted(f"n{number}", session_id="ann")
        asked(driver, f"n{number}")
    kept = expect(SessionKept, driver.run(KeepAlive(ANN)))
    assert [holder.name for holder in kept.revoked] == [f"n{n}" for n in range(limits.HOLDERS_SHOWN_MAX)]


def test_after_the_grace_the_hold_ends_as_by_force(driver: CellDriver) -> None:
    """Whoever waits is granted it, behind the delay that the holder asked for; renewing does not help."""
    hold = driver.granted("a", ttl_ms=5000, lock_delay_ms=50)
    waiting = driver.queued("a")
    asked(driver, "a", 1000)
    driver.run(Renew(hold.hold_id), at_ms=999)
    assert driver.pass_to(1000) == []
    assert driver.pass_to(1001) == [EventKind.FORCED]
    assert driver.events[0].reason == "maintenance"
    assert reason(driver.run(Renew(hold.hold_id))) is Reason.LEASE_EXPIRED
    assert driver.pass_to(1052) == [EventKind.GRANTED]
    assert driver.served() == [waiting.hold_id]


def test_a_holder_may_put_it_off_once(driver: CellDriver) -> None:
    """By another grace, which counts from the end of the first: so that nothing is gained by waiting."""
    hold = driver.granted("a", ttl_ms=50_000)
    assert reason(driver.run(PutOff(hold.hold_id))) is Reason.NOT_REVOKED
    asked(driver, "a", 1000)
    assert driver.run(PutOff(hold.hold_id), at_ms=900) == PutOffTo(hold.token, 1100)
    assert [(event.kind, event.ends_in_ms) for event in driver.events] == [(EventKind.PUT_OFF, 1100)]
    assert reason(driver.run(PutOff(hold.hold_id))) is Reason.NOT_REVOKED
    assert driver.pass_to(2000) == []
    assert driver.pass_to(2001) == [EventKind.FORCED]
    assert reason(driver.run(PutOff(hold.hold_id))) is Reason.LEASE_EXPIRED


def test_a_repeated_put_off_is_done_once(driver: CellDriver) -> None:
    """Times that remain count from now."""
    hold = driver.granted("a", ttl_ms=50_000)
    asked(driver, "a", 1000)
    first = driver.run(PutOff(hold.hold_id, request_id="r"))
    assert first == PutOffTo(hold.token, 2000)
    assert driver.run(PutOff(hold.hold_id, request_id="r"), at_ms=400) == PutOffTo(hold.token, 1600)
    driver.pass_to(2001)
    assert driver.run(PutOff(hold.hold_id, request_id="r"), at_ms=2500) == PutOffTo(hold.token, 0)


@pytest.mark.parametrize("grace_ms", [0, limits.GRACE_MS_MAX])
def test_the_bounds_of_the_grace(driver: CellDriver, grace_ms: int) -> None:
    """Without one the hold ends with the next moment; further out than the last one nothing is asked."""
    driver.granted("a", session_id="ann")
    asked(driver, "a", grace_ms, at_ms=5)
    assert driver.machine.next_deadline_ms() == min(5 + grace_ms, 50_000)
    assert reason(driver.run(Revoke("a", "x", limits.GRACE_MS_MAX + 1))) is Reason.INVALID_REQUEST
    assert reason(driver.run(Revoke("a", "x", -1))) is Reason.INVALID_REQUEST


def test_many_forced_ends_take_several_entries(driver: CellDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """As all that is due does: one entry ends only so many claims."""
    monkeypatch.setattr(limits, "EXPIRIES_PER_ENTRY_MAX", 12)
    wide = 4
    for number in range(limits.EXPIRIES_PER_ENTRY_MAX // wide + 2):
        driver.granted(locks=[Wanted(f"{number}/{each}") for each in range(wide)], ttl_ms=90_000)
        asked(driver, f"{number}/0", 100)
    driver.pass_to(101)
    assert driver.machine.state.pleas
    driver.pass_to(101)
    assert not driver.machine.state.pleas


def test_what_ends_first_takes_the_plea_with_it(driver: CellDriver) -> None:
    """By release, by expiry, with its session: nothing is forced later, and the next holder is left alone."""
    for end in ("release", "expiry", "session"):
        options = {"session_id": "ann"} if end == "session" else {"ttl_ms": 100}
        hold = driver.granted("a", **options)
        asked(driver, "a")
        if end == "release":
            driver.release(hold.hold_id)
        elif end == "expiry":
            driver.pass_to(101)
        else:
            driver.close("ann")
        assert not driver.machine.state.pleas
    driver.granted("a", ttl_ms=90_000)
    assert driver.pass_to(10_000) == []


def test_a_repeated_revocation_is_made_once(driver: CellDriver) -> None:
    """Nor does it reach a holder that came later."""
    driver.granted("a", ttl_ms=50)
    command = Revoke("a", "x", 5000, request_id="r")
    first = driver.run(command)
    driver.pass_to(51)
    driver.granted("a", ttl_ms=90_000)
    assert driver.run(command) == first
    assert not driver.machine.state.pleas


def test_a_restart_forgets_nothing(driver: CellDriver) -> None:
    """Neither what was asked nor that it was put off."""
    hold = driver.granted("a", session_id="ann")
    asked(driver, "a", 1000)
    driver.run(PutOff(hold.hold_id), at_ms=10)
    driver.machine = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    assert reason(driver.run(PutOff(hold.hold_id))) is Reason.NOT_REVOKED
    assert driver.pass_to(2000) == []
    assert driver.pass_to(2001) == [EventKind.FORCED]


def test_a_restart_remembers_names_and_waits(driver: CellDriver) -> None:
    """The plea for one name ends with its wait, that for the other stands until its own end."""
    hold = driver.granted(locks=[Wanted("a"), Wanted("b")], ttl_ms=50_000)
    waiting = driver.queued("a", wait_ms=500)
    asked(driver, "a", 1000, ticket=driver.machine.state.tickets[waiting.hold_id].order)
    asked(driver, "b", 2000)
    driver.machine = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    renewed = expect(Renewed, driver.run(Renew(hold.hold_id)))
    assert [(one.name, one.ends_in_ms) for one in renewed.revocations] == [("a", 1000), ("b", 2000)]
    driver.pass_to(501)
    assert [plea.name for plea in driver.machine.state.pleas.rows.values()] == ["b"]
    assert driver.pass_to(2000) == []
    assert driver.pass_to(2001) == [EventKind.FORCED, EventKind.FORCED]


def test_a_name_is_asked_for_by_a_limited_number_of_waits(driver: CellDriver) -> None:
    """Each has its own end; whoever asks for nobody that waits is not among them."""
    driver.granted("a", ttl_ms=90_000)
    tickets = [driver.queued("a", wait_ms=80_000).hold_id for _ in range(limits.PLEAS_PER_NAME_MAX + 1)]
    numbers = [driver.machine.state.tickets[ticket].order for ticket in tickets]
    for number in numbers:
        (holder,) = asked(driver, "a", 5000 - number, ticket=number).holders
    assert holder.revocation.ticket == numbers[-2]
    assert len(driver.machine.state.pleas) == limits.PLEAS_PER_NAME_MAX
    asked(driver, "a", 100)
    assert len(driver.machine.state.pleas) == limits.PLEAS_PER_NAME_MAX + 1


def test_the_end_of_a_wait_costs_what_was_asked_for_it(
    driver: CellDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One entry ends only so much: a second wait goes on until the next one."""
    monkeypatch.setattr(limits, "EXPIRIES_PER_ENTRY_MAX", 4)
    for _ in range(4):
        driver.granted("a", mode=SHARED, ttl_ms=90_000)
    tickets = [driver.queued("a", wait_ms=100).hold_id for _ in range(2)]
    asked(driver, "a", 5000, ticket=driver.machine.state.tickets[tickets[0]].order)
    driver.pass_to(101)
    assert list(driver.machine.state.tickets) == tickets[1:]
    driver.pass_to(101)
    assert not driver.machine.state.tickets


@pytest.mark.parametrize(
    "command",
    [
        Revoke("", "x", 100),
        Revoke("a", "x" * (limits.REASON_BYTES_MAX + 1), 100),
        Revoke("a", "x", 100, token=-1),
        Revoke("a", "x", 100, ticket=limits.TOKEN_MAX + 1),
    ],
)
def test_a_malformed_revocation_asks_nobody(driver: CellDriver, command: Command) -> None:
    """It is refused for what is wrong with it."""
    driver.granted("a", ttl_ms=9000)
    assert isinstance(driver.run(command), Refused)
    assert not driver.machine.state.pleas


def test_nobody_is_asked_when_there_is_no_room_to_note_it(driver: CellDriver) -> None:
    """What was asked would take memory; to put off takes none."""
    hold = driver.granted("a", ttl_ms=9000)
    driver.granted("b", ttl_ms=9000)
    asked(driver, "a")
    driver.machine.state.bytes_max = 1
    driver.machine.state.ledger.room = -1
    assert reason(driver.run(Revoke("b", "x", 100))) is Reason.OVERLOADED
    assert isinstance(driver.run(PutOff(hold.hold_id)), PutOffTo)


def test_an_unknown_hold_cannot_be_put_off(driver: CellDriver) -> None:
    """Nor one that has ended."""
    assert reason(driver.run(PutOff(HoldId("h-none")))) is Reason.LEASE_EXPIRED


def test_one_command_asks_only_so_many(driver: CellDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it notes takes memory. Who asks again asks the next ones, until nobody is left."""
    monkeypatch.setattr(limits, "REVOKED_PER_COMMAND_MAX", 2)
    tokens = [driver.granted("a", mode=SHARED, ttl_ms=90_000).token for _ in range(5)]
    lefts = []
    for _ in range(4):
        revoked = asked(driver, "a", 1000)
        lefts.append((revoked.left, len(driver.events), [holder.token for holder in revoked.holders]))
    assert lefts == [(3, 2, tokens[:2]), (1, 2, tokens[:2]), (0, 1, tokens[:2]), (0, 0, tokens[:2])]
    assert len(driver.machine.state.pleas) == 5


# -- what is taken back -------------------------------------------------------------------------------------


def test_a_withdrawn_revocation_ends_nothing(driver: CellDriver) -> None:
    """The hold is as if nobody had asked, and may be asked again, with another "not yet"."""
    hold = driver.granted("a", ttl_ms=50_000)
    asked(driver, "a", 1000)
    driver.run(PutOff(hold.hold_id))
    assert driver.run(WithdrawRevocation("a", "the disk is fine"), at_ms=999) == RevocationsWithdrawn(1)
    (told,) = driver.events
    assert (told.kind, told.reason, told.token) == (
        EventKind.REVOCATION_WITHDRAWN,
        "the disk is fine",
        hold.token,
    )
    assert told.ends_in_ms == 0
    assert driver.run(Renew(hold.hold_id)) == Renewed(hold.token, 50_000)
    assert reason(driver.run(PutOff(hold.hold_id))) is Reason.NOT_REVOKED
    assert driver.pass_to(20_000) == []
    asked(driver, "a", 1000)
    assert isinstance(driver.run(PutOff(hold.hold_id)), PutOffTo)


def test_a_revocation_of_one_wait_is_withdrawn(driver: CellDriver) -> None:
    """The others still ask, and so does what was asked for none; the wait goes on without it."""
    hold = driver.granted("a", ttl_ms=50_000)
    tickets = [driver.machine.state.tickets[driver.queued("a").hold_id].order for _ in range(2)]
    asked(driver, "a", 3000)
    for ticket in tickets:
        asked(driver, "a", 1000, ticket=ticket)
    withdrawal = WithdrawRevocation("a", "not so urgent", ticket=tickets[0])
    assert driver.run(withdrawal) == RevocationsWithdrawn(1)
    assert [event.ticket for event in driver.events] == [tickets[0]]
    assert driver.run(withdrawal) == RevocationsWithdrawn(0)
    assert [plea.ticket for plea in driver.machine.state.pleas.rows.values()] == [0, tickets[1]]
    assert len(driver.machine.state.tickets) == 2
    assert driver.run(WithdrawRevocation("a", "not at all")) == RevocationsWithdrawn(2)
    driver.release(hold.hold_id)
    assert [event.ticket for event in driver.events if event.kind is EventKind.GRANTED] == tickets[:1]


def test_only_what_was_asked_of_this_name_and_holder_is_withdrawn(driver: CellDriver) -> None:
    """A hold of several names is still to give up the others, and other holders what they were asked."""
    hold = driver.granted(locks=[Wanted("a", SHARED), Wanted("b", SHARED)], ttl_ms=50_000)
    driver.granted("a", mode=SHARED, ttl_ms=50_000)
    asked(driver, "a", 1000)
    asked(driver, "b", 2000)
    assert driver.run(WithdrawRevocation("a", "x", token=hold.token)) == RevocationsWithdrawn(1)
    left = [(plea.name, plea.hold_id == hold.hold_id) for plea in driver.machine.state.pleas.rows.values()]
    assert left == [("a", False), ("b", True)]


def test_nothing_to_withdraw_is_not_refused(driver: CellDriver) -> None:
    """Unless something else is meant: another kind, or a holder with another token."""
    assert driver.run(WithdrawRevocation("a", "x")) == RevocationsWithdrawn(0)
    hold = driver.granted("a", ttl_ms=50_000)
    assert driver.run(WithdrawRevocation("a", "x")) == RevocationsWithdrawn(0)
    assert driver.events == ()
    assert reason(driver.run(WithdrawRevocation("a", "x", HoldKind.ELECTION))) is Reason.WRONG_KIND
    assert reason(driver.run(WithdrawRevocation("a", "x", token=hold.token + 1))) is Reason.NOT_HOLDER


@pytest.mark.parametrize(
    "command",
    [
        WithdrawRevocation("", "x"),
        WithdrawRevocation("a", "x" * (limits.REASON_BYTES_MAX + 1)),
        WithdrawRevocation("a", "x", token=-1),
        WithdrawRevocation("a", "x", ticket=limits.TOKEN_MAX + 1),
    ],
)
def test_a_malformed_withdrawal_takes_nothing_back(driver: CellDriver, command: Command) -> None:
    """It is refused for what is wrong with it."""
    driver.granted("a", ttl_ms=9000)
    asked(driver, "a")
    assert isinstance(driver.run(command), Refused)
    assert driver.machine.state.pleas


def test_one_command_takes_back_only_so_many(driver: CellDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the first holders. Who asks again takes back the next ones, until nothing is left."""
    for _ in range(5):
        driver.granted("a", mode=SHARED, ttl_ms=90_000)
    asked(driver, "a", 1000)
    monkeypatch.setattr(limits, "REVOKED_PER_COMMAND_MAX", 2)
    withdrawn = [driver.run(WithdrawRevocation("a", "x")) for _ in range(4)]
    assert withdrawn == [
        RevocationsWithdrawn(2, 3),
        RevocationsWithdrawn(2, 1),
        RevocationsWithdrawn(1),
        RevocationsWithdrawn(0),
    ]
