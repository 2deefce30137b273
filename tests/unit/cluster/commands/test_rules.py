"""When the rules move on, and what a node does with what it must not apply."""

from collections.abc import Iterator

import msgspec
import pytest

from cluster.commands.batcher import Batcher
from cluster.commands.rules import RulesAdvance, apply_entry, decode_state
from cluster.errors import NodeFailed
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words import codec
from tests.support.later_rules import later_rules


@pytest.fixture(autouse=True)
def later() -> Iterator[None]:
    """Let this be the release after this one, which knows rules 2."""
    with later_rules():
        yield


class Advance:
    """The rules of a node whose members all know `known`."""

    def __init__(self) -> None:
        self.known = 2
        self.active = 1
        self.is_held = False
        self.batcher = Batcher()
        self.rules = RulesAdvance(self.batcher, lambda: self.known)

    def proposes(self) -> int:
        """Take a step; return the rules that the next entry moves to, 0 if there is none."""
        has_proposed = self.rules.step(self.active, is_held=self.is_held)
        data = self.batcher.next_entry(0)
        assert has_proposed == (data is not None)
        if data is None:
            return 0
        advance = codec.decode_entry(data, self.active).advance
        assert advance is not None
        return advance.to


def test_the_rules_move_when_every_member_knows_them() -> None:
    """An entry of its own says so, once."""
    node = Advance()
    assert node.proposes() == 2
    assert node.proposes() == 0, "it is under way"
    node.active = 2
    assert node.proposes() == 0, "there are no newer ones"


def test_a_new_role_begins_again() -> None:
    """What a leader proposed may be lost with its leadership; a repetition has no effect."""
    node = Advance()
    assert node.proposes() == 2
    node.rules.role_changed()
    assert node.proposes() == 2


def test_an_operator_holds_the_rules_back() -> None:
    """Nothing is proposed meanwhile; what was on its way moved nothing, and is proposed again afterwards."""
    node = Advance()
    assert node.proposes() == 2
    node.is_held = True
    assert node.proposes() == 0
    node.is_held = False
    assert node.proposes() == 2


@pytest.mark.parametrize("known", [0, 1])
def test_one_member_that_does_not_know_them_holds_the_rules_back(known: int) -> None:
    """Nor do they move while it is not certain what everybody knows."""
    node = Advance()
    node.known = known
    assert node.proposes() == 0
    node.known = 3
    assert node.proposes() == 2


def test_an_entry_of_another_release_stops_the_node() -> None:
    """The node says what to do, and has applied nothing."""
    machine = LockMachine()
    for data in ([2, 0, []], [1, [0, {1: 3}], []]):
        with pytest.raises(NodeFailed, match="upgrade this node"):
            apply_entry(machine, msgspec.msgpack.encode(data))
    assert machine.revision == 0


def test_an_entry_that_moves_the_rules_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A line in the log of every node says from where to where; a repetition has no effect and no line."""
    caplog.set_level("INFO")
    data, machine = codec.encode_entry(0, [], advance_to=2), LockMachine()
    apply_entry(machine, data)
    apply_entry(machine, data)
    assert caplog.messages == ["event=rules-advance from=1 to=2"]


def test_a_snapshot_of_a_newer_release_stops_the_node() -> None:
    """It is not taken for damage, which would be asked for again and again."""
    parts = msgspec.msgpack.decode(snapshot.encode(LockMachine().state))
    parts[0] = snapshot.FORMAT_NEWEST + 1
    with pytest.raises(NodeFailed, match="upgrade this node"):
        list(decode_state(bytearray(msgspec.msgpack.encode(parts))))
    with pytest.raises(snapshot.SnapshotError):
        list(decode_state(bytearray(b"damage")))
