"""One replica, driven by hand: the Ready that each kind of message and each tick leads to.

There is nobody whom a replica could call: what it wants is in the value that it returns, or nowhere.
"""

from collections.abc import Callable

import msgspec
import pytest

from cluster.consensus.guards import GuardViolationError
from cluster.consensus.messages import (
    Acknowledgement,
    AppendEntries,
    NewerTerm,
    PreVoteGranted,
    PreVoteRequest,
    Vote,
    VoteRequest,
)
from cluster.consensus.replica import Role
from cluster.errors import NodeFailed
from tests.support.replica_parts import LibraryClock
from tests.unit.cluster.consensus.one_replica import Site, acknowledged, entries_for, is_empty, kinds

# -- a follower hears its leader ----------------------------------------------------------------------------


def test_a_new_leader_is_told_and_the_term_is_synced_before_the_answer(follower: Site) -> None:
    """The first heartbeat changes role and term; that this node is in the term waits for its disk."""
    ready = follower.replica.receive("n1", follower.append())
    assert ready.is_role_changed
    assert follower.replica.role == Role("n1", 1, is_leader=False, is_candidate=False)
    assert ready.promises == [("n1", acknowledged(1))]
    assert ready.messages == []
    assert ready.needs_sync


def test_a_heartbeat_is_answered_at_once(follower: Site) -> None:
    """It changes nothing, so there is nothing to sync, to tell or to tick for, however often it comes."""
    follower.follow()
    for _ in range(2):
        ready = follower.replica.receive("n1", follower.append())
        assert ready.messages == [("n1", acknowledged(1))]
        ready.messages = []
        assert is_empty(ready)


def test_entries_are_acknowledged_after_the_sync(follower: Site) -> None:
    """The acknowledgement is a promise; nothing is committed, applied or written by then."""
    follower.follow()
    ready = follower.replica.receive("n1", follower.append([1, 1]))
    assert ready.promises == [("n1", acknowledged(3))]
    assert (ready.messages, ready.committed, ready.needs_sync, ready.wants_tick) == ([], [], True, False)
    assert follower.journal.is_dirty, "the sync is the host's"


def test_repeated_entries_that_are_on_disk_are_acknowledged_at_once(follower: Site) -> None:
    """There is nothing to wait for; as long as they are not on disk they wait, too."""
    follower.follow()
    message = follower.append([1, 1])
    follower.replica.receive("n1", message)
    assert follower.replica.receive("n1", message).promises == [("n1", acknowledged(3))]
    follower.journal.sync()
    ready = follower.replica.receive("n1", message)
    assert ready.messages == [("n1", acknowledged(3))]
    assert not ready.needs_sync


def test_what_is_committed_is_handed_out_in_order_and_once(follower: Site) -> None:
    """News of a commit asks for a tick, which hands each command out with its index."""
    follower.follow()
    follower.replica.receive("n1", follower.append([1, 1, 1]))
    follower.journal.sync()
    ready = follower.replica.receive("n1", follower.append(commit=3))
    assert (ready.committed, ready.wants_tick) == ([], True)
    assert follower.replica.tick(has_entry=False).committed == [(2, b"2:1"), (3, b"3:1")]
    follower.replica.receive("n1", follower.append(commit=4))
    assert follower.replica.tick(has_entry=False).committed == [(4, b"4:1")]
    assert follower.replica.tick(has_entry=False).committed == []


def test_the_end_of_a_batch_can_be_committed_by_the_message_that_brought_it(follower: Site) -> None:
    """It is handed out before this copy is on disk: others have theirs there. What is promised waits."""
    follower.follow()
    ready = follower.replica.receive("n1", follower.append([1], commit=2))
    assert follower.journal.synced_index == 1
    assert ready.wants_tick
    assert kinds(ready.promises) == [("n1", Acknowledgement)]
    assert follower.replica.tick(has_entry=False).committed == [(2, b"2:1")]


