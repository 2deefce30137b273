"""Member lists: what each change does and refuses, and which list of a log counts."""

from itertools import combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cluster.config import NODES_COUNT_MAX
from cluster.consensus import member_list
from cluster.consensus.member_list import REMOVED_COUNT_MAX, MemberRecord, Members, MembersLog
from cluster.errors import MemberChangeRefused, MemberNotFound
from cluster.storage.cluster_record import Founder, Founding
from cluster.storage.journal_format import LogEntry

IDS = ["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"]


def make(voters: str, learners: str = "") -> Members:
    """Return a list of nodes that are named by letters."""
    nodes = {node_id: MemberRecord(f"h:{node_id}", is_voter=True) for node_id in voters}
    return Members(nodes | {node_id: MemberRecord(f"h:{node_id}", is_voter=False) for node_id in learners})


# -- bytes --------------------------------------------------------------------------------------------------


def test_a_list_survives_its_bytes() -> None:
    """Encoding and decoding changes nothing."""
    full = member_list.without(make("abc", "d"), "b", "disk-b", "abc")
    assert member_list.decode(member_list.encode(full)) == full


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x90\x91", member_list.encode(make("a"))[:-2], b"\x91\xa1\xff"]
)
def test_what_is_no_list_is_told(data: bytes) -> None:
    """Bytes that were cut or are something else are an error of their own."""
    with pytest.raises(member_list.MembersUnreadable):
        member_list.decode(data)


def test_what_lies_too_deep_is_told() -> None:
    """A field of a later version, nested deeper than a decoder goes, does not break the node."""
    data = member_list.encode(make("a"))
    nested = bytes([data[0] + 1]) + data[1:] + b"\x91" * 3000 + b"\xc0"
    with pytest.raises(member_list.MembersUnreadable):
        member_list.decode(nested)


def test_a_list_of_a_later_version_is_told() -> None:
    """A format that this version does not know is not guessed at."""
    with pytest.raises(member_list.MembersUnreadable, match="format 2; this version reads 1"):
        member_list.decode(member_list.encode(Members(format=2)))


FOUNDING = Founding("c" * 32, {"n2": Founder("h:2", "disk-2"), "n1": Founder("h:1", "disk-1")})


def test_a_founding_becomes_the_first_list() -> None:
    """All founders vote, with their disks, in order of their ids; the list says whose cluster it is."""
    first = member_list.founded(FOUNDING)
    assert member_list.decode(member_list.encode(first)) == first
    assert list(first.nodes.items()) == [
        ("n1", MemberRecord("h:1", is_voter=True, disk_id="disk-1")),
        ("n2", MemberRecord("h:2", is_voter=True, disk_id="disk-2")),
    ]
    assert (first.cluster_id, first.format, first.version) == ("c" * 32, 1, 0)
    assert (first.group, first.groups_count, first.slots, first.placement_version) == (0, 1, ((0, 16383),), 1)


def test_no_change_touches_the_cluster_id() -> None:
    """Whatever is changed, the list stays that of its cluster, in its format."""
    first = member_list.founded(FOUNDING)
    learning = member_list.with_learner(first, "n3", "h:3")
    promoted = member_list.promoted(learning, "n3", "disk-3")
    fewer = member_list.without(promoted, "n1", "", promoted.nodes)
    for members in (learning, promoted, fewer):
        assert (members.cluster_id, members.format) == (first.cluster_id, first.format)
        assert member_list.decode(member_list.encode(members)) == members
    assert (fewer.version, fewer.removed) == (3, {"disk-1": "n1"})


def test_a_list_of_another_group_is_told() -> None:
    """Only this group's lists are taken."""
    with pytest.raises(member_list.MembersUnreadable, match="Raft group 1"):
        member_list.decode(member_list.encode(Members(group=1)))


# -- changes ------------------------------------------------------------------------------------------------


def test_who_is_added_learns_first() -> None:
    """A new node is in the list, in order, and does not vote until it is promoted."""
    added = member_list.with_learner(make("ac"), "b", "h:b")
    assert list(added.nodes) == ["a", "b", "c"]
    assert added.voters == {"a", "c"}
    assert added.learners == {"b"}
    assert str(added) == "a,b(joining),c"
    grown = member_list.promoted(added, "b", "disk-b")
    assert grown.voters == {"a", "b", "c"}
    assert not grown.learners
    assert grown.nodes["b"] == MemberRecord("h:b", is_voter=True, disk_id="disk-b")


