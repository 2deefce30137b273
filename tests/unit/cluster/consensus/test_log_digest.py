"""The digests of a log, and what a replica does with a leader whose history is another one."""

from pathlib import Path

import msgspec
import pytest

from cluster.consensus import log_digest, member_list, messages
from cluster.consensus.log_digest import MEMBERS_MARK, Difference, LogDigests, digest_behind
from cluster.consensus.member_list import Members
from cluster.consensus.messages import UNSET, AppendEntries, Chunk
from cluster.errors import DataDirError
from cluster.storage.journal_format import LogEntry
from cluster.storage.snapshot_format import Snapshot, SnapshotId
from tests.support.replica_parts import LibraryClock
from tests.unit.cluster.consensus.one_replica import COMMAND, Site, extend

ENTRIES: list[LogEntry] = [(b"\1", 1, 0), (b"\0a", 2, 1), (b"\0b", 3, 1), (b"\0c", 4, 2)]


def digests_of(entries: list[LogEntry]) -> list[int | None]:
    """Return the digests of a whole log."""
    return LogDigests(entries).values


def test_every_part_of_every_entry_counts_in_all_that_follow() -> None:
    """Another command, index or term changes the digest there and at every later entry."""
    before = digests_of(ENTRIES)
    for position, (command, index, term) in enumerate(ENTRIES):
        for another in ((command + b"x", index, term), (command, index, term + 1)):
            after = digests_of([*ENTRIES[:position], another, *ENTRIES[position + 1 :]])
            assert after[:position] == before[:position]
            assert all(one != other for one, other in zip(after[position:], before[position:], strict=True))
    assert digest_behind(7, b"\0a", 2, 1) != digest_behind(7, b"\0a", 3, 1)


def test_a_change_of_the_members_hides_no_difference_before_it() -> None:
    """Two histories that differ have different digests behind a change of the members, too."""
    members = member_list.with_learner(Members(), "n3", "h:3")
    change = (MEMBERS_MARK + member_list.encode(members), 5, 2)
    one, other = digests_of([*ENTRIES, change]), digests_of([*ENTRIES[:-1], (b"\0C", 4, 2), change])
    assert one[-1] != other[-1]
    assert digests_of([ENTRIES[-1], change])[-1] is None


def test_digests_follow_the_log_as_it_is_cut_and_compacted() -> None:
    """What stays keeps its digests, and what is appended goes on from there."""
    digests, expected = LogDigests(ENTRIES), digests_of(ENTRIES)
    digests.remove_before(2)
    assert digests.values == expected[2:]
    digests.remove_from(1)
    digests.append(*ENTRIES[3])
    assert digests.values[1] == expected[3]


def test_a_snapshots_digest_makes_what_follows_known() -> None:
    """A log whose beginning is gone is known again from the entry whose digest is known."""
    expected, digests = digests_of(ENTRIES), LogDigests(ENTRIES[1:])
    assert digests.values[2] is None
    assert digests.learn(1, expected[2] or 0, ENTRIES[3:])
    assert digests.values == [None, *expected[2:]]
    assert digests.learn(2, expected[3] or 0, [])
    assert not digests.learn(2, 5, []), "it is known already, and another"


class View:
    """A log for `difference`."""

    def __init__(self, entries: list[LogEntry]) -> None:
        self.entries = {index: (command, index, term) for command, index, term in entries}
        self.digests = dict(zip(self.entries, digests_of(entries), strict=True))

    def term_at(self, index: int) -> int | None:
        """Return the term at an index."""
        return self.entries[index][2] if index in self.entries else None

    def digest_at(self, index: int) -> int | None:
        """Return the digest at an index."""
        return self.digests.get(index)


def said(entries: list[LogEntry], first: int, count: int = 0) -> AppendEntries:
    """Return what a leader with this log says of `count` entries from `first` on."""
    view = View(entries)
    _, index, term = view.entries[first - 1]
    digest = view.digest_at(index)
    return AppendEntries(
        term=9,
        commit_index=1,
        entries=[view.entries[first + number] for number in range(count)],
        previous_index=index,
        previous_term=term,
        previous_digest=UNSET if digest is None else digest,
    )


OTHER = [*ENTRIES[:2], (b"\0B", 3, 1), *ENTRIES[3:]]
"""The same places and terms as ENTRIES, and another history from 3 on."""


