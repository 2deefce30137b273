"""Whom a node lets in: members with their disks, and those who know more than it does."""

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from msgspec.structs import replace

from cluster.commands.clock_watch import ClockSaid, ClockWatch
from cluster.commands.encoded_command import EncodedCommand
from cluster.commands.forwarded import COMMAND_BYTES_MAX, Forwarded
from cluster.consensus import member_list
from cluster.consensus.digest_reports import DigestReport
from cluster.consensus.divergence import Divergence
from cluster.consensus.library_words import EngineJournal
from cluster.consensus.member_changes import Change, Verdict
from cluster.consensus.member_list import MemberRecord, Members
from cluster.consensus.messages import (
    Acknowledgement,
    AppendEntries,
    NewerTerm,
    PreVoteGranted,
    Vote,
    VoteRequest,
)
from cluster.consensus.replica import Replica, Role
from cluster.errors import IdentityRefused, NodeFailed, PeerFault, StateDiverged
from cluster.peers import objections
from cluster.peers.channels import Channels, Published
from cluster.peers.first_start import FirstStart, FoundingMeans
from cluster.peers.handshake import Objection, Particulars
from cluster.peers.link import FrameKind
from cluster.peers.objections import Kind
from cluster.peers.peer_table import Ping
from cluster.peers.peering import Handlers, Peering
from cluster.storage.cluster_record import Founding
from cluster.storage.data_directory import DataDir
from lockstate.machine import LockMachine
from lockstate.tables import fingerprint
from lockstate.words.versions import RULES_FIRST
from tests.support.replica_parts import FullDisk

TOO_LONG = EncodedCommand(bytes(COMMAND_BYTES_MAX + 1))
ONE, TWO = EncodedCommand(b"one", load=5, count=2), EncodedCommand(b"two", is_patient=True)
OURS = "cc" * 16
THREE = Members(
    {node_id: MemberRecord(f"h:{node_id}", is_voter=True) for node_id in ("n1", "n2", "n3")}, cluster_id=OURS
)


class NoLog:
    """A log without an entry."""

    def term_at(self, index: int) -> None:
        """Know nothing."""

    def digest_at(self, index: int) -> None:
        """Know nothing."""


class Host:
    """A node that writes down what becomes of its peers, and what they send; also its replica and machine."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.rules = 1
        self.revision = 7
        self.is_log_empty = True
        self.is_writing_snapshot = False
        self.role = Role(None, 1, is_leader=False, is_candidate=False)
        self.membership = SimpleNamespace(voters={"n1", "n2", "n3"})
        self.matched = 0
        """What the peer in question has acknowledged to this node, if it leads."""
        self.dialed = ""
        """Where this node has dialed the peer in question."""
        self.engine = SimpleNamespace(log_room=0, match_index=lambda _: self.matched)
        self.log = SimpleNamespace(synced_term=0, synced_index=0, last_index=0, committed=0, heard={})
        self.log.hear = lambda disk_id, *place: self.log.heard.update({disk_id: place})
        self.founded: list[Founding] = []
        self.alive: set[str] = set()
        self.clocks = ClockWatch("n1", lambda: 5_000, lambda: frozenset({"n1", "n2"}))
        self.failures: list[NodeFailed] = []
        self.divergence = Divergence(
            "n1",
            NoLog(),
            lambda: frozenset({"n1", "n2", "n3"}),
            lambda: 1.0,
            newest=lambda: 11,
            stop=self.failures.append,
            tell=lambda: None,
        )

    def note(self, what: str) -> Callable[..., None]:
        """Return what writes down that something was called."""
        return lambda *args, **kwargs: self.told.append((what, *args, *kwargs.values()))

    def peer_down(self, peer_id: str, *, is_replaced: bool) -> None:
        """Note."""
        self.told.append(("replaced" if is_replaced else "down", peer_id))

    def handlers(self) -> Handlers:
        """Return what writes down everything."""
        return Handlers(
            raft=self.note("raft"),
            forwarded=self.note("forwarded"),
            transfer_asked=self.note("transfer"),
            change_asked=self.note("change"),
            change_decided=self.note("verdict"),
            peer_up=self.note("up"),
            peer_down=self.peer_down,
            refused=self.note("refused"),
            let_in=self.note("let-in"),
            broke=lambda error: self.told.append(("broke", str(error))),
        )

    def peering(self, datadir: DataDir, founders: Mapping[str, str] | None = None) -> Peering:
        """Return who this node is among its peers; without `founders` it joins them."""
        means = FoundingMeans(lambda *_: None, self.founded.append, lambda call: call())
        peering = Peering(
            datadir,
            FirstStart(datadir, founders or {}, means, joins=not founders),
            "http://n1",
            cast("Replica", self),
            machine=lambda: cast("LockMachine", self),
            sync_ms=lambda: 0,
            state_bytes_max=0,
            is_alive=self.alive.__contains__,
            dialed=lambda _: self.dialed,
            clocks=self.clocks,
            divergence=self.divergence,
        )
        peering.handlers = self.handlers()
        return peering


@pytest.fixture
def datadir(tmp_path: Path) -> Iterator[DataDir]:
    """Return a new directory of n1."""
    datadir = DataDir.open(tmp_path / "n1", "n1")
    yield datadir
    datadir.close()


def make(datadir: DataDir, committed: Members = THREE, *, host: Host | None = None) -> Peering:
    """Return n1 among its peers, which writes down in the host's log what they send."""
    peering = (host or Host()).peering(datadir)
    set_members(peering, committed)
    return peering