def test_versions_count_the_changes() -> None:
    """Each change makes the version one higher."""
    one = member_list.with_learner(make("abc"), "d", "h:d")
    two = member_list.promoted(one, "d", "disk-d")
    three = member_list.without(two, "a", "disk-a", "bcd")
    assert [item.version for item in (one, two, three)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("node_id", "peer", "reason"),
    [
        ("b", "h:9", "b is a member already, at h:b. .* move it: `holdfast cluster move`"),
        ("d", "h:b", "h:b is the address of b"),
    ],
)
def test_id_and_address_must_be_free(node_id: str, peer: str, reason: str) -> None:
    """Nobody gets the id or the address of a member."""
    with pytest.raises(MemberChangeRefused, match=reason):
        member_list.with_learner(make("abc"), node_id, peer)


def test_a_node_moves_with_its_disk_and_its_vote() -> None:
    """Nothing else changes, so majorities are the same; a learner moves, too."""
    members = member_list.promoted(make("ac", "bd"), "b", "disk-b")
    moved = member_list.moved(members, "b", "h:9")
    assert moved.nodes["b"] == MemberRecord("h:9", is_voter=True, disk_id="disk-b")
    assert (moved.voters, moved.learners) == (members.voters, members.learners)
    assert moved.version == members.version + 1
    assert member_list.moved(members, "d", "h:8").nodes["d"] == MemberRecord("h:8", is_voter=False)
    assert {**moved.nodes, "b": members.nodes["b"]} == members.nodes


def test_only_a_member_moves_and_nobody_into_the_place_of_another() -> None:
    """The address must be free."""
    with pytest.raises(MemberNotFound, match="no member is called 'x'; there are a, b, c"):
        member_list.moved(make("abc"), "x", "h:9")
    with pytest.raises(MemberChangeRefused, match="h:b is the address of b"):
        member_list.moved(make("abc"), "a", "h:b")


def test_there_are_only_so_many_nodes() -> None:
    """A learner counts for the limit, too."""
    full = make("abcdefg"[: NODES_COUNT_MAX - 1], "z")
    with pytest.raises(MemberChangeRefused, match=f"{NODES_COUNT_MAX} nodes already"):
        member_list.with_learner(full, "y", "h:y")


def test_no_voter_is_promoted() -> None:
    """That would be a mistake of ours."""
    with pytest.raises(AssertionError, match="votes already"):
        member_list.promoted(make("abc"), "a", "disk")


def test_who_is_removed_is_remembered_by_its_disk() -> None:
    """The newest disk that is known counts: the leader's, else the list's, else a name that says so."""
    listed = member_list.promoted(make("bcd", "a"), "a", "disk-a")
    assert member_list.without(listed, "a", "", "abcd").removed == {"disk-a": "a"}
    assert member_list.without(listed, "c", "disk-c", "abcd").removed == {"disk-c": "c"}
    (unknown,) = member_list.without(listed, "d", "", "abcd").removed.items()
    assert unknown[1] == "d"
    assert " " in unknown[0], "which is in no disk id"


def test_a_removed_disk_stays_removed() -> None:
    """The id comes back, with another disk."""
    gone = member_list.without(member_list.promoted(make("ab", "c"), "c", "old"), "c", "", "abc")
    back = member_list.promoted(member_list.with_learner(gone, "c", "h:c"), "c", "new")
    assert (back.removed, back.disk_id("c")) == ({"old": "c"}, "new")


def test_only_so_many_disks_are_remembered() -> None:
    """The oldest is forgotten first."""
    present = make("abc")
    for number in range(REMOVED_COUNT_MAX + 1):
        present = member_list.without(
            member_list.with_learner(present, "d", "h:d"), "d", f"disk-{number}", "abc"
        )
    assert len(present.removed) == REMOVED_COUNT_MAX
    assert next(iter(present.removed)) == "disk-1"


def test_who_is_no_member_cannot_be_removed() -> None:
    """The refusal names those who are."""
    with pytest.raises(MemberNotFound, match="'x'; there are a, b"):
        member_list.without(make("ab"), "x", "", "ab")


def test_the_only_voter_stays() -> None:
    """A cluster without a voter would be none."""
    with pytest.raises(MemberChangeRefused, match="nothing would be left"):
        member_list.without(make("a", "b"), "a", "", "ab")
    assert member_list.without(make("a", "b"), "b", "", "a").voters == {"a"}


