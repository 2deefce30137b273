"""A replica that leads: what its proposals and the answers to them lead to."""

from collections.abc import Callable

import pytest

from cluster.consensus.messages import AppendEntries, NewerTerm, PreVoteRequest, TakeOver
from tests.support.replica_parts import LibraryClock
from tests.unit.cluster.consensus.one_replica import FOUR, Site, entries_for, extend, kinds, members_of


def test_a_proposal_travels_ahead_of_the_sync_and_is_not_committed_yet(leader: Site) -> None:
    """The followers' disks work while this one does."""
    ready = leader.propose(b"one")
    for peer_id in ("n2", "n3"):
        assert entries_for(peer_id, ready.messages) == [(b"\x00one", 3, 1)]
    assert (ready.promises, ready.committed, ready.needs_sync) == ([], [], True)


def test_the_next_proposal_waits_for_the_commit_of_the_one_before(leader: Site) -> None:
    """While an entry is under way no other is even asked for: what arrives meanwhile shares the next one."""
    asked = iter([b"one", b"two"])
    leader.replica.tick(has_entry=True)
    leader.replica.propose(asked)
    assert leader.replica.propose(asked).messages == []
    assert not leader.replica.may_propose
    assert next(asked) == b"two"


def test_a_majority_commits(leader: Site) -> None:
    """One follower's acknowledgement asks for a tick, which hands the entry out once, its own copy synced."""
    leader.propose(b"one")
    ready = leader.acknowledge("n2")
    assert (ready.committed, ready.wants_tick) == ([], True)
    ready = leader.replica.tick(has_entry=False)
    assert ready.committed == [(3, b"one")]
    assert leader.journal.synced_index == 3, "what is acknowledged to clients is on this disk, too"
    leader.acknowledge("n3")
    assert leader.replica.tick(has_entry=False).committed == []


def test_followers_hear_of_a_commit_at_once_or_with_the_next_entry(leader: Site) -> None:
    """Without a next entry each gets a notice; with one the news travels in it, and no message is spent."""
    leader.propose(b"one")
    leader.acknowledge("n2", "n3")
    notices = leader.replica.tick(has_entry=False).messages
    assert sorted(kinds(notices)) == [("n2", AppendEntries), ("n3", AppendEntries)]
    assert entries_for("n2", notices) == []
    leader.propose(b"two")
    leader.acknowledge("n2", "n3")
    ready = leader.propose(b"three")
    assert len(ready.messages) == 2
    assert entries_for("n2", ready.messages) == [(b"\x00three", 5, 1)]
    assert ready.committed == [(4, b"two")]


def test_who_does_not_lead_proposes_nothing(follower: Site, leader: Site) -> None:
    """Neither a follower nor a leader that hands leadership over asks for an entry."""
    follower.follow()
    leader.replica.is_proposing = False
    for site in (follower, leader):
        asked = iter([b"one"])
        site.replica.tick(has_entry=True)
        site.replica.propose(asked)
        assert next(asked) == b"one"


def test_a_lost_leadership_lets_proposals_begin_again_later(leader: Site) -> None:
    """A handover that succeeded must not keep this node silent when it leads again."""
    leader.replica.is_proposing = False
    leader.replica.receive("n2", NewerTerm(term=7))
    assert leader.replica.is_proposing


def test_a_peer_that_is_not_connected_is_sent_nothing(leader: Site) -> None:
    """What the library wants to send it is not in the value; others get theirs."""
    leader.replica.peer_down("n3")
    ready = leader.propose(b"one")
    assert {peer_id for peer_id, _ in ready.messages} == {"n2"}


def test_a_node_alone_commits_without_acknowledgements(make: Callable[..., Site]) -> None:
    """It leads at its first tick; what it proposes is committed when it is on its disk, not before."""
    site = make(members=members_of(["n1"]))
    assert site.replica.tick(has_entry=False).is_role_changed
    assert site.replica.role.is_leader
    site.journal.sync()
    site.replica.tick(has_entry=False)
    ready = site.propose(b"one")
    assert (ready.wants_tick, ready.needs_sync, ready.messages) == (False, True, [])
    assert site.replica.tick(has_entry=False).committed == []
    site.journal.sync()
    assert site.replica.engine.has_work
    ready = site.replica.tick(has_entry=False)
    assert ready.committed == [(3, b"one")]
    assert not ready.wants_tick


