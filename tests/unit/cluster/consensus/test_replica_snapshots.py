"""Snapshots as one replica sees them: due, written, offered, received, restored."""

from collections.abc import Callable
from pathlib import Path

from cluster.consensus import member_list
from cluster.consensus.messages import Acknowledgement, AppendEntries, Chunk, SnapshotPosition
from cluster.storage.files import Files
from cluster.storage.snapshot_format import Snapshot, SnapshotId, write_snapshot
from tests.unit.cluster.consensus.one_replica import FOUR, THREE, Site, acknowledged, extend, members_of


def test_a_snapshot_is_due_after_so_many_entries_and_written_when_told(make: Callable[..., Site]) -> None:
    """The value says what it contains; nothing is written before the host has applied that, and says so."""
    site = make(members=FOUR, compact_entries=8)
    site.lead()
    due = []
    for number in range(12):
        ready = site.propose(b"%d" % number)
        extend(ready, site.acknowledge("n2", "n3", "n4"))
        extend(ready, site.replica.tick(has_entry=False))
        if ready.snapshot is not None:
            due.append((site.journal.last_index, ready))
    assert due, "the log is longer than it may be"
    index, ready = due[0]
    assert ready.snapshot is not None
    assert ready.snapshot.last[1] == ready.snapshot.previous[1] + 1 == index
    assert ready.committed[-1][0] == index, "it contains what is applied in the same breath"
    assert not (site.directory / "snapshot").exists()
    assert site.journal.first_index == 1
    site.replica.write_snapshot(ready.snapshot, lambda: b"the state")
    site.replica.tick(has_entry=False)
    assert (site.directory / "snapshot").exists()
    assert site.journal.first_index > 1, "the log before it may go"
    site.close()
    again = make(members=FOUR, compact_entries=8)
    assert again.replica.loaded_state == b"the state"
    assert again.journal.first_index == index - 1


def test_a_snapshot_carries_the_members_as_of_its_last_entry(leader: Site) -> None:
    """A newer list in the log is not committed: it may be cut off, and must not come back from a snapshot."""
    replica = leader.replica
    older = member_list.with_learner(replica.membership.latest, "n4", "n4:1")
    replica.change_members(older)
    leader.commit()
    leader.commit(b"one")
    replica.change_members(member_list.with_learner(older, "n5", "n5:1"))
    leader.propose()
    replica.engine.force_compaction()
    ready = replica.tick(has_entry=False)
    assert ready.snapshot is not None
    assert ready.snapshot.last[1] < replica.membership.latest_index
    assert ready.snapshot.members == member_list.encode(older)


def snapshot_of(directory: Path, *, encoded_members: bytes = b"") -> tuple[bytes, SnapshotId]:
    """Return the bytes of a snapshot up to entry 42, and which one that is."""
    path = directory / "a-snapshot"
    previous, last = (b"\x00previous", 41, 3), (b"\x00last", 42, 3)
    write_snapshot(path, Snapshot(previous, last, b"the state", encoded_members), Files())
    data = path.read_bytes()
    return data, SnapshotId(42, 3, len(data), data[-32:])


def chunk_of(data: bytes, snapshot_id: SnapshotId, *, is_last: bool = False) -> AppendEntries:
    """Return what the leader of term 4 says with a part of its snapshot."""
    offset = snapshot_id.size_bytes if is_last else 0
    return AppendEntries(term=4, commit_index=42, chunk=Chunk(data, offset, is_last, snapshot_id))


def test_an_offer_of_a_snapshot_is_answered_with_a_position(follower: Site) -> None:
    """It says how much of it is here: nothing; the sign of life beside it claims nothing about the log."""
    _, snapshot_id = snapshot_of(follower.directory)
    follower.follow(term=4)
    ready = follower.replica.receive("n1", chunk_of(b"", snapshot_id))
    position = SnapshotPosition(term=4, digest=snapshot_id.digest, offset=0)
    sign_of_life = Acknowledgement(next_index=2, reset=False, success=False, term=4)
    assert ready.messages == [("n1", position), ("n1", sign_of_life)]
    assert ready.restored is None