@pytest.mark.parametrize(
    ("voters", "gone", "reachable", "is_allowed"),
    [
        ("abc", "c", "abc", True),
        ("abc", "c", "ab", True),
        ("abc", "b", "ab", False),
        ("ab", "b", "a", True),
        ("ab", "b", "b", False),
        ("abcde", "e", "abc", True),
        ("abcde", "c", "abc", False),
        ("abcd", "d", "ab", True),
        ("abcd", "b", "abd", True),
        ("abcd", "b", "ab", False),
    ],
)
def test_a_removal_must_leave_a_majority_in_reach(
    voters: str,
    gone: str,
    reachable: str,
    is_allowed: bool,  # noqa: FBT001
) -> None:
    """Of those who stay more than half must answer; learners do not help."""
    if is_allowed:
        assert member_list.without(make(voters, "z"), gone, "", [*reachable, "z"]).voters == {*voters} - {
            gone
        }
    else:
        with pytest.raises(MemberChangeRefused, match="would lose its quorum: of"):
            member_list.without(make(voters, "z"), gone, "", [*reachable, "z"])


def test_a_learner_can_always_be_removed() -> None:
    """It counts for nothing, so nothing is lost with it."""
    assert member_list.without(make("abc", "d"), "d", "", "a").learners == set()


def test_a_promotion_must_leave_a_majority_in_reach() -> None:
    """With one of three gone a fourth may count; with two of four gone a fifth may not, unless it helps."""
    assert member_list.can_promote(make("abc", "d"), "d", "abd")
    assert not member_list.can_promote(make("abcd", "e"), "e", "abc"[:2])
    assert member_list.can_promote(make("abcd", "e"), "e", "abe")


@st.composite
def changes(draw: st.DrawFn) -> tuple[Members, Members]:
    """Return a list that some changes led to, and the list after one more."""
    present = make("".join(draw(st.sets(st.sampled_from("abc"), min_size=1))))
    before = present
    for _ in range(draw(st.integers(1, 20))):
        node_id = draw(st.sampled_from("abcdefgh"))
        reachable = draw(st.sets(st.sampled_from("abcdefgh"))) | present.nodes.keys()
        before = present
        try:
            if node_id not in present.nodes:
                present = member_list.with_learner(present, node_id, f"h:{node_id}")
            elif node_id in present.learners and draw(st.booleans()):
                present = member_list.promoted(present, node_id, f"disk-{node_id}")
            else:
                present = member_list.without(present, node_id, "", reachable)
        except MemberChangeRefused:
            continue
    assume(present is not before)
    return before, present


