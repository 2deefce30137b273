"""Changes of the members as one replica sees them: in its log, and when they are committed."""

from collections.abc import Callable

from cluster.consensus import member_list
from cluster.consensus.member_list import MemberRecord
from cluster.consensus.messages import AppendEntries, NewerTerm
from tests.unit.cluster.consensus.one_replica import MEMBERS, THREE, Site, entries_for, kinds, members_of


def test_a_change_of_members_is_proposed_behind_a_tick(leader: Site) -> None:
    """It counts as soon as it is in the log: links are adjusted, and the new node gets the log, too."""
    replica = leader.replica
    new = member_list.with_learner(replica.membership.latest, "n4", "n4:1")
    assert (replica.may_change_members, replica.has_members_to_propose) == (True, False)
    replica.change_members(new)
    assert (replica.may_change_members, replica.has_members_to_propose) == (False, True)
    replica.peer_up("n4")
    ready = leader.propose()
    assert ready.are_members_changed
    assert (replica.may_change_members, replica.has_members_to_propose) == (False, False)
    assert entries_for("n2", ready.messages) == [(MEMBERS + member_list.encode(new), 3, 1)]
    assert ("n4", AppendEntries) in kinds(ready.messages)
    assert (replica.membership.latest, replica.membership.committed) == (new, members_of(THREE))


def test_a_committed_change_is_told_and_the_next_may_begin(leader: Site) -> None:
    """The list is not for the state machine; one change at a time."""
    replica = leader.replica
    new = member_list.with_learner(replica.membership.latest, "n4", "n4:1")
    replica.change_members(new)
    leader.propose()
    assert not replica.may_change_members
    leader.acknowledge("n2")
    ready = replica.tick(has_entry=False)
    assert (ready.are_members_changed, ready.committed) == (True, [])
    assert replica.membership.committed == new
    assert replica.may_change_members


def test_a_follower_goes_by_the_list_in_its_log(follower: Site) -> None:
    """It is told when a list comes, when that is committed, and when a newer leader has cut it off."""
    follower.follow()
    place = follower.append([2], term=2)
    new = member_list.with_learner(members_of(THREE), "n4", "n4:1")
    content = MEMBERS + member_list.encode(new)
    ready = follower.replica.receive("n1", follower.append(contents=[content]))
    assert ready.are_members_changed
    assert follower.replica.membership.latest == new
    ready = follower.replica.receive("n3", place)
    assert ready.are_members_changed
    assert follower.replica.membership.latest == members_of(THREE)
    follower.replica.receive("n3", follower.append(term=2, contents=[content], commit=3))
    assert follower.replica.membership.committed == members_of(THREE)
    ready = follower.replica.tick(has_entry=False)
    assert (ready.are_members_changed, ready.committed) == (True, [(2, b"2:2")])
    assert follower.replica.membership.committed == new


def test_a_change_is_forgotten_with_the_leadership(leader: Site) -> None:
    """What was not in the log yet is not proposed by a later leadership of this node."""
    replica = leader.replica
    replica.change_members(member_list.with_learner(replica.membership.latest, "n4", "n4:1"))
    replica.receive("n2", NewerTerm(term=7))
    assert not replica.has_members_to_propose


def test_a_new_leader_commits_an_entry_of_its_own_before_members_change(make: Callable[..., Site]) -> None:
    """Else two leaders in turn could each go on with a change that the other knows nothing of."""
    site = make("n1")
    site.lead()
    before = site.replica.may_change_members
    site.commit()
    assert (before, site.replica.may_change_members) == (False, True)


def test_a_removed_voter_does_not_count_any_more(leader: Site) -> None:
    """From the list in the log on, the majority is that of the nodes that stay."""
    replica = leader.replica
    new = member_list.without(replica.membership.latest, "n3", "", THREE)
    replica.change_members(new)
    leader.propose()
    leader.acknowledge("n3")
    assert not replica.tick(has_entry=False).are_members_changed
    leader.acknowledge("n2")
    assert replica.tick(has_entry=False).are_members_changed


def test_members_of_the_log_are_those_after_a_restart(make: Callable[..., Site]) -> None:
    """The list in the log counts again, not that of the configuration."""
    site = make(members=members_of(["n1"]))
    site.replica.tick(has_entry=False)
    site.journal.sync()
    site.replica.tick(has_entry=False)
    new = member_list.with_learner(members_of(["n1"]), "n4", "n4:1")
    site.replica.change_members(new)
    site.propose()
    site.replica.tick(has_entry=False)
    site.close()
    again = make(members=members_of(["n1"]))
    assert again.replica.membership.latest == new
    assert again.replica.membership.latest.nodes["n4"] == MemberRecord("n4:1", is_voter=False)


def test_who_votes_alone_tells_learners_of_its_term_behind_the_sync(make: Callable[..., Site]) -> None:
    """A restart could lead in the same term, with another log, if its vote were not on disk by then."""
    site = make("n1", members=members_of(["n1"], learners=["n2"]))
    ready = site.replica.tick(has_entry=False)
    assert site.replica.role.is_leader
    assert site.journal.is_dirty, "the vote is not on disk yet"
    assert AppendEntries not in [type(message) for _, message in ready.messages]
    assert ("n2", AppendEntries) in kinds(ready.promises)
