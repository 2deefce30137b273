"""Which member list counts on a node, as its log grows, is cut, is committed and is compacted."""

import pytest

from cluster.consensus import member_list
from cluster.consensus.member_list import MemberRecord, Members
from cluster.consensus.membership import FIRST, Membership
from cluster.errors import NodeFailed
from cluster.storage.journal_format import LogEntry
from tests.unit.cluster.consensus.one_replica import members_of

ONE = members_of(["n1"])
TWO = member_list.with_learner(ONE, "n2", "n2:1")
GROWN = member_list.promoted(TWO, "n2", "disk-n2")


class Log:
    """The entries of a log, and the membership that follows them: a list is the encoded one behind an "m"."""

    def __init__(self, first: Members = ONE) -> None:
        self.entries: list[LogEntry] = [(b"x", 1, 0)]
        self.membership = Membership(
            "n1", first, lambda command: command[1:] if command[:1] == b"m" else None
        )

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry."""
        return self.entries[index - 1][2] if 1 <= index <= len(self.entries) else None

    def take(self, *members: Members | None, term: int = 1, keep: int | None = None) -> bool:
        """Keep so many entries, append lists (None: commands); tell whether another list counts now."""
        del self.entries[len(self.entries) if keep is None else keep :]
        new = [
            (b"m" + member_list.encode(item) if item is not None else b"x", index, term)
            for index, item in enumerate(members, len(self.entries) + 1)
        ]
        self.entries += new
        return self.membership.follow(len(self.entries), self.term_at, new)


def test_at_first_the_configurations_list_counts() -> None:
    """It is committed, stands nowhere in the log, and in a snapshot the configuration is referred to."""
    membership = Log().membership
    assert (membership.latest, membership.committed, membership.latest_index) == (ONE, ONE, 0)
    assert membership.is_first
    assert membership.encoded_at(100) == FIRST


def test_a_list_counts_as_soon_as_it_is_in_the_log() -> None:
    """Committed or not; the committed one is the one before, until then."""
    log = Log()
    assert not log.take(None)
    assert log.take(TWO, None)
    membership = log.membership
    assert (membership.latest, membership.committed, membership.latest_index) == (TWO, ONE, 3)
    assert membership.voters == {"n1"}
    assert membership.learners == {"n2"}
    assert not membership.is_first
    membership.commit(3)
    assert membership.committed == TWO


def test_a_list_that_is_cut_off_does_not_count_any_more() -> None:
    """Another leader's log takes its place, with the list that it has, or with none."""
    log = Log()
    log.take(TWO, None)
    assert log.take(None, None, term=2, keep=1)
    assert log.membership.latest == ONE
    assert log.take(TWO, term=2)
    assert log.membership.latest_index == 4


def test_a_repeated_message_changes_nothing() -> None:
    """The same entries again are the same list at the same place."""
    log = Log()
    log.take(TWO)
    assert not log.membership.follow(2, log.term_at, log.entries)
    assert log.membership.latest_index == 2


def test_a_leader_records_what_it_appends() -> None:
    """Its own list counts before it is sent."""
    membership = Log().membership
    membership.append(2, 1, TWO)
    assert (membership.latest, membership.latest_index) == (TWO, 2)


def test_alone_is_who_alone_votes() -> None:
    """A learner beside it changes nothing, a voter does."""
    log = Log()
    alone = [log.membership.is_alone]
    for members in (TWO, GROWN):
        log.take(members)
        alone.append(log.membership.is_alone)
    assert alone == [True, True, False]
    assert not Membership("n9", ONE, lambda _: None).is_alone


def test_a_snapshot_has_the_list_of_its_place() -> None:
    """Lists behind it in the log are not in it."""
    log = Log()
    log.take(TWO, None, GROWN)
    assert log.membership.encoded_at(1) == FIRST
    assert member_list.decode(log.membership.encoded_at(3)) == TWO
    assert member_list.decode(log.membership.encoded_at(4)) == GROWN


def test_commits_are_told_in_order_and_never_go_back() -> None:
    """An older index after a newer one is old news; of two lists, each is committed at its own place."""
    log = Log()
    log.take(TWO, None, GROWN)
    committed = []
    for index in (2, 3, 4, 2):
        log.membership.commit(index)
        committed.append(log.membership.committed)
    assert committed == [TWO, TWO, GROWN, GROWN]


def test_behind_a_snapshot_its_list_counts() -> None:
    """What stood in the log before is gone; the list of the configuration is known by its mark."""
    log = Log()
    log.take(TWO)
    log.membership.restart(member_list.encode(GROWN))
    assert (log.membership.latest, log.membership.committed, log.membership.latest_index) == (GROWN, GROWN, 0)
    log.membership.restart(FIRST)
    assert log.membership.is_first
    assert log.membership.committed == ONE


def test_a_list_of_a_later_version_stops_the_node() -> None:
    """In the log or in a snapshot: to guess who votes would be worse than to be down."""
    later = Members({"n1": MemberRecord("h:1", is_voter=True)}, format=member_list.FORMAT + 1)
    with pytest.raises(NodeFailed, match="upgrade this node"):
        Log().take(later)
    with pytest.raises(NodeFailed, match="upgrade this node"):
        Log().membership.restart(member_list.encode(later))
