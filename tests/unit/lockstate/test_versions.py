"""The list of versions, and how a state moves from one to the next."""

from typing import get_args

import pytest

from lockstate import codec, snapshot, versions
from lockstate.commands import AdvanceVersion, Batch, Command, Entry, NumberedCommand, Tick, Undecodable
from lockstate.machine import LockMachine
from lockstate.results import Reason, Refused


def test_every_version_has_its_place_in_the_list() -> None:
    """Rules are numbered without a gap, write formats that this release reads, and never go back to older."""
    numbers = list(versions.RULES)
    assert numbers == list(range(versions.RULES_OLDEST, versions.RULES_NEWEST + 1))
    written = [(rules.entry_format, rules.snapshot_format) for rules in versions.RULES.values()]
    assert written == sorted(written)
    assert {entry for entry, _ in written} == set(versions.ENTRY_FORMATS)
    assert {stored for _, stored in written} == set(versions.SNAPSHOT_FORMATS)


def test_the_rules_of_release_0_1_0_do_not_change() -> None:
    """What that release writes and knows is listed once and for ever."""
    assert versions.RULES[1][:4] == (1, 2, 4, 18)


def test_a_new_state_follows_the_first_rules() -> None:
    """A new cluster may have a founder of release 0.1.0: it moves on when all have said that they can."""
    assert LockMachine().rules == versions.RULES_FIRST == 1


def test_the_rules_move_up_by_one() -> None:
    """A repetition has no effect, nothing goes back, and no version is left out or made up."""
    machine = LockMachine()
    moves = ((0, 1), (1, 1), (3, 1), (2, 2), (2, 2), (1, 2), (4, 2), (-1, 2), (3, 3), (2, 3))
    for to, rules in moves:
        machine.apply(Entry(0, (), AdvanceVersion(to)))
        assert machine.rules == rules, to
    assert machine.revision == len(moves), "each of them is an entry"
    machine.apply(Entry(0, (), AdvanceVersion(versions.RULES_NEWEST + 1)))
    assert machine.rules == 3


def test_an_entry_follows_the_rules_that_it_moves_to() -> None:
    """The rules move before time passes and commands are applied; what these do is the same as before."""
    one, other = LockMachine(), LockMachine()
    batches = (Batch("n1", (1,), (Tick(),)),)
    assert one.apply(Entry(5, batches, AdvanceVersion(2))) == other.apply(Entry(5, batches))
    assert (one.rules, other.rules, one.now_ms) == (2, 1, 5)
    assert snapshot.digest(one) != snapshot.digest(other)


def test_commands_above_tag_18_come_with_rules_4() -> None:
    """Older rules take them for undecodable on every node, whatever it knows; the newest know all."""
    known = [rules.command_tag_max for rules in versions.RULES.values()]
    assert known == [18, 18, 18, 42, 46, 50, 72, 75, 85]
    tags = [each.__struct_config__.tag for each in get_args(Command) + get_args(NumberedCommand)]
    assert max(tags) == versions.RULES[versions.RULES_NEWEST].command_tag_max


@pytest.mark.parametrize("rules", [1, 2])
def test_a_command_newer_than_the_rules_is_undecodable(monkeypatch: pytest.MonkeyPatch, rules: int) -> None:
    """A node that knows more than the active rules does with an entry what those do that do not."""
    monkeypatch.setitem(codec._DECODERS, rules, codec._Decoders(8))
    entry_format = versions.RULES[rules].entry_format
    data = codec.encode_entry(0, [("n1", [1], [codec.encode_command(Tick())])], rules=rules)
    assert codec.entry_format(data) == entry_format
    entry = codec.decode_entry(data, rules)
    assert entry.batches[0].commands == (Undecodable(),)
    (outcome,) = LockMachine().apply(entry).batches
    assert isinstance(outcome.results[0], Refused)
    assert outcome.results[0].reason == Reason.INVALID_REQUEST
