"""The library behind typed words: what it says is collected, what it would ask for is told beforehand."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import msgspec
import pytest

from cluster.consensus import compaction
from cluster.consensus import library as library_module
from cluster.consensus.engine import Engine
from cluster.consensus.library import NEWS_S
from cluster.consensus.library_words import EngineJournal
from cluster.consensus.messages import UNSET, Acknowledgement, AppendEntries, NewerTerm, TakeOver, VoteRequest
from tests.support.replica_parts import LibraryClock, ReplicaConfig
from tests.unit.cluster.consensus.one_replica import (
    COMMAND,
    FOUR,
    MEMBERS,
    Site,
    acknowledged,
    entries_for,
    kinds,
    members_of,
)

# -- what it knows ------------------------------------------------------------------------------------------


def test_a_new_log_begins_with_an_entry_of_nobody(tmp_path: Path) -> None:
    """It is committed and applied on every node: what is to be agreed on comes behind it."""
    journal = EngineJournal.open(tmp_path)
    engine = Engine(ReplicaConfig("n1"), journal, lambda _: 0, applied_index=1)
    assert (journal.first_index, journal.last_index) == (1, 1)
    assert (engine.commit_index, engine.applied_index, engine.term) == (1, 1, 0)
    assert [engine.leader_id, engine.is_leader, engine.is_candidate] == [None, False, False]
    assert not engine.has_work
    journal.close()


def test_nothing_of_the_library_stays_replaced(follower: Site) -> None:
    """Its module is as it was once an engine is made: hazards run the bare library in the same process."""
    module = vars(library_module)["syncobj"]
    assert follower.journal is not module.createJournal(None)
    assert module.PIPE_NOTIFIER_ENABLED is not False


def test_what_it_knows_is_of_the_end_of_the_last_call(follower: Site) -> None:
    """Leader, term and commit index are plain values, read once behind every call."""
    engine = follower.replica.engine
    engine.receive("n1", follower.append([3, 3], term=3, commit=2))
    assert (engine.leader_id, engine.term, engine.commit_index, engine.applied_index) == ("n1", 3, 2, 1)
    engine.tick()
    assert engine.applied_index == 2


def test_there_is_work_while_something_can_be_committed_applied_or_taken_over(
    follower: Site, leader: Site
) -> None:
    """A message that leads to any of that is followed by a tick."""
    engine, work = follower.replica.engine, []
    engine.receive("n1", follower.append([1]))
    work.append(engine.has_work)
    engine.receive("n1", follower.append(commit=2))
    work.append(engine.has_work)
    engine.tick()
    work.append(engine.has_work)
    engine.receive("n1", TakeOver(term=1))
    work.append(engine.has_work)
    engine.forget_takeover()
    work.append(engine.has_work)
    assert work == [False, True, False, True, False]
    leader.propose(b"one")
    leader.replica.engine.receive("n2", acknowledged(leader.journal.last_index))
    assert not leader.replica.engine.has_work, "the leader's own copy is not on disk yet"
    leader.journal.sync()
    assert leader.replica.engine.has_work


def test_marks_tell_entries_apart() -> None:
    """A command, a member list, and what the library appends for itself."""
    assert (Engine.command_in(COMMAND + b"x"), Engine.members_in(COMMAND + b"x")) == (b"x", None)
    assert (Engine.command_in(MEMBERS + b"x"), Engine.members_in(MEMBERS + b"x")) == (None, b"x")
    assert (Engine.command_in(b"\x01"), Engine.members_in(b"\x01")) == (None, None)


def test_the_newest_command_is_found_behind_other_entries(follower: Site) -> None:
    """Committed or not: a new leader's clock goes on from its time."""
    engine = follower.replica.engine
    assert engine.newest_command() is None
    contents = [COMMAND + b"one", COMMAND + b"two", MEMBERS + b"list", b"\x01"]
    engine.receive("n1", follower.append(contents=contents))
    assert engine.newest_command() == b"two"


def test_entries_outside_of_the_log_are_not_there(follower: Site) -> None:
    """Neither behind its end nor before its beginning."""
    follower.follow()
    follower.replica.receive("n1", follower.append([1, 1]))
    engine = follower.replica.engine
    assert [index for _, index, _ in engine.entries(2, 9)] == [2, 3]
    assert engine.entries(0, 2) == []
    assert engine.entries(4, 9) == []


# -- what it collects ---------------------------------------------------------------------------------------