def set_members(peering: Peering, committed: Members, latest: Members | None = None) -> frozenset[str]:
    """Let these lists count from now on."""
    return peering.set_members(committed, latest or committed)


def send(peering: Peering, peer_id: str, kind: int, content: object) -> None:
    """Let a peer send a frame."""
    peering.frame(peer_id, kind, msgspec.Raw(msgspec.msgpack.encode(content)))


def disk(name: str, version: int = 0) -> Particulars:
    """Return what a node of this cluster with this disk tells, and which list it knows."""
    return Particulars(f"disk-{name}", "http://x", version, cluster_id=OURS)


def stranger(name: str, version: int = 0) -> Particulars:
    """Return what a node with this disk tells that does not show to which cluster it belongs."""
    return replace(disk(name, version), cluster_id="")


def without(committed: Members, node_id: str) -> Members:
    """Return the list after a removal, with everybody there."""
    return member_list.without(committed, node_id, f"disk-{node_id}", committed.nodes)


def with_voter(committed: Members, node_id: str, disk_id: str) -> Members:
    """Return the list after an addition."""
    learning = member_list.with_learner(committed, node_id, f"h:{node_id}")
    return member_list.promoted(learning, node_id, disk_id)


def test_the_disks_of_members_are_remembered(datadir: DataDir, caplog: pytest.LogCaptureFixture) -> None:
    """Each of them durably, and another one under the same id is refused with the advice."""
    caplog.set_level(logging.INFO)
    peering = make(datadir)
    assert peering.objection("n2", disk("n2"), is_known=True) is None
    assert peering.objection("n3", disk("n3"), is_known=True) is None
    assert caplog.text.count("event=peer-met") == 2
    again = make(datadir)
    objection = again.objection("n3", disk("other"), is_known=True)
    assert objection is not None
    assert "restore its old data directory, or replace it by a node with a new id" in objection.reason


def test_a_stranger_is_told_to_be_added(datadir: DataDir) -> None:
    """A node that is not a peer is not let in, and nothing of it is remembered."""
    peering = make(datadir)
    objection = peering.objection("n4", disk("n4"), is_known=False)
    assert objection is not None
    assert "n4 is not a member of this cluster: add it" in objection.reason
    assert datadir.known == {}


def test_who_knows_a_newer_list_is_let_in(datadir: DataDir) -> None:
    """It may have joined without our knowing; its disk is remembered when our list has it, and not before."""
    peering = make(datadir)
    assert peering.objection("n4", disk("n4", 2), is_known=False) is None
    assert datadir.known == {}
    assert not peering.table.is_gone("n4")
    set_members(peering, with_voter(THREE, "n4", "disk-n4"))
    assert datadir.known == {"n4": "disk-n4"}
    assert not peering.table.is_gone("n4")


def test_a_removed_node_is_told(datadir: DataDir) -> None:
    """By its disk, and by its id with any other disk, as long as nobody added it again."""
    peering = make(datadir)
    peering.objection("n3", disk("n3"), is_known=True)
    set_members(peering, without(THREE, "n3"))
    assert peering.table.is_gone("n3")
    assert datadir.known == {}
    for theirs in (disk("n3"), disk("another")):
        objection = peering.objection("n3", theirs, is_known=False)
        assert objection is not None
        assert "n3 was removed from this cluster" in objection.reason


