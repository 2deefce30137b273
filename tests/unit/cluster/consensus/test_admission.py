"""The memory of the guards: what counts once, what is old news, and what the leader knows already."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from cluster.consensus.admission import Gate, TwoLeadersError
from cluster.consensus.guards import Admission
from cluster.consensus.messages import Acknowledgement, AppendEntries, TakeOver, Vote
from tests.support.replica_parts import LibraryClock
from tests.unit.cluster.consensus.one_replica import FOUR, Site, acknowledged

REWIND_PAUSE_S = 0.05


def gate_of(site: Site) -> Gate:
    """Return a gate of this node that remembers nothing yet."""
    replica = site.replica
    return Gate(
        replica.log, replica.engine, replica.membership, replica.prevote, rewind_pause_s=REWIND_PAUSE_S
    )


def wish(next_index: int) -> Acknowledgement:
    """Return a follower's wish that the leader begins again at an index."""
    return Acknowledgement(next_index=next_index, reset=True, success=False, term=1)


# -- acknowledgements ---------------------------------------------------------------------------------------


def test_only_members_acknowledge(leader: Site) -> None:
    """A peer that is let in and not a member, or not any more, counts for nothing."""
    gate = gate_of(leader)
    assert gate.admit("n2", acknowledged(2)) == Admission(acknowledged(2))
    assert gate.admit("n9", acknowledged(2)) == Admission(None)


def test_the_same_wish_is_granted_once_in_a_while(leader: Site, clock: LibraryClock) -> None:
    """Each message under way is answered by one; a lost answer is made up for after the pause."""
    gate = gate_of(leader)
    sign_of_life = Acknowledgement(next_index=1, reset=False, success=False, term=1)
    assert gate.admit("n2", wish(1)) == Admission(wish(1), is_send_due=True)
    assert gate.admit("n2", wish(1)) == Admission(sign_of_life)
    assert gate.admit("n3", wish(1)) == Admission(wish(1), is_send_due=True), "it has its own turn"
    clock.now_s += REWIND_PAUSE_S + 0.001
    assert gate.admit("n2", wish(1)) == Admission(wish(1), is_send_due=True)


def test_only_the_first_wish_in_a_while_is_granted_at_once(leader: Site, clock: LibraryClock) -> None:
    """A follower that wishes for one place after the other gets what it lacks with the heartbeats."""
    gate = gate_of(leader)
    matched = leader.replica.engine.match_index("n2")
    leader.propose(b"one", b"two", b"three")
    wishes = [wish(matched + ahead) for ahead in (2, 1)]
    admitted = [gate.admit("n2", one) for one in wishes]
    assert [one.message for one in admitted] == wishes
    assert [one.is_send_due for one in admitted] == [True, False]
    clock.now_s += REWIND_PAUSE_S + 0.001
    assert gate.admit("n2", wishes[0]).is_send_due


def test_a_wish_for_what_was_acknowledged_since_is_old_news(leader: Site) -> None:
    """It was under way while the follower caught up; one for another place, ahead of that, is new."""
    gate = gate_of(leader)
    leader.commit(b"one")
    matched = leader.replica.engine.match_index("n2")
    leader.propose(b"two", b"three")
    for next_index in (matched + 1, matched + 2):
        assert gate.admit("n2", wish(next_index)).message == wish(next_index)
    old = gate.admit("n2", wish(matched)).message
    assert isinstance(old, Acknowledgement)
    assert not old.reset


def test_a_follower_lets_wishes_through_as_they_are(follower: Site) -> None:
    """Only a leader rewinds; the library of a follower does nothing with them."""
    follower.follow()
    gate = gate_of(follower)
    for _ in range(2):
        assert gate.admit("n1", wish(1)) == Admission(wish(1))


# -- votes and taking over ----------------------------------------------------------------------------------


def test_a_voter_counts_once_in_a_term(follower: Site) -> None:
    """A repeated vote is none; in another term it counts again."""
    gate = gate_of(follower)
    follower.follow(term=1)
    assert gate.admit("n1", Vote(term=1)) == Admission(Vote(term=1))
    assert gate.admit("n1", Vote(term=1)) == Admission(None)
    assert gate.admit("n3", Vote(term=1)) == Admission(Vote(term=1))
    follower.follow(term=2)
    assert gate.admit("n1", Vote(term=1)) == Admission(None)
    assert gate.admit("n1", Vote(term=2)) == Admission(Vote(term=2))


