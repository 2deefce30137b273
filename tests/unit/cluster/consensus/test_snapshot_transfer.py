"""A snapshot on its way between two nodes: it goes on where it was, whatever gets lost, repeated or late."""

import random
import time
from collections.abc import Generator
from pathlib import Path
from typing import cast

import msgspec
import pytest

from cluster.consensus import messages, snapshot_transfer
from cluster.consensus.engine import Engine
from cluster.consensus.library_words import EngineJournal
from cluster.consensus.messages import Acknowledgement, Chunk, Message, SnapshotPosition
from cluster.consensus.ready import SnapshotDue
from cluster.consensus.snapshot_transfer import SnapshotTransfer
from cluster.storage.files import Files
from cluster.storage.snapshot_format import Snapshot, write_snapshot
from cluster.storage.snapshot_store import DecodeState, SnapshotStore
from lockstate.stored.snapshot import SnapshotError

CHUNK_BYTES = 100
STATE = random.Random(1).randbytes(5_000)
PREVIOUS = (b"previous", 41, 6)
LAST = (b"last", 42, 7)


class FakeEngine:
    """What a transfer sees of its engine: a term, a leader, and a wire that keeps what is sent."""

    def __init__(self) -> None:
        self.term = 7
        self.leader_id: str | None = "leader"
        self.is_room = True
        self.sent: list[tuple[str, Message]] = []
        self.paused: list[str] = []
        self.time_s = 1000.0
        self.matched = 0

    def now_s(self) -> float:
        """Return the time that the test says."""
        return self.time_s

    def match_index(self, _: str) -> int:
        """Return up to where the follower has the log."""
        return self.matched

    def has_room(self, _: str) -> bool:
        """Whether more may be sent."""
        return self.is_room

    def pause_sending(self, peer_id: str) -> None:
        """Note; the test asks again."""
        self.paused.append(peer_id)

    def take_sent(self) -> list[Message]:
        """Return what was sent, as it is after the wire."""
        sent, self.sent = self.sent, []
        assert {peer_id for peer_id, _ in sent} <= {"leader"}
        return [after_the_wire(message) for _, message in sent]


class Log:
    """An empty log, of which a test may say that it was committed elsewhere."""

    def __init__(self) -> None:
        self.first_index = self.last_index = self.committed = 0

    def term_at(self, _: int) -> int | None:
        """Return that the log has no such entry."""
        return None


def after_the_wire(message: Message) -> Message:
    """Return a message as the other end decodes it."""
    received = messages.decode(msgspec.msgpack.encode(message))
    assert not isinstance(received, str)
    return received


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
        self.engine, self.log = FakeEngine(), Log()
        self.decode = decode
        self.store = SnapshotStore(directory)
        self.transfer = self._made(self.store.load())

    def _made(self, snapshot: Snapshot | None) -> SnapshotTransfer:
        last = snapshot.last if snapshot is not None else None
        engine = cast("Engine", self.engine)
        return SnapshotTransfer(
            self.store, engine, cast("EngineJournal", self.log), last=last, decode=self.decode
        )

    def tick(self) -> None:
        """Do what the library asks in every tick."""
        self.transfer.poll()

    def take(self, chunk: Chunk | None) -> bool:
        """Take a chunk, if the leader has sent one; tell whether the snapshot is whole now."""
        return chunk is not None and self.transfer.take_chunk(chunk)


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


def next_chunk(leader: End) -> Chunk | None:
    """Return the leader's next chunk as it is after the wire."""
    chunk = leader.transfer.next_chunk("follower")
    message = after_the_wire(messages.AppendEntries(term=7, commit_index=1, chunk=chunk))
    assert isinstance(message, messages.AppendEntries)
    assert message.chunk is not messages.UNSET
    return message.chunk


def answer(leader: End, follower: End) -> None:
    """Bring the follower's positions to the leader."""
    for message in follower.engine.take_sent():
        if isinstance(message, SnapshotPosition):
            leader.transfer.take_position("follower", message)


def names_in(end: End) -> list[str]:
    """Return what is in the directory of a node."""
    return Files().names(end.directory)


def disconnect(leader: End) -> None:
    """Break the connection: the leader interrupts the transfer."""
    leader.transfer.stop_sending_to("follower")


def step(leader: End, follower: End) -> bool:
    """Bring one chunk over, its answer back, and tick; tell whether it installed the snapshot."""
    is_installed = follower.take(next_chunk(leader))
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
    while not follower.take(next_chunk(leader)):
        follower.engine.sent.clear()
        follower.tick()
    assert bytes_sent(caplog)[:2] == [0, 0]
    assert follower.transfer.take_received().decoded == (STATE, b"members")


def test_a_late_answer_is_followed_and_told(ends: tuple[End, End], caplog: pytest.LogCaptureFixture) -> None:
    """When the position comes after the leader has begun at 0, it goes on there, and the log says so."""
    caplog.set_level("INFO")
    leader, follower = ends
    for _ in range(20):
        step(leader, follower)
    have = follower.store.incoming_bytes
    disconnect(leader)
    follower.take(next_chunk(leader))  # its answer is on the way
    while (chunk := next_chunk(leader)) is None or not chunk.data:
        continue
    transfer(leader, follower)
    assert bytes_sent(caplog) == [0, 0, have]


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
    follower.take(chunk._replace(data=bytes(len(chunk.data))))
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
    follower.log.committed = LAST[1]
    assert not follower.take(next_chunk(leader))
    declined = Acknowledgement(next_index=LAST[1] + 1, reset=False, success=True, term=7)
    assert follower.engine.take_sent() == [declined], "everything up to there is here already"
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
    follower.log.committed = LAST[1]
    follower.tick()
    assert names_in(follower) == []


