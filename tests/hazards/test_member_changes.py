"""Which members count, and when: learners, promotion, removal, and changes that come to nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.consensus import member_list
from cluster.consensus.member_list import Members
from cluster.consensus.replica import Replica
from tests.hazards.member_operators import Operators, address, grow
from tests.hazards.replica_nodes import our_cluster
from tests.hazards.virtual_cluster import Checker, Cluster

Started = tuple[Cluster, Checker, Operators]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Started]:
    """Return what starts a cluster that a leads, of some of the nodes."""

    def started(node_ids: str, member_ids: str, compact_entries: int = 20_000) -> Started:
        cluster, checker = our_cluster(
            tmp_path, monkeypatch, node_ids=node_ids, member_ids=member_ids, compact_entries=compact_entries
        )
        cluster.elect("a")
        return cluster, checker, Operators(cluster)

    return started


def with_voter(before: Members, node_id: str) -> Members:
    """Return the list with one more voter, without the time in which it learns."""
    learning = member_list.with_learner(before, node_id, address(node_id))
    return member_list.promoted(learning, node_id, f"disk-{node_id}")


def lists(cluster: Cluster, node_ids: str) -> set[str]:
    """Return the lists that count on these nodes."""
    return {str(cluster[node_id].replica.membership.latest) for node_id in node_ids}


def test_a_learner_neither_holds_a_commit_back_nor_makes_one(start: Callable[..., Started]) -> None:
    """A learner that is away is not missed, and one that is there is not part of a majority."""
    cluster, _, operators = start("abcd", "abc")
    cluster.isolate("d")
    operators.add("a", "d")
    operators.run_ms(500)
    assert lists(cluster, "abc") == {"a,b,c,d(joining)"}
    cluster.crash("c")
    cluster["a"].propose(b"two of three voters")
    cluster.run_ms(500)
    assert cluster["b"].values == [b"two of three voters"]
    # Now one of three voters, and the learner: no majority, whatever the learner acknowledges.
    cluster.connect("a", "d")
    cluster.disconnect("a", "b")
    cluster["a"].propose(b"one of three")
    cluster.run_ms(500)
    assert cluster["d"].journal.last_index == cluster["a"].journal.last_index
    assert b"one of three" not in cluster["a"].values + cluster["d"].values
    cluster.run_ms(1500)
    assert not cluster["a"].is_leader, "a leader that only a learner answers steps down"


def test_a_learner_counts_once_it_has_caught_up(start: Callable[..., Started]) -> None:
    """The leader makes it count by itself, not before the learner has all that is committed."""
    cluster, _, operators = start("abcd", "abc")
    cluster["a"].propose(*[b"%d" % number for number in range(20)])
    cluster.run_ms(500)
    cluster.network.held |= {("d", "a")}
    operators.add("a", "d")
    operators.run_ms(1000)
    assert lists(cluster, "abc") == {"a,b,c,d(joining)"}, "its acknowledgements have not arrived"
    cluster.network.held.clear()
    operators.run_ms(500)
    assert lists(cluster, "abcd") == {"a,b,c,d"}
    assert cluster["d"].values == cluster["a"].values
    assert cluster["a"].replica.membership.committed.disk_id("d") == "disk-d"
    # It counts: without it, two of four are not a majority.
    cluster.crash("c")
    cluster.crash("d")
    cluster["a"].propose(b"two of four")
    cluster.run_ms(500)
    assert b"two of four" not in cluster["a"].values


def test_who_needs_a_snapshot_has_not_caught_up(start: Callable[..., Started]) -> None:
    """However much a learner has: while the rest is no longer in the log, it would hold every commit up."""
    cluster, _, operators = start("abcd", "abc", 100)
    leader = cluster["a"].replica
    operators.add("a", "d")
    cluster.run_ms(500)
    goal = leader.log.committed
    assert leader.caught_up("d", goal)
    cluster.network.held |= {("a", "d")}
    cluster["a"].propose(b"in the log")
    cluster.run_ms(100)
    assert leader.caught_up("d", goal), "it gets the rest at once"
    cluster["a"].propose(*[b"%d" % number for number in range(300)])
    cluster.run_ms(500)
    assert cluster["a"].journal.first_index > goal, "what it has is compacted"
    assert not leader.caught_up("d", goal)
    cluster.network.held.clear()
    cluster.run_until(lambda: leader.caught_up("d", goal))
    assert cluster["d"].journal.last_index > goal


def test_a_joining_node_never_stands_for_election(start: Callable[..., Started]) -> None:
    """Alone, added or not, with its patience long over, restarted: it waits."""
    cluster, _, operators = start("abcd", "abc")
    cluster.isolate("d")
    cluster.run_ms(10_000)
    assert (cluster["d"].term, cluster["d"].leader_id) == (0, None)
    cluster.heal()
    operators.add("a", "d")
    cluster.run_ms(500)
    assert lists(cluster, "abcd") == {"a,b,c,d(joining)"}
    term = cluster["d"].term
    # Two of three voters would agree to it now.
    cluster.crash("a")
    for node_id in "bc":
        cluster[node_id].be_patient()
    cluster.run_ms(4000)
    assert cluster.leaders() == []
    for node_id in "bc":
        cluster.crash(node_id)
    cluster.run_ms(10_000)
    assert not cluster["d"].is_leader
    assert cluster["d"].term == term
    cluster.crash("d")
    cluster.start("d")
    cluster.run_ms(10_000)
    assert (cluster["d"].term, cluster["d"].is_leader) == (term, False)


def test_a_change_that_is_cut_off_with_its_leader_is_undone_everywhere(start: Callable[..., Started]) -> None:
    """A list that counts on a minority only is rolled back, and its leader says that it does not know."""
    cluster, _, operators = start("abcde", "abcde")
    operators.run_ms(500)
    cluster.network.held |= {pair for pair in cluster.network.queues if len({*pair} & {"a", "b"}) == 1}
    operators.remove("a", "e")
    cluster.run_ms(200)
    assert lists(cluster, "ab") == {"a,b,c,d"}
    cluster.run_until(lambda: cluster.leader_of("cde") in ("c", "d", "e"))
    cluster.heal()
    operators.run_ms(2000)
    assert lists(cluster, "abcde") == {"a,b,c,d,e"}
    assert operators.codes == ["outcome-unknown"]
    leader = cluster.leader_of("abcde") or ""
    cluster[leader].propose(b"after")
    cluster.run_ms(500)
    assert [cluster[node_id].values for node_id in "abcde"] == [[b"after"]] * 5


def test_one_change_at_a_time(start: Callable[..., Started]) -> None:
    """While a change is not committed the next one is refused, and it is done when it is."""
    cluster, _, operators = start("abcde", "abc")
    cluster.network.held |= {("b", "a"), ("c", "a")}
    operators.add("a", "d")
    operators.add("a", "e")
    cluster.run_ms(200)
    operators.add("a", "e")
    assert operators.codes == ["member-change-pending", "member-change-pending"]
    cluster.network.held.clear()
    operators.run_ms(200)
    assert operators.codes[2:] == [""]


def two_leaders_in_turn(cluster: Cluster) -> None:
    """Bring Ongaro's correction about: a and b each begin a change that the other knows nothing of.

    a makes e a member, and only e hears of it. Then b, c, d elect b, and d hears nothing of what b appends.
    """
    for node_id in "bcd":
        cluster.disconnect("a", node_id)
        cluster.disconnect("e", node_id)
    for node_id in "bcd":
        cluster[node_id].be_patient()
    leader = cluster["a"].replica
    leader.change_members(with_voter(leader.membership.latest, "e"))
    cluster.run_ms(200)
    assert lists(cluster, "ae") == {"a,b,c,d,e"}
    cluster["b"].replica.engine.election_deadline_s = 0.0
    while not cluster["b"].is_leader:
        cluster.step()
        cluster.settle_but(("b", "d"), "append_entries")
    cluster.settle_but(("b", "d"), "append_entries")
    assert cluster["c"].leader_id == "b"


def test_no_change_before_the_leader_has_committed_in_its_term(start: Callable[..., Started]) -> None:
    """A new leader is sure of its log when an entry of its own is committed; until then it changes none."""
    cluster, _, operators = start("abcde", "abcd")
    two_leaders_in_turn(cluster)
    operators.remove("b", "a")
    assert operators.codes == ["member-change-pending"]
    cluster.network.held.clear()
    operators.run_ms(200)
    assert cluster["b"].replica.may_change_members


def test_without_that_two_majorities_share_no_node(
    start: Callable[..., Started], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the rule switched off, the same moves commit two entries at one place: the test bites."""
    cluster, checker, _ = start("abcde", "abcd")
    monkeypatch.setattr(Replica, "may_change_members", property(lambda self: self.engine.is_leader))
    two_leaders_in_turn(cluster)
    replica = cluster["b"].replica
    replica.change_members(member_list.without(replica.membership.latest, "a", "", "bcd"))
    cluster["b"].propose(b"of b and c")
    for _ in range(4):
        cluster.step()
        cluster.settle_but(("b", "d"), "append_entries")
    assert list(checker.committed.values()) == [b"of b and c"]
    for node_id in "bc":
        cluster.isolate(node_id)
    for one, other in ("ad", "ed"):
        cluster.connect(one, other)
    cluster.network.held.clear()
    cluster.elect("a")
    cluster["a"].propose(b"of a, d and e", b"and more")
    with pytest.raises(AssertionError, match=r"a applied .* somebody applied"):
        cluster.run_ms(2000)