@pytest.mark.parametrize("peer_id", ["n4", "n9"])
def test_only_voters_vote(make: Callable[..., Site], peer_id: str) -> None:
    """A learner does not count yet, a stranger never."""
    site = make("n2", members=FOUR)
    site.follow()
    assert gate_of(site).admit(peer_id, Vote(term=1)) == Admission(None)


def test_only_voters_take_over(make: Callable[..., Site]) -> None:
    """A learner that is asked to lead does not hear it."""
    voter, learner = make("n2", members=FOUR), make("n4", members=FOUR)
    assert gate_of(voter).admit("n1", TakeOver(term=1)) == Admission(TakeOver(term=1))
    assert gate_of(learner).admit("n1", TakeOver(term=1)) == Admission(None)


def test_a_request_for_votes_waits_for_the_leader_to_be_lost(follower: Site, clock: LibraryClock) -> None:
    """A node that has just started cannot know whether one is alive, and waits as if it had heard it."""
    gate, request = gate_of(follower), follower.vote_request(1)
    assert gate.admit("n3", request) == Admission(None)
    clock.now_s += 0.6
    assert gate.admit("n3", request) == Admission(request)


# -- the leader's messages ----------------------------------------------------------------------------------


def test_two_leaders_in_one_term_are_noticed(leader: Site) -> None:
    """No correct cluster has them; one of another term is a matter of terms."""
    gate = gate_of(leader)
    with pytest.raises(TwoLeadersError, match="n2 leads in term 1, and so does this node"):
        gate.admit("n2", AppendEntries(term=1, commit_index=1))
    newer = leader.append(term=2)
    assert gate.admit("n2", newer).message is not None


def test_a_commit_notice_is_answered_until_the_leader_knows(follower: Site) -> None:
    """Only a successful acknowledgement of this very place, in this term, to this peer makes it needless."""
    follower.follow()
    follower.replica.receive("n1", follower.append([1, 1]))
    gate, notice = gate_of(follower), follower.append(commit=2)
    answer = gate.admit("n1", notice).reply
    assert answer == acknowledged(3)
    for peer_id, told in (
        ("n3", acknowledged(3)),
        ("n1", acknowledged(2)),
        ("n1", acknowledged(3, term=0)),
        ("n1", Acknowledgement(next_index=4, reset=False, success=False, term=1)),
    ):
        gate.acknowledging(peer_id, told)
        assert gate.admit("n1", notice).reply == answer
    gate.acknowledging("n1", acknowledged(3))
    admission = gate.admit("n1", notice)
    assert admission == Admission(AppendEntries(term=1, commit_index=2)), "the library hears of the commit"
    gate.forget("n3")
    assert gate.admit("n1", notice).reply is None
    gate.forget("n1")
    assert gate.admit("n1", notice).reply == answer


def test_what_only_adds_is_known_as_that(follower: Site) -> None:
    """Unless the log has a history that its leader does not tell, or another one."""
    follower.follow()
    gate, digest = gate_of(follower), follower.journal.digest_at(follower.journal.last_index)
    assert digest is not None
    entries = follower.append([1])
    told = replace(entries, previous_digest=digest)
    assert gate.admit("n1", entries) == Admission(entries)
    assert gate.admit("n1", told) == Admission(told, only_adds=True)
    gate._contradicted_by.add("n3")
    assert gate.admit("n1", told) == Admission(told), "all is looked at while anybody contradicts"
    gate._contradicted_by.clear()
    other = gate.admit("n1", replace(told, previous_digest=digest + 1)).difference
    assert other is not None
    assert gate.admit("n1", told).difference == other, "its leader has parted from this node"


def test_entries_and_heartbeats_are_always_answered(follower: Site) -> None:
    """Whatever the leader knows: a repeated message asks again, and a heartbeat asks who is there."""
    follower.follow()
    entries = follower.append([1, 1])
    follower.replica.receive("n1", entries)
    gate = gate_of(follower)
    gate.acknowledging("n1", acknowledged(3))
    for message in (entries, follower.append()):
        assert gate.admit("n1", message).reply == acknowledged(3)