def test_a_node_comes_back_with_another_disk(datadir: DataDir) -> None:
    """Once it is added again its new disk is let in, and the old one is not."""
    peering = make(datadir)
    peering.objection("n3", disk("n3"), is_known=True)
    gone = without(THREE, "n3")
    back = member_list.with_learner(gone, "n3", "h:n3")
    for committed in (gone, back):
        set_members(peering, committed)
    assert peering.objection("n3", disk("new"), is_known=True) is None
    assert datadir.known == {"n3": "disk-new"}
    assert "was removed" in str(peering.objection("n3", disk("n3"), is_known=True))
    grown = member_list.promoted(back, "n3", "disk-new")
    set_members(peering, grown)
    assert peering.objection("n3", disk("new", grown.version), is_known=True) is None


def test_who_was_away_meets_the_new_disk_of_an_old_id(datadir: DataDir) -> None:
    """Whoever knows a newer list stays connected while this node reads of removal and return."""
    peering = make(datadir)
    peering.objection("n3", disk("n3"), is_known=True)
    gone = without(THREE, "n3")
    back = with_voter(gone, "n3", "disk-new")
    assert peering.objection("n3", disk("new", back.version), is_known=True) is None
    assert datadir.known == {"n3": "disk-n3"}
    set_members(peering, gone)
    assert not peering.table.is_gone("n3")
    set_members(peering, back)
    assert datadir.known == {"n3": "disk-new"}
    assert not peering.table.is_gone("n3")


def test_a_new_connection_keeps_what_is_known(datadir: DataDir) -> None:
    """The end of the connection that it replaced comes later, and takes nothing away."""
    peering = make(datadir)
    peering.objection("n4", disk("n4", 2), is_known=False)
    peering.peer_down("n4", is_replaced=False)
    set_members(peering, with_voter(THREE, "n4", "disk-n4"))
    assert datadir.known == {"n4": "disk-n4"}


def test_disks_that_nobody_met_are_forgotten_with_the_node(datadir: DataDir) -> None:
    """The leader never met it, this node did: with the removal its old disk is out of the way."""
    learning = member_list.with_learner(THREE, "n4", "h:n4")
    peering = make(datadir, learning)
    peering.objection("n4", disk("n4"), is_known=True)
    set_members(peering, member_list.without(learning, "n4", "", learning.nodes))
    assert datadir.known == {}


def test_operations_reach_the_node(datadir: DataDir) -> None:
    """Changes, verdicts, transfers and refusals are decoded; nonsense is an error of the peer."""
    host = Host()
    peering = make(datadir, host=host)
    change, verdict = Change(1, "n4", "h:4"), Verdict(1, members=THREE)
    for kind, content in (
        (FrameKind.CHANGE, change),
        (FrameKind.CHANGED, verdict),
        (FrameKind.TRANSFER, "n2"),
    ):
        send(peering, "n2", kind, content)
    peering.refused("n2", Objection("why"), dialed="h:2")
    assert host.told == [
        ("change", "n2", change),
        ("verdict", verdict),
        ("transfer", "n2"),
        ("refused", "n2", Objection("why"), True),
    ]
    with pytest.raises(msgspec.DecodeError):
        send(peering, "n2", FrameKind.CHANGE, {"id": "n4"})


def test_messages_of_clients_reach_those_of_this_node(datadir: DataDir) -> None:
    """They are passed on no further: who published them has told everybody."""
    told: list[tuple[str, bytes]] = []

    def listen(name: str, message: bytes) -> int:
        told.append((name, message))
        return 2

    peering = make(datadir)
    passed_on: list[Published] = []
    peering.channels = Channels(passed_on.append)
    assert peering.channels.publish("redis/0/a", b"nobody listens") == 0
    peering.channels.listen(listen)
    assert peering.channels.publish("redis/0/a", b"1") == 2
    send(peering, "n2", FrameKind.PUBLISHED, Published("redis/0/a", b"2"))
    assert told == [("redis/0/a", b"1"), ("redis/0/a", b"2")]
    assert [each.message for each in passed_on] == [b"nobody listens", b"1"]


def test_no_list_of_a_peer_switches_off_the_check_of_its_disk(datadir: DataDir) -> None:
    """A node that lost its disk is not let in for saying that it knows a newer list."""
    peering = make(datadir)
    assert peering.objection("n3", disk("n3"), is_known=True) is None
    for version in (0, 1, 1 << 40):
        objection = peering.objection("n3", stranger("other", version), is_known=True)
        assert objection is not None
        assert "n3 is known here with another data directory" in objection.reason
        assert peering.objection("n9", stranger("n9", version), is_known=False) is not None
    assert datadir.known == {"n3": "disk-n3"}


