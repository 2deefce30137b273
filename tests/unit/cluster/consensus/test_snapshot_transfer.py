"""A snapshot on its way between two nodes: it goes on where it was, whatever gets lost, repeated or late."""

import random
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from cluster.consensus import snapshot_transfer
from cluster.consensus.guards import Message
from cluster.consensus.snapshot_transfer import SnapshotTransfer
from cluster.storage.files import Files
from cluster.storage.snapshot_format import Snapshot, write_snapshot
from cluster.storage.snapshot_store import DecodeState, SnapshotStore
from lockstate.snapshot import SnapshotError

CHUNK_BYTES = 100
STATE = random.Random(1).randbytes(5_000)
PREVIOUS = (b"previous", 41, 6)
LAST = (b"last", 42, 7)
STATES = {"idle": 0, "running": 1, "done": 2, "failed": 3}


class Peer(NamedTuple):
    """A node, by the library's shape."""

    id: str


class Replica:
    """What a transfer sees of its node: an empty log, and a wire that keeps what is sent."""

    def __init__(self) -> None:
        self.wants_tick = False
        self.term = 7
        self.leader_id: str | None = "leader"
        self.has_room = True
        self.sent: list[Message] = []
        self.declined: list[int] = []
        self.last_index = self.committed = 0

    def term_at(self, _: int) -> int | None:
        """Return that the log has no such entry."""
        return None

    def send(self, _: str, message: Message) -> None:
        """Keep a message, as it is after the wire."""
        self.sent.append(msgspec.msgpack.decode(msgspec.msgpack.encode(message)))

    def link_has_room(self, _: str) -> bool:
        """Whether more may be sent."""
        return self.has_room

    def pause_sending(self, _: str) -> None:
        """Do nothing: the test asks again."""

    def decline_snapshot(self, index: int) -> None:
        """Remember it."""
        self.declined.append(index)


def decode_slowly(state: bytearray, members: bytes) -> Generator[None, None, object]:
    """Decode in three steps."""
    yield
    yield
    return bytes(state), members


class End:
    """One end of a transfer, with its own directory."""

    def __init__(self, directory: Path, decode: DecodeState | None = decode_slowly) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.replica = Replica()
        self.decode = decode
        self.store = SnapshotStore(directory)
        self.transfer = self._made(self.store.load())

    def _made(self, snapshot: Snapshot | None) -> SnapshotTransfer:
        return SnapshotTransfer(
            self.store,
            lambda: b"",
            self.replica,
            states=STATES,
            members=lambda _: b"",
            last=snapshot.last if snapshot is not None else None,
            decode=self.decode,
        )

    def tick(self) -> None:
        """Do what the library asks in every tick."""
        self.transfer.checkSerializing()


def leader_with(directory: Path, state: bytes = STATE) -> End:
    """Return a leader whose snapshot has this state."""
    directory.mkdir()
    write_snapshot(directory / "snapshot", Snapshot(PREVIOUS, LAST, state, b"members"), Files())
    return End(directory)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a small snapshot travel in many chunks."""
    monkeypatch.setattr(snapshot_transfer, "CHUNK_BYTES", CHUNK_BYTES)


@pytest.fixture
def ends(tmp_path: Path) -> tuple[End, End]:
    """Return a leader with a snapshot and a follower with nothing."""
    return leader_with(tmp_path / "leader"), End(tmp_path / "follower")


def next_chunk(leader: End) -> list[Any] | None:
    """Return the leader's next chunk as it is after the wire."""
    chunk = leader.transfer.getTransmissionData(Peer("follower"))
    return msgspec.msgpack.decode(msgspec.msgpack.encode(chunk)) if chunk is not None else None


def answer(leader: End, follower: End) -> None:
    """Bring the follower's positions to the leader."""
    for message in follower.replica.sent:
        leader.transfer.take_position("follower", message)
    follower.replica.sent.clear()


def names_in(end: End) -> list[str]:
    """Return what is in the directory of a node."""
    return Files().names(end.directory)


def disconnect(leader: End) -> None:
    """Break the connection: the leader forgets the transfer."""
    leader.transfer.cancelTransmisstion(Peer("follower"))


def step(leader: End, follower: End) -> bool:
    """Bring one chunk over, its answer back, and tick; tell whether it installed the snapshot."""
    is_installed = follower.transfer.setTransmissionData(next_chunk(leader))
    answer(leader, follower)
    follower.tick()
    return is_installed