def test_the_librarys_own_entries_are_not_for_the_state_machine(follower: Site) -> None:
    """What a new leader appends for itself is committed, and handed to nobody."""
    follower.follow()
    follower.replica.receive("n1", follower.append(contents=[b"\x01", b"\x00a command"]))
    follower.journal.sync()
    follower.replica.receive("n1", follower.append(commit=3))
    assert follower.replica.tick(has_entry=False).committed == [(3, b"a command")]


def test_missing_entries_are_asked_for(follower: Site) -> None:
    """A leader that is ahead of this log is told where to begin again; that promises nothing."""
    follower.follow()
    message = AppendEntries(term=1, commit_index=9, entries=[], previous_index=9, previous_term=1)
    ready = follower.replica.receive("n1", message)
    assert ready.messages == [("n1", Acknowledgement(next_index=2, reset=True, success=False, term=1))]
    assert not ready.wants_tick


def test_another_leaders_entries_replace_what_was_not_committed(follower: Site) -> None:
    """The log follows the newer leader; what was cut off is never handed out."""
    follower.follow("n1", term=1)
    place = follower.append([2, 2], term=2)
    follower.replica.receive("n1", follower.append([1, 1, 1]))
    follower.journal.sync()
    ready = follower.replica.receive("n3", place)
    assert ready.is_role_changed
    assert ready.promises == [("n3", acknowledged(3, term=2))]
    follower.journal.sync()
    follower.replica.receive("n3", follower.append(term=2, commit=3))
    assert follower.replica.tick(has_entry=False).committed == [(2, b"2:2"), (3, b"3:2")]


def test_a_leader_that_would_change_what_is_committed_changes_nothing(follower: Site) -> None:
    """No correct leader does that. One that is not correct stops nobody, however often it says so."""
    follower.follow()
    place = follower.append([2], term=2)
    follower.replica.receive("n1", follower.append([1], commit=2))
    before = follower.journal[:]
    for _ in range(3):
        with pytest.raises(GuardViolationError, match="entry 2 is committed here"):
            follower.replica.receive("n3", place)
    assert follower.journal[:] == before
    assert (follower.replica.engine.term, follower.replica.role.leader_id) == (1, "n1")
    assert follower.replica.receive("n1", follower.append()).messages or follower.journal.is_dirty


def test_a_majority_that_has_another_history_ends_this_node(follower: Site) -> None:
    """Two of three say so, each as a leader: it is this node's disk that is wrong."""
    follower.follow()
    place = follower.append([2], term=2)
    follower.replica.receive("n1", follower.append([1], commit=2))
    with pytest.raises(GuardViolationError):
        follower.replica.receive("n3", place)
    with pytest.raises(
        NodeFailed, match="nodes n1, n3, a majority, have other entries committed than this node"
    ):
        follower.replica.receive("n1", msgspec.structs.replace(place, term=3))


def test_who_agrees_again_does_not_contradict(follower: Site) -> None:
    """A peer that was broken and is not any more: its word of before counts no longer."""
    follower.follow()
    place = follower.append([2], term=2)
    follower.replica.receive("n1", follower.append([1], commit=2))
    with pytest.raises(GuardViolationError):
        follower.replica.receive("n3", place)
    follower.replica.receive("n3", follower.append(term=2, commit=2))
    with pytest.raises(GuardViolationError):
        follower.replica.receive("n1", msgspec.structs.replace(place, term=3))


def test_of_two_leaders_in_one_term_neither_leads_on(leader: Site, caplog: pytest.LogCaptureFixture) -> None:
    """The one that notices moves to a newer term, and tells the other of it when that speaks again."""
    message = AppendEntries(term=1, commit_index=1)
    ready = leader.replica.receive("n2", message)
    assert ready.is_role_changed
    assert leader.replica.role == Role(None, 2, is_leader=False, is_candidate=False)
    assert "event=two-leaders peer=n2" in caplog.text
    leader.journal.sync()
    assert leader.replica.receive("n2", message).messages == [("n2", NewerTerm(term=2))]


# -- commit notices -----------------------------------------------------------------------------------------


@pytest.fixture
def told(follower: Site) -> Site:
    """Return a follower whose leader knows that it has entries 2 and 3 on disk."""
    follower.follow()
    follower.replica.receive("n1", follower.append([1, 1]))
    follower.journal.sync()
    return follower


