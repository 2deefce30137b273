"""What a leader sends, and when it leads no more: our methods in the library's object."""

from collections.abc import Callable

import pytest

from cluster.consensus import library
from cluster.consensus.messages import UNSET, AppendEntries, Chunk, VoteRequest
from cluster.storage.snapshot_format import SnapshotId
from tests.support.replica_parts import LibraryClock
from tests.unit.cluster.consensus.one_replica import COMMAND, FOUR, Site, acknowledged, members_of

ENTRY_BYTES = len(COMMAND + b"x" * 99)


def sent_to(site: Site, peer_id: str) -> list[AppendEntries]:
    """Take what was collected, and return what a peer is sent as a follower."""
    sent = site.replica.engine.take_sent()
    return [message for to, message in sent if to == peer_id and isinstance(message, AppendEntries)]


class Parts:
    """The snapshots of a node, as far as the library asks for them."""

    def __init__(self, site: Site, *parts: Chunk | None) -> None:
        self.parts = list(parts)
        self.stopped: list[str] = []
        self._site = site

    def next_chunk(self, peer_id: str) -> Chunk | None:
        """Return the next part for n2; the others get nothing."""
        part = self.parts.pop(0) if peer_id == "n2" and self.parts else None
        if part is None:
            self._site.replica.engine.pause_sending(peer_id)
        return part

    def take_chunk(self, chunk: Chunk) -> bool:
        """Take nothing."""
        raise AssertionError(chunk)

    def stop_sending_to(self, peer_id: str) -> None:
        """Record it."""
        self.stopped.append(peer_id)


# -- entries ------------------------------------------------------------------------------------------------


def test_a_message_names_the_place_before_its_entries(leader: Site) -> None:
    """Index, term and digest of the entry before the first one, and how far the leader has committed."""
    engine, journal = leader.replica.engine, leader.journal
    before = journal.last_index
    engine.append(b"one")
    [message] = sent_to(leader, "n2")
    assert message.entries == [(COMMAND + b"one", before + 1, 1)]
    assert (message.previous_index, message.previous_term) == (before, journal.term_at(before))
    assert message.previous_digest == journal.digest_at(before) is not None
    assert (message.term, message.commit_index) == (1, engine.commit_index)


def test_who_has_all_gets_a_heartbeat_at_the_end_of_the_log(leader: Site) -> None:
    """It names the newest entry and brings none."""
    engine = leader.replica.engine
    engine.send_entries()
    [message] = sent_to(leader, "n2")
    assert (message.entries, message.previous_index) == ([], leader.journal.last_index)