def test_what_is_to_be_sent_is_taken_once(leader: Site) -> None:
    """A call collects; nobody hears anything before the host takes it."""
    engine = leader.replica.engine
    engine.append(b"one")
    assert sorted(kinds(engine.take_sent())) == [("n2", AppendEntries), ("n3", AppendEntries)]
    assert engine.take_sent() == []


def test_what_is_committed_is_collected_in_order(leader: Site) -> None:
    """The tick hands nothing to a state machine; the replica takes what is there."""
    engine = leader.replica.engine
    engine.append(b"one")
    engine.append(b"two")
    leader.journal.sync()
    engine.receive("n2", acknowledged(4))
    engine.tick()
    assert [(content, index) for content, index, _ in engine.committed] == [
        (COMMAND + b"one", 3),
        (COMMAND + b"two", 4),
    ]
    engine.tick()
    assert len(engine.committed) == 2


def test_entries_are_left_out_where_there_is_no_room(leader: Site) -> None:
    """As if they got lost: the peer asks for them; a message without any passes, whatever waits."""
    engine = leader.replica.engine
    leader.room_bytes = 0
    engine.append(b"one")
    assert entries_for("n2", engine.take_sent()) == []
    engine.send_entries()
    assert sorted(kinds(engine.take_sent())) == [("n2", AppendEntries), ("n3", AppendEntries)]
    leader.room_bytes = 1_000_000
    engine.receive("n2", Acknowledgement(next_index=3, reset=True, success=False, term=1))
    engine.send_entries()
    assert [index for _, index, _ in entries_for("n2", engine.take_sent())] == [3]


def test_what_was_collected_takes_room(leader: Site) -> None:
    """Until it is handed to the links, which count it from then on."""
    engine = leader.replica.engine
    leader.room_bytes = 100
    engine.append(b"x" * 150)
    assert not engine.has_room("n2")
    engine.take_sent()
    assert engine.has_room("n2")


def test_a_compaction_keeps_a_tail(make: Callable[..., Site]) -> None:
    """Who was away briefly needs no snapshot: a quarter of the entries between two snapshots stays."""
    site = make("n1", members=members_of(["n1"]), compact_entries=8)
    site.replica.tick(has_entry=False)
    for number in range(12):
        site.journal.add(b"%d" % number, site.journal.last_index + 1, 1)
    assert site.replica.engine.retained_from(10) == 8
    assert site.replica.engine.retained_from(2) == 1


