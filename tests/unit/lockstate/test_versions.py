"""The list of versions, and how a state moves from one to the next."""

from collections.abc import Iterator
from typing import get_args

import pytest

from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.tables.records import RulesHold
from lockstate.words import codec, versions
from lockstate.words.commands.admin import HoldRules
from lockstate.words.commands.entries import (
    AdvanceVersion,
    Batch,
    Command,
    Entry,
    OnBehalf,
    Tick,
    Undecodable,
)
from lockstate.words.commands.streams import NumberedCommand
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Result, RulesHeld
from tests.support.later_rules import RULES_LATER, later_rules


@pytest.fixture
def later() -> Iterator[None]:
    """Let this be the release after this one."""
    with later_rules():
        yield


def test_this_release_has_one_version_of_everything() -> None:
    """It is the first release: there is nothing before it that anybody runs."""
    assert list(versions.RULES) == list(versions.ENTRY_FORMATS) == list(versions.SNAPSHOT_FORMATS) == [1]
    assert versions.RULES_FIRST == versions.rules_newest() == 1
    assert LockMachine().rules == versions.RULES_FIRST


def test_the_newest_rules_know_every_command() -> None:
    """Also those that only streams number. All rules before say which they know."""
    tags = [each.__struct_config__.tag for each in get_args(Command) + get_args(NumberedCommand)]
    *before, newest = (versions.RULES[number].command_tag_max for number in sorted(versions.RULES))
    assert max(tags) <= newest == versions.TAG_MAX
    assert all(known < newest for known in before)


def test_the_rules_move_up_by_one(later: None) -> None:
    """A repetition has no effect, nothing goes back, and no version is left out or made up."""
    del later
    machine = LockMachine()
    moves = ((0, 1), (1, 1), (3, 1), (2, 2), (2, 2), (1, 2), (3, 2), (-1, 2))
    for to, rules in moves:
        machine.apply(Entry(0, (), AdvanceVersion(to)))
        assert machine.rules == rules, to
    assert machine.revision == len(moves), "each of them is an entry"
    restored = LockMachine(snapshot.decode(snapshot.encode(machine.state)))
    assert restored.rules == RULES_LATER
    assert restored.fingerprint == machine.fingerprint


def test_the_rules_do_not_move_while_they_are_held(later: None) -> None:
    """An entry that would move them moves nothing; who holds them, why and since when survives a snapshot."""
    del later
    machine = LockMachine()
    (held,) = _done(machine, OnBehalf("ann", HoldRules(is_held=True, reason="on Monday")), now_ms=10)
    assert held == RulesHeld(rules=1, was_held=False)
    machine.apply(Entry(20, (), AdvanceVersion(2)))
    assert machine.rules == 1
    machine = LockMachine(snapshot.decode(snapshot.encode(machine.state)))
    assert machine.state.rules_hold == RulesHold(10, "ann", "on Monday")
    assert machine.fingerprint != LockMachine().fingerprint
    assert _done(machine, HoldRules(is_held=True, reason="on Tuesday")) == (RulesHeld(1, was_held=True),)
    assert machine.state.rules_hold == RulesHold(10, "", "on Tuesday"), "since the first time"
    assert _done(machine, HoldRules(is_held=False, reason="it is Tuesday")) == (RulesHeld(1, was_held=True),)
    machine.apply(Entry(20, (), AdvanceVersion(2)))
    assert _done(machine, HoldRules(is_held=False, reason="again")) == (RulesHeld(2, was_held=False),)


def _done(machine: LockMachine, command: Command, now_ms: int = 20) -> tuple[Result, ...]:
    """Apply one command of a new origin; return its result."""
    batch = Batch(f"n{machine.revision}", (1,), (command,))
    return machine.apply(Entry(now_ms, (batch,))).batches[0].results


def test_an_entry_follows_the_rules_that_it_moves_to(later: None) -> None:
    """The rules move before time passes and commands are applied; what these do is the same as before."""
    del later
    one, other = LockMachine(), LockMachine()
    batches = (Batch("n1", (1,), (Tick(),)),)
    assert one.apply(Entry(5, batches, AdvanceVersion(2))) == other.apply(Entry(5, batches))
    assert (one.rules, other.rules, one.now_ms) == (2, 1, 5)
    assert snapshot.digest(one.state) != snapshot.digest(other.state)
    assert one.fingerprint != other.fingerprint


def test_a_command_newer_than_the_rules_is_undecodable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that knows more than the active rules does with an entry what those do that do not."""
    monkeypatch.setitem(versions.RULES, 0, versions.Rules(0, 8, "Rules before Tick."))
    data = codec.encode_entry(0, [("n1", [1], [codec.encode_command(Tick())])])
    entry = codec.decode_entry(data, 0)
    assert entry.batches[0].commands == (Undecodable(),)
    (outcome,) = LockMachine().apply(entry).batches
    assert isinstance(outcome.results[0], Refused)
    assert outcome.results[0].reason == Reason.INVALID_REQUEST