def test_a_restarted_node_hands_out_again_what_is_in_the_log(make: Callable[..., Site]) -> None:
    """The state machine begins empty, so it gets every committed command again, from the first on."""
    first = make(members=members_of(["n1"]))
    first.replica.tick(has_entry=False)
    for entry in (b"one", b"two"):
        first.journal.sync()
        first.propose(entry)
    first.close()
    again = make(members=members_of(["n1"]))
    assert again.replica.loaded_state is None
    ready = again.replica.tick(has_entry=False)
    again.journal.sync()
    extend(ready, again.replica.tick(has_entry=False))
    assert ready.committed == [(3, b"one"), (4, b"two")]


# -- what a leader knows of the others ----------------------------------------------------------------------


def test_the_most_caught_up_is_a_connected_voter(make: Callable[..., Site]) -> None:
    """Learners and who is not connected cannot take over."""
    site = make(members=FOUR)
    site.lead()
    site.commit(b"one", b"two")
    site.propose(b"three")
    site.acknowledge("n2", "n4")
    assert site.replica.most_caught_up() == "n2"
    assert site.replica.most_caught_up(lambda peer_id: peer_id != "n2") == "n3"
    site.replica.peer_down("n2")
    assert site.replica.most_caught_up() == "n3"
    site.replica.peer_down("n3")
    assert site.replica.most_caught_up() is None


def test_reachable_is_who_has_answered_lately(leader: Site, clock: LibraryClock) -> None:
    """A connection alone says nothing: the peer must have answered within the longest patience."""
    assert leader.replica.reachable() == {"n1", "n2", "n3"}
    clock.now_s += 0.9
    leader.acknowledge("n2")
    clock.now_s += 0.9
    assert leader.replica.reachable() == {"n1", "n2"}
    leader.replica.peer_down("n2")
    assert leader.replica.reachable() == {"n1"}


@pytest.mark.parametrize("is_replaced", [False, True])
def test_who_is_connected_again_hears_of_the_leader_at_once(leader: Site, *, is_replaced: bool) -> None:
    """Once. What was on its way may be lost: until the next heartbeat nobody would find out."""
    leader.commit(b"one")
    leader.replica.peer_down("n2", is_replaced=is_replaced)
    assert leader.replica.peer_up("n2"), "a tick is wanted"
    ready = leader.replica.tick(has_entry=False)
    assert kinds(ready.messages) == [("n2", AppendEntries), ("n3", AppendEntries)]
    assert entries_for("n2", ready.messages) == []
    assert leader.replica.tick(has_entry=False).messages == []


def test_a_follower_ticks_for_no_connection(make: Callable[..., Site]) -> None:
    """It has nothing to send."""
    site = make("n2")
    site.follow("n1")
    site.replica.peer_down("n1")
    assert not site.replica.peer_up("n1")


def test_caught_up_is_measured_by_what_is_committed(leader: Site) -> None:
    """Or by a place before that; what is not committed yet is not asked for."""
    leader.propose(b"one")
    leader.acknowledge("n2")
    leader.replica.tick(has_entry=False)
    leader.propose(b"two")
    assert leader.replica.caught_up("n2")
    assert not leader.replica.caught_up("n3")
    assert leader.replica.caught_up("n3", goal=2)
    assert leader.replica.caught_up("n2", goal=99)


# -- handing over -------------------------------------------------------------------------------------------


def test_a_successor_is_asked_when_it_has_everything(leader: Site) -> None:
    """The question is a message that promises nothing; before that, and to others, there is none."""
    leader.propose(b"one")
    assert leader.replica.transfer("n2") is None
    leader.acknowledge("n2")
    ready = leader.replica.transfer("n2")
    assert ready is not None
    assert ready.messages == [("n2", TakeOver(term=1))]
    assert leader.replica.transfer("n3") is None
    assert leader.replica.transfer("n9") is None


def test_who_is_asked_to_take_over_stands_at_once(follower: Site) -> None:
    """It asks nobody beforehand, and says in its request that the leader wanted it."""
    follower.follow()
    ready = follower.replica.receive("n1", TakeOver(term=1))
    assert ready.wants_tick
    ready = follower.replica.tick(has_entry=False)
    assert ready.messages == []
    assert [message for _, message in ready.promises] == [follower.vote_request(2, transfer=True)] * 2


def test_a_takeover_is_tried_once(follower: Site) -> None:
    """Who was not elected asks the others first the next time, as everybody does (H11)."""
    follower.follow()
    follower.replica.receive("n1", TakeOver(term=1))
    assert follower.replica.engine.is_takeover_asked
    follower.replica.tick(has_entry=False)
    assert (follower.journal.term, follower.replica.engine.is_takeover_asked) == (2, False)
    follower.journal.sync()
    follower.clock.now_s += 10
    ready = follower.replica.tick(has_entry=False)
    assert {type(message) for _, message in ready.messages} == {PreVoteRequest}
    assert follower.journal.term == 2