def majorities(voters: frozenset[str]) -> list[set[str]]:
    """Return all smallest majorities."""
    return [set(some) for some in combinations(sorted(voters), len(voters) // 2 + 1)]


@given(changes())
def test_majorities_of_neighbouring_lists_overlap(pair: tuple[Members, Members]) -> None:
    """What is allowed changes one voter at most: what one list decided, the next one cannot contradict."""
    before, after = pair
    assert len(before.voters ^ after.voters) <= 1
    assert after.version == before.version + 1
    assert all(one & other for one in majorities(before.voters) for other in majorities(after.voters))
    assert all(member_list.has_majority(before.voters, one) for one in majorities(before.voters))


# -- the lists of a log -------------------------------------------------------------------------------------


class LogMachine(RuleBasedStateMachine):
    """A log that is appended to, cut, committed, compacted and replaced, and what is known of its lists."""

    def __init__(self) -> None:
        super().__init__()
        self.base = make("abc")
        self.entries: list[LogEntry] = []
        self.first = self.term = 1
        self.committed = self.version = 0
        self.lists = MembersLog(self.base)

    @property
    def last(self) -> int:
        """Return the index of the newest entry."""
        return self.first + len(self.entries) - 1

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry, None if it is not in the log."""
        at = index - self.first
        return self.entries[at][2] if 0 <= at < len(self.entries) else None

    def at(self, index: int) -> Members:
        """Return the newest list up to `index`, by looking at everything."""
        newest = self.base
        for command, position, _ in self.entries:
            if position <= index:
                newest = parse(command) or newest
        return newest

    def next_list(self) -> Members:
        """Return a list unlike all others."""
        self.version += 1
        return Members(version=self.version)

    def put(self, index: int, are_lists: list[bool]) -> None:
        """Cut the log before `index` and put entries there, as a follower does."""
        entries = [
            (member_list.encode(self.next_list()) if is_list else b"", index + offset, self.term)
            for offset, is_list in enumerate(are_lists)
        ]
        del self.entries[index - self.first :]
        self.entries += entries
        self.lists.follow(self.last, self.term_at, entries, parse)

    @rule(are_lists=st.lists(st.booleans(), max_size=4))
    def append(self, are_lists: list[bool]) -> None:
        """Entries come at the end."""
        self.put(self.last + 1, are_lists)

    @precondition(lambda self: self.last > self.committed)
    @rule(data=st.data(), are_lists=st.lists(st.booleans(), max_size=4))
    def replace(self, data: st.DataObject, are_lists: list[bool]) -> None:
        """Another leader's entries take the place of what is not committed."""
        self.term += 1
        self.put(data.draw(st.integers(self.committed + 1, self.last)), are_lists)

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        """Entries are committed one after the other."""
        for index in range(self.committed + 1, data.draw(st.integers(self.committed, self.last)) + 1):
            if self.entries[index - self.first][0]:
                self.lists.committed(index)
            self.committed = index

    @precondition(lambda self: self.first <= self.committed)
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        """What is committed may go from the log."""
        first = data.draw(st.integers(self.first, self.committed))
        self.base = self.at(first - 1)
        del self.entries[: first - self.first]
        self.first = first

    @rule(further=st.integers(1, 5))
    def install(self, further: int) -> None:
        """A snapshot takes the place of everything."""
        self.base = self.next_list()
        self.committed = self.last + further
        self.entries.clear()
        self.first = self.committed + 1
        self.lists.restart(self.base)

    @rule()
    def restart(self) -> None:
        """The node begins with the list of its snapshot, and looks at the whole log."""
        self.lists = MembersLog(self.at(self.committed))
        self.lists.follow(self.last, self.term_at, self.entries, parse)

    @invariant()
    def agrees(self) -> None:
        """The newest list and those that a snapshot may need are those that looking finds."""
        assert self.lists.latest == self.at(self.last)
        assert self.lists.latest_index <= self.last
        for index in range(self.committed, self.last + 1):
            assert self.lists.at(index) == self.at(index)


def parse(command: bytes) -> Members | None:
    """Return the list in an entry; other entries are empty."""
    return member_list.decode(command) if command else None


TestLists = LogMachine.TestCase
"""The lists of a log are those that it holds, whatever happens to it."""


def test_what_a_leader_appends_is_the_latest() -> None:
    """A list counts from the moment it is in the log."""
    lists = MembersLog(make("abc"))
    lists.append(7, 2, make("abcd"))
    assert (lists.latest, lists.latest_index) == (make("abcd"), 7)
    assert lists.at(6) == make("abc")


THREE = {"n3": "h:3", "n1": "h:1", "n2": "h:2"}


def test_a_restored_cluster_begins_with_one_voter() -> None:
    """The others are to join, with whatever disk they bring; the list is of the new cluster, and forming."""
    members = member_list.restored("n2", "disk-2", THREE, "c" * 32)
    assert member_list.decode(member_list.encode(members)) == members
    assert list(members.nodes) == ["n1", "n2", "n3"]
    assert members.voters == {"n2"}
    assert [members.disk_id(node_id) for node_id in members.nodes] == ["", "disk-2", ""]
    assert (members.cluster_id, members.serves, members.removed) == ("c" * 32, False, {})


def test_a_restored_cluster_serves_with_more_than_half_of_its_nodes() -> None:
    """The promotion that makes the majority lets it serve, and what is changed later does not end that."""
    peers = {f"n{number}": f"h:{number}" for number in range(1, 6)}
    members = member_list.restored("n1", "disk-1", peers, "c" * 32)
    members = member_list.promoted(members, "n2", "disk-2")
    assert not members.serves
    members = member_list.promoted(members, "n3", "disk-3")
    assert members.serves
    for node_id in ("n3", "n2"):
        members = member_list.without(members, node_id, "", members.nodes)
    assert (members.voters, members.serves) == (frozenset({"n1"}), True)


def test_nodes_that_will_never_come_are_taken_out() -> None:
    """Then fewer are more than half; a node that is added while the cluster forms counts as all others."""
    members = member_list.restored("n1", "disk-1", THREE, "c" * 32)
    members = member_list.with_learner(members, "n4", "h:4")
    for node_id in ("n2", "n3"):
        members = member_list.without(members, node_id, "", {"n1"})
        assert not members.serves
    assert member_list.without(members, "n4", "", {"n1"}).serves


def test_a_node_that_is_restored_alone_serves_at_once() -> None:
    """One of one is more than half."""
    assert member_list.restored("n1", "disk-1", {"n1": "h:1"}, "c" * 32).serves


def test_of_two_restored_clusters_one_serves() -> None:
    """However the nodes are spread over the two, each in one of them: they never both have a majority."""
    for spread in range(1 << 5):
        serving = 0
        for first, joins in (("n1", 0), ("n2", 1)):
            peers = {f"n{number}": f"h:{number}" for number in range(1, 6)}
            members = member_list.restored(first, "disk", peers, first * 16)
            for number in range(3, 6):
                if spread >> number - 1 & 1 == joins:
                    members = member_list.promoted(members, f"n{number}", f"disk-{number}")
            serving += members.serves
        assert serving == 1