def transfer(leader: End, follower: End, steps_max: int = 1000) -> Snapshot:
    """Go on until the follower has the snapshot."""
    for _ in range(steps_max):
        if step(leader, follower):
            return follower.transfer.take_received()
    raise AssertionError("the snapshot did not arrive")


def bytes_sent(caplog: pytest.LogCaptureFixture) -> list[int]:
    """Return from which byte each transfer began."""
    said = [record.getMessage() for record in caplog.records if "snapshot-sending" in record.getMessage()]
    return [int(line.rpartition("from=")[2]) for line in said]


def test_a_snapshot_arrives_decoded(ends: tuple[End, End]) -> None:
    """The follower has the leader's file, and what the host made of the state."""
    leader, follower = ends
    assert transfer(leader, follower) == Snapshot(PREVIOUS, LAST, b"", b"members", (STATE, b"members"))
    assert (follower.directory / "snapshot").read_bytes() == (leader.directory / "snapshot").read_bytes()
    assert names_in(follower) == ["snapshot"]


def test_without_a_decoder_the_state_arrives_as_bytes(tmp_path: Path) -> None:
    """A host that decodes by itself gets the verified bytes with the last chunk."""
    leader, follower = leader_with(tmp_path / "leader"), End(tmp_path / "follower", None)
    assert transfer(leader, follower) == Snapshot(PREVIOUS, LAST, STATE, b"members")


def test_it_goes_on_where_it_was(ends: tuple[End, End], caplog: pytest.LogCaptureFixture) -> None:
    """After a broken connection nothing is sent again that the follower has."""
    caplog.set_level("INFO")
    leader, follower = ends
    for _ in range(20):
        step(leader, follower)
    have = follower.store.incoming_bytes
    assert have > 10 * CHUNK_BYTES
    disconnect(leader)
    transfer(leader, follower)
    assert bytes_sent(caplog) == [0, have]


def test_a_lost_answer_costs_bytes_only(ends: tuple[End, End], caplog: pytest.LogCaptureFixture) -> None:
    """When the follower's position gets lost the leader begins at 0, and the follower takes what is new."""
    caplog.set_level("INFO")
    leader, follower = ends
    for _ in range(20):
        step(leader, follower)
    disconnect(leader)
    while not follower.transfer.setTransmissionData(next_chunk(leader)):
        follower.replica.sent.clear()
        follower.tick()
    assert bytes_sent(caplog)[:2] == [0, 0]
    assert follower.transfer.take_received().decoded == (STATE, b"members")


def test_a_lost_chunk_is_noticed(ends: tuple[End, End]) -> None:
    """The leader goes back to what is missing."""
    leader, follower = ends
    for _ in range(5):
        step(leader, follower)
    have = follower.store.incoming_bytes
    assert next_chunk(leader)
    step(leader, follower)
    assert follower.store.incoming_bytes == have, "what does not continue is not taken"
    step(leader, follower)
    assert follower.store.incoming_bytes == have + CHUNK_BYTES
    assert transfer(leader, follower).decoded == (STATE, b"members")


def test_another_leaders_snapshot_begins_anew(tmp_path: Path) -> None:
    """A snapshot of the same entry with other bytes is not continued with the first one's."""
    one, two = leader_with(tmp_path / "one"), leader_with(tmp_path / "two", STATE[::-1])
    follower = End(tmp_path / "follower")
    for _ in range(20):
        step(one, follower)
    assert transfer(two, follower).decoded == (STATE[::-1], b"members")


def test_a_restarted_follower_begins_anew(ends: tuple[End, End]) -> None:
    """What a killed follower had is removed at its start, and all is sent again."""
    leader, follower = ends
    for _ in range(20):
        step(leader, follower)
    assert "incoming.tmp" in names_in(follower)
    disconnect(leader)
    again = End(follower.directory)
    assert names_in(follower) == []
    assert transfer(leader, again).decoded == (STATE, b"members")


def test_damage_on_the_way_is_found_and_all_sent_again(ends: tuple[End, End]) -> None:
    """A changed byte is noticed at the end, and nothing of it stays."""
    leader, follower = ends
    step(leader, follower)
    step(leader, follower)
    chunk = next_chunk(leader)
    assert chunk is not None
    chunk[0] = bytes(len(chunk[0]))
    follower.transfer.setTransmissionData(chunk)
    while follower.store.incoming is not None:
        assert not step(leader, follower), "a damaged snapshot is not installed"
    disconnect(leader)
    assert names_in(follower) == []
    assert transfer(leader, follower).decoded == (STATE, b"members")