def test_votes_and_acknowledgements_of_a_removed_node_do_not_count(start: Callable[..., Started]) -> None:
    """Though it hears and answers everything, a removed node makes no leader and no commit."""
    cluster, _, operators = start("abcd", "abcd")
    operators.remove("a", "d")
    operators.run_ms(500)
    assert operators.codes == [""]
    cluster.crash("c")
    cluster.crash("a")
    cluster.run_ms(5000)
    assert cluster.leaders() == [], "b and d are one of three"
    cluster.start("c")
    cluster.connect("c", "b")
    cluster.connect("c", "d")
    cluster.run_until(lambda: cluster.leader_of("bc") in ("b", "c"))
    leader = cluster.leader_of("bc") or ""
    cluster.disconnect("b", "c")
    cluster[leader].propose(b"one of three")
    cluster.run_ms(500)
    assert cluster[leader].values == []


def test_a_removed_node_disturbs_nobody(start: Callable[..., Started]) -> None:
    """It was not told, its patience ends again and again: leader and term stay as they are."""
    cluster, _, operators = start("abcd", "abcd")
    operators.remove("a", "d")
    operators.run_ms(500)
    term = cluster["a"].term
    cluster.run_ms(20_000)
    assert [cluster[node_id].leader_id for node_id in "abc"] == ["a"] * 3
    assert cluster["a"].term == term