@pytest.mark.parametrize("cluster_id", ["", OURS])
def test_nothing_is_counted_of_a_disk_that_does_not_count_yet(datadir: DataDir, cluster_id: str) -> None:
    """Of a node that was added again without our knowing, the log is taken, and no vote is."""
    host = Host()
    peering = make(datadir, host=host)
    peering.objection("n2", disk("n2"), is_known=True)
    peering.objection("n3", disk("n3"), is_known=True)
    gone = without(THREE, "n3")
    back = with_voter(gone, "n3", "disk-new")
    assert peering.objection("n3", disk("new", back.version), is_known=True) is None
    datadir.store_cluster(replace(datadir.cluster, cluster_id=cluster_id))
    heartbeat = AppendEntries(term=1, commit_index=1)
    counted = [
        Vote(term=1),
        VoteRequest(term=2, last_log_index=9, last_log_term=1),
        Acknowledgement(next_index=2, reset=False, success=True, term=1),
        PreVoteGranted(term=2),
    ]
    for message in (*counted, heartbeat, NewerTerm(term=9)):
        send(peering, "n3", FrameKind.RAFT, message)
    send(peering, "n3", FrameKind.FORWARD, Forwarded(3, "n3.run", [1], [ONE]))
    send(peering, "n3", FrameKind.CHANGE, Change(1, "n4", "h:4"))
    assert host.told == [("raft", "n3", heartbeat), ("raft", "n3", NewerTerm(term=9))]
    host.told.clear()
    # The list that counts has it now, though it is not committed.
    set_members(peering, gone, back)
    for message in counted:
        send(peering, "n3", FrameKind.RAFT, message)
    assert [message for _, _, message in host.told] == counted


def test_a_removed_node_gets_no_say_while_its_link_ends(datadir: DataDir) -> None:
    """Nothing is counted of a disk that did not count before, though the record of it is forgotten."""
    host = Host()
    peering = make(datadir, host=host)
    gone = without(THREE, "n3")
    back = with_voter(gone, "n3", "disk-new")
    peering.objection("n3", disk("n3"), is_known=True)
    assert peering.objection("n3", disk("new", back.version), is_known=True) is None
    assert set_members(peering, member_list.without(back, "n3", "disk-new", back.nodes)) == {"n3"}
    send(peering, "n3", FrameKind.RAFT, Vote(term=1))
    send(peering, "n3", FrameKind.FORWARD, Forwarded(3, "n3.run", [1], [ONE]))
    assert host.told == []


def test_a_joining_node_adopts_the_cluster_of_the_first_leader(tmp_path: Path) -> None:
    """Durably, before the message is handed on; then nobody of another cluster is let in."""
    datadir = DataDir.open(tmp_path / "n4", "n4", joins=True)
    host = Host()
    peering = host.peering(datadir)
    set_members(peering, Members())
    ours, others = (replace(disk(name, 4), cluster_id=name * 16) for name in ("aa", "bb"))
    assert peering.objection("n1", ours, is_known=True) is None
    assert peering.objection("n2", others, is_known=True) is None
    send(peering, "n2", FrameKind.PING, Ping(1, "leader", cluster_id="bb" * 16))
    assert peering.particulars("n1").cluster_id == peering.ping().cluster_id == ""
    heartbeat = AppendEntries(term=1, commit_index=1)
    for message in (VoteRequest(term=8, last_log_index=9, last_log_term=1), NewerTerm(term=9)):
        send(peering, "n2", FrameKind.RAFT, message)
    send(peering, "n1", FrameKind.RAFT, heartbeat)
    with pytest.raises(msgspec.ValidationError, match="n2 belongs to another cluster"):
        send(peering, "n2", FrameKind.RAFT, replace(heartbeat, term=7))
    assert [entry for entry in host.told if entry[0] == "raft"] == [("raft", "n1", heartbeat)]
    assert peering.particulars("n1").cluster_id == peering.ping().cluster_id == "aa" * 16
    assert "other-cluster" in str(peering.objection("n2", others, is_known=True))
    datadir.close()
    EngineJournal.open(tmp_path / "n4").close()
    again = DataDir.open(tmp_path / "n4", "n4", joins=True)
    assert again.cluster_id == "aa" * 16
    again.close()


def test_a_node_with_a_log_adopts_nothing(tmp_path: Path) -> None:
    """Which cluster that is of is for the log to say."""
    datadir, host = DataDir.open(tmp_path / "n4", "n4", joins=True), Host()
    host.is_log_empty = False
    peering = host.peering(datadir)
    set_members(peering, Members())
    assert peering.objection("n1", disk("n1", 4), is_known=True) is None
    send(peering, "n1", FrameKind.RAFT, AppendEntries(term=1, commit_index=1))
    assert datadir.cluster_id == ""
    datadir.close()