def test_an_unreadable_state_is_asked_for_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A state of a newer version is refused before it replaces anything, and its bytes do not come again."""
    caplog.set_level("INFO")

    def refuse(_: bytearray, __: bytes) -> Generator[None, None, object]:
        yield
        raise SnapshotError("format 9")

    leader, follower = leader_with(tmp_path / "leader"), End(tmp_path / "follower", refuse)
    for _ in range(200):
        assert not step(leader, follower)
    assert len(bytes_sent(caplog)) == 1
    assert caplog.text.count("format 9") == 1
    assert names_in(follower) == []


def test_old_news_is_declined(ends: tuple[End, End]) -> None:
    """When the log has overtaken a snapshot that is being received or checked, it is dropped."""
    leader, follower = ends
    for _ in range(20):
        step(leader, follower)
    follower.replica.committed = LAST[1]
    assert not step(leader, follower)
    assert follower.replica.declined == [LAST[1]]
    assert names_in(follower) == []


def test_a_checked_snapshot_that_nobody_needs_is_dropped(ends: tuple[End, End]) -> None:
    """A state that was decoded and is overtaken by the log does not stay in memory."""
    leader, follower = ends
    while follower.store.incoming_bytes < (leader.directory / "snapshot").stat().st_size:
        step(leader, follower)
    for _ in range(20):
        follower.tick()
    checked = follower.store.incoming
    assert checked is not None
    follower.replica.committed = LAST[1]
    follower.tick()
    assert names_in(follower) == []


def test_while_it_is_checked_nothing_is_sent_again(
    ends: tuple[End, End], caplog: pytest.LogCaptureFixture
) -> None:
    """The leader asks again and again, and hears that all is there."""
    caplog.set_level("INFO")
    leader, follower = ends
    while follower.transfer._checking is None:
        follower.transfer.setTransmissionData(next_chunk(leader))
        answer(leader, follower)
    for _ in range(10):
        disconnect(leader)
        for _ in range(3):
            assert not follower.transfer.setTransmissionData(next_chunk(leader))
            answer(leader, follower)
    assert bytes_sent(caplog) == [0]
    assert transfer(leader, follower).decoded == (STATE, b"members")


@pytest.mark.parametrize(
    "chunk",
    [
        [],
        [b"part", True, False, 9, 9],
        [b"x", -1, False, [42, 7, 100, b"d"]],
        [b"x", 0, False, [42, 7, 100]],
        ["text", 0, False, [42, 7, 100, b"d"]],
    ],
)
def test_a_malformed_chunk_is_refused(ends: tuple[End, End], chunk: list[Any]) -> None:
    """What is no chunk changes nothing."""
    _, follower = ends
    assert not follower.transfer.setTransmissionData(chunk)
    assert names_in(follower) == []


@pytest.mark.parametrize("position", [{}, {"term": 7, "digest": b"d"}, {"term": 7, "digest": 1, "offset": 1}])
def test_a_malformed_position_is_dropped(ends: tuple[End, End], position: Message) -> None:
    """What is no position does not disturb a transfer."""
    leader, follower = ends
    step(leader, follower)
    leader.transfer.take_position("follower", {"type": "snapshot_position", **position})
    assert transfer(leader, follower).decoded == (STATE, b"members")


@pytest.mark.parametrize("seed", range(40))
def test_it_arrives_whatever_happens_to_the_messages(tmp_path: Path, seed: int) -> None:
    """Messages get lost, come twice, overtake each other, connections and nodes break: it arrives whole."""
    chance = random.Random(seed)
    leader, follower = leader_with(tmp_path / "leader"), End(tmp_path / "follower")
    on_the_way: list[list[Any] | None] = []
    for _ in range(5000):
        on_the_way.append(next_chunk(leader))
        while on_the_way and chance.random() < 0.6:
            at = chance.randrange(min(3, len(on_the_way)))
            chunk = on_the_way[at] if chance.random() < 0.1 else on_the_way.pop(at)
            if chance.random() < 0.05:
                continue
            if follower.transfer.setTransmissionData(chunk):
                received = follower.transfer.take_received()
                assert received == Snapshot(PREVIOUS, LAST, b"", b"members", (STATE, b"members"))
                file = leader.directory / "snapshot"
                assert (follower.directory / "snapshot").read_bytes() == file.read_bytes()
                return
            follower.tick()
        if chance.random() < 0.9:
            answer(leader, follower)
        if chance.random() < 0.02:
            disconnect(leader)
        if chance.random() < 0.002:
            follower = End(follower.directory)
    raise AssertionError("the snapshot did not arrive")