def test_removing_the_leader_begins_with_a_transfer(start: Callable[..., Started]) -> None:
    """A leader does not remove itself; it hands leadership over, and the next one does it."""
    cluster, _, operators = start("abc", "abc")
    term = cluster["a"].term
    operators.remove("a", "a")
    assert operators.codes == ["member-change-pending"]
    assert lists(cluster, "abc") == {"a,b,c"}
    cluster.settle()
    assert cluster.leaders() == ["c"]
    assert cluster["c"].term == term + 1
    operators.run_ms(200)
    operators.remove("c", "a")
    operators.run_ms(500)
    assert operators.codes[1:] == [""]
    assert lists(cluster, "bc") == {"b,c"}


def test_what_would_lose_the_quorum_is_refused(start: Callable[..., Started]) -> None:
    """With one of three away, only that one can be removed."""
    cluster, _, operators = start("abc", "abc")
    cluster.crash("c")
    operators.run_ms(200)
    operators.remove("a", "b")
    operators.remove("a", "a")
    assert operators.codes == ["member-change-refused"] * 2
    assert "of a, c only a can be reached" in operators.verdicts[0].detail
    assert "of b, c only b can be reached" in operators.verdicts[1].detail
    cluster.run_ms(200)
    assert cluster.leaders() == ["a"], "nor does it hand over in vain"
    operators.remove("a", "c")
    operators.run_ms(200)
    assert operators.codes[2:] == [""]
    assert lists(cluster, "ab") == {"a,b"}


@pytest.mark.parametrize("compact_entries", [8, 20_000])
def test_lists_survive_restart_compaction_and_snapshot(
    start: Callable[..., Started], compact_entries: int
) -> None:
    """Whatever brought the list to a node, log or snapshot, it has the same one after a restart of all."""
    cluster, checker, operators = start("abcde", "abc", compact_entries)
    cluster["a"].propose(*[b"%d" % number for number in range(40)])
    operators.run_ms(1000)
    grow(cluster, operators, "a", "d")
    cluster["a"].propose(*[b"more %d" % number for number in range(40)])
    operators.run_ms(1000)
    operators.remove("a", "b")
    operators.run_ms(1000)
    grow(cluster, operators, "a", "e")
    assert operators.codes == [""] * 3
    was_compacted = cluster["a"].journal.first_index > 1
    assert was_compacted == (compact_entries == 8)
    cluster["a"].propose(*[b"yet more %d" % number for number in range(40)])
    operators.run_ms(1000)
    assert lists(cluster, "acde") == {"a,c,d,e"}
    for node_id in "abcde":
        cluster.crash(node_id)
    cluster.heal()
    assert lists(cluster, "acde") == {"a,c,d,e"}
    cluster.run_until(lambda: cluster.leader_of("acde") is not None)
    cluster[cluster.leader_of("acde") or ""].propose(b"the end")
    cluster.run_until(lambda: all(b"the end" in cluster[node_id].values for node_id in "acde"))
    assert dict(cluster["e"].entries) == checker.committed
    assert {str(cluster[node_id].replica.membership.committed) for node_id in "acde"} == {"a,c,d,e"}
