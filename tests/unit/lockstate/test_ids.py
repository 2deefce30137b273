"""Ids of different things cannot be swapped: mypy says so. At run time and in bytes they are plain strings.

Each `type: ignore` below is an assertion that the gate checks: mypy runs with `warn_unused_ignores`, so it
fails as soon as a type is weakened and a line becomes acceptable.
"""

import msgspec

from lockstate.machine import LockMachine
from lockstate.words.codec import encode_command
from lockstate.words.commands.entries import Cancel, Command
from lockstate.words.commands.holds import (
    Acquire,
    AcquirePermits,
    Campaign,
    Convert,
    Proclaim,
    Release,
    Renew,
)
from lockstate.words.commands.sessions import CloseSession, KeepAlive, OpenSession
from lockstate.words.ids import AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.modes import Mode
from lockstate.words.refusals import CycleView
from lockstate.words.results import Granted, Queued, SessionKept, SessionOpened

HOLD, SESSION, ATTEMPT, OWNER = HoldId("h"), SessionId("s"), AttemptId("a"), OwnerName("ann")
X = Mode.EXCLUSIVE


def test_commands_refuse_swapped_ids() -> None:
    """No command takes an id of one thing, or a plain string, where it needs the id of another."""
    swapped: list[Command] = [
        OpenSession(HOLD, 1000),  # type: ignore[arg-type]
        KeepAlive(HOLD),  # type: ignore[arg-type]
        CloseSession(HOLD),  # type: ignore[arg-type]
        Release(SESSION),  # type: ignore[arg-type]
        Release(ATTEMPT),  # type: ignore[arg-type]
        Release("h"),  # type: ignore[arg-type]
        Renew(SESSION),  # type: ignore[arg-type]
        Proclaim(SESSION, "v"),  # type: ignore[arg-type]
        Cancel(ATTEMPT, ATTEMPT),  # type: ignore[arg-type]
        Cancel(HOLD, HOLD),  # type: ignore[arg-type]
        Convert(HOLD, X, HOLD, HOLD),  # type: ignore[arg-type]
        Convert(HOLD, X, ATTEMPT, ATTEMPT),  # type: ignore[arg-type]
        Convert(SESSION, X, HOLD, ATTEMPT),  # type: ignore[arg-type]
        Acquire("x", X, ATTEMPT, ATTEMPT, SESSION),  # type: ignore[arg-type]
        Acquire("x", X, HOLD, HOLD, SESSION),  # type: ignore[arg-type]
        Acquire("x", X, HOLD, ATTEMPT, HOLD),  # type: ignore[arg-type]
        Acquire("x", X, HOLD, ATTEMPT, SESSION, owner=SESSION),  # type: ignore[arg-type]
        AcquirePermits("x", 1, 1, ATTEMPT, ATTEMPT, SESSION),  # type: ignore[arg-type]
        AcquirePermits("x", 1, 1, HOLD, HOLD, SESSION),  # type: ignore[arg-type]
        AcquirePermits("x", 1, 1, HOLD, ATTEMPT, HOLD),  # type: ignore[arg-type]
        AcquirePermits("x", 1, 1, HOLD, ATTEMPT, owner=HOLD),  # type: ignore[arg-type]
        Campaign("x", HOLD, "v", HOLD, ATTEMPT),  # type: ignore[arg-type]
        Campaign("x", SESSION, "v", SESSION, ATTEMPT),  # type: ignore[arg-type]
        Campaign("x", SESSION, "v", HOLD, HOLD),  # type: ignore[arg-type]
        Campaign("x", SESSION, "v", HOLD, ATTEMPT, HOLD),  # type: ignore[arg-type]
    ]
    assert all(encode_command(command) for command in swapped)


def test_results_and_reads_refuse_swapped_ids() -> None:
    """No result takes an id of one thing for that of another, and no table can be asked with a wrong one."""
    machine = LockMachine()
    swapped = [
        SessionOpened(HOLD, 1000, 1000),  # type: ignore[arg-type]
        SessionKept(HOLD, 1000),  # type: ignore[arg-type]
        Granted(SESSION, 1, "x", X, 1000),  # type: ignore[arg-type]
        Granted(HOLD, 1, "x", X, 1000, HOLD),  # type: ignore[arg-type]
        Queued(SESSION, 1),  # type: ignore[arg-type]
        CycleView(SESSION, "x"),  # type: ignore[arg-type]
    ]
    assert len(swapped) == len(set(swapped))
    assert machine.session(HOLD) is None  # type: ignore[arg-type]
    assert machine.attempt(SESSION) is None  # type: ignore[arg-type]
    assert machine.audit(session_id=ATTEMPT) == []  # type: ignore[arg-type]
    assert machine.state.holds.get(SESSION) is None  # type: ignore[call-overload]
    assert machine.state.sessions.get(HOLD) is None  # type: ignore[call-overload]


def test_ids_are_plain_strings_in_commands() -> None:
    """A typed id is the very string that it was made from, encoded as such and decoded as such."""
    secret = "0123456789abcdef"
    command = Release(HoldId(secret), "r")
    assert command.hold_id is secret
    data = encode_command(command)
    assert data == msgspec.msgpack.encode([7, secret, "r", [], None])
    assert type(msgspec.msgpack.decode(data, type=Release).hold_id) is str
    assert [type(each) for each in (SESSION, ATTEMPT, OWNER)] == [str, str, str]