def test_a_received_snapshot_is_decoded_in_ticks_and_then_restored(follower: Site) -> None:
    """While it is checked ticks are asked for; the message that installs it returns the decoded state."""
    members = members_of(THREE, learners=["n4"])
    data, snapshot_id = snapshot_of(follower.directory, encoded_members=member_list.encode(members))
    follower.follow(term=4)
    follower.replica.receive("n1", chunk_of(b"", snapshot_id))
    ready = follower.replica.receive("n1", chunk_of(data, snapshot_id))
    assert (ready.restored, ready.wants_tick) == (None, True)
    while ready.wants_tick:
        ready = follower.replica.tick(has_entry=False)
        assert ready.restored is None
    ready = follower.replica.receive("n1", chunk_of(b"", snapshot_id, is_last=True))
    assert ready.restored == ("decoded", b"the state")
    assert ready.are_members_changed
    assert follower.replica.membership.latest == members
    assert follower.replica.engine.silence_s("n4") == 0.0, "the library counts them from now on"
    assert (follower.journal.first_index, follower.journal.last_index) == (41, 42)
    assert follower.journal.committed == 42
    assert [follower.journal.term_at(index) for index in (40, 41, 42, 43)] == [None, 3, 3, None]
    sign_of_life = Acknowledgement(next_index=2, reset=False, success=False, term=4)
    told = [("n1", acknowledged(42, term=4)), ("n1", sign_of_life)]
    assert ready.promises == told, "the leader may count on the log that begins there, after a sync"
    follower.journal.sync()
    assert follower.journal.synced_index == 42
    assert follower.replica.tick(has_entry=False).committed == [], "the state contains all of it"


def test_a_snapshot_that_this_version_cannot_read_replaces_nothing(follower: Site) -> None:
    """A member list of a later version in it is reason enough."""
    data, snapshot_id = snapshot_of(follower.directory, encoded_members=b"\x93nonsense")
    follower.follow(term=4)
    for message in (chunk_of(b"", snapshot_id), chunk_of(data, snapshot_id)):
        follower.replica.receive("n1", message)
    for _ in range(10):
        follower.replica.tick(has_entry=False)
        assert follower.replica.receive("n1", chunk_of(b"", snapshot_id, is_last=True)).restored is None
    assert follower.journal.last_index == 1


def test_a_leader_sends_its_snapshot_to_who_needs_it(make: Callable[..., Site]) -> None:
    """An offer first; when the follower has told its position, the next tick sends what it lacks."""
    site = make(members=members_of(THREE))
    site.close()
    previous, last = (b"\x00previous", 41, 3), (b"\x00last", 42, 3)
    write_snapshot(site.directory / "snapshot", Snapshot(previous, last, b"the state"), Files())
    site = make(members=members_of(THREE))
    site.lead()
    wish = Acknowledgement(next_index=2, reset=True, success=False, term=site.replica.role.term)
    site.replica.receive("n2", wish)
    site.clock.now_s += 0.2
    offers = [message for peer_id, message in site.replica.tick(has_entry=False).messages if peer_id == "n2"]
    offer = offers[0]
    assert isinstance(offer, AppendEntries)
    assert isinstance(offer.chunk, Chunk)
    assert offer.chunk.is_offer
    position = SnapshotPosition(term=site.replica.role.term, digest=offer.chunk.id.digest, offset=0)
    ready = site.replica.receive("n2", position)
    assert ready.wants_tick
    sent = [message for peer_id, message in site.replica.tick(has_entry=False).messages if peer_id == "n2"]
    chunks = [message.chunk for message in sent if isinstance(message, AppendEntries)]
    data = b"".join(chunk.data for chunk in chunks if isinstance(chunk, Chunk))
    assert data == (site.directory / "snapshot").read_bytes()