def test_who_belongs_to_this_cluster_says_so(datadir: DataDir) -> None:
    """By the latest that it said, in its ping or when it connected."""
    peering = make(datadir)
    peering.objection("n2", disk("n2"), is_known=True)
    assert peering.table.belongs("n2")
    peering.objection("n2", stranger("n2"), is_known=True)
    assert not peering.table.belongs("n2")
    send(peering, "n2", FrameKind.PING, Ping(1, "joining"))
    assert not peering.table.belongs("n2")
    send(peering, "n2", FrameKind.PING, Ping(1, "joining", cluster_id="bb" * 16))
    assert not peering.table.belongs("n2")
    with pytest.raises(msgspec.ValidationError, match="another cluster"):
        send(peering, "n2", FrameKind.PING, Ping(1, "joining", cluster_id="bb" * 16))
    peering.peer_down("n2", is_replaced=False)
    peering.objection("n2", stranger("n2"), is_known=True)
    send(peering, "n2", FrameKind.PING, Ping(1, "joining", cluster_id=OURS))
    assert peering.table.belongs("n2")


def test_two_processes_with_one_identity_are_noticed(
    datadir: DataDir, caplog: pytest.LogCaptureFixture
) -> None:
    """Connections of one node alternate between two runs; each is another one in every process."""
    peering = make(datadir)
    assert peering.particulars("n2").run_id != make(datadir).particulars("n2").run_id
    for run_id in ("a", "b", "a"):
        peering.objection("n2", replace(disk("n2"), run_id=run_id), is_known=True)
    assert peering.runs.alternations_count == 1
    assert "event=duplicate-node peer=n2" in caplog.text


def test_a_second_process_is_not_let_in_beside_the_first(
    datadir: DataDir, caplog: pytest.LogCaptureFixture
) -> None:
    """They would vote and acknowledge in turns. It is let in when the first one is silent, or gone."""
    host = Host()
    peering, alive = make(datadir, host=host), host.alive
    alive.add("n2")
    first, second = (replace(disk("n2"), run_id=run_id) for run_id in "ab")
    assert peering.objection("n2", first, is_known=True) is None
    peering.peer_up("n2")
    for _ in range(3):
        objection = peering.objection("n2", second, is_known=True)
        assert objection is not None
        assert (objection.kind, objection.is_final) == (Kind.DUPLICATE, False)
    assert caplog.text.count("event=duplicate-node peer=n2 run=b other_run=a") == 1
    assert peering.objection("n2", first, is_known=True) is None, "a new connection of the same process"
    alive.clear()
    assert peering.objection("n2", second, is_known=True) is None
    peering.peer_down("n2", is_replaced=False)
    alive.add("n2")
    assert peering.objection("n2", first, is_known=True) is None


def founded_alone(datadir: DataDir, host: Host) -> Peering:
    """Return n1 as a cluster of its own, which it has just founded."""
    peering = host.peering(datadir, {"n1": "h:1"})
    peering.founding.begin()
    set_members(peering, member_list.founded(host.founded[0]))
    return peering


KNOWS_ANOTHER_N1 = replace(disk("n2"), cluster_id="bb" * 16, your_disk_id="the disk that was lost")


def test_a_cluster_of_one_stops_when_its_place_is_anothers(datadir: DataDir) -> None:
    """A node that lost its disk, and founded a cluster alone because its `peers` named nobody else.

    Its directory is never used again.
    """
    host = Host()
    objection = founded_alone(datadir, host).objection("n2", KNOWS_ANOTHER_N1, is_known=False)
    assert objection is not None
    assert objection.kind == Kind.OTHER_CLUSTER
    ((what, reason),) = host.told
    assert what == "broke"
    assert "n1 is a member of the cluster bbbbbbbb, which n2 belongs to, with another data" in str(reason)
    datadir.close()
    with pytest.raises(IdentityRefused, match="with another data directory"):
        DataDir.open(datadir.path, "n1")


