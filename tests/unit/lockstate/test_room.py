"""What there is no room for is refused before it is in the log exactly as it would be refused by it."""

from random import Random

import msgspec
import pytest

from lockstate.tables.ledger import NO_ROOM
from lockstate.words.cell_operations import CellCompare, CellField, DeleteOperation, PutOperation
from lockstate.words.commands.admin import SetNamespace, SetQuota
from lockstate.words.commands.cells import DeleteCells, PutCell, TransactCells
from lockstate.words.commands.entries import OfSomebody, OnBehalf, Tick
from lockstate.words.commands.holds import Acquire, AcquirePermits, Campaign, Release
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.ids import NO_OWNER, AttemptId, HoldId, SessionId
from lockstate.words.modes import Mode
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted
from lockstate.words.settings import NamespaceSettings, Quota
from lockstate.words.wanted import Uncommon
from tests.unit.lockstate.machine_driver import MachineDriver, expect, reason

SMALL = Quota(sessions=2, holds=3, cells=2, bytes=40)


def _limited() -> MachineDriver:
    """Return a machine with a principal that may have little, and a namespace that may, too."""
    driver = MachineDriver()
    driver.run(SetQuota("ann", SMALL))
    driver.run(SetNamespace("small", NamespaceSettings(holds=2, cells=2, bytes=30)))
    return driver


def _command(chance: Random, number: int) -> OfSomebody:
    """Return something that may need room, or may make some."""
    name, text = chance.choice(["a", "b", "small/a", "small/b"]), "x" * chance.choice([0, 1, 9, 15])
    session_id = SessionId(chance.choice(["", "s1", "s2", "s9"]))
    hold_id, ttl_ms = HoldId(f"h{number}"), 0 if session_id else 60_000
    mode = chance.choice([Mode.SHARED, Mode.EXCLUSIVE])
    put = PutOperation(name.encode(), text.encode(), session_id)
    compare = CellCompare(b"a", CellField.VERSION, number=chance.randrange(2))
    asked = Uncommon(note=text) if text else None
    request_id = chance.choice(["", "", f"r{chance.randrange(40)}"])
    attempt_id = AttemptId("a")
    lock = Acquire(
        name, mode, hold_id, attempt_id, session_id, ttl_ms, NO_OWNER, 0, request_id, uncommon=asked
    )
    commands: list[OfSomebody] = [
        OpenSession(SessionId(f"s{number % 9}"), 60_000, {"l": text} if text else {}, request_id),
        PutCell(name.encode(), text.encode(), session_id, request_id=request_id),
        TransactCells((compare,), (put,), (PutOperation(b"b", b"y"), DeleteOperation(b"a")), request_id),
        lock,
        lock,
        AcquirePermits(name, 9, 1, hold_id, AttemptId("a"), session_id, ttl_ms, request_id=request_id),
        Campaign(name, SessionId("s1"), text, hold_id, AttemptId("a"), request_id=request_id),
        Release(HoldId(f"h{chance.randrange(number + 1)}")),
        DeleteCells(name.encode()),
    ]
    return chance.choice(commands)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_refused_before_is_refused_by_the_log(seed: int) -> None:
    """With the same result, and to ask changes nothing; most of what quotas refuse is refused before."""
    chance, driver, before, after = Random(seed), _limited(), 0, 0
    for number in range(400):
        command, principal = _command(chance, number), chance.choice(["ann", "ann", "bob", ""])
        fingerprint = driver.machine.fingerprint
        refusal = driver.machine.no_room_for(command, principal)
        assert driver.machine.fingerprint == fingerprint
        result = driver.run(OnBehalf(principal, command) if principal else command)
        if refusal is not None:
            before += 1
            assert reason(result) is not Reason.QUOTA_EXCEEDED or result == refusal, command
        after += isinstance(result, Refused) and result.reason is Reason.QUOTA_EXCEEDED
    assert before > 0.7 * after > 20


def test_what_has_an_outcome_is_not_refused() -> None:
    """A repeated request is answered with that, whoever's it is."""
    driver = _limited()
    puts = [PutCell(key, b"x" * 15, request_id=f"r{key.decode()}") for key in (b"a", b"b")]
    driver.run_all([OnBehalf("ann", put) for put in puts])
    other = PutCell(b"c", b"x", request_id="rc")
    asked = [driver.machine.no_room_for(command, "ann") for command in (*puts, other)]
    assert [refusal is None for refusal in asked] == [True, True, False]


def test_what_a_session_has_already_takes_no_room() -> None:
    """It is renewed, however little it may have; nor does a quota bound what nobody is known to ask."""
    driver = _limited()
    driver.run(OnBehalf("ann", OpenSession(SessionId("s1"), 60_000)))
    asked = [
        Acquire(name, Mode.EXCLUSIVE, HoldId(f"h{name}"), AttemptId("a"), SessionId("s1")) for name in "abcd"
    ]
    for command in asked[:3]:
        expect(Granted, driver.run(OnBehalf("ann", command)))
    again = [msgspec.structs.replace(command, hold_id=HoldId("n")) for command in asked]
    refusals = [driver.machine.no_room_for(command, "ann") for command in again]
    assert [refusal is None for refusal in refusals] == [True, True, True, False]
    assert driver.machine.no_room_for(again[3], "") is None


def test_what_is_refused_for_another_reason_goes_to_the_log() -> None:
    """A write whose session is over: what is answered besides the log is about room and nothing else."""
    driver = _limited()
    put = PutCell(b"a", b"x", SessionId("gone"), request_id="r")
    for command in (put, TransactCells((), (PutOperation(b"a", b"x", SessionId("gone")),))):
        assert driver.machine.no_room_for(command, "ann") is None
        assert reason(driver.run(OnBehalf("ann", command))) is Reason.SESSION_EXPIRED


def test_where_nothing_is_bounded_there_is_room() -> None:
    """Nobody is refused before it is known that the log would refuse it."""
    assert MachineDriver().machine.no_room_for(PutCell(b"c", b"v"), "ann") is None


def test_a_full_state_has_no_room() -> None:
    """For what nodes ask and for what clients ask; what frees is never refused here."""
    driver = MachineDriver()
    held = driver.granted("a")
    driver.machine.state.bytes_max = 1
    driver.machine.state.ledger.room = NO_ROOM
    driver.run(Tick())
    put, more = PutCell(b"c", b"v"), AcquirePermits("q", 5, 1, HoldId("p"), AttemptId("a"), ttl_ms=900)
    transaction = TransactCells((), (PutOperation(b"c", b"v"),))
    commands = (put, transaction, more, OpenSession(SessionId("s"), 900))
    for command in commands:
        refusal = driver.machine.no_room_for(command, "")
        assert refusal is not None
        assert driver.run(command, at_ms=0) == refusal
    assert driver.machine.no_room_for(Release(held.hold_id), "") is None