def test_a_long_log_is_compacted_whatever_its_count(
    make: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes take memory: above a bound the next tick says that a snapshot is due."""
    monkeypatch.setattr(compaction, "LOG_BYTES_MAX", 1_000)
    site = make("n1", members=members_of(["n1"]))
    site.replica.tick(has_entry=False)
    site.journal.sync()
    site.replica.tick(has_entry=False)
    due = []
    for _ in range(3):
        readies = [site.propose(b"x" * 600)]
        site.journal.sync()
        readies.append(site.replica.tick(has_entry=False))
        due.append(any(ready.snapshot is not None for ready in readies))
    assert due[0] is False
    assert any(due)


# -- what drives it -----------------------------------------------------------------------------------------


def test_it_stands_only_if_that_was_agreed_to(follower: Site, clock: LibraryClock) -> None:
    """H11: the end of its patience alone is not enough for the library."""
    engine = follower.replica.engine
    clock.now_s += 2
    engine.tick()
    before = engine.is_candidate
    engine.may_stand = True
    engine.tick()
    assert (before, engine.is_candidate, engine.term) == (False, True, 1)
    requests = [message for _, message in engine.take_sent()]
    assert requests == [VoteRequest(term=1, last_log_index=1, last_log_term=0)] * 2


def test_a_newer_term_is_adopted_without_a_vote(leader: Site) -> None:
    """The leader steps down; its vote in that term is still free."""
    engine = leader.replica.engine
    engine.adopt_term("n2", 7)
    assert (engine.is_leader, engine.leader_id, engine.term) == (False, None, 7)
    assert (leader.journal.term, leader.journal.voted_for) == (7, None)
    assert engine.take_sent() == []


def test_news_of_a_commit_wait_for_the_next_entry(leader: Site) -> None:
    """When something is about to be proposed the tick sends no notice; it travels with the entry."""
    engine = leader.replica.engine
    sent = []
    for has_proposal in (True, False):
        engine.append(b"one")
        leader.journal.sync()
        engine.receive("n2", acknowledged(leader.journal.last_index))
        engine.take_sent()
        engine.has_proposal = has_proposal
        engine.tick()
        sent.append(len(engine.take_sent()))
    assert sent == [0, 2]


@pytest.mark.parametrize("comes", [True, False])
def test_a_heartbeat_that_is_due_is_in_the_entry_behind_the_tick(leader: Site, *, comes: bool) -> None:
    """One message for each peer; if no entry comes after all, the heartbeat does."""
    replica, entries = leader.replica, [b"one"] if comes else []
    replica.tick(has_entry=False)
    leader.clock.now_s += 0.11
    assert replica.tick(has_entry=True).messages == []
    sent = replica.propose(iter(entries)).messages
    assert kinds(sent) == [("n2", AppendEntries), ("n3", AppendEntries)]
    assert len(entries_for("n2", sent)) == len(entries)
    assert replica.tick(has_entry=False).messages == []


def test_a_heartbeat_that_is_due_does_not_wait_for_what_is_applied(leader: Site) -> None:
    """Between the tick and the entry behind it the host applies what the tick handed out."""
    leader.propose(b"one")
    leader.acknowledge("n2", "n3")
    leader.clock.now_s += 0.11
    ready = leader.replica.tick(has_entry=True)
    assert ready.committed == [(3, b"one")]
    assert kinds(ready.messages) == [("n2", AppendEntries), ("n3", AppendEntries)]


def test_who_does_not_lead_sends_nothing_that_is_due(follower: Site) -> None:
    """Also if it proposes nothing because it leads no more."""
    follower.follow()
    follower.clock.now_s += 0.11
    follower.replica.engine.send_due()
    assert follower.replica.engine.take_sent() == []


def committed(leader: Site, *acknowledgements: tuple[str, bool]) -> None:
    """Commit an entry of the leader, acknowledged by peers that may wait for news or not."""
    engine = leader.replica.engine
    engine.append(b"one")
    leader.journal.sync()
    for peer_id, may_wait in acknowledgements:
        message = acknowledged(leader.journal.last_index)
        engine.receive(peer_id, msgspec.structs.replace(message, may_wait=may_wait or UNSET))
    engine.take_sent()
    engine.tick()


def told(leader: Site) -> list[str]:
    """Return whom the leader has told since that everything is committed."""
    index = leader.replica.engine.commit_index
    sent = leader.replica.engine.take_sent()
    return [peer for peer, message in sent if cast("AppendEntries", message).commit_index == index]


def test_who_does_not_wait_hears_of_a_commit_a_little_later(leader: Site, clock: LibraryClock) -> None:
    """Only peers for which somebody waits are told at once, the others in a tick that is asked for."""
    engine = leader.replica.engine
    assert engine.news_due_in_s() is None
    committed(leader, ("n2", True), ("n3", False))
    assert told(leader) == ["n3"]
    assert engine.news_due_in_s() == pytest.approx(NEWS_S)
    clock.now_s += NEWS_S / 2
    engine.tick()
    assert told(leader) == []
    assert engine.news_due_in_s() == pytest.approx(NEWS_S / 2)
    clock.now_s += NEWS_S / 2 + 1e-9
    engine.tick()
    assert (told(leader), engine.news_due_in_s()) == (["n2", "n3"], None)


def test_the_next_entry_tells_of_a_commit_too(leader: Site) -> None:
    """Nothing is due behind it."""
    engine = leader.replica.engine
    committed(leader, ("n2", True), ("n3", True))
    assert told(leader) == []
    engine.append(b"two")
    assert (told(leader), engine.news_due_in_s()) == (["n2", "n3"], None)


def test_who_begins_to_wait_is_told_at_once(leader: Site) -> None:
    """An acknowledgement that says that somebody waits is work for a tick, if there are news."""
    engine = leader.replica.engine
    committed(leader, ("n2", True), ("n3", True))
    engine.receive("n3", acknowledged(leader.journal.last_index))
    assert engine.has_work
    engine.tick()
    assert (told(leader), engine.news_due_in_s(), engine.has_work) == (["n2", "n3"], None, False)
    engine.receive("n3", acknowledged(leader.journal.last_index))
    assert not engine.has_work


@pytest.mark.parametrize("appended", [("list",), ("list", "command"), ("command", "list")], ids="-".join)
def test_a_change_of_members_is_news_for_all(leader: Site, appended: Sequence[str]) -> None:
    """Whoever is told nothing more afterwards must have heard of it, whatever is committed beside it."""
    engine = leader.replica.engine
    committed(leader, ("n2", True), ("n3", True))
    for what in appended:
        if what == "list":
            engine.append_members(b"list")
        else:
            engine.append(b"two")
    engine.send_entries()
    leader.journal.sync()
    message = msgspec.structs.replace(acknowledged(leader.journal.last_index), may_wait=True)
    engine.receive("n2", message)
    engine.take_sent()
    engine.tick()
    assert told(leader) == ["n2", "n3"]


def test_nothing_is_due_any_more_when_another_leads(leader: Site) -> None:
    """The news are the next leader's."""
    engine = leader.replica.engine
    committed(leader, ("n2", True), ("n3", True))
    engine.adopt_term("n2", 7)
    engine.tick()
    assert (engine.news_due_in_s(), engine.has_work) == (None, False)


@pytest.mark.parametrize("may_wait", [True, False])
def test_a_follower_says_whether_anybody_waits(follower: Site, may_wait: bool) -> None:  # noqa: FBT001
    """In what it answers to entries, and to heartbeats."""
    follower.follow()
    follower.replica.engine.may_wait = lambda: may_wait
    for message in (follower.append([1]), follower.append()):
        ready = follower.replica.receive("n1", message)
        follower.journal.sync()
        ((_, answer),) = ready.promises or ready.messages
        assert cast("Acknowledgement", answer).may_wait is (may_wait or UNSET)


def test_a_peer_can_be_left_alone_until_it_asks(leader: Site) -> None:
    """A pause makes the library believe that it has all; to resume, what it has not acknowledged is sent."""
    engine = leader.replica.engine
    leader.room_bytes = 0
    engine.append(b"one")
    engine.pause_sending("n2")
    leader.room_bytes = 1_000_000
    engine.take_sent()
    engine.send_entries()
    assert entries_for("n2", engine.take_sent()) == []
    engine.resume_sending("n2")
    engine.send_entries()
    assert [index for _, index, _ in entries_for("n2", engine.take_sent())] == [3]


# -- members ------------------------------------------------------------------------------------------------


def test_learners_get_the_log_and_count_for_nothing(make: Callable[..., Site]) -> None:
    """Their acknowledgement commits nothing; that of one of two other voters does."""
    site = make("n1", members=FOUR)
    site.lead()
    site.commit()
    engine = site.replica.engine
    engine.append(b"one")
    index = site.journal.last_index
    site.journal.sync()
    assert [entry[1] for entry in entries_for("n4", engine.take_sent())] == [index]
    committed = []
    for peer_id in ("n4", "n2"):
        engine.receive(peer_id, acknowledged(index))
        engine.tick()
        committed.append(engine.commit_index == index)
    assert committed == [False, True]
    assert engine.match_index("n4") == index


def test_a_removed_peer_is_forgotten(leader: Site) -> None:
    """What it had, and when it answered, does not come back with its id."""
    engine = leader.replica.engine
    assert engine.match_index("n3") == leader.journal.last_index
    engine.set_members({"n2"}, set())
    assert (engine.match_index("n3"), engine.silence_s("n3")) == (0, float("inf"))
    engine.set_members({"n2", "n3"}, set())
    assert engine.match_index("n3") == 0
    assert engine.silence_s("n3") == 0.0


def test_silence_is_counted_from_the_last_answer(leader: Site, clock: LibraryClock) -> None:
    """Whatever the answer says, it is a sign of life."""
    engine = leader.replica.engine
    clock.now_s += 0.5
    assert engine.silence_s("n2") == pytest.approx(0.5)
    engine.receive("n2", Acknowledgement(next_index=1, reset=False, success=False, term=1))
    assert engine.silence_s("n2") == 0.0


def test_what_is_not_for_the_library_never_reaches_it(leader: Site) -> None:
    """Our own messages end in the replica: to hand one on is a mistake of ours."""
    with pytest.raises(AssertionError, match="NewerTerm"):
        leader.replica.engine.receive("n2", NewerTerm(term=9))


@pytest.mark.parametrize(("voter", "learner", "place"), [("n2", "n3", 0), ("n0", "n2", 1), ("m1", "n0", 2)])
def test_who_comes_first_by_its_name_writes_first(
    make: Callable[..., Site], voter: str, learner: str, place: int
) -> None:
    """An eighth of a log's length sooner or later than who is in the middle. A learner has a place, too."""
    site = make("n1", members=members_of(["n1", voter], learners=[learner]))
    site.replica.receive(voter, site.append([1]))
    engine, eighths = site.replica.engine, 0
    while engine.snapshot_due is None:
        engine.hand_out([(COMMAND + bytes(compaction.REPLAYED_BYTES // 8), 2, 1)])
        engine.compact(2, engine.now_s())
        eighths += 1
    assert eighths == 7 + place