def test_many_entries_are_sent_in_messages_of_bounded_size(
    leader: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message is full with the entry that reaches the bound; together they are the log, without a gap."""
    monkeypatch.setattr(library, "SPLIT_BYTES", 2 * ENTRY_BYTES + 1)
    engine = leader.replica.engine
    leader.room_bytes = 0
    first = leader.journal.last_index + 1
    for _ in range(7):
        engine.append(b"x" * 99)
    leader.room_bytes = 1_000_000
    engine.take_sent()
    engine.resume_sending("n2")
    engine.send_entries()
    messages = sent_to(leader, "n2")
    assert [[index - first for _, index, _ in message.entries or ()] for message in messages] == [
        [0, 1, 2],
        [3, 4, 5],
        [6],
    ]
    assert [message.previous_index for message in messages] == [first - 1, first + 2, first + 5]


def test_sending_a_long_log_ends_after_the_time_of_a_heartbeat(
    leader: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else would hear of the leader meanwhile; the next time it goes on where it was."""
    engine = leader.replica.engine
    leader.room_bytes = 0
    for _ in range(4):
        engine.append(b"x" * 99)
    leader.room_bytes = 1_000_000
    engine.take_sent()
    engine.resume_sending("n2")
    monkeypatch.setattr(library, "SPLIT_BYTES", 1)
    leader.clock._reading_s = 0.06
    engine.send_entries()
    begun = [message.entries for message in sent_to(leader, "n2")]
    assert len(begun) == 2
    leader.clock._reading_s = 0.0
    engine.send_entries()
    rest = [message.entries for message in sent_to(leader, "n2")]
    assert [entry for entries in [*begun, *rest] for entry in entries or ()] == leader.journal[-4:]


def test_who_is_taken_to_be_ahead_is_sent_nothing(leader: Site) -> None:
    """There is no place to name behind the end of the log."""
    engine = leader.replica.engine
    engine.library.send_from("n2", leader.journal.last_index + 2)
    engine.send_entries()
    assert sent_to(leader, "n2") == []


def test_who_is_not_connected_is_sent_nothing(leader: Site) -> None:
    """And the transfer of a snapshot to it is interrupted."""
    engine, parts = leader.replica.engine, Parts(leader)
    engine.library.use_snapshots(parts)
    engine.disconnected("n3")
    engine.append(b"one")
    sent = engine.take_sent()
    assert [peer_id for peer_id, _ in sent] == ["n2"]
    assert parts.stopped == ["n3"]


def test_an_unknown_digest_is_left_out(leader: Site) -> None:
    """As behind the snapshot of an earlier release: nothing is compared then."""
    engine = leader.replica.engine
    leader.journal._digest_values[-1] = None
    engine.append(b"one")
    [message] = sent_to(leader, "n2")
    assert message.previous_digest is UNSET


# -- snapshots ----------------------------------------------------------------------------------------------


def test_who_lacks_the_beginning_gets_the_snapshot_and_then_the_log(leader: Site) -> None:
    """All its parts at once, with the digest where it ends; the log goes on behind its two last entries."""
    engine, journal = leader.replica.engine, leader.journal
    for number in range(4):
        engine.append(b"%d" % number)
    journal.remove_before(2)
    journal.sync()
    end = journal.first_index + 1
    snapshot = SnapshotId(end, 1, 4, b"digest")
    parts = Parts(leader, Chunk(b"ab", 0, False, snapshot), Chunk(b"cd", 2, True, snapshot))
    engine.library.use_snapshots(parts)
    engine.take_sent()
    engine.library.send_from("n2", journal.first_index)
    engine.send_entries()
    messages = sent_to(leader, "n2")
    assert [message.chunk for message in messages[:2]] == [
        Chunk(b"ab", 0, False, snapshot),
        Chunk(b"cd", 2, True, snapshot),
    ]
    assert {message.previous_digest for message in messages[:2]} == {journal.digest_at(end)}
    assert [index for _, index, _ in messages[2].entries or ()] == list(
        range(end + 1, journal.last_index + 1)
    )
    assert len(messages) == 3


def test_without_a_part_to_send_there_is_a_sign_of_life(leader: Site) -> None:
    """The snapshot is not ready, or the connection has no room: the follower hears of its leader."""
    engine = leader.replica.engine
    engine.library.use_snapshots(Parts(leader))
    engine.library.send_from("n2", leader.journal.first_index)
    engine.send_entries()
    [message] = sent_to(leader, "n2")
    assert (message.chunk, message.entries) == (None, UNSET)


# -- the tick -----------------------------------------------------------------------------------------------


def test_a_leader_speaks_once_in_a_heartbeat(leader: Site) -> None:
    """In an idle cluster; and again when the time of one has passed."""
    engine = leader.replica.engine
    engine.tick()
    engine.take_sent()
    counts = []
    for pause_s in (0.05, 0.06, 0.05, 0.06):
        leader.clock.now_s += pause_s
        engine.tick()
        counts.append(len(sent_to(leader, "n2")))
    assert counts == [0, 1, 0, 1]


def test_a_leader_that_nobody_answers_leads_no_more(leader: Site) -> None:
    """After the longest patience of a follower; one answer of the two is a majority with its own."""
    engine = leader.replica.engine
    leader.clock.now_s += 0.9
    engine.receive("n3", acknowledged(leader.journal.last_index))
    leader.clock.now_s += 0.9
    engine.tick()
    assert engine.is_leader
    leader.clock.now_s += 0.2
    engine.tick()
    assert (engine.is_leader, engine.leader_id, engine.is_candidate) == (False, None, False)


def test_what_learners_answer_keeps_nobody_leading(make: Callable[..., Site]) -> None:
    """They do not count for a majority."""
    site = make("n1", members=FOUR)
    site.lead()
    engine = site.replica.engine
    for _ in range(3):
        site.clock.now_s += 0.5
        engine.receive("n4", acknowledged(1))
    engine.tick()
    assert not engine.is_leader


def test_only_voters_are_asked_for_votes(make: Callable[..., Site]) -> None:
    """Each once, with the end of the log, and whether the leader wanted the election."""
    site = make("n1", members=FOUR)
    engine = site.replica.engine
    site.clock.now_s += 2
    engine.may_stand = True
    engine.tick()
    request = VoteRequest(term=1, last_log_index=1, last_log_term=0, transfer=False)
    assert engine.take_sent() == [("n2", request), ("n3", request)]
    assert (site.journal.term, site.journal.voted_for) == (1, "n1")


def test_who_votes_alone_leads_at_once_and_commits_behind_its_sync(make: Callable[..., Site]) -> None:
    """Nobody has to be asked; the first entry of the term counts when it is on the disk (H4)."""
    site = make("n1", members=members_of(["n1"]))
    engine = site.replica.engine
    engine.may_stand = True
    engine.tick()
    assert engine.is_leader
    assert (site.journal.last_index, engine.commit_index) == (2, 1)
    engine.tick()
    assert engine.commit_index == 1
    site.journal.sync()
    engine.tick()
    assert (engine.commit_index, engine.applied_index, site.journal.committed) == (2, 2, 2)


def test_the_journal_is_tidied_once_a_second(
    leader: Site, clock: LibraryClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it ticks, and once after a long pause."""
    times: list[float] = []
    monkeypatch.setattr(leader.journal, "tidy", lambda: times.append(clock.now_s))
    start_s = clock.now_s
    for _ in range(30):
        clock.now_s += 0.1
        leader.replica.engine.tick()
    clock.now_s += 60
    for _ in range(3):
        leader.replica.engine.tick()
    assert len(times) == 4
    assert times[-1] == pytest.approx(start_s + 63)


def test_only_entries_of_the_present_term_are_committed_by_being_counted(make: Callable[..., Site]) -> None:
    """Section 5.4.2 of the Raft paper: one of an earlier term, on all disks, may still be overwritten."""
    site = make("n1")
    engine = site.replica.engine
    site.replica.receive("n2", site.append([1, 1], term=1))
    site.journal.sync()
    of_before = site.journal.last_index
    site.lead()
    last = site.journal.last_index
    assert (engine.term, last) == (2, of_before + 1)
    for peer_id in ("n2", "n3"):
        engine.receive(peer_id, acknowledged(of_before, term=2))
    assert engine.library.committable_index() == 1
    engine.tick()
    assert engine.commit_index == 1
    engine.receive("n3", acknowledged(last, term=2))
    engine.tick()
    assert engine.commit_index == last


@pytest.mark.parametrize(("voters", "answering", "leads"), [(4, 1, False), (4, 2, True), (5, 2, True)])
def test_half_of_the_voters_is_no_majority(
    make: Callable[..., Site], voters: int, answering: int, *, leads: bool
) -> None:
    """Two of four could lead beside the two others: neither keeps a leader, nor commits."""
    node_ids = [f"n{number}" for number in range(1, voters + 1)]
    site = make("n1", members=members_of(node_ids))
    site.lead()
    engine = site.replica.engine
    site.clock.now_s += 2
    for peer_id in node_ids[1 : 1 + answering]:
        engine.receive(peer_id, acknowledged(site.journal.last_index))
    engine.tick()
    assert engine.is_leader == leads
    assert (engine.commit_index == site.journal.last_index) == leads


# -- what is known of the log -------------------------------------------------------------------------------


def test_what_is_known_to_be_committed_follows_every_way_it_becomes_known(follower: Site) -> None:
    """By a message, with entries or without, and by a restart."""
    assert follower.journal.committed == 1
    follower.replica.receive("n1", follower.append([1, 1], commit=2))
    assert follower.journal.committed == 2
    follower.replica.receive("n1", follower.append(commit=3))
    assert follower.journal.committed == 3
    follower.journal.sync()
    follower.close()
    again = Site(follower.directory, follower.clock)
    assert again.journal.committed == again.replica.engine.commit_index == 3
    again.close()