def test_a_commit_notice_that_tells_nothing_new_is_not_acknowledged(told: Site) -> None:
    """The leader knows already what this node has: an answer would only cost both of them time."""
    ready = told.replica.receive("n1", told.append(commit=3))
    assert (ready.messages, ready.promises, ready.wants_tick) == ([], [], True)


def test_a_heartbeat_is_acknowledged_however_often_it_comes(told: Site) -> None:
    """The leader counts who hears it; the same commit index for the second time is a heartbeat."""
    told.replica.receive("n1", told.append(commit=3))
    for _ in range(2):
        ready = told.replica.receive("n1", told.append(commit=3))
        assert ready.messages == [("n1", acknowledged(3))]


def test_a_broken_connection_forgets_what_was_acknowledged(told: Site) -> None:
    """What was on its way may be lost: the next commit notice is answered again."""
    told.replica.peer_down("n1")
    told.replica.peer_up("n1")
    ready = told.replica.receive("n1", told.append(commit=3))
    assert ready.messages == [("n1", acknowledged(3))]


def test_another_peers_connection_forgets_nothing(told: Site) -> None:
    """Only what went to that peer may be lost with its connection."""
    told.replica.peer_down("n3")
    assert told.replica.receive("n1", told.append(commit=3)).messages == []


def test_a_commit_notice_of_another_leader_is_acknowledged(told: Site) -> None:
    """The new leader does not know yet what this node has."""
    told.replica.receive("n3", told.append(term=2))
    told.replica.peer_down("n3")
    told.replica.peer_up("n3")
    told.journal.sync()
    ready = told.replica.receive("n3", told.append(term=2, commit=3))
    assert ready.messages == [("n3", acknowledged(3, term=2))]


# -- terms, votes, elections --------------------------------------------------------------------------------


def test_a_vote_is_a_promise_and_given_once_in_a_term(follower: Site, clock: LibraryClock) -> None:
    """It leaves when it is on disk; in the same term there is no other one, in a later term there is."""
    clock.now_s += 2
    ready = follower.replica.receive("n3", follower.vote_request(1))
    assert ready.promises == [("n3", Vote(term=1))]
    assert (ready.messages, ready.needs_sync, ready.is_role_changed) == ([], True, True)
    follower.journal.sync()
    assert is_empty(follower.replica.receive("n1", follower.vote_request(1)))
    assert follower.replica.receive("n1", follower.vote_request(2)).promises == [("n1", Vote(term=2))]


def test_a_vote_is_remembered_by_the_disk(make: Callable[..., Site], clock: LibraryClock) -> None:
    """A node that has voted, and starts again, votes for nobody else in that term."""
    first = make("n2")
    clock.now_s += 2
    first.replica.receive("n3", first.vote_request(1))
    first.close()
    again = make("n2")
    clock.now_s += 2
    assert again.replica.receive("n1", again.vote_request(1)).promises == []


def test_a_living_leader_is_not_voted_out(follower: Site) -> None:
    """Without a reason a candidate changes nothing here, not even the term; one the leader sent does."""
    follower.follow()
    assert is_empty(follower.replica.receive("n3", follower.vote_request(2)))
    ready = follower.replica.receive("n3", follower.vote_request(2, transfer=True))
    assert ready.promises == [("n3", Vote(term=2))]


def test_an_election_begins_with_questions(follower: Site, clock: LibraryClock) -> None:
    """When its patience ends a node asks who would vote for it; it stays in its term, and writes nothing."""
    clock.now_s += 2
    ready = follower.replica.tick(has_entry=False)
    request = PreVoteRequest(term=1, last_log_index=1, last_log_term=0)
    assert ready.messages == [("n1", request), ("n3", request)]
    assert (ready.promises, ready.is_role_changed) == ([], False)
    assert not follower.journal.is_dirty
    assert follower.replica.role.term == 0