def test_the_place_before_the_entries_is_compared() -> None:
    """A leader that agrees up to there has the same history; one with another history does not."""
    log = View(ENTRIES)
    assert log_digest.difference(said(ENTRIES, 4), log) is None
    assert log_digest.difference(said(OTHER, 3), log) is None, "they part later"
    own, theirs = log.digest_at(3), View(OTHER).digest_at(3)
    assert own is not None
    assert theirs is not None
    assert log_digest.difference(said(OTHER, 4), log) == Difference(3, 1, own, theirs)


def test_entries_that_are_here_already_are_compared() -> None:
    """A repetition with other content at the same place is not taken for what is here."""
    found = log_digest.difference(said(OTHER, 3, 2), View(ENTRIES))
    assert found is not None
    assert (found.index, found.term) == (4, 2)
    assert log_digest.difference(said(ENTRIES, 3, 2), View(ENTRIES)) is None
    assert log_digest.difference(said(OTHER, 3, 2), View(ENTRIES[:2])) is None, "they are new here"


def test_an_entry_of_another_term_is_no_other_history() -> None:
    """That is what Raft itself resolves: what the leader does not have was never committed."""
    log = View([*ENTRIES[:2], (b"\0z", 3, 2)])
    assert log_digest.difference(said(ENTRIES, 4), log) is None
    assert log_digest.difference(said(ENTRIES, 3, 1), log) is None


def test_what_is_not_known_is_not_compared() -> None:
    """Neither what an earlier release leaves out, nor what is before this log, nor what it does not know."""
    unknown = msgspec.structs.replace(said(OTHER, 4), previous_digest=UNSET)
    assert log_digest.difference(unknown, View(ENTRIES)) is None
    assert log_digest.difference(said(OTHER, 4), View([(b"\0x", 3, 1)])) is None
    assert log_digest.difference(said(OTHER, 3), View(ENTRIES[3:])) is None
    assert log_digest.difference(AppendEntries(term=1, commit_index=1), View(ENTRIES)) is None


def test_a_snapshot_is_compared_where_it_ends() -> None:
    """A leader whose snapshot ends at an entry of this log has the same history, or another one."""
    digest = View(OTHER).digest_at(4)
    assert digest is not None
    chunk = Chunk(b"", 0, False, SnapshotId(4, 2, 10, b"digest"))
    message = AppendEntries(term=9, commit_index=1, chunk=chunk, previous_digest=digest)
    found = log_digest.difference(message, View(ENTRIES))
    assert found is not None
    assert (found.index, found.theirs) == (4, digest)
    assert log_digest.difference(message, View(OTHER)) is None


# -- in a replica -------------------------------------------------------------------------------------------


def over_the_wire(message: messages.Message) -> messages.Message:
    """Return what the other end reads."""
    decoded = messages.decode(msgspec.msgpack.encode(message))
    assert not isinstance(decoded, str)
    return decoded


def heard_by(peer_id: str, site: Site) -> list[messages.Message]:
    """Let a node win an election and propose an entry; return what a peer hears."""
    ready = site.lead()
    extend(ready, site.acknowledge("n3"))
    extend(ready, site.replica.tick(has_entry=True))
    extend(ready, site.replica.propose(iter([b"more"])))
    return [
        over_the_wire(message)
        for to, message in ready.messages
        if to == peer_id and isinstance(message, AppendEntries)
    ]


def with_history(directory: Path, clock: LibraryClock, node_id: str, *contents: bytes) -> Site:
    """Return a node whose log has these commands, in entries of term 1, on its disk."""
    site = Site(directory, clock, node_id)
    message = site.append(contents=[COMMAND + content for content in contents])
    site.replica.receive("n3", message)
    site.journal.sync()
    return site


def test_two_histories_with_the_same_places_and_terms_do_not_follow_each_other(
    tmp_path: Path, clock: LibraryClock
) -> None:
    """After two leaders in one term, a node neither acknowledges nor takes what the other one says."""
    leader = with_history(tmp_path / "n1", clock, "n1", b"a/0 belongs to A")
    follower = with_history(tmp_path / "n2", clock, "n2", b"a/0 belongs to B")
    heard = heard_by("n2", leader)
    assert len(heard) > 1
    committed = follower.replica.log.committed
    differences = []
    for message in heard:
        ready = follower.replica.receive("n1", message)
        assert [to for to, _ in ready.messages + ready.promises] == []
        differences.append(ready.difference)
    assert follower.replica.log.committed == committed
    assert follower.journal[-1][0] == COMMAND + b"a/0 belongs to B"
    found = differences[0]
    assert found is not None
    assert (found.index, found.term) == (2, 1)
    assert found.own == follower.replica.log.digest_at(2) != found.theirs == leader.replica.log.digest_at(2)
    for site in (leader, follower):
        site.close()


