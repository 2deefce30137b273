"""LockMachine: time and entries. Locks, sessions, requests and refusals have files of their own."""

from lockstate.words.commands.cells import PutCell
from lockstate.words.commands.entries import Barrier, Batch, Command, Entry, Tick
from lockstate.words.commands.holds import Acquire, Release, Renew
from lockstate.words.commands.overrides import ForceWaits
from lockstate.words.commands.primitives import AdvanceFence, TakeRate
from lockstate.words.commands.sessions import CloseSession, OpenSession
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.modes import Mode
from lockstate.words.results import Done, Granted
from tests.unit.lockstate.machine_driver import MachineDriver, expect, wanted


def test_it_starts_empty() -> None:
    """A new machine is at revision 0 and time 0, and its first token will be 1."""
    machine = MachineDriver().machine
    assert (machine.revision, machine.now_ms, machine.next_token) == (0, 0, 1)
    assert machine.next_deadline_ms() is None
    assert set(machine.counts().values()) == {0}


def test_every_entry_is_a_revision() -> None:
    """An entry raises the revision by one, even without commands or with an unreadable one."""
    driver = MachineDriver()
    driver.pass_to(5)
    driver.run(Tick())
    assert driver.run(Barrier()) == Done()
    assert driver.machine.revision == 3


def test_a_repeated_sequence_number_has_no_effect() -> None:
    """Commands that come a second time from the same origin are left out, also within one entry."""
    driver = MachineDriver()
    acquire = Acquire("a", Mode.EXCLUSIVE, HoldId("h1"), AttemptId("a1"), ttl_ms=1000)
    batches = (
        Batch("n1", (5,), (acquire,)),
        Batch("n1", (5, 4, 6), (Release(HoldId("h1")), Release(HoldId("h1")), Tick())),
    )
    first, second = driver.apply(Entry(0, batches)).batches
    assert expect(Granted, first.results[0]).token == 1
    assert (second.seqs, second.results) == ((6,), (Done(),))
    assert driver.machine.applied_seq("n1") == 6
    assert driver.machine.applied_seq("n2") == 0


def test_origins_count_apart() -> None:
    """The numbers of one origin say nothing about those of another."""
    driver = MachineDriver()
    batches = tuple(Batch(origin, (1,), (Tick(),)) for origin in ("n1", "n2"))
    assert [batch.results for batch in driver.apply(Entry(0, batches)).batches] == [(Done(),)] * 2


def test_counts_tell_the_sizes() -> None:
    """Every table is counted; a lease of one hold does not count as a session."""
    driver = MachineDriver()
    driver.open("s1")
    driver.granted("a", request_id="r1")
    driver.queued("a", session_id="s1")
    driver.permitted("q", 2)
    driver.run(TakeRate("mail", 5, 1000))
    driver.run(AdvanceFence("disk", 1))
    driver.run(PutCell(b"c", b"v"))
    assert driver.machine.counts() == {
        "locks": 1,
        "holds": 2,
        "tickets": 1,
        "sessions": 1,
        "requests": 1,
        "semaphores": 1,
        "rate_limits": 1,
        "fences": 1,
        "cells": 1,
        "streams": 0,
        "holds_without_deadline": 0,
    }


def test_what_a_command_goes_through_is_counted() -> None:
    """Names that end, with their ancestors: several locks have theirs, and a session all that it has."""
    driver = MachineDriver()
    session_id = SessionId("s1")
    driver.run(OpenSession(session_id, 60_000))
    one = driver.granted("a/b/c", session_id=session_id)
    several = driver.granted(session_id=session_id, locks=wanted("x/y", "x/z"))
    releases = [Release(hold_id) for hold_id in (one.hold_id, several.hold_id, HoldId("h"))]
    closes = [CloseSession(session_id), CloseSession(SessionId("s2"))]
    waiting = driver.machine.state.tickets[driver.queued("a/b/c").hold_id]
    commands: list[Command] = [*releases, *closes, Renew(one.hold_id)]
    commands += [ForceWaits("a/b/c", "", ticket=number) for number in (waiting.order, waiting.order + 1)]
    commands.append(Release(driver.granted("d/e").hold_id))
    efforts = [driver.machine.effort_of(command) for command in commands]
    assert efforts == [3, 3, 0, 6, 0, 0, 3, 0, 2]