def test_an_older_cluster_of_one_does_not_stop(datadir: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another cluster has a wrong address in its list: it is only not let in."""
    host = Host()
    peering = founded_alone(datadir, host)
    monkeypatch.setattr("cluster.peers.first_start.NEW_S", 0.0)
    objection = peering.objection("n2", KNOWS_ANOTHER_N1, is_known=False)
    assert objection is not None
    assert objection.kind == Kind.OTHER_CLUSTER
    assert host.told == []


def test_commands_reach_the_leader_as_one_batch(datadir: DataDir) -> None:
    """A forwarded batch is handed on whole, with its term and origin."""
    host = Host()
    peering = make(datadir, host=host)
    batch = Forwarded(3, "n2.run", [1, 2], [ONE, TWO])
    send(peering, "n2", FrameKind.FORWARD, batch)
    assert host.told == [("forwarded", batch)]


@pytest.mark.parametrize(
    ("batch", "fault"),
    [
        (Forwarded(3, "n3.run", [1], [ONE]), "commands of 'n3.run'"),
        (Forwarded(3, "n2." + "x" * 126, [1], [ONE]), "commands of 'n2.xxx"),
        (Forwarded(3, "n2.run", [1, 2], [ONE]), "2 numbers for 1 commands"),
        (Forwarded(3, "n2.run", [2, 1], [ONE, TWO]), "command 1 behind command 2"),
        (Forwarded(3, "n2.run", [1, 1], [ONE, TWO]), "command 1 behind command 1"),
        (Forwarded(3, "n2.run", [0], [ONE]), "command 0 behind command 0"),
        (Forwarded(3, "n2.run", [-1], [ONE]), "command -1 behind command 0"),
        (Forwarded(3, "n2.run", [2**64 - 1], [ONE]), f"command {2**64 - 1} behind command 0"),
        (
            Forwarded(3, "n2.run", [1], [TOO_LONG]),
            "a command of 1048577 bytes",
        ),
    ],
)
def test_what_no_correct_node_forwards_is_refused(datadir: DataDir, batch: Forwarded, fault: str) -> None:
    """A peer forwards its own commands, each with its number, in order: else it loses its connection.

    A number that is too large, or a command that is too long, would stop every node once it is in the log.
    """
    host = Host()
    peering = make(datadir, host=host)
    with pytest.raises(PeerFault, match=fault):
        send(peering, "n2", FrameKind.FORWARD, batch)
    assert host.told == []


def test_a_ping_tells_where_a_peer_is_until_it_is_gone(datadir: DataDir) -> None:
    """The last one counts, and none when the connection has ended."""
    host = Host()
    peering = make(datadir, host=host)
    for revision in (5, 6):
        send(peering, "n2", FrameKind.PING, Ping(revision, "leader"))
    assert peering.table.pings() == {"n2": Ping(6, "leader")}
    peering.peer_down("n2", is_replaced=False)
    assert peering.table.pings() == {}
    assert host.told == [("let-in", "n2"), ("let-in", "n2"), ("down", "n2")]
    ours = peering.ping()
    assert (ours.revision, ours.state, ours.cluster_id) == (7, "follower", OURS)


def test_pings_tell_who_writes_a_snapshot(datadir: DataDir) -> None:
    """Until a peer says otherwise, or is gone. One of an earlier release says nothing of it."""
    host = Host()
    peering = make(datadir, host=host)
    told = [peering.ping().is_writing, peering.do_others_write()]
    host.is_writing_snapshot = True
    told += [peering.ping().is_writing, peering.do_others_write()]
    assert told == [False, False, True, False]
    others = []
    for ping in ([6, "leader"], Ping(6, "leader", is_writing=True), Ping(6, "leader")):
        send(peering, "n2", FrameKind.PING, ping)
        others.append(peering.do_others_write())
    send(peering, "n3", FrameKind.PING, Ping(6, "follower", is_writing=True))
    others.append(peering.do_others_write())
    peering.peer_down("n3", is_replaced=False)
    others.append(peering.do_others_write())
    assert others == [False, True, False, True, False]


def test_pings_carry_clocks(datadir: DataDir) -> None:
    """Each says what this node reads and has heard; a peer of an older release says nothing of its clock."""
    host = Host()
    peering = make(datadir, host=host)
    send(peering, "n2", FrameKind.PING, [6, "leader"])
    assert peering.ping().clock == ClockSaid(5_000, {})
    send(peering, "n2", FrameKind.PING, Ping(6, "leader", clock=ClockSaid(77, {}, is_off=True)))
    assert peering.ping().clock == ClockSaid(5_000, {"n2": (77, 5_000)})
    assert not host.clocks.is_fit("n2")
    peering.peer_down("n2", is_replaced=False)
    assert peering.ping().clock == ClockSaid(5_000, {})


def test_pings_carry_claims_and_only_those_of_a_disk_that_counts_are_taken(datadir: DataDir) -> None:
    """Whoever has not the disk that counts here says nothing about who is right, nor who is gone."""
    host = Host()
    peering, failures = make(datadir, host=host), host.failures
    host.divergence.restarted(6)
    assert peering.ping().report == DigestReport(fingerprint.VERSION, [(6, 11)])
    claims = DigestReport(fingerprint.VERSION, [(6, 12)])
    peering.objection("n2", disk("n2"), is_known=True)
    peering.objection("n3", disk("n3"), is_known=True)
    back = with_voter(without(THREE, "n3"), "n3", "disk-new")
    assert peering.objection("n3", disk("new", back.version), is_known=True) is None
    send(peering, "n2", FrameKind.PING, [6, "leader"])
    send(peering, "n2", FrameKind.PING, Ping(6, "leader", report=claims))
    send(peering, "n3", FrameKind.PING, Ping(6, "follower", report=claims))
    assert host.divergence.differing == {"n2"}
    assert not failures
    peering.peer_down("n2", is_replaced=False)
    set_members(peering, without(THREE, "n3"), back)
    send(peering, "n3", FrameKind.PING, Ping(6, "follower", report=claims))
    assert host.divergence.differing == {"n3"}
    assert not failures
    send(peering, "n2", FrameKind.PING, Ping(6, "leader", report=claims))
    assert isinstance(failures[0], StateDiverged)


def test_what_a_later_release_says_is_dropped(datadir: DataDir, caplog: pytest.LogCaptureFixture) -> None:
    """An unknown kind of frame, or of Raft message, disturbs nothing, and is told."""
    host = Host()
    peering = make(datadir, Members(), host=host)
    send(peering, "n2", 99, ["anything"])
    send(peering, "n2", FrameKind.RAFT, {"type": "anything"})
    assert host.told == []
    assert "event=frame-dropped peer=n2 kind=99" in caplog.text
    assert "event=message-dropped peer=n2 type='anything' reason=unknown" in caplog.text


def test_a_malformed_raft_message_costs_the_peer_its_connection(datadir: DataDir) -> None:
    """What is not a message is an error of the peer, and reaches nobody."""
    host = Host()
    peering = make(datadir, Members(), host=host)
    with pytest.raises(msgspec.DecodeError):
        send(peering, "n2", FrameKind.RAFT, {"type": "append_entries", "term": "1"})
    assert host.told == []


def test_a_disk_that_cannot_remember_ends_the_node(tmp_path: Path) -> None:
    """Whose disk cannot be remembered is not let in, is not refused for good either, and this node stops."""
    disk_of_n1 = FullDisk()
    datadir = DataDir.open(tmp_path / "n1", "n1", files=disk_of_n1)
    host = Host()
    peering = make(datadir, host=host)
    disk_of_n1.is_full = True
    with pytest.raises(NodeFailed, match="No space left"):
        peering.objection("n2", disk("n2"), is_known=True)
    assert [kind for kind, *_ in host.told] == ["broke"]
    assert datadir.known == {}
    datadir.close()


def test_only_a_removed_disk_is_refused_for_ever(datadir: DataDir) -> None:
    """A refusal by a node that is behind, or a late one, stops nobody; that of a removed disk does."""
    peering = make(datadir)
    peering.objection("n3", disk("n3"), is_known=True)
    unknown = peering.objection("n4", disk("n4"), is_known=False)
    other = peering.objection("n3", disk("other"), is_known=True)
    set_members(peering, without(THREE, "n3"))
    removed = peering.objection("n3", disk("n3"), is_known=False)
    not_added_yet = peering.objection("n3", disk("new"), is_known=False)
    assert [found and found.is_final for found in (unknown, other, removed, not_added_yet)] == [
        False,
        False,
        True,
        False,
    ]


def test_a_node_that_joined_later_is_not_gone(datadir: DataDir) -> None:
    """A linked peer that an older list does not have yet is not a removed one."""
    peering = make(datadir)
    peering.objection("n3", disk("n3"), is_known=True)
    peering.objection("n4", disk("n4", 5), is_known=False)
    assert set_members(peering, without(THREE, "n3")) == {"n3"}


def test_the_disk_of_who_is_connected_goes_into_the_list(datadir: DataDir) -> None:
    """What a peer says of its disk now counts more than what an addition that was undone has left here."""
    peering = make(datadir)
    datadir.remember("n4", "disk-old")
    peering.objection("n4", disk("n4", 3), is_known=True)
    assert peering.table.disk_ids()["n4"] == "disk-n4"


def test_a_peer_that_does_not_know_the_active_rules_is_refused(datadir: DataDir) -> None:
    """It is told to be upgraded, which is not final, and its disk is not remembered."""
    host = Host()
    peering = make(datadir, host=host)
    host.rules = 2
    objection = peering.objection("n2", disk("n2"), is_known=True)
    assert objection is not None
    assert objection.reason.startswith("node n2 knows rules 1 and the cluster follows rules 2: upgrade n2")
    assert not objection.is_final
    assert datadir.known == {}
    assert peering.objection("n2", replace(disk("n2"), rules=2), is_known=True) is None


def test_what_rules_a_node_knows_counts_while_it_is_connected(datadir: DataDir) -> None:
    """A node that is not connected may come back with another release: what it knew counts no more."""
    peering = make(datadir)
    assert [peering.rules_known(node_id) for node_id in ("n1", "n2")] == [RULES_FIRST, 0]
    for known in (2, 1):
        assert peering.objection("n2", replace(disk("n2"), rules=known), is_known=True) is None
        assert peering.rules_known("n2") == 0
        peering.peer_up("n2")
        assert peering.rules_known("n2") == known
        peering.peer_down("n2", is_replaced=False)
        assert peering.rules_known("n2") == 0
    peering.peer_up("n3")
    assert peering.rules_known("n3") == 0, "it was removed while it was connected"


def test_an_older_copy_is_refused_by_what_its_pings_said(
    datadir: DataDir, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told to the operator with the highest severity, counted, and told apart from its later self."""
    peering = make(datadir)
    assert peering.objection("n2", disk("n2"), is_known=True) is None
    send(peering, "n2", FrameKind.PING, Ping(1, "follower", cluster_id=OURS, term=7, committed=40))
    objection = peering.objection("n2", replace(disk("n2"), term=7, last_index=39), is_known=True)
    assert objection is not None
    assert objection.kind == Kind.OLDER_COPY
    assert ("event=older-copy peer=n2" in caplog.text, peering.older_copies_count) == (True, 1)
    caplog.clear()
    peering.objection("n2", replace(disk("n2"), term=7, last_index=39), is_known=True)
    assert (caplog.text, peering.older_copies_count) == ("", 2), "it asks every two seconds, and is told once"
    assert peering.objection("n2", replace(disk("n2"), term=8, last_index=40), is_known=True) is None


def test_a_leader_refuses_a_follower_that_lost_what_it_acknowledged(datadir: DataDir) -> None:
    """It would count what is not there any more."""
    host = Host()
    peering = make(datadir, host=host)
    host.matched, host.role = 40, Role("n1", 7, is_leader=True, is_candidate=False)
    behind = replace(disk("n2"), term=7, last_index=39)
    assert "older-copy" in str(peering.objection("n2", behind, is_known=True))
    host.role = Role("n3", 7, is_leader=False, is_candidate=False)
    assert peering.objection("n2", behind, is_known=True) is None


def test_what_a_peer_came_to_behind_its_answer_does_not_make_it_older(datadir: DataDir) -> None:
    """While a new connection is made, the one in use goes on: it may be quicker than the answer."""
    host = Host()
    peering = make(datadir, host=host)
    assert peering.objection("n2", disk("n2"), is_known=True) is None
    host.matched, host.role = 39, Role("n1", 7, is_leader=True, is_candidate=False)
    asked = peering.progress("n2")
    answer = replace(disk("n2"), term=7, last_index=39)
    host.matched = 40
    send(peering, "n2", FrameKind.PING, Ping(1, "follower", cluster_id=OURS, term=7, committed=40))
    assert peering.objection("n2", answer, is_known=True, progress=asked) is None
    objection = peering.objection("n2", answer, is_known=True, progress=peering.progress("n2"))
    assert objection is not None
    assert (objection.kind, objection.run_id) == (Kind.OLDER_COPY, peering.particulars("n2").run_id)


def test_who_is_shut_out_takes_nothing_of_raft(datadir: DataDir) -> None:
    """From nobody, until the one that said so lets it in at the same address."""
    host = Host()
    peering = make(datadir, host=host)
    for peer_id in ("n2", "n3"):
        assert peering.objection(peer_id, disk(peer_id), is_known=True) is None
    peering.refused("n2", objections.duplicate("n1"), dialed="h:2")
    for where, taken in (("elsewhere", 0), ("h:2", 1)):
        host.dialed = where
        send(peering, "n2", FrameKind.PING, Ping(1, "follower", cluster_id=OURS))
        send(peering, "n3", FrameKind.RAFT, VoteRequest(term=8, last_log_index=9, last_log_term=1))
        assert [entry[0] for entry in host.told].count("raft") == taken
        assert bool(peering.shut_out.reason) == (not taken)