def test_while_it_is_checked_nothing_is_sent_again(
    ends: tuple[End, End], caplog: pytest.LogCaptureFixture
) -> None:
    """The leader asks again and again, and hears that all is there."""
    caplog.set_level("INFO")
    leader, follower = ends
    while follower.transfer._checking is None:
        follower.take(next_chunk(leader))
        answer(leader, follower)
    for _ in range(10):
        disconnect(leader)
        for _ in range(3):
            assert not follower.take(next_chunk(leader))
            answer(leader, follower)
    assert bytes_sent(caplog) == [0]
    assert transfer(leader, follower).decoded == (STATE, b"members")


@pytest.mark.parametrize(
    "position",
    [
        SnapshotPosition(term=6, digest=b"", offset=0),
        SnapshotPosition(term=7, digest=b"of another snapshot", offset=0),
        SnapshotPosition(term=7, digest=b"", offset=-1),
        SnapshotPosition(term=7, digest=b"", offset=10**9),
    ],
)
def test_a_position_of_something_else_is_dropped(ends: tuple[End, End], position: SnapshotPosition) -> None:
    """Of another term or snapshot, or outside of it: it does not disturb a transfer."""
    leader, follower = ends
    offer = next_chunk(leader)
    assert offer is not None
    follower.take(offer)
    told = msgspec.structs.replace(position, digest=position.digest or offer.id.digest)
    assert not leader.transfer.take_position("follower", told)
    assert not leader.transfer.take_position("another", told)
    answer(leader, follower)
    assert transfer(leader, follower).decoded == (STATE, b"members")


def test_without_room_nothing_is_sent(ends: tuple[End, End]) -> None:
    """A full connection gets no chunk, and the library is kept from asking in a loop; then it goes on."""
    leader, follower = ends
    step(leader, follower)
    leader.engine.is_room = False
    assert next_chunk(leader) is None
    assert leader.engine.paused == ["follower"]
    leader.engine.is_room = True
    assert transfer(leader, follower).decoded == (STATE, b"members")


def test_a_leader_without_a_snapshot_has_nothing_to_send(tmp_path: Path) -> None:
    """The library is kept from asking in a loop."""
    leader = End(tmp_path / "leader")
    assert leader.transfer.next_chunk("follower") is None
    assert leader.engine.paused == ["follower"]


def test_without_a_newer_snapshot_the_present_one_goes_on(ends: tuple[End, End]) -> None:
    """A follower that has more than the leader's newest one is not offered it for every question."""
    leader, _ = ends
    leader.engine.matched = LAST[1] + 1
    assert [next_chunk(leader) is None for _ in range(3)] == [False, True, True]


def test_a_check_goes_on_in_ticks(ends: tuple[End, End]) -> None:
    """Between the last byte and the state there are steps of a few milliseconds: ticks are asked for."""
    leader, follower = ends

    def wants_tick() -> bool:
        return follower.transfer.is_checking

    while not wants_tick():
        follower.take(next_chunk(leader))
        answer(leader, follower)
    ticks = 0
    while wants_tick():
        follower.tick()
        ticks += 1
    assert ticks > 2
    assert follower.take(next_chunk(leader)), "the next chunk of the leader puts it in place"


def test_nobody_is_told_without_a_leader(ends: tuple[End, End]) -> None:
    """A position that has nobody to go to is not kept for later."""
    leader, follower = ends
    follower.engine.leader_id = None
    follower.take(next_chunk(leader))
    assert follower.engine.take_sent() == []


def test_a_snapshot_is_written_and_then_sent(tmp_path: Path) -> None:
    """The log before it may go when it is in place, and a follower gets it from then on."""
    leader, follower = End(tmp_path / "leader"), End(tmp_path / "follower")
    assert leader.transfer.poll() == ("idle", 0)
    leader.transfer.begin_write(SnapshotDue(LAST, PREVIOUS, b"members"), lambda: STATE)
    deadline_s = time.monotonic() + 20
    while (outcome := leader.transfer.poll()) == ("running", LAST[1]):
        assert time.monotonic() < deadline_s
        time.sleep(0.001)
    assert outcome == ("done", LAST[1])
    assert transfer(leader, follower) == Snapshot(PREVIOUS, LAST, b"", b"members", (STATE, b"members"))


@pytest.mark.parametrize("seed", range(40))
def test_it_arrives_whatever_happens_to_the_messages(tmp_path: Path, seed: int) -> None:
    """Messages get lost, come twice, overtake each other, connections and nodes break: it arrives whole."""
    chance = random.Random(seed)
    leader, follower = leader_with(tmp_path / "leader"), End(tmp_path / "follower")
    on_the_way: list[Chunk | None] = []
    for _ in range(5000):
        on_the_way.append(next_chunk(leader))
        while on_the_way and chance.random() < 0.6:
            at = chance.randrange(min(3, len(on_the_way)))
            chunk = on_the_way[at] if chance.random() < 0.1 else on_the_way.pop(at)
            if chance.random() < 0.05:
                continue
            if follower.take(chunk):
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
