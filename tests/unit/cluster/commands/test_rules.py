"""When the rules move on, and what a node does with what it must not apply."""

from dataclasses import dataclass, field

import msgspec
import pytest

from cluster.commands.batcher import Batcher
from cluster.commands.rules import RulesAdvance
from cluster.errors import NodeFailed
from lockstate import codec, snapshot
from lockstate.commands import AdvanceVersion, Entry
from lockstate.machine import LockMachine
from lockstate.versions import RULES_NEWEST


@dataclass
class MemberList:
    """Three members, of which some may be joining."""

    nodes: dict[str, object] = field(default_factory=lambda: dict.fromkeys(["n1", "n2", "n3"]))
    learners: frozenset[str] = frozenset()


@dataclass
class Membership:
    """The list that counts."""

    latest: MemberList = field(default_factory=MemberList)


@dataclass
class Role:
    """What the node is."""

    is_leader: bool = True


@dataclass
class Replica:
    """A leader that is sure of its log."""

    role: Role = field(default_factory=Role)
    may_change_members: bool = True
    membership: Membership = field(default_factory=Membership)


@dataclass
class Peering:
    """What the nodes have said that they know."""

    known: dict[str, int] = field(default_factory=lambda: dict.fromkeys(["n1", "n2", "n3"], 2))

    def rules_known(self, node_id: str) -> int:
        """Return it."""
        return self.known.get(node_id, 0)


class Host:
    """A node."""

    def __init__(self) -> None:
        self.machine = LockMachine()
        self.replica = Replica()
        self.peering = Peering()
        self.ticks = 0

    def request_tick(self) -> None:
        """Count."""
        self.ticks += 1


class Node:
    """A node with its rules."""

    def __init__(self) -> None:
        self.host = Host()
        self.batcher = Batcher()
        self.rules = RulesAdvance(self.host, self.batcher)

    def proposes(self) -> int:
        """Take a step; return the rules that the next entry moves to, 0 if there is none."""
        self.rules.step()
        data = self.batcher.next_entry(0, self.host.machine.rules)
        if data is None:
            return 0
        advance = self.rules.decode_entry(data).advance
        assert advance is not None
        return advance.to


def test_the_leader_moves_the_rules_when_every_member_knows_them() -> None:
    """It proposes an entry that says so, in a tick of its own, once."""
    node = Node()
    assert node.proposes() == 2
    assert node.host.ticks == 1
    assert node.proposes() == 0, "it is under way"
    node.host.machine.apply(Entry(0, (), AdvanceVersion(2)))
    assert node.proposes() == 0, "there are no newer ones"


def test_a_new_term_begins_again() -> None:
    """What a leader proposed may be lost with its leadership; a repetition has no effect."""
    node = Node()
    assert node.proposes() == 2
    node.rules.role_changed()
    assert node.proposes() == 2


@pytest.mark.parametrize(
    "known", [{"n1": 2, "n2": 2, "n3": 1}, {"n1": 2, "n2": 2}, {"n1": 1, "n2": 2, "n3": 2}]
)
def test_one_member_that_does_not_know_them_holds_the_rules_back(known: dict[str, int]) -> None:
    """A node of another release, one that is not connected, or the leader itself."""
    node = Node()
    node.host.peering.known = known
    assert node.proposes() == 0
    node.host.peering.known = {"n1": 2, "n2": 2, "n3": 3}
    assert node.proposes() == 2


def test_the_rules_do_not_move_while_somebody_joins_or_leaves() -> None:
    """Nor does a follower move them, or a leader that is not sure of its log."""
    node = Node()
    for replica in (
        Replica(role=Role(is_leader=False)),
        Replica(may_change_members=False),
        Replica(membership=Membership(MemberList(learners=frozenset({"n3"})))),
    ):
        node.host.replica = replica
        assert node.proposes() == 0


def test_an_entry_of_another_release_stops_the_node() -> None:
    """The node says what to do, and has applied nothing."""
    node = Node()
    for data in ([4, 0, []], [3, [0, {1: RULES_NEWEST + 1}], []]):
        with pytest.raises(NodeFailed, match="upgrade this node"):
            node.rules.decode_entry(msgspec.msgpack.encode(data))


def test_an_entry_that_moves_the_rules_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A line in the log of every node says from where to where."""
    caplog.set_level("INFO")
    Node().rules.decode_entry(codec.encode_entry(0, [], advance_to=2))
    assert "event=rules-advance from=1 to=2" in caplog.messages


def test_a_snapshot_of_a_newer_release_stops_the_node() -> None:
    """It is not taken for damage, which would be asked for again and again."""
    parts = msgspec.msgpack.decode(snapshot.encode(LockMachine()))
    parts[0] = snapshot.FORMAT_NEWEST + 1
    with pytest.raises(NodeFailed, match="upgrade this node"):
        list(RulesAdvance.decode_state(bytearray(msgspec.msgpack.encode(parts))))
    with pytest.raises(snapshot.SnapshotError):
        list(RulesAdvance.decode_state(bytearray(b"damage")))