def test_a_yes_of_a_majority_leads_to_a_candidacy(follower: Site, clock: LibraryClock) -> None:
    """The next tick raises the term and asks for votes, which are promises: the own vote is among them."""
    clock.now_s += 2
    follower.replica.tick(has_entry=False)
    ready = follower.replica.receive("n3", PreVoteGranted(term=1))
    assert ready.wants_tick
    ready = follower.replica.tick(has_entry=False)
    assert sorted(kinds(ready.promises)) == [("n1", VoteRequest), ("n3", VoteRequest)]
    assert (ready.messages, ready.needs_sync, ready.is_role_changed) == ([], True, True)
    assert follower.replica.role == Role(None, 1, is_leader=False, is_candidate=True)


def test_who_is_not_connected_is_not_asked_for_a_vote(follower: Site, clock: LibraryClock) -> None:
    """The library would ask everybody; what would wait for a connection could come too late."""
    clock.now_s += 2
    follower.replica.tick(has_entry=False)
    follower.replica.receive("n3", PreVoteGranted(term=1))
    follower.replica.peer_down("n1")
    assert kinds(follower.replica.tick(has_entry=False).promises) == [("n3", VoteRequest)]


def test_the_votes_of_a_majority_make_a_leader(follower: Site) -> None:
    """It says so to everybody with an entry of its term, ahead of its own sync."""
    ready = follower.lead()
    assert ready.is_role_changed
    assert follower.replica.role == Role("n2", 1, is_leader=True, is_candidate=False)
    for peer_id in ("n1", "n3"):
        assert entries_for(peer_id, ready.messages) == [(b"\x01", 2, 1)]
    assert ready.promises == []
    assert ready.needs_sync


def test_a_pre_vote_is_answered_without_a_promise(follower: Site, clock: LibraryClock) -> None:
    """A yes changes nothing here; to a sender that is behind, the newer term is told."""
    clock.now_s += 2
    request = PreVoteRequest(term=1, last_log_index=1, last_log_term=0)
    ready = follower.replica.receive("n3", request)
    assert ready.messages == [("n3", PreVoteGranted(term=1))]
    ready.messages = []
    assert is_empty(ready)
    follower.follow(term=5)
    assert follower.replica.receive("n3", request).messages == [("n3", NewerTerm(term=5))]


def test_an_older_term_is_told_of_the_newer_one(follower: Site) -> None:
    """A deposed leader that knows nothing of it yet is not followed, and hears why."""
    follower.follow("n1", term=3)
    ready = follower.replica.receive("n3", follower.append([2], term=2))
    assert ready.messages == [("n3", NewerTerm(term=3))]
    assert follower.replica.role.leader_id == "n1"
    assert not ready.needs_sync


def test_a_leader_that_hears_of_a_newer_term_steps_down(leader: Site) -> None:
    """It adopts the term, and has it written; an old one changes nothing."""
    assert is_empty(leader.replica.receive("n2", NewerTerm(term=1)))
    ready = leader.replica.receive("n2", NewerTerm(term=7))
    assert (ready.is_role_changed, ready.needs_sync) == (True, True)
    assert leader.replica.role == Role(None, 7, is_leader=False, is_candidate=False)
    assert leader.journal.term == 7


def test_a_leader_that_nobody_answers_steps_down(leader: Site, clock: LibraryClock) -> None:
    """Cut off from the majority it does not lead any more, and says so to its clients' side."""
    clock.now_s += 0.9
    assert not leader.replica.tick(has_entry=False).is_role_changed
    clock.now_s += 0.2
    assert leader.replica.tick(has_entry=False).is_role_changed
    assert not leader.replica.role.is_leader


def test_the_loss_of_the_leader_begins_an_election_soon(follower: Site, clock: LibraryClock) -> None:
    """A broken connection to the leader is not waited out; one to another peer means nothing."""
    follower.follow()
    follower.replica.peer_down("n3")
    clock.now_s += 0.3
    assert follower.replica.tick(has_entry=False).messages == []
    follower.replica.peer_up("n3")
    follower.replica.peer_down("n1")
    clock.now_s += 0.3
    assert kinds(follower.replica.tick(has_entry=False).messages) == [("n3", PreVoteRequest)]