def test_a_follower_with_the_same_history_follows(tmp_path: Path, clock: LibraryClock) -> None:
    """What is compared all the time is equal all the time: nothing is held up."""
    leader = with_history(tmp_path / "n1", clock, "n1", b"the same")
    follower = with_history(tmp_path / "n2", clock, "n2", b"the same")
    heard = heard_by("n2", leader)
    assert len(heard) > 1
    for message in heard:
        assert isinstance(message, AppendEntries)
        assert message.previous_digest is not UNSET
        assert follower.replica.receive("n1", message).difference is None
        follower.journal.sync()
    assert follower.journal[:] == leader.journal[:]
    assert follower.replica.log.digest_at(4) == leader.replica.log.digest_at(4) is not None
    for site in (leader, follower):
        site.close()


def test_a_restart_finds_the_same_digests(tmp_path: Path, clock: LibraryClock) -> None:
    """Behind a snapshot they go on from the digest that the snapshot carries."""
    site = with_history(tmp_path / "n1", clock, "n1", b"one", b"two", b"three")
    expected = [site.replica.log.digest_at(index) for index in range(2, 5)]
    site.store.begin_write(site.journal[2], site.journal[1], b"", lambda: b"state", expected[1])
    assert site.store.poll() == "done"
    site.close()
    Site(tmp_path / "n1", clock, "n1").close()
    again = Site(tmp_path / "n1", clock, "n1")
    assert again.replica.log.first_index == 2, "what is in the snapshot has gone from the journal"
    assert [again.replica.log.digest_at(index) for index in range(2, 5)] == [None, *expected[1:]]
    again.close()


def test_a_snapshot_of_another_history_is_refused_at_the_start(tmp_path: Path, clock: LibraryClock) -> None:
    """A journal and a snapshot that do not belong together are not used together."""
    site = with_history(tmp_path / "n1", clock, "n1", b"one", b"two")
    site.store.begin_write(site.journal[1], site.journal[0], b"", lambda: b"state", 12345)
    assert site.store.poll() == "done"
    site.close()
    with pytest.raises(
        DataDirError, match=r"different histories up to entry 2 of term 1.*files of two disks"
    ):
        Site(tmp_path / "n1", clock, "n1")


def test_an_installed_snapshot_brings_its_digest(tmp_path: Path, clock: LibraryClock) -> None:
    """A follower that got a snapshot compares from its last entry on."""
    site = Site(tmp_path / "n1", clock, "n1")
    previous, last = (b"\0x", 8, 1), (b"\0y", 9, 1)
    site.replica._transfer._received = Snapshot(previous, last, b"", log_digest=77)
    site.replica.engine.install_received()
    assert [site.replica.log.digest_at(index) for index in (8, 9)] == [None, 77]
    site.close()


def test_digests_follow_a_log_that_a_new_leader_cuts(tmp_path: Path, clock: LibraryClock) -> None:
    """What replaces the tail of another term has the digests of the new history."""
    site = with_history(tmp_path / "n1", clock, "n1", b"one", b"cut off", b"cut off too")
    digest = site.replica.log.digest_at(2)
    assert digest is not None
    newer = AppendEntries(
        term=2,
        commit_index=1,
        entries=[(COMMAND + b"instead", 3, 2)],
        previous_index=2,
        previous_term=1,
        previous_digest=digest,
    )
    assert site.replica.receive("n3", newer).difference is None
    assert site.journal.last_index == 3
    expected = LogDigests(site.journal[:])
    assert [site.replica.log.digest_at(index) for index in (2, 3, 4)] == [digest, expected.values[2], None]
    site.close()


def test_a_snapshot_is_written_with_its_digest(tmp_path: Path, clock: LibraryClock) -> None:
    """It is that of the last entry in it."""
    site = with_history(tmp_path / "n1", clock, "n1", b"one", b"two")
    site.lead()
    site.commit(b"three")
    site.replica.engine.force_compaction()
    due = site.replica.tick(has_entry=False).snapshot
    assert due is not None
    assert due.log_digest == site.replica.log.digest_at(due.last[1]) is not None
    site.close()
